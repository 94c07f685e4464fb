"""Up to where a reader sees a log (facts D5, D6)."""

from enum import Enum


class FetchIsolation(Enum):
    """Kafka's three kinds of readers."""

    LOG_END = "log_end"
    """A follower, which is to have all."""
    HIGH_WATERMARK = "high_watermark"
    """A consumer that reads uncommitted transactions, too."""
    TXN_COMMITTED = "txn_committed"
    """A consumer that reads up to the last stable offset."""
