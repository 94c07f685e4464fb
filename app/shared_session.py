"""A session of its own for each user of one coordination in the same process: a broker, and clients beside it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock

from ..ports.coordination import (
    Cancel,
    Coordination,
    CoordinationError,
    DeleteNode,
    Node,
    NodeChange,
    NoNode,
    SessionState,
)
from ..ports.errors import ClosedError


class SharedSession:
    """Fulfils `Coordination` through another session, which stays open when this one is closed.

    Closing removes the ephemeral nodes that were made here and ends the watches. The other session's end is the end of
    this one too. `owners` is one mapping for all that share the session: whose each ephemeral node is.
    """

    def __init__(self, session: Coordination, owners: "dict[str, SharedSession]") -> None:
        self._session = session
        self._owners = owners
        self._lock = Lock()
        self._cancels: list[Cancel] = []
        self._closed = False

    @property
    def blocking(self) -> bool:
        return self._session.blocking

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        self._check_open()
        self._session.create(path, data, ephemeral=ephemeral)
        if ephemeral:
            self._owners[path] = self

    def get(self, path: str) -> Node:
        self._check_open()
        return self._session.get(path)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._check_open()
        return self._session.get_many(paths)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        self._check_open()
        return self._session.set(path, data, version=version)

    def delete(self, path: str, *, version: int | None = None) -> None:
        self._check_open()
        self._session.delete(path, version=version)
        self._owners.pop(path, None)

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        self._check_open()
        self._session.commit(changes, guards=guards)
        for change in changes:
            if isinstance(change, DeleteNode):
                self._owners.pop(change.path, None)

    def children(self, path: str) -> list[str]:
        self._check_open()
        return self._session.children(path)

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        self._check_open()
        return self._register_cancel(self._session.watch(path, changed))

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        self._check_open()
        return self._register_cancel(self._session.watch_below(path, changed))

    def heartbeat(self) -> float:
        self._check_open()
        return self._session.heartbeat()

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        self._check_open()

        return self._register_cancel(self._session.add_session_listener(on_state_changed))

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            cancels, self._cancels = self._cancels, []
        for cancel in cancels:
            cancel()
        for path in sorted(path for path, owner in tuple(self._owners.items()) if owner is self):
            self._owners.pop(path, None)
            try:
                if self._session.get(path).ephemeral:
                    self._session.delete(path)
            except (NoNode, ClosedError):
                continue  # it went with the session
            except CoordinationError:
                return  # the session cannot be reached: its end removes them

    def _register_cancel(self, cancel: Cancel) -> Cancel:
        with self._lock:
            self._cancels.append(cancel)
        return cancel

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this coordination session is closed")
