"""Whether the user of a session still runs: a thread of an adapter must not keep the session of one that hangs."""

from time import monotonic


class SessionHeartbeat:
    """Any thread. Who never calls `keep` is kept by the adapter alone: there is nothing to miss."""

    def __init__(self, session_timeout_ms: float) -> None:
        self._session_timeout_s = session_timeout_ms / 1000
        self._last_s: float | None = None

    def beat(self) -> None:
        """The user has called `keep`."""
        self._last_s = monotonic()

    @property
    def is_overdue(self) -> bool:
        """True if the user has kept the session by calls, and made none for the session time."""
        last_s = self._last_s
        return last_s is not None and monotonic() - last_s > self._session_timeout_s
