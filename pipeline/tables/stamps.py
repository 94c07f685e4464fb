"""The audit's stamps in the rows of a table, column by column."""

from typing import TYPE_CHECKING, Any

from ...audit.counting import MessageCounts
from ...audit.stamp import HEADER, SEQUENCE_SIZE

if TYPE_CHECKING:
    import pyarrow as pa


def count_rows(rows: "pa.Table", topic: str, counts: MessageCounts, now_ms: int) -> None:
    """Count rows by their columns `headers` (lists of key and value) and `timestamp`; without one none is stamped."""
    import numpy as np

    stamped = np.zeros(rows.num_rows, dtype=bool)
    if "headers" in rows.column_names:
        for start, column in _chunks(rows["headers"]):
            found, heads, numbers = _stamps(column)
            stamped[start + found] = True
            _count_runs(heads, numbers, topic, counts, now_ms)
    times = rows["timestamp"].cast("int64").to_numpy(zero_copy_only=False)[~stamped]
    unit_ms = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}[rows.schema.field("timestamp").type.unit]
    windows, many = np.unique(np.nan_to_num(times // (unit_ms * counts.width_ms)), return_counts=True)
    for window, count in zip(windows, many, strict=True):
        counts.add_unstamped(topic, int(window) * counts.width_ms, int(count))


def _chunks(column: "pa.ChunkedArray") -> "list[tuple[int, pa.ListArray]]":
    start, found = 0, []
    for chunk in column.chunks:
        found.append((start, chunk))
        start += len(chunk)
    return found


def _stamps(headers: "pa.ListArray") -> tuple[Any, "pa.DictionaryArray", Any]:
    """The numbers of the rows that have a stamp; its head, and its sequence."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    flat, rows = headers.flatten(), pc.list_parent_indices(headers)
    keys, values = flat.field(0), flat.field(1)
    long_enough = pc.greater(pc.binary_length(values), SEQUENCE_SIZE)
    chosen = pc.fill_null(pc.and_(pc.equal(keys, HEADER), long_enough), False)
    rows, values = rows.filter(chosen).to_numpy(zero_copy_only=False), values.filter(chosen)
    rows, first = np.unique(rows, return_index=True)  # one stamp a message
    values = values.take(pa.array(first)).cast(pa.large_binary())
    heads = pc.binary_slice(values, 0, -SEQUENCE_SIZE).dictionary_encode()
    ends = pa.concat_arrays([pc.binary_slice(values, -SEQUENCE_SIZE, None)])
    return rows, heads, np.frombuffer(b"".join(ends.to_pylist()), dtype=">u8").astype("uint64")


def _count_runs(heads: "pa.DictionaryArray", numbers: Any, topic: str, counts: MessageCounts, now_ms: int) -> None:
    """Runs of consecutive numbers of one head."""
    import numpy as np

    if not len(numbers):
        return
    which = heads.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((numbers, which))
    which, numbers = which[order], numbers[order]
    breaks = np.flatnonzero((np.diff(which) != 0) | (np.diff(numbers) != 1)) + 1
    starts, stops = np.concatenate(([0], breaks)), np.concatenate((breaks, [len(numbers)])) - 1
    names = heads.dictionary.to_pylist()
    for start, stop in zip(starts, stops, strict=True):
        counts.add_run(topic, names[which[start]], int(numbers[start]), int(numbers[stop]), now_ms)
