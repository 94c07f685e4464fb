"""Polling of sockets: epoll itself on Linux, `selectors` elsewhere.

`selectors` makes a key, a mask and a list of them in Python for each call: a thirtieth of what a small request costs.
"""

import select
import selectors
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

WhenReady = Callable[[int], None]
"""A callback that receives READ, WRITE, or both."""

_EVENTS_MAX = 1024
"""One call returns at most this many events; the next call returns the others."""


class Poller(Protocol):
    """Descriptors, the events awaited of each, and their callbacks."""

    def __len__(self) -> int: ...

    def watch(self, descriptor: int, interest: int, ready: WhenReady) -> None:
        """Watch a descriptor for `interest` from now on; 0 ends the watch."""
        ...

    def poll(self, seconds: float | None) -> list[tuple[WhenReady, int]]:
        """Wait for the first events; None: without a limit. The callbacks are looked up now: while they run, a
        descriptor may come to belong to another socket."""
        ...

    def close(self) -> None: ...


class _EpollPoller:
    """Fulfils `Poller`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._but_in, self._but_out = ~select.EPOLLIN, ~select.EPOLLOUT
        self._watched: dict[int, tuple[int, WhenReady]] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, descriptor: int, interest: int, ready: WhenReady) -> None:
        wanted = (select.EPOLLIN if interest & READ else 0) | (select.EPOLLOUT if interest & WRITE else 0)
        if not interest:
            if self._watched.pop(descriptor, None) is not None:
                with suppress(OSError):  # the socket is closed, which has ended it
                    self._epoll.unregister(descriptor)
            return
        if descriptor in self._watched:
            self._epoll.modify(descriptor, wanted)
        else:
            self._epoll.register(descriptor, wanted)
        self._watched[descriptor] = (interest, ready)

    def poll(self, seconds: float | None) -> list[tuple[WhenReady, int]]:
        ready_events = []
        but_in, but_out = self._but_in, self._but_out
        for descriptor, event in self._epoll.poll(-1 if seconds is None else seconds, _EVENTS_MAX):
            watched = self._watched.get(descriptor)
            if watched is not None:
                interest, ready = watched
                # An error or a hang-up counts as every event that the callback waits for.
                found = (READ if event & but_out else 0) | (WRITE if event & but_in else 0)
                ready_events.append((ready, found & interest))
        return ready_events

    def close(self) -> None:
        self._watched.clear()
        self._epoll.close()


class _SelectorPoller:
    """Fulfils `Poller`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def __len__(self) -> int:
        return len(self._selector.get_map() or ())

    def watch(self, descriptor: int, interest: int, ready: WhenReady) -> None:
        known = descriptor in self._selector.get_map()
        if not interest:
            if known:
                self._selector.unregister(descriptor)
        elif known:
            self._selector.modify(descriptor, interest, ready)
        else:
            self._selector.register(descriptor, interest, ready)

    def poll(self, seconds: float | None) -> list[tuple[WhenReady, int]]:
        return [(key.data, events) for key, events in self._selector.select(seconds)]

    def close(self) -> None:
        self._selector.close()


def make_poller(platform: str = sys.platform) -> Poller:
    """Return the fastest poller of this platform."""
    return _EpollPoller() if platform == "linux" else _SelectorPoller()
