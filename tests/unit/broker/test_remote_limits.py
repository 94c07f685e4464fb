"""Limits of remote storage: the time for a look-up, and rates (KIP-956)."""

from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.app.broker.handlers.log_offsets import ListOffsetsService
from barnabas.app.broker.state.tiering import _OneATurn, _Rate
from barnabas.ports.broker_api.offsets import ListOffsets, ListOffsetsPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError


class SlowTiering:
    """Answers look-ups when the test says so."""

    lookup_wait_ms = 100.0

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def find_first_at(self, _partition: object, _timestamp: int, done: Any) -> None:
        self.waiting.append(done)


def test_look_up_that_the_store_does_not_answer_times_out_and_others_are_answered() -> None:
    scheduler, tiering = ManualScheduler(ManualClock()), SlowTiering()
    partition = SimpleNamespace(log=SimpleNamespace(local_log_start_offset=5, log_start_offset=0))
    state: Any = SimpleNamespace(
        tiering=tiering,
        scheduler=scheduler,
        replicas=SimpleNamespace(partitions={("t", number): partition for number in range(2)}),
    )
    request = ListOffsets(
        partitions=[ListOffsetsPartition(topic="t", partition=number, timestamp=7) for number in range(2)]
    )
    came: list[dict[int, Any]] = []
    ListOffsetsService(state)._with_remote(request, came.append)
    tiering.waiting[1]("found")
    scheduler.advance(99)
    assert not came
    scheduler.advance(2)
    (found,) = came
    assert found[1] == "found"
    assert isinstance(found[0], ApiError)
    assert found[0].code is ErrorCode.REQUEST_TIMED_OUT
    tiering.waiting[0]("late")
    assert len(came) == 1


def test_work_waits_for_what_was_reserved_before_it() -> None:
    clock = ManualClock()
    rate = _Rate(clock, 1_000)
    assert [rate.reserve_ms(6_000), rate.reserve_ms(1_000), rate.reserve_ms(0)] == [0, 6_000, 7_000]
    clock.advance(6_500)
    assert rate.reserve_ms(0) == 500
    clock.advance(60_000)
    assert [rate.reserve_ms(100), rate.reserve_ms(0)] == [0, 100]  # a pause is no credit


@pytest.mark.parametrize("size", [7, 700, 70_000])
def test_rate_of_large_and_small_segments_stays_below_limit(size: int) -> None:
    clock = ManualClock()
    rate = _Rate(clock, 1_000)
    began_ms = clock.monotonic_ms()
    total = 0
    while total < 1_000_000:
        clock.advance(rate.reserve_ms(size))
        total += size
    took_ms = clock.monotonic_ms() - began_ms + rate.reserve_ms(0)
    assert took_ms == pytest.approx(total)


def test_turn_of_the_owner_has_one_piece_of_the_work_that_came_together() -> None:
    scheduler = ManualScheduler(ManualClock())
    reads = _OneATurn(scheduler)
    done: list[object] = []
    after_each: list[int] = []
    scheduler.after_each = lambda: after_each.append(len(done))

    def came() -> None:
        for number in range(4):
            reads.run(partial(done.append, number))
        scheduler.call_soon(lambda: done.append("another client"))

    scheduler.call_soon(came)
    scheduler.run_pending()
    assert done == [0, 1, "another client", 2, 3]
    assert after_each == [1, 2, 3, 4, 5, 5]
    reads.run(lambda: done.append(4))
    assert done[-1] == 4, "work waits though nothing was before it"


def test_work_that_fails_does_not_keep_later_work_from_its_turn() -> None:
    scheduler = ManualScheduler(ManualClock(), report=lambda _: None)
    reads = _OneATurn(scheduler)
    done: list[object] = []

    def fail() -> None:
        raise RuntimeError("a read fails")

    def came() -> None:
        for work in (fail, fail, lambda: done.append("later")):
            with suppress(RuntimeError):
                reads.run(work)

    scheduler.call_soon(came)
    scheduler.run_pending()
    assert done == ["later"]
