"""Rebuilds a damaged segment from its intact batches and those of another replica.

The reasons are in docs/design/recovery.md, 'Repair from replicas'.
"""

from collections.abc import Iterator, Sequence

from ....ports.errors import ApiError
from ....ports.storage import File, Folder, Region
from ....ports.types import Offset, Position
from ....ports.values import frozen
from ...message.batch_header import HEADER_SIZE, BatchHeader, is_crc_valid, parse_header
from ..compaction.cleaning_job import CannotClean
from ..compaction.suffixed_folder import SuffixedFolder
from ..names import CLEANED_SUFFIX
from ..partition_log.replacement import Replacement
from ..segment.segment import Segment, SegmentFiles
from ..segment.transaction_index import AbortedTxn

_CHUNK_BYTES = 262_144


@frozen(kw_only=True)
class RebuildStats:
    """Statistics of a repair."""

    bytes_fetched: int


@frozen
class BatchRange:
    """A range of bytes with complete batches: of the damaged segment, or `fetched` from another replica."""

    start: int
    end: int
    fetched: bool


class SegmentRebuild:
    """A `SegmentRewrite` that joins the `pieces` of the new segment in order."""

    cleaned_to: Offset | None = None

    def __init__(
        self,
        folder: Folder,
        segment: Segment,
        *,
        next_offset: Offset,
        pieces: Sequence[BatchRange],
        fetched: File,
        aborted: Sequence[AbortedTxn],
        index_interval_bytes: int,
    ) -> None:
        """`fetched` has the batches of other replicas. Raises `StorageError`."""
        self.folder = folder
        self.bytes_moved = 0
        self._segment = segment
        self._own: Region = segment.region(Position(0), segment.size)
        self._next_offset = next_offset
        self._pieces = pieces
        self._fetched: Region = fetched.region(0, fetched.size)
        self._aborted = aborted
        self._index_interval_bytes = index_interval_bytes
        self._making: Segment | None = None

    @property
    def stats(self) -> RebuildStats:
        return RebuildStats(bytes_fetched=sum(each.end - each.start for each in self._pieces if each.fetched))

    def steps(self) -> Iterator[Replacement | None]:
        segment = self._segment
        made = self._making = Segment.create(
            SuffixedFolder(self.folder, CLEANED_SUFFIX),
            segment.base_offset,
            now_ms=segment.modified_ms,
            index_interval_bytes=self._index_interval_bytes,
            report=lambda _: None,
        )
        expected = segment.base_offset
        for piece in self._pieces:
            for data, headers in self._chunks(piece):
                for header in headers:
                    if header.base_offset < expected or header.next_offset > self._next_offset:
                        raise CannotClean(f"a batch at offset {header.base_offset}, expected {expected}")
                    expected = header.next_offset
                made.append_run(memoryview(data), headers, now_ms=made.modified_ms)
                self.bytes_moved += 2 * len(data)
                yield None
        for entry in self._aborted:
            made.aborted.append(entry)
        made.seal()
        yield None
        for file in (made.file, *made.index_files()):
            file.flush()
            yield None
        index, time_index, *aborted = [file.size for file in made.index_files()]
        files = SegmentFiles(made.size, index, time_index, made.modified_ms, *aborted)
        made.close()
        self._making = None
        yield Replacement(
            base_offset=segment.base_offset,
            next_offset=self._next_offset,
            files=files,
            names=made.names,
            replaced=[segment],
        )

    def _chunks(self, piece: BatchRange) -> Iterator[tuple[bytes, list[BatchHeader]]]:
        """Yield the complete batches of a piece, about `_CHUNK_BYTES` at a time. Raises `CannotClean`,
        `StorageError`."""
        position, wanted = piece.start, _CHUNK_BYTES
        source = self._fetched if piece.fetched else self._own
        while position < piece.end:
            data = source.read(position, min(wanted, piece.end - position))
            headers: list[BatchHeader] = []
            at = 0
            try:
                while at + HEADER_SIZE <= len(data):
                    header = parse_header(data, at)
                    if at + header.size > len(data):
                        break
                    if not is_crc_valid(data, header, at):
                        raise CannotClean(f"more of {self._segment.path} is damaged, at position {position + at}")
                    headers.append(header)
                    at += header.size
            except ApiError as error:
                raise CannotClean(f"more of {self._segment.path} is damaged: {error.message}") from error
            if headers:
                yield data[:at], headers
                position, wanted = position + at, _CHUNK_BYTES
            else:
                wanted = header.size if len(data) >= HEADER_SIZE else HEADER_SIZE
                if wanted > piece.end - position:
                    raise CannotClean(f"the batch at position {position} of {self._segment.path} is cut")

    def abandon(self) -> None:
        made, self._making = self._making, None
        if made is not None:
            made.delete()
