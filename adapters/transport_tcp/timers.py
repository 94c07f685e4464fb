"""Callbacks that wait for their time, on one heap."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

Callback = Callable[[], None]

_SWEEP_AT = 128
"""Cancelled timers stay on the heap until their time, unless more than this many, and half of the heap, are so."""


class HeapTimer:
    """One waiting callback; `cancel` drops what it refers to at once."""

    __slots__ = ("_timers", "callback")

    def __init__(self, timers: "Timers", callback: Callback) -> None:
        self._timers: Timers | None = timers
        self.callback: Callback | None = callback
        """None when it was cancelled or taken."""

    def cancel(self) -> None:
        """Forget the callback; harmless when it has already run."""
        if self.callback is not None:
            self.callback = None
            if self._timers is not None:
                self._timers.note_cancelled()

    def leave_heap(self) -> None:
        """Stop counting as a waiting timer."""
        self._timers = None

    def take_callback(self) -> Callback | None:
        """Return the callback, once; None when it was cancelled or taken."""
        callback, self.callback = self.callback, None
        return callback


class Timers:
    """Timers in the order of their time; those of one time in the order they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, HeapTimer]] = []
        self._added = 0
        self._cancelled = 0

    def __len__(self) -> int:
        """Return the number of waiting timers, without the cancelled ones."""
        return len(self._heap) - self._cancelled

    def add(self, due: float, callback: Callback) -> HeapTimer:
        """Let `callback` wait until `due`, in seconds of the caller's clock."""
        timer = HeapTimer(self, callback)
        self._added += 1
        heappush(self._heap, (due, self._added, timer))
        return timer

    def next_due(self) -> float | None:
        """Return when the first timer is due; None without timers."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> list[HeapTimer]:
        """Take the timers that are due. The caller gets each callback with `take`: one timer may cancel another."""
        heap, due = self._heap, []
        while heap and heap[0][0] <= now:
            timer = heappop(heap)[2]
            if timer.callback is None:
                self._cancelled -= 1
            else:
                timer.leave_heap()
                due.append(timer)
        return due

    def note_cancelled(self) -> None:
        """A timer on the heap was cancelled."""
        self._cancelled += 1
        if self._cancelled > _SWEEP_AT and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._cancelled = 0

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
        self._cancelled = 0
