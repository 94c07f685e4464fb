"""The table of a broker's keys: names and defaults as in Kafka (facts B6, D9, A5); "ours" where Kafka has no such key.

Field names are the keys with '_' for '.'. Values are checked when a `BrokerConfig` is made, however it is made.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from ...core.cluster.topics import ALL_LOG_DIRS, CORDONED_KEY
from ...core.security.quotas.entities import is_ip
from ...ports.errors import ConfigError
from .authorizer_keys import AuthorizerKeys
from .classic import parse_topic_map
from .coordination_keys import CoordinationKeys
from .group_keys import GroupKeys
from .ignored_keys import IGNORED_KEYS
from .key_table import key_table, keys_of
from .keys import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    Value,
    double_key,
    flag_key,
    int_key,
    list_key,
    long_key,
    short_key,
    text_key,
)
from .layers import settings_from
from .listener_names import inter_broker_index, is_of_listener, protocols_of, scoped_key
from .listeners import ListenAddress, check_advertised, parse_address, parse_listeners
from .remote_keys import RemoteKeys
from .sasl_keys import SaslKeys
from .tls_keys import TlsKeys

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")


# The keys of compaction (log.cleaner.*).


@key_table
class CleanerKeys:
    """A part of the table; see `BrokerConfig`."""

    log_cleaner_enable: bool = flag_key(
        "log.cleaner.enable",
        True,
        doc="Whether topics with cleanup.policy=compact, and the broker's internal topics, are compacted.",
    )
    log_cleaner_threads: int = int_key(
        "log.cleaner.threads", 1, 0, doc="The number of threads that compact logs; 0: none.", dynamic=True
    )
    log_cleaner_backoff_ms: int = long_key(
        "log.cleaner.backoff.ms",
        15_000,
        0,
        doc="How long the cleaner sleeps when no log is due for compaction.",
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = long_key(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        -LONG_MAX - 1,
        doc="Memory for the keys of the logs that are being compacted, 24 bytes for each key. Each thread has at "
        "least 1 MiB.",
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = double_key(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        -DOUBLE_MAX,
        DOUBLE_MAX,
        doc="How full log.cleaner.dedupe.buffer.size may become. Values outside 0.1 to 0.95 are moved into that range.",
        dynamic=True,
    )
    log_cleaner_io_buffer_size: int = int_key(
        "log.cleaner.io.buffer.size", 524_288, 0, doc="Memory for the messages that compaction reads.", dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = double_key(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        -DOUBLE_MAX,
        DOUBLE_MAX,
        doc="The maximum number of bytes that all cleaner threads together read and write per second.",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = double_key(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        0.0,
        1.0,
        doc="A log is compacted when more than this share of its bytes has not been compacted yet.",
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = long_key(
        "log.cleaner.min.compaction.lag.ms",
        0,
        0,
        doc="Messages younger than this are not compacted.",
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = long_key(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        1,
        doc="Messages older than this are compacted, whatever log.cleaner.min.cleanable.ratio says; the active "
        "segment is rolled at that age.",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = long_key(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        0,
        doc="How long a compacted log keeps tombstones (messages without a value) after everything before them was "
        "compacted.",
        dynamic=True,
    )


# The keys of quotas, by Kafka's names.

CONNECTION_KEYS = (
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.connection.creation.rate",
)
"""The limits of connections, which change while the broker runs."""


@key_table
class QuotaKeys:
    """A part of the table; see `BrokerConfig`."""

    max_connections: int = int_key(
        "max.connections",
        10_000,
        1,
        doc="The maximum number of connections of the broker, and of each listener. Further ones wait until one "
        "closes.",
        dynamic=True,
        scope="listener",
    )
    max_connections_per_ip: int = int_key(
        "max.connections.per.ip",
        INT_MAX,
        0,
        doc="The maximum number of connections from one address. Further ones are closed at once.",
        dynamic=True,
    )
    max_connections_per_ip_overrides: tuple[str, ...] = list_key(
        "max.connections.per.ip.overrides",
        (),
        doc="ADDRESS:NUMBER,...: values of max.connections.per.ip for single addresses.",
        dynamic=True,
    )
    max_connection_creation_rate: int = int_key(
        "max.connection.creation.rate",
        INT_MAX,
        1,
        doc="The maximum number of new connections per second of the broker, and of each listener. Further ones wait.",
        dynamic=True,
        scope="listener",
    )
    quota_window_num: int = int_key("quota.window.num", 11, 1, doc="The number of samples that a client quota keeps.")
    quota_window_size_seconds: int = int_key(
        "quota.window.size.seconds", 1, 1, doc="The length of each sample of a client quota."
    )
    controller_quota_window_num: int = int_key(
        "controller.quota.window.num", 11, 1, doc="The number of samples that a quota of controller mutations keeps."
    )
    controller_quota_window_size_seconds: int = int_key(
        "controller.quota.window.size.seconds",
        1,
        1,
        doc="The length of each sample of a quota of controller mutations.",
    )

    @property
    def connections_per_ip(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides` by address. Raises `ConfigError`."""
        found = {}
        for item in self.max_connections_per_ip_overrides:
            address, _, number = item.rpartition(":")
            host = address.strip("[]")
            if not is_ip(host) or not number.strip().isdecimal():
                text = "not ADDRESS:NUMBER, with an IP address and a number of connections"
                raise ConfigError(f"max.connections.per.ip.overrides has {item[:100]!r}, which is {text}")
            found[host] = int(number)
        return found


# The keys of what brokers do among themselves: replication, leaders, controlled shutdown (facts D9; names and
# defaults of Kafka 4).


@key_table
class ReplicationKeys:
    """A part of the table; see `BrokerConfig`."""

    security_inter_broker_protocol: str = text_key(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="Brokers connect to the first listener with this security protocol; unset: to the first listener.",
    )
    inter_broker_listener_name: str | None = text_key(
        "inter.broker.listener.name",
        None,
        doc="The listener that other brokers connect to, and the only one that accepts fetches of followers; unset: "
        "the first one of kafka://.",
    )
    replica_lag_time_max_ms: int = long_key(
        "replica.lag.time.max.ms",
        30_000,
        1,
        doc="A follower that has not caught up with the leader for this time is removed from the ISR.",
    )
    replica_fetch_wait_max_ms: int = int_key(
        "replica.fetch.wait.max.ms",
        500,
        1,
        doc="The maximum time that the fetch of a follower waits at the leader for messages.",
    )
    replica_fetch_min_bytes: int = int_key(
        "replica.fetch.min.bytes", 1, 0, doc="The minimum number of bytes that the fetch of a follower waits for."
    )
    replica_fetch_max_bytes: int = int_key(
        "replica.fetch.max.bytes",
        1_048_576,
        0,
        doc="The maximum number of bytes of one partition that a follower fetches with one request.",
    )
    replica_fetch_response_max_bytes: int = int_key(
        "replica.fetch.response.max.bytes",
        10_485_760,
        0,
        doc="The maximum number of bytes of all partitions that a follower fetches with one request.",
    )
    replica_fetch_backoff_ms: int = int_key(
        "replica.fetch.backoff.ms", 1000, 0, doc="How long a follower waits after a failed fetch before it tries again."
    )
    replica_socket_timeout_ms: int = int_key(
        "replica.socket.timeout.ms", 30_000, 1, doc="How long a follower waits for the response of its leader."
    )
    replica_selector_class: str | None = text_key(
        "replica.selector.class",
        None,
        doc="What chooses the replica that a consumer reads from: rack-aware (Kafka's RackAwareReplicaSelector), "
        "leader, or the name of a plug-in; unset: leader.",
    )
    unclean_leader_election_enable: bool = flag_key(
        "unclean.leader.election.enable",
        False,
        doc="Whether a replica outside the ISR may become leader when no other is left. Messages are lost then.",
        dynamic=True,
    )
    auto_leader_rebalance_enable: bool = flag_key(
        "auto.leader.rebalance.enable",
        True,
        doc="Whether the controller moves leadership back to the preferred replicas.",
    )
    leader_imbalance_check_interval_seconds: int = long_key(
        "leader.imbalance.check.interval.seconds",
        300,
        1,
        doc="How often the controller checks whether leadership is imbalanced.",
    )
    leader_imbalance_per_broker_percentage: int = int_key(
        "leader.imbalance.per.broker.percentage",
        10,
        0,
        doc="The controller moves leadership back to a broker if it does not lead more than this percentage of the "
        "partitions whose preferred replica it is.",
    )
    controlled_shutdown_enable: bool = flag_key(
        "controlled.shutdown.enable",
        True,
        doc="Whether a broker hands its leaderships to other replicas before it stops.",
    )
    controlled_shutdown_max_retries: int = int_key(
        "controlled.shutdown.max.retries",
        3,
        0,
        doc="How often a controlled shutdown is tried again while the broker still leads partitions.",
    )
    controlled_shutdown_retry_backoff_ms: int = long_key(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        0,
        doc="How long the broker waits before it tries a controlled shutdown again.",
    )
    leader_replication_throttled_rate: int = long_key(
        "leader.replication.throttled.rate",
        LONG_MAX,
        0,
        doc="The maximum number of bytes per second that a leader sends to followers, for the replicas in "
        "leader.replication.throttled.replicas of their topics.",
        dynamic=True,
    )
    follower_replication_throttled_rate: int = long_key(
        "follower.replication.throttled.rate",
        LONG_MAX,
        0,
        doc="The maximum number of bytes per second that a follower fetches, for the replicas in "
        "follower.replication.throttled.replicas of their topics.",
        dynamic=True,
    )

    def check_replication(self) -> None:
        """Raise `ConfigError` where values contradict each other; the rules are Kafka's."""
        wait_ms = self.replica_fetch_wait_max_ms
        for name, limit_ms, why in (
            ("replica.socket.timeout.ms", self.replica_socket_timeout_ms, "every idle fetch would time out"),
            ("replica.lag.time.max.ms", self.replica_lag_time_max_ms, "idle followers would leave the ISR"),
        ):
            if wait_ms > limit_ms:
                raise ConfigError(f"replica.fetch.wait.max.ms={wait_ms} is above {name}={limit_ms}: {why}")


# The keys of the background check of closed segments (log.scrub.*).


@key_table
class ScrubKeys:
    """A part of the table; see `BrokerConfig`."""

    log_scrub_interval_ms: int = long_key(
        "log.scrub.interval.ms",
        604_800_000,
        1,
        doc="Ours. How often the CRCs of each closed segment are verified in the background.",
        dynamic=True,
    )
    log_scrub_io_max_bytes_per_second: int = long_key(
        "log.scrub.io.max.bytes.per.second",
        1_048_576,
        0,
        doc="Ours. The maximum number of bytes that this verification reads per second, less while requests are "
        "served. 0: only segments in which a read has failed are verified.",
        dynamic=True,
    )


# The keys of transactions, by Kafka's names.


@key_table
class TransactionKeys:
    """A part of the table; see `BrokerConfig`."""

    transaction_max_timeout_ms: int = int_key(
        "transaction.max.timeout.ms", 900_000, 1, doc="The maximum transaction timeout that a producer may request."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int_key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        1,
        doc="How often transactions that have timed out are aborted.",
    )
    transactional_id_expiration_ms: int = int_key(
        "transactional.id.expiration.ms",
        604_800_000,
        1,
        doc="The coordinator forgets a transactional id that was not used for this time.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int_key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        1,
        doc="How often expired transactional ids are removed.",
    )
    transaction_partition_verification_enable: bool = flag_key(
        "transaction.partition.verification.enable",
        True,
        doc="Whether a leader verifies with the coordinator that a partition was added to the transaction of a batch.",
        dynamic=True,
    )
    transaction_state_log_num_partitions: int = int_key(
        "transaction.state.log.num.partitions",
        50,
        1,
        doc="The number of partitions of __transaction_state when it is created.",
    )
    transaction_state_log_replication_factor: int = short_key(
        "transaction.state.log.replication.factor",
        3,
        1,
        doc="The replication factor of __transaction_state when it is created; with fewer live brokers, their number.",
    )
    transaction_state_log_min_isr: int = int_key(
        "transaction.state.log.min.isr", 2, 1, doc="min.insync.replicas of __transaction_state when it is created."
    )
    transaction_state_log_segment_bytes: int = int_key(
        "transaction.state.log.segment.bytes",
        104_857_600,
        14,
        doc="The maximum size of a segment file of __transaction_state.",
    )
    transaction_state_log_load_buffer_size: int = int_key(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        1,
        doc="The number of bytes of __transaction_state that are read at once while a coordinator loads it.",
    )


@key_table
class ShareCoordinatorKeys:
    """The keys of the share coordinator, and of dead letters."""

    share_coordinator_state_topic_num_partitions: int = int_key(
        "share.coordinator.state.topic.num.partitions",
        50,
        1,
        doc="The number of partitions of __share_group_state when it is created.",
    )
    share_coordinator_state_topic_replication_factor: int = short_key(
        "share.coordinator.state.topic.replication.factor",
        3,
        1,
        doc="The replication factor of __share_group_state when it is created; with fewer live brokers, their number.",
    )
    share_coordinator_state_topic_min_isr: int = int_key(
        "share.coordinator.state.topic.min.isr",
        2,
        1,
        doc="min.insync.replicas of __share_group_state when it is created.",
    )
    share_coordinator_state_topic_segment_bytes: int = int_key(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        14,
        doc="The maximum size of a segment file of __share_group_state.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = int_key(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        1,
        doc="How often the records of __share_group_state that are no longer needed are deleted.",
    )
    share_coordinator_load_buffer_size: int = int_key(
        "share.coordinator.load.buffer.size",
        5_242_880,
        1,
        doc="The number of bytes of __share_group_state that are read at once while a coordinator loads it.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = int_key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        0,
        doc="The number of updates of a share partition after which a snapshot of its state is written.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = int_key(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        1,
        doc="A snapshot of a share partition's state is written after this time without updates.",
    )
    share_coordinator_write_timeout_ms: int = int_key(
        "share.coordinator.write.timeout.ms",
        5000,
        1,
        doc="The maximum time for a write of the share coordinator to reach all in-sync replicas.",
    )

    # Dead letters (KIP-1191).
    errors_deadletterqueue_auto_create_topics_enable: bool = flag_key(
        "errors.deadletterqueue.auto.create.topics.enable",
        False,
        doc="Whether the dead letter topic of a share group is created when it is first used.",
    )
    errors_deadletterqueue_topic_name_prefix: str = text_key(
        "errors.deadletterqueue.topic.name.prefix",
        "dlq.",
        doc="The prefix that the names of dead letter topics must have.",
    )


@key_table
class BrokerConfig(
    ShareCoordinatorKeys,
    TransactionKeys,
    GroupKeys,
    CleanerKeys,
    ScrubKeys,
    ReplicationKeys,
    SaslKeys,
    RemoteKeys,
    AuthorizerKeys,
    QuotaKeys,
    TlsKeys,
    CoordinationKeys,
):
    """The configuration that a broker starts with; `given` names the keys that were set on purpose.

    One flat table, as Kafka's. Its bases are parts of it, side by side, each with the keys of one concern: they know
    nothing of each other.
    """

    # The broker and its connections.
    broker_id: int = int_key("broker.id", 1, -1, doc="The id of the broker in its cluster; -1: it is generated.")
    broker_id_generation_enable: bool = flag_key(
        "broker.id.generation.enable", True, doc="Whether an id is generated for broker.id=-1."
    )
    reserved_broker_max_id: int = int_key(
        "reserved.broker.max.id", 1000, 0, doc="Generated broker ids are above this number."
    )
    broker_rack: str | None = text_key(
        "broker.rack", None, doc="The rack of the broker. The replicas of a partition are spread over racks."
    )
    broker_machine: str | None = text_key(
        "broker.machine",
        None,
        doc="Ours. The machine that several brokers share: replicas of a partition go to different machines. Unset: "
        "the broker has one to itself.",
    )
    listeners: tuple[str, ...] = list_key(
        "listeners",
        ("kafka://127.0.0.1:9092",),
        doc="The addresses to listen on: kafka://, ssl://, sasl_ssl:// or classic://HOST:PORT. Port 0: a free port.",
    )
    listener_security_protocol_map: str = text_key(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="NAME:PROTOCOL,...: the security protocols of listeners with names other than kafka and classic.",
    )
    controller_listener_names: tuple[str, ...] = list_key(
        "controller.listener.names",
        (),
        doc="Listeners with these names are not opened, since there are no separate controllers.",
    )
    advertised_listeners: tuple[str, ...] = list_key(
        "advertised.listeners",
        (),
        doc="The addresses that clients connect to, one for each of listeners; empty: the same as listeners.",
    )
    connections_max_idle_ms: int = long_key(
        "connections.max.idle.ms", 600_000, -1, doc="A connection without traffic for this time is closed; -1: never."
    )
    socket_request_max_bytes: int = int_key(
        "socket.request.max.bytes",
        104_857_600,
        1,
        doc="The maximum size of a request. A connection that sends a larger one is closed.",
    )
    socket_unsent_max_bytes: int = int_key(
        "socket.unsent.max.bytes",
        4_194_304,
        1,
        doc="Ours. Reading from a connection pauses while its requests and responses take more memory than this.",
    )
    queued_max_request_bytes: int = long_key(
        "queued.max.request.bytes",
        268_435_456,
        -1,
        doc="The same limit for all connections together. While it is exceeded, reading pauses for connections that "
        "take more than an equal share; -1: no limit.",
    )
    max_in_flight_requests_per_connection: int = int_key(
        "max.in.flight.requests.per.connection",
        1000,
        1,
        doc="Ours. The maximum number of requests of one connection that are not answered yet.",
    )
    slow_request_threshold_ms: int = long_key(
        "slow.request.threshold.ms", 1000, -1, doc="Ours. Requests that take longer than this are logged; -1: none."
    )
    fetch_max_bytes: int = int_key(
        "fetch.max.bytes", 57_671_680, 1024, doc="The maximum number of bytes in one fetch response."
    )

    # Topics.
    num_partitions: int = int_key(
        "num.partitions", 1, 1, doc="The number of partitions of a topic that is created without one."
    )
    default_replication_factor: int = int_key(
        "default.replication.factor", 1, 1, 32_767, doc="The replication factor of a topic that is created without one."
    )
    min_insync_replicas: int = int_key(
        "min.insync.replicas",
        1,
        1,
        doc="The minimum number of in-sync replicas for a write with acks=all.",
        dynamic=True,
    )
    auto_create_topics_enable: bool = flag_key(
        "auto.create.topics.enable", True, doc="Whether a topic that a client asks for is created if it does not exist."
    )
    auto_create_topics_max_per_request: int = int_key(
        "auto.create.topics.max.per.request", 100, 1, doc="Ours. Maximum number of pending automatic topic creations."
    )
    auto_create_topics_max_per_second: int = int_key(
        "auto.create.topics.max.per.second", 50, 1, doc="Ours. Maximum rate of automatic topic creations per second."
    )
    delete_topic_enable: bool = flag_key("delete.topic.enable", True, doc="Whether topics can be deleted.")

    # Messages.
    message_max_bytes: int = int_key(
        "message.max.bytes", 1_048_588, 0, doc="The largest record batch, header included.", dynamic=True
    )
    message_format: str = text_key(
        "message.format", "v2", ("v2", "classic"), doc="Ours. The generation of a topic that is created without one."
    )
    record_validation: bool = flag_key(
        "record.validation",
        False,
        doc="Ours. Whether every record of a produce request is decoded and checked; false: only of batches where "
        "that costs little.",
        dynamic=True,
    )
    compression_type: str = text_key(
        "compression.type",
        "producer",
        CODECS,
        doc="The compression of stored batches; producer: as the producer sent them.",
        dynamic=True,
    )
    log_message_timestamp_type: str = text_key(
        "log.message.timestamp.type",
        "CreateTime",
        TIMESTAMP_TYPES,
        doc="Whether messages keep the producer's time (CreateTime) or get the broker's (LogAppendTime).",
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = long_key(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        0,
        doc="How far the timestamp of a message may lie before the broker's time.",
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = long_key(
        "log.message.timestamp.after.max.ms",
        HOUR_MS,
        0,
        doc="How far the timestamp of a message may lie after the broker's time.",
        dynamic=True,
    )

    # Logs.
    log_dir: str = text_key("log.dir", "barnabas-data", doc="The data folder, if log.dirs is not set.")
    log_dirs: tuple[str, ...] = list_key(
        "log.dirs", (), doc="The data folders. A new partition is placed in the one with the fewest partitions."
    )
    cordoned_log_dirs: tuple[str, ...] = list_key(
        CORDONED_KEY,
        (),
        doc="The data folders that get no new replicas; *: all, so that the broker gets none (barnabas brokers drain).",
        dynamic=True,
    )
    log_dir_mode: str = text_key(
        "log.dir.mode",
        "0700",
        doc="Ours. The permissions, in octal, with which data folders and the folders in them are created.",
    )
    log_segment_bytes: int = int_key(
        "log.segment.bytes", 1_073_741_824, 14, doc="The maximum size of a segment file.", dynamic=True
    )
    log_roll_ms: int | None = long_key(
        "log.roll.ms", None, 1, doc="A new segment is rolled after this time.", dynamic=True
    )
    log_roll_hours: int = int_key("log.roll.hours", 168, 1, doc="The same in hours, if log.roll.ms is not set.")
    log_roll_jitter_ms: int | None = long_key(
        "log.roll.jitter.ms", None, 0, doc="The maximum random time by which a segment is rolled earlier.", dynamic=True
    )
    log_roll_jitter_hours: int = int_key(
        "log.roll.jitter.hours", 0, 0, doc="The same in hours, if log.roll.jitter.ms is not set."
    )
    log_index_size_max_bytes: int = int_key(
        "log.index.size.max.bytes", 10_485_760, 12, doc="The maximum size of an index file.", dynamic=True
    )
    log_index_interval_bytes: int = int_key(
        "log.index.interval.bytes", 4096, 0, doc="The number of bytes of a log between two index entries.", dynamic=True
    )
    log_retention_ms: int | None = long_key(
        "log.retention.ms", None, -1, doc="How long messages are kept; -1: without limit.", dynamic=True
    )
    log_retention_minutes: int | None = int_key(
        "log.retention.minutes", None, -1, doc="The same in minutes, if log.retention.ms is not set."
    )
    log_retention_hours: int = int_key(
        "log.retention.hours",
        168,
        -1,
        doc="The same in hours, if neither log.retention.ms nor log.retention.minutes is set.",
    )
    log_retention_bytes: int = long_key(
        "log.retention.bytes",
        -1,
        -1,
        doc="The size above which old segments of a partition are deleted; -1: without limit.",
        dynamic=True,
    )
    log_retention_check_interval_ms: int = long_key(
        "log.retention.check.interval.ms", 300_000, 1, doc="How often the broker looks for segments to delete."
    )
    log_flush_interval_messages: int = long_key(
        "log.flush.interval.messages", LONG_MAX, 1, doc="A log is flushed after this number of messages.", dynamic=True
    )
    log_flush_interval_ms: int | None = long_key(
        "log.flush.interval.ms", None, 0, doc="A log is flushed after this time.", dynamic=True
    )
    log_flush_scheduler_interval_ms: int = long_key(
        "log.flush.scheduler.interval.ms", LONG_MAX, 1, doc="The value of log.flush.interval.ms where that is not set."
    )
    log_flush_offset_checkpoint_interval_ms: int = int_key(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        1,
        doc="How often the offsets up to which logs are flushed are written to the recovery point checkpoint.",
    )
    log_segment_delete_delay_ms: int = long_key(
        "log.segment.delete.delay.ms",
        60_000,
        0,
        doc="How long the file of a deleted segment stays on the disk.",
        dynamic=True,
    )
    log_cleanup_policy: tuple[str, ...] = list_key(
        "log.cleanup.policy",
        ("delete",),
        CLEANUP_POLICIES,
        doc="What happens to old messages: `delete` removes them by age or size, `compact` removes those whose key "
        "has a newer message; or both.",
        dynamic=True,
    )
    log_deletion_policy: str = text_key(
        "log.deletion.policy",
        "kafka",
        doc="Ours. The policy that chooses the segments to delete: NAME, or NAME:PARAMETERS "
        "(docs/deletion-policies.md).",
        dynamic=True,
    )
    producer_id_expiration_ms: int = int_key(
        "producer.id.expiration.ms",
        86_400_000,
        1,
        doc="The state of an idempotent producer is removed after this time without a batch.",
    )
    producer_id_expiration_check_interval_ms: int = int_key(
        "producer.id.expiration.check.interval.ms", 600_000, 1, doc="How often expired producer ids are removed."
    )
    replica_high_watermark_checkpoint_interval_ms: int = long_key(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        1,
        doc="How often high watermarks are written to their checkpoint.",
    )

    # Consumer groups.
    group_min_session_timeout_ms: int = int_key(
        "group.min.session.timeout.ms",
        6000,
        0,
        doc="The minimum session timeout that a member of a classic group may request.",
    )
    group_max_session_timeout_ms: int = int_key(
        "group.max.session.timeout.ms",
        1_800_000,
        0,
        doc="The maximum session timeout that a member of a classic group may request.",
    )
    group_initial_rebalance_delay_ms: int = int_key(
        "group.initial.rebalance.delay.ms",
        3000,
        0,
        doc="How long a new group waits for further members; 0 if it is not set and no other broker can join the "
        "cluster.",
    )
    group_max_size: int = int_key("group.max.size", INT_MAX, 1, doc="The maximum number of members of a classic group.")
    offset_metadata_max_bytes: int = int_key(
        "offset.metadata.max.bytes", 4096, 0, doc="The maximum size of the metadata of a committed offset."
    )
    offsets_retention_minutes: int = int_key(
        "offsets.retention.minutes",
        10_080,
        1,
        doc="How long committed offsets are kept after the last member of their group has left.",
    )
    offsets_retention_check_interval_ms: int = long_key(
        "offsets.retention.check.interval.ms", 600_000, 1, doc="How often expired offsets are removed."
    )
    offsets_topic_num_partitions: int = int_key(
        "offsets.topic.num.partitions", 50, 1, doc="The number of partitions of __consumer_offsets when it is created."
    )
    offsets_topic_replication_factor: int = short_key(
        "offsets.topic.replication.factor",
        3,
        1,
        doc="The replication factor of __consumer_offsets when it is created; with fewer live brokers, their number.",
    )
    offsets_topic_segment_bytes: int = int_key(
        "offsets.topic.segment.bytes", 104_857_600, 14, doc="The maximum size of a segment file of __consumer_offsets."
    )
    offsets_load_buffer_size: int = int_key(
        "offsets.load.buffer.size",
        5_242_880,
        1,
        doc="The number of bytes of __consumer_offsets that are read at once while a coordinator loads it.",
    )
    offsets_commit_timeout_ms: int = int_key(
        "offsets.commit.timeout.ms", 5000, 1, doc="The maximum time for an offset commit to reach all in-sync replicas."
    )

    # What the broker is made of.
    workers: int = int_key(
        "workers",
        1,
        1,
        100,
        doc="Ours. Of `barnabas serve`: the number of brokers that share this machine, its listeners and this "
        "configuration (docs/operations.md).",
    )
    background_threads: int = int_key(
        "background.threads",
        4,
        1,
        256,
        doc="The number of threads for blocking work: flushes, recovery, deletion of files.",
    )
    storage: str = text_key(
        "storage", "fs", ("fs", "memory"), doc="Ours. Where logs are stored: in files (fs) or in memory."
    )
    coordination: str = text_key(
        "coordination",
        "embedded",
        doc="Ours. The coordination service, which stores topics and configs: embedded, embedded://FILE, memory, "
        "zookeeper://HOST:PORT/CHROOT, etcd://HOST:PORT/PREFIX, etcd+managed://OWN:PORT,OTHER:PORT/PREFIX, or the URL "
        "of a plug-in.",
    )
    zookeeper_session_timeout_ms: int = int_key(
        "zookeeper.session.timeout.ms",
        9000,
        100,
        doc="The session with ZooKeeper or etcd ends after this time without contact. Other brokers lead its "
        "partitions then.",
    )
    zookeeper_connection_timeout_ms: int | None = int_key(
        "zookeeper.connection.timeout.ms",
        None,
        100,
        doc="How long to wait for the first connection; unset: zookeeper.session.timeout.ms.",
    )
    classic_registration_enable: bool = flag_key(
        "classic.registration.enable",
        True,
        doc="Ours. Whether classic listeners and topics are registered in ZooKeeper or etcd, as in 0.7.",
    )

    # Single classic topics, as in 0.7.
    topic_partition_count_map: str = text_key(
        "topic.partition.count.map", "", doc="The number of partitions of single classic topics: TOPIC:NUMBER,..."
    )
    topic_log_file_size: str = text_key(
        "topic.log.file.size", "", doc="log.segment.bytes of single classic topics: TOPIC:BYTES,..."
    )
    topic_log_roll_hours: str = text_key(
        "topic.log.roll.hours", "", doc="log.roll.hours of single classic topics: TOPIC:HOURS,..."
    )
    topic_log_retention_hours: str = text_key(
        "topic.log.retention.hours", "", doc="log.retention.hours of single classic topics: TOPIC:HOURS,..."
    )
    topic_log_retention_size: str = text_key(
        "topic.log.retention.size", "", doc="log.retention.bytes of single classic topics: TOPIC:BYTES,..."
    )
    topic_flush_intervals_ms: str = text_key(
        "topic.flush.intervals.ms", "", doc="log.flush.interval.ms of single classic topics: TOPIC:MS,..."
    )
    logging_level: tuple[str, ...] = list_key(
        "logging.level",
        ("info",),
        doc="Ours. Of `barnabas serve`: LEVEL of all loggers, LOGGER=LEVEL of one.",
    )
    logging_format: str = text_key(
        "logging.format", "text", ("text", "json"), doc="Ours. Of `barnabas serve`: the format of log lines."
    )
    metrics_listen: str | None = text_key(
        "metrics.listen",
        None,
        doc="Ours. HOST:PORT where Prometheus scrapes the metrics; https://HOST:PORT: with TLS "
        "(listener.name.metrics.ssl.* or ssl.*).",
    )
    metrics_authentication_users_file: str | None = text_key(
        "metrics.authentication.users.file",
        None,
        doc="Ours. A file with a line NAME: PASSWORD for each user who may read the metrics (HTTP basic "
        "authentication).",
    )
    console_listen: str | None = text_key(
        "console.listen",
        None,
        doc="Ours. Of `barnabas serve`: HOST:PORT of a web console in the same process; https://HOST:PORT: with TLS "
        "(listener.name.console.ssl.* or ssl.*).",
    )
    schema_registry_listen: str | None = text_key(
        "schema.registry.listen",
        None,
        doc="Ours. Of `barnabas serve`: HOST:PORT of a schema registry in the same process; https://HOST:PORT: with "
        "TLS (listener.name.registry.ssl.* or ssl.*).",
    )
    schema_registry_authentication_method: str = text_key(
        "schema.registry.authentication.method",
        "NONE",
        ("NONE", "BASIC"),
        doc="Ours. authentication.method of Confluent's registry: BASIC (user name and password) or NONE.",
    )
    schema_registry_authentication_roles: tuple[str, ...] = list_key(
        "schema.registry.authentication.roles",
        ("*",),
        doc="Ours. authentication.roles of Confluent's registry: users need one of these roles; *: all users are "
        "admitted.",
    )
    schema_registry_authentication_realm: str = text_key(
        "schema.registry.authentication.realm",
        "SchemaRegistry",
        doc="Ours. authentication.realm of Confluent's registry: the realm that browsers show.",
    )
    schema_registry_authentication_users_file: str | None = text_key(
        "schema.registry.authentication.users.file",
        None,
        doc="Ours. A file with a line NAME: PASSWORD[,ROLE...] for each user of the registry.",
    )
    schema_registry_command_config: str | None = text_key(
        "schema.registry.command.config",
        None,
        doc="Ours. A file with the client settings of that registry; unset: the settings of connections between "
        "brokers.",
    )
    avro_validate_defaults: bool = flag_key(
        "avro.validate.defaults",
        False,
        doc="Whether the schema registry of the broker refuses Avro defaults of a wrong type.",
    )
    plugins_modules: tuple[str, ...] = list_key(
        "plugins.modules", (), doc="Ours. Python modules with plug-ins, in addition to the installed ones."
    )
    plugins_blocked: tuple[str, ...] = list_key(
        "plugins.blocked", (), doc="Ours. The names of plug-ins that are not loaded."
    )
    plugins_entry_points_enable: bool = flag_key(
        "plugins.entry.points.enable", True, doc="Ours. Whether installed plug-ins are loaded."
    )

    ignored: Mapping[str, Value] = {}
    """The values of the keys without an effect that were set, by name."""
    listener_settings: Mapping[tuple[str, str, str], Value] = {}
    """The values of `listener.name.NAME.[MECHANISM.]KEY` by (NAME, MECHANISM or "", KEY)."""
    given: frozenset[str] = frozenset()

    def __attrs_post_init__(self) -> None:
        if not self.listeners:
            raise ConfigError("listeners is empty; give at least one, such as kafka://127.0.0.1:9092")
        check_advertised(self.listener_list, self.advertised_listener_list)
        self.inter_broker_listener  # noqa: B018  checked on start
        if {"inter.broker.listener.name", "security.inter.broker.protocol"} <= self.given:
            raise ConfigError("inter.broker.listener.name and security.inter.broker.protocol: set only one of them")
        self.check_replication()
        self.check_groups()
        self.check_remote_storage()
        self.metrics_address  # noqa: B018  checked on start
        self.connections_per_ip  # noqa: B018  checked on start
        self.dir_mode  # noqa: B018  checked on start
        if len(set(self.data_dirs)) != len(self.data_dirs):
            raise ConfigError(f"log.dirs names a folder twice: {', '.join(self.data_dirs)}")
        self.cordoned_dirs(self.cordoned_log_dirs)
        if self.group_max_session_timeout_ms < self.group_min_session_timeout_ms:
            low = self.group_min_session_timeout_ms
            text = f"group.max.session.timeout.ms={self.group_max_session_timeout_ms}"
            raise ConfigError(f"{text} is below group.min.session.timeout.ms={low}: no session would be right")

    @classmethod
    def from_mapping(cls, *layers: Mapping[str, object]) -> "BrokerConfig":
        """Read dotted keys, nested tables or Python's names; later layers win. Raises `ConfigError`."""
        settings = settings_from(KEYS, *layers)
        of_listeners = {}
        for name in [name for name in settings if is_of_listener(name)]:
            listener, mechanism, key = scoped_key(name, KEYS)
            of_listeners[listener, mechanism, key.name] = key.parse(settings.pop(name))
        ignored = {name: IGNORED_KEYS[name].parse(value) for name, value in settings.items() if name in IGNORED_KEYS}
        values = {KEYS[name].attribute: value for name, value in settings.items() if name not in ignored}
        others = {"ignored": ignored, "listener_settings": of_listeners, "given": frozenset(settings)}
        return cls(**values, **others)  # type: ignore[arg-type]  # converters check each value

    def of_single_broker(self) -> "BrokerConfig":
        """Return the configuration where no other broker can join the cluster.

        There a new group does not wait for further members unless it is set, as in Kafka's `server.properties`.
        """
        key = "group.initial.rebalance.delay.ms"
        return self if key in self.given else BrokerConfig(**{**vars(self), "group_initial_rebalance_delay_ms": 0})

    def for_listener(self, listener: str, key: str, mechanism: str = "") -> object:
        """Return the value of a key for a listener by its name, and for one of its SASL mechanisms.

        The most special setting counts, as in Kafka.
        """
        for scope in (mechanism.upper(), ""):
            if (listener, scope, key) in self.listener_settings:
                return self.listener_settings[listener, scope, key]
        return self.value(key)

    def value(self, name: str) -> object:
        """Return the value of a key, as it was set or by default."""
        if name in IGNORED_KEYS:
            return self.ignored.get(name, IGNORED_KEYS[name].default)
        value: object = getattr(self, KEYS[name].attribute)
        return value

    @property
    def without_effect(self) -> list[str]:
        """The names of the keys that were set and have no effect."""
        return sorted(name for name in self.given if KEYS[name].ignored)

    @property
    def listener_list(self) -> tuple[ListenAddress, ...]:
        return _listeners(tuple(self.listeners), "listeners", self.listener_security_protocol_map)

    @property
    def advertised_listener_list(self) -> tuple[ListenAddress, ...]:
        """One for each listener, or none at all."""
        texts = tuple(self.advertised_listeners)
        return _listeners(texts, "advertised.listeners", self.listener_security_protocol_map)

    @property
    def inter_broker_listener(self) -> int | None:
        """The index of the listener for other brokers; None: there is none of the current generation."""
        protocol = self.security_inter_broker_protocol if "security.inter.broker.protocol" in self.given else None
        return inter_broker_index(self.listener_list, self.inter_broker_listener_name, protocol)

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """`log.dirs`, or else `log.dir`."""
        return self.log_dirs or (self.log_dir,)

    def cordoned_dirs(self, cordoned: Sequence[str]) -> frozenset[str]:
        """Return the data folders that are cordoned by a value of `cordoned.log.dirs`, as `log.dirs` names them.

        Raises `ConfigError` for a folder that is none of them.
        """
        if not cordoned:  # as nearly always; each new partition asks twice
            return frozenset()
        if tuple(cordoned) == (ALL_LOG_DIRS,):
            return frozenset(self.data_dirs)
        absolute = {Path(path).absolute(): path for path in self.data_dirs}
        unknown = [path for path in cordoned if Path(path).absolute() not in absolute]
        if unknown:
            text = f"{CORDONED_KEY}={unknown[0]}: this is not one of log.dirs, {', '.join(self.data_dirs)}"
            raise ConfigError(f"{text}; * stands for all of them")
        return frozenset(absolute[Path(path).absolute()] for path in cordoned)

    @property
    def dir_mode(self) -> int:
        """`log.dir.mode` as a number."""
        digits = self.log_dir_mode.removeprefix("0o")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 4) or set(digits) & {"8", "9"}:
            raise ConfigError(f"log.dir.mode={self.log_dir_mode!r} is not an octal number such as 0700 or 0750")
        if int(digits, 8) & 0o700 != 0o700:
            raise ConfigError(
                f"log.dir.mode={self.log_dir_mode} keeps the broker itself from its folders; begin with 7"
            )
        return int(digits, 8)

    def topic_numbers(self, key: str, report: Callable[[str], None]) -> dict[str, int]:
        """Return topic → number, of one of 0.7's maps. Items that make no sense are reported and skipped."""
        return parse_topic_map(key, str(self.value(key)), report)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The address to serve metrics at; None: no metrics are served."""
        if self.metrics_listen is None or not self.metrics_listen:
            return None
        address = self.metrics_listen.removeprefix("https://").removeprefix("http://")
        return parse_address(address, f"metrics.listen={self.metrics_listen}")

    @property
    def services(self) -> tuple[str, ...]:
        """The services to run with the broker in `barnabas serve`: NAME for each NAME.listen that is set."""
        given = {"schema.registry": self.schema_registry_listen, "console": self.console_listen}
        return tuple(name for name, listen in given.items() if listen)

    @property
    def flush_check_interval_ms(self) -> int:
        """The interval of checks for logs that are due to be flushed by time."""
        if "log.flush.scheduler.interval.ms" in self.given:
            return min(self.log_flush_scheduler_interval_ms, INT_MAX)
        return 1000


@lru_cache(maxsize=64)
def _listeners(texts: tuple[str, ...], key: str, protocols: str) -> tuple[ListenAddress, ...]:
    return parse_listeners(texts, key, protocols=protocols_of(protocols))


EFFECTIVE_KEYS: Mapping[str, ConfigKey] = keys_of(BrokerConfig)
"""The broker keys that have an effect, each a field, by dotted name."""

KEYS: Mapping[str, ConfigKey] = {**IGNORED_KEYS, **EFFECTIVE_KEYS}
"""Every broker key by its dotted name."""

SYNONYMS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "log.roll.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    "log.roll.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    "log.retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
    "log.flush.interval.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
}
"""Keys that stand in for another when it is not set, itself first, with the factor of their unit."""
