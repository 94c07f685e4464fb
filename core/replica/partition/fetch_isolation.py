"""The isolation of a fetch: the end of the log for each kind of reader (facts D5, D6)."""

from enum import IntEnum


class FetchIsolation(IntEnum):
    """The ends of a log for Kafka's three kinds of readers."""

    LOG_END = 0
    """The log end, for followers."""
    HIGH_WATERMARK = 1
    """The high watermark, for consumers that also read uncommitted transactions."""
    TXN_COMMITTED = 2
    """The last stable offset, for read_committed consumers."""
