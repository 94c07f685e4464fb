"""Helpers of the suites of `ports.coordination`: the harness that an adapter brings, and ways to wait."""

import threading
from collections.abc import Callable, Collection
from typing import Generic, NoReturn, Protocol, TypeVar

from ...ports.coordination import Coordination, CoordinationError, NoNode
from ...ports.errors import ClosedError

WAIT_S = 120.0
T = TypeVar("T")


class Harness(Protocol):
    """Interface of the harness of an adapter: sessions with one empty tree, and the faults that the harness can cause.

    Inherit it, and implement `session`, and those of expire_session, disconnect, reconnect and restart_server that you
    name in `faults`: the tests that need another one are skipped.
    """

    several_sessions: bool
    faults: frozenset[str]

    def session(self) -> Coordination:
        """Return a session with the tree, closed by the harness at the end. Only one unless `several_sessions`."""
        ...

    def expire_session(self, session: Coordination) -> None:
        """Make the service end the session behind its back."""
        _not_offered("expire_session")

    def disconnect(self, session: Coordination) -> None:
        """Cut the session from the service, for less than the session's time."""
        _not_offered("disconnect")

    def reconnect(self, session: Coordination) -> None:
        """Let a disconnected session reach the service again."""
        _not_offered("reconnect")

    def restart_server(self) -> None:
        """Stop the service and start it on the same data; the sessions find it again by themselves."""
        _not_offered("restart_server")


def _not_offered(fault: str) -> NoReturn:
    raise NotImplementedError(f"`faults` of this harness names {fault}, but there is no such method")


class Recorder(Generic[T]):
    """Records the values of its calls, from any thread, and waits for them."""

    def __init__(self) -> None:
        self.calls: list[T] = []
        self.threads: set[int] = set()
        self._changed = threading.Condition()

    def __call__(self, what: T) -> None:
        with self._changed:
            self.calls.append(what)
            self.threads.add(threading.get_ident())
            self._changed.notify_all()

    def wait(self, condition: Callable[[list[T]], bool]) -> None:
        """Return once `condition` holds for the recorded values."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self.calls), WAIT_S):
                raise AssertionError(f"no such call in {WAIT_S} s; calls so far: {self.calls}")


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until `condition()` holds, for events without a notification."""
    pause = threading.Event()
    for _ in range(int(WAIT_S * 100)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("the condition did not come true")


def exists(session: Coordination, path: str) -> bool:
    try:
        session.get(path)
    except NoNode:
        return False
    return True


class Watch:
    """A watch that reads its node, as users do; notes (data or None, children or None)."""

    def __init__(self, session: Coordination, path: str) -> None:
        self._session = session
        self._path = path
        self.seen: Recorder[tuple[bytes | None, list[str] | None]] = Recorder()
        self.cancel = session.watch(path, self._changed)

    def _changed(self) -> None:
        try:
            self.seen((self._session.get(self._path).data, self._session.children(self._path)))
        except NoNode:
            self.seen((None, None))
        except (CoordinationError, ClosedError):
            return  # disconnected again, or the test is over

    def wait(self, data: bytes | None, children: list[str] | None) -> None:
        self.seen.wait(lambda seen: bool(seen) and seen[-1] == (data, children))


class Follower:
    """Follows all nodes at and below a path as a broker does: `watch_below` names the changed paths, and reads get the
    nodes.
    """

    def __init__(self, session: Coordination, top: str) -> None:
        self._session = session
        self._top = top
        self.changes: Recorder[tuple[str, ...] | None] = Recorder()
        self.nodes: dict[str, bytes] = {}
        self._failure: Exception | None = None
        self._reading = threading.Lock()
        self.cancel = session.watch_below(top, self._changed)
        with self._reading:
            self._read_all()

    def _changed(self, paths: Collection[str] | None) -> None:
        try:
            with self._reading:
                self._read_all() if paths is None else self._read(list(paths))
        except (CoordinationError, ClosedError) as error:
            self._failure = error  # disconnected again, or the test is over
            return
        self.changes(None if paths is None else tuple(paths))

    def _read_all(self) -> None:
        found = dict.fromkeys(self.nodes)
        pending = [self._top]
        while pending:
            path = pending.pop()
            found[path] = None
            try:
                pending += [f"{path}/{name}" for name in self._session.children(path)]
            except NoNode:
                continue
        self._read(list(found))

    def _read(self, paths: list[str]) -> None:
        for path, node in zip(paths, self._session.get_many(paths), strict=True):
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node.data

    def wait(self, nodes: dict[str, bytes]) -> None:
        """Return once it has seen exactly these."""
        try:
            wait_until(lambda: dict(self.nodes) == nodes)
        except AssertionError as error:
            seen = f"changes: {self.changes.calls}; last reading that failed: {self._failure!r}"
            raise AssertionError(f"the nodes are {self.nodes}, not {nodes}; {seen}") from error
