"""The broker checks all input: it answers with an error or closes the connection, and continues to serve."""

import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.raw import (
    RawConnection,
    fetch_error_and_records,
    fetch_v4,
    frame,
    produce_error,
    produce_v3,
    text,
)

from barnabas import Admin, Broker, Message
from barnabas.core.message.batch_header import write_crc
from barnabas.core.message.batch_writer import encode_batch
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

TOPIC = "sound"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", socket_request_max_bytes=1_000_000) as running:
        with Admin(running) as admin:
            admin.create_topic(TOPIC, partitions=1)
        with RawConnection(running.bootstrap) as connection:
            assert produce_error(connection.exchange(produce_v3(TOPIC, good_batch())), TOPIC) == 0
        yield running


def good_batch(count: int = 3) -> bytearray:
    return encode_batch([Message(value=b"value %d" % i) for i in range(count)], now_ms=1_700_000_000_000)


def still_serves(broker: Broker) -> bool:
    """Return True if a new connection is served, and the first record is still readable."""
    with RawConnection(broker.bootstrap) as connection:
        error, records = fetch_error_and_records(connection.exchange(fetch_v4(TOPIC, 0)), TOPIC)
    return error == 0 and b"value 0" in records


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", -(2**31)), id="most negative size"),
        pytest.param(struct.pack(">i", 1_000_001), id="over the limit"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="largest size"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="shorter than a header"),
        pytest.param(frame(9999, 0, b""), id="unknown API"),
        pytest.param(frame(0, 99, b""), id="version too new"),
        pytest.param(frame(1, 0, b""), id="version too old"),
        pytest.param(frame(3, 1, struct.pack(">i", 2**31 - 1)), id="array that claims 2^31-1 elements"),
        pytest.param(frame(3, 1, struct.pack(">i", -5)), id="array of negative length"),
        pytest.param(frame(3, 1, struct.pack(">ih", 1, 3) + b"\xff\xfe\xfd"), id="text that is not UTF-8"),
        pytest.param(frame(0, 3, struct.pack(">hhii", -1, 1, 1000, 1) + text("t")), id="ends in the middle"),
    ],
)
def test_a_senseless_frame_closes_the_connection(broker: Broker, data: bytes) -> None:
    with RawConnection(broker.bootstrap) as connection:
        connection.send(data)
        assert connection.closed_by_broker()
    assert still_serves(broker)


def test_incomplete_frame_does_not_disturb_other_connections(broker: Broker) -> None:
    with RawConnection(broker.bootstrap) as waiting:
        waiting.send(struct.pack(">i", 900_000) + b"only this much")
        assert still_serves(broker)


@given(data=st.binary(max_size=400))
def test_random_frames_do_not_stop_broker(broker: Broker, data: bytes) -> None:
    with RawConnection(broker.bootstrap) as connection:
        connection.send(struct.pack(">i", len(data)) + data)
        connection.send(frame(18, 0, b""))
        with suppress(ConnectionError):  # closing is one of the two right answers
            connection.answer()
    assert still_serves(broker)


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_in_a_produce_request(broker: Broker, position: int, bit: int) -> None:
    request = bytearray(produce_v3("flipped", bytes(good_batch())))
    request[4 + position % (len(request) - 4)] ^= 1 << bit
    with RawConnection(broker.bootstrap) as connection:
        connection.send(bytes(request))
        connection.send(frame(18, 0, b""))
        with suppress(ConnectionError):
            connection.answer()
    assert still_serves(broker)


def _changed(change: str) -> bytes:
    batch = good_batch()
    match change:
        case "crc":
            batch[17] ^= 1
        case "magic":
            batch[16] = 1
        case "cut":
            del batch[-1]
        case "surplus":
            batch += b"\0"
        case "two batches":
            batch += good_batch()
        case "longer than it is":
            struct.pack_into(">i", batch, 8, len(batch))
        case "count":
            struct.pack_into(">i", batch, 57, 99)
            write_crc(batch, 0, len(batch))
        case "negative count":
            struct.pack_into(">i", batch, 57, -3)
            write_crc(batch, 0, len(batch))
        case "control":
            struct.pack_into(">h", batch, 21, 0x20)
            write_crc(batch, 0, len(batch))
        case "base offset":
            struct.pack_into(">q", batch, 0, 5)
        case "empty":
            batch.clear()
    return bytes(batch)


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ("crc", {ErrorCode.CORRUPT_MESSAGE}),
        ("magic", {ErrorCode.INVALID_RECORD}),
        ("cut", {ErrorCode.CORRUPT_MESSAGE}),
        ("surplus", {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
        ("two batches", {ErrorCode.INVALID_RECORD}),
        ("longer than it is", {ErrorCode.CORRUPT_MESSAGE}),
        ("count", {ErrorCode.INVALID_RECORD}),
        ("negative count", {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
        ("control", {ErrorCode.INVALID_RECORD}),
        ("base offset", {ErrorCode.INVALID_RECORD}),
        ("empty", {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}),
    ],
)
def test_a_wrong_batch_is_refused_and_leaves_no_trace(broker: Broker, change: str, codes: set[ErrorCode]) -> None:
    with RawConnection(broker.bootstrap) as connection:
        before = connection.exchange(fetch_v4(TOPIC, 0))
        assert produce_error(connection.exchange(produce_v3(TOPIC, _changed(change))), TOPIC) in codes
        assert connection.exchange(fetch_v4(TOPIC, 0)) == before


def test_a_batch_over_the_limit(broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("small", partitions=1, configs={"max.message.bytes": "100"})
    with RawConnection(broker.bootstrap) as connection:
        answer = connection.exchange(produce_v3("small", bytes(good_batch(20))))
        assert produce_error(answer, "small") == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_do_not_exist(broker: Broker, acks: int) -> None:
    with RawConnection(broker.bootstrap) as connection:
        answer = connection.exchange(produce_v3(TOPIC, bytes(good_batch()), acks=acks))
        assert produce_error(answer, TOPIC) == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("offset", [1_000_000, -1, 2**63 - 1])
def test_offsets_out_of_range(broker: Broker, offset: int) -> None:
    with RawConnection(broker.bootstrap) as connection:
        error, records = fetch_error_and_records(connection.exchange(fetch_v4(TOPIC, offset)), TOPIC)
    assert (error, records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")


@pytest.mark.parametrize("partition", [-1, 1, 2**31 - 1])
def test_partitions_that_do_not_exist(broker: Broker, partition: int) -> None:
    with RawConnection(broker.bootstrap) as connection:
        produced = connection.exchange(produce_v3(TOPIC, bytes(good_batch()), partition=partition))
        fetched = connection.exchange(fetch_v4(TOPIC, 0, partition=partition))
    assert produce_error(produced, TOPIC) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch_error_and_records(fetched, TOPIC)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["a/b", "..", ".", "../../etc/passwd", "", "x" * 250, "sp ace", "ünïcode", "nul\0"])
def test_topic_names_that_are_no_names(broker: Broker, name: str) -> None:
    with Admin(broker) as admin, pytest.raises(ApiError) as refused:
        admin.create_topic(name, partitions=1)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with RawConnection(broker.bootstrap) as connection:
        produced = connection.exchange(produce_v3(name, bytes(good_batch())))
        fetched = connection.exchange(fetch_v4(name, 0))
    assert produce_error(produced, name) in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert fetch_error_and_records(fetched, name)[0] in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    )


def test_the_longest_name_is_a_name(broker: Broker) -> None:
    with Admin(broker) as admin:
        admin.create_topic("y" * 249, partitions=1)
