"""A broker of the classic generation on a real socket, spoken to in raw bytes."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.classic_frames import (
    fetch,
    fetched,
    gzip_wrapper,
    message_set,
    multi_fetch,
    multi_fetched,
    multi_produce,
    offset_list,
    offsets,
    produce,
    request,
    text,
)
from support.process import BrokerProcess, broker_process
from support.raw import RawConnection, fetch_error_and_records, fetch_v4, produce_error, produce_v3
from support.waiting import wait_for

from barnabas.app.embedded_broker import Broker
from barnabas.testing.manual_broker import batch

FIRST_SEGMENT = "00000000000000000000.kafka"
HELLO = message_set(b"hello")


def classic_address(listeners: list[str]) -> str:
    return next(each for each in listeners if each.startswith("classic://")).partition("://")[2]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    listeners = ["kafka://127.0.0.1:0", "classic://127.0.0.1:0"]
    with Broker(tmp_path / "data", listeners=listeners, log_flush_interval_messages=1) as running:
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(classic_address(broker.listeners)) as opened:
        yield opened


@contextmanager
def running(folder: Path, **settings: object) -> Iterator[RawConnection]:
    """A connection to a broker with one classic listener."""
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    with (
        Broker(folder, listeners=["classic://127.0.0.1:0"], config=dotted) as broker,
        RawConnection(classic_address(broker.listeners)) as connection,
    ):
        yield connection


def read(connection: RawConnection, topic: str, offset: int = 0, partition: int = 0, size: int = 1 << 20) -> bytes:
    error, records = fetched(connection.exchange(fetch(topic, offset, partition, size)))
    assert error == 0
    return records


def read_until(connection: RawConnection, topic: str, wanted: bytes) -> None:
    """Fetch until the flush, since produce has no answer."""
    wait_for(lambda: read(connection, topic) == wanted)


def test_produced_batch_is_fetched_byte_for_byte(broker: Broker, connection: RawConnection, tmp_path: Path) -> None:
    records = HELLO + gzip_wrapper(b"a", b"b", b"c") + message_set(b"x" * 100_000)
    connection.send(produce("t", records))
    read_until(connection, "t", records)
    assert read(connection, "t", len(HELLO)) == records[len(HELLO) :]
    assert read(connection, "t", 5, size=9) == records[5:14]
    assert (tmp_path / "data" / "t-0" / FIRST_SEGMENT).read_bytes() == records
    assert [file.name for file in (tmp_path / "data" / "t-0").iterdir()] == [FIRST_SEGMENT]
    broker.close()
    assert (tmp_path / "data" / "t-0" / FIRST_SEGMENT).read_bytes() == records


def test_the_worked_bytes_of_a_fetch(connection: RawConnection) -> None:
    asked = "00000018000100047465737400000000000000000000000000100000"
    connection.send(produce("test", HELLO))
    wait_for(lambda: connection.exchange(bytes.fromhex(asked)) == b"\0\0" + HELLO)
    assert HELLO.hex() == "0000000b01003610a68668656c6c6f"


def test_several_at_once(connection: RawConnection) -> None:
    other = message_set(b"other", b"more")
    connection.send(multi_produce([("a", 0, HELLO), ("b", 0, other), ("a", 0, other)]))
    read_until(connection, "a", HELLO + other)
    read_until(connection, "b", other)
    places = [("b", 0, 0), ("a", 0, len(HELLO)), ("a", 0, 9999), ("a", 7, 0), ("a/b", 0, 0), ("none", 0, 0)]
    assert multi_fetched(connection.exchange(multi_fetch(places))) == [
        (0, other),
        (0, other),
        (1, b""),
        (3, b""),
        (-1, b""),
        (0, b""),
    ]


def test_offsets_request_returns_segment_offsets_by_time(connection: RawConnection) -> None:
    assert offset_list(connection.exchange(offsets("t", -1))) == (0, [0])
    assert offset_list(connection.exchange(offsets("t", -2))) == (0, [0])
    assert offset_list(connection.exchange(offsets("t", 2**62))) == (0, [])
    connection.send(produce("t", HELLO))
    read_until(connection, "t", HELLO)
    assert offset_list(connection.exchange(offsets("t", -1))) == (0, [len(HELLO), 0])
    assert offset_list(connection.exchange(offsets("t", -1, 1))) == (0, [len(HELLO)])
    assert offset_list(connection.exchange(offsets("t", -2))) == (0, [0])
    assert offset_list(connection.exchange(offsets("t", 1))) == (0, [])


def test_only_what_is_flushed_is_visible(tmp_path: Path) -> None:
    with running(tmp_path, log_flush_interval_messages=3, log_flush_interval_ms=3_600_000) as connection:
        connection.send(produce("t", message_set(b"1", b"2")))
        assert read(connection, "t") == b"", "requests of one connection are handled in their order"
        connection.send(produce("t", message_set(b"3")))
        read_until(connection, "t", message_set(b"1", b"2", b"3"))
        connection.send(produce("t", message_set(b"4")))
        assert read(connection, "t") == message_set(b"1", b"2", b"3")
    with running(tmp_path) as connection:
        assert read(connection, "t") == message_set(b"1", b"2", b"3", b"4"), "an orderly stop flushes"


def test_both_generations_at_once_each_with_its_own_topics(broker: Broker, connection: RawConnection) -> None:
    with RawConnection(broker.bootstrap) as modern:
        wait_for(lambda: modern.exchange(metadata_v1("new")) and not produce_error(send_new(modern), "new"))
        connection.send(produce("old", HELLO))
        read_until(connection, "old", HELLO)
        assert produce_error(modern.exchange(produce_v3("old", new_batch())), "old") == 43
        assert fetch_error_and_records(modern.exchange(fetch_v4("old", 0)), "old")[0] == 43
        assert fetched(connection.exchange(fetch("new")))[0] == -1
        assert fetch_error_and_records(modern.exchange(fetch_v4("new", 0)), "new")[0] == 0
    with RawConnection(classic_address(broker.listeners)) as another:
        another.send(produce("new", HELLO))
        assert another.closed_by_broker()
    assert read(connection, "old") == HELLO


def new_batch() -> bytearray:
    return bytearray(batch(b"v2"))


def send_new(modern: RawConnection) -> bytes:
    return modern.exchange(produce_v3("new", new_batch()))


def metadata_v1(topic: str) -> bytes:
    content = struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 1) + text(topic)
    return struct.pack(">i", len(content)) + content


@pytest.mark.parametrize(
    "bad",
    [
        produce("t", HELLO[:-1] + b"!"),
        produce("t", HELLO, partition=9),
        produce("a/b", HELLO),
        request(9, b""),
        request(1, b"\0\x04te"),
        offsets("t", -1, partition=9),
        offsets("..", -1),
        struct.pack(">i", -5),
    ],
    ids=["crc", "partition", "name", "id", "short", "offsets-partition", "offsets-name", "size"],
)
def test_invalid_request_closes_its_connection_only(broker: Broker, connection: RawConnection, bad: bytes) -> None:
    connection.send(produce("t", HELLO))
    read_until(connection, "t", HELLO)
    with RawConnection(classic_address(broker.listeners)) as other:
        other.send(bad)
        assert other.closed_by_broker()
    assert read(connection, "t") == HELLO


def test_a_message_that_is_too_large_is_dropped_and_the_connection_stays(tmp_path: Path) -> None:
    with running(tmp_path, message_max_bytes=100, log_flush_interval_messages=1) as connection:
        connection.send(produce("t", message_set(b"x" * 101)))
        connection.send(produce("t", HELLO))
        read_until(connection, "t", HELLO)


@contextmanager
def process(data: Path) -> Iterator[tuple[BrokerProcess, RawConnection]]:
    """A broker in a process of its own, and a connection to it."""
    with (
        broker_process(data, "log.flush.interval.messages=1", listen=["classic://127.0.0.1:0"]) as broker,
        RawConnection(broker.bootstrap) as connection,
    ):
        yield broker, connection


@pytest.mark.process
def test_killed_with_a_torn_tail(tmp_path: Path) -> None:
    data, stored = tmp_path / "data", message_set(*(b"%d" % number for number in range(100)))
    with process(data) as (broker, connection):
        connection.send(produce("t", stored))
        read_until(connection, "t", stored)
        broker.kill()
    segment = data / "t-0" / FIRST_SEGMENT
    with segment.open("ab") as file:
        file.write(message_set(b"torn")[:-2])
    with process(data) as (broker, connection):
        assert read(connection, "t") == stored
        assert segment.read_bytes() == stored
        connection.send(produce("t", HELLO))
        read_until(connection, "t", stored + HELLO)
        assert offset_list(connection.exchange(offsets("t", -1, 1))) == (0, [len(stored + HELLO)])
