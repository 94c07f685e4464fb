"""ZooKeeper's watches: one-shot ones, set again each time they fire, and recursive ones, which stay."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.protocol.states import EventType, WatchedEvent

from ...core.tree.tree import is_at_or_below, is_path
from ...ports.values import frozen
from ..watch_delivery import WatchDelivery
from .watching_client import WatchingClient

_LOST = (kazoo.ConnectionLoss, kazoo.ConnectionClosedError, kazoo.SessionExpiredError)
"""The errors after which a new connection or session arms everything again."""
_HARMLESS = (kazoo.NoNodeError, *_LOST)
"""A missing node has no children to watch."""


@frozen
class _Fired:
    """Called when something happens to a path. Two of one path are equal: kazoo remembers each that differs until the
    path fires, and it may be watched again and again before that."""

    path: str
    on_event: Callable[[str, WatchedEvent], None]

    def __call__(self, event: WatchedEvent) -> None:
        self.on_event(self.path, event)


class Watches:
    """The watches of each wanted path: one on the node and one on its children (two kinds in ZooKeeper).

    A watch is set again before the callback of its path runs, so a callback that reads misses no later change.
    Watches die with their connection: call `arm_all` after each new one.

    Paths below which all is watched are roots. Only the watch of a root reports changes at and below it: before
    ZooKeeper 3.9 a one-shot watch would take the place of a recursive one at the same path (ZOOKEEPER-4466).
    """

    def __init__(
        self, client: WatchingClient, prefix: str, delivery: WatchDelivery, report: Callable[[str], None]
    ) -> None:
        self._client = client
        client.touched = self._on_event
        self._prefix = prefix
        self._delivery = delivery
        self._report = report
        self._lock = Lock()
        self._wanted: Counter[str] = Counter()
        self._fired: dict[str, _Fired] = {}
        self._roots: Counter[str] = Counter()
        self._refused: set[str] = set()

    def add(self, path: str) -> None:
        """Want changes of `path`, from the next `arm` or `arm_all` on."""
        with self._lock:
            self._wanted[path] += 1
            self._fired.setdefault(path, _Fired(path, self._on_fired))

    def remove(self, path: str) -> None:
        """Undo one `add`. The last watch on the server stays until it fires."""
        with self._lock:
            self._wanted[path] -= 1
            if not self._wanted[path]:
                del self._wanted[path], self._fired[path]

    def add_below(self, root: str) -> None:
        """Want changes of `root` and all below, from the next `arm_below` or `arm_all` on."""
        with self._lock:
            self._roots[root] += 1

    def remove_below(self, root: str) -> None:
        """Undo one `add_below`. The last watch on the server stays with the connection."""
        with self._lock:
            self._roots[root] -= 1
            if self._roots[root]:
                return
            del self._roots[root]
            self._refused.discard(root)
        self._arm_those_at_or_below(root)

    def arm(self, path: str) -> Any:
        """Set the watches of one path that was added; returns kazoo's result to wait for: later changes are reported.

        None for a path below a root.
        """
        with self._lock:
            fired = self._fired[path]
            if self._is_covered(path):
                return None
        return self._arm(path, fired, notify=False)

    def arm_below(self, root: str, *, notify: bool = True) -> Any:
        """Set the watch of a root; returns kazoo's result to wait for. `notify`: report all as changed."""
        result = self._client.watch_below_async(self._prefix + root)
        result.rawlink(partial(self._on_armed_below, root, notify))
        return result

    def arm_all(self) -> None:
        """Set all watches on a new connection; each path and root is reported once it is watched."""
        with self._lock:
            self._refused.clear()
            roots = list(self._roots)
            wanted = [(path, fired) for path, fired in self._fired.items() if not self._is_covered(path)]
        for root in roots:
            self.arm_below(root)
        for path, fired in wanted:
            self._arm(path, fired)

    def _on_event(self, path: str, came_or_went: bool) -> None:
        """Deliver an event on the thread of the connection, so that changes come in their order."""
        if not path.startswith(f"{self._prefix}/"):
            return
        path = path[len(self._prefix) :]
        with self._lock:
            covered = self._is_covered(path)
        if covered and is_path(path):  # else its one-shot watch reports it
            self._delivery.touch({path: came_or_went})

    def _is_covered(self, path: str) -> bool:
        return any(is_at_or_below(path, root) for root in self._roots if root not in self._refused)

    def _on_fired(self, path: str, event: WatchedEvent) -> None:
        with self._lock:
            fired = self._fired.get(path)
            covered = self._is_covered(path)
        if event.type == EventType.NONE or fired is None:  # NONE: kazoo forgets its watches with the connection
            return
        if covered:
            self._delivery.touch_path(path)
        else:
            self._arm(path, fired)

    def _arm(self, path: str, fired: _Fired, *, notify: bool = True) -> Any:
        full = self._prefix + path
        node = self._client.exists_async(full, watch=fired)
        node.rawlink(partial(self._check, path))
        children = self._client.get_children_async(full, watch=fired)
        # Answers come in the order of the requests: with the second, both watches stand.
        children.rawlink(partial(self._on_armed, path, notify))
        return children

    def _arm_those_at_or_below(self, root: str) -> None:
        """Each path for itself, as the watch of the root reports no changes."""
        with self._lock:
            bare = [each for each in self._fired.items() if is_at_or_below(each[0], root)]
            bare = [(path, fired) for path, fired in bare if not self._is_covered(path)]
        for path, fired in bare:
            self._arm(path, fired)

    def _on_armed(self, path: str, notify: bool, result: Any) -> None:
        self._check(path, result)
        if notify:
            self._delivery.touch_path(path)

    def _on_armed_below(self, root: str, notify: bool, result: Any) -> None:
        if isinstance(result.exception, _LOST):
            return
        if result.exception is not None:
            with self._lock:
                if root in self._roots:
                    self._refused.add(root)
            if notify:  # else the caller gets the error
                self._check(root, result)
            self._arm_those_at_or_below(root)
        if notify:
            self._delivery.touch_below(root)
        with self._lock:
            below = [path for path in self._fired if is_at_or_below(path, root)]
        for path in below:  # they may have been added while the watch of the root was on its way
            self._delivery.touch_path(path)

    def _check(self, path: str, result: Any) -> None:
        error = result.exception
        if error is not None and not isinstance(error, _HARMLESS):
            self._report(f"changes of {path} cannot be watched: ZooKeeper refused: {type(error).__name__} {error}")
