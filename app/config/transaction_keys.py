"""The keys of transactions, by Kafka's names."""

from ...ports.values import frozen
from .keys import flag_key, int_key, short_key


@frozen(kw_only=True, slots=False)
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
