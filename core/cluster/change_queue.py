"""Changes of the cluster's metadata, one after the other, without the owner thread waiting for a network.

A change is an `async def` that awaits its calls of the coordination service through `elsewhere`; everything between
them runs on the owner thread. `ChangeQueue` drives it; no event loop is needed.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from ...ports.coordination import BadVersion, Coordination, CoordinationError, NodeExists, NoNode, NotEmpty
from ...ports.errors import BarnabasError, ClosedError
from ...ports.scheduler import Outcome, Scheduler

T = TypeVar("T")
Changing = Coroutine[Any, Any, T]

_REFUSALS = (BadVersion, NodeExists, NoNode, NotEmpty)


class _Elsewhere(Generic[T]):
    """Calls to run side by side (`works`); `result` makes one value of their results."""

    def __init__(
        self, works: Sequence[Callable[[], Any]], result: Callable[[list[Any]], T], *, on_disk: bool = False
    ) -> None:
        self.works = works
        self.result = result
        self.on_disk = on_disk

    def here(self) -> Outcome[T]:
        """Run the calls now, one after the other."""
        return self.outcome([Outcome.of(work) for work in self.works])

    def outcome(self, outcomes: Sequence[Outcome[Any]]) -> Outcome[T]:
        """Return the outcome of all calls: the first error, if there is one."""
        error = next((each.error for each in outcomes if each.error is not None), None)
        if error is not None:
            return Outcome(error=error)
        return Outcome(value=self.result([each.get() for each in outcomes]))

    def __await__(self) -> Generator["_Elsewhere[T]", T, T]:
        return (yield self)


class _Together(_Elsewhere[list[Outcome[T]]]):
    """Calls to run side by side, of which each may fail alone."""

    def __init__(self, works: Sequence[Callable[[], T]]) -> None:
        super().__init__(works, list)

    def outcome(self, outcomes: Sequence[Outcome[Any]]) -> Outcome[list[Outcome[T]]]:
        return Outcome(value=list(outcomes))


class _OthersTurn(_Elsewhere[None]):
    """No call: the change continues on a later turn of the owner thread."""


def elsewhere(work: Callable[[], T]) -> Awaitable[T]:
    """Let the queue run `work`, off the owner thread if the service may block; `await elsewhere(work)` returns or
    raises as `work` does. `work` may block, and must not touch the owner's state."""
    return _Elsewhere([work], _first)


def elsewhere_together(works: Sequence[Callable[[], T]]) -> Awaitable[list[Outcome[T]]]:
    """Run several calls, one at least, as `elsewhere` does; they may run side by side. Returns the outcome of each when
    all have ended."""
    return _Together(works)


def on_disk(work: Callable[[], T]) -> Awaitable[T]:
    """Run work that waits for a disk, as `elsewhere` does; it is offloaded even if the coordination service does not
    block."""
    return _Elsewhere([work], _first, on_disk=True)


def others_turn() -> Awaitable[None]:
    """Let the owner thread do what else has come up, before a change does more of a long work there."""
    return _OthersTurn([], _nothing)


def on_disk_together(works: Sequence[Callable[[], None]]) -> Awaitable[None]:
    """Run several calls, one at least, as `on_disk` does; they may run side by side. All have ended when it returns or
    raises."""
    return _Elsewhere(works, _nothing, on_disk=True)


def _first(results: list[T]) -> T:
    return results[0]


def _nothing(_: list[None]) -> None:
    return None


def complete(change: Changing[T]) -> T:
    """Run a change to its end on this thread, blocking in its calls (at a start, before anything is served)."""
    outcome: Outcome[Any] | None = None
    while True:
        try:
            work = _resumed(change, outcome)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # T by the type of `change`
        outcome = work.here()


def is_unreachable(error: BaseException | None) -> bool:
    """Return True if an error means that the service did not answer, and False if the service refused the call."""
    return isinstance(error, CoordinationError | ClosedError) and not isinstance(error, _REFUSALS)


class _Running:
    """A change in the queue. `outage`: the error with which its further calls fail."""

    def __init__(self, make: Callable[[], Changing[Any]], done: Callable[[Outcome[Any]], None]) -> None:
        self.make = make
        self.done = done
        self.change: Changing[Any] | None = None
        self.outage: BarnabasError | None = None


class ChangeQueue:
    """A queue that makes changes in the order of their arrival, each wholly before the next. Owner thread only.

    With a coordination service that may block, its calls are offloaded. When one of them finds that the service cannot
    be reached, the other calls of that change and of those that wait already fail with the same error: no caller waits
    for more than one timeout. With a service that does not block, everything but `on_disk` and `others_turn` happens
    within `run`.
    """

    def __init__(self, scheduler: Scheduler, coordination: Coordination) -> None:
        self._scheduler = scheduler
        self._coordination = coordination
        self._waiting: deque[_Running] = deque()
        self._busy = False
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Let every unfinished change fail with `ClosedError` at its next call: the broker is about to stop."""
        self._closed = True

    def run(self, make: Callable[[], Changing[T]], done: Callable[[Outcome[T]], None]) -> None:
        """Begin the change that `make` returns when it is its turn; `done` is called with its outcome."""
        self._waiting.append(_Running(make, done))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        self._busy = True
        while self._waiting:
            running = self._waiting[0]
            running.change = running.make()
            if not self._resume(running, None):
                return
        self._busy = False

    def _offloaded(self, running: _Running, outcome: Outcome[Any]) -> None:
        if self._resume(running, outcome):
            self._next()

    def _resume(self, running: _Running, outcome: Outcome[Any] | None) -> bool:
        """Continue a change. False: the rest follows when an offloaded call has ended."""
        assert running.change is not None
        while True:
            try:
                work = _resumed(running.change, outcome)
            except StopIteration as end:
                self._end(running, Outcome(value=end.value))
                return True
            except Exception as error:  # noqa: BLE001  handed to `done`
                self._end(running, Outcome(error=error))
                return True
            if isinstance(work, _OthersTurn):
                with suppress(ClosedError):  # the broker is about to end: there are no others
                    self._scheduler.call_soon(partial(self._offloaded, running, work.here()))
                    return False
                outcome = work.here()
            elif self._closed:
                outcome = Outcome(error=ClosedError("the broker is about to stop"))
            elif running.outage is not None and not work.on_disk:
                outcome = Outcome(error=running.outage)
            elif not self._coordination.blocking and not work.on_disk:
                outcome = work.here()
            elif self._offload(running, work):
                return False
            else:
                outcome = Outcome(error=running.outage)

    def _offload(self, running: _Running, work: _Elsewhere[Any]) -> bool:
        outcomes: dict[int, Outcome[Any]] = {}

        def done(number: int, outcome: Outcome[Any]) -> None:
            outcomes[number] = outcome
            if len(outcomes) < len(work.works):
                return
            in_order = [outcomes[each] for each in sorted(outcomes)]
            error = next((each.error for each in in_order if each.error is not None), None)
            if isinstance(error, BarnabasError) and is_unreachable(error):
                for waiting in self._waiting:
                    waiting.outage = error
            self._offloaded(running, work.outcome(in_order))

        for number, each in enumerate(work.works):
            try:
                self._scheduler.offload(each, partial(done, number))
            except ClosedError as error:  # the broker is about to end
                running.outage = error
                if number == 0:
                    return False
                outcomes.update((left, Outcome(error=error)) for left in range(number, len(work.works)))
                break  # those before it end it
        return True

    def _end(self, running: _Running, outcome: Outcome[Any]) -> None:
        self._waiting.popleft()
        try:
            running.done(outcome)
        except BaseException:
            self._scheduler.call_soon(self._next)  # the other changes continue, whatever a callback raises
            raise


def _resumed(change: Changing[Any], outcome: Outcome[Any] | None) -> _Elsewhere[Any]:
    """Continue a change with the outcome of its previous call, and return its next call."""
    work: _Elsewhere[Any]
    if outcome is None:
        work = change.send(None)
    elif outcome.error is not None:
        work = change.throw(outcome.error)
    else:
        work = change.send(outcome.value)
    return work
