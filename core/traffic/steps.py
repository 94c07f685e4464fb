"""Long work on the owner thread, a little at a time, with everybody else in between.

Such work is a generator. It yields None wherever others may have their turn, or a callable, which is done on a worker;
what that returns or raises comes back from the `yield`. What it looks at between two yields may be another one after:
it copies what it goes through, and looks again.
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
"""What most work needs less than is done within the call."""
_AT_ONCE_SHARE = 0.25
_WINDOW_MS = 20.0
_SLICE_MS = 1.0
_TURN_MS = 3.0
_ACTIVE_MAX = 8
"""So many take turns, the others wait: what is half done takes memory."""


def complete(steps: Steps[T]) -> T:
    """Do all of it here and now, the workers' part too."""
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
        """Of the work that it waited for."""
        self.dropped = False


class StepRunner:
    """Does such work for all who have some, in turns. Owner thread only.

    One piece of work is on a worker at a time: others need the workers, too. `report` is told of a `done` that raised.
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
        """How many are not done."""
        queued = len(self._fresh) + len(self._active) + len(self._waiting)
        return queued + len(self._for_workers) + self._worker_busy

    def run(self, steps: Steps[T], done: Callable[[Outcome[T]], None], owner: Hashable = None) -> None:
        """Begin the work, and end it at once if it is short; `done` gets what it returns or raises, now or later.

        `owner`: on whose behalf, for `drop`.
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
        """The work of this owner is not wanted any more; its `done` is not called."""
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
            if fresh:  # what is short is done here, however much that is long waits
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
        """Go on with it for a while; True if more is to be done here."""
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
        except Exception as error:  # noqa: BLE001  reported; the others go on
            self._report(error)
