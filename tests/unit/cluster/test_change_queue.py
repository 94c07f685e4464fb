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
    elsewhere_together,
    is_unreachable,
    on_disk,
    on_disk_together,
    others_turn,
)
from barnabas.ports.coordination import CoordinationError, NoNode, SessionExpired
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ClosedError
from barnabas.ports.scheduler import Outcome


class Harness:
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
def harness(request: pytest.FixtureRequest) -> Harness:
    return Harness(blocking=request.param)


def test_changes_are_made_one_after_the_other(harness: Harness) -> None:
    harness.run("a", lambda: 1, lambda: 2)
    harness.run("b")
    harness.run("c", lambda: 3)
    harness.scheduler.run_pending()
    assert harness.seen == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]
    assert {name: outcome.get() for name, outcome in harness.outcomes.items()} == {"a": [1, 2], "b": [], "c": [3]}


def test_calls_that_do_not_block_are_made_at_once() -> None:
    harness = Harness(blocking=False)
    harness.run("a", lambda: 1)
    assert harness.outcomes["a"].get() == [1]
    assert not harness.scheduler.waiting


def test_calls_that_block_are_made_elsewhere() -> None:
    harness = Harness(blocking=True)
    harness.run("a", lambda: harness.seen.append("a call"))
    harness.run("b")
    assert harness.seen == ["a begins"]
    harness.scheduler.run_pending()
    assert harness.seen == ["a begins", "a call", "a ends", "b begins", "b ends"]


def test_an_error_belongs_to_the_change_that_it_happened_in(harness: Harness) -> None:
    async def careful() -> str:
        try:
            await elsewhere(harness.fails(NoNode("/x")))
        except NoNode as error:
            return f"caught {error}"
        return "nothing happened"

    harness.run("a", harness.fails(NoNode("/x")), lambda: 1)
    harness.queue.run(careful, lambda outcome: harness.done("b", outcome))
    harness.run("c", lambda: 3)
    harness.scheduler.run_pending()
    assert isinstance(harness.outcomes["a"].error, NoNode)
    assert (harness.outcomes["b"].get(), harness.outcomes["c"].get()) == ("caught /x", [3])


def test_a_change_that_breaks_does_not_stop_the_others(harness: Harness) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    harness.queue.run(broken, lambda outcome: harness.done("a", outcome))
    harness.run("b", harness.fails(ZeroDivisionError()))
    harness.run("c", lambda: 3)
    harness.scheduler.run_pending()
    assert isinstance(harness.outcomes["a"].error, ZeroDivisionError)
    assert isinstance(harness.outcomes["b"].error, ZeroDivisionError)
    assert harness.outcomes["c"].get() == [3]


def test_failing_callback_does_not_stop_later_changes(harness: Harness) -> None:
    def raises(_: Outcome[list[object]]) -> None:
        harness.run("c", lambda: 3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        harness.queue.run(lambda: harness.change("a", lambda: 1), raises)
        harness.run("b", lambda: 2)
        harness.scheduler.run_pending()
    harness.scheduler.run_pending()
    assert harness.outcomes["c"].get() == [3]


def test_a_change_may_ask_for_others(harness: Harness) -> None:
    def more(left: int) -> None:
        if left:
            harness.queue.run(lambda: harness.change("n", lambda: left), lambda _: more(left - 1))

    more(3000)  # deeper than Python's stack
    harness.scheduler.run_pending()
    assert harness.seen.count("n ends") == 3000


def test_a_service_that_cannot_be_reached_is_asked_once() -> None:
    harness = Harness(blocking=True)

    async def stubborn() -> int:
        refused = 0
        for _ in range(5):
            try:
                await elsewhere(harness.fails(CoordinationError("no answer")))
            except CoordinationError:
                refused += 1
        return refused

    harness.queue.run(stubborn, lambda outcome: harness.done("a", outcome))
    harness.run("b", harness.fails(CoordinationError("never made")))
    harness.scheduler.run_pending()
    assert harness.outcomes["a"].get() == 5
    assert str(harness.outcomes["b"].error) == "no answer"
    assert harness.seen.count("a call") == 1
    harness.run("c", lambda: 3)
    harness.scheduler.run_pending()
    assert harness.outcomes["c"].get() == [3], "what comes later tries again"


def test_a_refusal_says_nothing_about_the_next_call(harness: Harness) -> None:
    harness.run("a", harness.fails(NoNode("/x")))
    harness.run("b", lambda: 2)
    harness.scheduler.run_pending()
    assert harness.outcomes["b"].get() == [2]
    assert is_unreachable(SessionExpired("x"))
    assert is_unreachable(CoordinationError("x"))
    assert not is_unreachable(NoNode("x"))
    assert not is_unreachable(ApiError(ErrorCode.REQUEST_TIMED_OUT))
    assert not is_unreachable(None)


def test_when_the_scheduler_has_stopped() -> None:
    harness = Harness(blocking=True)
    harness.scheduler.stop()
    with pytest.raises(ClosedError):
        harness.scheduler.offload(lambda: 1, lambda _: None)
    harness.run("a", lambda: 1)
    assert isinstance(harness.outcomes["a"].error, ClosedError)


def test_a_change_here_and_now() -> None:
    harness = Harness(blocking=True)
    assert complete(harness.change("a", lambda: 1, lambda: 2)) == [1, 2]
    with pytest.raises(NoNode):
        complete(harness.change("b", harness.fails(NoNode("/x"))))


def test_a_change_within_a_change(harness: Harness) -> None:
    async def inner() -> int:
        return await elsewhere(lambda: 20) + await elsewhere(lambda: 2)

    async def outer() -> int:
        return await inner() + await elsewhere(lambda: 20)

    change: Callable[[], Changing[int]] = outer
    harness.queue.run(change, lambda outcome: harness.done("a", outcome))
    harness.scheduler.run_pending()
    assert harness.outcomes["a"].get() == 42


def test_blocking_disk_work_is_always_offloaded(harness: Harness) -> None:
    async def change() -> int:
        return await on_disk(lambda: 7)

    harness.queue.run(change, lambda outcome: harness.done("a", outcome))
    assert not harness.outcomes
    harness.scheduler.run_pending()
    assert harness.outcomes["a"].get() == 7


def test_an_outage_does_not_keep_from_the_disk() -> None:
    harness = Harness(blocking=True)

    async def change() -> int:
        with suppress(CoordinationError):
            await elsewhere(harness.fails(CoordinationError("gone")))
        return await on_disk(lambda: 7)

    harness.queue.run(change, lambda outcome: harness.done("a", outcome))
    harness.scheduler.run_pending()
    assert harness.outcomes["a"].get() == 7


def test_closed_queue_makes_no_further_calls(harness: Harness) -> None:
    async def change() -> None:
        await on_disk(lambda: 1)
        await elsewhere(lambda: harness.seen.append("a second call"))

    harness.queue.run(change, lambda outcome: harness.done("a", outcome))
    harness.run("b", lambda: harness.seen.append("a call"))
    harness.queue.close()
    harness.scheduler.run_pending()
    assert [type(harness.outcomes[name].error) for name in ("a", "b")] == [ClosedError, ClosedError]
    assert harness.seen == ["b begins"]


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


def test_calls_together_each_have_an_outcome() -> None:
    scheduler = ByHand()
    queue = ChangeQueue(scheduler, BlockingCoordination(MemoryTree().session()))
    ended: list[Outcome[list[Outcome[int]]]] = []

    async def change() -> list[Outcome[int]]:
        def refused() -> int:
            raise NoNode("/a")

        return await elsewhere_together([lambda: 1, refused, lambda: 3])

    queue.run(change, ended.append)
    for number in (2, 0, 1):
        assert not ended, "all are waited for"
        scheduler.work(number)
    found = ended[0].get()
    assert [each.value for each in found] == [1, None, 3]
    assert [type(each.error) for each in found] == [type(None), NoNode, type(None)]


def test_a_service_that_one_of_several_calls_cannot_reach_is_not_asked_again() -> None:
    scheduler = ByHand()
    queue = ChangeQueue(scheduler, BlockingCoordination(MemoryTree().session()))
    asked: list[str] = []
    errors: list[BaseException | None] = []

    async def first() -> None:
        found = await elsewhere_together([lambda: asked.append("a"), _fails])
        assert [each.error is None for each in found] == [True, False]
        await others_turn()
        await elsewhere(lambda: asked.append("b"))

    async def second() -> None:
        await elsewhere(lambda: asked.append("c"))

    for change in (first, second):
        queue.run(change, lambda outcome: errors.append(outcome.error))
    scheduler.work(0)
    scheduler.work(1)
    scheduler.advance(0)
    assert asked == ["a"]
    assert [type(error) for error in errors] == [CoordinationError, CoordinationError]


def test_others_have_their_turn_before_a_change_continues(harness: Harness) -> None:
    did: list[str] = []

    async def change() -> None:
        did.append("begins")
        await others_turn()
        did.append("ends")

    harness.queue.run(change, lambda _: did.append("done"))
    harness.scheduler.call_soon(lambda: did.append("another"))
    assert did == ["begins"]
    harness.scheduler.advance(0)
    assert did in (["begins", "ends", "done", "another"], ["begins", "another", "ends", "done"])
    assert complete(change()) is None


def test_others_turn_at_the_end_of_the_scheduler() -> None:
    class Stopped(ManualScheduler):
        def call_soon(self, callback: Callable[[], None]) -> None:
            raise ClosedError("the scheduler has stopped")

    queue = ChangeQueue(Stopped(ManualClock()), MemoryTree().session())
    outcomes: list[Outcome[None]] = []

    async def change() -> None:
        await others_turn()

    queue.run(change, outcomes.append)
    assert outcomes[0].error is None
