"""Message sets over bytes and over regions of files."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import NOW_MS, message_lists, sent, stamped, with_right_crc

from barnabas import Message
from barnabas.app.clients.arrow.decode import decode_arrow
from barnabas.core.message.batch_reader import decode_columns
from barnabas.core.message.batch_writer import encode_batch, encode_columns
from barnabas.core.message.message_set import MessageSet
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import Region
from barnabas.ports.types import Buffer, Position

CODECS = builtin_codecs()


class BytesRegion:
    """A region that counts how much is read from it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.bytes_read = 0

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def position(self) -> Position:
        return Position(0)

    def fileno(self) -> int:
        return -1

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        piece = self.content[start:] if size is None else self.content[start : start + size]
        self.bytes_read += len(piece)
        return piece


Kind = Callable[[bytes], Buffer | Region]
kinds = pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, BytesRegion])


def batches(*bases: int, size: int = 10) -> bytes:
    return b"".join(
        encode_columns([b"%d" % (base + n) for n in range(size)], now_ms=NOW_MS, base_offset=base) for base in bases
    )


@kinds
def test_messages_come_in_order_with_their_place(kind: Kind) -> None:
    messages = list(MessageSet(kind(batches(0, 10)), topic="t", partition=4))
    assert [(m.value, m.topic, m.partition, m.offset) for m in messages] == [(b"%d" % n, "t", 4, n) for n in range(20)]


@kinds
def test_records_before_the_offset_asked_for_are_skipped(kind: Kind) -> None:
    assert [m.offset for m in MessageSet(kind(batches(0, 10, 20)), from_offset=14)] == list(range(14, 30))


@kinds
@pytest.mark.parametrize("cut", [1, 17, 40, 100])
def test_a_cut_batch_at_the_end_is_left_out(kind: Kind, cut: int) -> None:
    data = batches(0, 10)
    messages = MessageSet(kind(data[:-cut]))
    assert [m.offset for m in messages] == list(range(10))
    assert (messages.valid_bytes, messages.next_offset) == (len(batches(0)), 10)
    assert messages.size == len(data) - cut


@kinds
def test_a_set_of_one_cut_batch_has_no_valid_bytes(kind: Kind) -> None:
    messages = MessageSet(kind(batches(0)[:-1]), from_offset=3)
    assert (list(messages), messages.valid_bytes, messages.next_offset) == ([], 0, 3)


@kinds
def test_an_empty_set(kind: Kind) -> None:
    messages = MessageSet(kind(b""), from_offset=3)
    assert (list(messages), messages.size, messages.valid_bytes, messages.next_offset) == ([], 0, 0, 3)


@kinds
def test_control_batches_are_skipped_and_counted(kind: Kind) -> None:
    control = bytearray(batches(10, size=1))
    control[22] |= 0x20
    messages = MessageSet(kind(batches(0) + with_right_crc(control)))
    assert [m.offset for m in messages] == list(range(10))
    assert messages.next_offset == 11


@kinds
@pytest.mark.parametrize("damage", ["control bit", "earlier end"])
def test_damaged_header_does_not_hide_the_records_of_a_batch(kind: Kind, damage: str) -> None:
    hidden = bytearray(batches(3, size=3))
    if damage == "control bit":
        hidden[22] |= 0x20
    else:
        hidden[26] = 0  # last offset delta
    data = batches(0, size=3) + hidden + batches(6)

    messages = MessageSet(kind(data), from_offset=4)
    with pytest.raises(ApiError, match="CRC-32C"):
        list(messages)
    with pytest.raises(ApiError, match="CRC-32C"):
        decode_columns(data, CODECS, from_offset=4)
    with pytest.raises(ApiError, match="CRC-32C"):
        list(decode_arrow(data, CODECS, from_offset=4))

    found: list[int] = []
    messages = MessageSet(kind(data), from_offset=4)
    messages.on_damage = lambda header, error: found.append(header.base_offset)
    assert [message.offset for message in messages] == list(range(6, 16))
    assert found == [3]


@kinds
def test_the_shallow_walk_gives_headers_and_positions(kind: Kind) -> None:
    messages = MessageSet(kind(batches(0, 10, 20)))
    size = len(batches(0))
    assert [(header.base_offset, header.count) for header in messages.batches()] == [(0, 10), (10, 10), (20, 10)]
    assert [position for position, _ in messages.positioned_batches()] == [0, size, size + len(batches(10))]


def test_message_set_reads_lazily_and_next_offset_reads_headers_only() -> None:
    region = BytesRegion(batches(0, 10, 20))
    messages = MessageSet(region)
    assert (messages.size, region.bytes_read) == (len(region.content), 0)
    assert messages.next_offset == 30
    assert region.bytes_read == 3 * 61
    next(iter(messages))
    assert region.bytes_read <= 4 * 61 + len(batches(0))


@kinds
def test_writing_hands_over_what_it_holds(kind: Kind) -> None:
    records = kind(batches(0))
    out: list[object] = []
    assert MessageSet(records).write_to(out.append) == len(batches(0))
    assert out[0] is records


@kinds
def test_damage_in_the_middle_is_an_error_where_it_is_met(kind: Kind) -> None:
    data = bytearray(batches(0, 10))
    data[-1] ^= 1
    reading = iter(MessageSet(kind(bytes(data))))
    assert [next(reading).offset for _ in range(10)] == list(range(10))
    with pytest.raises(ApiError) as caught:
        next(reading)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert len(list(MessageSet(kind(bytes(data[:-1]) + b"\0"), check_crc=False))) == 20


@kinds
@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_an_impossible_batch_length_is_corrupt(kind: Kind, length: int) -> None:
    data = bytearray(batches(0))
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(ApiError) as caught:
        list(MessageSet(kind(bytes(data))))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_region_whose_file_was_cut_ends_early() -> None:
    class Cut(BytesRegion):
        @property
        def size(self) -> int:
            return len(self.content) + 500

    messages = MessageSet(Cut(batches(0)))
    assert (len(list(messages)), messages.next_offset) == (10, 10)


@given(st.lists(st.tuples(message_lists, st.sampled_from(("none", *CODECS.names))), max_size=4), st.integers(0, 200))
def test_any_messages_in_any_codecs_from_any_offset(parts: list[tuple[list[Message], str]], from_offset: int) -> None:
    data, expected, offset = b"", [], 0
    for messages, codec_name in parts:
        codec = CODECS.by_name(codec_name)
        data += encode_batch(messages, now_ms=NOW_MS, codec=codec, base_offset=offset)
        expected += stamped(messages)
        offset += len(messages)
    for records in (data, BytesRegion(data)):
        got = list(MessageSet(records, CODECS, from_offset=from_offset))
        assert [sent(message) for message in got] == expected[from_offset:]
        assert [message.offset for message in got] == list(range(offset))[from_offset:]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise_anything_but_api_errors(data: bytes) -> None:
    for records in (data, BytesRegion(data)):
        try:
            assert list(MessageSet(records, CODECS)) == []
        except ApiError:
            continue
