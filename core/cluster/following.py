"""Following what others change in the coordination tree: watches tell that something changed, and it is read again."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from ...ports.broker_api import Reply
from ...ports.errors import BarnabasError, ClosedError
from ...ports.scheduler import Scheduler
from . import layout
from .brokers import children
from .change_queue import elsewhere
from .registry import ClusterRegistry
from .topics import BrokerRegistration

Reading = Callable[[], Coroutine[Any, Any, None]]
Submit = Callable[[str, Reading, Reply[None]], None]
"""Does a reading when the changes before it are done; the words name it in reports."""

FOLLOW_MS = 200.0
"""What changes within this time is read once: a broker that makes a thousand topics is told a thousand times."""
RETRY_MS = 2000.0


class ClusterFollower:
    """Keeps a registry at what the tree says of the live brokers, of the configs set for this one and for all, and of
    which topics there are. Owner thread only.

    `settle` brings this broker to what the tree says of a topic that is new there. `vanished` is asked about one that
    this broker knows and the tree does no more: True if it may be forgotten. Readings stand in the one queue of
    changes, so none comes between the steps of one.
    """

    def __init__(
        self,
        registry: ClusterRegistry,
        scheduler: Scheduler,
        submit: Submit,
        own: BrokerRegistration,
        *,
        settle: Callable[[str], Coroutine[Any, Any, None]],
        vanished: Callable[[str], bool],
    ) -> None:
        self._registry = registry
        self._scheduler = scheduler
        self._submit = submit
        self._settle = settle
        self._vanished = vanished
        self._readings: dict[str, Reading] = {
            layout.BROKER_IDS: partial(registry.reread_brokers, own),
            layout.broker_config_path(None): partial(registry.reread_configs, None),
            layout.broker_config_path(own.broker_id): partial(registry.reread_configs, own.broker_id),
            layout.TOPICS: self._read_topics,
        }
        self._watched: set[str] = set()
        self._due: set[str] = set()
        self._closed = False

    def begin(self) -> None:
        """Watch from now on; what changed before is found by the first reading."""
        for path in self._readings:
            self._read_later(path, 0.0)

    def close(self) -> None:
        """Follow no more; the watches end with the session."""
        self._closed = True

    def _told(self, path: str) -> None:
        """From a thread of the adapter."""
        with suppress(ClosedError):  # the broker has gone
            self._scheduler.call_soon(lambda: self._read_later(path, FOLLOW_MS))

    def _read_later(self, path: str, delay_ms: float) -> None:
        if path in self._due or self._closed:
            return
        self._due.add(path)
        self._scheduler.call_later(delay_ms, lambda: self._submit(f"following {path}", reading, done))

        async def reading() -> None:
            self._due.discard(path)  # what changes from here on is read again
            if self._closed:
                return
            if path not in self._watched:
                await elsewhere(partial(self._registry.coordination.watch, path, partial(self._told, path)))
                self._watched.add(path)
            await self._readings[path]()

        def done(result: BarnabasError | None) -> None:
            if result is not None:
                self._due.discard(path)
                self._read_later(path, RETRY_MS)

    async def _read_topics(self) -> None:
        names = await elsewhere(partial(children, self._registry.coordination, layout.TOPICS))
        image = self._registry.image
        known = {*image.topics, *image.deleting, *image.unreadable}
        for name in names:
            if name not in known:
                await self._settle(name)
        for name in sorted(known.difference(names)):
            if name not in image.topics or self._vanished(name):
                await self._registry.reread(name)
