"""Which callbacks of a coordination session are due. No locks, no threads: the adapter brings them."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial

from ...ports.coordination import SessionState
from .tree import is_at_or_below, parent_of

Changed = Callable[[], None]
ChangedBelow = Callable[[Collection[str] | None], None]
StateChanged = Callable[[SessionState], None]


class Watchers:
    """The watches and listeners of one session, and the calls to them that are still to be made.

    Several changes of one path that were not told yet become one call, and so do all changes below a path; every
    change of the session state is told.
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
        """Add a watch; returns the token to `remove` it."""
        token = self._next_token()
        self._watches[token] = changed
        self._by_path.setdefault(path, set()).add(token)
        return token

    def add_subtree_watch(self, path: str, changed: ChangedBelow) -> int:
        """Add a watch of a node and all below it; returns the token to `remove` it."""
        token = self._next_token()
        self._below[token] = (path, changed)
        return token

    def add_state_listener(self, state_changed: StateChanged) -> int:
        """Add a listener; returns the token to `remove` it."""
        token = self._next_token()
        self._listeners[token] = state_changed
        return token

    def remove(self, token: int) -> None:
        """Forget a watch or listener and what was due to it; an unknown token is not an error."""
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
        """Note that these nodes changed; True for those made or deleted, which is a change of their parents too."""
        for path, came_or_went in nodes.items():
            self.mark_path_changed(path)
            if came_or_went:
                self.mark_path_changed(parent_of(path))
            for token, (top, _) in self._below.items():
                if is_at_or_below(path, top):
                    due = self._due_below.setdefault(token, {})
                    if due is not None:  # else all of it is due
                        due[path] = None

    def mark_path_changed(self, path: str) -> None:
        """Note that something about this path alone changed."""
        for token in self._by_path.get(path, ()):
            self._due_watches[token] = None

    def mark_subtree_changed(self, top: str) -> None:
        """Note that anything at `top` and below may have changed, for those who watch just that."""
        for token, (watched, _) in self._below.items():
            if watched == top:
                self._due_below[token] = None

    def queue_state(self, state: SessionState, *, watches: bool) -> None:
        """Note a new session state, and with `watches` that anything may have changed."""
        self._due_states.extend((token, state) for token in self._listeners)
        if watches:
            self._due_watches.update(dict.fromkeys(self._watches))
            self._due_below.update(dict.fromkeys(self._below))

    def begin_delivery(self) -> bool:
        """True: calls are due and nobody makes them yet. The caller sees to it that somebody does, until `next_call`
        gives none."""
        due = self._due_watches or self._due_below or self._due_states
        if not due or self._is_delivering or self._closed:
            return False
        self._is_delivering = True
        return True

    @property
    def owes_expiry(self) -> bool:
        """Whether a listener has still to hear that the session expired; true while it is told."""
        expired = SessionState.EXPIRED
        return self._delivering_state is expired or any(state is expired for _, state in self._due_states)

    def next_call(self) -> Callable[[], None] | None:
        """Take the next call to make: session states first, in their order. The one before is done then."""
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
        """Forget all of it: nothing more is due."""
        self._closed = True
        self._delivering_state = None
        for each in (self._watches, self._by_path, self._below, self._listeners):
            each.clear()
        for due in (self._due_watches, self._due_below, self._due_states):
            due.clear()

    def _next_token(self) -> int:
        self._last_token += 1
        return self._last_token
