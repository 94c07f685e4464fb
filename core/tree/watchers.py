"""The pending callbacks of a coordination session, without locks and threads, which the adapter provides."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial

from ...ports.coordination import SessionState
from .tree import is_at_or_below, parent_of

Changed = Callable[[], None]
ChangedBelow = Callable[[Collection[str] | None], None]
StateChanged = Callable[[SessionState], None]


class Watchers:
    """The watches and listeners of one session, and their pending calls.

    Pending changes of one path become one call, as do all changes below a path; each change of the session state is a
    call.
    """

    def __init__(self) -> None:
        self._last_token = 0
        self._watches: dict[int, Changed] = {}
        self._by_path: dict[str, set[int]] = {}
        self._below: dict[int, tuple[str, ChangedBelow]] = {}
        self._listeners: dict[int, StateChanged] = {}
        self._due_watches: dict[int, None] = {}
        self._due_below: dict[int, dict[str, None] | None] = {}
        self._due_states: deque[tuple[int, SessionState]] = deque()
        self._delivering_state: SessionState | None = None
        self._is_delivering = False
        self._closed = False

    def add_watch(self, path: str, changed: Changed) -> int:
        """Add a watch of a node; return the token for `remove`."""
        token = self._next_token()
        self._watches[token] = changed
        self._by_path.setdefault(path, set()).add(token)
        return token

    def add_subtree_watch(self, path: str, changed: ChangedBelow) -> int:
        """Add a watch of a node and its descendants; return the token for `remove`."""
        token = self._next_token()
        self._below[token] = (path, changed)
        return token

    def add_state_listener(self, state_changed: StateChanged) -> int:
        """Add a listener of the session state; return the token for `remove`."""
        token = self._next_token()
        self._listeners[token] = state_changed
        return token

    def remove(self, token: int) -> None:
        """Remove a watch or listener and its pending calls; an unknown token is no error."""
        self._watches.pop(token, None)
        self._listeners.pop(token, None)
        self._due_watches.pop(token, None)
        self._below.pop(token, None)
        self._due_below.pop(token, None)
        for path, tokens in self._by_path.items():
            if token in tokens:
                tokens.discard(token)
                if not tokens:
                    del self._by_path[path]
                break

    def mark_changed(self, nodes: Mapping[str, bool]) -> None:
        """Queue calls for changed nodes; True marks created or deleted nodes, which changes their parents too."""
        for path, came_or_went in nodes.items():
            self.mark_path_changed(path)
            if came_or_went:
                self.mark_path_changed(parent_of(path))
            for token, (top, _) in self._below.items():
                if is_at_or_below(path, top):
                    due = self._due_below.setdefault(token, {})
                    if due is not None:  # None: the whole subtree is pending
                        due[path] = None

    def mark_path_changed(self, path: str) -> None:
        """Queue calls for a change of this path alone."""
        for token in self._by_path.get(path, ()):
            self._due_watches[token] = None

    def mark_subtree_changed(self, top: str) -> None:
        """Queue calls for the watches of the subtree `top`, anything in which may have changed."""
        for token, (watched, _) in self._below.items():
            if watched == top:
                self._due_below[token] = None

    def queue_state(self, state: SessionState, *, watches: bool) -> None:
        """Queue a new session state, and with `watches` calls of all watches."""
        self._due_states.extend((token, state) for token in self._listeners)
        if watches:
            self._due_watches.update(dict.fromkeys(self._watches))
            self._due_below.update(dict.fromkeys(self._below))

    def begin_delivery(self) -> bool:
        """Return True if calls are pending and no delivery is in progress.

        The caller must then call `next_call` until it returns None.
        """
        due = self._due_watches or self._due_below or self._due_states
        if not due or self._is_delivering or self._closed:
            return False
        self._is_delivering = True
        return True

    @property
    def owes_expiry(self) -> bool:
        """Return True until all listeners have been called for the expiration of the session."""
        expired = SessionState.EXPIRED
        return self._delivering_state is expired or any(state is expired for _, state in self._due_states)

    def next_call(self) -> Callable[[], None] | None:
        """Return the next pending call, session states first in order; the previous call has completed."""
        self._delivering_state = None
        while self._due_states:
            token, state = self._due_states.popleft()
            listener = self._listeners.get(token)
            if listener is not None:
                self._delivering_state = state
                return partial(listener, state)
        if self._due_watches:
            token = next(iter(self._due_watches))
            del self._due_watches[token]
            return self._watches[token]
        if self._due_below:
            token = next(iter(self._due_below))
            paths = self._due_below.pop(token)
            return partial(self._below[token][1], None if paths is None else tuple(paths))
        self._is_delivering = False
        return None

    def close(self) -> None:
        """Remove all watches, listeners and pending calls."""
        self._closed = True
        self._delivering_state = None
        for each in (self._watches, self._by_path, self._below, self._listeners):
            each.clear()
        for due in (self._due_watches, self._due_below, self._due_states):
            due.clear()

    def _next_token(self) -> int:
        self._last_token += 1
        return self._last_token
