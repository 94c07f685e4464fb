"""Columns as a wider type has them."""

import pyarrow as pa


def conformed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in this type; what it has no values of is null. Raises `pa.ArrowInvalid` for what does not fit."""
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
        whole = pa.concat_arrays([values])  # of a slice, its own rows only
        items = conformed(whole.values, kind.value_type)
        return pa.ListArray.from_arrays(whole.offsets, items, type=kind, mask=whole.is_null())
    if pa.types.is_map(values.type) and pa.types.is_map(kind):
        whole = pa.concat_arrays([values])
        items = conformed(whole.items, kind.item_type)
        return pa.MapArray.from_arrays(whole.offsets, whole.keys, items, type=kind, mask=whole.is_null())
    return values.cast(kind)
