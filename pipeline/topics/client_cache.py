"""Clients that stay connected: between the tasks of a worker process, and between the batches that a driver plans."""

import atexit
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, Protocol, TypeVar

IDLE_CLIENTS_MAX = 8
"""The limit of idle clients of a kind, per process: a worker of a job that reads many clusters keeps the last ones."""
IDLE_S = 60.0
"""The lifetime of an idle client, which is also that of Spark's idle workers; a cluster that moved meanwhile is looked
up again by its bootstrap.
"""


class _Closes(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closes)


class _Idle(NamedTuple, Generic[T]):
    key: Hashable
    since: float
    client: T


class ClientCache(Generic[T]):
    """Idle clients, the most recently used one at the end. Callable from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[_Idle[T]] = []
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    @contextmanager
    def opened(self, key: Hashable, make: Callable[[], T]) -> Iterator[T]:
        """A client for this caller alone: one that is kept under exactly this key, else a new one.

        The key has all that `make` makes it of. It is kept afterwards, unless the caller raises: then it is closed,
        whatever state it is in.
        """
        client = self._pop_idle(key) or make()
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self._give(key, client)

    def close(self) -> None:
        """Close the idle clients."""
        with self._lock:
            gone, self._idle = self._idle, []
        for each in gone:
            each.client.close()

    def _pop_idle(self, key: Hashable) -> T | None:
        too_old = self._clock() - IDLE_S
        with self._lock:
            gone = [each for each in self._idle if each.since < too_old]
            fresh = [each for each in self._idle if each.since >= too_old]
            found = next((each for each in reversed(fresh) if each.key == key), None)
            self._idle = [each for each in fresh if each is not found]
        for each in gone:
            each.client.close()
        return None if found is None else found.client

    def _give(self, key: Hashable, client: T) -> None:
        with self._lock:
            self._idle.append(_Idle(key, self._clock(), client))
            gone, self._idle = self._idle[:-IDLE_CLIENTS_MAX], self._idle[-IDLE_CLIENTS_MAX:]
        for each in gone:
            each.client.close()

    def _forget(self) -> None:
        """Drop the clients in a forked process: they are the parent's."""
        self._lock = threading.Lock()
        self._idle = []
