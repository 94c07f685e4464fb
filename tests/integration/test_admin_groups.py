"""`Admin` describes, resets and deletes consumer groups."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.group_member import IdleMember
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Message, Producer
from barnabas.core.client.calls import CoordinatorOf
from barnabas.ports.broker_api.groups import GroupProtocol, JoinGroup
from barnabas.ports.broker_api.replicas import ElectionType
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.types import TopicPartition

START_MS = 1_700_000_000_000
MESSAGES = 10


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Topic `t`: partition 0 with ten messages, one a second; 1 with two of which the first is deleted; 2 empty."""
    with Broker(storage="memory", group_initial_rebalance_delay_ms=0, log_retention_ms=-1) as running:
        with Admin(running) as admin:
            admin.create_topic("t", partitions=3)
            with Producer(running) as producer:
                sent = [Message(b"%d" % n, timestamp_ms=START_MS + n * 1000) for n in range(MESSAGES)]
                producer.send_many("t", sent, partition=0).result(PATIENCE_S)
                producer.send_many("t", [b"a", b"b"], partition=1).result(PATIENCE_S)
            admin.delete_records({("t", 1): 1})
        yield running


@pytest.fixture(params=["tcp", "in-process"])
def admin(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Admin]:
    with Admin(broker.bootstrap if request.param == "tcp" else broker) as client:
        yield client


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return str(request.node.name)


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def refused(call: Any, *args: Any, **named: Any) -> ApiError:
    with pytest.raises(ApiError) as info:
        call(*args, **named)
    return info.value


def test_a_group_is_listed_and_described(admin: Admin, group: str) -> None:
    (nothing,) = admin.describe_groups([group])
    assert (nothing.state, nothing.exists, list(nothing.members)) == ("Dead", False, [])
    member = IdleMember(admin, group, [T0, T1])
    (listed,) = [each for each in admin.list_groups() if each.group_id == group]
    assert (listed.state, listed.protocol_type) == ("Stable", "consumer")
    assert group in {each.group_id for each in admin.list_groups(states=["stable"])}
    assert group not in {each.group_id for each in admin.list_groups(states=["Empty"])}
    (found,) = admin.describe_groups([group])
    assert (found.state, found.protocol, found.exists) == ("Stable", "range", True)
    (described,) = found.members
    assert (described.member_id, list(described.topics)) == (member.member_id, ["t"])
    assert list(described.assignment) == [T0, T1]
    assert admin.coordinator(group).node_id == admin.describe_cluster().controller_id
    member.leave()
    assert admin.describe_groups([group])[0].state == "Empty"


def test_group_lag_lists_committed_offsets_ends_and_members(admin: Admin, group: str) -> None:
    assert admin.group_lag(group) == {}
    admin.alter_group_offsets(group, {T0: 4, ("t", 1): 2})
    assert {tp: found.offset for tp, found in admin.group_offsets(group).items()} == {T0: 4, T1: 2}
    assert list(admin.group_offsets(group, [T2, T0])) == [T0]
    member = IdleMember(admin, group, [T1, T2])
    lag = admin.group_lag(group)
    assert {tp: (each.committed, each.end, each.lag) for tp, each in lag.items()} == {
        T0: (4, MESSAGES, 6),
        T1: (2, 2, 0),
        T2: (None, 0, None),
    }
    assert [each.member.member_id if each.member else None for each in lag.values()] == [
        None,
        member.member_id,
        member.member_id,
    ]


def test_lag_of_a_topic_that_is_gone(admin: Admin, group: str) -> None:
    admin.create_topic("gone")
    member = IdleMember(admin, group, [("gone", 0)])
    admin.delete_topics(["gone"])
    (lag,) = admin.group_lag(group).values()
    assert (lag.committed, lag.end, lag.lag) == (None, None, None)
    member.leave()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"to": "earliest"}, {T0: 0, T1: 1, T2: 0}),
        ({"to": "latest"}, {T0: 10, T1: 2, T2: 0}),
        ({"timestamp_ms": START_MS + 3500}, {T0: 4, T1: 1, T2: 0}),
        ({"offset": 7}, {T0: 7, T1: 2, T2: 0}),
        ({"shift": -2}, {T0: 3, T1: 1, T2: 0}),
        ({"shift": 100}, {T0: 10, T1: 2, T2: 0}),
    ],
    ids=str,
)
def test_reset_group_offsets_applies_plan_shown_by_dry_run(
    admin: Admin, group: str, where: dict[str, Any], expected: dict[TopicPartition, int]
) -> None:
    before: dict[Any, int] = {T0: 5, T1: 2, T2: 0}
    admin.alter_group_offsets(group, before)
    plan = admin.reset_group_offsets(group, **where, dry_run=True)
    assert {change.place: change.after for change in plan} == expected
    assert {change.place: change.before for change in plan} == before
    assert [change.lag for change in plan] == [change.log_end_offset - change.after for change in plan]
    assert {tp: found.offset for tp, found in admin.group_offsets(group).items()} == before
    assert admin.reset_group_offsets(group, **where) == plan
    assert {tp: found.offset for tp, found in admin.group_offsets(group).items()} == expected


def test_reset_of_chosen_partitions(admin: Admin, group: str) -> None:
    admin.reset_group_offsets(group, to="latest", topics=[("t", 1)])
    assert list(admin.group_offsets(group)) == [T1]
    admin.reset_group_offsets(group, to="earliest", topics=["t", ("t", 1)])
    assert list(admin.group_offsets(group)) == [T0, T1, T2]
    unknown = refused(admin.reset_group_offsets, group, to="latest", topics=[("t", 9)])
    assert unknown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused(admin.reset_group_offsets, group, to="latest", topics=["nowhere"]).code is unknown.code


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({}, "exactly one"),
        ({"to": "latest", "offset": 1}, "exactly one"),
        ({"to": "middle"}, "earliest or latest"),
        ({"offset": -1}, "begin at 0"),
        ({"timestamp_ms": -1}, "since 1970"),
        ({"to": "latest"}, "committed nothing"),
        ({"shift": 1, "topics": ["t"]}, "no committed offset in t-0"),
    ],
    ids=str,
)
def test_a_reset_that_makes_no_sense(admin: Admin, group: str, where: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        admin.reset_group_offsets(group, **where)


def test_offsets_of_a_group_with_members_stay(admin: Admin, group: str) -> None:
    member = IdleMember(admin, group, [T0], instance=f"static {group}")
    changes: list[tuple[Any, dict[str, Any]]] = [
        (admin.reset_group_offsets, {"to": "latest", "topics": ["t"], "dry_run": True}),
        (admin.alter_group_offsets, {"offsets": {T0: 1}}),
    ]
    for change, named in changes:
        error = refused(change, group, **named)
        assert error.code is ErrorCode.NON_EMPTY_GROUP
        assert member.member_id in error.message
        assert f"static {group}" in error.message
    error = refused(admin.delete_groups, [group])
    assert error.code is ErrorCode.NON_EMPTY_GROUP
    assert member.member_id in error.message
    assert admin.group_offsets(group) == {}


def test_offsets_are_deleted(admin: Admin, group: str) -> None:
    assert admin.delete_group_offsets(group, ["t"]) == []
    admin.create_topic(f"other-{len(group)}")
    offsets: dict[Any, int] = {T0: 1, T1: 1, T2: 0, (f"other-{len(group)}", 0): 0}
    admin.alter_group_offsets(group, offsets)
    member = IdleMember(admin, group, [(f"other-{len(group)}", 0)])
    assert admin.delete_group_offsets(group, [("t", 1), ("t", 2), ("t", 7)]) == [T1, T2]
    error = refused(admin.delete_group_offsets, group, [f"other-{len(group)}"])
    assert error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert "stop them first" in error.message
    assert len(admin.group_offsets(group)) == 2
    member.leave()
    admin.delete_topics([f"other-{len(group)}"])


def test_groups_are_deleted(admin: Admin, group: str) -> None:
    admin.alter_group_offsets(group, {T0: 1})
    assert refused(admin.delete_groups, ["nowhere", group]).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert not admin.describe_groups([group])[0].exists
    assert admin.group_offsets(group) == {}


def test_describe_groups_returns_non_consumer_members_without_topics(admin: Admin, group: str) -> None:
    protocols = [GroupProtocol("default", b"garbage")]
    joining = JoinGroup(
        group_id=group, session_timeout_ms=60_000, protocol_type="connect", protocols=protocols, group_instance_id="one"
    )
    assert admin._shell.ask(joining, CoordinatorOf(group)).error is ErrorCode.NONE
    (found,) = admin.describe_groups([group])
    (member,) = found.members
    assert (found.protocol_type, list(member.topics), list(member.assignment)) == ("connect", [], [])
    assert member.group_instance_id == "one"


def test_leaders_replicas_and_producers(admin: Admin) -> None:
    here = admin.describe_cluster().controller_id
    for kind in ElectionType:
        assert admin.elect_leaders(kind=kind) == []
        assert admin.elect_leaders([T0, T2], kind) == []
        assert refused(admin.elect_leaders, [("t", 9)], kind).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    admin.reassign_partitions({T0: [here]})
    assert refused(admin.reassign_partitions, {T0: [99]}).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused(admin.reassign_partitions, {T0: None}).code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert admin.list_reassignments() == admin.list_reassignments([T0]) == []
    found = admin.describe_producers([T2, T0, T1])
    assert [len(found[tp]) for tp in (T0, T1, T2)] == [1, 1, 0]
    assert found[T0][0].last_sequence == MESSAGES - 1
    assert refused(admin.describe_producers, [("t", 9)]).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
