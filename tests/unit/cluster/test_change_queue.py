from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.coordination_faults import BlockingCoordination

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.cluster.change_queue import (
    ChangeQueue,
    Changing,
    complete,
    elsewhere,
    is_unreachable,
    on_disk,
    on_disk_together,
)
from barnabas.ports.coordination import CoordinationError, NoNode, SessionExpired
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ClosedError
from barnabas.ports.scheduler import Outcome


class House:
    """A queue, and what happened in it."""

    def __init__(self, *, blocking: bool) -> None:
        self.scheduler = ManualScheduler(ManualClock())
        session = MemoryTree().session()
        self.queue = ChangeQueue(self.scheduler, BlockingCoordination(session) if blocking else session)
        self.seen: list[str] = []
        self.outcomes: dict[str, Outcome[Any]] = {}

    def run(self, name: str, *works: Callable[[], object]) -> None:
        self.queue.run(lambda: self.change(name, *works), lambda outcome: self.done(name, outcome))

    async def change(self, name: str, *works: Callable[[], object]) -> list[object]:
        self.seen.append(f"{name} begins")
        got = [await elsewhere(work) for work in works]
        self.seen.append(f"{name} ends")
        return got

    def done(self, name: str, outcome: Outcome[Any]) -> None:
        self.outcomes[name] = outcome

    def fails(self, error: Exception) -> Callable[[], object]:
        def work() -> object:
            self.seen.append("a call")
            raise error

        return work


@pytest.fixture(params=[False, True], ids=["quick", "blocking"])
def house(request: pytest.FixtureRequest) -> House:
    return House(blocking=request.param)


def test_changes_are_made_one_after_the_other(house: House) -> None:
    house.run("a", lambda: 1, lambda: 2)
    house.run("b")
    house.run("c", lambda: 3)
    house.scheduler.run_pending()
    assert house.seen == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]
    assert {name: outcome.get() for name, outcome in house.outcomes.items()} == {"a": [1, 2], "b": [], "c": [3]}


def test_calls_that_do_not_block_are_made_at_once() -> None:
    house = House(blocking=False)
    house.run("a", lambda: 1)
    assert house.outcomes["a"].get() == [1]
    assert not house.scheduler.waiting


def test_calls_that_block_are_made_elsewhere() -> None:
    house = House(blocking=True)
    house.run("a", lambda: house.seen.append("a call"))
    house.run("b")
    assert house.seen == ["a begins"]
    house.scheduler.run_pending()
    assert house.seen == ["a begins", "a call", "a ends", "b begins", "b ends"]


def test_an_error_belongs_to_the_change_that_it_happened_in(house: House) -> None:
    async def careful() -> str:
        try:
            await elsewhere(house.fails(NoNode("/x")))
        except NoNode as error:
            return f"caught {error}"
        return "nothing happened"

    house.run("a", house.fails(NoNode("/x")), lambda: 1)
    house.queue.run(careful, lambda outcome: house.done("b", outcome))
    house.run("c", lambda: 3)
    house.scheduler.run_pending()
    assert isinstance(house.outcomes["a"].error, NoNode)
    assert (house.outcomes["b"].get(), house.outcomes["c"].get()) == ("caught /x", [3])


def test_a_change_that_breaks_does_not_stop_the_others(house: House) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    house.queue.run(broken, lambda outcome: house.done("a", outcome))
    house.run("b", house.fails(ZeroDivisionError()))
    house.run("c", lambda: 3)
    house.scheduler.run_pending()
    assert isinstance(house.outcomes["a"].error, ZeroDivisionError)
    assert isinstance(house.outcomes["b"].error, ZeroDivisionError)
    assert house.outcomes["c"].get() == [3]


def test_failing_callback_does_not_stop_later_changes(house: House) -> None:
    def raises(_: Outcome[list[object]]) -> None:
        house.run("c", lambda: 3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        house.queue.run(lambda: house.change("a", lambda: 1), raises)
        house.run("b", lambda: 2)
        house.scheduler.run_pending()
    house.scheduler.run_pending()
    assert house.outcomes["c"].get() == [3]


def test_a_change_may_ask_for_others(house: House) -> None:
    def more(left: int) -> None:
        if left:
            house.queue.run(lambda: house.change("n", lambda: left), lambda _: more(left - 1))

    more(3000)  # deeper than Python's stack
    house.scheduler.run_pending()
    assert house.seen.count("n ends") == 3000


def test_a_service_that_cannot_be_reached_is_asked_once() -> None:
    house = House(blocking=True)

    async def stubborn() -> int:
        refused = 0
        for _ in range(5):
            try:
                await elsewhere(house.fails(CoordinationError("no answer")))
            except CoordinationError:
                refused += 1
        return refused

    house.queue.run(stubborn, lambda outcome: house.done("a", outcome))
    house.run("b", house.fails(CoordinationError("never made")))
    house.scheduler.run_pending()
    assert house.outcomes["a"].get() == 5
    assert str(house.outcomes["b"].error) == "no answer"
    assert house.seen.count("a call") == 1
    house.run("c", lambda: 3)
    house.scheduler.run_pending()
    assert house.outcomes["c"].get() == [3], "what comes later tries again"


def test_a_refusal_says_nothing_about_the_next_call(house: House) -> None:
    house.run("a", house.fails(NoNode("/x")))
    house.run("b", lambda: 2)
    house.scheduler.run_pending()
    assert house.outcomes["b"].get() == [2]
    assert is_unreachable(SessionExpired("x"))
    assert is_unreachable(CoordinationError("x"))
    assert not is_unreachable(NoNode("x"))
    assert not is_unreachable(ApiError(ErrorCode.REQUEST_TIMED_OUT))
    assert not is_unreachable(None)


def test_when_the_scheduler_has_stopped() -> None:
    house = House(blocking=True)
    house.scheduler.stop()
    with pytest.raises(ClosedError):
        house.scheduler.offload(lambda: 1, lambda _: None)
    house.run("a", lambda: 1)
    assert isinstance(house.outcomes["a"].error, ClosedError)


def test_a_change_here_and_now() -> None:
    house = House(blocking=True)
    assert complete(house.change("a", lambda: 1, lambda: 2)) == [1, 2]
    with pytest.raises(NoNode):
        complete(house.change("b", house.fails(NoNode("/x"))))


def test_a_change_within_a_change(house: House) -> None:
    async def inner() -> int:
        return await elsewhere(lambda: 20) + await elsewhere(lambda: 2)

    async def outer() -> int:
        return await inner() + await elsewhere(lambda: 20)

    change: Callable[[], Changing[int]] = outer
    house.queue.run(change, lambda outcome: house.done("a", outcome))
    house.scheduler.run_pending()
    assert house.outcomes["a"].get() == 42


def test_blocking_disk_work_is_always_offloaded(house: House) -> None:
    async def change() -> int:
        return await on_disk(lambda: 7)

    house.queue.run(change, lambda outcome: house.done("a", outcome))
    assert not house.outcomes
    house.scheduler.run_pending()
    assert house.outcomes["a"].get() == 7


def test_an_outage_does_not_keep_from_the_disk() -> None:
    house = House(blocking=True)

    async def change() -> int:
        with suppress(CoordinationError):
            await elsewhere(house.fails(CoordinationError("gone")))
        return await on_disk(lambda: 7)

    house.queue.run(change, lambda outcome: house.done("a", outcome))
    house.scheduler.run_pending()
    assert house.outcomes["a"].get() == 7


def test_closed_queue_makes_no_further_calls(house: House) -> None:
    async def change() -> None:
        await on_disk(lambda: 1)
        await elsewhere(lambda: house.seen.append("a second call"))

    house.queue.run(change, lambda outcome: house.done("a", outcome))
    house.run("b", lambda: house.seen.append("a call"))
    house.queue.close()
    house.scheduler.run_pending()
    assert [type(house.outcomes[name].error) for name in ("a", "b")] == [ClosedError, ClosedError]
    assert house.seen == ["b begins"]


class ByHand(ManualScheduler):
    """Offloaded work waits until it is asked for."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.works: list[tuple[Callable[[], Any], Callable[[Outcome[Any]], None]]] = []
        self.room = 10

    def offload(self, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        if len(self.works) == self.room:
            raise ClosedError("the scheduler stops")
        self.works.append((work, done))

    def work(self, number: int) -> None:
        work, done = self.works[number]
        done(Outcome.of(work))


def _fails() -> None:
    raise CoordinationError("no disk")


def test_works_of_a_disk_run_side_by_side_and_all_are_waited_for() -> None:
    scheduler = ByHand()
    queue = ChangeQueue(scheduler, MemoryTree().session())
    did: list[str] = []
    outcomes: list[Outcome[None]] = []

    async def change() -> None:
        await on_disk_together([lambda: did.append("a"), _fails, lambda: did.append("c")])

    queue.run(change, outcomes.append)
    assert len(scheduler.works) == 3, "none waits for another one"
    for number in (2, 1):
        scheduler.work(number)
    assert not outcomes
    scheduler.work(0)
    assert (did, str(outcomes[0].error)) == (["c", "a"], "no disk")


def test_works_of_a_disk_when_the_scheduler_stops_in_between() -> None:
    scheduler = ByHand()
    scheduler.room = 1
    queue = ChangeQueue(scheduler, MemoryTree().session())
    did: list[str] = []
    outcomes: list[Outcome[None]] = []

    async def change() -> None:
        await on_disk_together([lambda: did.append("a"), lambda: did.append("b")])

    queue.run(change, outcomes.append)
    assert not outcomes, "what runs is waited for"
    scheduler.work(0)
    assert did == ["a"]
    assert isinstance(outcomes[0].error, ClosedError)


def test_works_of_a_disk_here_and_now() -> None:
    did: list[str] = []

    async def change() -> str:
        await on_disk_together([lambda: did.append("a"), lambda: did.append("b")])
        return "done"

    assert complete(change()) == "done"
    assert did == ["a", "b"]
