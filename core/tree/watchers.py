"""Which callbacks of a coordination session are due. No locks, no threads: the adapter brings them."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from ...ports.coordination import SessionState

Changed = Callable[[], None]
StateChanged = Callable[[SessionState], None]


class Watchers:
    """The watches and listeners of one session, and the calls to them that are still to be made.

    Several changes of one path that were not told yet become one call; every change of the session state is told.
    """

    def __init__(self) -> None:
        self._last_token = 0
        self._watches: dict[int, Changed] = {}
        self._by_path: dict[str, set[int]] = {}
        self._listeners: dict[int, StateChanged] = {}
        self._due_watches: dict[int, None] = {}
        self._due_states: deque[tuple[int, SessionState]] = deque()

    def watch(self, path: str, changed: Changed) -> int:
        """Add a watch; returns the token to `remove` it."""
        token = self._next_token()
        self._watches[token] = changed
        self._by_path.setdefault(path, set()).add(token)
        return token

    def listen(self, state_changed: StateChanged) -> int:
        """Add a listener; returns the token to `remove` it."""
        token = self._next_token()
        self._listeners[token] = state_changed
        return token

    def remove(self, token: int) -> None:
        """Forget a watch or listener and what was due to it; an unknown token is not an error."""
        self._watches.pop(token, None)
        self._listeners.pop(token, None)
        self._due_watches.pop(token, None)
        for path, tokens in self._by_path.items():
            if token in tokens:
                tokens.discard(token)
                if not tokens:
                    del self._by_path[path]
                break

    def touch(self, paths: Iterable[str]) -> bool:
        """Note that these paths changed; True if something is due now."""
        for path in paths:
            for token in self._by_path.get(path, ()):
                self._due_watches[token] = None
        return self.due

    def touch_all(self, state: SessionState, *, watches: bool) -> bool:
        """Note a new session state, and with `watches` that anything may have changed; True if something is due now."""
        self._due_states.extend((token, state) for token in self._listeners)
        if watches:
            self._due_watches.update(dict.fromkeys(self._watches))
        return self.due

    @property
    def due(self) -> bool:
        return bool(self._due_watches or self._due_states)

    def next_call(self) -> Callable[[], None] | None:
        """Take the next call to make: session states first, in their order."""
        while self._due_states:
            token, state = self._due_states.popleft()
            listener = self._listeners.get(token)
            if listener is not None:
                return partial(listener, state)
        if self._due_watches:
            token = next(iter(self._due_watches))
            del self._due_watches[token]
            return self._watches[token]
        return None

    def _next_token(self) -> int:
        self._last_token += 1
        return self._last_token
