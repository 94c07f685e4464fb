"""Unsupported requests get UNSUPPORTED_VERSION in the form of their version, byte for byte; others are closed."""

from struct import pack

import pytest
from support.kafka_frames import ServerEnd, header

from barnabas.adapters.wire_kafka import versions
from barnabas.adapters.wire_kafka.refused import REFUSED
from barnabas.adapters.wire_kafka.table import BY_KEY

CODE = pack(">h", 35)
NULL = pack(">h", -1)
NOTHING = pack(">i", 0)


def i32(*numbers: int) -> bytes:
    return pack(f">{len(numbers)}i", *numbers)


def i64(*numbers: int) -> bytes:
    return pack(f">{len(numbers)}q", *numbers)


def text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


def places(*parts: bytes) -> bytes:
    """Partition 7 of topic "t", with what stands there."""
    return i32(1) + text("t") + i32(1) + b"".join(parts)


def named(*parts: bytes) -> bytes:
    return i32(1) + b"".join(parts)


def produce(acks: int) -> bytes:
    return pack(">hi", acks, 1000) + places(i32(7, 3), b"abc")


SEVEN = i32(7)
FETCH_PLACES = places(SEVEN, i64(5), i32(100))
TOPIC = named(text("t"), i32(1), pack(">h", 1), i32(1, 0, 1, 4), i32(1), text("k"), NULL)
CASES = [
    (0, 0, produce(1), places(SEVEN, CODE, i64(-1))),
    (0, 1, produce(-1), places(SEVEN, CODE, i64(-1)) + NOTHING),
    (0, 2, produce(1), places(SEVEN, CODE, i64(-1, -1)) + NOTHING),
    (1, 0, i32(-1, 9, 1) + FETCH_PLACES, places(SEVEN, CODE, i64(-1), NOTHING)),
    (1, 1, i32(-1, 9, 1) + FETCH_PLACES, NOTHING + places(SEVEN, CODE, i64(-1), NOTHING)),
    (1, 2, i32(-1, 9, 1) + FETCH_PLACES, NOTHING + places(SEVEN, CODE, i64(-1), NOTHING)),
    (1, 3, i32(-1, 9, 1, 99) + FETCH_PLACES, NOTHING + places(SEVEN, CODE, i64(-1), NOTHING)),
    (2, 0, i32(-1) + places(SEVEN, i64(-1), i32(1)), places(SEVEN, CODE, NOTHING)),
    (8, 0, text("g") + places(SEVEN, i64(5), NULL), places(SEVEN, CODE)),
    (8, 1, text("g") + i32(1) + text("m") + places(SEVEN, i64(5, -1), text("meta")), places(SEVEN, CODE)),
    (9, 0, text("g") + places(SEVEN), places(SEVEN, i64(-1), text(""), CODE)),
    (19, 0, TOPIC + i32(1000), named(text("t"), CODE)),
    (19, 1, TOPIC + i32(1000) + b"\x01", named(text("t"), CODE, NULL)),
    (20, 0, named(text("t")) + i32(1000), named(text("t"), CODE)),
    (23, 0, places(SEVEN, i32(2)), places(CODE, SEVEN, i64(-1))),
    (23, 1, places(SEVEN, i32(2)), places(CODE, SEVEN, i32(-1), i64(-1))),
    (29, 0, b"\x02" + NULL * 3 + b"\x01\x01", NOTHING + CODE + NULL + NOTHING),
    (30, 0, named(b"\x02", text("t"), text("User:a"), text("*"), b"\x03\x03"), NOTHING + named(CODE, NULL)),
    (31, 0, named(b"\x02", NULL, NULL, NULL, b"\x01\x01"), NOTHING + named(CODE, NULL, NOTHING)),
    (32, 0, named(b"\x02", text("t"), i32(-1)), NOTHING + named(CODE, NULL, b"\x02", text("t"), NOTHING)),
    (38, 0, i32(0) + i64(-1), CODE + text("") * 2 + i64(-1) * 3 + text("") + i32(0) + i32(0)),
    (39, 0, i32(1) + b"h" + i64(-1), CODE + i64(-1) + i32(0)),
    (40, 0, i32(1) + b"h" + i64(-1), CODE + i64(-1) + i32(0)),
    (41, 0, i32(-1), CODE + i32(0) + i32(0)),
    (76, 0, b"\x00", b"\x00" + NOTHING + CODE + b"\x00\x00" + NOTHING * 2 + b"\xff\x00"),
    (77, 0, b"\x00", b"\x00" + NOTHING + b"\x01\x00"),
    (78, 0, b"\x00", b"\x00" + NOTHING + CODE + b"\x00\x01\x01\x00"),
    (79, 0, b"\x00", b"\x00" + NOTHING + CODE + b"\x00\x01\x01\x00"),
]


@pytest.mark.parametrize(("key", "version", "body", "answer"), [pytest.param(*c, id=f"{c[0]}-{c[1]}") for c in CASES])
def test_a_version_that_is_cut_off_is_answered(key: int, version: int, body: bytes, answer: bytes) -> None:
    end = ServerEnd()
    for correlation_id in (5, 6):
        end.send(header(key, version, correlation_id) + body)
    end.send(header(18, 0, 7))
    assert end.answers[:2] == [i32(correlation_id) + answer for correlation_id in (5, 6)]
    assert len(end.answers) == 3, "the connection stays open"
    (line,) = end.reports
    low, high = BY_KEY[key].versions
    assert f"client 'c1' asks for version {version} of {BY_KEY[key].name}" in line
    assert f"{low} to {high} are" in line


def test_every_version_below_ours_is_answered() -> None:
    below = {(api.key, version) for api in BY_KEY.values() for version in range(api.versions[0])}
    assert below == {(key, version) for key, version, _, _ in CASES}
    assert all(each.versions[1] == BY_KEY[key].versions[0] - 1 for key, each in REFUSED.items() if key in BY_KEY)


def test_api_versions_lists_supported_ranges() -> None:
    end = ServerEnd()
    end.send(header(18, 0, 1))
    _, ranges = versions.read_response(memoryview(end.answers[0]), 4, 0, 1000)
    assert (ranges[0], ranges[1], ranges[68]) == ((0, 13), (4, 18), (0, 1))
    assert 71 not in ranges


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (header(0, 2, 1) + produce(0), "version 2 of Produce"),  # it waits for no answer
        (header(0, 14, 1) + produce(1), "version 14 of Produce"),
        (header(1, 0, 1) + i32(-1, 9), "version 0 of Fetch"),
        (header(88, 0, 1), "StreamsGroupHeartbeat (API key 88), which is not offered"),
        (header(68, 2, 1), "version 2 of ConsumerGroupHeartbeat, which is not supported; 0 to 1 are"),
        (header(999, 0, 1), "API key 999, which is not known"),
    ],
)
def test_request_without_a_response_closes_the_connection_and_is_logged(frame: bytes, words: str) -> None:
    end = ServerEnd()
    end.send(frame)
    assert end.connection.is_closed
    assert end.answers == []
    (line,) = end.reports
    assert f"client 'c1' asks for {words}" in line


def test_a_topic_count_beyond_the_frame_is_refused() -> None:
    end = ServerEnd()
    end.send(header(20, 0, 1) + i32(2**31 - 1))
    assert end.connection.is_closed


@pytest.mark.parametrize("operation", [0, 16, -1])
def test_acl_with_an_unknown_operation_closes_the_connection(operation: int) -> None:
    end = ServerEnd()
    entry = b"\x02" + text("t") + b"\x03" + text("User:a") + text("*") + pack(">bb", operation, 3)
    end.send(header(30, 1, 1) + i32(1) + entry)
    assert end.connection.is_closed
    assert end.answers == []
