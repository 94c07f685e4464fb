"""The coordination tree in the memory of one process: for `Broker(coordination="memory")`, tests and the simulation.

Sessions share one tree; tests and the simulation cause faults in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from threading import RLock
from traceback import format_exception
from typing import TYPE_CHECKING

from ..core.tree.tree import Change, Tree, check_path
from ..ports.clock import Clock
from ..ports.coordination import Cancel, CoordinationError, Node, NodeChange, SessionExpired, SessionState
from ..ports.errors import ClosedError
from .watch_delivery import Deliver, WatchDelivery, write_to_stderr

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


class MemoryTree:
    """One tree for many sessions. Thread-safe.

    `deliver` runs the callbacks of watches and listeners one at a time, later (`scheduler.call_soon` in a simulation);
    by default each session has a thread for them. `report` gets the callbacks that raised.

    With a `clock`, sessions may have a timeout as those with a real service have: who owns the tree calls
    `expire_overdue`.
    """

    def __init__(
        self,
        *,
        deliver: Deliver | None = None,
        report: Callable[[str], None] = write_to_stderr,
        clock: Clock | None = None,
        session_timeout_ms: float = math.inf,
    ) -> None:
        """Raises `ValueError` for a timeout without a clock."""
        self._clock = clock
        self._session_timeout_ms = self._checked(session_timeout_ms)
        self.lock = RLock()
        self.nodes = Tree()
        self.report = report
        self._deliver = deliver
        self._sessions: list[MemorySession] = []
        self._last_session_id = 0

    def session(self, *, deliver: Deliver | None = None, session_timeout_ms: float | None = None) -> MemorySession:
        """Return a new session; `deliver` and `session_timeout_ms` (`math.inf`: none) instead of the tree's.

        Raises `ValueError` as the tree does.
        """
        timeout_ms = self._session_timeout_ms if session_timeout_ms is None else self._checked(session_timeout_ms)
        with self.lock:
            made = MemorySession(self, deliver or self._deliver, timeout_ms)
            self._sessions.append(made)
            return made

    def expire(self, session: MemorySession) -> None:
        """End the session as the service does when it has not heard of a client: its ephemeral nodes go at once.

        A connected client gets a new session and its listeners a call now; a disconnected one when it reconnects.
        """
        session.expire()

    def expire_overdue(self) -> float:
        """End the sessions that were not kept for their timeout; the milliseconds until the next one could be."""
        with self.lock:
            for session in self._sessions:
                if session.left_ms <= 0:
                    session.lapse()
            return min((session.left_ms for session in self._sessions), default=math.inf)

    def disconnect(self, session: MemorySession) -> None:
        """Cut the connection of `session`: calls raise `CoordinationError`, changes are not delivered, ephemeral
        nodes stay.
        """
        session.disconnect()

    def reconnect(self, session: MemorySession) -> None:
        """Undo `disconnect` of `session`."""
        session.reconnect()

    def now_ms(self) -> float:
        """Return the time by the clock of the tree; 0 without one."""
        return 0.0 if self._clock is None else self._clock.monotonic_ms()

    def new_session_id(self) -> int:
        """Return an owner of ephemeral nodes. The caller holds the lock."""
        self._last_session_id += 1
        return self._last_session_id

    def change(self, changes: Iterable[Change]) -> None:
        """Apply planned changes and notify every session. The caller holds the lock."""
        touched = self.nodes.apply(list(changes))
        for session in self._sessions:
            session.touched(touched)

    def forget(self, session: MemorySession) -> None:
        """Stop notifying the session. The caller holds the lock."""
        self._sessions.remove(session)

    def _checked(self, session_timeout_ms: float) -> float:
        if not session_timeout_ms > 0:
            raise ValueError(f"a session lasts longer than {session_timeout_ms} ms")
        if self._clock is None and session_timeout_ms != math.inf:
            raise ValueError("sessions that time out need the clock of the tree")
        return session_timeout_ms


class MemorySession:
    """Fulfils `ports.coordination.Coordination`; made by `MemoryTree.session`.

    With a timeout, only `keep` keeps it. It ends when `MemoryTree.expire_overdue`, or a call of its own, finds it
    overdue; it begins again, and calls its listeners, with the next call, as after the pause of a process.
    """

    blocking = False

    def __init__(self, tree: MemoryTree, deliver: Deliver | None, timeout_ms: float = math.inf) -> None:
        self._tree = tree
        self._timeout_ms = timeout_ms
        self._renewed_ms = tree.now_ms()
        self._session_id = tree.new_session_id()
        self._callbacks: ThreadPoolExecutor | None = None
        self._delivery = WatchDelivery(tree.lock, self._run if deliver is None else deliver, self._failed)
        self._connected = True
        self._expired_unseen = False
        self._closed = False

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        with self._tree.lock:
            self._check_usable()
            owner = self._session_id if ephemeral else None
            self._tree.change(self._tree.nodes.plan_create(path, data, owner))

    def get(self, path: str) -> Node:
        with self._tree.lock:
            self._check_usable()
            return self._tree.nodes.get(path)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        with self._tree.lock:
            self._check_usable()
            return self._tree.nodes.get_many(paths)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        with self._tree.lock:
            self._check_usable()
            plan = self._tree.nodes.plan_set(path, data, version)
            self._tree.change(plan)
            return plan[-1].version

    def delete(self, path: str, *, version: int | None = None) -> None:
        with self._tree.lock:
            self._check_usable()
            self._tree.change(self._tree.nodes.plan_delete(path, version))

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        with self._tree.lock:
            self._check_usable()
            self._tree.change(self._tree.nodes.plan_commit(changes, guards or {}))

    def children(self, path: str) -> list[str]:
        with self._tree.lock:
            self._check_usable()
            return self._tree.nodes.children(path)

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        check_path(path)
        with self._tree.lock:
            self._check_open()
            return partial(self._delivery.cancel, self._delivery.watch(path, changed))

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        check_path(path)
        with self._tree.lock:
            self._check_open()
            return partial(self._delivery.cancel, self._delivery.watch_below(path, changed))

    def heartbeat(self) -> float:
        with self._tree.lock:
            self._check_usable()
            if self._delivery.owes_an_end:
                raise SessionExpired("the session has ended, and not all who listen know it yet")
            self._renewed_ms = self._tree.now_ms()
            return self._timeout_ms

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        with self._tree.lock:
            self._check_open()
            return partial(self._delivery.cancel, self._delivery.add_session_listener(on_state_changed))

    def close(self) -> None:
        with self._tree.lock:
            if self._closed:
                return
            self._closed = True
            self._delivery.close()
            self._tree.forget(self)
            self._tree.change(self._tree.nodes.plan_end(self._session_id))
        if self._callbacks is not None:
            self._callbacks.shutdown(wait=False)  # a callback may be waiting for the caller

    def touched(self, nodes: Mapping[str, bool]) -> None:
        """Deliver changes of these nodes. The caller holds the lock."""
        if self._connected and not self._expired_unseen:
            self._delivery.touch(nodes)

    @property
    def left_ms(self) -> float:
        """Return the time until the session expires without heartbeats; `math.inf` if it expired unnoticed."""
        return math.inf if self._expired_unseen else self._renewed_ms + self._timeout_ms - self._tree.now_ms()

    def expire(self) -> None:
        """See `MemoryTree.expire`."""
        with self._tree.lock:
            self._check_open()
            self._tree.change(self._tree.nodes.plan_end(self._session_id))
            self._expired_unseen = True
            if self._connected:
                self._begin_again()

    def lapse(self) -> None:
        """The session ends as it was not kept; it begins again when its user calls. The caller holds the lock."""
        self._expired_unseen = True
        self._tree.change(self._tree.nodes.plan_end(self._session_id))

    def disconnect(self) -> None:
        """See `MemoryTree.disconnect`."""
        with self._tree.lock:
            self._check_open()
            if self._connected:
                self._connected = False
                self._delivery.touch_all(SessionState.SUSPENDED, watches=False)

    def reconnect(self) -> None:
        """See `MemoryTree.reconnect`."""
        with self._tree.lock:
            self._check_open()
            if not self._connected:
                self._connected = True
                if self.left_ms <= 0:
                    self.lapse()
                self._begin_again()

    def _begin_again(self) -> None:
        state = SessionState.CONNECTED
        if self._expired_unseen:
            self._expired_unseen = False
            self._session_id = self._tree.new_session_id()
            self._renewed_ms = self._tree.now_ms()
            state = SessionState.EXPIRED
        self._delivery.touch_all(state, watches=True)

    def _run(self, callback: Callable[[], None]) -> None:
        """One at a time, in a thread of its own."""
        if self._callbacks is None:
            from concurrent.futures import ThreadPoolExecutor

            self._callbacks = ThreadPoolExecutor(1, "coordination-callbacks")
        self._callbacks.submit(callback)

    def _failed(self, error: Exception) -> None:
        self._tree.report(f"a coordination callback failed: {''.join(format_exception(error))}")

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this coordination session is closed")

    def _check_usable(self) -> None:
        self._check_open()
        if not self._connected:
            raise CoordinationError("not connected to the coordination service")
        if self.left_ms <= 0:
            self.lapse()
        if self._expired_unseen:
            self._begin_again()
            raise SessionExpired("the session expired: no heartbeat within the session timeout")
