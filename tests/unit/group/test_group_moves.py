"""Groups whose coordinator moves: what the old one still says and writes, and what members find at the new one."""

from collections.abc import Callable
from typing import Any

import pytest
from support.group_harness import Harness

from barnabas.ports.error_codes import ErrorCode as E

NOT_HERE = E.NOT_COORDINATOR


@pytest.mark.parametrize(
    "ask",
    [
        lambda harness, _: harness.join().error,
        lambda harness, who: harness.sync("g", *who).error,
        lambda harness, who: harness.heartbeat("g", *who),
        lambda harness, who: harness.leave("g", who[0]).error,
        lambda harness, _: harness.commit("g", {("t", 0): 9}).result.partitions[0].error,
        lambda harness, _: harness.fetch_error("g"),
        lambda harness, _: harness.delete_offsets("g", ("t", 0)).error,
        lambda harness, _: harness.describe().error,
        lambda harness, _: harness.delete("g")[0],
    ],
    ids=["join", "sync", "heartbeat", "leave", "commit", "fetch", "delete offsets", "describe", "delete"],
)
def test_a_coordinator_that_was_replaced_says_so_before_it_has_heard_of_it(ask: Callable[[Harness, Any], E]) -> None:
    harness = Harness()
    who = harness.stable()
    harness.commit("g", {("t", 0): 7}, member=who[0], generation=who[1])
    harness.leads = False
    appends = harness.appends
    assert ask(harness, who) is NOT_HERE
    assert harness.appends == appends
    harness.leads = True
    assert harness.heartbeat("g", *who) is E.NONE, "a lease that was late changes nothing"


def test_no_session_ends_while_the_coordinator_may_not_answer() -> None:
    """It has no lease, and refuses what its members would show their lives with."""
    harness = Harness()
    who = harness.stable()
    appends = harness.appends
    harness.leads = False
    for _ in range(600):
        harness.scheduler.advance(1000)
    assert harness.appends == appends, "no member was removed"
    harness.leads = True
    harness.scheduler.advance(1000)
    assert harness.heartbeat("g", *who) is E.NONE
    for _ in range(600):
        harness.scheduler.advance(1000)
    assert harness.heartbeat("g", *who) is E.UNKNOWN_MEMBER_ID, "who is silent from then on is removed"


def test_while_it_reads_too() -> None:
    harness = Harness(load=False)
    harness.leads = False
    harness.coordinator.begin_load(harness.coordinator.partition_of("g"))
    assert harness.heartbeat("g", "m", 1) is NOT_HERE


def test_members_continue_in_same_generation_at_new_coordinator() -> None:
    old = Harness()
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
    old = Harness()
    first, generation = old.stable(metadata=b"m")
    second = old.join("g", metadata=b"m")
    new = old.restarted()
    old.coordinator.unload(old.coordinator.partition_of("g"))
    assert second.error is NOT_HERE
    assert new.heartbeat("g", first, generation) is E.NONE, "no member has joined there"
    second = new.join("g", metadata=b"m")
    assert new.heartbeat("g", first, generation) is E.REBALANCE_IN_PROGRESS
    again = new.join("g", first, metadata=b"m")
    assert second.result.generation_id == again.result.generation_id == generation + 1


def test_nothing_of_an_old_life_is_written_or_timed_later() -> None:
    harness = Harness()
    member, generation = harness.stable()
    harness.hold = True
    harness.leave("g", member)  # the group without members is being written
    partition = harness.coordinator.partition_of("g")
    harness.coordinator.unload(partition)
    written, reports = harness.appends, list(harness.reports)
    harness.finish(E.NOT_LEADER_OR_FOLLOWER)
    harness.pass_time(3_600_000)
    assert (harness.appends, harness.reports) == (written, reports), "that another one coordinates is no failure"
    assert not harness.scheduler.waiting
    loading = harness.coordinator.begin_load(partition)
    for key, value in harness.log[partition]:
        loading.add(key, value)
    harness.coordinator.loaded(loading)
    assert harness.describe().state == "Stable", "what the log has, not what the old life knew"
    assert harness.heartbeat("g", member, generation) is E.NONE


def test_a_group_that_ends_in_the_middle_of_an_event_is_not_written() -> None:
    """A client within the process asks from within its answer, and the answer may be what ends the group."""
    harness = Harness()
    partition = harness.coordinator.partition_of("g")
    joined: list[Any] = []

    def syncs_and_moves(result: Any) -> None:
        joined.append(result)
        harness.sync("g", result.member_id, result.generation_id, {result.member_id: b"all"})
        harness.coordinator.unload(partition)

    harness.join(reply=syncs_and_moves)
    assert joined[0].error is E.NONE
    assert (harness.appends, harness.listed()) == (0, {})
