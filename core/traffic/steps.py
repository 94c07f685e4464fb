"""Long work on the owner thread in short steps, interleaved with other work.

Such work is a generator. It yields None where other work may run, or a callable for a worker, whose result or exception
the `yield` returns. State may change during a yield: the generator copies what it iterates over, and reads state again.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

from ...ports.clock import Clock
from ...ports.scheduler import Outcome, Scheduler

T = TypeVar("T")
Work = Callable[[], Any]
Steps = Generator[Work | None, Any, T]

_AT_ONCE_MS = 0.5
"""Work that takes less time completes inside the call, as most work does."""
_AT_ONCE_SHARE = 0.25
_WINDOW_MS = 20.0
_SLICE_MS = 1.0
_TURN_MS = 3.0
_ACTIVE_MAX = 8
"""Maximum number of jobs that take turns; others wait, since started jobs hold memory."""


def complete(steps: Steps[T]) -> T:
    """Run all steps in this call, also those for workers."""
    try:
        work = next(steps)
        while True:
            if work is None:
                work = next(steps)
            else:
                outcome = Outcome.of(work)
                work = steps.send(outcome.value) if outcome.error is None else steps.throw(outcome.error)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # T by the type of `steps`


class _Job:
    __slots__ = ("done", "dropped", "last", "owner", "steps")

    def __init__(self, steps: Steps[Any], done: Callable[[Outcome[Any]], None], owner: Hashable) -> None:
        self.steps = steps
        self.done = done
        self.owner = owner
        self.last: Outcome[Any] | None = None
        """Outcome of the last worker call."""
        self.dropped = False


class StepRunner:
    """Runs jobs of steps in turns. Owner thread only.

    At most one worker call runs at a time, since others need the workers. `report` gets the exception of a failed
    `done`.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock, report: Callable[[BaseException], None]) -> None:
        self._scheduler = scheduler
        self._now_ms = clock.monotonic_ms
        self._report = report
        self._fresh: deque[_Job] = deque()
        self._active: deque[_Job] = deque()
        self._waiting: deque[_Job] = deque()
        self._for_workers: deque[tuple[_Job, Work]] = deque()
        self._worker_busy = self._turn_asked = False
        self._owned: dict[Hashable, dict[_Job, None]] = {}
        self._window_ms = -_WINDOW_MS
        self._at_once_ms = 0.0

    @property
    def waiting(self) -> int:
        """Number of unfinished jobs."""
        queued = len(self._fresh) + len(self._active) + len(self._waiting)
        return queued + len(self._for_workers) + self._worker_busy

    def run(self, steps: Steps[T], done: Callable[[Outcome[T]], None], owner: Hashable = None) -> None:
        """Start the work, and complete it at once if it is short; `done` gets its outcome, now or later.

        `owner` identifies the work for `cancel_owner`.
        """
        job = _Job(steps, done, owner)
        if owner is not None:
            self._owned.setdefault(owner, {})[job] = None
        now_ms = self._now_ms()
        if now_ms - self._window_ms >= _WINDOW_MS:
            self._window_ms, self._at_once_ms = now_ms, 0.0
        if self._at_once_ms < _AT_ONCE_SHARE * _WINDOW_MS:
            if self._advance(job, now_ms + _AT_ONCE_MS):
                self._queue(job)
            self._at_once_ms += self._now_ms() - now_ms
        else:
            self._fresh.append(job)
            self._ask_turn()

    def cancel_owner(self, owner: Hashable) -> None:
        """Cancel the work of this owner; its `done` is not called."""
        for job in self._owned.pop(owner, ()):
            job.dropped = True

    # --- within

    def _queue(self, job: _Job) -> None:
        (self._active if len(self._active) < _ACTIVE_MAX else self._waiting).append(job)
        self._ask_turn()

    def _ask_turn(self) -> None:
        if not self._turn_asked:
            self._turn_asked = True
            self._scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_asked = False
        active, fresh = self._active, self._fresh
        now_ms = self._now_ms()
        end_ms = now_ms + _TURN_MS
        while (active or fresh) and now_ms < end_ms:
            if fresh:  # short work does not wait for long work
                job = fresh.popleft()
                if self._advance(job, now_ms + _AT_ONCE_MS):
                    self._queue(job)
                now_ms = self._now_ms()
            if active:
                job = active.popleft()
                if self._advance(job, min(end_ms, now_ms + _SLICE_MS)):
                    active.append(job)
                elif self._waiting:
                    active.append(self._waiting.popleft())
                now_ms = self._now_ms()
        if active or fresh:
            self._ask_turn()

    def _advance(self, job: _Job, until_ms: float) -> bool:
        """Run steps of the job until `until_ms`; return True if more steps remain for the owner thread."""
        steps = job.steps
        if job.dropped:
            steps.close()
            return False
        last, job.last = job.last, None
        try:
            if last is None:
                work = next(steps)
            else:
                work = steps.send(last.value) if last.error is None else steps.throw(last.error)
            while work is None:
                if self._now_ms() >= until_ms:
                    return True
                work = next(steps)
            self._for_workers.append((job, work))
            self._next_work()
        except StopIteration as end:
            self._end(job, Outcome(value=end.value))
        except Exception as error:  # noqa: BLE001  handed to `done`
            self._end(job, Outcome(error=error))
        return False

    def _next_work(self) -> None:
        while self._for_workers and not self._worker_busy:
            job, work = self._for_workers.popleft()
            if job.dropped:
                job.steps.close()
                continue
            self._worker_busy = True

            def done(outcome: Outcome[Any], job: _Job = job) -> None:
                self._worker_busy = False
                job.last = outcome
                self._active.append(job)
                self._ask_turn()
                self._next_work()

            try:
                self._scheduler.offload(work, done)
            except BaseException:
                self._worker_busy = False
                raise

    def _end(self, job: _Job, outcome: Outcome[Any]) -> None:
        owned = self._owned.get(job.owner)
        if owned is not None:
            owned.pop(job, None)
            if not owned:
                del self._owned[job.owner]
        try:
            job.done(outcome)
        except Exception as error:  # noqa: BLE001  reported; other jobs continue
            self._report(error)
