"""The positions of the fields of many records, found for all of them at once (facts B1).

One short loop walks from record to record, unless many in a row have one size; all other work is done per column.
Anything that is not plainly correct raises `OddError`, and the reader of `core.message` decides: so both readers agree
on every batch.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ....core.message.batch_header import BatchHeader
from ....core.message.varint import read_raw
from ....ports.errors import ApiError
from ....ports.values import define
from .varints import LONG_BYTES_MAX, Bytes, Flags, Numbers, OddError, read_varints, undo_zigzags

RECORD_SIZE_MIN = 7
_MORE = 0x80
"""Set in a varint's byte that is not its last."""
_ALIKE_MIN = 16
"""The fewest records of one size in a row that are found at once. With fewer, the loop walks the rest of the batch."""
HEADERS_MAX = 64
"""The most headers of a record: each costs a round over the columns."""
_SURE = 1 << 61
"""The bound below which the sum of two numbers cannot overflow."""

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The type of headers in Spark's Kafka source."""


@define(eq=False)
class RecordRun:
    """The records of one batch: data[start:end]."""

    header: BatchHeader
    start: int
    end: int


@define(eq=False)
class RecordColumns:
    """Records column by column. `headers` is None unless asked for."""

    keys: pa.Array
    values: pa.Array
    offsets: Numbers
    timestamps_ms: Numbers
    log_append_time: Flags
    headers: pa.Array | None = None


def columns_of(
    data: bytes, runs: Sequence[RecordRun], from_offset: int, upto: int | None, *, with_headers: bool
) -> RecordColumns:
    """Return the records of batches that follow each other in `data`, with offsets in [from_offset, upto).

    Raises `OddError`, also for batches that are not damaged.
    """
    if len(data) >= 1 << 31:
        raise OddError
    begins, ends = _bounds(data, runs)
    octets = np.frombuffer(data, dtype=np.uint8)
    size, at = read_varints(octets, begins)
    if (size & 1).any() or (at + (size >> 1) != ends).any():
        raise OddError
    times, at = read_varints(octets, at + 1, LONG_BYTES_MAX)
    deltas, at = read_varints(octets, at)
    key_size, key_at = read_varints(octets, at)
    key_end = key_at + _sizes(key_size)
    value_size, value_at = read_varints(octets, key_end)
    value_end = value_at + _sizes(value_size)
    if (value_end >= ends).any():  # positions only grow, so all that was read is within its record
        raise OddError
    offsets, timestamps, log_append_time = _stamps(runs, undo_zigzags(deltas), undo_zigzags(times))
    keep = None
    if offsets.size and (int(offsets.min()) < from_offset or (upto is not None and int(offsets.max()) >= upto)):
        keep = offsets >= from_offset
        if upto is not None:
            keep &= offsets < upto
    buffer = pa.py_buffer(data)
    headers = _headers(octets, buffer, value_end, ends) if with_headers else None
    if not with_headers:
        _step_over_headers(octets, value_end, ends)
    found = RecordColumns(
        slices(buffer, key_at, key_end, key_size == 1, keep),
        slices(buffer, value_at, value_end, value_size == 1, keep),
        offsets if keep is None else offsets[keep],
        timestamps if keep is None else timestamps[keep],
        log_append_time if keep is None else log_append_time[keep],
    )
    if headers is not None:
        found.headers = headers if keep is None else headers.filter(pa.array(keep))
    return found


def slices(buffer: pa.Buffer, begins: Numbers, ends: Numbers, null: Flags, keep: Flags | None = None) -> pa.Array:
    """Return the bytes between these positions, which only grow, as a binary column; of the rows to keep."""
    count = len(begins)
    if null.all():
        return pa.nulls(count if keep is None else int(keep.sum()), pa.binary())
    bounds = np.empty(2 * count, dtype=np.int32)
    bounds[::2], bounds[1::2] = begins, ends
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), buffer])
    rows = np.arange(0, 2 * count, 2, dtype=np.int32)
    if keep is not None:
        rows, null = rows[keep], null[keep]
    return with_gaps.take(pa.array(rows, mask=null if null.any() else None))


def _bounds(data: bytes, runs: Sequence[RecordRun]) -> tuple[Numbers, Numbers]:
    """Return the positions at which each record begins and ends."""
    ends: list[int] = []
    firsts, starts = [], []
    for run in runs:
        count = run.header.count
        if count * RECORD_SIZE_MIN > run.end - run.start:
            raise OddError
        firsts.append(len(ends))
        starts.append(run.start)
        ends += _find_ends(data, run.start, count)
        if ends[-1] != run.end:
            raise OddError
    behind = np.array(ends, dtype=np.int64)
    begins = np.empty_like(behind)
    begins[1:] = behind[:-1]
    begins[firsts] = starts
    return begins, behind


def _find_ends(data: bytes, position: int, count: int) -> list[int]:
    """Return the ends of `count` records from `position` on."""
    ends: list[int] = []
    try:
        while count >= _ALIKE_MIN:
            size, alike = _of_one_size(data, position, count)
            if alike < _ALIKE_MIN:
                break
            ends += range(position + size, position + size * alike + 1, size)
            position, count = ends[-1], count - alike
        return ends + _walked(data, position, count)
    except (IndexError, ApiError):
        raise OddError from None


def _of_one_size(data: bytes, position: int, count: int) -> tuple[int, int]:
    """Return (size, number) of records of one length from `position` on; (0, 0) if that takes more than 2 bytes."""
    low, high = data[position], data[position + 1]
    width = 1 if low < _MORE else 2
    if width == 2 and high >= _MORE:
        return 0, 0
    size = width + (low >> 1 if width == 1 else low >> 1 & 0x3F | high << 6)
    if data[position + size] != low:
        return size, 1
    for place in range(position, position + width):
        octets = data[place : place + size * (count - 1) + 1 : size]
        count = len(octets) - len(octets.lstrip(octets[:1]))
    return size, count


def _walked(data: bytes, position: int, count: int) -> list[int]:
    """Walk from record to record, with the lengths' varints read in place; return the ends."""
    return [
        position := position + 1 + (low >> 1)
        if (low := data[position]) < _MORE
        else position + 2 + (low >> 1 & 0x3F | high << 6)
        if (high := data[position + 1]) < _MORE
        else _far_end(data, position)
        for _ in range(count)
    ]


def _far_end(data: bytes, position: int) -> int:
    raw, behind = read_raw(data, position)
    return behind + (raw >> 1)


def _sizes(raw: Numbers) -> Numbers:
    """Return the sizes of fields with these lengths; a null takes no bytes."""
    if ((raw & 1 == 1) & (raw != 1)).any():
        raise OddError
    return raw >> 1


def _stamps(runs: Sequence[RecordRun], deltas: Numbers, times: Numbers) -> tuple[Numbers, Numbers, Flags]:
    """Return offsets, timestamps, and whether those are log-append times (then all are the batch's largest)."""
    counts = [run.header.count for run in runs]

    def spread(of_each: list[int]) -> Numbers:
        return np.repeat(np.array(of_each, dtype=np.int64), counts)

    if (deltas < 0).any() or (deltas > spread([run.header.last_offset_delta for run in runs])).any():
        raise OddError
    bases = [run.header.base_timestamp for run in runs]
    if any(abs(base) > _SURE for base in bases) or (times.size and np.abs(times).max() > _SURE):
        raise OddError
    timestamps = spread(bases) + times
    log_append_time = np.repeat(np.array([run.header.log_append_time for run in runs], dtype=np.bool_), counts)
    if log_append_time.any():
        timestamps = np.where(log_append_time, spread([run.header.max_timestamp for run in runs]), timestamps)
    return spread([run.header.base_offset for run in runs]) + deltas, timestamps, log_append_time


def _step_over_headers(octets: Bytes, at: Numbers, ends: Numbers) -> None:
    """Check ends like the reader of `core.message`: a record may end anywhere after a header count that is not 0."""
    if ((octets.take(at) == 0) & (at + 1 != ends)).any():
        raise OddError


def _headers(octets: Bytes, buffer: pa.Buffer, at: Numbers, ends: Numbers) -> pa.Array:
    """Return the headers, null where a record has none."""
    raw, at = read_varints(octets, at)
    counts = raw >> 1
    most = int(counts.max()) if counts.size else 0
    if (raw & 1).any() or most > HEADERS_MAX:
        raise OddError
    firsts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=firsts[1:])
    places = np.zeros((5, int(firsts[-1])), dtype=np.int64)  # key from and to, value from and to, the value's length
    for number in range(most):
        rows = np.flatnonzero(counts > number)
        key_size, key_at = read_varints(octets, at[rows])
        if (key_size & 1).any():
            raise OddError
        key_end = key_at + (key_size >> 1)
        value_size, value_at = read_varints(octets, key_end)
        at[rows] = value_end = value_at + _sizes(value_size)
        if (value_end > ends[rows]).any():
            raise OddError
        places[:, firsts[rows] + number] = key_at, key_end, value_at, value_end, value_size
    if (at != ends).any():
        raise OddError
    key_at, key_end, value_at, value_end, value_size = places
    names = slices(buffer, key_at, key_end, np.zeros(len(key_at), dtype=np.bool_))
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:
        raise OddError from None  # a name that is no UTF-8
    contents = slices(buffer, value_at, value_end, value_size == 1)
    pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(firsts, pa.int32()), pairs, type=HEADERS_TYPE, mask=pa.array(counts == 0))
