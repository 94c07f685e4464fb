"""The consumers' shells, with their threads, against a scripted cluster."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.plain_cluster import WITHHELD, PlainCluster, PlainConnector
from support.waiting import PATIENCE_S, with_enough_time

from barnabas import Consumer, Message, Producer, SimpleConsumer
from barnabas.core.client.errors import ClientTimeout, DecodeError, EncodeError, LogTruncated, NoOffset
from barnabas.core.message.batch_writer import encode_batch
from barnabas.ports.broker_api.fetch import DivergingEpoch, Fetch, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.offsets import (
    EARLIEST,
    LATEST,
    ListOffsets,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ClosedError, ConfigError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fill(cluster: PlainCluster, *batches: int, tp: TopicPartition = T0) -> None:
    """Append batches of these sizes; the value is the offset, the timestamp 1000 times the batch's first offset."""
    number = cluster.end(tp)
    for count in batches:
        messages = [Message(b"%d" % n, timestamp_ms=1000 * number) for n in range(number, number + count)]
        cluster.append(tp, encode_batch(messages, now_ms=0))
        number += count


def consumer_of(cluster: PlainCluster, **settings: Any) -> Consumer:
    quick = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "max_partition_fetch_bytes": 1}
    return Consumer(PlainConnector(cluster), **{**quick, **settings})


@pytest.fixture
def cluster() -> PlainCluster:
    cluster = PlainCluster(t=2)
    fill(cluster, 3, 3, 3)
    return cluster


@pytest.fixture
def consumer(cluster: PlainCluster) -> Iterator[Consumer]:
    with consumer_of(cluster) as consumer:
        yield consumer


def offsets(messages: Any) -> list[int]:
    return [message.offset for message in messages]


# --- assigning


def test_a_topic_stands_for_its_partitions(cluster: PlainCluster, consumer: Consumer) -> None:
    fill(cluster, 2, tp=T1)
    assert consumer.assign("t", position="earliest") == [T0, T1]
    read = list(consumer.messages(stop_at_end=True))
    assert sorted((m.topic, m.partition, m.offset, m.value) for m in read) == [
        *(("t", 0, n, b"%d" % n) for n in range(9)),
        *(("t", 1, n, b"%d" % n) for n in range(2)),
    ]


@pytest.mark.parametrize(
    "what", ["t", ("t", 0), T0, [T0], ["t"], [("t", 0), T0]], ids=["topic", "pair", "place", "places", "topics", "both"]
)
def test_ways_to_say_what(cluster: PlainCluster, consumer: Consumer, what: Any) -> None:
    assert consumer.assign(what, partitions=[0] if "t" in what else None, position=7) == [T0]
    assert offsets(consumer.messages(stop_at_end=True)) == [7, 8]


@pytest.mark.parametrize(
    ("where", "first"),
    [({"position": "earliest"}, 0), ({"position": 5}, 5), ({"timestamp_ms": 2500}, 3), ({"timestamp_ms": 6001}, 9)],
    ids=["earliest", "offset", "time", "future"],
)
def test_ways_to_say_where(cluster: PlainCluster, consumer: Consumer, where: dict[str, Any], first: int) -> None:
    consumer.assign(T0, **where)
    assert consumer.position(T0, 10) == first
    assert offsets(consumer.messages(stop_at_end=True)) == list(range(first, 9))


def test_the_default_is_what_comes_from_now_on(cluster: PlainCluster, consumer: Consumer) -> None:
    consumer.assign(T0)
    assert consumer.position(T0) == 9
    fill(cluster, 1)
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.offset == 9


def test_mistakes_are_named(consumer: Consumer) -> None:
    for call, text in (
        (lambda: consumer.assign(T0, position="middle"), "middle"),
        (lambda: consumer.assign(T0, position=-1), "-1"),
        (lambda: consumer.assign(T0, position=1, timestamp_ms=1), "not both"),
        (lambda: consumer.assign([]), "at least one"),
        (consumer.poll, "assign"),
        (lambda: consumer.seek(T1, 0), "t-1 is not assigned"),
        (lambda: consumer.subscribe(["t"]), r"subscribe\(\) needs a group"),
        (consumer.commit, r"commit\(\) needs a group"),
    ):
        with pytest.raises(ConfigError, match=text):
            call()


def test_topics_and_partitions_that_are_not_there(consumer: Consumer) -> None:
    with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION: topic nowhere"):
        consumer.assign("nowhere")
    with pytest.raises(ApiError, match="t has 2 partitions, no 9"):
        consumer.assign(("t", 9))


def test_assign_with_unreachable_bootstrap_times_out() -> None:
    def assign(limit_ms: int) -> None:
        connector = PlainConnector(PlainCluster())
        connector.refused = {"bootstrap"}
        with (
            Consumer(connector, default_api_timeout_ms=limit_ms) as consumer,
            pytest.raises(ClientTimeout, match="bootstrap refuses"),
        ):
            consumer.assign("t")

    with_enough_time(assign)


# --- reading


def test_consumer_reads_messages_appended_after_end_was_reached(cluster: PlainCluster, consumer: Consumer) -> None:
    consumer.assign(T0, position="earliest")
    with_more = consumer.messages(stop_at_end=True)
    assert next(with_more).offset == 0
    fill(cluster, 2)  # after the end was looked up
    assert offsets(with_more) == list(range(1, 9))
    assert consumer.position(T0) == 9
    assert offsets(consumer.messages(stop_at_end=True)) == [9, 10]


def test_an_end_inside_a_batch_loses_nothing(cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with consumer_of(cluster) as consumer:
        consumer.assign(T0, position=0)
        monkeypatch.setattr(consumer, "end_offsets", lambda: {T0: 4})  # as if the log had ended there
        assert offsets(consumer.messages(stop_at_end=True)) == [0, 1, 2, 3]
        assert consumer.position(T0) == 4
        asked = [consumer.poll(PATIENCE_S) for _ in range(5)]
    assert [message.offset for message in asked if message] == [4, 5, 6, 7, 8]


def test_an_empty_log_ends_at_once(consumer: Consumer) -> None:
    consumer.assign(T1, position="earliest")
    assert list(consumer.messages(stop_at_end=True)) == []


def test_leaving_a_loop_and_coming_back(consumer: Consumer) -> None:
    consumer.assign(T0, position="earliest")
    for message in consumer:
        if message.offset == 4:
            break
    assert consumer.position(T0) == 5
    assert offsets(consumer.poll_many(2, timeout=PATIENCE_S))[0] == 5
    rest = offsets(consumer.messages(stop_at_end=True))
    assert rest in ([6, 7, 8], [7, 8])


def test_poll_many_returns_available_messages(cluster: PlainCluster, consumer: Consumer) -> None:
    consumer.assign(T0, position="earliest")
    found: list[int] = []
    while len(found) < 9:
        found += offsets(consumer.poll_many(4, timeout=PATIENCE_S))
    assert found == list(range(9))
    assert consumer.poll_many(timeout=0.01) == []
    assert consumer.poll() is None
    assert not consumer.buffered


def test_iterating_may_have_a_time(consumer: Consumer) -> None:
    consumer.assign(T0, position=7)
    assert offsets(consumer.poll_many(1, PATIENCE_S)) == [7]  # the first fetch may take longer than the time
    assert offsets(consumer.messages(timeout=0.05)) == [8]
    assert consumer.high_watermark(T0) == 9


def test_a_setting_ends_iterating_too(cluster: PlainCluster) -> None:
    with consumer_of(cluster, config={"consumer.timeout.ms": 50}) as consumer:
        consumer.assign(T0, position=7)
        assert offsets(consumer.poll_many(1, PATIENCE_S)) == [7]
        assert offsets(consumer) == [8]


def test_seeking_while_reading(consumer: Consumer) -> None:
    consumer.assign(T0, position="earliest")
    seen = []
    for message in consumer.messages(stop_at_end=True):
        seen.append(message.offset)
        if len(seen) == 2:
            consumer.seek(T0, 7)
    assert seen == [0, 1, 7, 8]
    consumer.seek(T0, "earliest")
    assert consumer.poll_many(1, PATIENCE_S)[0].offset == 0
    consumer.seek_to_time(3000)
    assert consumer.poll_many(1, PATIENCE_S)[0].offset == 3


def test_pausing_and_resuming(cluster: PlainCluster, consumer: Consumer) -> None:
    fill(cluster, 3, tp=T1)
    consumer.assign("t", position="earliest")
    consumer.pause(T0)
    assert {m.partition for m in consumer.messages(stop_at_end=True)} == {1}
    consumer.resume()
    assert offsets(consumer.messages(stop_at_end=True)) == list(range(9))


def test_a_pause_counts_from_the_next_message_on(cluster: PlainCluster, consumer: Consumer) -> None:
    fill(cluster, 3, tp=T1)
    consumer.assign("t", position="earliest")
    reading = consumer.messages(stop_at_end=True)
    first = next(reading)
    consumer.pause((first.topic, first.partition))
    assert {m.partition for m in reading} == {1 - first.partition}
    consumer.resume()
    rest = [m.offset for m in consumer.messages(stop_at_end=True)]
    assert rest == list(range(1, 9 if first.partition == 0 else 3))


def test_error_of_decoder_ends_the_iteration_and_the_next_one_continues(cluster: PlainCluster) -> None:
    def decode(value: bytes | None) -> bytes | None:
        if value == b"4":
            raise ValueError("no fours")
        return value

    with consumer_of(cluster, decoder=decode) as consumer:
        consumer.assign(T0, position="earliest")
        messages = consumer.messages(stop_at_end=True)
        assert [next(messages).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        with pytest.raises(DecodeError, match="t-0 offset 4"):
            next(messages)
        assert list(messages) == []
        assert [message.value for message in consumer.messages(stop_at_end=True)] == [b"5", b"6", b"7", b"8"]


def test_values_and_keys_are_decoded(cluster: PlainCluster) -> None:
    cluster.append(T1, encode_batch([Message(b'{"a":1}', key=b"k"), Message(b"{oops"), Message(b"3")], now_ms=1))
    with consumer_of(cluster, decoder="json", key_decoder="string") as consumer:
        consumer.assign(T1, position=0)
        messages = consumer.messages(stop_at_end=True)
        first: Any = next(messages)
        assert (first.value, first.key) == ({"a": 1}, "k")
        with pytest.raises(EncodeError, match="t-1 offset 1"):
            next(messages)
        last: Any = consumer.poll(PATIENCE_S)
        assert last.value == 3


# --- offsets


def test_consumer_returns_beginning_end_and_timestamp_offsets(cluster: PlainCluster, consumer: Consumer) -> None:
    cluster.starts[T0] = 2
    consumer.assign("t", position=3)
    assert consumer.beginning_offsets() == {T0: 2, T1: 0}
    assert consumer.end_offsets([T0]) == {T0: 9}
    assert consumer.offsets_for_times({T0: 4000, T1: 0}) == {T0: 6, T1: None}


# --- trouble


def test_lost_connections_lose_and_repeat_nothing(cluster: PlainCluster) -> None:
    turn = iter(range(10**6))
    cluster.script(lambda _, r: TransportError("lost") if isinstance(r, Fetch) and next(turn) % 2 == 0 else None)
    with consumer_of(cluster) as consumer:
        consumer.assign(T0, position="earliest")
        assert offsets(consumer.messages(stop_at_end=True)) == list(range(9))


def test_a_moved_leader_is_followed() -> None:
    cluster = PlainCluster(brokers=2, t=1)
    fill(cluster, 1, 1)
    with consumer_of(cluster) as consumer:
        consumer.assign(T0, position="earliest")
        assert consumer.poll_many(1, PATIENCE_S)[0].offset == 0
        cluster.epochs[T0], cluster.leaders[T0] = 1, 2
        assert consumer.poll_many(1, PATIENCE_S)[0].offset == 1
        fill(cluster, 1)
        assert consumer.poll_many(1, PATIENCE_S)[0].offset == 2
    assert [broker for broker, request in cluster.requests if isinstance(request, Fetch)][-1] == 2


def test_out_of_range_without_reset_policy_raises_and_seek_resumes(cluster: PlainCluster) -> None:
    with consumer_of(cluster, auto_offset_reset="none") as consumer:
        consumer.assign(T0, position=99)
        with pytest.raises(NoOffset, match="no offset 99"):
            consumer.poll(PATIENCE_S)
        consumer.seek(T0, 8)
        assert consumer.poll_many(1, PATIENCE_S)[0].offset == 8
        with pytest.raises(ConfigError, match="say where to begin"):
            consumer.assign(T0)


def test_a_damaged_batch_is_raised_and_never_skipped_in_silence(cluster: PlainCluster, consumer: Consumer) -> None:
    whole = cluster.logs[T0][1]
    cluster.logs[T0][1] = whole[:-1] + bytes([whole[-1] ^ 1])
    consumer.assign(T0, position="earliest")
    assert offsets(consumer.poll_many(3, PATIENCE_S)) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
            consumer.poll(PATIENCE_S)
        assert consumer.position(T0) == 3
        consumer.resume(T0)
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        consumer.poll(PATIENCE_S)
    cluster.logs[T0][1] = whole
    consumer.seek(T0, 6)
    assert offsets(consumer.messages(stop_at_end=True)) == [6, 7, 8]


def test_a_damaged_batch_leaves_what_is_paused_alone(cluster: PlainCluster, consumer: Consumer) -> None:
    fill(cluster, 3, tp=T1)
    whole = cluster.logs[T0][0]
    cluster.logs[T0][0] = whole[:-1] + bytes([whole[-1] ^ 1])
    consumer.assign(T1, position=0)
    assert consumer.poll_many(1, PATIENCE_S)[0].offset == 0
    consumer.pause(T1)
    consumer._fetcher.add({T0: 0})
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        consumer.poll(PATIENCE_S)
    consumer.resume(T1)
    assert [m.offset for m in consumer.messages(timeout=0.05)] == [1, 2]


def test_an_error_does_not_swallow_what_was_read_before(cluster: PlainCluster, consumer: Consumer) -> None:
    refusal = FetchResult(partitions=[FetchResultPartition("t", 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)])
    cluster.script(lambda _, r: refusal if isinstance(r, Fetch) and any(p.offset == 6 for p in r.partitions) else None)
    consumer.assign(T0, position="earliest")
    found: list[int] = []
    with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED"):
        while True:
            found += offsets(consumer.poll_many(100, PATIENCE_S))
    assert found == list(range(6))


def test_closing_from_another_thread_ends_waiting(cluster: PlainCluster) -> None:
    consumer = consumer_of(cluster)
    consumer.assign(T1, position="earliest")
    timer = threading.Timer(0.05, consumer.close)
    timer.start()
    with pytest.raises(ClosedError):
        consumer.poll(PATIENCE_S)
    timer.join()


# --- a log that was truncated


def truncated(_: Fetch) -> FetchResult:
    return FetchResult(partitions=[FetchResultPartition("t", 0, diverging=DivergingEpoch(0, 6))])


def test_a_log_that_lost_messages_is_read_on_from_where_it_has_others(cluster: PlainCluster) -> None:
    with consumer_of(cluster, auto_offset_reset="latest") as consumer:
        consumer.assign(T0, position=0)
        assert offsets(until(consumer, 9)) == list(range(9))
        cluster.once(Fetch, truncated)
        fill(cluster, 1)
        assert offsets(until(consumer, 4)) == [6, 7, 8, 9]


def test_log_truncation_without_reset_policy_raises_log_truncated(cluster: PlainCluster) -> None:
    with consumer_of(cluster, auto_offset_reset="none") as consumer:
        consumer.assign(T0, position=8)
        cluster.once(Fetch, truncated)
        with pytest.raises(
            LogTruncated, match="read up to offset 8, and its log has lost what it had from 6 on"
        ) as observed:
            until(consumer, 1)
        consumer.seek(T0, observed.value.end_offset)
        assert offsets(until(consumer, 3)) == [6, 7, 8]


def until(consumer: Consumer, count: int) -> list[Any]:
    read: list[Any] = []
    while len(read) < count:
        read += consumer.poll_many(count - len(read), timeout=PATIENCE_S)
    return read


# --- a broker that is paused


def test_a_leader_that_hangs_is_left_as_soon_as_the_cluster_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection stays open, and the request timeout is half a minute."""
    monkeypatch.setattr("barnabas.app.clients.shared.client_shell.LATE_MS", 50)
    cluster = PlainCluster(brokers=2, t=1)
    fill(cluster, 3)
    hangs = threading.Event()
    cluster.script(lambda node, _: WITHHELD if node == 1 and hangs.is_set() else None)
    with consumer_of(cluster) as consumer, Producer(PlainConnector(cluster), linger_ms=0) as producer:
        consumer.assign(T0, position=0)
        assert offsets(until(consumer, 3)) == [0, 1, 2]
        producer.send("t", b"3").result(PATIENCE_S)
        assert offsets(until(consumer, 1)) == [3]
        hangs.set()
        sent = producer.send("t", b"4")
        cluster.only = {2}
        cluster.leaders[T0], cluster.epochs[T0] = 2, 1
        assert sent.result(PATIENCE_S).offset == 4
        assert offsets(until(consumer, 1)) == [4]


# --- the simple consumer


@pytest.fixture
def simple(cluster: PlainCluster) -> Iterator[SimpleConsumer]:
    with SimpleConsumer(PlainConnector(cluster), retry_backoff_ms=1, reconnect_backoff_ms=1) as simple:
        yield simple


def test_fetching_from_an_offset(simple: SimpleConsumer) -> None:
    found = simple.fetch("t", 0, 3, 1)
    assert offsets(found) == [3, 4, 5]
    assert (found.next_offset, found.high_watermark, found.log_start_offset) == (6, 9, 0)
    assert offsets(simple.fetch("t", 0, 9)) == []


def test_fetching_from_within_a_batch(simple: SimpleConsumer, cluster: PlainCluster) -> None:
    found = simple.fetch("t", 0, 4, 1)
    assert offsets(found)[:2] == [4, 5]
    assert next(request.partitions[0].offset for request in cluster.of(Fetch)) == 4


def test_fetching_several_at_once() -> None:
    cluster = PlainCluster(brokers=2, t=2)
    fill(cluster, 2)
    fill(cluster, 3, tp=T1)
    with SimpleConsumer(PlainConnector(cluster)) as simple:
        found = simple.multifetch([("t", 1, 1), ("t", 0, 0)])
    assert [offsets(each) for each in found] == [[1, 2], [0, 1]]
    assert len(cluster.of(Fetch)) == 2


def test_offsets_before_a_time(simple: SimpleConsumer, cluster: PlainCluster) -> None:
    cluster.starts[T0] = 1
    assert simple.offsets_before("t", 0, LATEST) == [9]
    assert simple.offsets_before("t", 0, LATEST, 10) == [9, 1]
    assert simple.offsets_before("t", 0, EARLIEST, 10) == [1]
    assert simple.offsets_before("t", 0, 3000, 10) == [3, 1]
    assert simple.offset_at("t", 0, 10**9) == -1


def test_reading_a_range(simple: SimpleConsumer) -> None:
    pieces = list(simple.read("t", 0, 1, 7, max_bytes=1))
    assert [piece.next_offset for piece in pieces] == [3, 6, 9]
    assert [piece.next_offset for piece in simple.read("t", 0, 8)] == [9]
    with pytest.raises(ApiError, match="ends at 9, before offset 12"):
        list(simple.read("t", 0, 8, 12))


def test_lost_connections_are_made_good_for_as_long_as_a_call_may_take(cluster: PlainCluster) -> None:
    quick: dict[str, Any] = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1}
    with SimpleConsumer(PlainConnector(cluster), **quick) as simple:
        for _ in range(3):
            cluster.once(Fetch, TransportError("lost"))
        assert offsets(simple.fetch("t", 0, 6)) == [6, 7, 8]
    cluster.script(lambda _, request: TransportError("lost") if isinstance(request, Fetch) else None)

    def fetch(limit_ms: int) -> None:
        with (
            SimpleConsumer(PlainConnector(cluster), default_api_timeout_ms=limit_ms, **quick) as simple,
            pytest.raises(ClientTimeout, match="lost"),
        ):
            simple.fetch("t", 0, 6)

    with_enough_time(fetch)


def test_a_new_leader_that_does_not_know_yet_how_far_its_followers_are_is_waited_for(
    simple: SimpleConsumer, cluster: PlainCluster
) -> None:
    def behind(_: Fetch) -> FetchResult:
        return FetchResult(partitions=[FetchResultPartition("t", 0, ErrorCode.NONE, 6, 6, 0)])

    cluster.once(Fetch, behind)
    cluster.once(ListOffsets, ListOffsetsResult(partitions=[_listed("t", 0, ErrorCode.OFFSET_NOT_AVAILABLE)]))
    assert [offsets(piece) for piece in simple.read("t", 0, 6, 9)] == [[6, 7, 8]]


def _listed(topic: str, partition: int, error: ErrorCode) -> ListOffsetsResultPartition:
    return ListOffsetsResultPartition(topic=topic, partition=partition, error=error)


def test_simple_consumer_fetch_out_of_range_raises_api_error(simple: SimpleConsumer, cluster: PlainCluster) -> None:
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        simple.fetch("t", 0, 10)
    assert len(cluster.of(Metadata)) >= 1
