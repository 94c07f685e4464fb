"""The table of the keys of single groups (resource type GROUP), each with the broker key that counts without it."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import evolve

from ...core.coordinator.group.group_config import GroupConfig
from ...ports.broker_api.configs import ConfigType
from ...ports.errors import ConfigError
from ...ports.values import frozen
from .broker_config import KEYS
from .group_keys import bounds_of
from .ignored_keys import NO_EFFECT
from .keys import INT_MAX, ConfigKey
from .names import nearest
from .topic_config import BrokerLayers


@frozen
class GroupConfigKey:
    """A key of groups: `twin` is the broker key that counts where a group has no value of its own, if there is one."""

    key: ConfigKey
    twin: str | None = None

    @property
    def bounds(self) -> tuple[str, str] | None:
        """The broker keys with the least and the greatest value; None: there are none."""
        return None if self.twin is None else bounds_of(self.twin)


def _with_twin(name: str) -> GroupConfigKey:
    twin = f"group.{name}"
    key = evolve(KEYS[twin], name=name, dynamic=True)
    if bounds_of(twin) is not None:  # which are those of single groups
        key = evolve(key, low=0, high=INT_MAX)
    return GroupConfigKey(key, twin)


def _text(name: str, default: str, doc: str, **how: object) -> GroupConfigKey:
    key = ConfigKey(name=name, type=ConfigType.STRING, default=default, doc=doc, dynamic=True)
    return GroupConfigKey(evolve(key, **how))  # type: ignore[arg-type]  # fields of the key


def _flag(name: str, default: bool, doc: str) -> GroupConfigKey:
    return GroupConfigKey(ConfigKey(name=name, type=ConfigType.BOOLEAN, default=default, doc=doc, dynamic=True))


def _ignored(name: str, default: str) -> GroupConfigKey:
    return _text(name, default, f"{NO_EFFECT}: there are no groups of Kafka Streams.", ignored=True)


_TABLE = (
    _with_twin("consumer.assignment.interval.ms"),
    _with_twin("consumer.heartbeat.interval.ms"),
    _with_twin("consumer.session.timeout.ms"),
    _flag(
        "errors.deadletterqueue.copy.record.enable",
        False,
        "Whether a dead letter has the key, value and headers of its message.",
    ),
    _text(
        "errors.deadletterqueue.topic.name",
        "",
        "The topic for messages that a share group has given up; empty: there is none.",
    ),
    _with_twin("share.assignment.interval.ms"),
    _text(
        "share.auto.offset.reset",
        "latest",
        "Where a share group begins in a partition that is new to it: latest, earliest, or by_duration:DURATION, which "
        "is that long ago (by_duration:PT12H).",
        form=r"latest|earliest|by_duration:.+",
        form_text="latest, earliest or by_duration:PnDTnHnMnS",
    ),
    _with_twin("share.delivery.count.limit"),
    _with_twin("share.heartbeat.interval.ms"),
    _text(
        "share.isolation.level",
        "read_uncommitted",
        "Whether a share group gets messages of open and aborted transactions too.",
        choices=("read_uncommitted", "read_committed"),
    ),
    _with_twin("share.partition.max.record.locks"),
    _with_twin("share.record.lock.duration.ms"),
    _flag("share.renew.acknowledge.enable", True, "Whether members may hold a message longer by renewing its lock."),
    _with_twin("share.session.timeout.ms"),
    _ignored("streams.assignment.interval.ms", "1000"),
    _ignored("streams.assignor.name", "sticky"),
    _ignored("streams.heartbeat.interval.ms", "5000"),
    _ignored("streams.initial.rebalance.delay.ms", "3000"),
    _ignored("streams.num.standby.replicas", "0"),
    _ignored("streams.rack.aware.assignment.tags", ""),
    _ignored("streams.session.timeout.ms", "45000"),
)
GROUP_KEYS: Mapping[str, GroupConfigKey] = {each.key.name: each for each in _TABLE}
"""Every key of groups by name."""

_SESSIONS = (
    ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"),
    ("share.heartbeat.interval.ms", "share.session.timeout.ms"),
)


def group_key(name: str) -> GroupConfigKey:
    """Raises `ConfigError` for a name that is no key of groups, with the nearest one."""
    found = GROUP_KEYS.get(name)
    if found is None:
        raise ConfigError(f"unknown group configuration key {name[:200]!r}{nearest(name, list(GROUP_KEYS))}")
    return found


def group_defaults(layers: BrokerLayers) -> GroupConfig:
    """Return the settings of a group that has none of its own."""
    return GroupConfig(
        **{  # type: ignore[arg-type]  # each value has the type of its key
            name.replace(".", "_"): each.key.default if each.twin is None else layers.effective(each.twin)
            for name, each in GROUP_KEYS.items()
            if not each.key.ignored
        }
    )


def check_group_configs(layers: BrokerLayers, configs: Mapping[str, str], changed: Collection[str]) -> None:
    """Raise `ConfigError` for a changed value outside the bounds of the broker, and for values that contradict each
    other."""
    values = {name: group_key(name).key.parse(text) for name, text in configs.items() if name in GROUP_KEYS}
    for name, value in values.items():
        bounds = GROUP_KEYS[name].bounds
        if bounds is not None and name in changed:
            low, high = map(layers.effective, bounds)
            if not _number(low) <= value <= _number(high):
                raise ConfigError(f"{name}={value} is not within {bounds[0]}={low} to {bounds[1]}={high}")
    made = evolve(group_defaults(layers), **_fields(values))
    for heartbeat, session in _SESSIONS:
        if _value(made, heartbeat) >= _value(made, session):
            text = f"{session}={_value(made, session)}: members would be dropped between two heartbeats"
            raise ConfigError(f"{heartbeat}={_value(made, heartbeat)} is not below {text}")
    try:
        made.share_reset_age_ms  # noqa: B018  checked
    except ValueError as error:
        raise ConfigError(f"share.auto.offset.reset={made.share_auto_offset_reset[:200]}: {error}") from error


def group_overrides(
    layers: BrokerLayers, group_id: str, configs: Mapping[str, str], report: Callable[[str], None]
) -> dict[str, object]:
    """Return what a group has of its own, by the fields of `GroupConfig`.

    What is stored may be outside the bounds that the broker has by now: it gets the nearest value within them. What
    makes no sense counts as not set. Both are reported.
    """
    usable: dict[str, str] = {}
    for name, text in configs.items():
        try:
            value = _within(layers, group_id, name, text, report)
            check_group_configs(layers, usable | {name: value}, [name])
        except ConfigError as error:
            report(f"ignored a stored configuration of group {group_id}: {error}")
            continue
        usable[name] = value
    return _fields({name: GROUP_KEYS[name].key.parse(text) for name, text in usable.items()})


def _within(layers: BrokerLayers, group_id: str, name: str, text: str, report: Callable[[str], None]) -> str:
    key = group_key(name)
    value = key.key.parse(text)
    if key.bounds is None:
        return text
    low, high = (_number(layers.effective(bound)) for bound in key.bounds)
    nearest_value = min(max(value, low), high)
    if nearest_value != value:
        report(f"group {group_id} has {name}={value}; the bounds of this broker make it {nearest_value}")
    return str(nearest_value)


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in values.items() if not GROUP_KEYS[name].key.ignored}


def _value(config: GroupConfig, name: str) -> int:
    return _number(getattr(config, name.replace(".", "_")))


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a number")
    return value
