"""The shared tree, and the faults that tests and the simulation cause in its sessions."""

import sys
from collections.abc import Callable, Iterable
from threading import RLock

from ...core.tree.delivery import Deliver
from ...core.tree.tree import Change, Tree
from .session import MemorySession


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


class MemoryTree:
    """One tree for many sessions. Thread-safe.

    `deliver` runs the callbacks of watches and listeners one at a time, later (`scheduler.call_soon` in a simulation);
    by default each session has a thread for them. `report` is told of a callback that raised.
    """

    def __init__(self, *, deliver: Deliver | None = None, report: Callable[[str], None] = _to_stderr) -> None:
        self.lock = RLock()
        self.nodes = Tree()
        self.report = report
        self._deliver = deliver
        self._sessions: list[MemorySession] = []
        self._last_session_id = 0

    def session(self, *, deliver: Deliver | None = None) -> MemorySession:
        """A new session; `deliver` instead of the tree's."""
        with self.lock:
            made = MemorySession(self, deliver or self._deliver)
            self._sessions.append(made)
            return made

    def expire(self, session: MemorySession) -> None:
        """End the session as the service does when it has not heard of a client: its ephemeral nodes go at once.

        A connected client gets a new session and is told now, a disconnected one when it is connected again.
        """
        session.expire()

    def disconnect(self, session: MemorySession) -> None:
        """Cut the connection: calls raise `CoordinationError`, changes are not told, ephemeral nodes stay."""
        session.disconnect()

    def reconnect(self, session: MemorySession) -> None:
        """Undo `disconnect`."""
        session.reconnect()

    def new_session_id(self) -> int:
        """An owner of ephemeral nodes. The caller holds the lock."""
        self._last_session_id += 1
        return self._last_session_id

    def change(self, changes: Iterable[Change]) -> None:
        """Apply planned changes and tell every session. The caller holds the lock."""
        touched = self.nodes.apply(list(changes))
        for session in self._sessions:
            session.touched(touched)

    def forget(self, session: MemorySession) -> None:
        """Tell the session no more. The caller holds the lock."""
        self._sessions.remove(session)
