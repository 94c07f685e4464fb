"""One broker's tree: nodes in memory, persistent ones also in the file."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from traceback import format_exc

from ...core.cluster.tree import Change, Put, Remove, Tree, check_path
from ...core.cluster.watchers import Watchers
from ...ports.coordination import Cancel, CoordinationError, Node, SessionState
from ...ports.errors import ClosedError
from .callbacks import CallbackThread
from .store import NodeStore

_THIS_PROCESS = 1


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


class EmbeddedCoordination:
    """Fulfils `ports.coordination.Coordination` with a file; the session lasts as long as the file is open.

    Reads come from memory. A write waits for the disk (about a millisecond), not for a network, so it may be called on
    the reactor. Ephemeral nodes live in memory only: those of a process that died are gone at the next opening.
    `deliver` runs callbacks one at a time, later; by default a thread does. `report` is told of a callback that raised.
    """

    blocking = False

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
            raise CoordinationError(f"the coordination file {path} is damaged: {error}") from error
        self._lock = Lock()
        self._watchers = Watchers()
        self._report = report
        self._thread = CallbackThread("coordination-callbacks")
        self._deliver = self._thread if deliver is None else deliver
        self._delivering = False
        self._closed = False

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        with self._lock:
            self._check_open()
            self._change(self._nodes.plan_create(path, data, _THIS_PROCESS if ephemeral else None))

    def get(self, path: str) -> Node:
        with self._lock:
            self._check_open()
            return self._nodes.get(path)

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

    def children(self, path: str) -> list[str]:
        with self._lock:
            self._check_open()
            return self._nodes.children(path)

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        check_path(path)
        with self._lock:
            self._check_open()
            return partial(self._cancel, self._watchers.watch(path, changed))

    def listen(self, state_changed: Callable[[SessionState], None]) -> Cancel:
        """The session of an open file neither breaks nor expires: listeners are never called."""
        with self._lock:
            self._check_open()
            return partial(self._cancel, self._watchers.listen(state_changed))

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._watchers = Watchers()
            self._store.close()
        self._thread.close()

    def _change(self, changes: Sequence[Put] | Sequence[Remove]) -> None:
        plan: list[Change] = [*changes]
        self._store.save(plan)
        if self._watchers.touch(self._nodes.apply(plan)) and not self._delivering:
            self._delivering = True
            try:
                self._deliver(self._tell)
            except ClosedError as error:  # the scheduler behind it has stopped: whom to tell is gone, the change stands
                self._report(f"coordination callbacks are no longer told: {error}")

    def _tell(self) -> None:
        while True:
            with self._lock:
                call = self._watchers.next_call()
                if call is None:
                    self._delivering = False
                    return
            try:
                call()
            except Exception:  # noqa: BLE001  a watcher's fault must not silence the others: reported, with its traceback
                self._report(f"a coordination callback failed: {format_exc()}")

    def _cancel(self, token: int) -> None:
        with self._lock:
            self._watchers.remove(token)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this coordination session is closed")
