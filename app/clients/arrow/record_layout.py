"""Arrow columns as the records of batches v2 (facts B1): numpy writes the numbers, Arrow joins all."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define

from ....core.client.producer.record_accumulator import RECORD_OVERHEAD
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from .varints import Numbers, varint_sizes, write_varints, zigzags

_SURE = 1 << 61
_EMPTY = pa.scalar(b"", pa.binary())


@define(eq=False)
class Rows:
    """Messages column by column; `keys`, `headers` (encoded already) and times are None where there are none."""

    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None
    timestamps_ms: Numbers | None

    def __len__(self) -> int:
        return len(self.values)

    def chosen(self, rows: Numbers) -> "Rows":
        """Return these rows, in this order."""
        taken = pa.array(rows)
        return Rows(
            self.values.take(taken),
            None if self.keys is None else self.keys.take(taken),
            None if self.headers is None else self.headers.take(taken),
            None if self.timestamps_ms is None else self.timestamps_ms[rows],
        )

    def sizes(self) -> Numbers:
        """Return the bytes that each row takes in a batch, about, and rather too many."""
        total = lengths(self.values) + RECORD_OVERHEAD
        for column in (self.keys, self.headers):
            if column is not None:
                total += lengths(column)
        return total


@define(eq=False)
class RecordBlock:
    """The records of one batch."""

    records: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int
    timestamps: list[int | None] | None


def lay_out(rows: Rows, firsts: Iterable[int], now_ms: int) -> Iterator[RecordBlock]:
    """Yield the rows as batches that begin at the rows `firsts`; without a column of timestamps, all get `now_ms`."""
    count, begins = len(rows), np.fromiter(firsts, dtype=np.int64)
    ends = np.append(begins[1:], count)
    counts = ends - begins
    times = rows.timestamps_ms
    bases = np.full(len(begins), now_ms) if times is None else times[begins]
    deltas = np.zeros(count, dtype=np.int64) if times is None else _deltas(times, np.repeat(bases, counts))
    bounds, data = _records(rows, np.arange(count) - np.repeat(begins, counts), deltas)
    for number, (first, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        own = None if times is None else times[first:end]
        yield RecordBlock(
            data[bounds[first] : bounds[end]],
            end - first,
            int(bases[number]),
            now_ms if own is None else int(own.max()),
            None if own is None else own.tolist(),
        )


def headers_laid_out(headers: Any) -> pa.Array | None:
    """Encode a column of lists of key and value as the end of each record. Return None if there are no headers."""
    headers = headers.cast(pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])))
    pairs = headers.flatten()
    if not len(pairs):
        return None
    counts = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    names, contents = pairs.field("key"), pairs.field("value")
    if pairs.null_count or names.null_count:
        raise ApiError(ErrorCode.INVALID_RECORD, "a header has no key")
    laid = _joined([_varints([_lengths_raw(names)]), names, _varints([_lengths_raw(contents)]), contents])
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    at = np.frombuffer(laid.buffers()[1], dtype=np.int32)[laid.offset :][bounds]
    gathered = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(at.copy()), laid.buffers()[2]])
    return _joined([_varints([counts << 1]), gathered])


def lengths(column: Any) -> Numbers:
    """Return the number of bytes of each value; 0 for null."""
    found: Numbers = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _records(rows: Rows, offset_deltas: Numbers, time_deltas: Numbers) -> tuple[Numbers, memoryview]:
    """Return the positions where each record begins and where the last ends, and the bytes of all records."""
    nothing = np.zeros(len(rows), dtype=np.int64)
    values, keys, headers = rows.values, rows.keys, rows.headers
    key_raw = nothing + 1 if keys is None else _lengths_raw(keys)
    value_raw = _lengths_raw(values)
    numbers = [nothing, zigzags(time_deltas), offset_deltas << 1, key_raw]  # the first: attributes
    size = lengths(values) + varint_sizes(value_raw)
    for column in numbers:
        size += varint_sizes(column)
    size += 1 if headers is None else lengths(headers)
    if keys is None:
        parts = [_varints([size << 1, *numbers, value_raw]), values]
    else:
        size += lengths(keys)
        parts = [_varints([size << 1, *numbers]), keys, _varints([value_raw]), values]
    laid = _joined([*parts, pa.scalar(b"\0", pa.binary()) if headers is None else headers])
    bounds = np.frombuffer(laid.buffers()[1], dtype=np.int32)[laid.offset : laid.offset + len(laid) + 1]
    return bounds.astype(np.int64), memoryview(laid.buffers()[2])


def _deltas(times: Numbers, bases: Numbers) -> Numbers:
    if np.abs(times).max() > _SURE:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, f"timestamps from {times.min()} to {times.max()} ms fit no batch")
    return times - bases


def _lengths_raw(column: Any) -> Numbers:
    """Return the lengths in zig-zag form: null is -1, so 1."""
    raw = lengths(column) << 1
    if column.null_count:
        raw[pc.is_null(column).to_numpy(zero_copy_only=False)] = 1
    return raw


def _varints(columns: list[Numbers]) -> pa.Array:
    data, sizes = write_varints(columns)
    bounds = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def _joined(parts: list[Any]) -> Any:
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")
