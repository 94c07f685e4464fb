"""The classic simple consumer against a scripted broker on a real socket."""

from collections.abc import Callable, Iterator
from struct import unpack_from
from typing import Any

import pytest
from support.classic_fake import FakeClassicBroker, fetch_answer, offsets_answer
from support.waiting import wait_for

from barnabas import Producer, SimpleConsumer
from barnabas.app.clients.classic.simple_consumer import ClassicSimpleConsumer
from barnabas.app.clients.shared.protocols import AnySimpleConsumer
from barnabas.core.message.classic.writer import encode_set
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ClosedError, ConfigError
from barnabas.ports.transport import TransportError


class Logs:
    """Answers fetches and offsets as a broker with these logs does."""

    def __init__(self, **logs: bytes) -> None:
        self.logs = logs

    def __call__(self, frame: bytes) -> bytes | None:
        (request_id,) = unpack_from(">h", frame)
        if request_id == 4:
            return offsets_answer([30, 20, 0][: unpack_from(">i", frame, len(frame) - 4)[0]])
        at, count = (2, 1) if request_id == 1 else (4, unpack_from(">h", frame, 2)[0])
        blocks = []
        for _ in range(count):
            (length,) = unpack_from(">h", frame, at)
            topic = frame[at + 2 : at + 2 + length].decode()
            _, offset, size = unpack_from(">iqi", frame, at + 2 + length)
            at += 18 + length
            log = self.logs.get(topic)
            if log is None:
                blocks.append((3, b""))
            elif not 0 <= offset <= len(log):
                blocks.append((1, b""))
            else:
                blocks.append((0, log[offset : offset + size]))
        return fetch_answer(*blocks) if request_id == 1 else fetch_answer(*blocks, *([] if count > 1 else [(0, b"")]))


@pytest.fixture
def broker() -> Iterator[FakeClassicBroker]:
    with FakeClassicBroker() as made:
        yield made


def test_classic_url_creates_classic_simple_consumer(broker: FakeClassicBroker) -> None:
    with SimpleConsumer(f"classic://{broker.address}") as made:
        assert isinstance(made, SimpleConsumer)
        assert type(made).__mro__[1] is AnySimpleConsumer
    assert not isinstance(broker, SimpleConsumer)
    assert not issubclass(ClassicSimpleConsumer, Producer)


@pytest.fixture
def consumer(broker: FakeClassicBroker) -> Iterator[ClassicSimpleConsumer]:
    made: AnySimpleConsumer = SimpleConsumer(f"classic://{broker.address}")
    assert isinstance(made, ClassicSimpleConsumer)
    with made:
        yield made


def test_fetch_returns_messages_with_next_offsets(broker: FakeClassicBroker, consumer: ClassicSimpleConsumer) -> None:
    log = encode_set([b"a", b"bb", b"ccc"])
    broker.answer = Logs(test=log)
    found = consumer.fetch("test", 0, 0)
    assert broker.frames == [bytes.fromhex("0001 0004 74657374 00000000 0000000000000000 00100000")]
    assert [(m.value, m.offset, m.topic, m.partition) for m in found] == [
        (b"a", 11, "test", 0),
        (b"bb", 23, "test", 0),
        (b"ccc", 36, "test", 0),
    ]
    assert found.next_offset == len(log) == 36
    assert [m.value for m in consumer.fetch("test", 0, 23)] == [b"ccc"]
    assert list(consumer.fetch("test", 0, 36)) == []


def test_a_fetch_that_ends_in_a_part_of_a_message(broker: FakeClassicBroker, consumer: ClassicSimpleConsumer) -> None:
    broker.answer = Logs(t=encode_set([b"a", b"bb"]))
    found = consumer.fetch("t", 0, 0, 20)
    assert ([m.value for m in found], found.next_offset, len(broker.frames)) == ([b"a"], 11, 1)


@pytest.mark.parametrize("max_bytes", [1, 4, 11, 50, 109])
def test_a_fetch_grows_for_one_message_that_is_larger(
    broker: FakeClassicBroker, consumer: ClassicSimpleConsumer, max_bytes: int
) -> None:
    broker.answer = Logs(t=encode_set([bytes(100), b"next"]))
    found = consumer.fetch("t", 0, 0, max_bytes)
    assert next(iter(found)).value == bytes(100)
    assert found.next_offset in (110, 124)


def test_fetch_size_does_not_grow_beyond_its_limit(broker: FakeClassicBroker) -> None:
    broker.answer = Logs(t=encode_set([bytes(100)]))
    with (
        SimpleConsumer(f"classic://{broker.address}", fetch_size_max=80) as consumer,
        pytest.raises(ApiError, match="INVALID_FETCH_SIZE"),
    ):
        list(consumer.fetch("t", 0, 0, 50))
    assert len(broker.frames) == 1


@pytest.mark.parametrize(
    "garbage", [b"\x7f\xff\xff\xff rest", b"\xff\xff\xff\xff rest", b"\0\0\0\x50 the log ends here"]
)
def test_malformed_messages_are_an_error(
    broker: FakeClassicBroker, consumer: ClassicSimpleConsumer, garbage: bytes
) -> None:
    broker.answer = Logs(t=garbage)
    with pytest.raises(ApiError, match="INVALID_FETCH_SIZE"):
        list(consumer.fetch("t", 0, 0))


def test_multifetch_returns_errors_per_partition(broker: FakeClassicBroker, consumer: ClassicSimpleConsumer) -> None:
    gzip = builtin_codecs().by_name("gzip")
    broker.answer = Logs(a=encode_set([b"1"]), b=encode_set([b"2", b"3"], codec=gzip))
    sets = consumer.multifetch([("a", 0, 0), ("b", 0, 0), ("none", 0, 0), ("a", 0, 99)])
    assert broker.frames[0][:4] == bytes.fromhex("0002 0004")
    assert [[m.value for m in found] for found in sets[:2]] == [[b"1"], [b"2", b"3"]]
    assert [found.error for found in sets[2:]] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE]
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        list(sets[3])
    assert consumer.multifetch([]) == []
    with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        consumer.fetch("none", 0, 0)


def test_offset_requests_return_offsets_before_time(broker: FakeClassicBroker, consumer: ClassicSimpleConsumer) -> None:
    broker.answer = Logs()
    assert consumer.get_offsets_before("t", 0, -1, 2) == [30, 20]
    assert broker.frames == [bytes.fromhex("0004 0001 74 00000000 ffffffffffffffff 00000002")]
    assert consumer.offsets_before("t", 0, 12345) == [30]
    assert consumer.offset_at("t", 0, -1) == 30
    broker.answer = lambda frame: offsets_answer([])
    assert consumer.offset_at("t", 0, 5) == -1
    broker.answer = lambda frame: offsets_answer([], error=-1)
    with pytest.raises(ApiError, match="UNKNOWN_SERVER_ERROR"):
        consumer.get_offsets_before("t", 0, -1)


def test_read_from_here_to_there(broker: FakeClassicBroker, consumer: ClassicSimpleConsumer) -> None:
    broker.answer = Logs(t=encode_set([b"a", b"b", b"c"])[:30])
    values = [m.value for piece in consumer.read("t", 0, 0, 20, max_bytes=15) for m in piece]
    assert values == [b"a", b"b"]
    with pytest.raises(ApiError, match="ends at 22, before offset 30"):
        list(consumer.read("t", 0, 0))


def test_a_lost_connection_is_made_again_once(broker: FakeClassicBroker, consumer: ClassicSimpleConsumer) -> None:
    broker.answer = good = Logs(t=encode_set([b"a"]))
    consumer.fetch("t", 0, 0)

    def close_and_answer_nothing(frame: bytes) -> bytes | None:
        broker.answer = good
        broker.close_connection()
        return None

    broker.answer = close_and_answer_nothing
    assert [m.value for m in consumer.fetch("t", 0, 0)] == [b"a"]
    assert broker.accepted == 2

    def always(frame: bytes) -> bytes | None:
        broker.close_connection()
        return None

    broker.answer = always
    with pytest.raises(TransportError):
        consumer.fetch("t", 0, 0)
    assert broker.accepted == 3


def test_a_broker_that_restarted_and_one_that_is_gone(
    broker: FakeClassicBroker, consumer: ClassicSimpleConsumer
) -> None:
    broker.answer = Logs(t=encode_set([b"a"]))
    consumer.fetch("t", 0, 0)
    broker.stop()
    with pytest.raises(TransportError):
        consumer.fetch("t", 0, 0)
    broker.start_again()
    assert [m.value for m in consumer.fetch("t", 0, 0)] == [b"a"]


def test_a_broker_that_does_not_answer(broker: FakeClassicBroker) -> None:
    consumer = SimpleConsumer(f"classic://{broker.address}", socket_timeout_ms=50)
    with consumer, pytest.raises(TransportError, match="not answered"):
        consumer.fetch("t", 0, 0)
    wait_for(lambda: broker.accepted == 2)


def test_fetch_after_close_raises_closed_error(broker: FakeClassicBroker) -> None:
    consumer = SimpleConsumer(f"classic://{broker.address}")
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.fetch("t", 0, 0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: SimpleConsumer("classic://h:1,classic://h:2"), "one address"),
        (lambda: SimpleConsumer("classic://h"), "port"),
        (lambda: SimpleConsumer("classic://h:1", fetch_sise=5), "did you mean 'fetch_size'"),  # type: ignore[call-arg]
        (lambda: SimpleConsumer("classic://h:1", config={"fetch.sise": 5}), r"did you mean 'fetch\.size'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()
