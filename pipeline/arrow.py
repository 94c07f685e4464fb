"""Records as Arrow record batches, column by column."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from .cluster import Columns

BATCH_ROWS = 20_000
BATCH_BYTES = 8 * 1024 * 1024
_TIMESTAMPS_MS = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999. Producers may send any number; one that is no date becomes the nearest, and stops no load."""


def arrow_batches(
    topic: str,
    partition: int,
    pieces: Iterable[Columns],
    schema: pa.Schema,
    *,
    rows: int = BATCH_ROWS,
    size_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `rows` rows and about `size_bytes` bytes, in the order of the pieces.

    `schema` has the columns of the data source, with or without `headers`.
    """
    waiting: list[Columns] = []
    waiting_rows = waiting_bytes = 0
    for piece in pieces:
        for part in _split(piece, rows, size_bytes):
            count = len(part.offsets)
            if waiting and (waiting_rows + count > rows or waiting_bytes + part.size_bytes > size_bytes):
                yield _batch(topic, partition, waiting, schema)
                waiting, waiting_rows, waiting_bytes = [], 0, 0
            waiting.append(part)
            waiting_rows += count
            waiting_bytes += part.size_bytes
    if waiting:
        yield _batch(topic, partition, waiting, schema)


def _split(piece: Columns, rows: int, size_bytes: int) -> Iterator[Columns]:
    count = len(piece.offsets)
    step = min(rows, max(1, count * size_bytes // piece.size_bytes)) if piece.size_bytes > size_bytes else rows
    if count <= step:
        if count:
            yield piece
        return
    for start in range(0, count, step):
        end = min(start + step, count)
        yield Columns(
            piece.next_offset,
            piece.offsets[start:end],
            piece.timestamps_ms[start:end],
            piece.log_append_time[start:end],
            piece.keys[start:end],
            piece.values[start:end],
            piece.headers[start:end],
            size_bytes=piece.size_bytes * (end - start) // count,
        )


def _batch(topic: str, partition: int, pieces: list[Columns], schema: pa.Schema) -> pa.RecordBatch:
    count = sum(len(piece.offsets) for piece in pieces)
    milliseconds = np.concatenate([np.asarray(piece.timestamps_ms, dtype=np.int64) for piece in pieces])
    milliseconds = milliseconds.clip(*_TIMESTAMPS_MS)
    columns: dict[str, pa.Array] = {
        "key": _joined([pa.array(piece.keys, pa.binary()) for piece in pieces]),
        "value": _joined([pa.array(piece.values, pa.binary()) for piece in pieces]),
        "topic": pa.repeat(pa.scalar(topic, pa.string()), count),
        "partition": pa.array(np.full(count, partition, dtype=np.int32)),
        "offset": pa.array(np.concatenate([np.asarray(piece.offsets, dtype=np.int64) for piece in pieces])),
        "timestamp": pa.array(milliseconds * 1000).cast(pa.timestamp("us", "UTC")),
        "timestampType": pa.array(
            np.concatenate([np.asarray(piece.log_append_time, dtype=np.int32) for piece in pieces])
        ),
    }
    if "headers" in schema.names:
        headers = [_header_rows(row) for piece in pieces for row in piece.headers]
        columns["headers"] = pa.array(headers, schema.field("headers").type)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _header_rows(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, object]] | None:
    """As in Spark's source, a record without headers has null, not an empty array."""
    return [{"key": key, "value": value} for key, value in headers] or None
