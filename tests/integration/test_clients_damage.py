"""Consumers of a scripted cluster whose log is damaged, or has aborted transactions."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.plain_cluster import PlainCluster, PlainConnector
from support.waiting import PATIENCE_S

from barnabas import Consumer, Message
from barnabas.core.message.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, parse_header, write_crc
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.corrupt_record import CorruptRecord
from barnabas.ports.broker_api.fetch import AbortedTransaction, Fetch, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.offsets import ListOffsets, ListOffsetsResult, ListOffsetsResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

T0 = TopicPartition("t", 0)


def consumer_of(cluster: PlainCluster, **settings: Any) -> Consumer:
    quick = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "max_partition_fetch_bytes": 1}
    return Consumer(PlainConnector(cluster), **{**quick, **settings})


@pytest.fixture
def cluster() -> PlainCluster:
    """Three batches of three messages."""
    cluster = PlainCluster(t=1)
    for number in range(0, 9, 3):
        cluster.append(T0, encode_batch([Message(b"%d" % n) for n in range(number, number + 3)], now_ms=0))
    return cluster


@pytest.fixture
def consumer(cluster: PlainCluster) -> Iterator[Consumer]:
    with consumer_of(cluster) as consumer:
        yield consumer


def offsets(messages: Any) -> list[int]:
    return [message.offset for message in messages]


def test_skip_damaged_skips_corrupt_batch_and_reports_it(cluster: PlainCluster) -> None:
    whole = cluster.logs[T0][1]
    cluster.logs[T0][1] = whole[:-1] + bytes([whole[-1] ^ 1])
    with consumer_of(cluster, skip_damaged=True) as consumer:
        consumer.assign(T0, position="earliest")
        assert offsets(consumer.messages(stop_at_end=True)) == [0, 1, 2, 6, 7, 8]
        assert [(d.topic, d.partition, d.start, d.end) for d in consumer.damaged] == [("t", 0, 3, 6)]
        assert "CRC" in consumer.damaged[0].reason
        assert consumer.position(T0) == 9


def test_damage_up_to_the_end_does_not_keep_a_reader_waiting(cluster: PlainCluster) -> None:
    whole = cluster.logs[T0][2]
    cluster.logs[T0][2] = whole[:-1] + bytes([whole[-1] ^ 1])
    with consumer_of(cluster, skip_damaged=True) as consumer:
        consumer.assign(T0, position="earliest")
        assert offsets(consumer.messages(stop_at_end=True)) == [0, 1, 2, 3, 4, 5]
        assert [(d.start, d.end) for d in consumer.damaged] == [(6, 9)]


def test_records_that_cannot_be_decoded_are_damage_too(cluster: PlainCluster) -> None:
    """The CRC is right: it was the producer that wrote nonsense."""
    batch = bytearray(cluster.logs[T0][1])
    batch[61] = 0x03
    write_crc(batch, 0, len(batch))
    cluster.logs[T0][1] = bytes(batch)
    with consumer_of(cluster) as consumer:
        consumer.assign(T0, position="earliest")
        found: list[int] = []
        with pytest.raises(CorruptRecord, match="t-0 is damaged at offset 3") as observed:
            found.extend(message.offset for message in consumer.messages(stop_at_end=True))
        assert found == [0, 1, 2]
        assert observed.value.offset == 3
    with consumer_of(cluster, skip_damaged=True) as consumer:
        consumer.assign(T0, position="earliest")
        assert offsets(consumer.messages(stop_at_end=True)) == [0, 1, 2, 6, 7, 8]
        assert [(d.start, d.end) for d in consumer.damaged] == [(3, 6)]


def test_a_broker_that_cannot_read_its_log_is_not_asked_for_ever(cluster: PlainCluster, consumer: Consumer) -> None:
    def refuse(_: int, request: Any) -> Any:
        if not isinstance(request, Fetch) or not any(3 <= p.offset < 6 for p in request.partitions):
            return None
        return FetchResult(partitions=[FetchResultPartition("t", 0, ErrorCode.CORRUPT_MESSAGE)])

    cluster.script(refuse)
    consumer.assign(T0, position="earliest")
    assert offsets(consumer.poll_many(3, PATIENCE_S)) == [0, 1, 2]
    with pytest.raises(CorruptRecord, match="offset 3: the broker cannot read it"):
        consumer.poll(PATIENCE_S)
    with consumer_of(cluster, skip_damaged=True) as other:
        other.assign(T0, position="earliest")
        assert offsets(other.messages(stop_at_end=True)) == [0, 1, 2, 6, 7, 8]
        assert [(d.start, d.end) for d in other.damaged] == [(3, 6)]


def test_committed_only_leaves_out_what_was_aborted_and_ends_at_the_last_stable_offset(cluster: PlainCluster) -> None:
    """Two transactions of producer 4, the first one aborted; a third one is open."""
    cluster.logs.clear()
    for values, transactional in ((b"abc", True), (b"", True), (b"de", True), (b"", False), (b"fg", True)):
        if values:
            cluster.append(T0, _transactional(values))
        else:
            cluster.append(T0, _marker(aborts=transactional))
    stable = 7

    def as_kafka(_: int, request: Any) -> Any:
        if isinstance(request, ListOffsets):
            assert request.isolation_level == 1
            return ListOffsetsResult(partitions=[ListOffsetsResultPartition(topic="t", partition=0, offset=stable)])
        if not isinstance(request, Fetch):
            return None
        assert request.isolation_level == 1
        headers = [(parse_header(b), b) for b in cluster.logs[T0]]
        asked = request.partitions[0].offset
        records = b"".join(b for h, b in headers if asked < h.next_offset <= stable)
        aborted = (AbortedTransaction(4, 0),) if asked < 4 else ()
        part = FetchResultPartition("t", 0, ErrorCode.NONE, 9, stable, 0, records, aborted)
        return FetchResult(partitions=[part])

    cluster.script(as_kafka)
    with consumer_of(cluster, isolation_level="read_committed") as consumer:
        consumer.assign(T0, position=0)
        assert [m.value for m in consumer.messages(stop_at_end=True)] == [b"d", b"e"]
        assert consumer.position(T0) == stable
        stable = 4  # nothing but what was aborted, and its marker
        consumer.seek(T0, 0)
        assert list(consumer.messages(stop_at_end=True)) == []
        assert consumer.position(T0) == 4


def _transactional(values: bytes) -> bytearray:
    numbers: dict[str, Any] = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    return encode_batch([Message(bytes([value])) for value in values], now_ms=0, **numbers)


def _marker(*, aborts: bool) -> bytearray:
    marker = Message(bytes(6), key=bytes([0, 0, 0, 0 if aborts else 1]))
    batch = encode_batch([marker], now_ms=0, producer_id=4, producer_epoch=0, base_sequence=-1)
    batch[22] |= CONTROL_BIT | TRANSACTIONAL_BIT
    write_crc(batch, 0, len(batch))
    return batch
