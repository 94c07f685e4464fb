"""What every decoder of columns gives, and the rows of several schemas in one column."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from attrs import frozen

from ..wire import HEADER_BYTES
from .span import Ints


@frozen(eq=False)
class DecodedColumn:
    """`values` has the decoder's type; `errors` says of rows that do not decode why: they are null in `values`."""

    values: pa.Array
    errors: Mapping[int, str]


class ColumnDecoder(Protocol):
    """Makes a typed column of one of bytes; null stays null. Used by one thread at a time."""

    @property
    def type(self) -> pa.DataType: ...

    def decode(self, encoded: pa.BinaryArray) -> DecodedColumn:
        """Raises `RegistryUnreachable`; what is wrong with a row is in `errors`."""
        ...


def regions_of(encoded: pa.BinaryArray) -> tuple[Ints, Ints, pa.Buffer]:
    """Begin and end of each value, and the buffer they stand in."""
    _, offsets, data = encoded.buffers()
    first = encoded.offset
    found = np.frombuffer(offsets, dtype=np.int32)[first : first + len(encoded) + 1].astype(np.int64)
    return found[:-1], found[1:], data if data is not None else pa.py_buffer(b"")


def rows_by_schema(encoded: pa.BinaryArray) -> tuple[Mapping[int, Ints], dict[int, str]]:
    """Schema id → rows written with it; and the rows that have none, with the reason. Nulls are in neither."""
    begin, end, buffer = regions_of(encoded)
    there = np.asarray(encoded.is_valid())
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer.size else np.zeros(1, dtype=np.uint8)
    framed = there & (end - begin >= HEADER_BYTES) & (data.take(begin, mode="clip") == 0)
    errors = {}
    for row in np.flatnonzero(there & ~framed).tolist():
        begins = bytes(data[begin[row] : min(end[row], begin[row] + HEADER_BYTES)]).hex() or "nothing"
        errors[row] = f"no schema's id: expected 00 and four bytes of an id, got {begins}"
    rows = np.flatnonzero(framed)
    bytes_of_id = data.take(begin[rows][:, None] + np.arange(1, HEADER_BYTES), mode="clip")
    ids = np.ascontiguousarray(bytes_of_id).view(">u4").reshape(-1)
    return {int(each): rows[ids == each] for each in np.unique(ids)}, errors


def put_together(parts: Sequence[tuple[Ints, pa.Array]], count: int, kind: pa.DataType) -> pa.Array:
    """One column of parts and the rows they are of; rows of no part are null."""
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]
    if not parts:
        return pa.nulls(count, kind)
    order = np.zeros(count, dtype=np.int64)
    missing = np.ones(count, dtype=np.bool_)
    filled = 0
    for rows, values in parts:
        order[rows] = np.arange(filled, filled + len(values))
        missing[rows] = False
        filled += len(values)
    return pa.concat_arrays([values for _, values in parts]).take(pa.array(order, mask=missing))
