"""Share groups among the groups of a coordinator: requests, the log, moves to another coordinator, deletion."""

from typing import Any

import pytest
from support.group_harness import Harness
from support.memory_persister import MemoryPersister

from barnabas.core.coordinator.group.share_groups import ShareGroups
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import DescribeGroups, ListGroups
from barnabas.ports.broker_api.share_group_offsets import (
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    DescribeShareGroupOffsets,
    ShareGroupOffsetsQuery,
    ShareGroupTopic,
    SharePartitionStart,
)
from barnabas.ports.broker_api.share_groups import ShareGroupDescribe, ShareGroupHeartbeat, ShareGroupHeartbeatResult
from barnabas.ports.broker_api.share_state import (
    DeleteShareGroupState,
    StateBatch,
    WritePartition,
    WriteShareGroupState,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition

CALLER = Caller(client_id="c", host="h")


class ShareHarness:
    """A harness with share groups; the share coordinators are in memory."""

    def __init__(self, harness: Harness | None = None, persister: MemoryPersister | None = None, **config: Any) -> None:
        self.persister = persister or MemoryPersister()
        self.harness = Harness(None if harness is None else harness.log, persister=self.persister, **config)
        self.harness.topic_ids = {"t": b"t" * 16, "u": b"u" * 16}
        self.coordinator = self.harness.coordinator

    @property
    def groups(self) -> ShareGroups:
        assert self.coordinator.share_groups is not None
        return self.coordinator.share_groups

    def ask(self, handler: Any, request: Any) -> Any:
        answers: list[Any] = []
        handler(request, CALLER, answers.append)
        self.harness.pass_time(0)
        assert len(answers) == 1
        return answers[0]

    def heartbeat(self, member_id: str, epoch: int, *topics: str, group_id: str = "g") -> ShareGroupHeartbeatResult:
        request = ShareGroupHeartbeat(
            group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics or None
        )
        result = self.ask(self.groups.heartbeat, request)
        assert isinstance(result, ShareGroupHeartbeatResult)
        return result

    def describe(self, *group_ids: str) -> Any:
        return self.ask(self.groups.describe, ShareGroupDescribe(group_ids=group_ids)).groups

    def offsets(self, group_id: str, topics: Any = None) -> Any:
        query = ShareGroupOffsetsQuery(group_id=group_id, topics=topics)
        return self.ask(self.groups.describe_offsets, DescribeShareGroupOffsets(groups=[query])).groups[0]

    def listed(self, *types: str) -> dict[str, tuple[str, str, str]]:
        result = self.ask(self.coordinator.list_groups, ListGroups(types=types))
        return {each.group_id: (each.group_type, each.protocol_type, each.state) for each in result.groups}


@pytest.fixture
def share() -> ShareHarness:
    return ShareHarness()


def test_a_member_gets_its_partitions(share: ShareHarness) -> None:
    joined = share.heartbeat("m", 0, "u")
    assert (joined.error, joined.member_epoch) == (ErrorCode.NONE, 2)
    assigned = share.heartbeat("m", 2)
    assert [list(each.partitions) for each in assigned.assignment or ()] == [[0, 1]]
    (described,) = share.describe("g")
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert share.listed() == {"g": ("share", "share", "Stable")}
    assert share.listed("consumer") == {}


def test_an_invalid_heartbeat_is_refused_before_the_coordinator_matters(share: ShareHarness) -> None:
    assert share.heartbeat("", 0, "u").error is ErrorCode.INVALID_REQUEST
    for partition in share.coordinator.partitions:
        share.coordinator.unload(partition)
    assert share.heartbeat("", 0, "u").error is ErrorCode.INVALID_REQUEST
    assert share.heartbeat("m", 0, "u").error is ErrorCode.NOT_COORDINATOR


def test_an_unknown_group_is_not_found(share: ShareHarness) -> None:
    assert share.heartbeat("m", 3).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert share.describe("nope")[0].error is ErrorCode.GROUP_ID_NOT_FOUND
    assert share.offsets("nope").error is ErrorCode.GROUP_ID_NOT_FOUND
    altered = share.ask(share.groups.alter_offsets, AlterShareGroupOffsets(group_id="nope", partitions=[]))
    assert altered.error is ErrorCode.GROUP_ID_NOT_FOUND
    deleted = share.ask(share.groups.delete_offsets, DeleteShareGroupOffsets(group_id="nope", topics=[]))
    assert deleted.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_another_type_is_no_share_group(share: ShareHarness) -> None:
    share.harness.stable("classic")
    refused = share.heartbeat("m", 0, "u", group_id="classic")
    assert (refused.error, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group classic is not a share group.",
    )


def test_other_requests_do_not_find_a_share_group(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "u")
    assert share.harness.join("g").result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    described = share.ask(share.coordinator.describe_groups, DescribeGroups(group_ids=["g"])).groups[0]
    assert described.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_another_coordinator_serves_the_group(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "u")
    share.heartbeat("m", 2)
    other = ShareHarness(share.harness, share.persister)
    assert other.describe("g") == share.describe("g")
    assert other.heartbeat("m", 3).assignment is None


def test_a_failed_write_is_the_answer(share: ShareHarness) -> None:
    share.harness.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert share.heartbeat("m", 0, "u").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not share.persister.offsets


def test_the_share_coordinator_is_called_when_the_log_has_the_group(share: ShareHarness) -> None:
    share.harness.hold = True
    answers: list[Any] = []
    request = ShareGroupHeartbeat(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["u"])
    share.groups.heartbeat(request, CALLER, answers.append)
    assert (answers, share.persister.offsets) == ([], {})
    share.harness.finish()
    assert (len(answers), len(share.persister.offsets)) == (1, 2)


def test_an_answer_without_changes_waits_for_the_write_before_it(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "u")
    epoch = share.heartbeat("m", 2).member_epoch
    share.harness.hold = True
    answers: list[Any] = []
    joining = ShareGroupHeartbeat(group_id="g", member_id="n", member_epoch=0, subscribed_topic_names=["u"])
    share.groups.heartbeat(joining, CALLER, answers.append)
    share.groups.heartbeat(ShareGroupHeartbeat(group_id="g", member_id="m", member_epoch=epoch), CALLER, answers.append)
    assert answers == []
    while share.harness.held:
        share.harness.finish()
    assert [each.error for each in answers] == [ErrorCode.NONE, ErrorCode.NONE]


def test_offsets_are_described_with_their_lag(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "u")
    (topic,) = share.offsets("g").topics
    assert (topic.topic, [each.start_offset for each in topic.partitions]) == ("u", [-1, -1])
    share.persister.write_state(
        WriteShareGroupState(
            group_id="g",
            partitions=[WritePartition(topic.topic_id, 0, 2, 5, 40, [StateBatch(42, 43, 2, 1)], 2)],
        ),
        lambda _: None,
    )
    (topic,) = share.offsets("g", [ShareGroupTopic("u", [0, 1])]).topics
    first, second = topic.partitions
    assert (first.start_offset, first.leader_epoch, first.lag) == (40, 5, 58)
    assert (second.start_offset, second.lag) == (-1, -1)


def test_offsets_of_unknown_topics_and_partitions(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "u")
    unknown, other = share.offsets("g", [ShareGroupTopic("nope", [0]), ShareGroupTopic("t", [7])]).topics
    assert (unknown.topic_id, unknown.partitions[0].error) == (bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (other.partitions[0].error, other.partitions[0].start_offset) == (ErrorCode.NONE, -1)


def test_no_group_is_described_where_none_is_asked_for(share: ShareHarness) -> None:
    assert share.ask(share.groups.describe_offsets, DescribeShareGroupOffsets(groups=[])).groups == ()


def test_offsets_of_an_unknown_group_are_an_error_unless_no_topic_is_left_to_describe(share: ShareHarness) -> None:
    assert share.offsets("unknown", [ShareGroupTopic("u", [0])]).error is ErrorCode.GROUP_ID_NOT_FOUND
    answered = share.offsets("unknown", [])
    assert (answered.error, answered.topics) == (ErrorCode.NONE, ())


def test_altered_and_deleted_offsets(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "u")
    share.heartbeat("m", -1)
    request = AlterShareGroupOffsets(group_id="g", partitions=[SharePartitionStart("u", 1, 9)])
    assert share.ask(share.groups.alter_offsets, request).topics[0].partitions[0].error is ErrorCode.NONE
    assert [each.start_offset for each in share.offsets("g").topics[0].partitions] == [-1, 9]
    deleted = share.ask(share.groups.delete_offsets, DeleteShareGroupOffsets(group_id="g", topics=["u"]))
    assert deleted.topics[0].error is ErrorCode.NONE
    assert share.offsets("g").topics == []


def test_a_deleted_group_leaves_nothing(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "u")
    assert share.harness.delete("g") == [ErrorCode.NON_EMPTY_GROUP]
    share.heartbeat("m", -1)
    assert share.harness.delete("g") == [ErrorCode.NONE]
    assert share.persister.offsets == {}
    assert share.listed() == {}
    assert ShareHarness(share.harness, share.persister).listed() == {}


def test_a_group_stays_if_its_state_cannot_be_deleted(share: ShareHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    share.heartbeat("m", 0, "u")
    share.heartbeat("m", -1)

    def refuse(request: DeleteShareGroupState, callback: Any) -> None:
        callback(request.failed(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)))

    with monkeypatch.context() as patch:
        patch.setattr(share.persister, "delete_state", refuse)
        assert share.harness.delete("g") == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert share.listed() == {"g": ("share", "share", "Empty")}
    assert share.harness.delete("g") == [ErrorCode.NONE]


def test_an_empty_group_does_not_expire(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "u")
    share.heartbeat("m", -1)
    share.coordinator.start()
    share.harness.pass_time(30 * 24 * 3_600_000)
    assert share.listed() == {"g": ("share", "share", "Empty")}


def test_a_deleted_topic_is_forgotten(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "t", "u")
    topic_id = share.coordinator.share_groups and share.harness.topic_id_of(TopicPartition("u", 0))
    share.harness.topics.pop("u")
    share.coordinator.partitions_deleted(topic_id or b"", [TopicPartition("u", number) for number in range(2)])
    assert "u" not in [each.topic for each in share.offsets("g").topics]


def test_without_share_coordinators_nothing_is_initialized(share: ShareHarness) -> None:
    share.heartbeat("m", 0, "u")
    other = Harness(share.harness.log)
    assert other.coordinator.share_groups is None
    assert other.coordinator.group_count() == 1
