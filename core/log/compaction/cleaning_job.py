"""The input of a cleaning, which runs on a worker and does not touch the log itself."""

from collections.abc import Iterator, Mapping, Sequence

from ....ports.errors import ApiError, BarnabasError
from ....ports.storage import Folder, Region
from ....ports.types import Offset, TopicPartition
from ....ports.values import frozen
from ...message.batch_header import HEADER_SIZE, BatchHeader, is_crc_valid, parse_header
from ...message.codec import Codecs
from ..config import LogConfig
from ..retention import RecordPolicy
from ..segment.segment import Segment
from ..segment.transaction_index import AbortedTxn

SLOT_BYTES = 24
"""Bytes per key in the offset map."""


class CannotClean(BarnabasError):
    """The log is corrupt, or exceeds the memory of the cleaner, and stays uncleaned."""


@frozen(kw_only=True)
class CleanerSettings:
    """The current values of log.cleaner.*."""

    threads: int = 1
    """Number of logs cleaned concurrently; 0 disables cleaning."""
    dedupe_buffer_bytes: int = 134_217_728
    """Total size of all offset maps."""
    load_factor: float = 0.9
    io_buffer_bytes: int = 524_288
    """Total buffer size of all cleanings, half of it for reads."""
    io_max_bytes_per_second: float = float("inf")
    """Total read and write rate of all cleanings."""
    backoff_ms: int = 15_000


@frozen(kw_only=True)
class SourceSegment:
    """A segment to be cleaned."""

    segment: Segment
    """Identifies the segment for its replacement; workers must not use it."""
    base_offset: Offset
    next_offset: Offset
    """Exclusive."""
    records: Region
    index_bytes: int
    """Size of its larger index."""
    modified_ms: int


@frozen(kw_only=True)
class CleaningJob:
    """One cleaning of one log (Kafka: LogToClean with its cleaner config)."""

    folder: Folder
    config: LogConfig
    codecs: Codecs
    sources: Sequence[SourceSegment]
    """All segments below `upto`, oldest first."""
    first_dirty: Offset
    """End of the clean part."""
    upto: Offset
    """Exclusive end of the part for the offset map."""
    now_ms: int
    map_bytes: int
    load_factor: float
    chunk_bytes: int
    secret: bytes
    """Random key for the hashes of the offset map."""
    last_of_producers: Mapping[int, tuple[Offset, int]] = {}
    """Producer → the last offset of its last batch (-1: it has only markers in its epoch), and its epoch: this batch is
    kept, if without records, to know the producer by."""
    partition: TopicPartition
    policy: RecordPolicy | None = None
    """Decides which messages to retain; None: the last one of each key."""
    aborted: Sequence[AbortedTxn] = ()
    """The aborted transactions that reach into [first segment, upto)."""


ChunkBatches = list[tuple[int, BatchHeader]]
"""(position in the bytes read, header)."""


def read_chunks(source: SourceSegment, chunk_bytes: int) -> Iterator[tuple[bytes, ChunkBatches]]:
    """Yield the complete batches of a segment, about `chunk_bytes` at a time; a larger batch is a chunk of its own.

    Offsets may leave gaps. Raises `CannotClean` for damage, because a copy would give it a valid checksum or lose the
    batches behind it; `StorageError`.
    """
    region, position, size = source.records, 0, source.records.size
    expected, wanted = source.base_offset, max(chunk_bytes, HEADER_SIZE)
    while position < size:
        data = region.read(position, min(wanted, size - position))
        batches: ChunkBatches = []
        at = 0
        try:
            while at + HEADER_SIZE <= len(data):
                header = parse_header(data, at)
                if at + header.size > len(data):
                    break
                _check(data, at, header, expected, source.next_offset)
                batches.append((at, header))
                at += header.size
                expected = header.next_offset
        except (ApiError, ValueError) as error:
            raise CannotClean(f"the batch at position {position + at} is damaged: {error}") from error
        if batches:
            yield data, batches
            position += at
            wanted = max(chunk_bytes, HEADER_SIZE)
        else:
            wanted = header.size if len(data) >= HEADER_SIZE else HEADER_SIZE
            if wanted > size - position:
                raise CannotClean(f"the batch at position {position} is truncated")


def _check(data: bytes, at: int, header: BatchHeader, expected: int, end: int) -> None:
    if header.base_offset < expected or header.next_offset > end or header.count > header.last_offset_delta + 1:
        claim = f"{header.count} records at offsets {header.base_offset} to {header.last_offset}"
        raise ValueError(f"{claim}, expected {expected} to {end - 1}")
    if not is_crc_valid(data, header, at):
        raise ValueError("the CRC-32C does not match the content")
