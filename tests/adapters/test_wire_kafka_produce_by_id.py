"""Produce names topics by their ids where both ends can (KIP-516)."""

from typing import Any

import pytest
from support.kafka_pair import ScriptedBroker, linked

from barnabas.adapters.wire_kafka import KafkaServer, versions
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition
from barnabas.ports.broker_api.transactions import TransactionSupportedOperation
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

ID_A, ID_B, GONE, NO_ID = b"a" * 16, b"b" * 16, b"g" * 16, bytes(16)
NAMES = {ID_A: "a", ID_B: "b"}
PRODUCE = 0


class Capped(KafkaServer):
    """A server that offers Produce up to some version."""

    most = 13

    def api_versions(self, version: int, *, to_own_client: bool = False) -> bytes:
        return versions.response_body(3, [(PRODUCE, 0, self.most)])


def part(topic: str, partition: int, topic_id: bytes, records: bytes = b"records") -> ProducePartition:
    return ProducePartition(topic, partition, memoryview(bytearray(records)), topic_id)


def produce(
    *partitions: ProducePartition, most: int = 13, transactional_id: str | None = None
) -> tuple[list[tuple[str, int, bytes]], list[tuple[str, int, ErrorCode, int]]]:
    """Return the topics that the broker gets, with their ids, and the outcomes."""
    asked = Produce(partitions=partitions, transactional_id=transactional_id)
    (request,), (result,) = served(asked, most=most)
    return (
        [(p.topic, p.partition, p.topic_id) for p in request.partitions],
        [(p.topic, p.partition, p.error, p.base_offset) for p in result.partitions],
    )


def operations(
    *partitions: ProducePartition,
    most: int = 13,
    operation: TransactionSupportedOperation = TransactionSupportedOperation.DEFAULT_ERROR,
) -> list[TransactionSupportedOperation]:
    """Return the broker's results for partitions that are not in the transaction."""
    asked = Produce(partitions=partitions, transactional_id="x", supported_operation=operation)
    requests, (result,) = served(asked, most=most)
    if isinstance(result, ApiError):
        raise result
    return [each.supported_operation for each in requests]


def served(asked: Produce, *, most: int) -> tuple[list[Any], list[Any]]:
    """Return the requests that the broker gets, and the answers."""

    def observed(request: Produce) -> ProduceResult:
        found = [ProduceResultPartition(p.topic, p.partition, base_offset=p.partition) for p in request.partitions]
        return ProduceResult(partitions=found)

    broker = ScriptedBroker(observed)
    reports: list[str] = []
    server = Capped(broker, listener="PAIR", report=reports.append, topic_name=lambda each: NAMES.get(each, ""))
    server.most = most
    transport, link = linked(server)
    replies: list[Any] = []
    link.submit(asked, Caller(), replies.append)
    transport.run()
    link.close()
    assert reports == []
    return broker.requests, replies


def test_request_goes_by_id_and_result_by_name_in_the_order_of_the_request() -> None:
    asked, observed = produce(part("a", 3, ID_A), part("b", 0, ID_B), part("a", 4, ID_A))
    assert asked == [("a", 3, ID_A), ("a", 4, ID_A), ("b", 0, ID_B)]
    assert observed == [("a", 3, ErrorCode.NONE, 3), ("b", 0, ErrorCode.NONE, 0), ("a", 4, ErrorCode.NONE, 4)]


def test_topic_that_the_broker_does_not_have_is_refused_under_its_name() -> None:
    asked, observed = produce(part("b", 0, GONE), part("a", 3, ID_A))
    assert asked == [("a", 3, ID_A)]
    assert observed == [("b", 0, ErrorCode.UNKNOWN_TOPIC_ID, -1), ("a", 3, ErrorCode.NONE, 3)]


def test_two_topics_of_one_name_get_their_own_outcomes() -> None:
    """The deleted topic and its successor, in one request."""
    asked, observed = produce(part("a", 0, GONE), part("a", 1, ID_A))
    assert asked == [("a", 1, ID_A)]
    assert observed == [("a", 0, ErrorCode.UNKNOWN_TOPIC_ID, -1), ("a", 1, ErrorCode.NONE, 1)]


@pytest.mark.parametrize("most", [3, 8, 9, 11, 12])
def test_older_broker_gets_names(most: int) -> None:
    asked, observed = produce(part("a", 3, ID_A), most=most)
    assert asked == [("a", 3, NO_ID)]
    assert observed == [("a", 3, ErrorCode.NONE, 3)]


def test_request_with_a_topic_whose_id_is_not_known_goes_by_name() -> None:
    asked, _ = produce(part("a", 3, ID_A), part("b", 0, NO_ID))
    assert asked == [("a", 3, NO_ID), ("b", 0, NO_ID)]


def test_transaction_of_version_1_goes_by_name() -> None:
    asked, _ = produce(part("a", 3, ID_A), transactional_id="x")
    assert asked == [("a", 3, NO_ID)]


@pytest.mark.parametrize("topic_id", [ID_A, NO_ID])
def test_produce_of_version_2_says_that_the_leader_is_to_add_the_partitions(topic_id: bytes) -> None:
    operation = TransactionSupportedOperation.ADD_PARTITION
    asked = operations(part("a", 3, topic_id), operation=operation)
    assert asked == [operation]


@pytest.mark.parametrize(
    ("most", "operation"),
    [
        (10, TransactionSupportedOperation.DEFAULT_ERROR),
        (11, TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED),
        (13, TransactionSupportedOperation.GENERIC_ERROR_SUPPORTED),
    ],
)
def test_produce_of_version_1_gets_the_error_that_its_version_knows(
    most: int, operation: TransactionSupportedOperation
) -> None:
    assert operations(part("a", 3, ID_A), most=most) == [operation]


def test_produce_of_version_2_is_not_sent_to_a_broker_without_it() -> None:
    with pytest.raises(ApiError, match="version 12"):
        operations(part("a", 3, ID_A), most=11, operation=TransactionSupportedOperation.ADD_PARTITION)
