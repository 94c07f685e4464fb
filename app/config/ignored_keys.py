"""Keys of Kafka 4 without an effect: a broker accepts, shows and reports them, so that files written for Kafka work.

Each key has a reason and Kafka's default. Values are texts that nothing checks, but for the keys in `_ONLY`.
`broker_config` has the keys with an effect.
"""

from collections.abc import Mapping

from ...ports.broker_api.configs import ConfigType
from .keys import ConfigKey

NO_EFFECT = "No effect"
"""The documentation of such a key begins with these words."""

_BROKER_KEYS: Mapping[str, str] = {
    "one thread serves all requests, and other keys bound the waiting ones": """
        delete.records.purgatory.purge.interval.requests 1
        fetch.purgatory.purge.interval.requests 1000
        max.incremental.fetch.session.cache.slots 1000
        max.request.partition.size.limit 2000
        num.io.threads 8
        num.network.threads 3
        num.recovery.threads.per.data.dir 2
        producer.purgatory.purge.interval.requests 1000
        queued.max.requests 500
        request.timeout.ms 30000
        share.fetch.purgatory.purge.interval.requests 1000
    """,
    "the operating system decides it, or there is no such limit": """
        socket.connection.setup.timeout.max.ms 30000
        socket.connection.setup.timeout.ms 10000
        socket.listen.backlog.size 50
        socket.receive.buffer.bytes 102400
        socket.send.buffer.bytes 102400
    """,
    "the log does not need it": """
        compression.gzip.level -1
        compression.lz4.level 9
        compression.zstd.level 3
        log.dir.failure.timeout.ms 30000
        log.flush.start.offset.checkpoint.interval.ms 60000
        log.initial.task.delay.ms 30000
        log.message.downconversion.enable true
        log.message.format.version 3.0-IV1
        log.preallocate false
        offsets.commit.required.acks -1
        offsets.topic.compression.codec 0
    """,
    "remote storage here does not need it: one manifest per partition, one place": """
        remote.log.manager.copy.quota.window.num 11
        remote.log.manager.copy.quota.window.size.seconds 1
        remote.log.manager.expiration.thread.pool.size 10
        remote.log.manager.fetch.quota.window.num 11
        remote.log.manager.fetch.quota.window.size.seconds 1
        remote.log.manager.follower.thread.pool.size 2
        remote.log.manager.thread.pool.size 2
        remote.log.metadata.custom.metadata.max.bytes 128
        remote.log.metadata.manager.class.name
        remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix rlmm.config.
        remote.log.metadata.manager.listener.name
        remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix rsm.config.
    """,
    "replicas do not move between the folders of a broker": """
        alter.log.dirs.replication.quota.window.num 11
        alter.log.dirs.replication.quota.window.size.seconds 1
        num.replica.alter.log.dirs.threads
        replica.alter.log.dirs.io.max.bytes.per.second 9223372036854775807
    """,
    "a follower fetches from each leader over one connection": """
        inter.broker.protocol.version
        num.replica.fetchers 1
        replica.socket.receive.buffer.bytes 65536
        replication.quota.window.num 11
        replication.quota.window.size.seconds 1
    """,
    "brokers use the coordination service, not KRaft controllers": """
        broker.heartbeat.interval.ms 2000
        controller.quorum.append.linger.ms 25
        controller.quorum.auto.join.enable false
        controller.quorum.bootstrap.servers ""
        controller.quorum.election.backoff.max.ms 1000
        controller.quorum.election.timeout.ms 1000
        controller.quorum.fetch.max.bytes 1048576
        controller.quorum.fetch.snapshot.max.bytes 1048576
        controller.quorum.fetch.timeout.ms 2000
        controller.quorum.request.timeout.ms 2000
        controller.quorum.retry.backoff.ms 20
        controller.quorum.voters ""
        controller.socket.timeout.ms 30000
        early.start.listeners ""
        initial.broker.registration.timeout.ms 60000
        metadata.log.dir
        metadata.log.max.record.bytes.between.snapshots 20971520
        metadata.log.max.snapshot.interval.ms 3600000
        metadata.log.segment.bytes 1073741824
        metadata.log.segment.ms 604800000
        metadata.max.idle.interval.ms 500
        metadata.max.retention.bytes 104857600
        metadata.max.retention.ms 604800000
        zookeeper.clientCnxnSocket
        zookeeper.max.in.flight.requests 10
    """,
    "the Kerberos library renews tickets": """
        sasl.kerberos.kinit.cmd /usr/bin/kinit
        sasl.kerberos.min.time.before.relogin 60000
        sasl.kerberos.ticket.renew.jitter 0.05
        sasl.kerberos.ticket.renew.window.factor 0.8
    """,
    "revoked certificates of ZooKeeper are not looked for": """
        zookeeper.ssl.crl.enable false
        zookeeper.ssl.ocsp.enable false
    """,
    "one thread coordinates groups, and there are no groups of Kafka Streams": """
        group.coordinator.append.linger.ms -1
        group.coordinator.background.threads 2
        group.coordinator.cached.buffer.max.bytes 1048588
        group.coordinator.threads 4
        group.streams.assignment.interval.ms 1000
        group.streams.heartbeat.interval.ms 5000
        group.streams.initial.rebalance.delay.ms 3000
        group.streams.max.assignment.interval.ms 15000
        group.streams.max.heartbeat.interval.ms 15000
        group.streams.max.session.timeout.ms 60000
        group.streams.max.size 2147483647
        group.streams.max.standby.replicas 2
        group.streams.min.assignment.interval.ms 0
        group.streams.min.heartbeat.interval.ms 5000
        group.streams.min.session.timeout.ms 45000
        group.streams.num.standby.replicas 0
        group.streams.session.timeout.ms 45000
        share.coordinator.append.linger.ms -1
        share.coordinator.cached.buffer.max.bytes 1048588
        share.coordinator.state.topic.compression.codec 0
        share.coordinator.threads 1
    """,
    "transactions are those of version 1 (KIP-890)": """
        add.partitions.to.txn.retry.backoff.max.ms 100
        add.partitions.to.txn.retry.backoff.ms 20
        transaction.two.phase.commit.enable false
    """,
    "metrics are those of metrics.listen": """
        auto.include.jmx.reporter true
        kafka.metrics.polling.interval.secs 10
        kafka.metrics.reporters ""
        metric.reporters org.apache.kafka.common.metrics.JmxReporter
        metrics.num.samples 2
        metrics.recording.level INFO
        metrics.sample.window.ms 30000
        telemetry.max.bytes 1048576
    """,
}
"""Reason → a key and its default per line; without a default it is unset."""

_ONLY: Mapping[str, tuple[str, ...]] = {
    "security.inter.broker.protocol": ("PLAINTEXT",),
    "zookeeper.ssl.crl.enable": ("false",),
    "zookeeper.ssl.ocsp.enable": ("false",),
}
"""Keys that promise safety or storage: any other value is refused instead of ignored."""


def _keys(by_reason: Mapping[str, str]) -> dict[str, ConfigKey]:
    found: dict[str, ConfigKey] = {}
    for reason, table in by_reason.items():
        for line in table.strip().splitlines():
            name, separator, default = line.strip().partition(" ")
            found[name] = ConfigKey(
                name=name,
                type=ConfigType.STRING,
                default=default.strip('"') if separator else None,
                doc=f"{NO_EFFECT}: {reason}.",
                choices=_ONLY.get(name, ()),
                dynamic=True,
                ignored=True,
            )
    return found


_PROCESS_ROLES = ConfigKey(
    name="process.roles",
    type=ConfigType.LIST,
    default=(),
    doc=f"{NO_EFFECT}: brokers use the coordination service, not KRaft controllers.",
    choices=("broker", "controller"),
    ignored=True,
)
"""`listener_names` refuses a process that would be a controller only."""

IGNORED_KEYS: Mapping[str, ConfigKey] = {**_keys(_BROKER_KEYS), _PROCESS_ROLES.name: _PROCESS_ROLES}
"""The ignored keys of brokers, by name."""

IGNORED_TOPIC_DEFAULTS: Mapping[str, str] = {
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.format.version": "log.message.format.version",
    "preallocate": "log.preallocate",
}
"""Ignored topic key → the broker key with its default."""
