"""The settings of a transaction coordinator, by Kafka's names."""

from ....ports.values import frozen

_MIB = 1024 * 1024


@frozen(kw_only=True)
class TransactionConfig:
    """Times in milliseconds."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms: a producer that asks for more is refused."""
    abort_check_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    expiry_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""

    # Not settings of Kafka.
    patience_ms: int = 500
    """The longest wait of a request for the end of the previous transaction, before CONCURRENT_TRANSACTIONS."""
    completion_delay_ms: int = 10
    """The longest time for which the completion of a transaction waits for the begin of the next one, to be written
    with it."""
    record_max_bytes: int = 900_000
    """The largest record of one transaction, which bounds its partitions; it must be below the log's
    max.message.bytes."""
    size_max_bytes: int = 512 * _MIB
    """The most memory for all ids and their partitions, roughly; requests beyond it get COORDINATOR_NOT_AVAILABLE."""
