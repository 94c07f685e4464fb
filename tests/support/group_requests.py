"""Requests about groups to a `ManualBroker`, in few words."""

from collections.abc import Mapping
from typing import Any

from barnabas.core.coordinator.table import partition_of
from barnabas.ports.broker_api.groups import (
    Coordinator,
    FindCoordinator,
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    MemberAssignment,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetFetch,
    OffsetFetchGroup,
    SyncGroup,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import ManualBroker

OFFSETS = "__consumer_offsets"


def offsets_partition_of(group: str, partitions: int = 50) -> TopicPartition:
    """Return the partition of a group's records."""
    return TopicPartition(OFFSETS, partition_of(group, partitions))


def find(broker: ManualBroker, *groups: str, key_type: int = 0) -> list[Coordinator]:
    return list(broker.ask(FindCoordinator(keys=groups or ("g",), key_type=key_type)).coordinators)


def joining(group: str = "g", member: str = "", instance: str | None = None, **more: Any) -> JoinGroup:
    return JoinGroup(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[GroupProtocol("range", b"")],
        knows_member_id_required=False,
        **more,
    )


def stable(broker: ManualBroker, group: str = "g") -> JoinGroupResult:
    """Make a group of one member that has its assignment. The broker has group.initial.rebalance.delay.ms=0."""
    joined = broker.ask(joining(group))
    assert joined.error is ErrorCode.NONE, joined
    given = [MemberAssignment(joined.member_id, b"all of it")]
    request = SyncGroup(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=given
    )
    answer = broker.ask(request)
    assert (answer.error, answer.assignment) == (ErrorCode.NONE, b"all of it")
    return joined


def heartbeat(broker: ManualBroker, member: JoinGroupResult, group: str = "g") -> ErrorCode:
    request = Heartbeat(group_id=group, generation_id=member.generation_id, member_id=member.member_id)
    return broker.ask(request).error


def committing(group: str, positions: Mapping[tuple[str, int], int], metadata: str | None = None) -> OffsetCommit:
    partitions = [OffsetCommitPartition(*key, offset, 3, metadata) for key, offset in positions.items()]
    return OffsetCommit(group_id=group, partitions=partitions)


def commit(broker: ManualBroker, group: str, positions: Mapping[tuple[str, int], int]) -> list[ErrorCode]:
    return [each.error for each in broker.ask(committing(group, positions)).partitions]


def fetching(group: str) -> OffsetFetch:
    return OffsetFetch(groups=[OffsetFetchGroup(group_id=group)])


def committed(broker: ManualBroker, group: str) -> dict[tuple[str, int], int]:
    """Return all committed offsets of a group."""
    (found,) = broker.ask(fetching(group)).groups
    assert found.error is ErrorCode.NONE, found
    return {(each.topic, each.partition): each.offset for each in found.partitions}


def load_error(broker: ManualBroker, group: str) -> ErrorCode:
    """Return the error of a group's OffsetFetch at this moment, without further events."""
    (answer,) = broker.submit(fetching(group))
    return answer.groups[0].error
