"""Records are checked in bounded pieces, and not copied."""

import pytest

from barnabas.core.message.batch_header import HEADER_SIZE
from barnabas.core.message.batch_writer import encode_columns
from barnabas.core.message.record_validation import PIECE, RecordRules, RecordsSummary, renumber_records, walk_records
from barnabas.core.message.varint import encode_varint
from barnabas.ports.errors import ApiError


def walked(content: bytes, count: int) -> tuple[int, RecordsSummary]:
    """Return the number of steps of the walk, and its result."""
    walk, pieces = walk_records(content, 0, count, 0, RecordRules(consecutive=False)), 0
    while True:
        try:
            next(walk)
        except StopIteration as end:
            return pieces, end.value
        pieces += 1


@pytest.mark.parametrize(("count", "pieces"), [(PIECE, 0), (PIECE + 1, 1), (10 * PIECE, 9)])
def test_a_walk_yields_behind_every_piece(count: int, pieces: int) -> None:
    batch = bytes(encode_columns([b"v"] * count, keys=[b"k"] * count, now_ms=1))
    assert walked(batch[HEADER_SIZE:], count)[0] == pieces


def test_the_headers_of_one_record_are_pieces_as_well() -> None:
    count = 10 * PIECE
    body = bytes.fromhex("00 00 00 01 01") + encode_varint(count) + b"\0\1" * count
    content = encode_varint(len(body)) + body
    pieces, found = walked(content, 1)
    assert pieces == 10
    assert (found.end, found.consecutive) == (len(content), True)


@pytest.mark.parametrize(
    "record",
    [
        "00 00 00 01 01 01",  # -1 headers
        "00 00 00 01 01 feffffff0f",  # 2^31-1 headers
        "00 00 00 01 01 04 00 01",  # two headers, of which one is there
        "00 00 00 03 01 00",  # a key of -2 bytes
        "00 00 00 01 03 00",  # a value of -2 bytes
        "00 00 00 01 01 02 01 01",  # a header without a key
        "00 00 00 01 01 00 00",  # a byte too many
    ],
)
def test_a_malformed_record_is_refused(record: str) -> None:
    body = bytes.fromhex(record)
    content = encode_varint(len(body)) + body
    with pytest.raises((ApiError, IndexError)):
        walked(content, 1)


def test_renumbered_records_are_the_same_but_for_their_offsets() -> None:
    count = 2 * PIECE
    content = bytes(encode_columns([b"v"] * count, keys=[b"k"] * count, timestamps=range(count), now_ms=1))
    content = content[HEADER_SIZE:]
    again = renumber_records(content, count)
    steps = 0
    with pytest.raises(StopIteration) as end:
        while True:
            next(again)
            steps += 1
    assert bytes(end.value.value) == content
    assert steps == 2
