"""Deadlines that mostly move on before they are due: a heartbeat costs one entry in a dict."""

from heapq import heapify, heappop, heappush
from math import inf

Key = tuple[int, str]
_SPARE = 64


class Deadlines:
    """Times by key. A key has at most one time; the heap may hold older, earlier ones, that are put right when due."""

    __slots__ = ("_heap", "_queued", "_times")

    def __init__(self) -> None:
        self._times: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._queued: dict[Key, float] = {}
        """The earliest entry of each key in the heap."""

    def __contains__(self, key: Key) -> bool:
        return key in self._times

    def get(self, key: Key) -> float:
        """Return the time of a key; infinite when it has none."""
        return self._times.get(key, inf)

    def set(self, key: Key, at_ms: float) -> None:
        """Give the key this time instead of what it had."""
        self._times[key] = at_ms
        if at_ms < self._queued.get(key, inf):
            self._push(key, at_ms)

    def drop(self, key: Key) -> None:
        """Remove the time of the key."""
        self._times.pop(key, None)

    def clear(self) -> None:
        self._times.clear()
        self._queued.clear()
        self._heap.clear()

    def next_ms(self) -> float | None:
        """When to call `due` again: at or before the first time; None when there is nothing to wait for."""
        while self._heap:
            at_ms, key = self._heap[0]
            if self._queued.get(key) == at_ms and key in self._times:
                return at_ms
            self._pop()
        return None

    def due(self, now_ms: float) -> list[Key]:
        """Take out the keys whose time has come, in the order of time, then of the keys."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            current, key = self._pop()
            at_ms = self._times.get(key)
            if not current or at_ms is None:
                continue
            if at_ms <= now_ms:
                del self._times[key]
                found.append((at_ms, key))
            else:
                self._push(key, at_ms)
        return [key for _, key in sorted(found)]

    def _push(self, key: Key, at_ms: float) -> None:
        self._queued[key] = at_ms
        heappush(self._heap, (at_ms, key))
        if len(self._heap) > 2 * len(self._times) + _SPARE:
            self._tidy()

    def _tidy(self) -> None:
        """Rebuild the heap without dropped entries. They would otherwise stay there until their time, which for a
        member id that was given out may be half an hour."""
        self._queued = dict(self._times)
        self._heap = [(at_ms, key) for key, at_ms in self._times.items()]
        heapify(self._heap)

    def _pop(self) -> tuple[bool, Key]:
        """Take the first entry; return whether it is the current one of its key, and the key."""
        at_ms, key = heappop(self._heap)
        current = self._queued.get(key) == at_ms
        if current:
            del self._queued[key]
        return current, key
