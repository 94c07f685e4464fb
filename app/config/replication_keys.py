"""The keys of what brokers do among themselves: replication, leaders, controlled shutdown (facts D9; names and defaults
of Kafka 4)."""

from ...ports.errors import ConfigError
from ...ports.values import frozen
from .keys import LONG_MAX, flag_key, int_key, long_key, text_key


@frozen(kw_only=True, slots=False)
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
