"""Commits and committed positions of members, and of consumers whose partitions were assigned by hand."""

from typing import Any

import pytest
from attrs import evolve
from support.group_world import World
from support.plain_cluster import id_of

from barnabas.core.client.errors import ClientTimeout
from barnabas.core.client.group.events import Assigned, CommittedOffset, Lost
from barnabas.ports.broker_api.groups import (
    FetchedGroup,
    FetchedOffset,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
    PartitionOutcome,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

T = [TopicPartition("t", number) for number in range(4)]


def refusal(code: ErrorCode) -> Any:
    return lambda request: OffsetCommitResult(
        partitions=[PartitionOutcome(each.topic, each.partition, code) for each in request.partitions]
    )


def code_of(answers: list[Any]) -> ErrorCode:
    (error,) = answers
    assert isinstance(error, ApiError)
    return error.code


def test_committed_offset_is_the_start_of_the_next_member() -> None:
    world = World(t=2)
    a = world.join("a", "t")
    world.run_until_idle()
    assert a.reads == dict.fromkeys(T[:2])
    done = a.commit({T[1]: 42})
    world.pass_time(20)
    assert done == [None]
    (request,) = world.of(OffsetCommit)
    assert (request.member_id, request.generation_id) == (a.membership.member_id, 1)
    a.leave()
    b = world.join("b", "t")
    world.run_until_idle()
    assert b.reads == {T[0]: None, T[1]: CommittedOffset(42, 7, "by a")}


def test_a_commit_names_the_ids_of_its_topics_and_gives_up_where_the_coordinator_has_others() -> None:
    world = World(t=1)
    a = world.join("a", "t")
    world.run_until_idle()
    for _ in range(20):
        world.once(OffsetCommit, refusal(ErrorCode.UNKNOWN_TOPIC_ID))
    observed: list[Any] = []
    topic_id = id_of("t")
    a.membership.commit({T[0]: CommittedOffset(5, topic_id=topic_id)}, observed.append, deadline_ms=world.now + 60_000)
    world.pass_time(20_000)
    assert code_of(observed) is ErrorCode.UNKNOWN_TOPIC_ID
    requests = world.of(OffsetCommit)
    assert {each.topic_id for request in requests for each in request.partitions} == {topic_id}
    assert 2 < len(requests) < 10


def test_a_static_member_commits_under_its_instance_id() -> None:
    world = World(t=1)
    a = world.join("a", "t", instance="one")
    world.run_until_idle()
    done = a.commit({T[0]: 1})
    world.pass_time(20)
    assert (done, world.of(OffsetCommit)[0].group_instance_id) == ([None], "one")


def test_without_a_subscription_anyone_commits_to_an_empty_group() -> None:
    world = World(t=2)
    a = world.join("a")
    done = a.commit({T[0]: 7})
    world.pass_time(50)
    found = a.committed(*T[:2])
    world.pass_time(50)
    assert (done, found) == ([None], [{T[0]: CommittedOffset(7, 7, "by a"), T[1]: None}])
    (request,) = world.of(OffsetCommit)
    assert (request.member_id, request.generation_id) == ("", -1)
    assert not world.of(JoinGroup)


def test_manual_commit_to_group_with_members_gets_unknown_member_id() -> None:
    world = World(t=1)
    world.join("a", "t")
    world.run_until_idle()
    b = world.join("b")
    done = b.commit({T[0]: 7})
    world.pass_time(50)
    assert code_of(done) is ErrorCode.UNKNOWN_MEMBER_ID
    assert "assigned by hand" in str(done[0])


def test_nothing_is_committed_at_once() -> None:
    a = World(t=1).join("a")
    assert (a.commit({}), a.committed()) == ([None], [{}])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_retriable_commit_error_is_retried(code: ErrorCode) -> None:
    world = World(t=1)
    a = world.join("a", "t")
    world.run_until_idle()
    world.once(OffsetCommit, refusal(code))
    world.once(OffsetCommit, TransportError("cut"))
    done = a.commit({T[0]: 9})
    world.pass_time(1_000)
    assert (done, world.harness.committed("g", T[0])) == ([None], {T[0]: 9})
    world.once(OffsetCommit, refusal(code))
    once = a.commit({T[0]: 10}, retry=False)
    world.pass_time(20)
    assert code_of(once) is code
    assert a.events == a.of(Assigned)


def test_commit_is_retried_until_time_limit() -> None:
    world = World(t=1)
    a = world.join("a", "t")
    world.run_until_idle()
    world.scripts.append(
        lambda _, request: (
            refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)(request) if isinstance(request, OffsetCommit) else None
        )
    )
    done = a.commit({T[0]: 9}, limit_ms=3_000)
    world.pass_time(2_900)
    assert done == []
    world.pass_time(200)
    assert isinstance(done[0], ClientTimeout)
    assert "COORDINATOR_LOAD_IN_PROGRESS: commit of t-0" in str(done[0])


def test_a_topic_that_stays_unknown_is_not_tried_until_the_time_is_over() -> None:
    world = World(t=1)
    a = world.join("a", "t")
    world.run_until_idle()
    gone = refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    world.scripts.append(lambda _, request: gone(request) if isinstance(request, OffsetCommit) else None)
    done = a.commit({T[0]: 9}, limit_ms=60_000)
    world.pass_time(5_000)
    assert code_of(done) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_older_commit_never_comes_after_a_later_one() -> None:
    world = World(t=1)
    a = world.join("a", "t")
    world.run_until_idle()
    world.once(OffsetCommit, refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    first, second = a.commit({T[0]: 1}), a.commit({T[0]: 2})
    world.pass_time(2_000)
    assert (code_of(first), second) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [None])
    assert world.harness.committed("g", T[0]) == {T[0]: 2}


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_fatal_commit_error_is_reported_at_once(code: ErrorCode) -> None:
    world = World(t=4)
    a = world.join("a", "t")
    world.run_until_idle()
    world.once(OffsetCommit, refusal(code))
    done = a.commit(dict.fromkeys(T, 1))
    world.pass_time(50)
    assert code_of(done) is code
    assert "commit of t-0, t-1, t-2 and 1 more" in str(done[0])


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_may_be_the_first_to_learn_that_the_member_is_out(code: ErrorCode) -> None:
    world = World(t=1)
    a = world.join("a", "t")
    world.run_until_idle()
    world.once(OffsetCommit, refusal(code))
    done = a.commit({T[0]: 1})
    world.pass_time(10)
    assert code_of(done) is code
    world.run_until_idle()
    assert len(a.of(Lost)) == 1


def test_a_commit_of_a_fenced_member_ends_it() -> None:
    world = World(t=1)
    a = world.join("a", "t", instance="one")
    world.run_until_idle()
    world.once(OffsetCommit, refusal(ErrorCode.FENCED_INSTANCE_ID))
    done = a.commit({T[0]: 1})
    world.until(lambda: bool(a.errors))
    assert code_of(done) is ErrorCode.FENCED_INSTANCE_ID
    assert a.reads == {}


def test_during_a_rebalance_a_cooperative_member_commits_what_it_keeps() -> None:
    world = World(t=2)
    a = world.join("a", "t", assignors=["cooperative-sticky"])
    world.run_until_idle()
    results: list[Any] = []
    moved: list[Any] = []

    def commit_both(_: Any) -> None:
        results.append(a.commit({T[0]: 1}))
        moved.append(a.commit({T[1]: 1}))

    world.once(JoinGroup, commit_both, of="a")
    b = world.join("b", "t", assignors=["cooperative-sticky"])
    world.run_until_idle()
    assert (sorted(a.reads), sorted(b.reads)) == ([T[0]], [T[1]])
    assert results == [[None]]
    assert code_of(moved[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.harness.committed("g", *T[:2]) == {T[0]: 1, T[1]: -1}


def test_a_commit_does_not_wait_for_a_join_that_waits_for_others() -> None:
    world = World(t=2)
    a, b = (world.join(name, "t", assignors=["cooperative-sticky"]) for name in "ab")
    world.run_until_idle()
    b.holds_revocations = True
    b.subscribe("u")  # it never gives up its partition
    world.pass_time(50)
    world.join("c", "t", assignors=["cooperative-sticky"])
    world.pass_time(3_000)
    assert not a.membership.settled
    (place,) = a.reads
    done, found = a.commit({place: 1}), a.committed(place)
    world.pass_time(50)
    assert done == [None]
    assert found[0].keys() == {place}


def test_during_a_rebalance_an_eager_member_has_nothing_to_commit() -> None:
    world = World(t=2)
    a = world.join("a", "t")
    world.run_until_idle()
    done: list[Any] = []
    world.once(JoinGroup, lambda _: done.append(a.commit({T[0]: 1})), of="a")
    world.join("b", "t")
    world.run_until_idle()
    assert code_of(done[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert "given up" in str(done[0][0])


@pytest.mark.parametrize("kind", ["range", "cooperative-sticky"])
def test_a_coordinator_that_rebalances_already_refuses_the_commit(kind: str) -> None:
    world = World(t=1)
    a = world.join("a", "t", assignors=[kind])
    world.run_until_idle()
    world.once(OffsetCommit, refusal(ErrorCode.REBALANCE_IN_PROGRESS))
    done = a.commit({T[0]: 1})
    world.pass_time(10)
    world.run_until_idle()
    world.pass_time(200)
    assert a.membership.generation_id == 2
    if kind == "range":
        assert code_of(done) is ErrorCode.REBALANCE_IN_PROGRESS
    else:
        assert done == [None]


# --- committed positions


def test_positions_that_are_about_to_change_are_waited_for() -> None:
    world = World(t=1)
    unstable = FetchedOffset("t", 0, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    for _ in range(3):
        world.once(OffsetFetch, OffsetFetchResult(groups=[FetchedGroup(group_id="g", partitions=[unstable])]))
    world.once(OffsetFetch, OffsetFetchResult(groups=[FetchedGroup(group_id="g", error=ErrorCode.NOT_COORDINATOR)]))
    a = world.join("a", "t")
    world.run_until_idle()
    assert all(request.require_stable for request in world.of(OffsetFetch))
    assert len(world.of(OffsetFetch)) == 5
    assert a.reads == {T[0]: None}


def test_brokers_that_do_not_know_of_stable_positions_are_asked_without() -> None:
    world = World(t=1)
    world.once(OffsetFetch, ApiError(ErrorCode.UNSUPPORTED_VERSION, "old"))
    world.join("a", "t")
    world.run_until_idle()
    assert [request.require_stable for request in world.of(OffsetFetch)] == [True, False]


def test_denied_offset_fetch_is_reported_as_error() -> None:
    world = World(t=1)
    refused = FetchedGroup(group_id="g", error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    world.once(OffsetFetch, OffsetFetchResult(groups=[refused]))
    a = world.join("a", "t")
    world.until(lambda: bool(a.errors))
    assert "GROUP_AUTHORIZATION_FAILED: offsets of group g" in str(a.errors[0])
    found = a.committed(T[0])
    world.once(OffsetFetch, OffsetFetchResult(groups=[refused]))
    world.pass_time(50)
    assert code_of(found) is ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("kind", ["range", "cooperative-sticky"])
def test_a_rebalance_while_positions_are_looked_up_gives_nothing_twice(kind: str) -> None:
    world = World(t=2)
    world.once(Heartbeat, HeartbeatResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
    busy = FetchedGroup(group_id="g", error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for _ in range(6):
        world.once(OffsetFetch, OffsetFetchResult(groups=[busy]))
    a = world.join("a", "t", assignors=[kind], heartbeat_interval_ms=20)
    world.run_until_idle()
    assert len(world.of(JoinGroup)) == 3
    assert [sorted(event.positions) for event in a.of(Assigned)] == [T[:2]]
    assert a.events == a.of(Assigned)


def test_positions_in_a_topic_that_was_made_again_are_left_out_of_a_commit() -> None:
    world = World(t=1, u=1)
    a = world.join("a", "t", "u")
    world.run_until_idle()
    view = a.view.topic("t")
    assert view is not None
    a.view._topics["t"] = evolve(view, topic_id=b"the topic of now")
    answers: list[Any] = []
    tp = TopicPartition("u", 0)
    old = CommittedOffset(5, topic_id=b"the topic before")
    a.membership.commit({T[0]: old, tp: CommittedOffset(3)}, answers.append, deadline_ms=world.now + 5_000)
    a.wake()
    world.pass_time(100)
    assert code_of(answers) is ErrorCode.UNKNOWN_TOPIC_ID
    (request,) = world.of(OffsetCommit)
    assert [(part.topic, part.offset) for part in request.partitions] == [("u", 3)]


def test_position_in_a_topic_that_seems_deleted_waits_for_another_word_of_it() -> None:
    """The broker that sent the metadata may be behind."""
    world = World(t=1)
    a = world.join("a", "t")
    world.run_until_idle()
    view = a.view.topic("t")
    assert view is not None
    known = view
    del a.view._topics["t"]
    a.view.topic_errors["t"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answers: list[Any] = []
    position = CommittedOffset(5, topic_id=known.topic_id)
    a.membership.commit({T[0]: position}, answers.append, deadline_ms=world.now + 5_000)
    a.wake()
    world.pass_time(50)
    assert not answers
    assert not world.of(OffsetCommit)
    a.view._topics["t"] = known
    del a.view.topic_errors["t"]
    world.pass_time(500)
    assert answers == [None]
