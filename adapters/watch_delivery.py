"""Making the calls that are due to watches and listeners, one at a time: the lock around `core.tree.watchers`.

What all coordination adapters share outside of the core, which knows no locks; of yours, too.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from ..core.tree.watchers import ChangedBelow, Watchers
from ..ports.coordination import SessionState
from ..ports.errors import ClosedError

Deliver = Callable[[Callable[[], None]], None]


def write_to_stderr(text: str) -> None:
    """Report a callback that raised, where the caller has no report of its own."""
    sys.stderr.write(f"{text}\n")


class WatchDelivery:
    """The watches of one session behind the adapter's lock.

    `deliver` runs what it is given once, later, on the thread that calls watches; it raises `ClosedError` when that
    thread is gone. `failed` gets what a callback raised. Methods take the lock: call without it, unless it is
    reentrant.
    """

    def __init__(
        self, lock: AbstractContextManager[object], deliver: Deliver, failed: Callable[[Exception], None]
    ) -> None:
        self._lock = lock
        self._deliver = deliver
        self._failed = failed
        self._watchers = Watchers()

    def watch(self, path: str, changed: Callable[[], None]) -> int:
        """Add a watch; returns its token."""
        with self._lock:
            return self._watchers.add_watch(path, changed)

    def watch_below(self, path: str, changed: ChangedBelow) -> int:
        """Add a watch of a node and all below it; returns its token."""
        with self._lock:
            return self._watchers.add_subtree_watch(path, changed)

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> int:
        """Add a listener; returns its token."""
        with self._lock:
            return self._watchers.add_state_listener(on_state_changed)

    def cancel(self, token: int) -> None:
        """Forget a watch or a listener and what was due to it. Twice is harmless."""
        with self._lock:
            self._watchers.remove(token)

    def touch(self, nodes: Mapping[str, bool]) -> None:
        """Report changed nodes; True for those that were created or deleted (see `Tree.apply`)."""
        with self._lock:
            self._watchers.mark_changed(nodes)
            self._start()

    def touch_path(self, path: str) -> None:
        """Report a change of this path; watches of subtrees above it do not get it."""
        with self._lock:
            self._watchers.mark_path_changed(path)
            self._start()

    def touch_below(self, top: str) -> None:
        """Anything at `top` and below may have changed, for those who watch just that."""
        with self._lock:
            self._watchers.mark_subtree_changed(top)
            self._start()

    def touch_all(self, state: SessionState, *, watches: bool) -> None:
        """The session has a new state; with `watches` anything may have changed."""
        with self._lock:
            self._watchers.queue_state(state, watches=watches)
            self._start()

    @property
    def owes_an_end(self) -> bool:
        """True if a listener has still to hear that the session expired."""
        with self._lock:
            return self._watchers.owes_expiry

    def close(self) -> None:
        """Stop all deliveries."""
        with self._lock:
            self._watchers.close()

    def _start(self) -> None:
        if self._watchers.begin_delivery():
            try:
                self._deliver(self._notify)
            except ClosedError as error:  # the thread of the callbacks has stopped
                self._failed(error)

    def _notify(self) -> None:
        while True:
            with self._lock:
                call = self._watchers.next_call()
            if call is None:
                return
            try:
                call()
            except Exception as error:  # noqa: BLE001  a watcher's fault must not silence the others: it is reported
                self._failed(error)
