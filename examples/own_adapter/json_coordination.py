"""A coordination adapter outside of Barnabas: the tree of one broker in a JSON file that people can read.

It leans on `barnabas.core.tree`, which has the rules of the tree as plain data, and on what calls watches; the adapter
adds what keeps nodes, a lock and a thread. Every write replaces the whole file: good for some hundred nodes.
"""

import base64
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import RLock
from traceback import format_exception

from barnabas import ClosedError
from barnabas.adapters.watch_delivery import WatchDelivery
from barnabas.core.tree.tree import Change, Put, Tree, check_path
from barnabas.ports.coordination import Cancel, CoordinationError, Node, NodeChange, SessionState

_US = 1
"""The owner of ephemeral nodes. They are not in the file: the session lasts as long as the process."""


class JsonCoordination:
    """Fulfils `Coordination`. Only one may be open on a file at a time."""

    blocking = True  # writes wait for the disk, so calls do not belong on a reactor

    def __init__(self, path: Path, report: Callable[[str], object] = sys.stderr.write) -> None:
        self._path = path
        self._report = report
        self._tree = Tree()
        self._stored: dict[str, tuple[str, int]] = {}
        self._lock = RLock()
        self._callbacks = ThreadPoolExecutor(1, "json-coordination")
        self._delivery = WatchDelivery(self._lock, self._call_later, self._failed)
        self._closed = False
        if path.exists():
            try:
                self._stored = {each: (data, version) for each, (data, version) in json.loads(path.read_text()).items()}
                self._tree.restore(
                    (each, base64.b64decode(data, validate=True), v) for each, (data, v) in self._stored.items()
                )
            except (OSError, ValueError, TypeError, AttributeError) as error:
                raise CoordinationError(
                    f"{path} cannot be used: {error}; move it away to start with an empty tree"
                ) from error

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        with self._open():
            self._change(self._tree.plan_create(path, data, _US if ephemeral else None))

    def get(self, path: str) -> Node:
        with self._open():
            return self._tree.get(path)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        with self._open():
            return self._tree.get_many(paths)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        with self._open():
            plan = self._tree.plan_set(path, data, version)
            self._change(plan)
            return plan[-1].version

    def delete(self, path: str, *, version: int | None = None) -> None:
        with self._open():
            self._change(self._tree.plan_delete(path, version))

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        with self._open():
            self._change(self._tree.plan_commit(changes, guards or {}))

    def children(self, path: str) -> list[str]:
        with self._open():
            return self._tree.children(path)

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        check_path(path)
        with self._open():
            return partial(self._delivery.cancel, self._delivery.watch(path, changed))

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        check_path(path)
        with self._open():
            return partial(self._delivery.cancel, self._delivery.watch_below(path, changed))

    def heartbeat(self) -> float:
        with self._open():
            return math.inf  # the session of an open file never ends

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        with self._open():
            return partial(self._delivery.cancel, self._delivery.add_session_listener(on_state_changed))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._delivery.close()
        self._callbacks.shutdown(wait=False)  # a callback may be waiting for the caller

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise ClosedError("this coordination session is closed")
            yield

    def _change(self, plan: Sequence[Change]) -> None:
        """First the file, then the tree: a write that fails has changed nothing."""
        stored = dict(self._stored)
        for change in plan:
            if not isinstance(change, Put):
                stored.pop(change.path, None)
            elif change.owner is None:
                stored[change.path] = (base64.b64encode(change.data).decode(), change.version)
        if stored != self._stored:
            self._write(stored)
            self._stored = stored
        self._delivery.touch(self._tree.apply(plan))

    def _write(self, stored: Mapping[str, tuple[str, int]]) -> None:
        """Replace the file. On return the new one survives a power cut; until then the old one does."""
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump(stored, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise CoordinationError(f"cannot write {self._path.name}: {error.strerror}") from error

    def _call_later(self, callback: Callable[[], None]) -> None:
        self._callbacks.submit(callback)

    def _failed(self, error: Exception) -> None:
        self._report(f"a coordination callback failed: {''.join(format_exception(error))}\n")
