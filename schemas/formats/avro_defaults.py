"""Whether a default value in JSON is one of its field's type."""

from typing import Any

from .avro_types import AvroType

_WHOLE = {"int": 2**31, "long": 2**63}


def is_value(schema: AvroType, value: Any) -> bool:
    """True if the JSON value stands for a value of the type, as the specification maps them; of a union: any branch."""
    kind = schema.kind
    if kind == "union":
        return any(is_value(branch, value) for branch in schema.branches)
    if kind in _WHOLE:
        return type(value) is int and -_WHOLE[kind] <= value < _WHOLE[kind]
    if kind in ("float", "double"):
        return type(value) in (int, float)
    if kind in ("bytes", "fixed"):  # characters up to 255 stand for bytes
        fits = isinstance(value, str) and all(ord(each) < 256 for each in value)
        return fits and (kind == "bytes" or len(value) == schema.size)
    if kind in ("record", "error"):
        return isinstance(value, dict) and all(
            is_value(each.type, value[each.name]) if each.name in value else each.has_default for each in schema.fields
        )
    if schema.inner is not None:
        inner = schema.inner
        if kind == "array":
            return isinstance(value, list) and all(is_value(inner, each) for each in value)
        return isinstance(value, dict) and all(is_value(inner, each) for each in value.values())
    if kind == "enum":
        return isinstance(value, str) and value in schema.symbols
    return value is None if kind == "null" else isinstance(value, bool if kind == "boolean" else str)
