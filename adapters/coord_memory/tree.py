"""The shared tree, and the faults that tests and the simulation cause in its sessions."""

import math
import sys
from collections.abc import Callable, Iterable
from threading import RLock

from ...core.tree.tree import Change, Tree
from ...ports.clock import Clock
from ..watch_delivery import Deliver
from .session import MemorySession


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


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
        report: Callable[[str], None] = _to_stderr,
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
