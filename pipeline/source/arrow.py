"""Records as Arrow record batches, column by column."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ..topics.model import NO_BROKER, ClusterPartition, PartitionColumns

BATCH_ROWS = 20_000
BATCH_BYTES = 8 * 1024 * 1024
_TIMESTAMPS_MS = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999. Producers may send any number; one that is no date becomes the nearest, and stops no load."""


def arrow_batches(
    place: ClusterPartition,
    pieces: Iterable[PartitionColumns],
    schema: pa.Schema,
    *,
    rows: int = BATCH_ROWS,
    size_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `rows` rows and about `size_bytes` bytes, in the order of the pieces.

    `schema` has columns of the data source: those of a classic cluster or not, with or without `headers`.
    """
    waiting: list[PartitionColumns] = []
    waiting_rows = waiting_bytes = 0
    for piece in pieces:
        for part in _split(piece, rows, size_bytes):
            count = len(part.offsets)
            if waiting and (waiting_rows + count > rows or waiting_bytes + part.size_bytes > size_bytes):
                yield _batch(place, waiting, schema)
                waiting, waiting_rows, waiting_bytes = [], 0, 0
            waiting.append(part)
            waiting_rows += count
            waiting_bytes += part.size_bytes
    if waiting:
        yield _batch(place, waiting, schema)


def _split(piece: PartitionColumns, rows: int, size_bytes: int) -> Iterator[PartitionColumns]:
    count = len(piece.offsets)
    step = min(rows, max(1, count * size_bytes // piece.size_bytes)) if piece.size_bytes > size_bytes else rows
    if count <= step:
        if count:
            yield piece
        return
    for start in range(0, count, step):
        end = min(start + step, count)
        yield PartitionColumns(
            piece.next_offset,
            piece.offsets[start:end],
            piece.timestamps_ms[start:end],
            piece.log_append_time[start:end],
            piece.keys[start:end],
            piece.values[start:end],
            piece.headers[start:end],
            piece.wrapper_indexes[start:end],
            size_bytes=piece.size_bytes * (end - start) // count,
        )


def _batch(place: ClusterPartition, pieces: list[PartitionColumns], schema: pa.Schema) -> pa.RecordBatch:
    count = sum(len(piece.offsets) for piece in pieces)
    ints = np.int32
    columns: dict[str, pa.Array] = {
        "key": _joined([_binary(piece.keys, len(piece.offsets)) for piece in pieces]),
        "value": _joined([_binary(piece.values, len(piece.offsets)) for piece in pieces]),
        "topic": pa.repeat(pa.scalar(place.topic, pa.string()), count),
        "partition": pa.array(np.full(count, place.partition, dtype=ints)),
        "offset": pa.array(np.concatenate([np.asarray(piece.offsets, dtype=np.int64) for piece in pieces])),
    }
    if place.broker == NO_BROKER:
        milliseconds = np.concatenate([np.asarray(piece.timestamps_ms, dtype=np.int64) for piece in pieces])
        columns["timestamp"] = pa.array(milliseconds.clip(*_TIMESTAMPS_MS) * 1000).cast(pa.timestamp("us", "UTC"))
        types = [np.asarray(piece.log_append_time, dtype=ints) for piece in pieces]
        columns["timestampType"] = pa.array(np.concatenate(types))
        if "headers" in schema.names:
            columns["headers"] = _joined([_headers(piece.headers, schema.field("headers").type) for piece in pieces])
    else:
        columns["broker"] = pa.array(np.full(count, place.broker, dtype=ints))
        columns["wrapperIndex"] = _joined([_indexes(piece.wrapper_indexes, len(piece.offsets)) for piece in pieces])
    arrays = [columns.get(field.name) for field in schema]
    filled = [pa.nulls(count, field.type) if a is None else a for a, field in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(filled, schema=schema)


def _binary(column: Sequence[bytes | None] | pa.Array, count: int) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return pa.array(column, pa.binary()) if column else pa.nulls(count, pa.binary())


def _indexes(column: Sequence[int | None], count: int) -> pa.Array:
    return pa.array(column, pa.int32()) if column else pa.nulls(count, pa.int32())


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _headers(column: Sequence[Sequence[tuple[str, bytes | None]]] | pa.Array, kind: pa.DataType) -> pa.Array:
    """Build the column of headers. As in Spark's Kafka source, no headers are null, not an empty array."""
    if isinstance(column, pa.Array):
        return column.cast(kind)
    return pa.array([[{"key": key, "value": value} for key, value in pairs] or None for pairs in column], kind)
