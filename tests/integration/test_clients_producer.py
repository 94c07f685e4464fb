"""The producer's shell, with its threads, against a scripted cluster."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from support.plain_cluster import WITHHELD, PlainCluster, PlainConnector
from support.waiting import PATIENCE_S, wait_for, with_enough_time

from barnabas import Message, Producer
from barnabas.core.client.errors import ClientTimeout, EncodeError, HookError, QueueFull
from barnabas.core.client.producer.handlers import (
    BatchOutcome,
    CallbackHandler,
    EventHandler,
    ProducerItem,
    SendItems,
)
from barnabas.core.client.producer.hashing import murmur2_partition
from barnabas.core.client.producer.partitioner import Partitioner
from barnabas.core.client.producer.producer_batch import Delivery
from barnabas.core.message.message_set import MessageSet
from barnabas.core.message.numbered_header import NumberedHeader
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import Produce, ProduceResult, ProduceResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

T0 = TopicPartition("t", 0)


def values(cluster: PlainCluster, tp: TopicPartition = T0) -> list[bytes | None]:
    return [message.value for message in MessageSet(b"".join(cluster.logs.get(tp, [])))]


def messages(cluster: PlainCluster, partition: int) -> list[Message]:
    return list(MessageSet(b"".join(cluster.logs.get(TopicPartition("t", partition), []))))


def producer_of(cluster: PlainCluster, **settings: Any) -> Producer:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "plugins": ()}
    return Producer(PlainConnector(cluster), **{**quick, **settings})


@pytest.fixture
def cluster() -> PlainCluster:
    return PlainCluster(t=1)


@pytest.fixture
def producer(cluster: PlainCluster) -> Iterator[Producer]:
    with producer_of(cluster) as producer:
        yield producer


def stuck(cluster: PlainCluster) -> threading.Event:
    """No produce request is answered until the event is set."""
    free = threading.Event()
    cluster.script(lambda _, request: None if free.is_set() or not isinstance(request, Produce) else WITHHELD)
    return free


# --- one message


def test_a_message_with_everything_arrives(cluster: PlainCluster, producer: Producer) -> None:
    handle = producer.send("t", b"value", b"key", headers=[("h", b"1"), ("n", None)], timestamp_ms=1234)
    assert handle.result(PATIENCE_S) == Delivery("t", 0, 0, 1234)
    assert handle.done
    (message,) = MessageSet(cluster.logs[T0][0])
    assert message[:4] == (b"value", b"key", (("h", b"1"), ("n", None)), 1234)


def test_a_whole_message_a_null_value_and_an_explicit_partition() -> None:
    cluster = PlainCluster(t=3)
    with producer_of(cluster) as producer:
        producer.send("t", Message(b"v", b"k", (("a", None),), 5), partition=2)
        producer.send("t", None, b"k", partition=1)
    (first,) = MessageSet(cluster.logs[TopicPartition("t", 2)][0])
    assert first[:4] == (b"v", b"k", (("a", None),), 5)
    assert values(cluster, TopicPartition("t", 1)) == [None]


def test_delivery_callbacks_get_delivery_or_error(cluster: PlainCluster, producer: Producer) -> None:
    observed: list[tuple[BarnabasError | None, Delivery | None]] = []
    producer.send("t", b"1", on_delivery=lambda error, delivery: observed.append((error, delivery))).result(PATIENCE_S)
    refusal = ProduceResult(partitions=[ProduceResultPartition("t", 0, ErrorCode.INVALID_RECORD)])
    cluster.once(Produce, refusal)
    handle = producer.send("t", b"2", on_delivery=lambda error, delivery: observed.append((error, delivery)))
    with pytest.raises(ApiError, match="INVALID_RECORD"):
        handle.result(PATIENCE_S)
    wait_for(lambda: len(observed) == 2)
    assert observed[0][1] is not None and observed[0][1].offset == 0
    assert isinstance(observed[1][0], ApiError)
    assert (producer.delivered, producer.failed) == (1, 1)


def test_a_callback_that_raises_or_waits_stops_nothing(producer: Producer, caplog: pytest.LogCaptureFixture) -> None:
    errors: list[BaseException] = []

    def waits(error: BarnabasError | None, delivery: Delivery | None) -> None:
        try:
            producer.send("t", b"from the callback").result(PATIENCE_S)
        except BarnabasError as failure:
            errors.append(failure)
            raise

    producer.send("t", b"1", on_delivery=waits).result(PATIENCE_S)
    wait_for(lambda: "a delivery callback raised" in caplog.text)
    assert "another thread" in str(errors[0])
    assert producer.send("t", b"2").result(PATIENCE_S).offset >= 1


def test_handles_can_be_awaited(cluster: PlainCluster, producer: Producer) -> None:
    async def main() -> tuple[Delivery, int]:
        return await producer.send("t", b"1"), await producer.send_many("t", [b"2", b"3"])

    delivery, count = asyncio.run(main())
    assert (delivery.offset, count) == (0, 2)
    assert values(cluster) == [b"1", b"2", b"3"]


def test_send_with_acks_0_returns_offset_minus_1(cluster: PlainCluster) -> None:
    cluster.script(
        lambda _, r: ProduceResult(partitions=[ProduceResultPartition("t", 0)]) if isinstance(r, Produce) else None
    )
    with producer_of(cluster, acks=0) as producer:
        assert producer.send("t", b"1").result(PATIENCE_S).offset == -1


# --- what is wrong with it


def test_value_without_encoding_is_refused_at_once(producer: Producer) -> None:
    with pytest.raises(EncodeError, match='choose encoder="string"'):
        producer.send("t", "text")
    with pytest.raises(EncodeError, match="header"):
        producer.send("t", b"", headers=[("a", "text")])  # type: ignore[list-item]  # that is the point
    with pytest.raises(EncodeError, match="timestamp"):
        producer.send("t", b"", timestamp_ms=-5)
    with pytest.raises(EncodeError):
        producer.send_many("t", [b"good", "bad"])
    producer.flush(PATIENCE_S)
    assert producer.delivered == 0


def test_a_message_beyond_the_largest_request_is_refused(cluster: PlainCluster) -> None:
    with producer_of(cluster, max_request_size=1000) as producer:
        with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
            producer.send("t", bytes(1000))
        handle = producer.send_many("t", [b"a", b"b"])
        assert handle.result(PATIENCE_S) == 2


def test_a_partition_that_is_not_there(producer: Producer) -> None:
    producer.send("t", b"1").result(PATIENCE_S)
    with pytest.raises(ApiError, match="t has 1 partition, no 7"):
        producer.send("t", b"2", partition=7)


def test_a_partition_that_turns_out_not_to_be_there_fails_its_handle(producer: Producer) -> None:
    handle = producer.send("t", b"2", partition=7)
    with pytest.raises(ApiError, match="no 7"):
        handle.result(PATIENCE_S)


def test_a_partitioner_that_fails_fails_its_message(cluster: PlainCluster) -> None:
    class Odd(Partitioner):
        def partition(
            self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
        ) -> int:
            if value == b"raise":
                raise RuntimeError("boom")
            return 99 if value == b"far" else 0

        def next_batch(self, topic: str, partition: int) -> None:
            raise RuntimeError("boom")

    with producer_of(cluster, partitioner=Odd()) as producer:
        producer.send("t", b"good").result(PATIENCE_S)
        for value, text in ((b"raise", "boom"), (b"far", "chose 99")):
            with pytest.raises(EncodeError, match=text):
                producer.send("t", value)
    assert values(cluster) == [b"good"]


def test_wrong_partitioner_is_refused_with_the_reason() -> None:
    for wrong in (object(), "no such"):
        with pytest.raises(ConfigError, match="partitioner"):
            Producer("localhost:9", partitioner=wrong)  # type: ignore[arg-type]  # that is the point


# --- topics


def test_messages_wait_for_a_topic_in_their_order(cluster: PlainCluster) -> None:
    with producer_of(cluster) as producer:
        handles = [producer.send("new", b"%d" % n) for n in range(5)]
        wait_for(lambda: len(cluster.of(Metadata)) > 2)
        cluster.topics["new"] = 1
        assert [handle.result(PATIENCE_S).offset for handle in handles] == list(range(5))
        assert producer.partitions("new") == 1


def test_a_topic_that_never_comes_fails_its_messages(cluster: PlainCluster) -> None:
    with producer_of(cluster, max_block_ms=1000) as producer:
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            producer.send("never", b"1").result(PATIENCE_S)
        assert producer.send("t", b"2").result(PATIENCE_S).offset == 0


# --- trouble


def test_lost_connections_lose_repeat_and_reorder_nothing(cluster: PlainCluster) -> None:
    turn = iter(range(10**6))

    def flaky(_: int, request: Any) -> Any:
        return TransportError("lost") if isinstance(request, Produce) and next(turn) % 2 == 0 else None

    cluster.script(flaky)
    with producer_of(cluster, batch_num_messages=10) as producer:
        for number in range(200):
            producer.send("t", b"%d" % number)
    assert values(cluster) == [b"%d" % n for n in range(200)]
    assert (producer.delivered, producer.failed) == (200, 0)


def test_a_broker_that_refuses_connections_at_first(cluster: PlainCluster) -> None:
    connector = PlainConnector(cluster)
    connector.refused = {"bootstrap", "broker-1"}
    with Producer(connector, linger_ms=0, retry_backoff_ms=1, reconnect_backoff_ms=1) as producer:
        handle = producer.send("t", b"1")
        wait_for(lambda: len(connector.connects) > 3)
        connector.refused = set()
        assert handle.result(PATIENCE_S).offset == 0


def test_send_to_unreachable_cluster_fails_after_delivery_timeout(cluster: PlainCluster) -> None:
    connector = PlainConnector(cluster)
    connector.refused = {"bootstrap"}

    def send(limit_ms: int) -> None:
        with (
            Producer(connector, linger_ms=0, delivery_timeout_ms=limit_ms, max_block_ms=0) as producer,
            pytest.raises(ApiError, match=r"REQUEST_TIMED_OUT: no metadata .* bootstrap refuses"),
        ):
            producer.send("t", b"1").result(PATIENCE_S)

    with_enough_time(send)


# --- a full buffer


def test_send_to_full_buffer_without_blocking_raises_queue_full(cluster: PlainCluster) -> None:
    free = stuck(cluster)
    with producer_of(cluster, queue_buffering_max_messages=3, max_block_ms=0) as producer:
        producer.partitions("t")
        taken = [producer.send("t", b"%d" % n) for n in range(3)]
        with pytest.raises(QueueFull, match="3 messages"):
            producer.send("t", b"3")
        free.set()
        cluster.brokers = 1
        producer.close(0.2)
        assert all(handle.done for handle in taken)
        for handle in taken:
            with suppress(BarnabasError):  # a busy machine may not deliver them in that time
                handle.result(0)


def test_a_full_buffer_waits_its_time(cluster: PlainCluster) -> None:
    stuck(cluster)
    producer = producer_of(cluster, buffer_memory=200, max_block_ms=50)
    producer.send("t", bytes(150))
    with pytest.raises(QueueFull, match=r"max\.block\.ms"):
        producer.send("t", bytes(150))
    producer.close(0.01)


@pytest.mark.parametrize("max_block_ms", [-1, 30_000])
def test_blocked_send_resumes_when_buffer_has_room(cluster: PlainCluster, max_block_ms: int) -> None:
    with producer_of(cluster, queue_buffering_max_messages=5, max_block_ms=max_block_ms, linger_ms=50) as producer:
        for number in range(50):
            producer.send("t", b"%d" % number)
        many = producer.send_many("t", [b"%d" % n for n in range(50, 100)])
        assert many.result(PATIENCE_S) == 50
    assert values(cluster) == [b"%d" % n for n in range(100)]


def test_send_many_to_full_buffer_reports_accepted_messages(cluster: PlainCluster) -> None:
    stuck(cluster)
    producer = producer_of(cluster, queue_buffering_max_messages=2, max_block_ms=0, batch_num_messages=1)
    producer.partitions("t")
    with pytest.raises(QueueFull) as caught:
        producer.send_many("t", [b"1", b"2", b"3"])
    assert caught.value.taken.count == 2  # type: ignore[attr-defined]  # a ManyHandle
    producer.close(0.01)


# --- many


def test_many_of_every_kind_keep_their_order(cluster: PlainCluster) -> None:
    with producer_of(cluster, batch_num_messages=7) as producer:
        handles = [
            producer.send_many("t", [b"%d" % n for n in range(20)]),
            producer.send_many("t", [Message(b"%d" % n) for n in range(20, 40)]),
            producer.send_many("t", [Message(b"%d" % n, key=b"k") for n in range(40, 50)]),
            producer.send_many("t", [b"50", None, Message(b"52", headers=(("h", b""),))]),
            producer.send_many("t", []),
        ]
        assert [handle.result(PATIENCE_S) for handle in handles] == [20, 20, 10, 3, 0]
        assert [d.offset for d in handles[1].deliveries() if isinstance(d, Delivery)] == list(range(20, 40))
    assert values(cluster) == [b"%d" % n for n in range(51)] + [None, b"52"]


def test_keys_keep_their_partitions_and_order_among_messages_of_every_kind() -> None:
    cluster = PlainCluster(t=3)
    sent: dict[bytes, list[bytes]] = {}
    with producer_of(cluster, linger_ms=2) as producer:
        handles = []
        for number in range(600):
            key, value = b"k%d" % (number % 17), b"%d" % number
            if number == 300:
                producer.flush()
            extra: dict[str, Any] = {"headers": [("h", b"")]} if number % 41 == 7 else {}
            extra |= {"timestamp_ms": 5} if number % 59 == 3 else {}
            handles.append((producer.send("t", value, key, **extra), key, value))
            sent.setdefault(key, []).append(value)
            if number % 31 == 0:
                producer.send("t", b"none")
        for handle, key, value in handles:
            place = handle.result(PATIENCE_S)
            assert place.partition == murmur2_partition(key, 3)
            assert messages(cluster, place.partition)[place.offset].value == value
    for key, wanted in sent.items():
        found = messages(cluster, murmur2_partition(key, 3))
        assert [message.value for message in found if message.key == key] == wanted


def test_keys_follow_a_topic_that_grows(cluster: PlainCluster) -> None:
    with producer_of(cluster) as producer:
        producer.send("t", b"before", b"key").result(PATIENCE_S)
        cluster.topics["t"] = 5
        producer._view.request_refresh()
        producer._shell.wake()
        wait_for(lambda: producer.partitions("t") == 5)
        keys = [b"k%d" % number for number in range(40)]
        handles = [producer.send("t", b"after", key) for key in keys for _ in range(2)]
        partitions = [handle.result(PATIENCE_S).partition for handle in handles]
    assert partitions == [murmur2_partition(key, 5) for key in keys for _ in range(2)]


def test_key_after_close_or_for_full_buffer_is_refused(cluster: PlainCluster) -> None:
    cluster.script(lambda _, r: WITHHELD if isinstance(r, Produce) else None)
    producer = producer_of(cluster, linger_ms=60_000, queue_buffering_max_messages=3, max_block_ms=0)
    producer.partitions("t")
    for number in range(3):
        producer.send("t", b"%d" % number, b"k")
    with pytest.raises(QueueFull):
        producer.send("t", b"3", b"k")
    with suppress(ClientTimeout):
        producer.close(timeout=0.05)
    with pytest.raises(ClosedError):
        producer.send("t", b"4", b"k")


def test_many_are_spread_over_partitions_and_single_ones_join_in() -> None:
    cluster = PlainCluster(t=4)
    with producer_of(cluster, batch_num_messages=5) as producer:
        producer.partitions("t")
        producer.send_many("t", [b"x"] * 200).result(PATIENCE_S)
        for _ in range(100):
            producer.send("t", b"y")
    counts = [len(values(cluster, TopicPartition("t", p))) for p in range(4)]
    assert sum(counts) == 300
    assert min(counts) > 0


def test_send_many_failure_is_raised_and_listed_per_message(cluster: PlainCluster) -> None:
    with producer_of(cluster, batch_num_messages=2) as producer:
        producer.partitions("t")
        cluster.once(Produce, ProduceResult(partitions=[ProduceResultPartition("t", 0, ErrorCode.INVALID_RECORD)]))
        many = producer.send_many("t", [b"1", b"2", b"3"])
        with pytest.raises(ApiError, match="INVALID_RECORD"):
            many.result(PATIENCE_S)
        assert [isinstance(outcome, ApiError) for outcome in many.deliveries()] == [True, True, False]


def test_several_threads_send_through_one_producer(cluster: PlainCluster) -> None:
    with producer_of(cluster, batch_num_messages=50, queue_buffering_max_messages=100) as producer:

        def run(name: int) -> None:
            for number in range(300):
                producer.send("t", b"%d %d" % (name, number))

        threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    received = [tuple(map(int, value.split())) for value in values(cluster) if value]
    assert len(received) == 1200
    for name in range(4):
        assert [number for who, number in received if who == name] == list(range(300))


# --- the end


def test_closing_delivers_everything_and_then_refuses(cluster: PlainCluster) -> None:
    producer = producer_of(cluster, linger_ms=60_000)
    producer.send_many("t", [b"x"] * 500)
    producer.send("t", b"y", b"k")
    producer.close()
    producer.close()
    assert len(values(cluster)) == 501
    for call in (lambda: producer.send("t", b"z"), lambda: producer.send_many("t", [b"z"])):
        with pytest.raises(ClosedError):
            call()


def test_closing_in_time_fails_what_cannot_be_delivered(cluster: PlainCluster) -> None:
    stuck(cluster)
    producer = producer_of(cluster)
    handles = [producer.send("t", b"1"), producer.send("elsewhere", b"2")]
    producer.close(0.05)
    for handle in handles:
        with pytest.raises(ClosedError):
            handle.result(1)
    assert producer.failed == 2


def test_flush_waits_for_what_was_sent_and_has_its_time(cluster: PlainCluster) -> None:
    with producer_of(cluster, linger_ms=60_000) as producer:
        handle = producer.send("t", b"1")
        assert not handle.done
        producer.flush(PATIENCE_S)
        assert handle.result(0).offset == 0
    free = stuck(cluster)
    producer = producer_of(cluster)
    producer.send("t", b"2")
    with pytest.raises(ClientTimeout, match="1 message is still on the way"):
        producer.flush(0.05)
    free.set()
    producer.close(0.05)


def test_in_sync_mode_send_returns_when_it_is_delivered(cluster: PlainCluster) -> None:
    with producer_of(cluster, producer_type="sync", linger_ms=60_000) as producer:
        assert producer.send("t", b"1").done
        assert producer.send_many("t", [b"2", b"3"]).done
        cluster.once(Produce, ProduceResult(partitions=[ProduceResultPartition("t", 0, ErrorCode.INVALID_RECORD)]))
        with pytest.raises(ApiError):
            producer.send("t", b"4")
    assert values(cluster) == [b"1", b"2", b"3"]


# --- compression


def test_only_the_topics_named_are_compressed() -> None:
    cluster = PlainCluster(t=1, u=1)
    with producer_of(cluster, compression_type="gzip", config={"compressed.topics": "u"}) as producer:
        producer.send("t", bytes(5000))
        producer.send("u", bytes(5000))
    sizes = [len(cluster.logs[TopicPartition(name, 0)][0]) for name in "tu"]
    assert sizes[0] > 5000 > 500 > sizes[1]


# --- hooks


class Recording(CallbackHandler):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def before_enqueue(self, item: ProducerItem) -> ProducerItem:
        self.calls.append("before_enqueue")
        if item.value == b"raise":
            raise RuntimeError("boom")
        if isinstance(item.value, bytes):
            item.value += b"!"
        return item

    def after_enqueue(self, item: ProducerItem, added: bool) -> None:
        self.calls.append(f"after_enqueue {added}")

    def after_dequeue(self, item: ProducerItem | None) -> Sequence[ProducerItem]:
        if item is not None and item.value == b"drop!":
            return ()
        return super().after_dequeue(item)

    def last_batch_before_close(self) -> Sequence[ProducerItem]:
        self.calls.append("last_batch_before_close")
        return [ProducerItem(topic="t", value=b"goodbye")]

    def close(self) -> None:
        self.calls.append("close")


def test_hooks_see_and_change_what_is_sent(cluster: PlainCluster) -> None:
    hooks = Recording()
    producer = producer_of(cluster, callback_handler=hooks, linger_ms=5)
    one = producer.send("t", b"one")
    dropped = producer.send("t", b"drop")
    assert one.result(PATIENCE_S).offset == 0
    with pytest.raises(HookError, match="boom"):
        producer.send("t", b"raise").result(PATIENCE_S)
    assert producer.send_many("t", [b"two", b"three"]).result(PATIENCE_S) == 2
    producer.flush(PATIENCE_S)
    delivered_before = len(values(cluster))
    producer.close()
    assert values(cluster) == [b"one!", b"two!", b"three!", b"goodbye"]
    assert delivered_before == 3
    assert dropped.result(1).offset == -1
    assert hooks.calls[-2:] == ["last_batch_before_close", "close"]
    assert hooks.calls[:2] == ["before_enqueue", "after_enqueue True"]


def test_hook_sees_rejected_message_of_full_queue(cluster: PlainCluster) -> None:
    hooks = Recording()
    settings = {"queue_buffering_max_messages": 1, "max_block_ms": 0, "linger_ms": 60_000}
    with producer_of(cluster, callback_handler=hooks, **settings) as producer:
        producer.send("t", b"1")
        with pytest.raises(QueueFull, match=r"queue\.size"):
            producer.send("t", b"2")
        assert hooks.calls[-1] == "after_enqueue False"
    assert values(cluster) == [b"1!", b"goodbye"]


def test_an_event_handler_decides_what_goes_out(cluster: PlainCluster) -> None:
    class OnlyLong(EventHandler):
        closed = False

        def handle(self, items: Sequence[ProducerItem], send: SendItems) -> None:
            send([item for item in items if len(item.value) > 3])

        def close(self) -> None:
            self.closed = True

    events = OnlyLong()
    with producer_of(cluster, event_handler=events, encoder="string", linger_ms=5) as producer:
        short, long = producer.send("t", "abc"), producer.send("t", "abcdef", headers=[("h", b"1")])
        assert (short.result(PATIENCE_S).offset, long.result(PATIENCE_S).offset) == (-1, 0)
    assert events.closed
    assert values(cluster) == [b"abcdef"]


def test_message_that_a_hook_broke_fails_its_handle(cluster: PlainCluster) -> None:
    class Spoils(CallbackHandler):
        def before_send(self, items: Sequence[ProducerItem]) -> Sequence[ProducerItem]:
            for item in items:
                item.value = object()
            return items

    with producer_of(cluster, callback_handler=Spoils()) as producer, pytest.raises(EncodeError):
        producer.send("t", b"1").result(PATIENCE_S)


def test_in_sync_mode_hooks_do_not_make_it_wait(cluster: PlainCluster) -> None:
    with producer_of(cluster, callback_handler=CallbackHandler(), producer_type="sync", linger_ms=60_000) as producer:
        assert producer.send("t", b"1").done


class Stamps(CallbackHandler):
    """Sees whole batches only."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.numbers = 0

    def start(self, bootstrap: object) -> None:
        self.calls.append("start")

    def before_batch(self, topic: str, count: int, time_ms: int) -> NumberedHeader:
        self.numbers += count
        return NumberedHeader("n", b"", self.numbers - count)

    def after_batch(self, outcome: BatchOutcome) -> None:
        why = outcome.error and str(outcome.error)
        self.calls.append((outcome.topic, outcome.messages, outcome.numbered.first, why))

    def close(self) -> None:
        self.calls.append("close")


def test_a_handler_of_batches_numbers_messages_and_costs_no_queue(cluster: PlainCluster) -> None:
    stamps = Stamps()
    with producer_of(cluster, callback_handler=stamps, linger_ms=60_000) as producer:
        producer.send_many("t", [b"a", b"b"])
        producer.flush()
        assert producer._hooks is None
        cluster.once(Produce, ProduceResult(partitions=[ProduceResultPartition("t", 0, ErrorCode.INVALID_RECORD)]))
        handle = producer.send("t", b"c")
        producer.flush()
        with pytest.raises(ApiError, match="INVALID_RECORD"):
            handle.result()
    assert [m.headers for m in MessageSet(b"".join(cluster.logs[T0]))] == [
        (("n", bytes(8)),),
        (("n", bytes(7) + b"\1"),),
    ]
    assert stamps.calls[:2] == ["start", ("t", 2, 0, None)]
    assert stamps.calls[2][:3] == ("t", 1, 2)
    assert "INVALID_RECORD" in stamps.calls[2][3]
    assert stamps.calls[3:] == ["close"]


def test_a_handler_of_batches_that_fails_fails_the_batch(cluster: PlainCluster) -> None:
    class Fails(CallbackHandler):
        def before_batch(self, topic: str, count: int, time_ms: int) -> NumberedHeader:
            raise RuntimeError("no numbers")

    with producer_of(cluster, callback_handler=Fails()) as producer, pytest.raises(EncodeError, match="no numbers"):
        producer.send("t", b"x").result(PATIENCE_S)


def test_a_classic_producer_takes_no_handler_that_gives_headers() -> None:
    with pytest.raises(ConfigError, match="classic generation"):
        Producer(broker_list="0:127.0.0.1:1", callback_handler=Stamps())
