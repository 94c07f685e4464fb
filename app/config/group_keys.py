"""The keys of consumer groups (KIP-848) and share groups (KIP-932), by Kafka's names, with its defaults and bounds.

Single groups may have other values of some of them, within the bounds `group.*.min.*` and `group.*.max.*`; see
`group_config`.
"""

from ...ports.errors import ConfigError
from .key_table import key_table
from .keys import INT_MAX, int_key, list_key, text_key

_BOUNDED = (
    ("group.consumer.", "session.timeout.ms"),
    ("group.consumer.", "heartbeat.interval.ms"),
    ("group.consumer.", "assignment.interval.ms"),
    ("group.share.", "session.timeout.ms"),
    ("group.share.", "heartbeat.interval.ms"),
    ("group.share.", "assignment.interval.ms"),
    ("group.share.", "record.lock.duration.ms"),
    ("group.share.", "delivery.count.limit"),
    ("group.share.", "partition.max.record.locks"),
)
"""The prefix and the rest of each key that has a least and a greatest value for single groups."""


def bounds_of(name: str) -> tuple[str, str] | None:
    """Return the keys with the least and the greatest value of a key; None: it has no such keys."""
    for prefix, rest in _BOUNDED:
        if name == prefix + rest:
            return f"{prefix}min.{rest}", f"{prefix}max.{rest}"
    return None


@key_table
class GroupKeys:
    """A part of the table; see `BrokerConfig`."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = list_key(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        ("classic", "consumer", "share", "streams"),
        doc="The enabled group protocols. classic is always enabled; streams and share have no effect.",
    )

    # Consumer groups (KIP-848).
    group_consumer_session_timeout_ms: int = int_key(
        "group.consumer.session.timeout.ms",
        45_000,
        1,
        doc="A member that sends no heartbeat for this time is removed from its group.",
    )
    group_consumer_min_session_timeout_ms: int = int_key(
        "group.consumer.min.session.timeout.ms",
        45_000,
        1,
        doc="The minimum that a group may set for consumer.session.timeout.ms.",
    )
    group_consumer_max_session_timeout_ms: int = int_key(
        "group.consumer.max.session.timeout.ms",
        60_000,
        1,
        doc="The maximum that a group may set for consumer.session.timeout.ms.",
    )
    group_consumer_heartbeat_interval_ms: int = int_key(
        "group.consumer.heartbeat.interval.ms", 5_000, 1, doc="The interval at which members send heartbeats."
    )
    group_consumer_min_heartbeat_interval_ms: int = int_key(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        1,
        doc="The minimum that a group may set for consumer.heartbeat.interval.ms.",
    )
    group_consumer_max_heartbeat_interval_ms: int = int_key(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        1,
        doc="The maximum that a group may set for consumer.heartbeat.interval.ms.",
    )
    group_consumer_assignment_interval_ms: int = int_key(
        "group.consumer.assignment.interval.ms", 1_000, 0, doc="The minimum time between two assignments of a group."
    )
    group_consumer_min_assignment_interval_ms: int = int_key(
        "group.consumer.min.assignment.interval.ms",
        0,
        0,
        doc="The minimum that a group may set for consumer.assignment.interval.ms.",
    )
    group_consumer_max_assignment_interval_ms: int = int_key(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        0,
        doc="The maximum that a group may set for consumer.assignment.interval.ms.",
    )
    group_consumer_max_size: int = int_key(
        "group.consumer.max.size", INT_MAX, 1, doc="The maximum number of members of a consumer group."
    )
    group_consumer_assignors: tuple[str, ...] = list_key(
        "group.consumer.assignors",
        ("uniform", "range"),
        ("uniform", "range"),
        doc="The assignors that members may name; the first one is the default.",
    )
    group_consumer_migration_policy: str = text_key(
        "group.consumer.migration.policy",
        "bidirectional",
        ("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Whether a live group may move from the classic protocol to that of consumer groups (upgrade) and back "
        "(downgrade).",
        ignore_case=True,
    )
    group_consumer_regex_refresh_interval_ms: int = int_key(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        10_000,
        doc="How often the regular expressions of members are matched with the topics again.",
    )

    # Share groups (KIP-932).
    group_share_session_timeout_ms: int = int_key(
        "group.share.session.timeout.ms",
        45_000,
        1,
        doc="A member that sends no heartbeat for this time is removed from its group.",
    )
    group_share_min_session_timeout_ms: int = int_key(
        "group.share.min.session.timeout.ms",
        45_000,
        1,
        doc="The minimum that a group may set for share.session.timeout.ms.",
    )
    group_share_max_session_timeout_ms: int = int_key(
        "group.share.max.session.timeout.ms",
        60_000,
        1,
        doc="The maximum that a group may set for share.session.timeout.ms.",
    )
    group_share_heartbeat_interval_ms: int = int_key(
        "group.share.heartbeat.interval.ms", 5_000, 1, doc="The interval at which members send heartbeats."
    )
    group_share_min_heartbeat_interval_ms: int = int_key(
        "group.share.min.heartbeat.interval.ms",
        5_000,
        1,
        doc="The minimum that a group may set for share.heartbeat.interval.ms.",
    )
    group_share_max_heartbeat_interval_ms: int = int_key(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        1,
        doc="The maximum that a group may set for share.heartbeat.interval.ms.",
    )
    group_share_assignment_interval_ms: int = int_key(
        "group.share.assignment.interval.ms", 1_000, 0, doc="The minimum time between two assignments of a group."
    )
    group_share_min_assignment_interval_ms: int = int_key(
        "group.share.min.assignment.interval.ms",
        0,
        0,
        doc="The minimum that a group may set for share.assignment.interval.ms.",
    )
    group_share_max_assignment_interval_ms: int = int_key(
        "group.share.max.assignment.interval.ms",
        15_000,
        0,
        doc="The maximum that a group may set for share.assignment.interval.ms.",
    )
    group_share_record_lock_duration_ms: int = int_key(
        "group.share.record.lock.duration.ms",
        30_000,
        1_000,
        3_600_000,
        doc="A record that is not acknowledged within this time is delivered again, perhaps to another member.",
    )
    group_share_min_record_lock_duration_ms: int = int_key(
        "group.share.min.record.lock.duration.ms",
        15_000,
        1_000,
        30_000,
        doc="The minimum that a group may set for share.record.lock.duration.ms.",
    )
    group_share_max_record_lock_duration_ms: int = int_key(
        "group.share.max.record.lock.duration.ms",
        60_000,
        30_000,
        3_600_000,
        doc="The maximum that a group may set for share.record.lock.duration.ms.",
    )
    group_share_delivery_count_limit: int = int_key(
        "group.share.delivery.count.limit",
        5,
        2,
        10,
        doc="The maximum number of deliveries of a record. After that it is archived.",
    )
    group_share_min_delivery_count_limit: int = int_key(
        "group.share.min.delivery.count.limit",
        2,
        2,
        5,
        doc="The minimum that a group may set for share.delivery.count.limit.",
    )
    group_share_max_delivery_count_limit: int = int_key(
        "group.share.max.delivery.count.limit",
        10,
        5,
        25,
        doc="The maximum that a group may set for share.delivery.count.limit.",
    )
    group_share_partition_max_record_locks: int = int_key(
        "group.share.partition.max.record.locks",
        2_000,
        100,
        10_000,
        doc="The maximum number of records of a partition that are in flight in a group.",
    )
    group_share_min_partition_max_record_locks: int = int_key(
        "group.share.min.partition.max.record.locks",
        100,
        100,
        2_000,
        doc="The minimum that a group may set for share.partition.max.record.locks.",
    )
    group_share_max_partition_max_record_locks: int = int_key(
        "group.share.max.partition.max.record.locks",
        4_000,
        2_000,
        10_000,
        doc="The maximum that a group may set for share.partition.max.record.locks.",
    )
    group_share_max_size: int = int_key(
        "group.share.max.size", 200, 1, 1_000, doc="The maximum number of members of a share group."
    )
    group_share_assignors: tuple[str, ...] = list_key(
        "group.share.assignors", ("simple",), ("simple",), doc="The assignor of share groups."
    )
    group_share_max_share_sessions: int = int_key(
        "group.share.max.share.sessions", 2_000, 1, doc="The maximum number of share sessions of this broker."
    )

    def check_groups(self) -> None:
        """Raise `ConfigError` where values contradict each other; the rules are Kafka's."""
        if "classic" not in self.group_coordinator_rebalance_protocols:
            text = ",".join(self.group_coordinator_rebalance_protocols)
            raise ConfigError(
                f"group.coordinator.rebalance.protocols={text} leaves out classic, which is always offered"
            )
        for prefix, rest in _BOUNDED:
            value, low, high = (self._group_number(prefix + part + rest) for part in ("", "min.", "max."))
            if not low <= value <= high:
                text = f"{prefix}min.{rest}={low} to {prefix}max.{rest}={high}"
                raise ConfigError(f"{prefix}{rest}={value} is not within {text}")
        for prefix in ("group.consumer.", "group.share."):
            heartbeat, session = f"{prefix}heartbeat.interval.ms", f"{prefix}session.timeout.ms"
            if self._group_number(heartbeat) >= self._group_number(session):
                text = f"{session}={self._group_number(session)}: members would be dropped between two heartbeats"
                raise ConfigError(f"{heartbeat}={self._group_number(heartbeat)} is not below {text}")
        for name, assignors in (
            ("group.consumer.assignors", self.group_consumer_assignors),
            ("group.share.assignors", self.group_share_assignors),
        ):
            if not assignors or len(set(assignors)) != len(assignors):
                raise ConfigError(f"{name}={','.join(assignors)} does not name each assignor once, and at least one")

    def _group_number(self, name: str) -> int:
        value: int = getattr(self, name.replace(".", "_"))
        return value
