"""The heartbeat of a session's user: a thread of an adapter must not keep the session of one that hangs."""

from time import monotonic


class SessionHeartbeat:
    """Notes calls of `keep`, in any thread. A user that never calls it is never overdue: the adapter alone keeps it."""

    def __init__(self, session_timeout_ms: float) -> None:
        self._session_timeout_s = session_timeout_ms / 1000
        self._last_s: float | None = None

    def beat(self) -> None:
        """Note that the user has called `keep`."""
        self._last_s = monotonic()

    @property
    def is_overdue(self) -> bool:
        """True if the user has kept the session by calls, and made none for the session time."""
        last_s = self._last_s
        return last_s is not None and monotonic() - last_s > self._session_timeout_s
