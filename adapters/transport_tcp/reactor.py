"""The one thread that owns the state: sockets, timers and callbacks in one loop."""

import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...ports.errors import ClosedError
from ...ports.scheduler import Outcome
from .polling import READ, WhenReady, make_poller
from .reporting import one_line, to_the_log
from .timers import Callback, HeapTimer, Timers

if TYPE_CHECKING:  # loaded with the first work: it brings 20 modules
    from concurrent.futures import Executor

T = TypeVar("T")

_LENT_TURNS_MAX = 16
"""A thread that takes turns in place of the reactor's own takes at most this many for one piece of work."""
_LAST_TURNS_MAX = 1000
"""A stopping reactor runs callbacks that keep adding callbacks for this many turns, then drops them."""


class HasDescriptor(Protocol):
    """A socket, or something on one."""

    def fileno(self) -> int: ...


class _Abandoned(BaseException):
    """Ends `run` from within a callback; only the reactor catches it."""


class Reactor:
    """Fulfils `Scheduler`, and calls back when sockets are readable or writable.

    `run` makes the calling thread the owner. Without `run`, the thread that calls `turn` is the owner (as in tests).
    """

    def __init__(
        self, report: Callable[[str], None] = to_the_log, *, workers: int = 4, lends_turns: bool = False
    ) -> None:
        """`report` gets a line for each callback that raises; `workers` is how many threads `offload` uses at most.
        `lends_turns`: other threads may take turns with `run_here` while `run` sleeps."""
        self._report = report
        self._workers = workers
        self._poller = make_poller()
        self._timers = Timers()
        self._ready: deque[Callback] = deque()
        self._at_stop: list[Callback] = []
        self._at_turn_end: list[Callback] = []
        self._is_late = False
        self._executor: Executor | None = None
        self._offloaded = 0
        self._sleeping = False
        self._sleeps_until: float | None = None
        """The time at which the owner wakes for a timer; None: it sleeps as long as nothing happens."""
        self._lends_turns = lends_turns
        self._turn_lock = threading.Lock()
        """Held by the thread that takes turns, but not while it sleeps; of use only while `_is_lending`."""
        self._is_lending = False
        self._lent_to = 0
        """The thread that takes turns in place of the owner; 0: none does."""
        self._running = self._stopping = self._abandoned = self._closed = False
        self._state_lock = threading.RLock()  # re-entrant: a signal handler may call `stop`
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._poller.watch(self._wake_in.fileno(), READ, self._drain_wake_ups)
        self.turn_time = monotonic()
        """Seconds of the monotonic clock when the present turn began, for those who need it cheap and not exact."""
        self.load = 0
        """Events of sockets and callbacks that the present turn began with."""

    @property
    def watched(self) -> int:
        """The number of watched sockets."""
        return 0 if self._closed else len(self._poller) - 1

    @property
    def timers(self) -> int:
        """The number of waiting timers."""
        return len(self._timers)

    # --- Scheduler

    def call_later(self, delay_ms: float, callback: Callback) -> HeapTimer:
        """Run `callback` after `delay_ms`, at the earliest on the next turn."""
        if self._closed:
            raise ClosedError("the reactor has stopped")
        return self._timers.add(monotonic() + delay_ms / 1000.0, callback)

    def call_soon(self, callback: Callback) -> None:
        """Run `callback` on the next turn. Callable from any thread; raises `ClosedError` once it has stopped."""
        # No lock: either the last turn sees what is appended here, or this thread sees `_closed` after appending.
        self._ready.append(callback)
        if self._closed:
            with suppress(ValueError):
                self._ready.remove(callback)
                raise ClosedError("the reactor has stopped")
        elif self._sleeping:
            self._sleeping = False
            self._wake()

    def offload(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        """Run `work` on a worker thread, then `done` on the reactor."""
        if self._closed:
            raise ClosedError("the reactor has stopped")
        self._offloaded += 1

        def finish(outcome: Outcome[T]) -> None:
            self._offloaded -= 1
            done(outcome)

        def run() -> None:
            outcome = Outcome.of(work)
            self.call_soon(lambda: finish(outcome))

        try:
            self._submit(run)
        except RuntimeError:  # the interpreter ends and starts no threads, but the work must still be done
            run()

    def _submit(self, run: Callable[[], None]) -> None:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self._workers, thread_name_prefix="barnabas-worker")
        self._executor.submit(run)

    def run_here(self, work: Callback) -> bool:
        """Run `work` and what follows from it on the calling thread, while the owner sleeps; return False, and do
        nothing, while it does not. Callable from any thread, without locks that callbacks take.

        This saves two changes of the thread: to the owner, and back with the outcome.
        """
        lock = self._turn_lock
        if not self._is_lending or not self._sleeping or not lock.acquire(blocking=False):
            return False
        try:
            if not self._is_lending or not self._sleeping or self._ready or self._stopping:
                return False
            self._sleeping = False
            self._lent_to = threading.get_ident()
            self.turn_time = monotonic()
            try:
                self._guard(work)
                for _ in range(_LENT_TURNS_MAX):
                    if not self._ready:
                        break
                    self.turn(0.0)
            except _Abandoned:
                self._ready.appendleft(self._die)
            finally:
                self._lent_to = 0
                self._sleeping = True
                due = self._timers.next_due()
                is_earlier = due is not None and (self._sleeps_until is None or due < self._sleeps_until)
                if self._ready or is_earlier or self._stopping:
                    self._sleeping = False
                    self._wake()
            return True
        finally:
            lock.release()

    @property
    def is_lent_here(self) -> bool:
        """True on a thread that takes turns in place of the owner now."""
        return self._lent_to == threading.get_ident()

    # --- sockets

    def watch(self, sock: HasDescriptor, interest: int, ready: WhenReady) -> None:
        """Call `ready(events)` whenever `sock` is ready for `interest` (READ, WRITE, both; 0 ends the watch).

        Events found in one turn are delivered even if an earlier callback of it ended the interest: `ready` checks.
        """
        self._poller.watch(sock.fileno(), interest, ready)

    # --- life

    def run(self, *, switch_interval_ms: float | None = None) -> None:
        """Turn until `stop`; then let the work under way finish, and close.

        `switch_interval_ms` sets how long another Python thread may keep the interpreter from this one, for the whole
        process and for as long as this runs (Python's own default is 5). A server process wants about 0.5.
        """
        with self._state_lock:
            if self._closed:
                return
            self._running = True
        interval_before = sys.getswitchinterval()
        if switch_interval_ms is not None:
            sys.setswitchinterval(switch_interval_ms / 1000.0)
        try:
            if self._lends_turns:
                self._turn_lock.acquire()
                self._is_lending = True
            while not self._stopping:
                self.turn()
        except _Abandoned:
            self._abandoned = True
        finally:
            sys.setswitchinterval(interval_before)
            self._finish()
            if self._is_lending:
                self._is_lending = False
                self._turn_lock.release()

    def stop(self) -> None:
        """End `run` after the present turn. Callable from any thread and from a signal handler; twice is harmless.

        When nothing runs, what is left is finished here, by the calling thread.
        """
        with self._state_lock:
            if self._closed:
                return
            self._stopping = True
            if self._running:
                self._wake()
            else:
                self._running = True
                self._finish()

    def abandon(self) -> None:
        """End `run` as the death of the process would: after the present callback, close the sockets and drop all
        waiting work. Callable from any thread; a second call has no effect."""
        self._ready.appendleft(self._die)
        self._wake()

    def _die(self) -> None:
        if not self._stopping:
            raise _Abandoned

    def at_stop(self, callback: Callback) -> None:
        """Run `callback` when the reactor stops, before its last turns: to close what watches sockets."""
        self._at_stop.append(callback)

    def at_turn_end(self, callback: Callback) -> bool:
        """Run `callback` when the timers and callbacks of the present turn are done; False, and nothing, if it is not
        at those now. Many of them answer at the same time, and what goes to one connection can go together then."""
        if self._is_late:
            self._at_turn_end.append(callback)
        return self._is_late

    def turn(self, max_wait_ms: float | None = None) -> None:
        """Wait for the next thing to happen, at most `max_wait_ms` (None: as long as it takes), and handle it."""
        due = self._timers.next_due()
        wait = None if max_wait_ms is None else max_wait_ms / 1000.0
        if self._ready:
            wait = 0.0
        elif due is not None:
            until_due = due - monotonic()
            if wait is None or until_due < wait:
                wait = until_due if until_due > 0.0 else 0.0
        if wait != 0.0:
            self._sleeps_until = due
        self._turn(wait)
        self._is_late = True
        if due is not None and due <= self.turn_time:  # what was added in this turn is for the next one
            for timer in self._timers.pop_due(self.turn_time):
                callback = timer.take_callback()
                if callback is not None:
                    self._guard(callback)
        if self._ready:
            self._run_ready()
        self._is_late = False
        if self._at_turn_end:
            self._end_turn()

    def _end_turn(self) -> None:
        callbacks, self._at_turn_end = self._at_turn_end, []
        for callback in callbacks:
            self._guard(callback)

    def _turn(self, wait: float | None) -> None:
        """Wait for sockets and handle them."""
        if wait != 0.0:
            self._sleeping = True
            if self._ready:  # it came before `_sleeping` could be seen
                wait = 0.0
        if wait == 0.0 or not self._is_lending:
            events = self._poller.poll(wait)
        else:
            self._turn_lock.release()
            try:
                events = self._poller.poll(wait)
            finally:
                self._turn_lock.acquire()
        self._sleeping = False
        self.turn_time = monotonic()
        self.load = len(events) + len(self._ready)
        for ready, found in events:
            try:
                ready(found)
            except Exception as error:  # noqa: BLE001  # reported; the loop lives on
                self._report(f"a socket callback raised {one_line(error)}")

    def _run_ready(self) -> None:
        ready = self._ready
        for _ in range(len(ready)):
            self._guard(ready.popleft())

    def _guard(self, callback: Callback) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001  # reported; the loop lives on
            self._report(f"a callback raised {one_line(error)}")

    def _finish(self) -> None:
        if self._abandoned:
            self._at_turn_end.clear()
        self._is_late = False
        self._end_turn()
        for callback in self._at_stop:
            self._guard(callback)
        self._timers.clear()
        turns = 0
        while not self._abandoned and (self._offloaded or (self._ready and turns < _LAST_TURNS_MAX)):
            self._turn(0.0 if self._ready else None)
            self._run_ready()
            turns += 1
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=self._abandoned)
        self._closed = True
        if self._abandoned:
            self._ready.clear()
        self._run_ready()
        self._poller.close()
        self._wake_in.close()
        self._wake_out.close()

    def _wake(self) -> None:
        with suppress(OSError):  # full: the owner wakes anyway; closed: no thread sleeps
            self._wake_out.send(b"\0")

    def _drain_wake_ups(self, _events: int) -> None:
        with suppress(BlockingIOError):
            while len(self._wake_in.recv(4096)) == 4096:
                pass
