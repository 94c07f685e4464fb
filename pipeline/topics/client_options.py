"""Settings of Kafka's clients that a job brings along: known ones, those without a meaning, and those not to be had.

The names are those of the Java clients (Kafka 4), since jobs come from Spark's own Kafka source and sink.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ...app.clients.shared.settings import FetchSettings, ProducerSettings, read_settings
from ...ports.errors import ConfigError
from .model import PLACE_SETTINGS, REMOTE_STORAGE

_PROTOCOL = "security.protocol"
_SECURITY = ("ssl.", "sasl.")
_EVERY_CLIENT = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "security.providers",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Settings that tune another client library; no read or write depends on them."""
_GROUP_MEMBER = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "client.rack",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
"""Settings of consumers that are members of a group, or that iterate; Spark gives a read its partitions and offsets."""
_PRODUCER = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
    }
)
_BYTES = "keys and values are bytes here; encode or decode the columns"
_NO_INTERCEPTORS = "interceptors of Java clients cannot run here"
_NOT_READING = {
    "auto.offset.reset": "use startingOffsets; a started stream continues at the offsets of its checkpoint",
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "interceptor.classes": _NO_INTERCEPTORS,
    "enable.auto.commit": "a stream's offsets are in its checkpoint; commitOffsetsToGroup commits them to a group",
}
_NOT_WRITING = {
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "interceptor.classes": _NO_INTERCEPTORS,
    "partitioner.ignore.keys": "set a column 'partition', or key to null",
    "transaction.two.phase.commit.enable": "the option txnAppId has each batch committed as a whole",
    "transactional.id": "say txnAppId, a name for the writer: each task has an id of its own",
}
_AS_WITHOUT = {"enable.auto.commit", "partitioner.ignore.keys", "transaction.two.phase.commit.enable"}
"""Settings whose value false asks for what is done anyway."""


def reader_settings(
    given: Mapping[str, str], *, prefix: str = "", classic: bool = False, reasons: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the settings of a read that its clients take; those without a meaning are left out.

    `prefix` stands before the names in texts, as the user writes them; `reasons` say what to do instead of a setting
    where that is not an option of Spark's. Raises `ConfigError` for one that is unknown, that would change what is read
    and cannot be had, or whose value is wrong.
    """
    bucket = {REMOTE_STORAGE: given[REMOTE_STORAGE]} if given.get(REMOTE_STORAGE) else {}
    if bucket and classic:
        raise ConfigError(f"{REMOTE_STORAGE}: a classic cluster has no remote storage")
    given = {name: value for name, value in given.items() if name != REMOTE_STORAGE}
    settings = _usable(given, {**_NOT_READING, **(reasons or {})}, _EVERY_CLIENT | _GROUP_MEMBER, prefix)
    if classic:
        _check_classic(settings, prefix)
    else:
        read_settings(FetchSettings, settings, {}, prefix=prefix)
    return {**settings, **bucket}


def writer_settings(given: Mapping[str, str], *, prefix: str = "") -> dict[str, str]:
    """Check and return the client settings of a write, as `reader_settings` does for a read."""
    settings = _usable(given, _NOT_WRITING, _EVERY_CLIENT | _PRODUCER, prefix)
    read_settings(ProducerSettings, settings, {}, prefix=prefix)
    return settings


def _usable(
    given: Mapping[str, str], refused: Mapping[str, str], harmless: Iterable[str], prefix: str
) -> dict[str, str]:
    protocol = given.get(_PROTOCOL, "").strip().upper()
    settings = {}
    for name, value in given.items():
        if name in refused and not (name in _AS_WITHOUT and _is_false(value)) and value:
            raise ConfigError(f"{prefix}{name} cannot be set: {refused[name]}")
        if name.startswith(_SECURITY) and not protocol:
            protocols = "SASL_SSL, SSL or SASL_PLAINTEXT"
            raise ConfigError(f"{prefix}{name} needs {prefix}{_PROTOCOL}, which is not set: {protocols}")
        is_unused = protocol == "PLAINTEXT" and (name == _PROTOCOL or name.startswith(_SECURITY))
        if name not in refused and name not in harmless and not is_unused:
            settings[name] = value
    return settings


def _is_false(value: Any) -> bool:
    return str(value).strip().lower() == "false"


def _check_classic(settings: Mapping[str, str], prefix: str) -> None:
    from ...app.clients.classic.producer_settings import ClassicConsumerSettings, RegistrySettings

    registry = registry_names(settings)
    read_settings(RegistrySettings, {name: settings[name] for name in registry}, {}, prefix=prefix)
    rest = {name: value for name, value in settings.items() if name not in registry and name not in PLACE_SETTINGS}
    read_settings(ClassicConsumerSettings, rest, {}, prefix=prefix)


def registry_names(settings: Mapping[str, str]) -> set[str]:
    """Return the names among the settings that are settings of registries."""
    import attrs

    from ...app.clients.classic.producer_settings import RegistrySettings
    from ...app.clients.shared.settings import is_registry_key

    fields = {field.name.replace("_", ".") for field in attrs.fields(RegistrySettings)}
    named = settings.keys() & {*RegistrySettings.ALIASES, *fields}
    return named | {name for name in settings if is_registry_key(name)}
