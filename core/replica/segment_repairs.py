"""Repair of damaged closed segments with batches from other replicas.

The reasons are in docs/design/recovery.md, 'Repair from replicas'.

A repair truncates nothing: the new segment replaces the damaged one when all of it is durable. Committed records are
the same in all replicas, so that any replica can be the source.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.report import error as failure
from ...ports.report import info
from ...ports.scheduler import Outcome, Scheduler
from ...ports.storage import File, Folder, Region, StorageError
from ...ports.types import Offset, Position, TopicPartition
from ...ports.values import frozen
from ..client.driver import Submit
from ..log.compaction.cleaning_job import CannotClean
from ..log.compaction.cleaning_run import CleaningResult, CleaningRun
from ..log.compaction.suffixed_folder import SuffixedFolder
from ..log.compaction.throttler import Throttler
from ..log.log_format import LogSegment
from ..log.manager.data_folder import DataFolder
from ..log.names import CLEANED_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from ..log.partition_log.replacement import Replacement
from ..log.partition_log.unified_log import UnifiedLog
from ..log.segment.damage import NO_BOUND, Gap
from ..log.segment.offset_index import CorruptIndex
from ..log.segment.segment import Segment, SegmentFiles
from ..log.segment.transaction_index import AbortedTxn
from ..message.batch_header import HEADER_SIZE, BatchHeader, is_crc_valid, parse_header
from ..message.batch_writer import EMPTY_HEADER, make_empty_batch
from ..traffic.steps import StepRunner
from .follower.partition_fetch_state import records_of
from .partition.partition import Partition
from .replica_manager import ReplicaManager

_FETCH_BYTES = 1 << 20
_FIRST_RETRY_MS, _LAST_RETRY_MS = 1_000.0, 3_600_000.0
"""The first retry is early: a lost connection or a follower whose high watermark is late ends most failures."""
_QUIET_BELOW_MS = 60_000.0
"""After its first failure, a repair whose retry is nearer than this is not reported."""
_LATER_MS = 15_000.0
"""The delay while the log is being compacted, or the high watermark here is not known to be beyond the damage."""
_WAITING_MAX = 1_000


class RepairFigures:
    """The numbers of repaired and failed segments since the start."""

    def __init__(self) -> None:
        self.repaired = self.failed = 0


# Rebuilds a damaged segment from its intact batches and those of another replica.
#
# The reasons are in docs/design/recovery.md, 'Repair from replicas'.

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


class SegmentRepairs:
    """Repairs one segment at a time. Owner thread only.

    submit:  sends a request to a broker; None: there is no other.
    hold:    keeps the cleaner from a log; False while the cleaner works on it. `release` ends that.
    again:   has a segment checked again, by an offset in it.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        *,
        submit: Submit | None,
        is_alive: Callable[[int], bool],
        home_of: Callable[[TopicPartition], DataFolder | None],
        clock: Clock,
        scheduler: Scheduler,
        report: Callable[[str], None],
        hold: Callable[[TopicPartition], bool],
        release: Callable[[UnifiedLog, bool], None],
        again: Callable[[UnifiedLog, int], None],
    ) -> None:
        self.submit = submit
        self.is_alive = is_alive
        self.home_of = home_of
        self.clock = clock
        self.scheduler = scheduler
        self.report = report
        self.release = release
        self.figures = RepairFigures()
        self._replicas = replicas
        self._hold = hold
        self._again = again
        self._waiting: deque[tuple[UnifiedLog, Segment, Sequence[Gap]]] = deque()
        self._running: _Repair | None = None
        self._retry_ms: dict[Segment, tuple[float, float]] = {}
        """The next retry time and the last retry interval of each segment that could not be repaired."""
        self._uncommitted: set[Segment] = set()
        """Segments whose uncommitted damage was reported."""
        self._reloading: set[UnifiedLog] = set()
        """Logs whose producers are being read again."""
        self._reloads = StepRunner(scheduler, clock, lambda error: report(f"reading producers failed: {error}"))
        self._closed = False
        self._stopped: Callable[[], None] | None = None

    def stop(self, done: Callable[[], None]) -> None:
        """Give up the running repair, and call `done` when no worker uses it any longer."""
        self._closed = True
        self._waiting.clear()
        self._stopped = done
        if self._running is not None:
            self._running.stop()
        else:
            self._end_stop()

    def on_damage(self, log: UnifiedLog, segment: Segment, gaps: Sequence[Gap]) -> None:
        """Repair the gaps of a closed segment, if it is not queued yet and no retry is pending."""
        if self.clock.monotonic_ms() < self._retry_ms.get(segment, (0.0, 0.0))[0]:
            return  # its readers report the damage again until the retry
        running = self._running
        known = [each for _, each, _ in self._waiting]
        if self._closed or len(known) >= _WAITING_MAX or any(each is segment for each in known):
            return
        if running is not None and running.segment is segment:
            return
        self._waiting.append((log, segment, gaps))
        self._next()

    def _next(self) -> None:
        while self._waiting and self._running is None and not self._closed:
            log, segment, gaps = self._waiting.popleft()
            partition = self._replicas.partitions.get(log.topic_partition)
            if log.closed or partition is None or partition.log is not log:
                continue
            is_committed = gaps[-1].next_offset <= partition.high_watermark
            if not is_committed:
                self._report_uncommitted(partition, segment, gaps)
            if not is_committed or not self._hold(log.topic_partition):
                self._later(log, segment, _LATER_MS)
                continue
            self._running = _Repair(self, partition, segment, gaps)
            self._running.start()

    def _report_uncommitted(self, partition: Partition, segment: Segment, gaps: Sequence[Gap]) -> None:
        """Report once that no follower can fetch past uncommitted damage, if this leader is alone in the ISR: the high
        watermark may never move again."""
        if not partition.is_leader or list(partition.isr) != [partition.broker_id] or segment in self._uncommitted:
            return
        if len(self._uncommitted) >= _WAITING_MAX:
            self._uncommitted.clear()
        self._uncommitted.add(segment)
        text = (
            f"{segment.path} is damaged above the high watermark {partition.high_watermark}: {gaps[0].lost}. No "
            "follower can fetch past that. If the ISR stays at this broker alone, restart it: an eligible replica "
            "becomes the leader, and these records, which were never committed, are removed"
        )
        self.report(failure(text, partition=str(partition.topic_partition)))

    def _later(self, log: UnifiedLog, segment: Segment, delay_ms: float) -> None:
        def due() -> None:
            if not self._closed and not log.closed:
                if segment in self._retry_ms:
                    self._retry_ms[segment] = 0.0, self._retry_ms[segment][1]
                self._again(log, segment.base_offset)

        self.scheduler.call_later(delay_ms, due)

    def _reload_producers(self, log: UnifiedLog) -> None:
        """Read the producers again that the damage has hidden, on a worker."""
        if log.closed or self._closed or log in self._reloading or not log.hidden_producers_at:
            return

        def done(outcome: Outcome[None]) -> None:
            self._reloading.remove(log)
            if outcome.error is not None and not log.closed:
                self.report(failure(f"{log.topic_partition}: its producers cannot be read: {outcome.error}"))
                self.scheduler.call_later(_LATER_MS, lambda: self._reload_producers(log))
            self._end_stop()

        self._reloading.add(log)
        self._reloads.run(log.reload_producers(self.clock.now_ms()), done)

    def _end_stop(self) -> None:
        if self._stopped is not None and self._running is None and not self._reloading:
            stopped, self._stopped = self._stopped, None
            stopped()

    def ended(self, repair: "_Repair", error: BaseException | str | None, stats: RebuildStats | None) -> None:
        """Record the end of a repair: done (`stats`), failed (`error`), or given up (neither)."""
        log, segment = repair.log, repair.segment
        self._running = None
        if not log.closed:
            self.release(log, stats is not None)
        if stats is not None:
            self.figures.repaired += 1
            self._retry_ms.pop(segment, None)
            text = f"{repair.path} is repaired: {repair.lost}; these came again from {repair.sources}"
            self.report(info(text, partition=str(log.topic_partition), bytes=stats.bytes_fetched))
            self._reload_producers(log)
        elif error is not None and not log.closed:
            self.figures.failed += 1
            is_first = segment not in self._retry_ms
            before_ms = self._retry_ms.get(segment, (0.0, _FIRST_RETRY_MS / 2))[1]
            retry_ms = min(2 * before_ms, _LAST_RETRY_MS) if repair.may_succeed_later else _LAST_RETRY_MS
            if len(self._retry_ms) >= _WAITING_MAX:
                self._retry_ms.clear()
            self._retry_ms[segment] = self.clock.monotonic_ms() + retry_ms, retry_ms
            if is_first or retry_ms >= _QUIET_BELOW_MS:
                text = f"{repair.path} is damaged and cannot be repaired: {repair.lost}; {error}. The rest is served"
                self.report(failure(text, partition=str(log.topic_partition)))
            if repair.may_succeed_later:
                self._later(log, segment, retry_ms)
        if self._closed:
            self._end_stop()
        else:
            self._next()


class _Repair:
    """Fetches the missing batches, rebuilds the segment and replaces the damaged one."""

    def __init__(self, repairs: SegmentRepairs, partition: Partition, segment: Segment, gaps: Sequence[Gap]) -> None:
        self.log = partition.log
        self.segment = segment
        self.path = segment.path
        self.lost = ", ".join(gap.lost for gap in gaps[:3]) + (" ..." if len(gaps) > 3 else "")
        self.may_succeed_later = True
        self._repairs = repairs
        self._partition = partition
        self._gaps = gaps
        self._sources: list[int] = []
        self._candidates = self._others()
        self._refusals: list[str] = []
        self._spool_name = segment_file(segment.base_offset, SNAPSHOT_SUFFIX) + CLEANED_SUFFIX  # a start deletes it
        self._spool: File | None = None
        self._pieces: list[BatchRange] = []
        self._number = 0
        """The index of the gap that is being filled."""
        self._cursor = self._floor = gaps[0].first_offset
        """The next offset to fetch, and the lowest base offset that the batch with it may have."""
        self._run: CleaningRun | None = None
        self._stopping = False

    @property
    def sources(self) -> str:
        brokers = ", ".join(map(str, dict.fromkeys(self._sources)))
        return f"broker {brokers}" if brokers else "no broker: none of them has any"

    def _others(self) -> list[int]:
        """Return the other replicas: the leader first, then the ISR."""
        partition = self._partition
        order = [partition.leader, *partition.isr, *partition.replicas]
        others = [each for each in dict.fromkeys(order) if each >= 0 and each != partition.broker_id]
        return [each for each in others if each in partition.replicas]

    def start(self) -> None:
        if self._repairs.submit is None or not self._candidates:
            self.may_succeed_later = False
            self._end("the partition has no other replica")
            return
        try:
            self._spool = self.log.folder.open(self._spool_name)
            self._spool.truncate(0)
        except StorageError as error:
            self._end(error)
            return
        self._add_own(0, self._gaps[0].position)
        self._ask()

    def stop(self) -> None:
        self._stopping = True
        if self._run is not None:
            self._run.stop()

    # --- fetching

    def _ask(self) -> None:
        """Fetch the next missing offset; offsets below the log start offset are not needed."""
        submit, gap = self._repairs.submit, self._gaps[self._number]
        if self.log.log_start_offset >= gap.next_offset:
            self._filled(gap)
            return
        self._cursor = max(self._cursor, self.log.log_start_offset)
        while self._candidates and not self._repairs.is_alive(self._candidates[0]):
            self._refusals.append(f"broker {self._candidates.pop(0)} is down")
        if submit is None or not self._candidates:
            self._end(f"no replica has an intact copy of offset {self._cursor}: {'; '.join(self._refusals)}")
            return
        source, tp, cursor = self._candidates[0], self._partition.topic_partition, self._cursor
        entry = FetchPartition(tp.topic, tp.partition, cursor, _FETCH_BYTES, topic_id=self._partition.topic_id)
        submit(source, Fetch(partitions=[entry], max_wait_ms=0), lambda result: self._answered(source, result))

    def _answered(self, source: int, result: Any) -> None:
        if self._stopping or self.log.closed or not any(each is self.segment for each in self.log.segments[:-1]):
            self._end(None)
            return
        try:
            self._store_fetched(source, _records_in(result))
        except ApiError as error:
            self._refusals.append(f"broker {source}: {error.message or error.code.name}")
            self._candidates.remove(source)
            self._ask()
        except StorageError as error:
            self._end(error)

    def _store_fetched(self, source: int, records: memoryview) -> None:
        """Store the fetched batches of the gap. Raises `ApiError` if this replica lacks them, `StorageError`."""
        gap, spool = self._gaps[self._number], self._spool
        assert spool is not None
        size, is_over = 0, False
        cursor, floor = self._cursor, self._floor
        for header in _whole(records):
            if header.base_offset >= gap.next_offset:
                is_over = True
                break
            self._check(header, cursor, floor, gap)
            size += header.size
            cursor = floor = header.next_offset
        compacted = self.log.config.compacted
        if not is_over and not size:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"it gives nothing for offset {cursor}")
        if is_over and cursor < gap.next_offset and not compacted:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"it has no offset {cursor} either")
        if size:
            start = spool.append(records[:size])
            self._pieces.append(BatchRange(start, start + size, True))
            self._sources.append(source)
        self._cursor, self._floor = cursor, floor
        if is_over or cursor >= gap.next_offset:
            self._filled(gap)
        else:
            self._ask()

    def _check(self, header: BatchHeader, cursor: Offset, floor: Offset, gap: Gap) -> None:
        epoch = self.log.epochs.epoch_at(header.base_offset)
        if epoch >= 0 and header.leader_epoch != epoch:
            text = f"its batch at offset {header.base_offset} is of leader epoch {header.leader_epoch}, not {epoch}"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, text)
        fits = floor <= header.base_offset and cursor < header.next_offset and header.next_offset <= gap.next_offset
        if not fits or (header.base_offset > cursor and not self.log.config.compacted):
            text = f"a batch of offsets {header.base_offset} to {header.last_offset}, where {cursor} is missing"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, text)

    def _filled(self, gap: Gap) -> None:
        self._number += 1
        if self._number == len(self._gaps):
            self._add_own(gap.end, self.segment.size)
            self._rebuild()
            return
        following = self._gaps[self._number]
        self._add_own(gap.end, following.position)
        self._cursor = self._floor = following.first_offset
        self._candidates, self._refusals = self._others(), []
        self._ask()

    def _add_own(self, start: int, end: int) -> None:
        if end > start:
            self._pieces.append(BatchRange(start, end, False))

    # --- the exchange

    def _rebuild(self) -> None:
        log, segment, repairs = self.log, self.segment, self._repairs
        home = repairs.home_of(log.topic_partition)
        segments = log.segments
        number = next((at for at, each in enumerate(segments[:-1]) if each is segment), -1)
        next_offset = segments[number + 1].base_offset if number >= 0 else log.log_start_offset
        if home is None or next_offset <= log.log_start_offset:
            self._end(None)  # retention or a truncation has removed it, or nothing in it is needed
            return
        assert self._spool is not None
        try:
            if not self._pieces:  # compaction has removed all of it elsewhere
                end = EMPTY_HEADER._replace(
                    base_offset=segment.base_offset,
                    last_offset_delta=next_offset - segment.base_offset - 1,
                    leader_epoch=max(0, log.epochs.epoch_at(segment.base_offset)),
                )
                start = self._spool.append(make_empty_batch(end))
                self._pieces.append(BatchRange(start, self._spool.size, True))
            aborted, _ = segment.aborted.between(0, NO_BOUND)
            work = SegmentRebuild(
                log.folder,
                segment,
                next_offset=next_offset,
                pieces=self._pieces,
                fetched=self._spool,
                aborted=aborted,
                index_interval_bytes=log.config.index_interval_bytes,
            )
        except (StorageError, CorruptIndex) as error:
            self._end(error)
            return
        self._run = CleaningRun(
            log,
            work,
            home=home,
            scheduler=repairs.scheduler,
            clock=repairs.clock,
            throttler=Throttler(repairs.clock, lambda: float("inf"), lambda: 0),
            replaced=self._delete_later,
            ended=self._run_ended,
        )
        self._run.start()

    def _run_ended(self, run: CleaningRun, ended: CleaningResult) -> None:  # noqa: ARG002
        self._end(ended.error, ended.stats)

    def _delete_later(self, replaced: Sequence[LogSegment]) -> None:
        log, repairs = self.log, self._repairs

        def delete() -> None:
            for segment in replaced:
                segment.delete()

        def done(outcome: Outcome[None]) -> None:
            if outcome.error is not None and not log.closed:
                repairs.report(f"{log.topic_partition}: a damaged segment could not be removed: {outcome.error}")

        def due() -> None:
            if not log.closed:  # what is left over goes at the next start
                repairs.scheduler.offload(delete, done)

        repairs.scheduler.call_later(log.config.file_delete_delay_ms, due)

    def _end(self, error: BaseException | str | None, stats: RebuildStats | None = None) -> None:
        spool, self._spool = self._spool, None
        if spool is not None:
            spool.close()
            if not self.log.closed:
                try:
                    self.log.folder.delete(self._spool_name)
                except StorageError as failed:
                    error = error or failed
        self._repairs.ended(self, error, stats)


def _records_in(result: Any) -> memoryview:
    """Return the records of a fetch response. Raises `ApiError`."""
    if not isinstance(result, FetchResult):
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, str(result))
    partition: FetchResultPartition | None = result.partitions[0] if result.partitions else None
    if result.error is not ErrorCode.NONE or partition is None:
        raise ApiError(result.error, result.error.name)
    if partition.error is not ErrorCode.NONE:
        raise ApiError(partition.error, partition.error.name)
    return records_of(partition)


def _whole(records: memoryview) -> list[BatchHeader]:
    """Return the headers of the complete, intact batches, up to the first that is neither.

    Raises `ApiError` CORRUPT_MESSAGE where the first one is damaged.
    """
    headers: list[BatchHeader] = []
    position = 0
    while position + HEADER_SIZE <= len(records):
        try:
            header = parse_header(records, position)
            if position + header.size > len(records):
                break
            if not is_crc_valid(records, header, position):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"its batch at offset {header.base_offset} is damaged, too")
        except ApiError:
            if headers:
                break
            raise
        headers.append(header)
        position += header.size
    return headers
