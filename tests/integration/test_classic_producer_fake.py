"""The classic producer with its threads, against a scripted broker on a real socket."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.classic_fake import FakeClassicBroker, listed, queued
from support.waiting import PATIENCE_S, wait_for

from barnabas import Message, Producer
from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.app.clients.aio import AsyncProducer
from barnabas.app.clients.classic.producer import ClassicProducer, ProducerData
from barnabas.app.clients.shared.protocols import AnyProducer
from barnabas.core.client.errors import ClientTimeout, EncodeError, QueueFull
from barnabas.core.client.producer.producer_batch import Delivery
from barnabas.core.message.classic.reader import ShallowMessage
from barnabas.core.message.classic.writer import encode_set
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from barnabas.ports.transport import TransportError


@pytest.fixture
def broker() -> Iterator[FakeClassicBroker]:
    with FakeClassicBroker() as made:
        yield made


# --- the face


def test_a_classic_address_or_a_list_or_registries_make_a_classic_producer(broker: FakeClassicBroker) -> None:
    ways: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((f"classic://{broker.address}",), {}),
        (([f"classic://{broker.address}"],), {}),
        ((), {"broker_list": f"0:{broker.address}"}),
        ((), {"config": {"broker.list": f"0:{broker.address}", "producer.type": "sync"}}),
    ]
    for positional, named in ways:
        with Producer(*positional, **named) as producer:
            assert isinstance(producer, Producer)
            assert type(producer).__name__ == "ClassicProducer"
            assert producer.send("t", b"v").result() == Delivery("t", -1, -1, -1)
    wait_for(lambda: broker.values("t") == [b"v"] * len(ways))
    assert {each.partition for each in broker.sets()} == {-1}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"broker_list": "0:h:1", "zk_connect": "z:1"}, r"broker\.list and zk\.connect"),
        ({"broker_list": "h:1"}, "'h:1' is not"),
        ({"broker_list": "0:h:1", "partitioner": "random"}, "together with broker"),
        ({"config": {"broker.list": "0:h:1", "partitioner.class": "x"}}, "together with broker"),
        ({"broker_list": "0:h:1", "queue_tiem": 5}, "did you mean 'queue_time'"),
        ({"config": {"broker.list": "0:h:1", "queue.tiem": 5}}, "did you mean 'queue.time'"),
        ({"broker_list": "0:h:1", "acks": 1}, "acks"),
        ({"broker_list": "0:h:1", "compression_codec": 7}, "7"),
        ({"broker_list": "0:h:1", "compression_codec": "zstd"}, "knows none, gzip and snappy"),
        ({"broker_list": "0:h:1", "producer_type": "later"}, "producer_type"),
        ({"bootstrap": "classic://h"}, "port"),
        ({"bootstrap": "classic://h:1,kafka://h:2"}, "classic://"),
        ({"bootstrap": "classic://h:1", "zk_connect": "z:1"}, "classic:// and zk"),
        ({"zk_connect": "z:1/chroot", "partitioner": "no such"}, "unknown partitioner"),
        ({"coordination": "nowhere"}, "nowhere"),
        ({"broker_list": "", "config": {"zk.connect": ""}}, "none of them"),
        ({}, "bootstrap"),
        ({"bootstrap": "localhost:9", "config": {"zk.connect": "z:1"}}, r"zk\.connect"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Producer(**arguments)


def test_all_classic_settings_under_their_names() -> None:
    config = {
        "broker.list": "0:localhost:9",
        "producer.type": "async",
        "serializer.class": "kafka.serializer.StringEncoder",
        "compression.codec": "2",
        "compressed.topics": "a,b",
        "num.retries": 4,
        "zk.read.num.retries": 5,
        "buffer.size": 6,
        "connect.timeout.ms": 7,
        "socket.timeout.ms": 8,
        "reconnect.interval": 9,
        "reconnect.time.interval.ms": -1,
        "max.message.size": 10,
        "queue.time": 11,
        "queue.size": 12,
        "queue.enqueueTimeout.ms": -1,
        "batch.size": 13,
        "zk.sessiontimeout.ms": 14,
        "zk.connectiontimeout.ms": 15,
        "zk.synctime.ms": 16,
    }
    made: AnyProducer = Producer(config=config)
    with made:
        assert isinstance(made, ClassicProducer)
        chosen = made.settings
    assert (chosen.encoder, chosen.compression_codec, chosen.compressed_topics) == ("string", "snappy", ("a", "b"))
    assert (chosen.num_retries, chosen.zk_read_num_retries, chosen.buffer_size) == (4, 5, 6)
    assert (chosen.connect_timeout_ms, chosen.socket_timeout_ms, chosen.reconnect_interval) == (7, 8, 9)
    assert (chosen.reconnect_time_interval_ms, chosen.max_message_size) == (-1, 10)
    assert (chosen.queue_time, chosen.queue_size, chosen.queue_enqueue_timeout_ms, chosen.batch_size) == (
        11,
        12,
        -1,
        13,
    )
    assert (chosen.zookeeper_session_timeout_ms, chosen.zookeeper_connection_timeout_ms) == (14, 15)


# --- synchronous


def test_sync_sends_go_out_before_they_return(broker: FakeClassicBroker) -> None:
    observed: list[Delivery | None] = []
    with listed(broker) as producer:
        producer.send("t", b"1", on_delivery=lambda error, delivery: observed.append(delivery))
        assert producer.send_many("t", [b"2", b"3"]).count == 2
        producer.send("t", Message(b"4", b"key", timestamp_ms=5), partition=7)
        assert (producer.delivered, producer.failed) == (4, 0)
    wait_for(lambda: broker.values() == [b"1", b"2", b"3", b"4"])
    assert [each.partition for each in broker.sets()] == [-1, -1, 7]
    assert observed == [Delivery("t", -1, -1, -1)]
    assert broker.accepted == 1


def test_several_topics_at_once_are_one_multi_produce(broker: FakeClassicBroker) -> None:
    with listed(broker) as producer:
        producer.send_data([ProducerData("a", [b"1", b"2"]), ProducerData("b", [b"3"], b"key")])
    wait_for(lambda: len(broker.frames) == 1)
    assert broker.frames[0][:4] == bytes.fromhex("0003 0002")
    assert [(each.topic, each.values) for each in broker.sets()] == [("a", [b"1", b"2"]), ("b", [b"3"])]


def test_unsendable_message_is_refused_at_once(broker: FakeClassicBroker) -> None:
    with listed(broker, max_message_size=10) as producer:
        for value, error, text in (
            (bytes(11), ApiError, "MESSAGE_TOO_LARGE"),
            (None, EncodeError, "has a value"),
            ("text", EncodeError, "encoder"),
        ):
            with pytest.raises(error, match=text):
                producer.send("t", value)
            with pytest.raises(error, match=text):
                producer.send_many("t", [b"good", value])
        with pytest.raises(EncodeError, match="headers"):
            producer.send("t", b"v", headers=[("h", b"1")])
        for topic in ("", ".", "a/b", "\x01", "x" * 256, "\ud800"):
            with pytest.raises(ApiError, match="INVALID_TOPIC"):
                producer.send(topic, b"v")
        for partition in (-2, "1", (1,)):
            with pytest.raises(EncodeError, match="partition"):
                producer.send("t", b"v", partition=partition)  # type: ignore[arg-type]  # that is the point
        producer.send_many("t", [])
        producer.send("t", bytes(10))
    wait_for(lambda: broker.values() == [bytes(10)])


def test_an_encoder_is_used(broker: FakeClassicBroker) -> None:
    with listed(broker, config={"serializer.class": "kafka.serializer.StringEncoder"}) as producer:
        producer.send("t", "grüße")
        producer.send_many("t", ["a", "b"])
    wait_for(lambda: broker.values() == ["grüße".encode(), b"a", b"b"])


def test_a_topic_that_is_not_ascii(broker: FakeClassicBroker) -> None:
    """The 2011 producer counted characters where the wire counts bytes."""
    with listed(broker) as producer:
        producer.send("prüfung", b"1")
    wait_for(lambda: broker.values("prüfung") == [b"1"])


def test_without_a_broker_a_sync_send_says_so(broker: FakeClassicBroker) -> None:
    broker.stop()
    with listed(broker, connect_timeout_ms=50) as producer:
        with pytest.raises(TransportError, match="cannot connect"):
            producer.send("t", b"1")
        assert (producer.delivered, producer.failed) == (0, 1)
        broker.start_again()
        producer.send("t", b"2")
    wait_for(lambda: broker.values() == [b"2"])


def test_a_broker_that_hung_up_meanwhile_is_not_noticed(broker: FakeClassicBroker) -> None:
    with listed(broker) as producer:
        producer.send("t", b"1")
        wait_for(lambda: broker.values() == [b"1"])
        broker.stop()
        reactor = producer.shell.scheduler
        assert isinstance(reactor, Reactor)
        wait_for(lambda: reactor.watched == 0)  # until then what is sent may go into the connection that is closed
        is_noticed = threading.Event()
        reactor.call_soon(is_noticed.set)  # after the turn that no longer watches it, and the callbacks of the loss
        assert is_noticed.wait(PATIENCE_S)
        broker.start_again()
        producer.send("t", b"2")
        assert (producer.delivered, producer.failed) == (2, 0)
    wait_for(lambda: broker.values() == [b"1", b"2"])
    assert broker.accepted == 2


def test_large_sends_are_divided_into_requests(broker: FakeClassicBroker) -> None:
    values = [bytes([n % 256]) * 900_000 for n in range(20)]
    with listed(broker) as producer:
        assert producer.send_many("t", values).result() == 20
    wait_for(lambda: len(broker.values()) == 20)
    assert broker.values() == values
    assert len(broker.frames) > 1


def test_a_compressed_wrapper_passes_on_unopened(broker: FakeClassicBroker) -> None:
    codec = builtin_codecs().by_name("snappy")
    assert codec is not None
    inner = codec.compress(encode_set([b"x", b"y"]))
    with listed(broker, compression_codec="gzip") as producer:
        producer.send("t", ShallowMessage(inner, 2, offset=0, topic="", partition=-1))
        producer.send_many(
            "t",
            [
                ShallowMessage(inner, 2, offset=0, topic="", partition=-1),
                ShallowMessage(b"z", 0, offset=0, topic="", partition=-1),
            ],
        )
    wait_for(lambda: broker.values() == [b"x", b"y", b"x", b"y", b"z"])
    assert [each.codecs for each in broker.sets()] == [{2}, {2, 0}]


@pytest.mark.parametrize(("number", "name"), [(1, "gzip"), (2, "snappy")])
def test_sync_compresses_every_topic(broker: FakeClassicBroker, number: int, name: str) -> None:
    with listed(broker, config={"compression.codec": number, "compressed.topics": "other"}) as producer:
        producer.send_many("t", [b"a" * 100] * 50)
    with listed(broker, compression_type=name) as producer:
        producer.send("other", b"b")
    wait_for(lambda: len(broker.values()) == 51)
    assert [each.codecs for each in broker.sets()] == [{number}, {number}]


# --- asynchronous


def test_a_batch_goes_out_when_it_is_full_and_the_rest_at_the_end(broker: FakeClassicBroker) -> None:
    with queued(broker, queue_time=60_000, batch_size=3) as producer:
        handles = [producer.send("t", b"%d" % n) for n in range(7)]
        wait_for(lambda: len(broker.values()) == 6)
        assert not handles[6].done
        assert len(broker.frames) == 2
    assert handles[6].result() == Delivery("t", -1, -1, -1)
    wait_for(lambda: broker.values() == [b"%d" % n for n in range(7)])
    assert (producer.delivered, producer.failed) == (7, 0)


def test_a_batch_goes_out_when_queue_time_is_over(broker: FakeClassicBroker) -> None:
    with queued(broker, queue_time=20) as producer:
        producer.send("t", b"1")
        wait_for(lambda: broker.values() == [b"1"])


def test_flush_sends_at_once(broker: FakeClassicBroker) -> None:
    with queued(broker, queue_time=60_000) as producer:
        producer.send("t", b"1")
        producer.flush(PATIENCE_S)
        assert producer.delivered == 1
        wait_for(lambda: broker.values() == [b"1"])


def test_many_in_batches_of_batch_size(broker: FakeClassicBroker) -> None:
    values = [b"%d" % n for n in range(1000)]
    with queued(broker, queue_time=60_000) as producer:
        handle = producer.send_many("t", values)
        assert handle.result(PATIENCE_S) == 1000
    wait_for(lambda: broker.values() == values)
    assert [len(each.values) for each in broker.sets()] == [200] * 5


@pytest.mark.parametrize(("topics", "codecs"), [("", {"a": {1}, "b": {1}}), ("a", {"a": {1}, "b": {0}})])
def test_compression_applies_to_compressed_topics_only(
    broker: FakeClassicBroker, topics: str, codecs: dict[str, set[int]]
) -> None:
    config = {"compression.codec": 1, "compressed.topics": topics, "producer.type": "async"}
    with listed(broker, config=config) as producer:
        for topic in ("a", "b"):
            producer.send_many(topic, [b"x" * 50] * 3)
    wait_for(lambda: len(broker.values()) == 6)
    assert {each.topic: each.codecs for each in broker.sets()} == codecs


def full(broker: FakeClassicBroker, **settings: Any) -> ClassicProducer:
    """Return a producer with a full queue of two messages, which nothing sends earlier."""
    producer = queued(broker, queue_size=2, queue_time=60_000, **settings)
    producer.send_many("t", [b"1", b"2"])
    return producer


def test_a_full_queue_drops_at_once(broker: FakeClassicBroker) -> None:
    with full(broker) as producer:
        with pytest.raises(QueueFull, match=r"queue\.size"):
            producer.send("t", b"3")
        with pytest.raises(QueueFull) as refused:
            producer.send_many("t", [b"4"])
        assert refused.value.taken is not None
    wait_for(lambda: broker.values() == [b"1", b"2"])


def test_send_to_full_queue_raises_after_enqueue_timeout(broker: FakeClassicBroker) -> None:
    with full(broker, queue_enqueue_timeout_ms=30) as producer:
        with pytest.raises(QueueFull, match="30"):
            producer.send("t", b"3")
        waiting = threading.Thread(target=producer.flush)
        waiting.start()
        waiting.join()
        producer.send("t", b"4")
    wait_for(lambda: broker.values() == [b"1", b"2", b"4"])


def test_a_full_queue_is_waited_for_for_ever(broker: FakeClassicBroker) -> None:
    with full(broker, queue_enqueue_timeout_ms=-1) as producer:
        late = threading.Thread(target=lambda: producer.send("t", b"3"))
        late.start()
        late.join(0.05)
        assert late.is_alive()
        producer.flush()
        late.join(PATIENCE_S)
        assert not late.is_alive()
    wait_for(lambda: broker.values() == [b"1", b"2", b"3"])


def test_a_slow_broker_fills_the_queue_and_not_the_memory(broker: FakeClassicBroker) -> None:
    settings = {"queue_size": 20, "batch_size": 5, "queue_time": 0, "queue_enqueue_timeout_ms": 0}
    with queued(broker, **settings) as producer:
        producer.send("t", b"first").result(PATIENCE_S)
        wait_for(lambda: broker.accepted == 1)
        broker.pause()
        wait_for(lambda: _is_full(producer))
        taken = len(producer._unsettled)
        broker.resume()
        assert taken <= 20 + 20 + 5, "in the queue, under way, and a batch"
        producer.flush(PATIENCE_S)
        assert producer.failed == 0


def _is_full(producer: ClassicProducer) -> bool:
    try:
        producer.send("t", bytes(900_000))
    except QueueFull:
        return True
    return False


def test_send_failure_reaches_handle_callback_and_log(
    broker: FakeClassicBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.stop()
    observed: list[BarnabasError | None] = []
    with queued(broker, connect_timeout_ms=20, queue_time=0, num_retries=2) as producer:
        handle = producer.send("t", b"1", on_delivery=lambda error, delivery: observed.append(error))
        with pytest.raises(TransportError):
            handle.result(PATIENCE_S)
        assert producer.failed == 1
    assert isinstance(observed[0], TransportError)
    assert "1 message to topic t was not sent" in caplog.text


def test_after_close_nothing_is_taken(broker: FakeClassicBroker) -> None:
    for producer in (listed(broker), queued(broker)):
        producer.close()
        producer.close()
        for send in (producer.send, producer.send_many):
            with pytest.raises(ClosedError):
                send("t", [b"1"] if send == producer.send_many else b"1")


def test_close_with_a_timeout_fails_what_is_left(broker: FakeClassicBroker) -> None:
    broker.stop()
    producer = queued(broker, connect_timeout_ms=60_000)
    handle = producer.send("t", b"1")
    with pytest.raises(ClientTimeout):
        producer.flush(0.01)
    producer.close(0.05)
    with pytest.raises(BarnabasError):
        handle.result(0)


def test_async_producer_sends_to_classic_broker(broker: FakeClassicBroker) -> None:
    async def main() -> None:
        async with AsyncProducer(f"classic://{broker.address}") as producer:
            await producer.send_and_wait("t", b"1")
            assert await producer.send_many("t", [b"2", b"3"]) is not None

    asyncio.run(main())
    wait_for(lambda: broker.values() == [b"1", b"2", b"3"])
