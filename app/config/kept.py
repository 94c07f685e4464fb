"""Keys of Kafka 4 that have no effect here: accepted, checked, kept and told, so that what was written for Kafka works.

Names, types, bounds and defaults are those of Kafka 4; what has an effect is in `broker_config`.
"""

from collections.abc import Iterator, Mapping

from attrs import evolve

from ...ports.broker_api.configs import ConfigType
from .keys import INT_MAX, LONG_MAX, SHORT_MAX, ConfigKey

KEPT = "Kept, no effect"
"""How the documentation of such a key begins."""
_LOWEST = {ConfigType.SHORT: -SHORT_MAX - 1, ConfigType.INT: -INT_MAX - 1, ConfigType.LONG: -LONG_MAX - 1}
_HIGHEST = {ConfigType.SHORT: SHORT_MAX, ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}


def _number(
    kind: ConfigType, name: str, default: int | None, low: int | None, high: int | None, dynamic: bool
) -> ConfigKey:
    low = _LOWEST[kind] if low is None else low
    high = _HIGHEST[kind] if high is None else high
    return ConfigKey(name=name, type=kind, default=default, doc="", low=low, high=high, dynamic=dynamic)


def _short(name: str, default: int | None, low: int | None = None) -> ConfigKey:
    return _number(ConfigType.SHORT, name, default, low, None, False)


def _int(
    name: str, default: int | None, low: int | None = None, high: int | None = None, *, dynamic: bool = False
) -> ConfigKey:
    return _number(ConfigType.INT, name, default, low, high, dynamic)


def _long(name: str, default: int | None, low: int | None = None, *, dynamic: bool = False) -> ConfigKey:
    return _number(ConfigType.LONG, name, default, low, None, dynamic)


def _flag(name: str, default: bool, *, choices: tuple[str, ...] = (), dynamic: bool = False) -> ConfigKey:
    kind = ConfigType.BOOLEAN
    return ConfigKey(name=name, type=kind, default=default, doc="", choices=choices, dynamic=dynamic)


def _text(name: str, default: str | None, choices: tuple[str, ...] = (), *, dynamic: bool = False) -> ConfigKey:
    kind = ConfigType.STRING
    return ConfigKey(name=name, type=kind, default=default, doc="", choices=choices, dynamic=dynamic)


def _list(name: str, *default: str, choices: tuple[str, ...] = (), dynamic: bool = False) -> ConfigKey:
    kind = ConfigType.LIST
    return ConfigKey(name=name, type=kind, default=default, doc="", choices=choices, dynamic=dynamic)


_METADATA_MANAGER = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"

_BY_REASON: Mapping[str, tuple[ConfigKey, ...]] = {
    "one thread serves all requests, and what waits is bounded by other keys": (
        _int("delete.records.purgatory.purge.interval.requests", 1),
        _int("fetch.purgatory.purge.interval.requests", 1000),
        _int("max.incremental.fetch.session.cache.slots", 1000, 0),
        _int("max.request.partition.size.limit", 2000, 1),
        _int("num.io.threads", 8, 1, dynamic=True),
        _int("num.network.threads", 3, 1, dynamic=True),
        _int("num.recovery.threads.per.data.dir", 2, 1, dynamic=True),
        _int("producer.purgatory.purge.interval.requests", 1000),
        _int("queued.max.requests", 500, 1),
        _int("request.timeout.ms", 30_000),
        _int("share.fetch.purgatory.purge.interval.requests", 1000),
    ),
    "it is left to the operating system, or there is no such limit": (
        _int("connection.failed.authentication.delay.ms", 100, 0),
        _long("connections.max.reauth.ms", 0),
        _int("max.connection.creation.rate", INT_MAX, 0, dynamic=True),
        _int("max.connections.per.ip", INT_MAX, 0, dynamic=True),
        _text("max.connections.per.ip.overrides", "", dynamic=True),
        _long("socket.connection.setup.timeout.max.ms", 30_000),
        _long("socket.connection.setup.timeout.ms", 10_000),
        _int("socket.listen.backlog.size", 50, 1),
        _int("socket.receive.buffer.bytes", 102_400),
        _int("socket.send.buffer.bytes", 102_400),
    ),
    "logs are kept without it": (
        _int("compression.gzip.level", -1, -1, 9, dynamic=True),
        _int("compression.lz4.level", 9, 1, 17, dynamic=True),
        _int("compression.zstd.level", 3, -131_072, 22, dynamic=True),
        _list("cordoned.log.dirs", dynamic=True),
        _long("log.dir.failure.timeout.ms", 30_000, 1),
        _int("log.flush.start.offset.checkpoint.interval.ms", 60_000, 0),
        _long("log.initial.task.delay.ms", 30_000, 0),
        _flag("log.message.downconversion.enable", True, dynamic=True),
        _text("log.message.format.version", "3.0-IV1"),
        _flag("log.preallocate", False, dynamic=True),
        _short("offsets.commit.required.acks", -1, -1),
        _int("offsets.topic.compression.codec", 0),
    ),
    "logs are not moved to another storage": (
        _flag("follower.fetch.last.tiered.offset.enable", False, dynamic=True),
        _long("log.local.retention.bytes", -2, -2, dynamic=True),
        _long("log.local.retention.ms", -2, -2, dynamic=True),
        _int("remote.fetch.max.wait.ms", 500, 1, dynamic=True),
        _long("remote.list.offsets.request.timeout.ms", 30_000, 1, dynamic=True),
        _long("remote.log.index.file.cache.total.size.bytes", 1_073_741_824, 1, dynamic=True),
        _int("remote.log.manager.copier.thread.pool.size", 10, 1, dynamic=True),
        _long("remote.log.manager.copy.max.bytes.per.second", LONG_MAX, 1, dynamic=True),
        _int("remote.log.manager.copy.quota.window.num", 11, 1),
        _int("remote.log.manager.copy.quota.window.size.seconds", 1, 1),
        _int("remote.log.manager.expiration.thread.pool.size", 10, 1, dynamic=True),
        _long("remote.log.manager.fetch.max.bytes.per.second", LONG_MAX, 1, dynamic=True),
        _int("remote.log.manager.fetch.quota.window.num", 11, 1),
        _int("remote.log.manager.fetch.quota.window.size.seconds", 1, 1),
        _int("remote.log.manager.follower.thread.pool.size", 2, 1, dynamic=True),
        _long("remote.log.manager.task.interval.ms", 30_000, 1),
        _int("remote.log.manager.thread.pool.size", 2, 1),
        _int("remote.log.metadata.custom.metadata.max.bytes", 128, 0),
        _text("remote.log.metadata.manager.class.name", _METADATA_MANAGER),
        _text("remote.log.metadata.manager.class.path", None),
        _text("remote.log.metadata.manager.impl.prefix", "rlmm.config."),
        _text("remote.log.metadata.manager.listener.name", None),
        _int("remote.log.reader.max.pending.tasks", 100, 1),
        _int("remote.log.reader.threads", 10, 1, dynamic=True),
        _text("remote.log.storage.manager.class.name", None),
        _text("remote.log.storage.manager.class.path", None),
        _text("remote.log.storage.manager.impl.prefix", "rsm.config."),
        _flag("remote.log.storage.system.enable", False, choices=("false",)),
    ),
    "logs do not move from folder to folder": (
        _int("alter.log.dirs.replication.quota.window.num", 11, 1),
        _int("alter.log.dirs.replication.quota.window.size.seconds", 1, 1),
        _int("num.replica.alter.log.dirs.threads", None),
        _long("replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX, 0, dynamic=True),
    ),
    "a broker copies from each leader over one connection, in the clear": (
        _text("inter.broker.protocol.version", None),
        _int("num.replica.fetchers", 1, 1, dynamic=True),
        _int("replica.socket.receive.buffer.bytes", 65_536),
        _int("replication.quota.window.num", 11, 1),
        _int("replication.quota.window.size.seconds", 1, 1),
        _text("security.inter.broker.protocol", "PLAINTEXT", ("PLAINTEXT",)),
    ),
    "brokers agree through the coordination service and need no controllers": (
        _int("broker.heartbeat.interval.ms", 2000),
        _int("controller.quorum.append.linger.ms", 25, 0),
        _flag("controller.quorum.auto.join.enable", False),
        _list("controller.quorum.bootstrap.servers"),
        _int("controller.quorum.election.backoff.max.ms", 1000, 0),
        _int("controller.quorum.election.timeout.ms", 1000, 0),
        _int("controller.quorum.fetch.max.bytes", 1_048_576, 1),
        _int("controller.quorum.fetch.snapshot.max.bytes", 1_048_576, 1),
        _int("controller.quorum.fetch.timeout.ms", 2000, 0),
        _int("controller.quorum.request.timeout.ms", 2000, 0),
        _int("controller.quorum.retry.backoff.ms", 20, 0),
        _list("controller.quorum.voters"),
        _int("controller.socket.timeout.ms", 30_000),
        _list("early.start.listeners"),
        _int("initial.broker.registration.timeout.ms", 60_000),
        _text("metadata.log.dir", None),
        _long("metadata.log.max.record.bytes.between.snapshots", 20_971_520, 1),
        _long("metadata.log.max.snapshot.interval.ms", 3_600_000, 0),
        _int("metadata.log.segment.bytes", 1_073_741_824, 8_388_608),
        _long("metadata.log.segment.ms", 604_800_000),
        _int("metadata.max.idle.interval.ms", 500, 0),
        _long("metadata.max.retention.bytes", 104_857_600),
        _long("metadata.max.retention.ms", 604_800_000),
        _list("process.roles", choices=("broker", "controller")),
        _int("zookeeper.max.in.flight.requests", 10, 1),
        _flag("zookeeper.set.acl", False, choices=("false",)),
    ),
    "there are no quotas yet": (
        _int("controller.quota.window.num", 11, 1),
        _int("controller.quota.window.size.seconds", 1, 1),
        _int("quota.window.num", 11, 1),
        _int("quota.window.size.seconds", 1, 1),
    ),
    "there is one group protocol, the classic one, and it runs in the broker's only thread": (
        _int("group.consumer.assignment.interval.ms", 1000, 0, dynamic=True),
        _list("group.consumer.assignors", "uniform", "range"),
        _int("group.consumer.heartbeat.interval.ms", 5000, 1),
        _int("group.consumer.max.assignment.interval.ms", 15_000, 0),
        _int("group.consumer.max.heartbeat.interval.ms", 15_000, 1),
        _int("group.consumer.max.session.timeout.ms", 60_000, 1),
        _int("group.consumer.max.size", INT_MAX, 1),
        _text("group.consumer.migration.policy", "bidirectional"),
        _int("group.consumer.min.assignment.interval.ms", 0, 0),
        _int("group.consumer.min.heartbeat.interval.ms", 5000, 1),
        _int("group.consumer.min.session.timeout.ms", 45_000, 1),
        _int("group.consumer.session.timeout.ms", 45_000, 1),
        _int("group.coordinator.append.linger.ms", -1, -1),
        _int("group.coordinator.background.threads", 2, 1),
        _int("group.coordinator.cached.buffer.max.bytes", 1_048_588, 524_288, dynamic=True),
        _list("group.coordinator.rebalance.protocols", "classic", "consumer", "streams"),
        _int("group.coordinator.threads", 4, 1),
        _int("group.share.assignment.interval.ms", 1000, 0, dynamic=True),
        _list("group.share.assignors", "simple"),
        _int("group.share.delivery.count.limit", 5, 2, 10),
        _int("group.share.heartbeat.interval.ms", 5000, 1),
        _int("group.share.max.assignment.interval.ms", 15_000, 0),
        _int("group.share.max.delivery.count.limit", 10, 5, 25),
        _int("group.share.max.heartbeat.interval.ms", 15_000, 1),
        _int("group.share.max.partition.max.record.locks", 4000, 2000, 10_000),
        _int("group.share.max.record.lock.duration.ms", 60_000, 30_000, 3_600_000),
        _int("group.share.max.session.timeout.ms", 60_000, 1),
        _int("group.share.max.share.sessions", 2000, 1),
        _int("group.share.max.size", 200, 1, 1000),
        _int("group.share.min.assignment.interval.ms", 0, 0),
        _int("group.share.min.delivery.count.limit", 2, 2, 5),
        _int("group.share.min.heartbeat.interval.ms", 5000, 1),
        _int("group.share.min.partition.max.record.locks", 100, 100, 2000),
        _int("group.share.min.record.lock.duration.ms", 15_000, 1000, 30_000),
        _int("group.share.min.session.timeout.ms", 45_000, 1),
        _int("group.share.partition.max.record.locks", 2000, 100, 10_000),
        _int("group.share.record.lock.duration.ms", 30_000, 1000, 3_600_000),
        _int("group.share.session.timeout.ms", 45_000, 1),
        _int("group.streams.assignment.interval.ms", 1000, 0, dynamic=True),
        _int("group.streams.heartbeat.interval.ms", 5000, 1),
        _int("group.streams.initial.rebalance.delay.ms", 3000, 0),
        _int("group.streams.max.assignment.interval.ms", 15_000, 0),
        _int("group.streams.max.heartbeat.interval.ms", 15_000, 1),
        _int("group.streams.max.session.timeout.ms", 60_000, 1),
        _int("group.streams.max.size", INT_MAX, 1),
        _int("group.streams.max.standby.replicas", 2, 0),
        _int("group.streams.min.assignment.interval.ms", 0, 0),
        _int("group.streams.min.heartbeat.interval.ms", 5000, 1),
        _int("group.streams.min.session.timeout.ms", 45_000, 1),
        _int("group.streams.num.standby.replicas", 0, 0),
        _int("group.streams.session.timeout.ms", 45_000, 1),
        _int("share.coordinator.append.linger.ms", -1, -1),
        _int("share.coordinator.cached.buffer.max.bytes", 1_048_588, 524_288, dynamic=True),
        _int("share.coordinator.load.buffer.size", 5_242_880, 1),
        _int("share.coordinator.snapshot.update.records.per.snapshot", 500, 0, 500),
        _int("share.coordinator.state.topic.compression.codec", 0),
        _short("share.coordinator.state.topic.min.isr", 2, 1),
        _int("share.coordinator.state.topic.num.partitions", 50, 1),
        _short("share.coordinator.state.topic.replication.factor", 3, 1),
        _int("share.coordinator.state.topic.segment.bytes", 104_857_600, 1),
        _int("share.coordinator.threads", 1, 1),
        _int("share.coordinator.write.timeout.ms", 5000, 1),
    ),
    "transactions are those of version 1 (KIP-890)": (
        _int("add.partitions.to.txn.retry.backoff.max.ms", 100, 0),
        _int("add.partitions.to.txn.retry.backoff.ms", 20, 1),
        _flag("transaction.two.phase.commit.enable", False),
    ),
    "metrics are those of metrics.listen": (
        _flag("auto.include.jmx.reporter", True),
        _int("kafka.metrics.polling.interval.secs", 10, 1),
        _list("kafka.metrics.reporters"),
        _list("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", dynamic=True),
        _int("metrics.num.samples", 2, 1),
        _text("metrics.recording.level", "INFO"),
        _long("metrics.sample.window.ms", 30_000, 1),
        _int("telemetry.max.bytes", 1_048_576, 1),
    ),
}
"""Why they have none, and those keys."""

_TOPIC_KEYS: Mapping[str, tuple[ConfigKey, ...]] = {
    "logs are not moved to another storage": (
        _flag("remote.log.copy.disable", False),
        _flag("remote.log.delete.on.disable", False),
        _flag("remote.storage.enable", False, choices=("false",)),
    ),
}


def _documented(by_reason: Mapping[str, tuple[ConfigKey, ...]]) -> Iterator[ConfigKey]:
    for reason, keys in by_reason.items():
        for key in keys:
            yield evolve(key, doc=f"{KEPT}: {reason}.", kept=True)


KEPT_KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _documented(_BY_REASON)}
"""Of brokers, by name."""

KEPT_TOPIC_KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _documented(_TOPIC_KEYS)}
"""Of topics alone; others have a twin among those of brokers."""

KEPT_TWINS: Mapping[str, str] = {
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.format.version": "log.message.format.version",
    "preallocate": "log.preallocate",
}
"""Topic key → the broker key that counts where a topic has no value of its own."""
