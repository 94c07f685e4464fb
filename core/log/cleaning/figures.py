"""What compaction has come to by now, for those who watch a broker."""

from .choice import Dirt
from .cleaning import CleaningStats


class CleanerFigures:
    """Owner thread only."""

    def __init__(self, now_ms: float) -> None:
        self.looked_ms = now_ms
        """When the logs were last looked at; monotonic."""
        self.dirtiest = 0.0
        """The dirty share of the dirtiest log, of 1, as of then."""
        self.overdue_ms = 0
        """The longest time since a message should have been compacted, as of then."""
        self.took_ms = 0.0
        """The last cleaning, as are the next two."""
        self.recopied = 0.0
        """Bytes written of those read."""
        self.map_utilization = 0.0
        self.bytes_read = self.bytes_removed = 0
        """By all of them."""

    def looked(self, dirt: list[Dirt], now_ms: float) -> None:
        self.looked_ms = now_ms
        self.dirtiest = max((each.ratio for each in dirt), default=0.0)
        self.overdue_ms = max((each.overdue_ms for each in dirt if each.cleanable_bytes), default=0)

    def cleaned(self, stats: CleaningStats, took_ms: float) -> None:
        self.took_ms = took_ms
        self.recopied = stats.bytes_written / stats.bytes_read if stats.bytes_read else 0.0
        self.map_utilization = stats.map_utilization
        self.bytes_read += stats.bytes_read
        self.bytes_removed += max(0, stats.bytes_read - stats.bytes_written)
