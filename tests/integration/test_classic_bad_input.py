"""Input that no client of the classic generation sends: the broker answers or closes the connection, and serves on."""

import gzip
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.classic_frames import (
    entry,
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
from support.etcd_server import EtcdServer
from support.ports import free_port
from support.process import BrokerProcess, broker_process
from support.raw import RawConnection
from support.waiting import PATIENCE_S, wait_for

from barnabas import Broker, ConsumerConnector, Producer, SimpleConsumer
from barnabas.app.compose.coordination import client_coordination
from barnabas.core.classic.registry.registries import children
from barnabas.ports.errors import ConfigError

REQUEST_BYTES_MAX = 1_000_000
MESSAGE_BYTES_MAX = 100_000
STORED = message_set(b"kept", b"and this")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {
        "socket.request.max.bytes": REQUEST_BYTES_MAX,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "log.flush.interval.messages": 1,
    }
    listeners = ["classic://127.0.0.1:0"]
    with Broker(storage="memory", coordination="memory", listeners=listeners, config=config) as running:
        with RawConnection(running.bootstrap) as connection:
            connection.send(produce("kept", STORED))
            wait_for(lambda: content(connection, "kept") == STORED)
        yield running


def content(connection: RawConnection, topic: str) -> bytes:
    error, records = fetched(connection.exchange(fetch(topic)))
    assert error == 0
    return records


def still_serves(broker: Broker) -> bool:
    with RawConnection(broker.bootstrap) as connection:
        return content(connection, "kept") == STORED


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def produce_body(topic: bytes, partition: int, size: int, records: bytes) -> bytes:
    return struct.pack(">hh", 0, len(topic)) + topic + struct.pack(">ii", partition, size) + records


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", -(2**31)), id="most negative size"),
        pytest.param(struct.pack(">i", REQUEST_BYTES_MAX + 1), id="size over the limit"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="largest size"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(frame(b""), id="empty"),
        pytest.param(frame(b"\0"), id="half an id"),
        pytest.param(request(5, text("kept")), id="id 5"),
        pytest.param(request(-1, text("kept")), id="id -1"),
        pytest.param(request(18, b"\0\0\0\0\0\7\xff\xff"), id="a request of the current generation"),
        pytest.param(request(1, b"\xff\xff" + bytes(16)), id="null topic"),
        pytest.param(request(1, b"\x7f\xff" + b"kept" + bytes(16)), id="topic longer than the request"),
        pytest.param(request(1, b"\0\2\xff\xfe" + bytes(16)), id="topic that is not UTF-8"),
        pytest.param(request(1, text("kept") + bytes(15)), id="fetch one byte short"),
        pytest.param(request(1, text("kept") + bytes(17)), id="fetch one byte long"),
        pytest.param(request(2, b"\x7f\xff"), id="multi-fetch of 32767 that are not there"),
        pytest.param(request(2, b"\x80\0"), id="multi-fetch of a negative number"),
        pytest.param(
            request(3, b"\0\2" + text("kept") + struct.pack(">ii", 0, 0)), id="multi-produce of 2, 1 is there"
        ),
        pytest.param(frame(produce_body(b"kept", 0, 100, STORED)), id="set longer than the request"),
        pytest.param(frame(produce_body(b"kept", 0, -1, b"")), id="set of a negative size"),
        pytest.param(frame(produce_body(b"kept", 0, len(STORED), STORED + b"!")), id="bytes after the set"),
        pytest.param(offsets("kept", -1, max_offsets=-1), id="negative number of offsets"),
        pytest.param(offsets("kept", -1, partition=2**31 - 1), id="offsets of a partition far away"),
        pytest.param(produce("kept", STORED, partition=-2), id="partition -2"),
        pytest.param(produce("kept", STORED, partition=1), id="partition 1 of 1"),
    ],
)
def test_a_senseless_request_closes_the_connection(broker: Broker, data: bytes) -> None:
    with RawConnection(broker.bootstrap) as connection:
        connection.send(data)
        assert connection.closed_by_broker()
    assert still_serves(broker)


def test_incomplete_request_does_not_disturb_other_connections(broker: Broker) -> None:
    with RawConnection(broker.bootstrap) as waiting:
        waiting.send(struct.pack(">i", REQUEST_BYTES_MAX) + b"\0\0only this much")
        assert still_serves(broker)


@given(data=st.binary(max_size=300))
def test_random_requests_do_not_stop_broker(broker: Broker, data: bytes) -> None:
    with RawConnection(broker.bootstrap) as connection:
        connection.send(frame(data))
        connection.send(offsets("kept", -1))
        with suppress(ConnectionError):  # closing is one of the two right answers
            connection.answer()
    assert still_serves(broker)


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7), number=st.integers(0, 4))
def test_a_flipped_bit_anywhere_in_any_request(broker: Broker, position: int, bit: int, number: int) -> None:
    sound = [
        produce("flipped", STORED + gzip_wrapper(b"packed")),
        fetch("flipped"),
        multi_fetch([("flipped", 0, 0), ("kept", 0, 0)]),
        multi_produce([("flipped", 0, STORED), ("flipped", -1, STORED)]),
        offsets("flipped", -1),
    ][number]
    data = bytearray(sound)
    data[4 + position % (len(data) - 4)] ^= 1 << bit
    with RawConnection(broker.bootstrap) as connection:
        connection.send(bytes(data))
        connection.send(offsets("kept", -1))
        with suppress(ConnectionError):
            connection.answer()
    assert still_serves(broker)


def with_crc_of_another(payload: bytes) -> bytes:
    wrong = bytearray(entry(payload))
    wrong[-1] ^= 1
    return bytes(wrong)


def wrapper_around(inner: bytes) -> bytes:
    return entry(gzip.compress(inner, mtime=0), codec=1)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(with_crc_of_another(b"message"), id="CRC"),
        pytest.param(STORED + with_crc_of_another(b"message") + STORED, id="CRC of the third"),
        pytest.param(wrapper_around(with_crc_of_another(b"message")), id="CRC within a wrapper"),
        pytest.param(b"\0\0\0\x08\2\0" + bytes(6), id="magic 2"),
        pytest.param(b"\0\0\0\x08\xff\0" + bytes(6), id="magic -1"),
        pytest.param(entry(b"message", codec=3), id="codec 3"),
        pytest.param(entry(b"no gzip", codec=1), id="no gzip"),
        pytest.param(entry(b"no snappy", codec=2), id="no snappy"),
        pytest.param(entry(gzip.compress(STORED)[:-9], codec=1), id="gzip that is cut"),
        pytest.param(wrapper_around(b"\xff\xff\xff\xff" + STORED), id="negative size within a wrapper"),
        pytest.param(struct.pack(">i", -1) + STORED, id="negative size of a message"),
        pytest.param(struct.pack(">i", 0) + STORED, id="a message of no bytes"),
        pytest.param(struct.pack(">ib", 1, 1) + STORED, id="a message of one byte"),
    ],
)
def test_a_wrong_message_is_refused_and_leaves_no_trace(broker: Broker, records: bytes) -> None:
    with RawConnection(broker.bootstrap) as connection:
        connection.send(produce("kept", records))
        assert connection.closed_by_broker()
    with RawConnection(broker.bootstrap) as connection:
        connection.send(multi_produce([("beside", 0, STORED), ("kept", 0, records)]))
        assert connection.closed_by_broker()
    assert still_serves(broker)
    with RawConnection(broker.bootstrap) as connection:
        wait_for(lambda: content(connection, "beside")[: len(STORED)] == STORED)


def test_a_part_of_a_message_at_the_end_is_cut_off(broker: Broker) -> None:
    with RawConnection(broker.bootstrap) as connection:
        connection.send(produce("cut", STORED + message_set(b"not whole")[:-1]))
        connection.send(produce("cut", message_set(b"next")))
        wait_for(lambda: content(connection, "cut") == STORED + message_set(b"next"))


@pytest.mark.parametrize("size", [MESSAGE_BYTES_MAX + 1, REQUEST_BYTES_MAX - 100])
def test_a_message_over_the_limit_is_dropped(broker: Broker, size: int) -> None:
    with RawConnection(broker.bootstrap) as connection:
        connection.send(produce("kept", entry(b"x" * size)))
        assert content(connection, "kept") == STORED


@pytest.mark.parametrize(
    ("offset", "partition", "max_bytes", "error"),
    [
        (len(STORED) + 1, 0, 100, 1),
        (2**63 - 1, 0, 100, 1),
        (-1, 0, 100, 1),
        (-(2**63), 0, 100, 1),
        (0, 1, 100, 3),
        (0, -1, 100, 3),
        (0, 2**31 - 1, 100, 3),
        (0, 0, -1, 4),
        (0, 0, -(2**31), 4),
    ],
)
def test_invalid_fetch_returns_error_code_and_connection_stays_open(
    broker: Broker, offset: int, partition: int, max_bytes: int, error: int
) -> None:
    with RawConnection(broker.bootstrap) as connection:
        assert fetched(connection.exchange(fetch("kept", offset, partition, max_bytes))) == (error, b"")
        places = [("kept", 0, 0), ("kept", partition, offset)]
        if max_bytes > 0:
            assert multi_fetched(connection.exchange(multi_fetch(places))) == [(0, STORED), (error, b"")]


def test_fetch_from_within_message_returns_bytes_from_there(broker: Broker) -> None:
    with RawConnection(broker.bootstrap) as connection:
        assert fetched(connection.exchange(fetch("kept", 3, 0, 2**31 - 1))) == (0, STORED[3:])


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../etc/passwd", "x" * 256, "nul\0", "line\n", "\ue000"])
def test_topic_names_that_are_no_names(broker: Broker, name: str) -> None:
    with RawConnection(broker.bootstrap) as connection:
        assert fetched(connection.exchange(fetch(name))) == (-1, b"")
        connection.send(produce(name, STORED))
        assert connection.closed_by_broker()
    with RawConnection(broker.bootstrap) as connection:
        connection.send(offsets(name, -1))
        assert connection.closed_by_broker()
    assert still_serves(broker)


@pytest.mark.parametrize("time_ms", [-3, -(2**63), 2**63 - 1, 0])
def test_offsets_before_any_time(broker: Broker, time_ms: int) -> None:
    with RawConnection(broker.bootstrap) as connection:
        error, found = offset_list(connection.exchange(offsets("kept", time_ms, max_offsets=2**31 - 1)))
    assert error == 0
    assert set(found) <= {0, len(STORED)}


# --- memory


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("memory") / "data"
    with broker_process(folder, "log.flush.interval.messages=1", listen=["classic://127.0.0.1:0"]) as running:
        yield running


def peak_mb(process: BrokerProcess) -> int:
    """Return the peak memory of the process."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) // 1024


@pytest.mark.process
def test_memory_is_not_taken_for_what_is_only_announced(process: BrokerProcess) -> None:
    before = peak_mb(process)
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(RawConnection(process.bootstrap))
            connection.send(struct.pack(">i", 100_000_000) + b"\0\0" + bytes(1000))
        with RawConnection(process.bootstrap) as connection:
            assert offset_list(connection.exchange(offsets("t", -1))) == (0, [0])
        assert peak_mb(process) - before < 30


@pytest.mark.slow
@pytest.mark.process
def test_memory_is_not_taken_for_a_bomb(process: BrokerProcess) -> None:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(400)) + packer.flush()
    assert len(bomb) < 1_000_000
    before = peak_mb(process)
    for records in (entry(bomb, codec=1), wrapper_around(entry(bomb, codec=1))):
        with RawConnection(process.bootstrap) as connection:
            connection.send(produce("bomb", records))
            connection.send(offsets("bomb", -1))
            with suppress(ConnectionError):
                connection.answer()
    assert peak_mb(process) - before < 250
    with RawConnection(process.bootstrap) as connection:
        assert fetched(connection.exchange(fetch("bomb"))) == (0, b"")


@pytest.mark.process
def test_memory_is_not_taken_for_who_asks_and_does_not_read(process: BrokerProcess) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(RawConnection(process.bootstrap))
        first.send(produce("large", message_set(*[b"x" * 100_000] * 40)))
        wait_for(lambda: len(fetched(first.exchange(fetch("large", max_bytes=1 << 30)))[1]) > 4_000_000)
        before = peak_mb(process)
        for _ in range(20):
            greedy = stack.enter_context(RawConnection(process.bootstrap))
            greedy.send(fetch("large", max_bytes=1 << 30) * 100)
        assert fetched(first.exchange(fetch("large", max_bytes=10)))[0] == 0
        assert peak_mb(process) - before < 30


# --- before the broker is ready


@pytest.mark.process
@pytest.mark.xdist_group("etcd")
def test_requests_wait_until_the_broker_is_registered(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """The broker cannot register while the node of its id, of an earlier session, exists."""
    port = free_port()
    with ExitStack() as stack:
        where = f"etcd://127.0.0.1:{etcd_server.port}/{uuid4().hex}"
        before = client_coordination(where)
        stack.callback(before.close)
        before.create("/brokers/ids/1", f"host-1:127.0.0.1:{port}".encode(), ephemeral=True)
        config = {"broker.id": 1, "log.flush.interval.messages": 1}
        broker = Broker(tmp_path / "data", listeners=[f"classic://127.0.0.1:{port}"], coordination=where, config=config)
        stack.callback(broker.close)
        starting = stack.enter_context(ThreadPoolExecutor(1)).submit(broker.start)
        connections: list[RawConnection] = []

        def connected() -> bool:
            with suppress(OSError):
                connections.append(RawConnection(f"127.0.0.1:{port}"))
            return bool(connections)

        wait_for(connected)
        waiting = stack.enter_context(connections[0])
        waiting.send(produce("early", STORED) + fetch("early", max_bytes=0))
        waiting.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            waiting.answer()
        assert not starting.done()
        waiting.socket.settimeout(20)
        before.close()
        assert fetched(waiting.answer()) == (0, b"")
        starting.result(PATIENCE_S)
        wait_for(lambda: content(waiting, "early") == STORED)


# --- invalid configurations


@pytest.mark.parametrize(
    "brokers",
    [
        "localhost:9092",
        "0:localhost",
        "0;localhost:9092",
        "0:localhost:port",
        "0:a:1,0:b:1",
        "0:a:99999",
        "0:a:1,,1:b:1",
    ],
)
def test_a_broker_list_with_a_typo_is_named(brokers: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.list"):
        Producer(broker_list=brokers)


@pytest.mark.parametrize(
    "address", ["classic://", "classic://host", "classic://host:port", "classic://a:1,classic://b:1"]
)
def test_an_address_with_a_typo_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap"):
        SimpleConsumer(address)


@pytest.mark.parametrize("group", ["", "a/b", "/", "..", "a\nb"])
def test_a_group_that_is_no_name_leaves_no_trace(broker: Broker, group: str) -> None:
    with pytest.raises(ConfigError, match="groupid"):
        ConsumerConnector(coordination=broker, groupid=group)
    with closing(client_coordination(broker)) as session:
        assert children(session, "/consumers") == []
