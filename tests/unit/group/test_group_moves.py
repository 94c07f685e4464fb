"""Groups whose coordinator moves: what the old one still says and writes, and what members find at the new one."""

from collections.abc import Callable
from typing import Any

import pytest
from support.group_house import House

from barnabas.ports.error_codes import ErrorCode as E

NOT_HERE = E.NOT_COORDINATOR


@pytest.mark.parametrize(
    "ask",
    [
        lambda house, _: house.join().error,
        lambda house, who: house.sync("g", *who).error,
        lambda house, who: house.heartbeat("g", *who),
        lambda house, who: house.leave("g", who[0]).error,
        lambda house, _: house.commit("g", {("t", 0): 9}).result.partitions[0].error,
        lambda house, _: house.fetch_error("g"),
        lambda house, _: house.delete_offsets("g", ("t", 0)).error,
        lambda house, _: house.describe().error,
        lambda house, _: house.delete("g")[0],
    ],
    ids=["join", "sync", "heartbeat", "leave", "commit", "fetch", "delete offsets", "describe", "delete"],
)
def test_a_coordinator_that_was_replaced_says_so_before_it_has_heard_of_it(ask: Callable[[House, Any], E]) -> None:
    house = House()
    who = house.stable()
    house.commit("g", {("t", 0): 7}, member=who[0], generation=who[1])
    house.leads = False
    appends = house.appends
    assert ask(house, who) is NOT_HERE
    assert house.appends == appends
    house.leads = True
    assert house.heartbeat("g", *who) is E.NONE, "a lease that was late changes nothing"


def test_no_session_ends_while_the_coordinator_may_not_answer() -> None:
    """It has no lease, and refuses what its members would show their lives with."""
    house = House()
    who = house.stable()
    appends = house.appends
    house.leads = False
    for _ in range(600):
        house.scheduler.advance(1000)
    assert house.appends == appends, "no member was removed"
    house.leads = True
    house.scheduler.advance(1000)
    assert house.heartbeat("g", *who) is E.NONE
    for _ in range(600):
        house.scheduler.advance(1000)
    assert house.heartbeat("g", *who) is E.UNKNOWN_MEMBER_ID, "who is silent from then on is removed"


def test_while_it_reads_too() -> None:
    house = House(load=False)
    house.leads = False
    house.coordinator.begin_load(house.coordinator.partition_of("g"))
    assert house.heartbeat("g", "m", 1) is NOT_HERE


def test_members_continue_in_same_generation_at_new_coordinator() -> None:
    old = House()
    member, generation = old.stable(metadata=b"m")
    old.commit("g", {("t", 0): 7}, member=member, generation=generation)
    new = old.restarted()
    old.coordinator.unload(old.coordinator.partition_of("g"))
    assert old.heartbeat("g", member, generation) is NOT_HERE
    assert new.heartbeat("g", member, generation) is E.NONE
    assert new.committed("g") == {("t", 0): 7}
    commit = new.commit("g", {("t", 0): 8}, member=member, generation=generation)
    assert commit.result.partitions[0].error is E.NONE
    assert new.describe().state == "Stable"


def test_a_rebalance_that_the_old_one_had_begun_is_begun_again_at_the_new_one() -> None:
    old = House()
    first, generation = old.stable(metadata=b"m")
    second = old.join("g", metadata=b"m")
    new = old.restarted()
    old.coordinator.unload(old.coordinator.partition_of("g"))
    assert second.error is NOT_HERE
    assert new.heartbeat("g", first, generation) is E.NONE, "nobody has joined there"
    second = new.join("g", metadata=b"m")
    assert new.heartbeat("g", first, generation) is E.REBALANCE_IN_PROGRESS
    again = new.join("g", first, metadata=b"m")
    assert second.result.generation_id == again.result.generation_id == generation + 1


def test_nothing_of_an_old_life_is_written_or_timed_later() -> None:
    house = House()
    member, generation = house.stable()
    house.hold = True
    house.leave("g", member)  # the group without members is being written
    partition = house.coordinator.partition_of("g")
    house.coordinator.unload(partition)
    written, reports = house.appends, list(house.reports)
    house.finish(E.NOT_LEADER_OR_FOLLOWER)
    house.pass_time(3_600_000)
    assert (house.appends, house.reports) == (written, reports), "that another one coordinates is no failure"
    assert not house.scheduler.waiting
    loading = house.coordinator.begin_load(partition)
    for key, value in house.log[partition]:
        loading.add(key, value)
    house.coordinator.loaded(loading)
    assert house.describe().state == "Stable", "what the log has, not what the old life knew"
    assert house.heartbeat("g", member, generation) is E.NONE


def test_a_group_that_ends_in_the_middle_of_an_event_is_not_written() -> None:
    """A client within the process asks from within its answer, and the answer may be what ends the group."""
    house = House()
    partition = house.coordinator.partition_of("g")
    joined: list[Any] = []

    def syncs_and_moves(result: Any) -> None:
        joined.append(result)
        house.sync("g", result.member_id, result.generation_id, {result.member_id: b"all"})
        house.coordinator.unload(partition)

    house.join(reply=syncs_and_moves)
    assert joined[0].error is E.NONE
    assert (house.appends, house.listed()) == (0, {})
