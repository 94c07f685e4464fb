"""What a cleaning is told when it begins: it runs on a worker, and touches nothing of the log itself."""

from collections.abc import Mapping, Sequence

from ....ports.errors import BarnabasError
from ....ports.storage import Folder, Region
from ....ports.values import frozen
from ....ports.words import Offset, TopicPartition
from ...message.codec import Codecs
from ..aborted_index import AbortedEntry
from ..config import LogConfig
from ..retention import RecordPolicy
from ..segment import Segment

SLOT_BYTES = 24
"""Of the offset map, for each key."""


class CannotClean(BarnabasError):
    """The log is damaged, or does not fit what the cleaner may use: it stays as it is."""


@frozen(kw_only=True)
class CleanerSettings:
    """The keys log.cleaner.*, as they are now."""

    threads: int = 1
    """How many logs are cleaned side by side; 0: none."""
    dedupe_buffer_bytes: int = 134_217_728
    """Of all offset maps together."""
    load_factor: float = 0.9
    io_buffer_bytes: int = 524_288
    """Of all cleanings together, half of it for reading."""
    io_max_bytes_per_second: float = float("inf")
    """Read and written, of all cleanings together."""
    backoff_ms: int = 15_000


@frozen(kw_only=True)
class Source:
    """A segment to be cleaned."""

    segment: Segment
    """Not to be touched by a worker; to be recognised when it is replaced."""
    base_offset: Offset
    next_offset: Offset
    """Exclusive."""
    records: Region
    index_bytes: int
    """Of the larger of its indexes."""
    modified_ms: int


@frozen(kw_only=True)
class Order:
    """One cleaning of one log."""

    folder: Folder
    config: LogConfig
    codecs: Codecs
    sources: Sequence[Source]
    """All segments below `upto`, oldest first."""
    first_dirty: Offset
    """What is below was cleaned before."""
    upto: Offset
    """The offset map takes nothing from here on."""
    now_ms: int
    map_bytes: int
    load_factor: float
    chunk_bytes: int
    secret: bytes
    """For the offset map: random, and known to nobody."""
    last_of_producers: Mapping[int, tuple[Offset, int]] = {}
    """Producer → the last offset of its last batch (-1: it has only markers in its epoch), and its epoch: this batch is
    kept, if without records, to know the producer by."""
    partition: TopicPartition
    policy: RecordPolicy | None = None
    """Says of each message if it stays; None: the last of each key does."""
    aborted: Sequence[AbortedEntry] = ()
    """The aborted transactions that reach into [first segment, upto)."""
