"""Classic messages to sets and back: golden bytes, both magics, wrappers and the offsets of facts A2."""

import gzip
import zlib
from struct import pack

import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st

from barnabas import Message
from barnabas.core.message.classic.message_set import ClassicMessageSet
from barnabas.core.message.classic.reader import ShallowMessage, decode_set, decode_shallow
from barnabas.core.message.classic.writer import encode_set, encode_shallow
from barnabas.core.message.codec import Codec
from barnabas.plugins.builtin.codecs import GzipCodec, Lz4Codec, SnappyCodec, builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()
GZIP, SNAPPY = GzipCodec(), SnappyCodec()
BASE = 4_000
HELLO = bytes.fromhex("0000000b01003610a68668656c6c6f")
"""The example of facts A2."""
HELLO_MAGIC_0 = bytes.fromhex("0000000a003610a68668656c6c6f")
payload_lists = st.lists(st.binary(max_size=300), max_size=20)
codec_choice: st.SearchStrategy[Codec | None] = st.sampled_from((None, GZIP, SNAPPY))


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def offsets(messages: list[Message]) -> list[int]:
    return [message.offset for message in messages]


def test_the_golden_entries_are_written() -> None:
    assert encode_set([b"hello"]) == HELLO
    assert encode_set([b"hello"], magic=0) == HELLO_MAGIC_0
    assert encode_set([b"", b"hello"]) == bytes.fromhex("00000006010000000000") + HELLO


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_golden_entries_are_read(kind: type[bytes]) -> None:
    found = decode_set(kind(HELLO + HELLO_MAGIC_0 + HELLO), topic="t", partition=2, from_offset=BASE)
    assert values(found) == [b"hello"] * 3
    assert all(type(message.value) is bytes for message in found)
    assert offsets(found) == [BASE + 15, BASE + 29, BASE + 44]
    assert found[0] == Message(b"hello", topic="t", partition=2, offset=BASE + 15)


def test_payloads_may_be_any_buffer() -> None:
    assert encode_set([bytearray(b"hello"), memoryview(b"hello")]) == 2 * HELLO
    assert encode_shallow(memoryview(b"hello"), 0) == HELLO


def test_unused_attribute_bits_mean_nothing() -> None:
    assert values(decode_set(HELLO[:5] + b"\xfc" + HELLO[6:])) == [b"hello"]


@given(payload_lists, codec_choice, st.sampled_from((0, 1)), st.integers(0, 2**62))
def test_written_message_set_is_read_unchanged(
    payloads: list[bytes], codec: Codec | None, magic: int, base: int
) -> None:
    written = encode_set(payloads, codec=codec, magic=magic)
    found = decode_set(written, CODECS, topic="t", partition=1, from_offset=base)
    assert values(found) == payloads
    if found:
        assert offsets(found)[-1] == base + len(written)
    if codec is not None:
        assert set(offsets(found)[:-1]) <= {base}
    assert list(ClassicMessageSet(written, CODECS, topic="t", partition=1, from_offset=base)) == found


@given(payload_lists, st.integers(0, 2**40))
def test_an_offset_is_where_the_next_message_begins(payloads: list[bytes], base: int) -> None:
    written = encode_set(payloads)
    for number, message in enumerate(decode_set(written, from_offset=base)):
        assert values(decode_set(written[message.offset - base :])) == payloads[number + 1 :]


def test_a_wrapper_holds_an_ordinary_set() -> None:
    wrapped = encode_set([b"one", b"two"], codec=GZIP)
    assert wrapped[4:6] == b"\x01\x01"
    assert gzip.decompress(wrapped[10:]) == encode_set([b"one", b"two"])
    assert int.from_bytes(wrapped[6:10], "big") == zlib.crc32(wrapped[10:])
    wrapped = encode_set([b"one", b"two"], codec=SNAPPY)
    assert wrapped[4:6] == b"\x01\x02"
    assert wrapped[10:26] == b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
    assert snappy.uncompress(wrapped[30:]) == encode_set([b"one", b"two"])


@pytest.mark.parametrize("codec", [GZIP, SNAPPY], ids=["gzip", "snappy"])
def test_only_the_last_message_of_a_wrapper_leads_past_it(codec: Codec) -> None:
    wrapper = encode_set([b"one", b"two", b"three"], codec=codec)
    found = decode_set(HELLO + wrapper + HELLO_MAGIC_0 + wrapper, CODECS, from_offset=BASE)
    start, end = BASE + 15, BASE + 15 + len(wrapper)
    second = end + 14
    assert values(found) == [b"hello", b"one", b"two", b"three", b"hello", b"one", b"two", b"three"]
    assert offsets(found) == [start, start, start, end, second, second, second, second + len(wrapper)]


def test_no_message_compresses_to_nothing() -> None:
    assert encode_set([]) == encode_set([], codec=GZIP) == b""
    assert decode_set(b"") == []


def test_a_wrapper_without_a_message_is_skipped() -> None:
    empty = encode_shallow(GZIP.compress(b""), GZIP.id)
    found = ClassicMessageSet(empty, CODECS, from_offset=BASE)
    assert list(found) == []
    assert found.next_offset == BASE + len(empty)
    assert values(decode_set(HELLO + empty + HELLO, CODECS)) == [b"hello"] * 2


def test_wrappers_in_wrappers_are_read() -> None:
    inner = encode_set([b"a", b"b"], codec=SNAPPY)
    outer = encode_shallow(GZIP.compress(HELLO + inner + inner + HELLO_MAGIC_0), GZIP.id)
    found = decode_set(outer, CODECS, from_offset=BASE)
    assert values(found) == [b"hello", b"a", b"b", b"a", b"b", b"hello"]
    assert offsets(found) == [BASE] * 5 + [BASE + len(outer)]


def test_a_long_wrapper_gives_its_messages_in_order() -> None:
    payloads = [b"%d" % number for number in range(60_000)]
    wrapper = encode_set(payloads, codec=SNAPPY)
    found = decode_set(wrapper, CODECS, from_offset=BASE)
    assert values(found) == payloads
    assert offsets(found) == [BASE] * 59_999 + [BASE + len(wrapper)]
    plain = encode_set(payloads)
    assert values(decode_set(plain)) == payloads


def test_a_shallow_look_leaves_wrappers_closed_and_they_can_be_passed_on() -> None:
    records = HELLO + encode_set([b"one", b"two"], codec=GZIP) + HELLO_MAGIC_0
    found = decode_shallow(records, topic="t", partition=3, from_offset=BASE)
    assert [message.codec_id for message in found] == [0, 1, 0]
    assert [message.offset for message in found] == [BASE + 15, BASE + len(records) - 14, BASE + len(records)]
    assert found[0] == ShallowMessage(b"hello", 0, "t", 3, BASE + 15)
    assert encode_shallow(found[1].value, found[1].codec_id) == records[15:-14]
    shallow = ClassicMessageSet(records, CODECS, topic="t", partition=3, from_offset=BASE).shallow()
    assert list(shallow) == found


@given(payload_lists.filter(bool), codec_choice, st.integers(0, 400))
def test_a_part_of_a_message_at_the_end_is_left_out(payloads: list[bytes], codec: Codec | None, cut: int) -> None:
    tail = encode_set([bytes(400)])
    written = encode_set(payloads, codec=codec)
    found = ClassicMessageSet(written + tail[:cut], CODECS, from_offset=BASE)
    assert [message.value for message in found] == payloads
    assert (found.valid_bytes, found.next_offset) == (len(written), BASE + len(written))
    assert found.size == len(written) + cut


@pytest.mark.parametrize(
    ("magic", "codec", "problem"),
    [(2, None, "magic"), (-1, None, "magic"), (1, Lz4Codec(), "gzip")],
)
def test_message_outside_the_format_is_not_written(magic: int, codec: Codec | None, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        encode_set([b"hello"], codec=codec, magic=magic)


class _Region:
    """Counts how often it is read."""

    def __init__(self, content: bytes) -> None:
        self.content, self.reads = content, 0

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        self.reads += 1
        return self.content[start:] if size is None else self.content[start : start + size]


def test_classic_set_reads_region_lazily_and_forwards_it_unread() -> None:
    region = _Region(2 * HELLO + HELLO[:3])
    found = ClassicMessageSet(region)  # type: ignore[arg-type]  # the part of a Region that is used here
    pieces: list[object] = []
    assert found.write_to(pieces.append) == found.size == 33
    assert (pieces, region.reads) == ([region], 0)
    assert [message.value for message in found] == [b"hello"] * 2
    assert found.valid_bytes == 30
    assert region.reads == 1


def test_an_error_of_the_broker_comes_when_messages_are_asked_for() -> None:
    found = ClassicMessageSet(b"", topic="t", partition=4, from_offset=7, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (found.valid_bytes, found.next_offset) == (0, 7)
    for ask in (found.__iter__, found.shallow):
        with pytest.raises(ApiError, match="t-4 at offset 7") as caught:
            ask()
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_length_of_a_payload_counts_in_its_head() -> None:
    for size in (0, 1, 255, 256, 65_536, 1_000_000):
        payload = bytes(size)
        assert encode_set([payload]) == pack(">ibBI", size + 6, 1, 0, zlib.crc32(payload)) + payload
