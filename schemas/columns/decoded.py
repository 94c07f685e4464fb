"""The result of all column decoders, and columns of several schemas."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from attrs import frozen

from ..wire import HEADER_BYTES
from .span import Ints


@frozen(eq=False)
class DecodedColumn:
    """`values` has the decoder's type; rows in `errors` could not be decoded, and are null in `values`."""

    values: pa.Array
    errors: Mapping[int, str]


class ColumnDecoder(Protocol):
    """Decodes a column of bytes into a typed one; null stays null. Used by one thread at a time."""

    @property
    def type(self) -> pa.DataType: ...

    def decode(self, encoded: pa.BinaryArray) -> DecodedColumn:
        """Decode the column; errors of rows are in the result. Raises `RegistryUnreachable`."""
        ...


def regions_of(encoded: pa.BinaryArray) -> tuple[Ints, Ints, pa.Buffer]:
    """Return begin and end of each value, and their buffer."""
    _, offsets, data = encoded.buffers()
    first = encoded.offset
    found = np.frombuffer(offsets, dtype=np.int32)[first : first + len(encoded) + 1].astype(np.int64)
    return found[:-1], found[1:], data if data is not None else pa.py_buffer(b"")


def rows_by_schema(encoded: pa.BinaryArray) -> tuple[Mapping[int, Ints], dict[int, str]]:
    """Return schema id → rows written with it; and the errors of rows without an id. Nulls are in neither."""
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
    """Join parts to one column by their rows; other rows are null."""
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


def conformed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast the column to this type; missing members are null. Raises `pa.ArrowInvalid` for values that do not fit."""
    if values.type == kind:
        return values
    if pa.types.is_struct(values.type) and pa.types.is_struct(kind):
        there = {each.name: place for place, each in enumerate(values.type)}
        columns = [
            conformed(values.field(there[each.name]), each.type)
            if each.name in there
            else pa.nulls(len(values), each.type)
            for each in kind
        ]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null())
    if pa.types.is_list(values.type) and pa.types.is_list(kind):
        whole = pa.concat_arrays([values])  # without the rest of a sliced array
        items = conformed(whole.values, kind.value_type)
        return pa.ListArray.from_arrays(whole.offsets, items, type=kind, mask=whole.is_null())
    if pa.types.is_map(values.type) and pa.types.is_map(kind):
        whole = pa.concat_arrays([values])
        items = conformed(whole.items, kind.item_type)
        return pa.MapArray.from_arrays(whole.offsets, whole.keys, items, type=kind, mask=whole.is_null())
    return values.cast(kind)
