"""Avro schemas and JSON Schemas of Arrow columns to write, and the conversion of their values."""

import base64
import datetime
import decimal
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from ...ports.errors import ConfigError

_AVRO: dict[pa.DataType, Any] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}
_JSON: dict[pa.DataType, dict[str, Any]] = {
    pa.bool_(): {"type": "boolean"},
    pa.int8(): {"type": "integer"},
    pa.int16(): {"type": "integer"},
    pa.int32(): {"type": "integer"},
    pa.int64(): {"type": "integer"},
    pa.float32(): {"type": "number"},
    pa.float64(): {"type": "number"},
    pa.string(): {"type": "string"},
    pa.binary(): {"type": "string", "contentEncoding": "base64"},
    pa.date32(): {"type": "string", "format": "date"},
    pa.timestamp("us", "UTC"): {"type": "string", "format": "date-time"},
    pa.timestamp("us"): {"type": "string"},
}
Plain = Callable[[Any], Any]


def written_avro(kind: pa.DataType, name: str) -> Any:
    """Return the Avro schema of a column; records are named by `name` and their fields. Raises `ConfigError`."""
    if pa.types.is_struct(kind):
        own = re.sub(r"\W", "_", name, flags=re.ASCII)
        own = own if re.match(r"[A-Za-z_]", own) else f"_{own}"
        fields = []
        for each in kind:
            inner = written_avro(each.type, f"{own}_{each.name}")
            optional = {"type": ["null", inner], "default": None} if each.type != pa.null() else {"type": "null"}
            fields.append({"name": each.name, **(optional if each.nullable else {"type": inner})})
        return {"type": "record", "name": own, "fields": fields}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _or_null(kind.value_field, name)}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": _or_null(kind.item_field, name)}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind not in _AVRO:
        raise ConfigError(f"{name}: {kind} has no Avro type; cast it")
    return _AVRO[kind]


def _or_null(each: pa.Field, name: str) -> Any:
    inner = written_avro(each.type, name)
    return ["null", inner] if each.nullable and inner != "null" else inner


def written_json(kind: pa.DataType, name: str) -> dict[str, Any]:
    """Return the JSON Schema of a column. Raises `ConfigError`."""
    found = _json(kind, name)
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **found}


def _json(kind: pa.DataType, name: str) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        properties = {each.name: _json_or_null(each, f"{name}.{each.name}") for each in kind}
        return {"type": "object", "properties": properties}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _json_or_null(kind.value_field, name)}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "object", "additionalProperties": _json_or_null(kind.item_field, name)}
    if pa.types.is_decimal(kind):
        return {"type": "string"}
    if kind not in _JSON:
        raise ConfigError(f"{name}: {kind} has no JSON type; cast it")
    return _JSON[kind]


def _json_or_null(each: pa.Field, name: str) -> dict[str, Any]:
    inner = _json(each.type, name)
    return {"oneOf": [{"type": "null"}, inner]} if each.nullable else inner


def plain_values(kind: pa.DataType, *, for_json: bool) -> Plain:
    """Return the conversion from Arrow's `as_py` to the encoders: maps are dicts, and JSON has texts for times."""
    if pa.types.is_struct(kind):
        inner = {each.name: plain_values(each.type, for_json=for_json) for each in kind}
        return _same if all(each is _same for each in inner.values()) else partial(_struct, inner)
    if pa.types.is_list(kind):
        item = plain_values(kind.value_type, for_json=for_json)
        return _same if item is _same else partial(_items, item)
    if pa.types.is_map(kind):
        return partial(_pairs, plain_values(kind.item_type, for_json=for_json))
    textual = pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or pa.types.is_binary(kind)
    return _text if for_json and textual else _same


def _same(value: Any) -> Any:
    return value


def _struct(inner: dict[str, Plain], value: Any) -> Any:
    return None if value is None else {name: plain(value[name]) for name, plain in inner.items()}


def _items(inner: Plain, value: Any) -> Any:
    return None if value is None else [inner(each) for each in value]


def _pairs(inner: Plain, value: Any) -> Any:
    return None if value is None else {key: inner(each) for key, each in value}


def _text(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
