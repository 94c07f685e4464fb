"""Requests that name topics by their ids (KIP-516), over a connection to a whole broker."""

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve
from support.group_requests import commit, find, joining
from support.kafka_frames import request_frame, result_of
from support.kafka_pair import PairConnection

from barnabas.adapters.wire_kafka import KafkaServer
from barnabas.ports.broker_api.groups import OffsetCommit, OffsetCommitPartition, OffsetFetch, OffsetFetchGroup
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.topics import DeleteTopics
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import ManualBroker, batch

PRODUCE, OFFSET_COMMIT, OFFSET_FETCH = 0, 8, 9
ZERO_UUID = "00" * 16


class End:
    """A connection to a broker."""

    def __init__(self) -> None:
        self.broker = ManualBroker(group_initial_rebalance_delay_ms=0)
        self.broker.create("t", 2)
        find(self.broker)
        self.reports: list[str] = []
        state = self.broker.node.state
        self.server = KafkaServer(
            self.broker.node.api, listener="PLAIN", report=self.reports.append, topic_name=state.topic_name
        )
        self.connection = PairConnection(("broker", 9092), ("198.51.100.7", 4321))
        self.connection.handler = self.server.accept(self.connection)

    def id_of(self, topic: str) -> str:
        return self.broker.node.state.image.topics[topic].topic_id.hex()

    def again(self) -> str:
        """Delete topic t and make it again; the id of the first one."""
        before = self.id_of("t")
        assert self.broker.ask(DeleteTopics(names=["t"])).topics[0].error is ErrorCode.NONE
        self.broker.create("t", 2)
        return before

    def send(self, key: int, version: int, request: Any) -> None:
        self.connection.inbox.append(request_frame(key, version, 1, request))
        while self.connection.step():
            pass
        self.broker.scheduler.run_pending()

    def ask(self, key: int, version: int, request: Any) -> Any:
        self.send(key, version, request)
        return result_of(key, version, self.connection.sent.pop())


@pytest.fixture
def end() -> Iterator[End]:
    made = End()
    yield made
    made.broker.stop()


def produced(end: End, *topics: str, acks: int = -1) -> list[tuple[str, int, ErrorCode, int]]:
    request = Produce(partitions=[ProducePartition(topic, 0, batch(b"v")) for topic in topics], acks=acks)
    result = end.ask(PRODUCE, 13, request)
    return [(each.topic, each.partition, each.error, each.base_offset) for each in result.partitions]


def test_produce_by_id(end: End) -> None:
    mine = end.id_of("t")
    assert produced(end, mine) == [(mine, 0, ErrorCode.NONE, 0)]
    assert produced(end, ZERO_UUID, mine, "ab" * 16) == [
        (mine, 0, ErrorCode.NONE, 1),
        (ZERO_UUID, 0, ErrorCode.UNKNOWN_TOPIC_ID, -1),
        ("ab" * 16, 0, ErrorCode.UNKNOWN_TOPIC_ID, -1),
    ]
    assert end.broker.values("t") == [b"v", b"v"]


def test_produce_to_the_id_of_a_deleted_topic_is_refused_and_writes_nothing(end: End) -> None:
    before = end.again()
    assert produced(end, before) == [(before, 0, ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert end.broker.values("t") == []


def test_a_leader_that_still_has_the_log_of_the_deleted_topic_takes_nothing_for_the_next_one(end: End) -> None:
    """The image knows the next topic, the replica is that of the topic before."""
    entry = ProducePartition("t", 0, batch(b"v"), b"n" * 16)
    (observed,) = end.broker.ask(Produce(partitions=[entry])).partitions
    assert observed.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert end.broker.values("t") == []


def test_produce_by_id_without_acknowledgement_closes_the_connection_where_no_topic_has_it(end: End) -> None:
    request = Produce(partitions=[ProducePartition(ZERO_UUID, 0, batch(b"v"))], acks=0)
    end.send(PRODUCE, 13, request)
    assert end.connection.is_closed
    assert "UNKNOWN_TOPIC_ID" in end.reports[0]


def test_a_produce_in_a_transaction_of_version_12_is_not_added_by_the_leader(end: End) -> None:
    """Only with version 2 of transactions, which is not offered, would a client leave AddPartitionsToTxn out."""
    records = batch(b"v")
    request = Produce(partitions=[ProducePartition("t", 0, records)], transactional_id="x")
    assert [each.error for each in end.ask(PRODUCE, 12, request).partitions] == [ErrorCode.NONE]
    assert end.broker.values("t") == [b"v"], "it was no transactional batch"


def commit_by_id(end: End, *positions: tuple[str, int], version: int = 10, **more: Any) -> list[tuple[str, ErrorCode]]:
    partitions = [OffsetCommitPartition(topic, 0, offset) for topic, offset in positions]
    result = end.ask(OFFSET_COMMIT, version, OffsetCommit(group_id="g", partitions=partitions, **more))
    return [(each.topic, each.error) for each in result.partitions]


def fetched(end: End, *topics: str, everything: bool = False) -> list[tuple[str, int, ErrorCode]]:
    wanted = None if everything else [TopicPartition(topic, 0) for topic in topics]
    result = end.ask(OFFSET_FETCH, 10, OffsetFetch(groups=[OffsetFetchGroup(group_id="g", partitions=wanted)]))
    return [(each.topic, each.offset, each.error) for each in result.groups[0].partitions]


def test_offsets_are_committed_and_fetched_by_id(end: End) -> None:
    mine = end.id_of("t")
    assert commit_by_id(end, (mine, 7), (ZERO_UUID, 8)) == [
        (mine, ErrorCode.NONE),
        (ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert fetched(end, mine, ZERO_UUID) == [
        (mine, 7, ErrorCode.NONE),
        (ZERO_UUID, -1, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert fetched(end, everything=True) == [(mine, 7, ErrorCode.NONE)]


def test_offsets_of_deleted_topic_id_are_neither_committed_nor_fetched(end: End) -> None:
    assert commit(end.broker, "g", {("t", 0): 5}) == [ErrorCode.NONE]
    before = end.again()
    assert commit_by_id(end, (before, 9)) == [(before, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert fetched(end, before) == [(before, -1, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert fetched(end, end.id_of("t")) == [(end.id_of("t"), -1, ErrorCode.NONE)]


def test_a_coordinator_that_has_not_heard_of_the_deletion_answers_for_the_topic_that_is_meant(end: End) -> None:
    """The image still has the topic that the committed offset is of; who asks means the next one."""
    assert commit(end.broker, "g", {("t", 0): 5}) == [ErrorCode.NONE]
    group = OffsetFetchGroup(group_id="g", partitions=[TopicPartition("t", 0)])
    meant = evolve(group, topic_ids={"t": b"n" * 16})
    observed = [end.broker.ask(OffsetFetch(groups=[each])).groups[0].partitions[0].offset for each in (group, meant)]
    assert observed == [5, -1]
    partition = OffsetCommitPartition("t", 0, 9, topic_id=b"n" * 16)
    outcome = end.broker.ask(OffsetCommit(group_id="g", partitions=[partition])).partitions[0]
    assert outcome.error is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_commit_to_missing_group_returns_group_id_not_found_from_version_9(
    end: End, version: int, error: ErrorCode
) -> None:
    assert commit_by_id(end, ("t", 1), version=version, generation_id=3, member_id="m") == [("t", error)]
    joined = end.broker.ask(joining("g"))
    assert commit_by_id(end, ("t", 1), version=version, generation_id=9, member_id=joined.member_id) == [
        ("t", ErrorCode.ILLEGAL_GENERATION)
    ]
