"""Up to where a reader sees a log (facts D5, D6)."""

from enum import IntEnum


class FetchIsolation(IntEnum):
    """Kafka's three kinds of readers."""

    LOG_END = 0
    """A follower, which is to have all."""
    HIGH_WATERMARK = 1
    """A consumer that reads uncommitted transactions, too."""
    TXN_COMMITTED = 2
    """A consumer that reads up to the last stable offset."""
