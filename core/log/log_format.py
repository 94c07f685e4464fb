"""What one strategy decides about a log: how entries are addressed and how they lie in their segments.

The two generations share everything else of a log: flushing, rolling, retention, finding segments, reading.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ...ports.storage import File, Folder, Region
from ...ports.words import Offset, Position
from ..message.batch_header import BatchHeader
from ..message.codec import Codecs
from ..traffic.steps import Steps
from .append_origin import AppendOrigin
from .batch_scan import BatchIterator
from .check_budget import CheckBudget
from .checkpoints import LogCheckpoint
from .config import LogConfig


class ValidatedBatch(NamedTuple):
    """A batch or message set ready to be written: the client's memory, or a rebuilt one."""

    records: memoryview | bytearray
    span: int
    """How many offsets it takes."""
    messages: int
    log_append_time_ms: int = -1
    """-1 on CreateTime topics."""
    header: BatchHeader | None = None


class LogSegment(Protocol):
    """One file of entries, whatever lies beside it. Owner thread only, but for what was handed out."""

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
        """True if the entries, up to `last_offset`, must go to a new segment; an empty one is never full."""
        ...

    def append(self, admitted: ValidatedBatch, *, base_offset: Offset, now_ms: int) -> None:
        """Write the entries, which get `base_offset`; nothing has changed if it raises `StorageError`."""
        ...

    def locate(self, offset: Offset) -> tuple[Position, int] | None:
        """(position, size) of the first entry that ends above `offset`, None when all end below.

        The size is 0 where entries may be cut. Raises `StorageError`, `ApiError` CORRUPT_MESSAGE.
        """
        ...

    def locate_intact(self, offset: Offset) -> tuple[Position, int] | None:
        """The same, but of what can be read: never `ApiError`."""
        ...

    def batches(self) -> BatchIterator:
        """The intact ones; none of a format without batches. Raises `StorageError`."""
        ...

    def find_damage_after(self, position: Position) -> Position:
        """Where the damage behind a position begins, as far as it is known; else the segment's size."""
        ...

    def region(self, position: Position, size: int) -> Region: ...

    def batches_since(self, timestamp: int) -> BatchIterator: ...

    def largest_timestamp_batch(self) -> tuple[Position, int] | None: ...

    def seal(self) -> None:
        """No more entries come. Raises `StorageError`."""
        ...

    def write_indexes(self) -> None: ...

    def index_files(self) -> list[File]:
        """What belongs to the segment besides the entries. Raises `StorageError`."""
        ...

    def cut(self, offset: Offset) -> Offset:
        """Drop the entries from `offset` on; returns where the segment ends now, which is active again."""
        ...

    def rename(self, suffix: str) -> None: ...

    def close(self) -> None: ...

    def delete(self) -> None: ...


class LoadedSegments(NamedTuple):
    """The segments found, oldest first, none for a new log; what is below `recovery_point` is durable."""

    segments: Sequence[LogSegment]
    end: Offset = Offset(0)
    recovery_point: Offset = Offset(0)


class RecoveryListener(Protocol):
    """Is told of what recovery finds in a log of batches, in order. Raises `StorageError`."""

    def begin(self, earlier: Sequence[LogSegment], offset: Offset) -> None:
        """The batches from `offset` on come next; those before are in the `earlier` segments."""
        ...

    def found(self, segment: LogSegment, position: Position, header: BatchHeader) -> None:
        """A good batch."""
        ...


class LogFormat(Protocol):
    """The strategy."""

    @property
    def reads_flushed_only(self) -> bool:
        """True if readers see nothing that is not durable."""
        ...

    @property
    def has_leader_epochs(self) -> bool:
        """True if entries carry the leader epoch they were written in."""
        ...

    @property
    def has_producers(self) -> bool:
        """True if entries carry producer ids and sequence numbers, and snapshots of the producers lie beside them."""
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
        """Check what a client sends. Raises `ApiError`, and `ValidationTakesLong` for what is to be done in steps."""
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
        """Do what `validate` does in bounded pieces. Raises as `validate_in_steps` of `admission`."""
        ...

    def stamp(self, buf: memoryview | bytearray, base_offset: Offset, leader_epoch: int) -> None:
        """Write into the entries where they come to stand, if they say so."""
        ...

    def create_segment(
        self, folder: Folder, base_offset: Offset, config: LogConfig, *, now_ms: int, report: Callable[[str], None]
    ) -> LogSegment:
        """A new, empty segment; leftovers of its name are cleared away. Raises `StorageError`."""
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
        """Open what is in the folder; with `recover` it was not closed in order, and is checked and cut.

        `recovery` is told of what is checked. Raises `StorageError`.
        """
        ...
