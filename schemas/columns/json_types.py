"""The column types of JSON Schemas."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ...ports.errors import ConfigError

_DEPTH_MAX = 64
_SIMPLE: dict[str, pa.DataType] = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_TEXTS: dict[str, pa.DataType] = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}


def json_type(text: str) -> pa.DataType:
    """Return the column type of a JSON Schema; a value of several types is text. Raises `ConfigError`."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"this is not a JSON Schema: {error}") from error
    return _type(schema, schema, 0)


def _type(schema: Any, root: Any, depth: int) -> pa.DataType:
    if depth > _DEPTH_MAX:
        raise ConfigError("the JSON Schema is recursive and has no column type; read value as bytes")
    if not isinstance(schema, Mapping):
        return pa.string()
    if "$ref" in schema:
        return _type(_referred(str(schema["$ref"]), root), root, depth + 1)
    for word in ("oneOf", "anyOf"):
        if word in schema:
            real = [each for each in schema[word] if not (isinstance(each, Mapping) and each.get("type") == "null")]
            return _type(real[0], root, depth + 1) if len(real) == 1 else pa.string()
    kind = schema.get("type")
    if isinstance(kind, list):
        real = [each for each in kind if each != "null"]
        kind = real[0] if len(real) == 1 else None
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(schema, root, depth)
    if kind == "array":
        return pa.list_(pa.field("element", _type(schema.get("items", True), root, depth + 1)))
    if kind == "string":
        return _TEXTS.get(str(schema.get("format")), pa.string())
    return _SIMPLE.get(str(kind), pa.string())


def _object(schema: Mapping[str, Any], root: Any, depth: int) -> pa.DataType:
    properties = schema.get("properties")
    if properties:
        return pa.struct([pa.field(name, _type(each, root, depth + 1)) for name, each in properties.items()])
    return pa.map_(pa.string(), pa.field("value", _type(schema.get("additionalProperties", True), root, depth + 1)))


def _referred(pointer: str, root: Any) -> Any:
    if not pointer.startswith("#"):
        raise ConfigError(f"the JSON Schema refers to {pointer!r} outside of it; give value.schema")
    found = root
    for part in pointer.lstrip("#/").split("/"):
        if part:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    if found is None:
        raise ConfigError(f"the JSON Schema refers to {pointer!r}, which is not in it")
    return found
