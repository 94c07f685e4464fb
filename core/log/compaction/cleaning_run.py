"""One running cleaning: slices on a worker, and segment replacements on the owner thread between them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....ports.clock import Clock
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.storage import StorageError
from ..log_format import LogSegment
from ..manager.data_folder import DataFolder
from ..partition_log.replacement import Replacement, SegmentRewrite, SegmentsChanged
from ..partition_log.unified_log import UnifiedLog
from ..segment.damage import NO_BOUND
from .throttler import Throttler

_SLICE_MS = 2.0
"""Duration of a slice on a worker; longer ones would hold the interpreter lock against the owner thread."""


class CleaningResult(NamedTuple):
    """`stats` of a completed cleaning, or the `error` that ended it; neither if it was aborted or the log is
    deleted."""

    stats: Any
    error: BaseException | None
    took_ms: float


class CleaningRun:
    """Runs one cleaning. Owner thread only. Call `start` once; `ended` is called once, when no worker runs it."""

    def __init__(
        self,
        log: UnifiedLog,
        work: SegmentRewrite,
        *,
        home: DataFolder,
        scheduler: Scheduler,
        clock: Clock,
        throttler: Throttler,
        replaced: Callable[[Sequence[LogSegment]], None],
        ended: Callable[["CleaningRun", CleaningResult], None],
    ) -> None:
        """`replaced` receives the segments to delete."""
        self.log = log
        self._home = home
        self._scheduler = scheduler
        self._clock = clock
        self._throttler = throttler
        self._replaced = replaced
        self._ended = ended
        self.work = work
        self._steps = work.steps()
        self._began_ms = clock.monotonic_ms()
        self._stopping = False
        self._resting: Timer | None = None

    def start(self) -> None:
        """Start; first remove the log from the checkpoint, which must not list segments that are about to be
        deleted."""
        log, home = self.log, self._home
        home.cleaned_to[log.topic_partition] = min(
            home.cleaned_to.get(log.topic_partition, 0), log.replacer.truncated_to
        )
        log.replacer.truncated_to = NO_BOUND
        home.in_replacement.add(log.topic_partition)
        home.write_files_later(self._scheduler, "offsets", home.checkpoint_contents, self._run_slice)

    def stop(self) -> None:
        """Abort now, or after the current slice."""
        self._stopping = True
        if self._resting is not None:
            self._resting.cancel()
            self._run_slice()

    def _run_slice(self) -> None:
        self._resting = None
        if self._stopping or self.log.closed:
            self._give_up(None)
            return
        upto_bytes = self.work.bytes_moved + self._throttler.begin_slice()
        self._scheduler.offload(lambda: self._slice(upto_bytes), self._sliced)

    def _slice(self, upto_bytes: float) -> Replacement | bool:
        """Run a slice on a worker; return True at the end of the work."""
        now_ms, work = self._clock.monotonic_ms, self.work
        until_ms = now_ms() + _SLICE_MS
        for step in self._steps:
            if step is not None:
                return step
            if now_ms() >= until_ms or work.bytes_moved >= upto_bytes:
                return False
        return True

    def _sliced(self, outcome: Outcome[Replacement | bool]) -> None:
        if outcome.error is not None:
            self._give_up(outcome.error)
        elif outcome.value is True:
            self._end(CleaningResult(self.work.stats, None, self._took_ms()))
        elif isinstance(outcome.value, Replacement):
            self._exchange(outcome.value)
        else:
            self._rest()

    def _rest(self) -> None:
        self._resting = self._scheduler.call_later(self._throttler.pause_ms(self.work.bytes_moved), self._run_slice)

    def _took_ms(self) -> float:
        return self._clock.monotonic_ms() - self._began_ms

    # --- replacement of segments

    def _exchange(self, swap: Replacement) -> None:
        try:
            self.log.replacer.begin_replacement(swap)
        except (StorageError, SegmentsChanged) as error:
            self._give_up(error)
            return
        self._flush_folder(self._end_swap)

    def _end_swap(self) -> None:
        try:
            replaced = self.log.replacer.end_replacement(self._clock.now_ms())
        except SegmentsChanged as error:
            self._give_up(error)
            return
        except StorageError as error:
            self._home.fail(error)
            self._give_up(error)
            return
        self._replaced(replaced)
        self._flush_folder(self._rest)

    def _flush_folder(self, then: Callable[[], None]) -> None:
        def done(outcome: Outcome[None]) -> None:
            if outcome.error is not None or self.log.closed:
                self._give_up(outcome.error)
            else:
                then()

        self._scheduler.offload(self.work.folder.flush, done)

    # --- the end

    def _give_up(self, error: BaseException | None) -> None:
        """Abort: completed replacements stay, the unfinished segment is deleted."""
        if self.log.closed:
            self._end(CleaningResult(None, None, self._took_ms()))
            return
        try:
            self.log.replacer.drop()
            self.work.abandon()
        except StorageError as failed:
            error = error or failed  # what is left over goes at the next start
        changed = isinstance(error, SegmentsChanged)
        self._end(CleaningResult(None, None if changed else error, self._took_ms()))

    def _end(self, ended: CleaningResult) -> None:
        partition = self.log.topic_partition
        self._home.in_replacement.discard(partition)
        cleaned_to = self.work.cleaned_to if ended.stats is not None else None
        if cleaned_to is not None and not self.log.closed:
            self._home.cleaned_to[partition] = cleaned_to
            self._home.write_files_later(self._scheduler, "offsets", self._home.checkpoint_contents)
        self._ended(self, ended)
