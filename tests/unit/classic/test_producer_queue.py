"""When the batches of an asynchronous classic producer go out."""

from collections.abc import Sequence
from contextlib import nullcontext

from barnabas.app.clients.classic.producer import RunDispatch, RunQueue
from barnabas.core.classic.producer.run import Run
from barnabas.core.client.effects import NEVER


class Bench:
    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.room = True
        self.queue = RunQueue(batch_messages=3, queue_ms=10)
        self.part = RunDispatch(self.queue, nullcontext(), self._dispatch, lambda: self.room, lambda: None)
        assert self.part.poll(0).wake_ms == NEVER

    def _dispatch(self, runs: Sequence[Run]) -> None:
        self.batches.append([run.count for run in runs])

    def put(self, *counts: int) -> list[bool]:
        return [self.queue.put(Run("t", [b""] * count, None, None, 0)) for count in counts]


def test_a_full_batch_goes_at_once_and_the_rest_when_its_time_has_come() -> None:
    bench = Bench()
    assert bench.put(1, 1, 1, 1) == [True, False, True, False]
    assert bench.part.poll(5).wake_ms == 15
    assert (bench.batches, bench.queue.waiting) == ([[1, 1, 1]], 1)
    assert bench.part.poll(14).wake_ms == 15
    assert bench.part.poll(15).wake_ms == NEVER
    assert bench.batches == [[1, 1, 1], [1]]


def test_the_time_counts_from_the_last_batch() -> None:
    bench = Bench()
    bench.put(1)
    bench.part.poll(100)
    assert bench.batches == [[1]], "as in 0.7: after a pause the first message goes alone"


def test_runs_stay_whole() -> None:
    bench = Bench()
    bench.put(2, 2, 5, 1, 1)
    bench.queue.hurry = 1
    bench.part.poll(0)
    assert bench.batches == [[2], [2], [5], [1, 1]]


def test_without_room_everything_waits() -> None:
    bench = Bench()
    bench.room = False
    bench.put(5)
    assert bench.part.poll(50).wake_ms == NEVER
    assert (bench.batches, bench.queue.waiting) == ([], 5)
    bench.room = True
    bench.part.poll(50)
    assert bench.batches == [[5]]
