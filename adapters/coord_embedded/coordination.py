"""One broker's tree: nodes in memory, persistent ones also in the file."""

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from threading import RLock
from traceback import format_exception
from typing import TYPE_CHECKING

from ...core.tree.tree import Change, Put, Remove, Tree, check_path
from ...ports.coordination import Cancel, CoordinationError, Node, NodeChange, SessionState
from ...ports.errors import ClosedError
from ..watch_delivery import WatchDelivery
from .store import CURE, NodeStore

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_THIS_PROCESS = 1


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


class EmbeddedCoordination:
    """Fulfils `ports.coordination.Coordination` with a file; the session lasts as long as the file is open.

    Reads come from memory. A write waits for the disk: mostly a millisecond, on a busy disk much longer. Ephemeral
    nodes live in memory only: those of a process that died are gone at the next opening. `deliver` runs callbacks one
    at a time, later; by default a thread does. `report` gets the callbacks that raised.
    """

    blocking = True

    def __init__(
        self,
        path: str,
        *,
        deliver: Callable[[Callable[[], None]], None] | None = None,
        report: Callable[[str], None] = _to_stderr,
    ) -> None:
        """Open the file, made if missing. Raises `CoordinationError` when it is damaged or in use by another broker."""
        self._store = NodeStore(path)
        self._nodes = Tree()
        try:
            self._nodes.restore(self._store.load())
        except (ValueError, TypeError, CoordinationError) as error:
            self._store.close()
            raise CoordinationError(f"the coordination file {path} is damaged: {error}; {CURE}") from error
        self._lock = RLock()
        self._report = report
        self._callbacks: ThreadPoolExecutor | None = None
        self._delivery = WatchDelivery(self._lock, self._run if deliver is None else deliver, self._failed)
        self._closed = False

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        with self._lock:
            self._check_open()
            self._change(self._nodes.plan_create(path, data, _THIS_PROCESS if ephemeral else None))

    def get(self, path: str) -> Node:
        with self._lock:
            self._check_open()
            return self._nodes.get(path)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        with self._lock:
            self._check_open()
            return self._nodes.get_many(paths)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        with self._lock:
            self._check_open()
            plan = self._nodes.plan_set(path, data, version)
            self._change(plan)
            return plan[-1].version

    def delete(self, path: str, *, version: int | None = None) -> None:
        with self._lock:
            self._check_open()
            self._change(self._nodes.plan_delete(path, version))

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        with self._lock:
            self._check_open()
            self._change(self._nodes.plan_commit(changes, guards or {}))

    def children(self, path: str) -> list[str]:
        with self._lock:
            self._check_open()
            return self._nodes.children(path)

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        check_path(path)
        with self._lock:
            self._check_open()
            return partial(self._delivery.cancel, self._delivery.watch(path, changed))

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        check_path(path)
        with self._lock:
            self._check_open()
            return partial(self._delivery.cancel, self._delivery.watch_below(path, changed))

    def heartbeat(self) -> float:
        self._check_open()
        return math.inf

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        """Ignore the listener: the session of an open file neither breaks nor expires."""
        with self._lock:
            self._check_open()
            return partial(self._delivery.cancel, self._delivery.add_session_listener(on_state_changed))

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._delivery.close()
            self._store.close()
        if self._callbacks is not None:
            self._callbacks.shutdown(wait=False)  # a callback may be waiting for the caller

    def _change(self, changes: Sequence[Put] | Sequence[Remove] | Sequence[Change]) -> None:
        plan: list[Change] = [*changes]
        self._store.save(plan)
        self._delivery.touch(self._nodes.apply(plan))

    def _run(self, callback: Callable[[], None]) -> None:
        """One at a time, in a thread of its own."""
        if self._callbacks is None:
            from concurrent.futures import ThreadPoolExecutor

            self._callbacks = ThreadPoolExecutor(1, "coordination-callbacks")
        self._callbacks.submit(callback)

    def _failed(self, error: Exception) -> None:
        self._report(f"a coordination callback failed: {''.join(format_exception(error))}")

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this coordination session is closed")
