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
    """So long a request waits for the transaction before it to end, before it is told CONCURRENT_TRANSACTIONS."""
    record_max_bytes: int = 900_000
    """Of one transaction in the log, which must be below its max.message.bytes; so many partitions it may have."""
    size_max_bytes: int = 512 * _MIB
    """Of all ids and their partitions together, roughly; what comes beyond is told COORDINATOR_NOT_AVAILABLE."""
