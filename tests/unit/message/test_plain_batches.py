"""The quick parser of plain batches returns what the general one does, or leaves the batch to it."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.coordinator.log_loader import KeysAndValues, TransactionSpan, read_plain_batches
from barnabas.core.message.batch_header import assign_offset, write_crc
from barnabas.core.message.batch_reader import decode_columns
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.control_records import EndTransactionMarker, encode_marker
from barnabas.core.message.message import Message
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
    into = KeysAndValues()
    return *read_plain_batches(data, 0, from_offset, into), into.keys, into.values


@given(_batches, st.integers(0, 30))
def test_plain_batches_decode_as_general_ones(batches: list[tuple[list[Message], str]], cut: int) -> None:
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


def in_transaction(producer: int, offset: int, *keys: bytes) -> bytes:
    messages = [Message(b"v" + key, key, timestamp_ms=1) for key in keys]
    return bytes(
        encode_batch(messages, now_ms=1, base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True)
    )


def marker(producer: int, offset: int, *, committed: bool) -> bytes:
    batch = encode_marker(EndTransactionMarker(committed, 3), producer_id=producer, producer_epoch=0, now_ms=1)
    assign_offset(batch, offset, 0)
    return bytes(batch)


def test_plain_batch_reader_reports_transaction_spans_and_markers() -> None:
    plain = encoded([([Message(b"p", b"p", timestamp_ms=1)], "")])
    data = plain + in_transaction(7, 1, b"a", b"b") + in_transaction(8, 3, b"c")
    data += marker(7, 4, committed=True) + marker(8, 5, committed=False)
    into = KeysAndValues()
    assert read_plain_batches(data, 0, 0, into) == (len(data), 6)
    assert into.keys == [b"p", b"a", b"b", b"c"]
    assert into.values == [b"p", b"va", b"vb", b"vc"]
    assert into.transactions == [
        TransactionSpan(1, 3, 7),
        TransactionSpan(3, 4, 8),
        TransactionSpan(4, 4, 7, True),
        TransactionSpan(4, 4, 8, False),
    ]


def test_other_control_batches_are_left_to_the_general_way() -> None:
    data = bytearray(marker(7, 0, committed=True))
    data[61 + 8] = 2  # the type: of a leader's change
    write_crc(data, 0, len(data))
    into = KeysAndValues()
    assert read_plain_batches(bytes(data), 0, 0, into) == (0, 0)
    assert (into.keys, into.values, into.transactions) == ([], [], [])
