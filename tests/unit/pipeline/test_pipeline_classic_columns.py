"""Classic message sets as columns, and as Arrow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.core.message.classic.writer import encode_set
from barnabas.pipeline.source.datasource import arrow_batches, source_schema
from barnabas.pipeline.topics.connect import classic_columns
from barnabas.pipeline.topics.model import ClusterPartition
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()
GZIP, SNAPPY = CODECS.by_name("gzip"), CODECS.by_name("snappy")
Row = tuple[int, int | None, bytes | None]


def _rows(data: bytes, *, at: int = 0, upto: int = 1 << 40, piece_bytes: int = 1 << 20) -> tuple[list[Row], int]:
    """Offset, place in the wrapper and value of each message, and where to continue."""
    rows: list[Row] = []
    reached = at
    for piece in classic_columns(data, CODECS, from_offset=at, upto=upto, piece_bytes=piece_bytes):
        indexes = piece.wrapper_indexes or [None] * len(piece.offsets)
        rows += zip(piece.offsets, indexes, piece.values, strict=True)
        reached = piece.next_offset
    return rows, reached


def test_every_message_has_the_position_of_its_outer_entry() -> None:
    plain = encode_set([b"a", b"bb"])
    wrapper = encode_set([b"x", b"y", b"z"], codec=GZIP)
    old = encode_set([b"old"], magic=0)
    data = plain + wrapper + old + encode_set([b"s"], codec=SNAPPY)
    rows, reached = _rows(data, at=1000)
    inside = 1000 + len(plain)
    assert rows == [
        (1000, None, b"a"),
        (1011, None, b"bb"),
        (inside, 0, b"x"),
        (inside, 1, b"y"),
        (inside, 2, b"z"),
        (inside + len(wrapper), None, b"old"),
        (inside + len(wrapper) + len(old), 0, b"s"),
    ]
    assert reached == 1000 + len(data)


def test_the_end_takes_whole_wrappers_and_nothing_after() -> None:
    wrapper = encode_set([b"x", b"y"], codec=SNAPPY)
    data = wrapper + encode_set([b"a", b"b"])
    assert _rows(data, upto=1) == ([(0, 0, b"x"), (0, 1, b"y")], len(wrapper))
    assert _rows(data, upto=len(wrapper)) == _rows(data, upto=1)
    assert len(_rows(data, upto=len(wrapper) + 1)[0]) == 3
    assert _rows(data, upto=0) == ([], 0)


def test_a_part_of_an_entry_at_the_end_is_for_the_next_fetch() -> None:
    first = encode_set([b"a"])
    for whole in (encode_set([b"bbbb"]), encode_set([b"b", b"c"], codec=GZIP)):
        for cut in range(1, len(whole)):
            assert _rows(first + whole[:cut]) == ([(0, None, b"a")], len(first))


def test_an_empty_wrapper_is_passed() -> None:
    empty = encode_set([b""], codec=GZIP)
    data = empty + encode_set([], codec=GZIP) + encode_set([b"a"])
    assert _rows(data) == ([(0, 0, b""), (len(empty), None, b"a")], len(data))


@given(
    st.lists(st.tuples(st.sampled_from([None, GZIP, SNAPPY]), st.lists(st.binary(max_size=40), min_size=1))),
    st.integers(1, 200),
    st.integers(0, 300),
)
def test_split_anywhere_all_come_once(sets: list[tuple[object, list[bytes]]], piece_bytes: int, middle: int) -> None:
    data = b"".join(encode_set(values, codec=codec) for codec, values in sets)  # type: ignore[arg-type]  # a codec
    expected = [value for _, values in sets for value in values]
    rows, reached = _rows(data, upto=middle, piece_bytes=piece_bytes)
    rest, end = _rows(data[reached:], at=reached, piece_bytes=piece_bytes)
    assert [value for _, _, value in rows + rest] == expected
    assert end == len(data)
    assert all(offset < middle for offset, _, _ in rows)
    assert all(offset >= min(middle, len(data)) for offset, _, _ in rest)
    keys = [(offset, index) for offset, index, _ in rows + rest]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("at", [1, 5, 12])
def test_a_start_that_is_none(at: int) -> None:
    with pytest.raises(ApiError):
        _rows(encode_set([b"hello" * 10, b"b"])[at:], at=at)


def test_classic_columns_convert_to_arrow_batches() -> None:
    data = encode_set([b"a"]) + encode_set([b"x", b"y"], codec=GZIP)
    pieces = list(classic_columns(data, CODECS, from_offset=0, upto=len(data), piece_bytes=1))
    assert len(pieces) > 1
    schema = to_arrow_schema(source_schema(include_headers=True, classic=True), timezone="UTC")
    (batch,) = arrow_batches(ClusterPartition("t", 3, 7), pieces, schema)
    nothing = {"key": None, "timestamp": None, "timestampType": None, "headers": None}
    common = {"topic": "t", "partition": 3, "broker": 7, **nothing}
    assert batch.to_pylist() == [
        {**common, "value": b"a", "offset": 0, "wrapperIndex": None},
        {**common, "value": b"x", "offset": 11, "wrapperIndex": 0},
        {**common, "value": b"y", "offset": 11, "wrapperIndex": 1},
    ]
    many = arrow_batches(ClusterPartition("t", 3, 7), pieces, schema, rows=1)
    assert [row["wrapperIndex"] for each in many for row in each.to_pylist()] == [None, 0, 1]
