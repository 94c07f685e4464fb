"""Other names of keys: those of Kafka 0.7 (facts A5) and of newer Kafka, and those that mean nothing here."""

from collections.abc import Mapping

from ...ports.errors import ConfigError
from .keys import ConfigKey

ALIASES: Mapping[str, tuple[str, int]] = {
    "brokerid": ("broker.id", 1),
    "node.id": ("broker.id", 1),
    "broker.session.timeout.ms": ("zookeeper.session.timeout.ms", 1),
    "log.cleanup.interval.mins": ("log.retention.check.interval.ms", 60_000),
    "log.default.flush.interval.ms": ("log.flush.interval.ms", 1),
    "log.default.flush.scheduler.interval.ms": ("log.flush.scheduler.interval.ms", 1),
    "log.file.size": ("log.segment.bytes", 1),
    "num.threads": ("num.io.threads", 1),
    "socket.receive.buffer": ("socket.receive.buffer.bytes", 1),
    "socket.send.buffer": ("socket.send.buffer.bytes", 1),
    "log.flush.interval": ("log.flush.interval.messages", 1),
    "log.retention.size": ("log.retention.bytes", 1),
    "max.message.size": ("message.max.bytes", 1),
    "enable.zookeeper": ("classic.registration.enable", 1),
    "max.socket.request.bytes": ("socket.request.max.bytes", 1),
    "zk.connectiontimeout.ms": ("zookeeper.connection.timeout.ms", 1),
    "zk.sessiontimeout.ms": ("zookeeper.session.timeout.ms", 1),
}
"""Name to (key, factor that its value is multiplied by)."""

PREFIXES: Mapping[str, tuple[str, str]] = {
    "etcd.connect": ("coordination", "etcd://"),
    "zk.connect": ("coordination", "zookeeper://"),
    "zookeeper.connect": ("coordination", "zookeeper://"),
}
"""Name to (key, what goes before its value)."""


def coordination_url(key: str, servers: str) -> str:
    """Return the coordination URL for the value of `zk.connect` or `etcd.connect`; "" for none."""
    return servers if "://" in servers or not servers else PREFIXES[key][1] + servers


_LISTENERS = "write listeners=kafka://HOST:PORT or classic://HOST:PORT, and advertised.listeners for others"
_NO_SECURITY = "listeners are neither encrypted nor guarded yet; leave it out, and let only trusted machines reach them"
_NO_JAVA = "it names classes of Java, which are not loaded here; see plugins.modules"

REFUSED: Mapping[str, str] = {
    "advertised.host.name": _LISTENERS,
    "advertised.port": _LISTENERS,
    "host.name": _LISTENERS,
    "hostname": _LISTENERS,
    "port": _LISTENERS,
    "zk.synctime.ms": "a broker never waits for ZooKeeper to settle; leave it out",
    "log.message.timestamp.difference.max.ms": (
        "set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms in its place"
    ),
    "alter.config.policy.class.name": _NO_JAVA,
    "client.quota.callback.class": _NO_JAVA,
    "create.topic.policy.class.name": _NO_JAVA,
    "config.providers": _NO_JAVA,
}


REFUSED_PREFIXES: Mapping[str, str] = {
    "sasl.": _NO_SECURITY,
    "ssl.": "there is no such key of TLS here, or only Java has a use for it; leave it out",
    "security.": _NO_SECURITY,
    "delegation.token.": _NO_SECURITY,
    "password.encoder.": "no passwords are stored; leave it out",
}
"""The prefixes of keys for features that are missing, each with the reason: to ignore them would be a trap."""


def canonical(name: str, value: object, keys: Mapping[str, ConfigKey]) -> tuple[str, object]:
    """Return the key that a name stands for, and its value in that key's unit. Python's names with '_' are allowed.

    Raises `ConfigError` for a name that is no key, with the nearest one.
    """
    dotted = name.strip().replace("_", ".")
    if dotted in keys:
        return dotted, value
    if dotted in ALIASES:
        key_name, factor = ALIASES[dotted]
        return key_name, value if factor == 1 else keys[key_name].parse(value) * factor
    if dotted in PREFIXES:
        key_name, prefix = PREFIXES[dotted]
        if not isinstance(value, str):
            raise ConfigError(f"{dotted}={value!r} is not HOST:PORT,HOST:PORT/PATH")
        return key_name, prefix + value.strip()
    prefixes = [prefix for prefix in REFUSED_PREFIXES if dotted.startswith(prefix)]
    if dotted in REFUSED or prefixes:
        why = REFUSED[dotted] if dotted in REFUSED else REFUSED_PREFIXES[prefixes[0]]
        raise ConfigError(f"{dotted} is not supported: {why}")
    raise ConfigError(f"unknown configuration key {name[:200]!r}{nearest(dotted, [*keys, *ALIASES, *PREFIXES])}")


def nearest(name: str, known: list[str]) -> str:
    """`; did you mean ...?` for an error text, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(name[:200], known, 1, 0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
