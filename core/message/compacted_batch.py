"""Batches after compaction: the retained records keep their offsets, the batch keeps its producer fields."""

from collections.abc import Sequence
from itertools import compress

from .batch_header import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from .batch_writer import LONG_MIN, assemble_batch
from .codec import Codec
from .record_scan import ScannedRecords
from .varint import encode_varint, read_raw, undo_zigzag


def retain_records(
    header: BatchHeader,
    data: bytes,
    start: int,
    records: ScannedRecords,
    keep: Sequence[int],
    *,
    codec: Codec | None,
    horizon_ms: int | None = None,
) -> bytearray:
    """Return the batch with the retained records, of which there is at least one.

    keep:        1 for each retained record, else 0.
    data, start: the decompressed records and their start position; `records` is the result of `scan_records`.
    codec:       the codec of the batch.
    horizon_ms:  the delete horizon of its tombstones, stored as base timestamp (KIP-534).
    """
    base, attributes = header.base_timestamp, header.attributes & ~CODEC_MASK
    bounds = zip([start, *records.ends], records.ends, strict=False)
    times = [undo_zigzag(raw) for raw in compress(records.timestamp_deltas, keep)]
    if horizon_ms is not None and base + min(times) - horizon_ms >= LONG_MIN:
        moved = [base + time - horizon_ms for time in times]
        pieces = [
            _with_timestamp_delta(data, *bound, to) for bound, to in zip(compress(bounds, keep), moved, strict=True)
        ]
        base, attributes, times = horizon_ms, attributes | DELETE_HORIZON_BIT, moved
    else:
        pieces = [data[begin:end] for begin, end in compress(bounds, keep)]
    return assemble_batch(
        b"".join(pieces),
        count=len(pieces),
        codec=codec,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        attributes=attributes,
        base_timestamp=base,
        max_timestamp=header.max_timestamp if header.log_append_time else base + max(times),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
    )


def _with_timestamp_delta(data: bytes, start: int, end: int, delta: int) -> bytes:
    """Return the record with another timestamp delta."""
    _, position = read_raw(data, start)
    rest = position + 1
    while data[rest] > 0x7F:
        rest += 1
    body = b"%b%b%b" % (data[position : position + 1], encode_varint(delta), data[rest + 1 : end])
    return encode_varint(len(body)) + body


def make_empty_batch(header: BatchHeader) -> bytearray:
    """Return the batch without records: with its offsets, max timestamp and producer fields."""
    return assemble_batch(
        b"",
        count=0,
        codec=None,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        attributes=header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
        base_timestamp=header.max_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
    )
