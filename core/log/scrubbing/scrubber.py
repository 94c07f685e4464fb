"""Reads closed segments in the background and verifies their checksums, to find bit rot before a reader does.

Kafka has no such task. A segment is read once in `log.scrub.interval.ms`, at a limited rate, and requests have priority
(docs/design/recovery.md, 'Repair from replicas').
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from ....ports.clock import Clock
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.storage import Region, StorageError
from ....ports.types import Offset, Position, TopicPartition
from ....ports.values import frozen
from ...message.batch_header import BatchHeader
from ..compaction.throttler import Throttler
from ..formats.registry import BATCHES
from ..leader_epoch_cache import LeaderEpochCache
from ..manager.data_folder import DataFolder
from ..partition_log.unified_log import UnifiedLog
from ..segment.damage import Gap, walk
from ..segment.offset_index import CorruptIndex
from ..segment.segment import Segment

_FIRST_MS = 60_000.0
"""After a start, unless `log.scrub.interval.ms` is shorter."""
_SLICE_MS = 2.0
_URGENT_RATE = 64.0 * 1024 * 1024
"""Bytes per second of a check for which a repair waits."""
_AGAIN_MS = 10_000.0
"""Minimum time between two checks of a suspected segment."""
_SUSPICIONS_MAX = 1_000
_PART_BYTES = 4 << 20
"""Size of the checked part of an active segment, from the position of a failed read on."""

OnDamage = Callable[[UnifiedLog, Segment, Sequence[Gap]], None]


@frozen(kw_only=True)
class ScrubSettings:
    """The keys log.scrub.*, as they are now."""

    interval_ms: int
    bytes_per_second: float
    """0: only segments are read on which a reader failed."""


WRONG_EPOCH = "the leader epoch is not that of the log"
"""The leader epoch is not covered by the checksum. Records are readable, but followers would see a wrong leader."""


class ScrubMetrics:
    """Statistics since the start."""

    def __init__(self) -> None:
        self.segments = self.bytes = 0
        self.damaged = 0
        """Number of segments with damage."""


class _Check:
    """The check of one segment on a worker; of the active one a part, from `start` on."""

    def __init__(
        self,
        log: UnifiedLog,
        segment: Segment,
        region: Region,
        next_offset: Offset,
        *,
        urgent: bool,
        start: Position | None = None,
    ) -> None:
        self.log = log
        self.segment = segment
        self.urgent = urgent
        self.is_part = start is not None
        self.gaps: list[Gap] = []
        self.bytes_read = 0
        self._start = start or Position(0)
        self._epochs = LeaderEpochCache(log.epochs.entries)
        self._walk = walk(
            region,
            self._start,
            Position(region.size),
            expected=None if start else segment.base_offset,
            below=next_offset,
            check_crc=True,
        )

    def steps(self) -> Iterator[None]:
        """Check one batch per step. Raises `StorageError`."""
        for item in self._walk:
            if isinstance(item, Gap):
                self.gaps.append(item)
                end = item.end
            else:
                end = Position(item[0] + item[1].size)
                self._check_epoch(item[0], end, item[1])
            self.bytes_read = end - self._start
            yield None
            if self.is_part and (self.gaps or self.bytes_read >= _PART_BYTES):
                return

    def _check_epoch(self, position: Position, end: Position, header: BatchHeader) -> None:
        known = self._epochs.epoch_at(header.base_offset)
        if known >= 0 and header.leader_epoch >= 0 and header.leader_epoch != known:
            first, after = header.base_offset, header.next_offset
            gap = Gap(position=position, end=end, first_offset=first, next_offset=after, reason=WRONG_EPOCH)
            self.gaps.append(gap)


class LogScrubber:
    """Owner thread only. `start` begins, `stop` ends it.

    on_damage: called for damage in a closed segment, each time that it is found.
    failed:    called for a log that cannot be read.
    """

    def __init__(
        self,
        homes: Mapping[TopicPartition, DataFolder],
        *,
        settings: Callable[[], ScrubSettings],
        clock: Clock,
        scheduler: Scheduler,
        served: Callable[[], int],
        on_damage: OnDamage,
        failed: Callable[[UnifiedLog, StorageError], None],
    ) -> None:
        """`served` counts the requests of clients, which have priority over the checks."""
        self._homes = homes
        self._settings = settings
        self._clock = clock
        self._scheduler = scheduler
        self._on_damage = on_damage
        self._failed = failed
        self.figures = ScrubMetrics()
        self._throttler = Throttler(clock, self._rate, served)
        self._moved = 0
        self._urgent: deque[tuple[UnifiedLog, Segment, int]] = deque()
        self._pass: deque[tuple[UnifiedLog, Segment]] = deque()
        self._pass_began_ms = float("-inf")
        self._suspected_ms: dict[Segment, float] = {}
        self._known: set[Segment] = set()
        """Damaged segments that are counted."""
        self._running: _Check | None = None
        self._timer: Timer | None = None
        self._closed = False
        self._stopped: Callable[[], None] | None = None

    def start(self) -> None:
        """Start the periodic checks."""
        self._wake_in(self._pause_ms(self._settings()))

    def stop(self, done: Callable[[], None]) -> None:
        """Abort, and call `done` when no worker runs a check."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._running is None:
            done()
        else:
            self._stopped = done

    def suspect(self, log: UnifiedLog, offset: int) -> None:
        """Check the segment of this offset soon, on which a reader failed, unless it was checked recently.

        A damaged active segment is rolled, since only closed segments can be rebuilt.
        """
        segment = _segment_of(log, offset)
        if segment is None:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._suspected_ms.get(segment, float("-inf")) >= _AGAIN_MS:
            if len(self._suspected_ms) >= _SUSPICIONS_MAX:
                self._suspected_ms.clear()
            self._suspected_ms[segment] = now_ms
            self.check_soon(log, offset)

    def check_soon(self, log: UnifiedLog, offset: int) -> None:
        """Check the segment that has this offset, before all others."""
        segment = _segment_of(log, offset)
        if segment is not None and not self._closed:
            self._urgent.append((log, segment, offset))
            if self._running is None:
                self._wake_in(0.0)

    # --- within

    def _rate(self) -> float:
        urgent = self._running is not None and self._running.urgent
        return _URGENT_RATE if urgent else max(1.0, self._settings().bytes_per_second)

    def _wake_in(self, delay_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.call_later(delay_ms, self._next)

    def _next(self) -> None:
        """Begin with the next segment, or wait until there is one."""
        self._timer = None
        if self._closed or self._running is not None:
            return
        settings = self._settings()
        if self._urgent:
            log, segment, offset = self._urgent.popleft()
            if log.closed:  # deleted or moved since then
                self._wake_in(0.0)
            elif segment is log.segments[-1]:
                self._begin_part(log, segment, offset)
            else:
                self._begin(log, segment, urgent=True)
            return
        if settings.bytes_per_second <= 0:
            self._pass.clear()
            self._wake_in(self._pause_ms(settings))
            return
        now_ms = self._clock.monotonic_ms()
        if not self._pass:
            due_ms = self._pass_began_ms + settings.interval_ms
            if now_ms < due_ms:
                self._wake_in(min(due_ms - now_ms, self._pause_ms(settings)))
                return
            self._pass_began_ms = now_ms
            self._pass.extend(self._closed_segments())
            self._known &= {segment for _, segment in self._pass}
        if self._pass:
            self._begin(*self._pass.popleft(), urgent=False)
        else:
            self._wake_in(self._pause_ms(settings))

    @staticmethod
    def _pause_ms(settings: ScrubSettings) -> float:
        """Until it looks again if there is something to do."""
        return min(_FIRST_MS, settings.interval_ms)

    def _closed_segments(self) -> Iterator[tuple[UnifiedLog, Segment]]:
        for partition, home in list(self._homes.items()):
            log = home.logs.get(partition)
            if log is not None and log.format_name == BATCHES and log.failure is None:
                for segment in log.segments[:-1]:
                    assert isinstance(segment, Segment)
                    yield log, segment

    def _begin(self, log: UnifiedLog, segment: Segment, *, urgent: bool) -> None:
        segments = log.segments
        number = next((at for at, each in enumerate(segments[:-1]) if each is segment), -1)
        if log.closed or number < 0:
            self._wake_in(0.0)
            return
        try:
            region = segment.region(Position(0), segment.size)
        except StorageError as error:
            self._failed(log, error)
            self._wake_in(0.0)
            return
        check = self._running = _Check(log, segment, region, segments[number + 1].base_offset, urgent=urgent)
        self._run_slice(check, check.steps())

    def _begin_part(self, log: UnifiedLog, segment: Segment, offset: int) -> None:
        try:
            start = segment.position_before(Offset(offset), 1)
            region = segment.region(Position(0), segment.size)
        except CorruptIndex:
            self._wake_in(0.0)  # the next look-up makes the index again
            return
        except StorageError as error:
            self._failed(log, error)
            self._wake_in(0.0)
            return
        check = self._running = _Check(log, segment, region, log.log_end_offset, urgent=True, start=start)
        self._run_slice(check, check.steps())

    def _run_slice(self, check: _Check, steps: Iterator[None]) -> None:
        if self._closed:
            self._ended(check)
            return
        upto_bytes = check.bytes_read + self._throttler.begin_slice()
        now_ms = self._clock.monotonic_ms

        def slice_of_it() -> bool:
            """On a worker: True when all is done."""
            until_ms = now_ms() + _SLICE_MS
            return all(now_ms() < until_ms and check.bytes_read < upto_bytes for _ in steps)

        before = check.bytes_read

        def done(outcome: Outcome[bool]) -> None:
            self._moved += check.bytes_read - before
            self.figures.bytes += check.bytes_read - before
            if isinstance(outcome.error, StorageError) and not check.log.closed:
                self._failed(check.log, outcome.error)
            if outcome.error is not None or self._closed or check.log.closed:
                self._ended(check)
            elif outcome.value:
                self._checked(check)
            else:
                self._scheduler.call_later(self._throttler.pause_ms(self._moved), lambda: self._run_slice(check, steps))

        self._scheduler.offload(slice_of_it, done)

    def _checked(self, check: _Check) -> None:
        log, segment = check.log, check.segment
        if check.is_part:
            self._checked_part(check)
            return
        self.figures.segments += 1
        still_there = any(each is segment for each in log.segments[:-1])
        if check.gaps and still_there:
            for gap in check.gaps:
                if gap.reason is not WRONG_EPOCH:
                    segment.add_gap(gap)
            if segment not in self._known:
                self._known.add(segment)
                self.figures.damaged += 1
            self._on_damage(log, segment, tuple(check.gaps))
        self._ended(check)

    def _checked_part(self, check: _Check) -> None:
        log, segment = check.log, check.segment
        if check.gaps:
            try:
                if segment is log.segments[-1]:
                    log.roll(self._clock.now_ms())
                self._urgent.append((log, segment, segment.base_offset))
            except StorageError as error:
                self._failed(log, error)
        self._ended(check)

    def _ended(self, check: _Check) -> None:
        urgent, self._running = check.urgent, None
        if self._closed:
            if self._stopped is not None:
                self._stopped()
        else:
            self._wake_in(0.0 if urgent else self._throttler.pause_ms(self._moved))


def _segment_of(log: UnifiedLog, offset: int) -> Segment | None:
    """Return the segment with the offset."""
    if log.format_name != BATCHES or offset >= log.log_end_offset:
        return None
    found: Segment | None = None
    for segment in log.segments:
        if segment.base_offset > offset:
            break
        assert isinstance(segment, Segment)
        found = segment
    return found
