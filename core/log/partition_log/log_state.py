"""What the parts of one log share: what it is made of, and where it stands."""

from collections.abc import Callable

from ....ports.storage import Folder
from ....ports.words import Offset, TopicPartition
from ...message.codec import Codecs
from ..config import LogConfig
from ..formats.registry import get_log_format
from ..leader_epoch_cache import LeaderEpochCache
from ..log_format import LogSegment
from ..producers.producer_state_manager import ProducerStateManager
from ..segment.segment_list import SegmentList
from .durability import Durability


class LogState:
    """Made for one `Log`, which hands it to its parts; nobody else has it. Owner thread only."""

    __slots__ = (
        "closed",
        "codecs",
        "config",
        "durable",
        "end",
        "epochs",
        "folder",
        "format",
        "producers",
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
        """There once the log is loaded; replaced as a whole, so that readers never wait."""
        self.start = self.end = Offset(0)
        """Log start offset and log end offset."""
        self.epochs = epochs
        self.producers = ProducerStateManager(folder, report)
        self.durable = Durability()
        self.closed = False

    @property
    def readable_end(self) -> Offset:
        """Where readers stop (exclusive): the log end, or in a classic log what is durable (facts A4)."""
        return self.durable.recovery_point if self.format.reads_flushed_only else self.end

    def create_segment(self, base_offset: Offset, now_ms: int) -> LogSegment:
        """An empty one, which is not in the log yet. Raises `StorageError`."""
        self.durable.new_names = True
        return self.format.create_segment(self.folder, base_offset, self.config, now_ms=now_ms, report=self.report)

    def advance_log_start(self, offset: Offset) -> None:
        """Records below are no longer served; a lower one than the present start does nothing."""
        if offset > self.start:
            self.start = offset
            self.epochs.truncate_from_start(offset)

    def truncate_fully_to(self, offset: Offset, now_ms: int) -> None:
        """Drop everything; the next entry has `offset`. Raises `StorageError`."""
        for segment in reversed(self.segments.items):
            segment.delete()
        self.start_empty_at(offset, now_ms)
        self.folder.flush()  # else the old ones may come back

    def start_empty_at(self, offset: Offset, now_ms: int) -> None:
        """The same where there is no segment. Raises `StorageError`."""
        self.producers.truncate_fully_to()
        self.segments = SegmentList((self.create_segment(offset, now_ms),))
        self.start = self.end = offset
        self.durable.reset_to(offset)
        self.epochs.clear()
