"""The state that the parts of one log share."""

from collections.abc import Callable

from ....ports.storage import Folder
from ....ports.types import Offset, TopicPartition
from ...message.codec import Codecs
from ..config import LogConfig
from ..formats.registry import get_log_format
from ..leader_epoch_cache import LeaderEpochCache
from ..log_format import LogSegment
from ..producers.producer_state_manager import ProducerStateManager
from ..segment.segment_list import SegmentList
from .durability import Durability


class LogState:
    """The state of one `UnifiedLog`, shared only with its parts. Owner thread only."""

    __slots__ = (
        "closed",
        "codecs",
        "config",
        "durable",
        "end",
        "epochs",
        "folder",
        "format",
        "local_start",
        "producers",
        "remote_end",
        "report",
        "segments",
        "start",
        "topic_partition",
    )

    def __init__(
        self,
        folder: Folder,
        topic_partition: TopicPartition,
        config: LogConfig,
        codecs: Codecs,
        epochs: LeaderEpochCache,
        report: Callable[[str], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.folder = folder
        self.config = config
        self.format = get_log_format(config.message_format)
        self.codecs = codecs
        self.report = report
        self.segments: SegmentList
        """Set when the log is loaded; always replaced as a whole, so that readers never wait."""
        self.start = self.end = Offset(0)
        """Log start offset and log end offset."""
        self.local_start = Offset(0)
        """The first offset in the segments here; above the log start offset if remote storage has what is below."""
        self.remote_end = Offset(0)
        """Segments up to here may be deleted, since remote storage is known to have them."""
        self.epochs = epochs
        self.producers = ProducerStateManager(folder, report)
        self.durable = Durability()
        self.closed = False

    @property
    def readable_end(self) -> Offset:
        """Return the exclusive end for readers: the log end offset, in a classic log the recovery point."""
        return self.durable.recovery_point if self.format.reads_flushed_only else self.end

    def create_segment(self, base_offset: Offset, now_ms: int) -> LogSegment:
        """Create an empty segment, which is not part of the log yet. Raises `StorageError`."""
        self.durable.new_names = True
        return self.format.create_segment(self.folder, base_offset, self.config, now_ms=now_ms, report=self.report)

    def advance_log_start(self, offset: Offset) -> None:
        """Raise the log start offset to `offset`; a lower offset has no effect."""
        if offset > self.start:
            self.start = offset
            self.epochs.truncate_from_start(offset)
            self.local_start = max(self.local_start, offset)

    def set_local_start(self) -> None:
        """Set the local start after the first segment has changed; the log start offset is no lower, unless the log is
        tiered."""
        first = self.segments.bases[0]
        if not self.config.tiered:
            self.advance_log_start(first)
        self.local_start = max(self.start, first)

    def truncate_fully_to(self, offset: Offset, now_ms: int) -> None:
        """Delete all segments and continue at `offset`. Raises `StorageError`."""
        for segment in reversed(self.segments.items):
            segment.delete()
        self.start_empty_at(offset, now_ms)
        self.folder.flush()  # else the deleted segments may reappear after a crash

    def start_empty_at(self, offset: Offset, now_ms: int) -> None:
        """Begin an empty log at `offset` in a folder without segments. Raises `StorageError`."""
        self.producers.truncate_fully_to()
        self.segments = SegmentList((self.create_segment(offset, now_ms),))
        self.start = self.end = self.local_start = offset
        self.durable.reset_to(offset)
        self.epochs.clear()
