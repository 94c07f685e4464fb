"""One cleaning of a log, as steps for a worker: each group of segments is cleaned into a new one (Kafka: Cleaner).

New segments have the suffix .cleaned until they are durable. The log then replaces one group after the other, so that
messages deleted in a later group cannot reappear before the earlier groups are replaced.
"""

from collections.abc import Iterator, Sequence

from ....ports.types import Buffer, Offset
from ....ports.values import frozen
from ...message.batch_header import BatchHeader, parse_header
from ...message.compacted_batch import make_empty_batch
from ..config import LogConfig
from ..names import CLEANED_SUFFIX
from ..partition_log.replacement import Replacement
from ..segment.segment import INT_MAX, Segment, SegmentFiles
from .batch_filter import BatchFilter
from .cleaning_job import CleaningJob, SourceSegment, read_chunks
from .offset_map import OffsetMapBuilder
from .policy_filter import PolicyFilter
from .suffixed_folder import SuffixedFolder


@frozen(kw_only=True)
class CleanerStats:
    """Statistics of a cleaning."""

    next_dirty: int
    """First dirty offset after the cleaning."""
    bytes_read: int
    bytes_written: int
    map_bytes_read: int
    """Bytes read to build the offset map."""
    messages_read: int
    messages_retained: int
    map_utilization: float


class Cleaner:
    """Runs the `steps` of a cleaning on any thread, one step at a time."""

    def __init__(self, order: CleaningJob) -> None:
        self.order = order
        self.folder = order.folder
        self.bytes_moved = 0
        """Bytes read and written so far."""
        self._survivors = OffsetMapBuilder(order)
        self._filter = BatchFilter(order, self._survivors)
        if order.policy is not None:
            self._filter = PolicyFilter(order, self._survivors, order.policy)
        self._bytes_read = self._bytes_written = 0
        self._making: Segment | None = None

    def steps(self) -> Iterator[Replacement | None]:
        """Yield None after each piece of work, and a `Replacement` to apply to the log before the next step.

        Raises `CannotClean`, `StorageError`; `abandon` then removes what was being made.
        """
        order, survivors = self.order, self._survivors
        before = 0
        for _ in survivors.build():
            self.bytes_moved += survivors.bytes_read - before
            before = survivors.bytes_read
            yield None
        below = [source for source in order.sources if source.base_offset < survivors.end]
        for group in group_segments(below, order.config):
            yield from self._clean(group)

    def _clean(self, group: Sequence[SourceSegment]) -> Iterator[Replacement | None]:
        order = self.order
        made = self._making = Segment.create(
            SuffixedFolder(order.folder, CLEANED_SUFFIX),
            group[0].base_offset,
            now_ms=group[-1].modified_ms,
            index_interval_bytes=order.config.index_interval_bytes,
            report=_silent,
        )
        changed = len(group) > 1 and order.policy is None  # where all messages stay, segments do, too
        last: tuple[BatchHeader, bool] | None = None
        for source in group:
            for data, batches in read_chunks(source, order.chunk_bytes):
                retained: list[Buffer] = []
                for at, header in batches:
                    batch = self._filter.keep(data, at, header)
                    changed = changed or batch is None or isinstance(batch, bytearray)
                    if batch is not None:
                        retained.append(batch)
                    self._bytes_read += header.size
                    yield None
                last = batches[-1][1], batch is not None
                self._append(made, retained)
                for entry in self._filter.transactions.retained_aborted:
                    made.aborted.append(entry)
                self._filter.transactions.retained_aborted.clear()
                yield None
        if last is not None and not last[1]:
            # The end of the segment stays known: a crash in the midst of the exchange, and a start, go by it.
            self._append(made, [make_empty_batch(last[0])])
        yield from self._finish(made, group, changed=changed)

    def _append(self, made: Segment, batches: Sequence[Buffer]) -> None:
        if batches:
            records = b"".join(batches)
            made.append_run(memoryview(records), [parse_header(batch) for batch in batches], now_ms=made.modified_ms)
            self._bytes_written += len(records)
            self.bytes_moved += len(records)

    def _finish(self, made: Segment, group: Sequence[SourceSegment], *, changed: bool) -> Iterator[Replacement | None]:
        if not changed:
            self.abandon()
            return
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
            base_offset=group[0].base_offset,
            next_offset=group[-1].next_offset,
            files=files,
            names=made.names,
            replaced=[source.segment for source in group],
        )

    def abandon(self) -> None:
        """Delete the unfinished segment. Raises `StorageError`."""
        made, self._making = self._making, None
        if made is not None:
            made.delete()

    @property
    def cleaned_to(self) -> Offset | None:
        return self._survivors.end if self.order.policy is None else None

    @property
    def stats(self) -> CleanerStats:
        return CleanerStats(
            next_dirty=self._survivors.end,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            map_bytes_read=self._survivors.bytes_read,
            messages_read=self._filter.messages_read,
            messages_retained=self._filter.messages_retained,
            map_utilization=self._survivors.utilization,
        )


def group_segments(sources: Sequence[SourceSegment], config: LogConfig) -> Iterator[Sequence[SourceSegment]]:
    """Group adjacent segments whose total size fits one segment and its indexes."""
    group: list[SourceSegment] = []
    size = index_bytes = 0
    for source in sources:
        size += source.records.size
        index_bytes += source.index_bytes
        fits = size <= config.segment_bytes and index_bytes <= config.segment_index_bytes
        if group and not (fits and source.next_offset - 1 - group[0].base_offset <= INT_MAX):
            yield group
            group, size, index_bytes = [], source.records.size, source.index_bytes
        group.append(source)
    if group:
        yield group


def _silent(_: str) -> None:
    """Ignore reports of an unfinished segment; its errors end the cleaning."""
