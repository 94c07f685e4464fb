"""A coordination session whose calls fail, or are overtaken by others, where a test says so."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from barnabas.ports.coordination import Cancel, Coordination, CoordinationError, Node, NodeChange, SessionState

T = TypeVar("T")


class FaultyCoordination:
    """Fulfils `Coordination` by another session.

    `fail(name, number)` makes the call of that name and number (from 1 on) raise `CoordinationError`: after it was
    done, as when its answer is lost, or with `done=False` before. `before(name, number, act)` lets others act first.
    """

    def __init__(self, inner: Coordination) -> None:
        self._inner = inner
        self._failing: dict[tuple[str, int], bool] = {}
        self._acts: dict[tuple[str, int], Callable[[], object]] = {}
        self.calls: list[tuple[str, str]] = []

    def fail(self, name: str, number: int = 1, *, done: bool = True) -> None:
        self._failing[name, number] = done

    def before(self, name: str, number: int, act: Callable[[], object]) -> None:
        self._acts[name, number] = act

    def _run(self, name: str, path: str, work: Callable[[], T]) -> T:
        self.calls.append((name, path))
        turn = name, sum(called == name for called, _ in self.calls)
        if turn in self._acts:
            self._acts[turn]()
        done = self._failing.get(turn)
        if done is False:
            raise CoordinationError("the connection is lost")
        result = work()
        if done:
            raise CoordinationError("the connection is lost, and the answer with it")
        return result

    @property
    def blocking(self) -> bool:
        return self._inner.blocking

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        self._run("create", path, lambda: self._inner.create(path, data, ephemeral=ephemeral))

    def get(self, path: str) -> Node:
        return self._run("get", path, lambda: self._inner.get(path))

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return self._run("get_many", " ".join(paths), lambda: self._inner.get_many(paths))

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        return self._run("set", path, lambda: self._inner.set(path, data, version=version))

    def delete(self, path: str, *, version: int | None = None) -> None:
        self._run("delete", path, lambda: self._inner.delete(path, version=version))

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        paths = " ".join(change.path for change in changes)
        self._run("commit", paths, lambda: self._inner.commit(changes, guards=guards))

    def children(self, path: str) -> list[str]:
        return self._run("children", path, lambda: self._inner.children(path))

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        return self._inner.watch(path, changed)

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        return self._inner.watch_below(path, changed)

    def heartbeat(self) -> float:
        return self._run("heartbeat", "", self._inner.heartbeat)

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        return self._inner.add_session_listener(on_state_changed)

    def close(self) -> None:
        self._inner.close()


class BlockingCoordination(FaultyCoordination):
    """A session whose calls belong off the reactor. While `down`, every call fails before it is done; while `deaf`,
    every change is done, but its answer is lost."""

    def __init__(self, inner: Coordination) -> None:
        super().__init__(inner)
        self.down = False
        self.deaf = False

    @property
    def blocking(self) -> bool:
        return True

    def _run(self, name: str, path: str, work: Callable[[], T]) -> T:
        if self.down:
            raise CoordinationError(f"{path}: not connected")
        result = super()._run(name, path, work)
        if self.deaf and name in ("create", "set", "delete", "commit"):
            raise CoordinationError(f"{path}: the connection is lost, and the answer with it")
        return result
