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
        "log.cleaner.enable", True, doc="Compact the logs of topics with cleanup.policy=compact, the broker's own too."
    )
    log_cleaner_threads: int = int_key(
        "log.cleaner.threads", 1, 0, doc="How many logs are compacted side by side; 0: none.", dynamic=True
    )
    log_cleaner_backoff_ms: int = long_key(
        "log.cleaner.backoff.ms",
        15_000,
        0,
        doc="How often to look for logs that are due, when there were none.",
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = long_key(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        -LONG_MAX - 1,
        doc="Memory for the keys of logs that are being compacted, 24 bytes each; 1 MiB a thread at least is taken.",
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = double_key(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        -DOUBLE_MAX,
        DOUBLE_MAX,
        doc="How full that memory may be; 0.1 to 0.95 is taken.",
        dynamic=True,
    )
    log_cleaner_io_buffer_size: int = int_key(
        "log.cleaner.io.buffer.size", 524_288, 0, doc="Memory for reading what is compacted.", dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = double_key(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        -DOUBLE_MAX,
        DOUBLE_MAX,
        doc="Bytes that compaction may read and write in a second, all in all.",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = double_key(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        0.0,
        1.0,
        doc="Compact a log when more than this share of it is not compacted yet.",
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
        doc="Messages older than this are compacted, however few they are; segments are sealed at that age.",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = long_key(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        0,
        doc="How long a compacted log keeps messages without value, which delete their keys, once it is clean there.",
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
        doc="Connections at a time, of the broker and of each listener; more wait until one closes.",
        dynamic=True,
        scope="listener",
    )
    max_connections_per_ip: int = int_key(
        "max.connections.per.ip", INT_MAX, 0, doc="Connections from one address; more are closed at once.", dynamic=True
    )
    max_connections_per_ip_overrides: tuple[str, ...] = list_key(
        "max.connections.per.ip.overrides",
        (),
        doc="ADDRESS:NUMBER,...: other limits for some addresses.",
        dynamic=True,
    )
    max_connection_creation_rate: int = int_key(
        "max.connection.creation.rate",
        INT_MAX,
        1,
        doc="New connections per second, of the broker and of each listener; more wait.",
        dynamic=True,
        scope="listener",
    )
    quota_window_num: int = int_key("quota.window.num", 11, 1, doc="The number of samples of a client quota.")
    quota_window_size_seconds: int = int_key("quota.window.size.seconds", 1, 1, doc="The time of one sample.")
    controller_quota_window_num: int = int_key(
        "controller.quota.window.num", 11, 1, doc="The number of samples of a quota of controller mutations."
    )
    controller_quota_window_size_seconds: int = int_key(
        "controller.quota.window.size.seconds", 1, 1, doc="The time of one sample of controller mutations."
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
        doc="Brokers connect to the first listener with this security protocol; unset: to the first one.",
    )
    inter_broker_listener_name: str | None = text_key(
        "inter.broker.listener.name",
        None,
        doc="The listener that other brokers connect to, and the only one that takes fetches of followers; unset: the "
        "first one of kafka://.",
    )
    replica_lag_time_max_ms: int = long_key(
        "replica.lag.time.max.ms", 30_000, 1, doc="A follower that has not caught up for this time leaves the ISR."
    )
    replica_fetch_wait_max_ms: int = int_key(
        "replica.fetch.wait.max.ms", 500, 1, doc="How long a follower's fetch waits at the leader for messages."
    )
    replica_fetch_min_bytes: int = int_key(
        "replica.fetch.min.bytes", 1, 0, doc="How many bytes a follower's fetch waits for."
    )
    replica_fetch_max_bytes: int = int_key(
        "replica.fetch.max.bytes", 1_048_576, 0, doc="How many bytes of one partition a follower fetches at a time."
    )
    replica_fetch_response_max_bytes: int = int_key(
        "replica.fetch.response.max.bytes", 10_485_760, 0, doc="How many bytes in all a follower fetches at a time."
    )
    replica_fetch_backoff_ms: int = int_key(
        "replica.fetch.backoff.ms", 1000, 0, doc="How long a follower waits after an error."
    )
    replica_socket_timeout_ms: int = int_key(
        "replica.socket.timeout.ms", 30_000, 1, doc="How long a follower waits for an answer of its leader."
    )
    replica_selector_class: str | None = text_key(
        "replica.selector.class",
        None,
        doc="The replica that consumers read from: a plugin, rack-aware (Kafka's RackAwareReplicaSelector) or "
        "leader; unset: the leader.",
    )
    unclean_leader_election_enable: bool = flag_key(
        "unclean.leader.election.enable",
        False,
        doc="Whether a replica that was not in sync may lead when no other is left; messages are lost.",
        dynamic=True,
    )
    auto_leader_rebalance_enable: bool = flag_key(
        "auto.leader.rebalance.enable", True, doc="Whether the controller gives leaders back to the first replicas."
    )
    leader_imbalance_check_interval_seconds: int = long_key(
        "leader.imbalance.check.interval.seconds", 300, 1, doc="How often it looks whether to."
    )
    leader_imbalance_per_broker_percentage: int = int_key(
        "leader.imbalance.per.broker.percentage",
        10,
        0,
        doc="It does so for brokers that do not lead more than this percentage of the partitions that they are first "
        "replica of.",
    )
    controlled_shutdown_enable: bool = flag_key(
        "controlled.shutdown.enable", True, doc="Whether a broker hands on what it leads before it stops."
    )
    controlled_shutdown_max_retries: int = int_key(
        "controlled.shutdown.max.retries", 3, 0, doc="How often it tries again while it still leads some."
    )
    controlled_shutdown_retry_backoff_ms: int = long_key(
        "controlled.shutdown.retry.backoff.ms", 5000, 0, doc="How long it waits before that."
    )
    leader_replication_throttled_rate: int = long_key(
        "leader.replication.throttled.rate",
        LONG_MAX,
        0,
        doc="Bytes a second that the broker gives to followers, of the replicas that topics name as throttled.",
        dynamic=True,
    )
    follower_replication_throttled_rate: int = long_key(
        "follower.replication.throttled.rate",
        LONG_MAX,
        0,
        doc="Bytes a second that the broker fetches from leaders, of the replicas that topics name as throttled.",
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
        doc="Ours. How often each closed segment is read and compared with its checksums.",
        dynamic=True,
    )
    log_scrub_io_max_bytes_per_second: int = long_key(
        "log.scrub.io.max.bytes.per.second",
        1_048_576,
        0,
        doc="Ours. Bytes that this check reads in a second; requests come first. 0: only what a reader could not read.",
        dynamic=True,
    )


# The keys of transactions, by Kafka's names.


@key_table
class TransactionKeys:
    """A part of the table; see `BrokerConfig`."""

    transaction_max_timeout_ms: int = int_key(
        "transaction.max.timeout.ms", 900_000, 1, doc="The longest transaction that a producer may ask for."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int_key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        1,
        doc="How often to look for transactions that have lasted too long, to abort them.",
    )
    transactional_id_expiration_ms: int = int_key(
        "transactional.id.expiration.ms", 604_800_000, 1, doc="Forget a transactional id that is unused for this time."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int_key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        1,
        doc="How often to look for transactional ids to forget.",
    )
    transaction_partition_verification_enable: bool = flag_key(
        "transaction.partition.verification.enable",
        True,
        doc="Whether a leader asks the coordinator if a partition belongs to the transaction that is written there.",
        dynamic=True,
    )
    transaction_state_log_num_partitions: int = int_key(
        "transaction.state.log.num.partitions", 50, 1, doc="Partitions of __transaction_state when it is made."
    )
    transaction_state_log_replication_factor: int = short_key(
        "transaction.state.log.replication.factor", 3, 1, doc="Replicas of __transaction_state; or all live brokers."
    )
    transaction_state_log_min_isr: int = int_key(
        "transaction.state.log.min.isr", 2, 1, doc="min.insync.replicas of __transaction_state when it is made."
    )
    transaction_state_log_segment_bytes: int = int_key(
        "transaction.state.log.segment.bytes",
        104_857_600,
        14,
        doc="The size of a segment file of __transaction_state.",
    )
    transaction_state_log_load_buffer_size: int = int_key(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        1,
        doc="How much of __transaction_state is read at a time when it loads.",
    )


@key_table
class ShareCoordinatorKeys:
    """The keys of the share coordinator, and of dead letters."""

    share_coordinator_state_topic_num_partitions: int = int_key(
        "share.coordinator.state.topic.num.partitions", 50, 1, doc="Partitions of __share_group_state when it is made."
    )
    share_coordinator_state_topic_replication_factor: int = short_key(
        "share.coordinator.state.topic.replication.factor",
        3,
        1,
        doc="Replicas of __share_group_state; or all live brokers.",
    )
    share_coordinator_state_topic_min_isr: int = int_key(
        "share.coordinator.state.topic.min.isr", 2, 1, doc="min.insync.replicas of __share_group_state when it is made."
    )
    share_coordinator_state_topic_segment_bytes: int = int_key(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        14,
        doc="The size of a segment file of __share_group_state.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = int_key(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        1,
        doc="How often to delete the records of __share_group_state that are not needed.",
    )
    share_coordinator_load_buffer_size: int = int_key(
        "share.coordinator.load.buffer.size",
        5_242_880,
        1,
        doc="How much of __share_group_state is read at a time when it loads.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = int_key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        0,
        doc="The changes of a share partition after which its whole state is written.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = int_key(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        1,
        doc="The whole state of a share partition is written after this time without changes.",
    )
    share_coordinator_write_timeout_ms: int = int_key(
        "share.coordinator.write.timeout.ms",
        5000,
        1,
        doc="How long a write of the share coordinator may take to reach all in-sync replicas.",
    )

    # Dead letters (KIP-1191).
    errors_deadletterqueue_auto_create_topics_enable: bool = flag_key(
        "errors.deadletterqueue.auto.create.topics.enable",
        False,
        doc="Whether the topic that a share group names for its dead letters is made at its first use.",
    )
    errors_deadletterqueue_topic_name_prefix: str = text_key(
        "errors.deadletterqueue.topic.name.prefix", "dlq.", doc="How the names of topics for dead letters begin."
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
    broker_id: int = int_key("broker.id", 1, -1, doc="The broker's number in its cluster; -1: a generated one.")
    broker_id_generation_enable: bool = flag_key(
        "broker.id.generation.enable", True, doc="Whether broker.id=-1 generates one."
    )
    reserved_broker_max_id: int = int_key(
        "reserved.broker.max.id", 1000, 0, doc="Generated numbers of brokers are larger."
    )
    broker_rack: str | None = text_key("broker.rack", None, doc="Where the broker stands; replicas spread over racks.")
    broker_machine: str | None = text_key(
        "broker.machine",
        None,
        doc="Ours. The machine that several brokers share: replicas of a partition go to different machines. Unset: "
        "the broker has one to itself.",
    )
    listeners: tuple[str, ...] = list_key(
        "listeners",
        ("kafka://127.0.0.1:9092",),
        doc="Where to listen: kafka://, ssl://, sasl_ssl:// or classic://HOST:PORT; port 0: a free one.",
    )
    listener_security_protocol_map: str = text_key(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="NAME:PROTOCOL,...: protocols of listeners with other names than kafka and classic.",
    )
    controller_listener_names: tuple[str, ...] = list_key(
        "controller.listener.names", (), doc="Listeners of these names are left out: brokers need no controllers."
    )
    advertised_listeners: tuple[str, ...] = list_key(
        "advertised.listeners", (), doc="What clients connect to, one for each of listeners; empty: the listeners."
    )
    connections_max_idle_ms: int = long_key(
        "connections.max.idle.ms", 600_000, -1, doc="Close a connection after this time without traffic; -1: never."
    )
    socket_request_max_bytes: int = int_key(
        "socket.request.max.bytes", 104_857_600, 1, doc="The largest request; a larger one closes its connection."
    )
    socket_unsent_max_bytes: int = int_key(
        "socket.unsent.max.bytes",
        4_194_304,
        1,
        doc="Ours. Reading from a connection pauses while this much of its requests and responses is in memory.",
    )
    queued_max_request_bytes: int = long_key(
        "queued.max.request.bytes",
        268_435_456,
        -1,
        doc="The same for all connections together: who has more than an equal share is not read from; -1: no bound.",
    )
    max_in_flight_requests_per_connection: int = int_key(
        "max.in.flight.requests.per.connection", 1000, 1, doc="Ours. Requests of one connection without an answer yet."
    )
    slow_request_threshold_ms: int = long_key(
        "slow.request.threshold.ms", 1000, -1, doc="Ours. Log requests that take longer; -1: none."
    )
    fetch_max_bytes: int = int_key("fetch.max.bytes", 57_671_680, 1024, doc="The most that one fetch answer carries.")

    # Topics.
    num_partitions: int = int_key("num.partitions", 1, 1, doc="Partitions of a topic made without a number.")
    default_replication_factor: int = int_key(
        "default.replication.factor", 1, 1, 32_767, doc="Replicas of a topic made without a number."
    )
    min_insync_replicas: int = int_key(
        "min.insync.replicas", 1, 1, doc="With acks=all, how many replicas must have a message.", dynamic=True
    )
    auto_create_topics_enable: bool = flag_key(
        "auto.create.topics.enable", True, doc="Make a topic when a client asks for one that does not exist."
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
        "message.format", "v2", ("v2", "classic"), doc="Ours. The generation of topics made without one."
    )
    record_validation: bool = flag_key(
        "record.validation",
        False,
        doc="Ours. Open and check every record on append; off: of as many batches as cost little.",
        dynamic=True,
    )
    compression_type: str = text_key(
        "compression.type",
        "producer",
        CODECS,
        doc="The compression of stored batches; producer: as received.",
        dynamic=True,
    )
    log_message_timestamp_type: str = text_key(
        "log.message.timestamp.type", "CreateTime", TIMESTAMP_TYPES, doc="Whose clock dates a message.", dynamic=True
    )
    log_message_timestamp_before_max_ms: int = long_key(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        0,
        doc="How far a message's time may lie before the broker's.",
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = long_key(
        "log.message.timestamp.after.max.ms",
        HOUR_MS,
        0,
        doc="How far a message's time may lie after the broker's.",
        dynamic=True,
    )

    # Logs.
    log_dir: str = text_key("log.dir", "barnabas-data", doc="The data folder, when log.dirs is not set.")
    log_dirs: tuple[str, ...] = list_key("log.dirs", (), doc="The data folders; a new partition goes to the emptiest.")
    cordoned_log_dirs: tuple[str, ...] = list_key(
        CORDONED_KEY,
        (),
        doc="The data folders that get no new replicas, * for all; then the broker gets none (barnabas brokers drain).",
        dynamic=True,
    )
    log_dir_mode: str = text_key(
        "log.dir.mode",
        "0700",
        doc="Ours. The permissions, in octal, of data folders and those in them when made.",
    )
    log_segment_bytes: int = int_key(
        "log.segment.bytes", 1_073_741_824, 14, doc="The size of a segment file.", dynamic=True
    )
    log_roll_ms: int | None = long_key("log.roll.ms", None, 1, doc="Roll a new segment after this time.", dynamic=True)
    log_roll_hours: int = int_key("log.roll.hours", 168, 1, doc="The same in hours, when log.roll.ms is not set.")
    log_roll_jitter_ms: int | None = long_key(
        "log.roll.jitter.ms", None, 0, doc="Take off up to so much, by chance.", dynamic=True
    )
    log_roll_jitter_hours: int = int_key("log.roll.jitter.hours", 0, 0, doc="The same in hours.")
    log_index_size_max_bytes: int = int_key(
        "log.index.size.max.bytes", 10_485_760, 12, doc="The size of an index file.", dynamic=True
    )
    log_index_interval_bytes: int = int_key(
        "log.index.interval.bytes", 4096, 0, doc="Bytes of log between two index entries.", dynamic=True
    )
    log_retention_ms: int | None = long_key(
        "log.retention.ms", None, -1, doc="Keep messages for this time; -1: without limit.", dynamic=True
    )
    log_retention_minutes: int | None = int_key(
        "log.retention.minutes", None, -1, doc="The same in minutes, when log.retention.ms is not set."
    )
    log_retention_hours: int = int_key(
        "log.retention.hours", 168, -1, doc="The same in hours, when log.retention.minutes is not set either."
    )
    log_retention_bytes: int = long_key(
        "log.retention.bytes", -1, -1, doc="Keep so much of each partition; -1: all.", dynamic=True
    )
    log_retention_check_interval_ms: int = long_key(
        "log.retention.check.interval.ms", 300_000, 1, doc="How often to look for segments to remove."
    )
    log_flush_interval_messages: int = long_key(
        "log.flush.interval.messages", LONG_MAX, 1, doc="Flush a log after this number of messages.", dynamic=True
    )
    log_flush_interval_ms: int | None = long_key(
        "log.flush.interval.ms", None, 0, doc="Flush a log after this time.", dynamic=True
    )
    log_flush_scheduler_interval_ms: int = long_key(
        "log.flush.scheduler.interval.ms", LONG_MAX, 1, doc="Stands for log.flush.interval.ms where that is not set."
    )
    log_flush_offset_checkpoint_interval_ms: int = int_key(
        "log.flush.offset.checkpoint.interval.ms", 60_000, 1, doc="How often to write down what is flushed."
    )
    log_segment_delete_delay_ms: int = long_key(
        "log.segment.delete.delay.ms", 60_000, 0, doc="How long a removed segment's file stays.", dynamic=True
    )
    log_cleanup_policy: tuple[str, ...] = list_key(
        "log.cleanup.policy",
        ("delete",),
        CLEANUP_POLICIES,
        doc="What becomes of old messages: `delete` by age or size, `compact` where the key came again, or both.",
        dynamic=True,
    )
    log_deletion_policy: str = text_key(
        "log.deletion.policy",
        "kafka",
        doc="Ours. The policy that chooses what is removed: NAME, or NAME:PARAMETERS (docs/deletion-policies.md).",
        dynamic=True,
    )
    producer_id_expiration_ms: int = int_key(
        "producer.id.expiration.ms", 86_400_000, 1, doc="Forget an idempotent producer after this time without a batch."
    )
    producer_id_expiration_check_interval_ms: int = int_key(
        "producer.id.expiration.check.interval.ms", 600_000, 1, doc="How often to look for silent producers."
    )
    replica_high_watermark_checkpoint_interval_ms: int = long_key(
        "replica.high.watermark.checkpoint.interval.ms", 5000, 1, doc="How often to write down high watermarks."
    )

    # Consumer groups.
    group_min_session_timeout_ms: int = int_key(
        "group.min.session.timeout.ms", 6000, 0, doc="The shortest session that a member of a group may ask for."
    )
    group_max_session_timeout_ms: int = int_key(
        "group.max.session.timeout.ms", 1_800_000, 0, doc="The longest session that a member of a group may ask for."
    )
    group_initial_rebalance_delay_ms: int = int_key(
        "group.initial.rebalance.delay.ms",
        3000,
        0,
        doc="How long a new group waits for further members; 0 if unset where no other broker can join.",
    )
    group_max_size: int = int_key("group.max.size", INT_MAX, 1, doc="The most members that a group may have.")
    offset_metadata_max_bytes: int = int_key(
        "offset.metadata.max.bytes", 4096, 0, doc="The longest text that may come with a committed offset."
    )
    offsets_retention_minutes: int = int_key(
        "offsets.retention.minutes", 10_080, 1, doc="How long committed offsets remain once their group is empty."
    )
    offsets_retention_check_interval_ms: int = long_key(
        "offsets.retention.check.interval.ms", 600_000, 1, doc="How often to look for offsets that are old enough."
    )
    offsets_topic_num_partitions: int = int_key(
        "offsets.topic.num.partitions", 50, 1, doc="Partitions of __consumer_offsets when it is made."
    )
    offsets_topic_replication_factor: int = short_key(
        "offsets.topic.replication.factor", 3, 1, doc="Replicas of __consumer_offsets; or all live brokers."
    )
    offsets_topic_segment_bytes: int = int_key(
        "offsets.topic.segment.bytes", 104_857_600, 14, doc="The size of a segment file of __consumer_offsets."
    )
    offsets_load_buffer_size: int = int_key(
        "offsets.load.buffer.size", 5_242_880, 1, doc="How much of __consumer_offsets is read at a time when it loads."
    )
    offsets_commit_timeout_ms: int = int_key(
        "offsets.commit.timeout.ms", 5000, 1, doc="How long a commit may take to reach all in-sync replicas."
    )

    # What the broker is made of.
    workers: int = int_key(
        "workers",
        1,
        1,
        100,
        doc="Ours. Of `barnabas serve`: this number of brokers share the machine, its listeners and this configuration "
        "(docs/operations.md).",
    )
    background_threads: int = int_key(
        "background.threads", 4, 1, 256, doc="Workers for what may block: flushing, recovery, removing files."
    )
    storage: str = text_key("storage", "fs", ("fs", "memory"), doc="Ours. The storage of logs.")
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
        doc="The session with ZooKeeper or etcd ends after so much silence; others lead then.",
    )
    zookeeper_connection_timeout_ms: int | None = int_key(
        "zookeeper.connection.timeout.ms", None, 100, doc="How long to wait for the first connection; unset: a session."
    )
    classic_registration_enable: bool = flag_key(
        "classic.registration.enable", True, doc="Ours. Whether classic listeners and topics go into the registries."
    )

    # Single classic topics, as in 0.7.
    topic_partition_count_map: str = text_key(
        "topic.partition.count.map", "", doc="Partitions of single classic topics: TOPIC:NUMBER,..."
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
        doc="Ours. Of `barnabas serve`: LEVEL for all loggers, LOGGER=LEVEL for one.",
    )
    logging_format: str = text_key(
        "logging.format", "text", ("text", "json"), doc="Ours. Of `barnabas serve`: how a line of its log looks."
    )
    metrics_listen: str | None = text_key(
        "metrics.listen",
        None,
        doc="Ours. HOST:PORT where Prometheus finds the metrics; https://HOST:PORT: with TLS "
        "(listener.name.metrics.ssl.* or ssl.*).",
    )
    metrics_authentication_users_file: str | None = text_key(
        "metrics.authentication.users.file",
        None,
        doc="Ours. A file with lines NAME: PASSWORD of those who may see the metrics, by basic authentication.",
    )
    console_listen: str | None = text_key(
        "console.listen",
        None,
        doc="Ours. Of `barnabas serve`: HOST:PORT of a web console in its process; https://HOST:PORT: with TLS "
        "(listener.name.console.ssl.* or ssl.*).",
    )
    schema_registry_listen: str | None = text_key(
        "schema.registry.listen",
        None,
        doc="Ours. Of `barnabas serve`: HOST:PORT of a schema registry in its process; https://HOST:PORT: with TLS "
        "(listener.name.registry.ssl.* or ssl.*).",
    )
    schema_registry_authentication_method: str = text_key(
        "schema.registry.authentication.method",
        "NONE",
        ("NONE", "BASIC"),
        doc="Ours. authentication.method of Confluent's registry: BASIC, by user name and password, or NONE.",
    )
    schema_registry_authentication_roles: tuple[str, ...] = list_key(
        "schema.registry.authentication.roles",
        ("*",),
        doc="Ours. authentication.roles of Confluent's registry: users with one of them may enter; *: all users.",
    )
    schema_registry_authentication_realm: str = text_key(
        "schema.registry.authentication.realm",
        "SchemaRegistry",
        doc="Ours. authentication.realm of Confluent's registry: the name that browsers show.",
    )
    schema_registry_authentication_users_file: str | None = text_key(
        "schema.registry.authentication.users.file",
        None,
        doc="Ours. A file with lines NAME: PASSWORD[,ROLE...] of the registry's users.",
    )
    schema_registry_command_config: str | None = text_key(
        "schema.registry.command.config",
        None,
        doc="Ours. A file with the client settings of that registry; unset: those of brokers among themselves.",
    )
    avro_validate_defaults: bool = flag_key(
        "avro.validate.defaults",
        False,
        doc="The registry in the broker's process refuses Avro defaults of a wrong type.",
    )
    plugins_modules: tuple[str, ...] = list_key(
        "plugins.modules", (), doc="Ours. Python modules with plugins, in addition to installed ones."
    )
    plugins_blocked: tuple[str, ...] = list_key(
        "plugins.blocked", (), doc="Ours. Names of plugins that are not loaded."
    )
    plugins_entry_points_enable: bool = flag_key(
        "plugins.entry.points.enable", True, doc="Ours. Whether installed plugins are loaded."
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
