"""Background compaction of logs, the dirtiest first (Kafka: LogCleaner)."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress, pairwise

from attrs import evolve

from ....ports.clock import Clock
from ....ports.entropy import Entropy
from ....ports.report import Line, counted, info
from ....ports.report import error as failure
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.storage import StorageError
from ....ports.types import Buffer, Offset, Position, TopicPartition
from ....ports.values import frozen
from ...message.batch_header import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    BatchHeader,
    parse_header,
)
from ...message.batch_reader import decode_batch
from ...message.batch_writer import LONG_MIN, assemble_batch, make_empty_batch
from ...message.codec import Codec, Codecs
from ...message.record_scan import ScannedRecords
from ...message.varint import encode_varint, read_raw, undo_zigzag
from ..config import LONG_MAX, LogConfig
from ..formats.registry import BATCHES
from ..log_format import LogSegment
from ..manager.data_folder import DataFolder
from ..manager.log_lines import in_units
from ..names import CLEANED_SUFFIX
from ..partition_log.replacement import Replacement
from ..partition_log.unified_log import UnifiedLog
from ..producers.producer_state import NO_OFFSET
from ..retention import LOOK_AGAIN_MS, RecordPolicy, record_policy
from ..segment.offset_index import OFFSET_ENTRY, TIME_ENTRY
from ..segment.segment import INT_MAX, NO_TIMESTAMP, Segment, SegmentFiles
from .cleaned_transactions import CleanedTransactions
from .cleaning_job import SLOT_BYTES, CannotClean, CleanerSettings, CleaningJob, SourceSegment, read_chunks
from .cleaning_run import CleaningResult, CleaningRun
from .offset_map import HAS_NULLS, LATEST, OffsetMapBuilder, read_marker_at, unpack_records
from .suffixed_folder import SuffixedFolder
from .throttler import Throttler

DecidedTo = Callable[[TopicPartition], "Offset | None"]


# The choice of logs to clean by their dirty ratio (Kafka: LogToClean), and the plan of a cleaning.


@frozen(kw_only=True)
class LogToClean:
    """The clean and cleanable parts of a compacted log."""

    log: UnifiedLog
    first_dirty: Offset
    upto: Offset
    """First uncleanable offset: the base offset of the first segment that must not be cleaned yet."""
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """Time by which the oldest dirty message exceeds max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        """Return the cleanable ratio: cleanable bytes of all bytes up to `upto`."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def due(self) -> bool:
        config = self.log.config
        return self.cleanable_bytes > 0 and (self.ratio > config.min_cleanable_dirty_ratio or self.overdue_ms > 0)


def measure_log(log: UnifiedLog, cleaned_to: Offset, decided_to: Offset, now_ms: int) -> LogToClean:
    """Measure the parts of a log. `cleaned_to` comes from the checkpoint; messages from `decided_to` on may still be
    truncated or aborted (high watermark, open transactions). Raises `StorageError`, `ApiError`."""
    segments = [segment for segment in log.segments if isinstance(segment, Segment)]
    config, start = log.config, log.log_start_offset
    first_dirty = cleaned_to if start <= cleaned_to <= log.log_end_offset else start
    undecided = log.transactions.first_undecided_on_disk  # old records stay until the marker is durable
    bound = min(decided_to, log.recovery_point, LONG_MAX if undecided is None else undecided)
    lag = config.min_compaction_lag_ms
    upto, oldest = segments[-1].base_offset, LONG_MAX
    clean = cleanable = 0
    for segment, following in pairwise(segments):
        next_base, dirty = following.base_offset, following.base_offset > first_dirty
        if next_base > bound or (lag > 0 and dirty and _newest(segment) > now_ms - lag):
            upto = segment.base_offset
            break
        if dirty:
            cleanable += segment.size
            first = segment.first_timestamp if config.max_compaction_lag_ms < LONG_MAX else NO_TIMESTAMP
            oldest = min(oldest, first) if first > 0 else oldest
        else:
            clean += segment.size
    overdue = now_ms - oldest - config.max_compaction_lag_ms if oldest < LONG_MAX else 0
    return LogToClean(
        log=log,
        first_dirty=min(first_dirty, upto),
        upto=upto,
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        overdue_ms=max(0, overdue),
    )


def _newest(segment: Segment) -> int:
    """Return the largest timestamp, or the modification time without timestamps."""
    largest = segment.largest_timestamp
    return largest if largest > 0 else segment.modified_ms


_CHUNK_BYTES_MIN = 65_536
_MAP_BYTES_MIN = 64 * SLOT_BYTES


def plan_cleaning(
    log_to_clean: LogToClean,
    settings: CleanerSettings,
    *,
    now_ms: int,
    codecs: Codecs,
    secret: bytes,
    policy: RecordPolicy | None = None,
) -> CleaningJob:
    """Plan the cleaning of a log. Owner thread only. Raises `StorageError`."""
    log, threads = log_to_clean.log, max(1, settings.threads)
    segments = log.segments
    below = [
        segment for segment in segments if segment.base_offset < log_to_clean.upto and isinstance(segment, Segment)
    ]
    ends = [segment.base_offset for segment in segments[1 : len(below) + 1]]
    producers = log.producers.producers
    return CleaningJob(
        folder=log.folder,
        config=log.config,
        partition=log.topic_partition,
        policy=policy,
        codecs=codecs,
        sources=[_source(segment, end) for segment, end in zip(below, ends, strict=True)],
        first_dirty=log_to_clean.first_dirty,
        upto=log_to_clean.upto,
        now_ms=now_ms,
        aborted=log.transactions.aborted(below[0].base_offset, log_to_clean.upto),
        map_bytes=max(_MAP_BYTES_MIN, settings.dedupe_buffer_bytes // threads),
        load_factor=settings.load_factor,
        chunk_bytes=max(_CHUNK_BYTES_MIN, settings.io_buffer_bytes // threads // 2),
        secret=secret,
        last_of_producers={
            number: (Offset(each.batches[-1].last_offset if each.batches else NO_OFFSET), each.epoch)
            for number, each in producers.items()
        },
    )


def _source(segment: Segment, end: Offset) -> SourceSegment:
    return SourceSegment(
        segment=segment,
        base_offset=segment.base_offset,
        next_offset=end,
        records=segment.region(Position(0), segment.size),
        index_bytes=max(segment.index.count * OFFSET_ENTRY.size, segment.time_index.count * TIME_ENTRY.size),
        modified_ms=segment.modified_ms,
    )


# One cleaning of a log, as steps for a worker: each group of segments is cleaned into a new one (Kafka: Cleaner).
#
# New segments have the suffix .cleaned until they are durable. The log then replaces one group after the other, so
# that messages deleted in a later group cannot reappear before the earlier groups are replaced.


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


# Passes of deletion policies that decide on single messages: their schedule and their filter.


class PolicySchedule:
    """The last pass over each log; the first one is due at once. Owner thread only."""

    def __init__(self) -> None:
        self._next_ms: dict[UnifiedLog, float] = {}

    def due(self, log: UnifiedLog, now_ms: float) -> RecordPolicy | None:
        """Return the policy whose pass over this log is due. `now_ms`: monotonic."""
        policy = record_policy(log.policy) if "delete" in log.config.cleanup_policy else None
        return None if policy is None or now_ms < self._next_ms.get(log, now_ms) else policy

    def begun(self, log: UnifiedLog, policy: RecordPolicy, now_ms: float) -> None:
        self._next_ms = {each: next_ms for each, next_ms in self._next_ms.items() if not each.closed}
        self._next_ms[log] = now_ms + getattr(policy, "look_again_ms", LOOK_AGAIN_MS)


# The second pass of a cleaning: the filter of each batch (Kafka: RecordFilter).


def retain_records(
    header: BatchHeader,
    data: bytes,
    start: int,
    records: ScannedRecords,
    keep: Sequence[int],
    *,
    codec: Codec | None,
    horizon_ms: int | None = None,
) -> bytearray:
    """Return the batch with the retained records, of which there is at least one.

    keep:        1 for each retained record, else 0.
    data, start: the decompressed records and their start position; `records` is the result of `scan_records`.
    codec:       the codec of the batch.
    horizon_ms:  the delete horizon of its tombstones, stored as base timestamp (KIP-534).
    """
    base, attributes = header.base_timestamp, header.attributes & ~CODEC_MASK
    bounds = zip([start, *records.ends], records.ends, strict=False)
    times = [undo_zigzag(raw) for raw in compress(records.timestamp_deltas, keep)]
    if horizon_ms is not None and base + min(times) - horizon_ms >= LONG_MIN:
        moved = [base + time - horizon_ms for time in times]
        pieces = [
            _with_timestamp_delta(data, *bound, to) for bound, to in zip(compress(bounds, keep), moved, strict=True)
        ]
        base, attributes, times = horizon_ms, attributes | DELETE_HORIZON_BIT, moved
    else:
        pieces = [data[begin:end] for begin, end in compress(bounds, keep)]
    return assemble_batch(
        b"".join(pieces),
        count=len(pieces),
        codec=codec,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        attributes=attributes,
        base_timestamp=base,
        max_timestamp=header.max_timestamp if header.log_append_time else base + max(times),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
    )


def _with_timestamp_delta(data: bytes, start: int, end: int, delta: int) -> bytes:
    """Return the record with another timestamp delta."""
    _, position = read_raw(data, start)
    rest = position + 1
    while data[rest] > 0x7F:
        rest += 1
    body = b"%b%b%b" % (data[position : position + 1], encode_varint(delta), data[rest + 1 : end])
    return encode_varint(len(body)) + body


class BatchFilter:
    """Filters every batch of a log, in order, from the first segment on."""

    def __init__(self, order: CleaningJob, survivors: OffsetMapBuilder) -> None:
        self._order = order
        self._survivors = survivors
        self.transactions = CleanedTransactions(order.aborted, order.sources[0].base_offset)
        self._horizon_ms = order.now_ms + order.config.delete_retention_ms
        self.messages_read = self.messages_retained = 0

    def keep(self, data: bytes, at: int, header: BatchHeader) -> Buffer | None:
        """Return the batch itself, a batch with the retained records or without records, or None to drop it.

        Raises `CannotClean`.
        """
        self.messages_read += header.count
        retained = self._marker(data, at, header) if header.control else self._records(data, at, header)
        return make_empty_batch(header) if retained is None and self._is_last_of_producer(header) else retained

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last, epoch = self._order.last_of_producers.get(header.producer_id, (NO_OFFSET, NO_OFFSET))
        if last == NO_OFFSET:
            return header.control and header.producer_epoch == epoch
        return header.last_offset == last

    def _marker(self, data: bytes, at: int, header: BatchHeader) -> Buffer | None:
        itself = data[at : at + header.size]
        if not self.transactions.is_marker_empty(header, read_marker_at(data, at, header)):
            return itself
        if header.attributes & DELETE_HORIZON_BIT:
            return None if self._order.now_ms >= header.base_timestamp else itself
        body, begin, records = unpack_records(data, at, header, self._order.codecs)
        return retain_records(header, body, begin, records, [1], codec=None, horizon_ms=self._horizon_ms)

    def _records(self, data: bytes, at: int, header: BatchHeader) -> Buffer | None:
        if self.transactions.aborts(header) or not header.count:
            return None
        if header.base_offset >= self._survivors.end:
            return self._all(data, at, header)
        marks = self._survivors.marks_of(header)
        if marks is not None:
            alive = marks.count(LATEST) + marks.count(LATEST | HAS_NULLS)
            if not alive:
                return None
            if alive == header.count and not marks[0] & HAS_NULLS:
                return self._all(data, at, header)
        body, begin, records = unpack_records(data, at, header, self._order.codecs)
        keep = self._latest(header, records) if marks is None else [marks[d] & LATEST for d in records.offset_deltas]
        nulls = self._retains_tombstones(header, records, keep)
        left = sum(keep)
        self.messages_retained += left
        horizon = self._horizon_ms if nulls and not header.attributes & DELETE_HORIZON_BIT else None
        if not left:
            return None
        if left == header.count and horizon is None:
            return data[at : at + header.size]
        codec = self._order.codecs.by_id(header.codec_id) if header.codec_id else None
        return retain_records(header, body, begin, records, keep, codec=codec, horizon_ms=horizon)

    def _all(self, data: bytes, at: int, header: BatchHeader) -> bytes:
        self.messages_retained += header.count
        return data[at : at + header.size]

    def _latest(self, header: BatchHeader, records: ScannedRecords) -> list[int]:
        """Return 1 for each record that is the last of its key, else 0; records without a key are dropped."""
        keyed = [key is not None for key in records.keys]
        latest = iter(self._survivors.map.latest(key for key in records.keys if key is not None))
        base = header.base_offset
        offsets = zip(keyed, records.offset_deltas, strict=True)
        return [int(has_key and base + delta >= next(latest)) for has_key, delta in offsets]

    def _retains_tombstones(self, header: BatchHeader, records: ScannedRecords, keep: list[int]) -> bool:
        """Return True if tombstones are retained; expired ones are dropped."""
        expired = header.attributes & DELETE_HORIZON_BIT and self._order.now_ms >= header.base_timestamp
        found = False
        for number in records.nulls:
            if keep[number]:
                found = not expired
                keep[number] = found
        return found


class PolicyFilter(BatchFilter):
    """Filters batches by a deletion policy. Data of aborted transactions is dropped, as in a compaction."""

    def __init__(self, order: CleaningJob, survivors: OffsetMapBuilder, policy: RecordPolicy) -> None:
        super().__init__(order, survivors)
        self._policy = policy

    def _records(self, data: bytes, at: int, header: BatchHeader) -> Buffer | None:
        if self.transactions.aborts(header) or not header.count:
            return None
        keep = self._asked(data, at, header)
        left = sum(keep)
        self.messages_retained += left
        if not left:
            return None
        if left == header.count:
            return data[at : at + header.size]
        codecs = self._order.codecs
        body, begin, records = unpack_records(data, at, header, codecs)
        codec = codecs.by_id(header.codec_id) if header.codec_id else None
        return retain_records(header, body, begin, records, keep, codec=codec)

    def _asked(self, data: bytes, at: int, header: BatchHeader) -> list[int]:
        order, keeps = self._order, self._policy.keeps
        topic, number = order.partition
        batch = memoryview(data)[at : at + header.size]
        messages = decode_batch(batch, order.codecs, topic=topic, partition=number, check_crc=False, header=header)
        try:
            return [1 if keeps(message, now_ms=order.now_ms) else 0 for message in messages]
        except Exception as error:
            text = f"the deletion policy {order.config.deletion_policy!r} failed: {type(error).__name__}: {error}"
            raise CannotClean(text) from error


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
        groups = deque(group_segments(below, order.config))
        while groups:
            yield from self._clean(groups)

    def _clean(self, groups: deque[list[SourceSegment]]) -> Iterator[Replacement | None]:
        """Clean the first group into a new segment, and remove it from `groups`.

        Groups that follow one of which nothing is left join it. Otherwise each of them would leave an empty batch to
        mark its end, and librdkafka reports MSG_SIZE_TOO_LARGE after eleven responses without a record.
        """
        order, group = self.order, groups.popleft()
        made = self._making = Segment.create(
            SuffixedFolder(order.folder, CLEANED_SUFFIX),
            group[0].base_offset,
            now_ms=group[-1].modified_ms,
            index_interval_bytes=order.config.index_interval_bytes,
            report=_silent,
        )
        changed = len(group) > 1 and order.policy is None  # where all messages stay, segments do, too
        last: tuple[BatchHeader, bool] | None = None
        for source in group:  # which may grow
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
            if source is group[-1] and changed and not made.size and groups and _is_in_reach(groups[0][-1], group[0]):
                group += groups.popleft()
                made.modified_ms = group[-1].modified_ms
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


def group_segments(sources: Sequence[SourceSegment], config: LogConfig) -> Iterator[list[SourceSegment]]:
    """Group adjacent segments whose total size fits one segment and its indexes."""
    group: list[SourceSegment] = []
    size = index_bytes = 0
    for source in sources:
        size += source.records.size
        index_bytes += source.index_bytes
        fits = size <= config.segment_bytes and index_bytes <= config.segment_index_bytes
        if group and not (fits and _is_in_reach(source, group[0])):
            yield group
            group, size, index_bytes = [], source.records.size, source.index_bytes
        group.append(source)
    if group:
        yield group


def _is_in_reach(source: SourceSegment, first: SourceSegment) -> bool:
    """Return True if the offset index of a segment that begins with `first` can refer to all records of `source`."""
    return source.next_offset - 1 - first.base_offset <= INT_MAX


def _silent(_: str) -> None:
    """Ignore reports of an unfinished segment; its errors end the cleaning."""


class LogCleaner:
    """Cleans logs in the background. Owner thread only. `start` begins, `stop` ends it.

    homes:      the data folder of each log.
    decided_to: the offset from which messages of a partition may still be truncated or aborted; None if it is unknown,
                and the log is not cleaned.
    """

    def __init__(
        self,
        homes: Mapping[TopicPartition, DataFolder],
        *,
        settings: Callable[[], CleanerSettings],
        decided_to: DecidedTo,
        clock: Clock,
        scheduler: Scheduler,
        codecs: Codecs,
        entropy: Entropy,
        report: Callable[[str], None],
        served: Callable[[], int] = lambda: 0,
    ) -> None:
        """`served` counts the requests of clients, which have priority over cleaning."""
        self._homes = homes
        self._settings = settings
        self._decided_to = decided_to
        self._clock = clock
        self._scheduler = scheduler
        self._codecs = codecs
        self._entropy = entropy
        self._report = report
        self._served = served
        self._running: dict[TopicPartition, CleaningRun] = {}
        self._held: set[TopicPartition] = set()
        self._uncleanable: set[UnifiedLog] = set()
        self._passes = PolicySchedule()
        self.figures = CleanerMetrics(clock.monotonic_ms())
        self._timer: Timer | None = None
        self._stopped: Callable[[], None] | None = None
        self._closed = False

    def start(self) -> None:
        """Begin the periodic check of the logs."""
        self._wait()

    def stop(self, done: Callable[[], None]) -> None:
        """Abort all cleanings, and call `done` when no worker runs one; the logs stay open."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            self._stopped = done
            for run in list(self._running.values()):
                run.stop()
        else:
            done()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.call_later(self._settings().backoff_ms, self._start_cleanings)

    def _start_cleanings(self) -> None:
        """Begin to clean the dirtiest logs, up to the number of cleaner threads."""
        self._wait()
        threads = self._settings().threads
        due = [each for each in self._measure_logs() if each.due]
        for each in sorted(due, key=lambda each: each.ratio, reverse=True):
            if len(self._running) < threads:
                self._begin(each)
        for each, policy in self._passes_due():
            if len(self._running) < threads and each.log.topic_partition not in self._running:
                self._passes.begun(each.log, policy, self._clock.monotonic_ms())
                self._begin(each, policy)

    def _idle(self) -> Iterator[tuple[UnifiedLog, DataFolder, Offset]]:
        """Yield the logs that may be cleaned, with the offset below which their messages are final."""
        for partition, home in list(self._homes.items()):
            log = home.logs.get(partition)
            if log is None or log.format_name != BATCHES or partition in self._running or partition in self._held:
                continue
            if log in self._uncleanable or log.failure is not None or len(log.segments) == 1:
                continue
            decided_to = self._decided_to(partition)
            if decided_to is not None:
                yield log, home, decided_to

    def _passes_due(self) -> list[tuple[LogToClean, RecordPolicy]]:
        """Return all sealed and final messages of logs whose deletion policy decides on single messages."""
        found = []
        for log, _, decided_to in self._idle():
            policy = self._passes.due(log, self._clock.monotonic_ms())
            if policy is not None:
                log_to_clean = self._look_at(log, log.log_start_offset, decided_to)
                if log_to_clean is not None and log_to_clean.upto > log.log_start_offset:
                    found.append((evolve(log_to_clean, first_dirty=log_to_clean.upto), policy))
        return found

    def _look_at(self, log: UnifiedLog, cleaned_to: Offset, decided_to: Offset) -> LogToClean | None:
        try:
            return measure_log(log, cleaned_to, decided_to, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # reported; cleaning continues with the other logs
            self._failed(log, error)
            return None

    def _measure_logs(self) -> list[LogToClean]:
        found = []
        for log, home, decided_to in self._idle():
            if log.config.compacted:
                cleaned_to = Offset(min(home.cleaned_to.get(log.topic_partition, 0), log.replacer.truncated_to))
                log_to_clean = self._look_at(log, cleaned_to, decided_to)
                if log_to_clean is not None:
                    found.append(log_to_clean)
        self.figures.looked(found, self._clock.monotonic_ms())
        return found

    def hold(self, partition: TopicPartition) -> bool:
        """Pause cleaning of this log until `release`; return False while it is being cleaned."""
        if partition in self._running:
            return False
        self._held.add(partition)
        return True

    def release(self, log: UnifiedLog, *, repaired: bool) -> None:
        """Resume cleaning of this log; `repaired` also clears its uncleanable mark."""
        self._held.discard(log.topic_partition)
        if repaired:
            self._uncleanable.discard(log)

    def uncleanable_in(self, home: DataFolder) -> list[UnifiedLog]:
        """Return the uncleanable logs of a data folder."""
        return [log for log in home.logs.values() if log in self._uncleanable]

    def _begin(self, log_to_clean: LogToClean, policy: RecordPolicy | None = None) -> None:
        partition = log_to_clean.log.topic_partition
        home = self._homes[partition]
        try:
            order = plan_cleaning(
                log_to_clean,
                self._settings(),
                now_ms=self._clock.now_ms(),
                codecs=self._codecs,
                secret=self._entropy.token(32),
                policy=policy,
            )
        except StorageError as error:
            self._failed(log_to_clean.log, error)
            return
        cleaning = Cleaner(order)
        run = CleaningRun(
            log_to_clean.log,
            cleaning,
            home=home,
            scheduler=self._scheduler,
            clock=self._clock,
            throttler=Throttler(self._clock, self._rate, self._served),
            replaced=lambda segments: self._delete_later(log_to_clean.log, segments),
            ended=lambda run, ended: self._ended(run, cleaning, ended),
        )
        self._running[partition] = run
        run.start()

    def _rate(self) -> float:
        """Return the rate of one cleaning in bytes per second."""
        settings = self._settings()
        return settings.io_max_bytes_per_second / max(1, settings.threads)

    def _ended(self, run: CleaningRun, cleaning: Cleaner, ended: CleaningResult) -> None:
        log = run.log
        del self._running[log.topic_partition]
        policy = None if cleaning.order.policy is None else cleaning.order.config.deletion_policy
        if ended.error is not None and policy is None:
            self._failed(log, ended.error)
        elif ended.error is not None:
            text = f"deletion.policy={policy} could not look at all messages of {log.topic_partition}: {ended.error}"
            self._report(failure(text, partition=str(log.topic_partition)))
        elif ended.stats is not None and (policy is None or ended.stats.messages_retained < ended.stats.messages_read):
            self._report(cleaned(log.topic_partition, ended.stats, ended.took_ms, policy))
        if ended.stats is not None and policy is None:
            self.figures.cleaned(ended.stats, ended.took_ms)
        if self._closed:
            if self._stopped is not None and not self._running:
                self._stopped()
        elif ended.stats is not None:
            self._scheduler.call_soon(self._start_cleanings)  # there may be more

    def _failed(self, log: UnifiedLog, error: BaseException) -> None:
        """Mark the log as uncleanable until a restart, and report it."""
        if log.closed:
            return
        self._uncleanable = {each for each in self._uncleanable if not each.closed} | {log}
        text = f"{log.topic_partition} cannot be compacted and is left as it is until a restart: {error}"
        self._report(failure(text, partition=str(log.topic_partition)))

    def _delete_later(self, log: UnifiedLog, replaced: Sequence[LogSegment]) -> None:
        def delete() -> None:
            for segment in replaced:
                segment.delete()

        def done(outcome: Outcome[None]) -> None:
            if outcome.error is not None and not log.closed:
                self._report(f"{log.topic_partition}: compacted segments could not be removed: {outcome.error}")

        def due() -> None:
            if not self._closed and not log.closed:  # the next start deletes what remains
                self._scheduler.offload(delete, done)

        self._scheduler.call_later(log.config.file_delete_delay_ms, due)


class CleanerMetrics:
    """Owner thread only."""

    def __init__(self, now_ms: float) -> None:
        self.looked_ms = now_ms
        """Monotonic time of the last check of the logs."""
        self.dirtiest = 0.0
        """The dirty share of the dirtiest log, of 1, as of then."""
        self.overdue_ms = 0
        """The longest time since a message should have been compacted, as of then."""
        self.took_ms = 0.0
        """Duration of the last cleaning, which the next two describe as well."""
        self.recopied = 0.0
        """Bytes written of those read."""
        self.map_utilization = 0.0
        self.bytes_read = self.bytes_removed = 0
        """Totals of all cleanings."""

    def looked(self, logs: list[LogToClean], now_ms: float) -> None:
        self.looked_ms = now_ms
        self.dirtiest = max((each.ratio for each in logs), default=0.0)
        self.overdue_ms = max((each.overdue_ms for each in logs if each.cleanable_bytes), default=0)

    def cleaned(self, stats: CleanerStats, took_ms: float) -> None:
        self.took_ms = took_ms
        self.recopied = stats.bytes_written / stats.bytes_read if stats.bytes_read else 0.0
        self.map_utilization = stats.map_utilization
        self.bytes_read += stats.bytes_read
        self.bytes_removed += max(0, stats.bytes_read - stats.bytes_written)


def cleaned(partition: TopicPartition, stats: CleanerStats, took_ms: float, policy: str | None = None) -> Line:
    """Return the log line of a completed cleaning, or of a pass of the deletion policy `policy`."""
    gone = stats.messages_read - stats.messages_retained
    what = "is compacted" if policy is None else f"was looked at by deletion.policy={policy}"
    text = (
        f"{partition} {what} below offset {stats.next_dirty}: {gone} of {counted(stats.messages_read, 'message')} went"
    )
    text += f", {in_units(stats.bytes_read)} became {in_units(stats.bytes_written)} in {took_ms / 1000:.1f} s"
    return info(
        text,
        partition=str(partition),
        next_dirty=stats.next_dirty,
        messages_read=stats.messages_read,
        messages_kept=stats.messages_retained,
        bytes_read=stats.bytes_read,
        bytes_written=stats.bytes_written,
        took_ms=round(took_ms),
    )
