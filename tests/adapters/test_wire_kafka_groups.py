"""Group requests and answers in old versions, and their translation by a client."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.kafka_frames import ServerEnd, header, request_frame, result_of
from support.kafka_pair import joined, normal
from support.kafka_samples import SAMPLES

from barnabas.adapters.wire_kafka.table import BY_KEY, BY_REQUEST
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.groups import (
    FetchedGroup,
    FetchedOffset,
    FindCoordinator,
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    ListGroups,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
    PartitionOutcome,
    SyncGroup,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import Malformed
from barnabas.ports.types import TopicPartition

CLICKS = TopicPartition("clicks", 3)
LOST = FetchedOffset("clicks", 3, error=ErrorCode.NOT_COORDINATOR)


def _asked(key: int, version: int, body: str) -> Any:
    """Decode the request that the broker gets from these bytes: hexadecimal numbers, and strings in quotes."""
    end = ServerEnd()
    tags = b"\x00" if version >= BY_KEY[key].flexible_from else b""
    words = [bytes(word[1:-1], "utf-8") if word[0] == "'" else bytes.fromhex(word) for word in body.split()]
    end.send(header(key, version, 7) + tags + b"".join(words))
    assert end.reports == []
    (request,) = end.broker.requests
    return request


def _read_back(key: int, version: int, result: Any) -> Any:
    api = BY_KEY[key]
    writer = api.writer(version)
    api.result.write(writer, version, result)
    return api.result.read(api.reader(version, memoryview(joined(writer.pieces())), 0, 1000), version)


JOIN_0 = "0005 'audit' 00002710 0000 0008 'consumer' 00000001 0005 'range' 00000004 00010203"


def test_the_first_join_knows_neither_a_rebalance_timeout_nor_a_member_id_that_is_required() -> None:
    assert _asked(11, 0, JOIN_0) == JoinGroup(
        group_id="audit",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=-1,
        protocol_type="consumer",
        protocols=[GroupProtocol("range", b"\x00\x01\x02\x03")],
        knows_member_id_required=False,
        can_skip_assignment=False,
    )


@pytest.mark.parametrize(("version", "knows", "skips"), [(3, False, False), (4, True, False), (9, True, True)])
def test_join_response_fields_depend_on_the_version(version: int, knows: bool, skips: bool) -> None:
    end = ServerEnd()
    end.send(request_frame(11, version, 1, SAMPLES[11].at(version).request))
    (request,) = end.broker.requests
    assert (request.knows_member_id_required, request.can_skip_assignment) == (knows, skips)


def test_offset_commit_2() -> None:
    body = "0005 'audit' ffffffff 0000 ffffffffffffffff 00000001 0006 'clicks' 00000001 00000003 000000000000002a ffff"
    assert _asked(8, 2, body) == OffsetCommit(
        group_id="audit", partitions=[OffsetCommitPartition("clicks", 3, 42, -1, None)]
    )


def test_offset_fetch_2_of_everything() -> None:
    assert _asked(9, 2, "0005 'audit' ffffffff") == OffsetFetch(groups=(OffsetFetchGroup(group_id="audit"),))


def test_offset_fetch_1_must_say_which_partitions() -> None:
    end = ServerEnd()
    end.send(header(9, 1, 7) + b"\x00\x05audit\xff\xff\xff\xff")
    assert end.connection.is_closed
    assert len(end.reports) == 1


def test_leave_group_0() -> None:
    assert _asked(13, 0, "0005 'audit' 0007 'c1-4711'") == LeaveGroup(
        group_id="audit", members=(LeavingMember(member_id="c1-4711"),)
    )


def test_find_coordinator_0() -> None:
    assert _asked(10, 0, "0005 'audit'") == FindCoordinator(keys=("audit",), knows_share=False)


def test_null_metadata_is_none() -> None:
    body = "0005 'audit' 00002710 0000 0008 'consumer' 00000001 0005 'range' ffffffff"
    assert _asked(11, 0, body).protocols == [GroupProtocol("range", b"")]


def test_a_join_that_fails_names_no_protocol_in_any_version() -> None:
    refused = JoinGroupResult(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert normal(_read_back(11, 6, refused)) == normal(refused)
    assert normal(_read_back(11, 7, refused)) == normal(refused)


def test_the_error_of_the_one_member_that_leaves_is_that_of_the_request_before_version_3() -> None:
    observed = LeaveGroupResult(members=[LeftMember(member_id="c1-4711", error=ErrorCode.UNKNOWN_MEMBER_ID)])
    assert _read_back(13, 2, observed) == LeaveGroupResult(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert _read_back(13, 3, observed) == observed
    whole = LeaveGroupResult(error=ErrorCode.NOT_COORDINATOR)
    assert normal(_read_back(13, 2, whole)) == normal(_read_back(13, 3, whole)) == normal(whole)


@pytest.mark.parametrize(
    ("version", "error", "partitions"),
    [(1, ErrorCode.NONE, [LOST]), (2, ErrorCode.NOT_COORDINATOR, []), (8, ErrorCode.NOT_COORDINATOR, [])],
)
def test_the_error_of_a_group_is_that_of_its_partitions_in_version_1(
    version: int, error: ErrorCode, partitions: Sequence[FetchedOffset]
) -> None:
    observed = FetchedGroup(group_id="audit", partitions=[FetchedOffset("clicks", 3)], error=ErrorCode.NOT_COORDINATOR)
    (group,) = _read_back(9, version, OffsetFetchResult(groups=[observed])).groups
    assert (group.error, group.partitions) == (error, partitions)


LEAST: list[tuple[Request[Any], int]] = [
    (FindCoordinator(keys=["a"]), 0),
    (FindCoordinator(keys=["a"], key_type=1), 1),
    (FindCoordinator(keys=["a", "b"]), 4),
    (FindCoordinator(keys=[]), 4),
    (JoinGroup(group_id="a", session_timeout_ms=1, protocol_type="", protocols=[]), 0),
    (JoinGroup(group_id="a", session_timeout_ms=1, protocol_type="", protocols=[], group_instance_id=""), 5),
    (Heartbeat(group_id="a", generation_id=1, member_id="m"), 0),
    (Heartbeat(group_id="a", generation_id=1, member_id="m", group_instance_id="i"), 3),
    (SyncGroup(group_id="a", generation_id=1, member_id="m"), 0),
    (SyncGroup(group_id="a", generation_id=1, member_id="m", group_instance_id="i"), 3),
    (LeaveGroup(group_id="a", members=[LeavingMember(member_id="m", reason="r")]), 0),
    (LeaveGroup(group_id="a", members=[LeavingMember(group_instance_id="i")]), 3),
    (LeaveGroup(group_id="a", members=[LeavingMember(member_id="m"), LeavingMember(member_id="n")]), 3),
    (OffsetCommit(group_id="a", partitions=[]), 2),
    (OffsetCommit(group_id="a", partitions=[], group_instance_id="i"), 7),
    (OffsetCommit(group_id="a", partitions=[], knows_group_id_not_found=True), 9),
    (OffsetFetch(groups=[OffsetFetchGroup(group_id="a", partitions=[])]), 1),
    (OffsetFetch(groups=[OffsetFetchGroup(group_id="a", member_id="m", member_epoch=3)]), 9),
    (OffsetFetch(groups=[OffsetFetchGroup(group_id="a")]), 2),
    (OffsetFetch(groups=[OffsetFetchGroup(group_id="a")], require_stable=True), 7),
    (OffsetFetch(groups=[OffsetFetchGroup(group_id="a"), OffsetFetchGroup(group_id="b")]), 8),
    (ListGroups(), 0),
    (ListGroups(states=["Stable"]), 4),
    (ListGroups(types=["classic"]), 5),
]


@pytest.mark.parametrize(("request_", "version"), LEAST, ids=[f"{type(r).__name__}-{v}" for r, v in LEAST])
def test_the_least_version_of_a_request(request_: Request[Any], version: int) -> None:
    api = BY_REQUEST[type(request_)]
    assert api.least_version is not None
    assert api.least_version(request_) == version


@pytest.mark.parametrize(
    ("topic_id", "has_epoch", "version"), [(bytes(16), False, 8), (bytes(16), True, 9), (b"i" * 16, True, 10)]
)
def test_commit_of_a_member_epoch_takes_a_version_that_carries_it(
    topic_id: bytes, has_epoch: bool, version: int
) -> None:
    commit = OffsetCommit(
        group_id="a",
        partitions=[OffsetCommitPartition("clicks", 0, 1, topic_id=topic_id)],
        knows_group_id_not_found=has_epoch,
    )
    most_version = BY_KEY[8].most_version
    assert most_version is not None
    assert most_version(commit) == version


@pytest.mark.parametrize(("has_epoch", "code"), [(False, 22), (True, 69)])
def test_unknown_group_is_an_old_generation_only_to_classic_members(has_epoch: bool, code: int) -> None:
    request = OffsetCommit(group_id="a", partitions=[], knows_group_id_not_found=has_epoch)
    completed = BY_KEY[8].completed
    assert completed is not None
    result = OffsetCommitResult(partitions=[PartitionOutcome("clicks", 3, ErrorCode.GROUP_ID_NOT_FOUND)])
    assert completed(request, result).partitions[0].error == code


@pytest.mark.parametrize("key", [9, 10, 13])
def test_several_of_what_there_is_one_of_cannot_be_encoded(key: int) -> None:
    api = BY_KEY[key]
    with pytest.raises(ValueError, match="room for one"):
        api.request.write(api.writer(1), 1, SAMPLES[key].request)


def _completed(request: OffsetFetch, groups: Sequence[FetchedGroup]) -> Sequence[FetchedGroup]:
    completed = BY_KEY[9].completed
    assert completed is not None
    found: OffsetFetchResult = completed(request, OffsetFetchResult(groups=groups))
    return found.groups


def test_a_client_gets_positions_in_the_order_of_its_request() -> None:
    wanted = [TopicPartition("clicks", 4), TopicPartition("views", 0), CLICKS]
    request = OffsetFetch(
        groups=[OffsetFetchGroup(group_id="b", partitions=wanted), OffsetFetchGroup(group_id="a", partitions=[])]
    )
    one, two, three = FetchedOffset("clicks", 3, 1), FetchedOffset("clicks", 4, 2), FetchedOffset("views", 0, 3)
    observed = [FetchedGroup(group_id="a"), FetchedGroup(group_id="b", partitions=[one, two, three])]
    second, first = _completed(request, observed)
    assert (first.group_id, second.group_id) == ("a", "b")
    assert second.partitions == [two, three, one]


def test_offset_fetch_response_carries_requested_group_id() -> None:
    request = OffsetFetch(groups=[OffsetFetchGroup(group_id="audit", partitions=[CLICKS])])
    (group,) = _completed(request, [FetchedGroup(group_id="", partitions=[LOST])])
    assert group == FetchedGroup(group_id="audit", partitions=[LOST])


def test_an_answer_that_leaves_out_a_group_or_a_partition_is_malformed() -> None:
    two = OffsetFetch(groups=[OffsetFetchGroup(group_id="a"), OffsetFetchGroup(group_id="b")])
    with pytest.raises(Malformed, match="lacks group 'b'"):
        _completed(two, [FetchedGroup(group_id="a")])
    one = OffsetFetch(groups=[OffsetFetchGroup(group_id="a", partitions=[CLICKS])])
    with pytest.raises(Malformed, match="lacks"):
        _completed(one, [FetchedGroup(group_id="a")])
    failed = FetchedGroup(group_id="a", error=ErrorCode.NOT_COORDINATOR)
    assert _completed(one, [failed]) == [failed]


def test_a_group_of_ten_thousand_members_and_metadata_of_a_megabyte_go_over_the_wire() -> None:
    end = ServerEnd()
    large = JoinGroup(
        group_id="audit",
        session_timeout_ms=1,
        protocol_type="consumer",
        protocols=[GroupProtocol("range", bytes(1 << 20))],
    )
    end.send(request_frame(11, 9, 1, large))
    assert normal(end.broker.requests) == normal([large])
    member = SAMPLES[11].result.members[0]
    result = JoinGroupResult(members=[member] * 10_000, throttle_ms=3)
    end.broker.replies[0](result)
    assert normal(result_of(11, 9, end.answers[0])) == normal(result)
