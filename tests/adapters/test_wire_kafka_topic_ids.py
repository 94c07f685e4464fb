"""Commits of our own clients name topics by their ids where both ends can."""

from typing import Any

import pytest
from support.kafka_pair import ScriptedBroker, linked

from barnabas.adapters.wire_kafka import KafkaServer, versions
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import OffsetCommit, OffsetCommitPartition, OffsetCommitResult, PartitionOutcome
from barnabas.ports.error_codes import ErrorCode

ID_A, ID_B, GONE = b"a" * 16, b"b" * 16, b"g" * 16
NAMES = {ID_A: "a", ID_B: "b"}
OFFSET_COMMIT = 8


class Capped(KafkaServer):
    """A server that offers commits up to some version."""

    most = 10

    def api_versions(self, version: int, *, to_own_client: bool = False) -> bytes:
        return versions.response_body(3, [(OFFSET_COMMIT, 2, self.most)])


def commit(
    *partitions: OffsetCommitPartition, most: int = 10, error: ErrorCode = ErrorCode.NONE
) -> tuple[OffsetCommit | None, Any]:
    """Return the request that the broker gets, and the result."""

    def observed(request: OffsetCommit) -> OffsetCommitResult:
        return OffsetCommitResult(
            partitions=[PartitionOutcome(p.topic, p.partition, error) for p in request.partitions]
        )

    broker = ScriptedBroker(observed)
    reports: list[str] = []
    server = Capped(broker, listener="PAIR", report=reports.append, topic_name=lambda each: NAMES.get(each, ""))
    server.most = most
    transport, link = linked(server)
    replies: list[Any] = []
    link.submit(OffsetCommit(group_id="g", partitions=partitions), Caller(), replies.append)
    transport.run()
    link.close()
    assert reports == []
    (request,) = broker.requests
    return request, replies[0]


def test_a_commit_goes_by_id_and_its_result_by_name() -> None:
    request, result = commit(
        OffsetCommitPartition("a", 3, 7, topic_id=ID_A),
        OffsetCommitPartition("b", 0, 8, 2, "text", ID_B),
        OffsetCommitPartition("a", 4, 9, topic_id=ID_A),
    )
    assert request is not None and request.knows_group_id_not_found
    assert [(p.topic, p.partition, p.offset, p.topic_id) for p in request.partitions] == [
        ("a", 3, 7, ID_A),
        ("a", 4, 9, ID_A),
        ("b", 0, 8, ID_B),
    ]
    assert [(p.topic, p.partition, p.error) for p in result.partitions] == [
        ("a", 3, ErrorCode.NONE),
        ("b", 0, ErrorCode.NONE),
        ("a", 4, ErrorCode.NONE),
    ]


def test_offset_commit_for_unknown_topic_id_reports_topic_name() -> None:
    request, result = commit(
        OffsetCommitPartition("b", 0, 8, topic_id=GONE), OffsetCommitPartition("a", 3, 7, topic_id=ID_A)
    )
    assert request is not None
    assert [p.topic for p in request.partitions] == ["a"]
    assert [(p.topic, p.error) for p in result.partitions] == [
        ("b", ErrorCode.UNKNOWN_TOPIC_ID),
        ("a", ErrorCode.NONE),
    ]


@pytest.mark.parametrize("most", [8, 9])
def test_offset_commit_to_older_broker_uses_topic_names(most: int) -> None:
    request, result = commit(OffsetCommitPartition("a", 3, 7, topic_id=ID_A), most=most)
    assert request is not None and request.knows_group_id_not_found is (most == 9)
    assert [(p.topic, p.topic_id) for p in request.partitions] == [("a", bytes(16))]
    assert [(p.topic, p.error) for p in result.partitions] == [("a", ErrorCode.NONE)]


def test_a_commit_with_a_topic_whose_id_is_not_known_goes_by_name() -> None:
    request, _ = commit(OffsetCommitPartition("a", 3, 7, topic_id=ID_A), OffsetCommitPartition("b", 0, 1))
    assert request is not None and not request.knows_group_id_not_found
    assert [(p.topic, p.topic_id) for p in request.partitions] == [("a", bytes(16)), ("b", bytes(16))]


def test_a_group_that_does_not_exist_is_a_generation_that_is_over() -> None:
    _, result = commit(OffsetCommitPartition("a", 3, 7, topic_id=ID_A), error=ErrorCode.GROUP_ID_NOT_FOUND)
    assert [p.error for p in result.partitions] == [ErrorCode.ILLEGAL_GENERATION]
