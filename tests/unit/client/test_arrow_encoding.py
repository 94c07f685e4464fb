"""Arrow columns as record batches, and the partitions of their rows: as message by message."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import NOW_MS

from barnabas import Message
from barnabas.adapters.system import SeededEntropy
from barnabas.app.clients.arrow.record_columns import HEADERS_TYPE
from barnabas.app.clients.arrow.varints import undo_zigzags, varint_sizes, write_varints, zigzags
from barnabas.app.clients.producer.send_arrow import (
    Rows,
    batch_firsts,
    headers_laid_out,
    lay_out,
    murmur2_of,
    partitions_of,
)
from barnabas.core.client.cluster_view import TopicView
from barnabas.core.client.producer.hashing import murmur2
from barnabas.core.client.producer.producer_batch import PrebuiltBatch
from barnabas.core.message.batch_reader import decode_batch
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.varint import encode_varint
from barnabas.plugins.builtin.partitioners import PARTITIONER_NAMES, builtin_partitioner
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition

T0 = TopicPartition("t", 0)
contents = st.none() | st.binary(max_size=9) | st.integers(50, 9000).map(lambda size: b"x" * size)
headers = st.none() | st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=5)), max_size=3)


@given(numbers=st.lists(st.integers(-(2**61), 2**61), min_size=1, max_size=9))
def test_vectorized_varints_match_scalar_encoding(numbers: list[int]) -> None:
    raw = zigzags(np.array(numbers, dtype=np.int64))
    data, sizes = write_varints([raw])
    right = [encode_varint(number) for number in numbers]
    assert data.tobytes() == b"".join(right)
    assert sizes.tolist() == varint_sizes(raw).tolist() == [len(each) for each in right]
    assert undo_zigzags(raw).tolist() == numbers


@given(
    messages=st.lists(st.tuples(contents, contents, headers, st.integers(0, 2**61)), min_size=1, max_size=90),
    with_keys=st.booleans(),
    with_headers=st.booleans(),
    with_times=st.booleans(),
    per_batch=st.integers(1, 100),
)
def test_arrow_columns_are_decoded_as_they_were_encoded(
    messages: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]],
    with_keys: bool,
    with_headers: bool,
    with_times: bool,
    per_batch: int,
) -> None:
    values, keys, pairs, times = zip(*messages, strict=True)
    named = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in pairs]
    rows = Rows(
        pa.array([None, *values], pa.binary())[1:],  # a slice, as of a larger table
        pa.array(keys, pa.binary()) if with_keys else None,
        headers_laid_out(pa.array([None, *named], HEADERS_TYPE)[1:]) if with_headers else None,
        np.array(times, dtype=np.int64) if with_times else None,
    )
    found: list[Message] = []
    for block in lay_out(rows, range(0, len(messages), per_batch), NOW_MS):
        batch = PrebuiltBatch(
            T0,
            0,
            block.records,
            block.count,
            base_timestamp=block.base_timestamp,
            max_timestamp=block.max_timestamp,
            timestamps=block.timestamps,
        )
        observed = [batch.delivery(index).timestamp_ms for index in range(batch.count)]
        read = decode_batch(batch.encode(None), NO_CODECS)
        assert [message.timestamp_ms for message in read] == observed
        assert [message.offset for message in read] == list(range(len(read)))
        found += read
        if batch.count > 1:
            halves = batch.split()
            again = [message for half in halves for message in decode_batch(half.encode(None), NO_CODECS)]
            assert [m[:4] for m in again] == [m[:4] for m in read]
    right = [
        (value, key if with_keys else None, tuple(row or ()) if with_headers else (), time if with_times else NOW_MS)
        for value, key, row, time in messages
    ]
    assert [message[:4] for message in found] == right


@given(keys=st.lists(st.binary(max_size=40) | st.binary(min_size=250, max_size=300), min_size=1, max_size=9))
def test_vectorized_murmur2_matches_scalar_hash(keys: list[bytes]) -> None:
    assert murmur2_of(pa.array([b"another", *keys])[1:]).tolist() == [murmur2(key) for key in keys]


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=50), limit=st.integers(1, 120), most=st.integers(1, 20))
def test_batches_are_as_large_as_they_may_be(sizes: list[int], limit: int, most: int) -> None:
    firsts = batch_firsts(np.array(sizes), limit, most)
    right, held, count = [0], 0, 0
    for row, size in enumerate(sizes):
        if count and (held + size > limit or count == most):
            right.append(row)
            held = count = 0
        held, count = held + size, count + 1
    assert list(firsts) == right


def view_of(count: int) -> TopicView:
    places = tuple(TopicPartition("t", n) for n in range(count))
    return TopicView(bytes(16), (1,) * count, (0,) * count, tuple(range(count)), places)


@pytest.mark.parametrize("name", PARTITIONER_NAMES)
def test_rows_go_where_messages_would_go(name: str) -> None:
    keys = [None if n % 5 == 0 else b"" if n % 7 == 0 else b"k%d" % (n % 11) for n in range(60)]
    rows = Rows(pa.array([b"v"] * 60), pa.array(keys), None, None)
    one, other = (builtin_partitioner(name) for _ in range(2))
    assert one is not None
    assert other is not None
    one.start(SeededEntropy(7))
    other.start(SeededEntropy(7))
    view = view_of(5)
    found = partitions_of(rows, None, one, "t", view, 10**6).tolist()
    assert found == [other.partition("t", key, b"v", 5, view.available) for key in keys]


def test_rows_that_say_where_they_go() -> None:
    rows = Rows(pa.array([b"v"] * 3), pa.array([b"a", b"b", None]), None, None)
    partitioner = builtin_partitioner("murmur2")
    assert partitioner is not None
    partitioner.start(SeededEntropy(7))
    found = partitions_of(rows, pa.array([2, None, 0], pa.int32()), partitioner, "t", view_of(3), 100)
    assert found.tolist() == [2, (murmur2(b"b") & 0x7FFFFFFF) % 3, 0]
    with pytest.raises(ApiError, match="t has 3 partitions, no 3") as caught:
        partitions_of(rows, pa.array([0, 1, 3]), partitioner, "t", view_of(3), 100)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_rows_without_a_key_fill_batches() -> None:
    rows = Rows(pa.array([b"v" * 72] * 100), None, None, None)
    partitioner = builtin_partitioner("murmur2")
    assert partitioner is not None
    partitioner.start(SeededEntropy(7))
    found = partitions_of(rows, None, partitioner, "t", view_of(4), 1000).tolist()
    runs = [found[n : n + 10] for n in range(0, 100, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert len({run[0] for run in runs}) > 1
