"""The quick way through plain batches tells what the general one tells, or leaves it to that."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.message.batch_reader import decode_columns
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.core.message.plain_batches import take_plain
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()

_texts = st.none() | st.binary(max_size=20) | st.integers(60, 20_000).map(bytes)
_messages = st.builds(
    Message,
    value=_texts,
    key=_texts,
    timestamp_ms=st.integers(0, 2**40),
    headers=st.sampled_from([(), (), (), (("h", b"x"),)]),
)
_batches = st.lists(
    st.tuples(st.lists(_messages, min_size=1, max_size=4), st.sampled_from(["", "", "", "gzip"])), max_size=4
)
Column = list[bytes | None]


def encoded(batches: list[tuple[list[Message], str]]) -> bytes:
    data, offset = bytearray(), 0
    for messages, codec in batches:
        named = CODECS.by_name(codec) if codec else None
        data += encode_batch(messages, now_ms=1, codec=named, base_offset=offset)
        offset += len(messages)
    return bytes(data)


def taken(data: bytes, from_offset: int = 0) -> tuple[int, int, Column, Column]:
    keys: Column = []
    values: Column = []
    return *take_plain(data, from_offset, keys, values), keys, values


@given(_batches, st.integers(0, 30))
def test_as_the_general_way(batches: list[tuple[list[Message], str]], cut: int) -> None:
    data = encoded(batches)
    data = data[: max(0, len(data) - cut)]
    position, offset, keys, values = taken(data)
    both = decode_columns(data[:position], CODECS)
    assert (keys, values) == (both.keys, both.values)
    assert both.next_offset == offset
    assert both.valid_bytes == position


def test_plain_batches_are_taken_to_the_end() -> None:
    data = encoded([([Message(bytes(200), b"key", timestamp_ms=1), Message(None, b"k", timestamp_ms=10**12)], "")] * 3)
    position, offset, keys, values = taken(data)
    assert (position, offset) == (len(data), 6)
    assert keys == [b"key", b"k"] * 3
    assert values == [bytes(200), None] * 3


def test_a_batch_that_reaches_below_the_offset_is_left() -> None:
    data = encoded([([Message(b"a"), Message(b"b")], "")])
    assert taken(data, 1) == (0, 1, [], [])


@given(st.data(), st.lists(_messages, min_size=1, max_size=3))
def test_damage_is_left_to_the_general_way(draw: st.DataObject, messages: list[Message]) -> None:
    good = encoded([(messages, "")])
    data = bytearray(good + good)
    at = draw.draw(st.integers(0, len(good) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    position, offset, keys, values = taken(bytes(data))
    try:
        both = decode_columns(bytes(data[:position]), CODECS)
    except ApiError:
        raise AssertionError("what was taken cannot be read") from None
    assert (keys, values, offset) == (both.keys, both.values, both.next_offset)
