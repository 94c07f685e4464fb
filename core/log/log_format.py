"""The strategy of a message format: how a log addresses its entries and stores them in segments.

The two generations share everything else of a log: flushing, rolling, retention, finding segments, reading.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ...ports.storage import File, Folder, Region
from ...ports.types import Offset, Position
from ..message.batch_header import BatchHeader
from ..message.codec import Codecs
from ..traffic.steps import Steps
from .append_origin import AppendOrigin
from .batch_scan import BatchIterator
from .check_budget import CheckBudget
from .checkpoints import LogCheckpoint
from .config import LogConfig


class ValidatedBatch(NamedTuple):
    """A validated batch or message set: the memory of the request, or a rebuilt one (Kafka: LogAppendInfo)."""

    records: memoryview | bytearray
    span: int
    """Number of offsets of the entries."""
    messages: int
    log_append_time_ms: int = -1
    """-1 on CreateTime topics."""
    header: BatchHeader | None = None


class LogSegment(Protocol):
    """A segment: a file of entries with its indexes. Owner thread only, except for returned regions and files."""

    base_offset: Offset
    modified_ms: int
    index_interval_bytes: int

    @property
    def size(self) -> Position: ...
    @property
    def file(self) -> File: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def largest_timestamp(self) -> int: ...

    def should_roll(
        self, admitted: ValidatedBatch, last_offset: Offset, config: LogConfig, *, jitter_ms: int, now_ms: int
    ) -> bool:
        """Return True if the entries, up to `last_offset`, need a new segment; an empty segment is never full."""
        ...

    def append(self, admitted: ValidatedBatch, *, base_offset: Offset, now_ms: int) -> None:
        """Append the entries at `base_offset`; the segment is unchanged if it raises `StorageError`."""
        ...

    def locate(self, offset: Offset) -> tuple[Position, int] | None:
        """Return (position, size) of the first entry that ends above `offset`, or None.

        The size is 0 if readers may cut entries. Raises `StorageError`, `ApiError` CORRUPT_MESSAGE.
        """
        ...

    def locate_intact(self, offset: Offset) -> tuple[Position, int] | None:
        """Return (position, size) of the first readable entry that ends above `offset`; never raises `ApiError`."""
        ...

    def batches(self) -> BatchIterator:
        """Yield the intact batches; none in a format without batches. Raises `StorageError`."""
        ...

    def find_damage_after(self, position: Position) -> Position:
        """Return the start of the first known damage after a position, else the size of the segment."""
        ...

    def region(self, position: Position, size: int) -> Region: ...

    def batches_since(self, timestamp: int) -> BatchIterator: ...

    def largest_timestamp_batch(self) -> tuple[Position, int] | None: ...

    def seal(self) -> None:
        """Make the segment inactive. Raises `StorageError`."""
        ...

    def write_indexes(self) -> None: ...

    def index_files(self) -> list[File]:
        """Return the index files of the segment. Raises `StorageError`."""
        ...

    def cut(self, offset: Offset) -> Offset:
        """Truncate to `offset` and become active again; return the new end."""
        ...

    def rename(self, suffix: str) -> None: ...

    def close(self) -> None: ...

    def delete(self) -> None: ...


class LoadedSegments(NamedTuple):
    """Loaded segments, oldest first, none for a new log; records below `recovery_point` are durable."""

    segments: Sequence[LogSegment]
    end: Offset = Offset(0)
    recovery_point: Offset = Offset(0)


class RecoveryListener(Protocol):
    """Receives the batches that recovery finds, in order. Methods may raise `StorageError`."""

    def begin_recovery(self, earlier: Sequence[LogSegment], offset: Offset) -> None:
        """Called before the batches from `offset` on; the `earlier` segments have those before."""
        ...

    def found(self, segment: LogSegment, position: Position, header: BatchHeader) -> None:
        """Called for each valid batch."""
        ...


class LogFormat(Protocol):
    """The strategy for one message format."""

    @property
    def reads_flushed_only(self) -> bool:
        """Return True if readers see durable entries only."""
        ...

    @property
    def has_leader_epochs(self) -> bool:
        """Return True if entries contain the leader epoch."""
        ...

    @property
    def has_producers(self) -> bool:
        """Return True if entries contain producer ids and the log has producer snapshots."""
        ...

    def validate(
        self,
        records: memoryview,
        config: LogConfig,
        codecs: Codecs,
        *,
        now_ms: int,
        allows_zstd: bool,
        origin: AppendOrigin,
        budget: CheckBudget | None,
    ) -> ValidatedBatch:
        """Validate the entries of a client. Raises `ApiError`, and `ValidationTakesLong` if it must be done in
        steps."""
        ...

    def validate_in_steps(
        self,
        records: memoryview,
        config: LogConfig,
        codecs: Codecs,
        *,
        clock_ms: Callable[[], int],
        allows_zstd: bool,
        origin: AppendOrigin,
        unpacked_max: int,
        whole: bool,
    ) -> Steps[ValidatedBatch]:
        """Do what `validate` does in bounded pieces. Raises as `validate_batch_in_steps`."""
        ...

    def stamp(self, buf: memoryview | bytearray, base_offset: Offset, leader_epoch: int) -> None:
        """Set the base offset in the entries, if the format has it."""
        ...

    def create_segment(
        self, folder: Folder, base_offset: Offset, config: LogConfig, *, now_ms: int, report: Callable[[str], None]
    ) -> LogSegment:
        """Create an empty segment and delete stale files of its name. Raises `StorageError`."""
        ...

    def load(
        self,
        folder: Folder,
        config: LogConfig,
        *,
        now_ms: int,
        report: Callable[[str], None],
        recover: bool,
        noted: LogCheckpoint,
        recovery: RecoveryListener,
    ) -> LoadedSegments:
        """Load the segments of the folder; `recover` checks and truncates them after an unclean shutdown.

        `recovery` receives the checked batches. Raises `StorageError`.
        """
        ...
