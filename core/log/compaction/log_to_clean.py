"""The choice of logs to clean by their dirty ratio (Kafka: LogToClean), and the plan of a cleaning."""

from itertools import pairwise

from ....ports.types import Offset, Position
from ....ports.values import frozen
from ...message.codec import Codecs
from ..config import LONG_MAX
from ..partition_log.unified_log import UnifiedLog
from ..producers.producer_state import NO_OFFSET
from ..retention import RecordPolicy
from ..segment.offset_index import OFFSET_ENTRY, TIME_ENTRY
from ..segment.segment import NO_TIMESTAMP, Segment
from .cleaning_job import SLOT_BYTES, CleanerSettings, CleaningJob, SourceSegment


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
