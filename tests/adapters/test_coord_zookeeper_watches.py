"""The watch requests to ZooKeeper, without a server, while watches are added and removed."""

from collections.abc import Callable
from threading import Lock
from typing import Any, cast

from barnabas.adapters.coord_zookeeper.coordination import Watches, WatchingClient
from barnabas.adapters.watch_delivery import WatchDelivery


class _Result:
    exception = None

    def rawlink(self, _done: Callable[[Any], None]) -> None:
        pass


class _Client:
    """A client that holds the callbacks of each path until the watch fires, as kazoo does."""

    def __init__(self) -> None:
        self.observed: dict[str, set[Callable[..., None]]] = {}
        self.touched: Callable[[str, bool], None] = lambda _path, _came_or_went: None

    def exists_async(self, path: str, *, watch: Callable[..., None]) -> _Result:
        self.observed.setdefault(path, set()).add(watch)
        return _Result()

    get_children_async = exists_async


def test_a_path_that_is_watched_again_and_again_is_remembered_once() -> None:
    client, reports = _Client(), list[str]()
    delivery = WatchDelivery(Lock(), lambda call: call(), lambda error: reports.append(str(error)))
    watches = Watches(cast("WatchingClient", client), "/root", delivery, reports.append)
    for _ in range(5):
        watches.add("/a")
        watches.arm("/a")
        watches.remove("/a")
    watches.add("/b")
    watches.arm("/b")
    assert {path: len(observed) for path, observed in client.observed.items()} == {"/root/a": 1, "/root/b": 1}
    assert not reports
