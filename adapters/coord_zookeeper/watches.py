"""ZooKeeper's one-shot watches, set again each time they fire."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, WatchedEvent

_HARMLESS = (kazoo.NoNodeError, kazoo.ConnectionLoss, kazoo.SessionExpiredError)
"""A missing node has no children to watch; after a lost connection or session everything is armed again."""


class Watches:
    """For each wanted path a watch on the node and one on its children (two kinds in ZooKeeper).

    A watch is armed again before `changed(path)` is called, so a reader who is told never misses a later change.
    Watches die with their connection: call `arm_all` after each new one.
    """

    def __init__(
        self, client: KazooClient, prefix: str, changed: Callable[[str], None], report: Callable[[str], None]
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._changed = changed
        self._report = report
        self._lock = Lock()
        self._wanted: Counter[str] = Counter()
        self._fired: dict[str, Callable[[WatchedEvent], None]] = {}

    def add(self, path: str) -> None:
        """Want changes of `path`, from the next `arm` or `arm_all` on."""
        with self._lock:
            self._wanted[path] += 1
            self._fired.setdefault(path, partial(self._on_fired, path))

    def remove(self, path: str) -> None:
        """Undo one `add`. The last watch on the server stays until it fires."""
        with self._lock:
            self._wanted[path] -= 1
            if not self._wanted[path]:
                del self._wanted[path], self._fired[path]

    def arm(self, path: str) -> Any:
        """Set the watches of one path that was added; returns kazoo's result to wait for: changes after it are told."""
        with self._lock:
            fired = self._fired[path]
        return self._arm(path, fired, tell=False)

    def arm_all(self) -> None:
        """Set all watches on a new connection; `changed` is called for each path once it is watched."""
        with self._lock:
            wanted = list(self._fired.items())
        for path, fired in wanted:
            self._arm(path, fired)

    def _on_fired(self, path: str, event: WatchedEvent) -> None:
        with self._lock:
            fired = self._fired.get(path)
        if event.type != EventType.NONE and fired is not None:  # NONE: kazoo forgets its watches with the connection
            self._arm(path, fired)

    def _arm(self, path: str, fired: Callable[[WatchedEvent], None], *, tell: bool = True) -> Any:
        full = self._prefix + path
        node = self._client.exists_async(full, watch=fired)
        node.rawlink(partial(self._check, path))
        children = self._client.get_children_async(full, watch=fired)
        # Answers come in the order of the requests: with the second, both watches stand.
        children.rawlink(partial(self._on_armed, path, tell))
        return children

    def _on_armed(self, path: str, tell: bool, result: Any) -> None:
        self._check(path, result)
        if tell:
            self._changed(path)

    def _check(self, path: str, result: Any) -> None:
        error = result.exception
        if error is not None and not isinstance(error, _HARMLESS):
            self._report(f"changes of {path} cannot be watched: ZooKeeper refused: {type(error).__name__} {error}")
