"""The column types of Avro schemas: those of Spark's own Avro source.

Enums, uuids: string. fixed: binary. Times of the day: the number. A union with null: the other type, nullable; int with
long, float with double: the wider one; other unions: a struct member0, member1, ... of which one is set.
"""

import datetime
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from attrs import field, frozen

from ...ports.errors import ConfigError

DECIMAL_DIGITS_MAX = 38
PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIME = pa.timestamp("us", "UTC")
_LOCAL_TIME = pa.timestamp("us")
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _TIME,
    ("long", "timestamp-micros"): _TIME,
    ("long", "timestamp-nanos"): _TIME,
    ("long", "local-timestamp-millis"): _LOCAL_TIME,
    ("long", "local-timestamp-micros"): _LOCAL_TIME,
    ("long", "local-timestamp-nanos"): _LOCAL_TIME,
    ("string", "uuid"): pa.string(),
    ("fixed", "uuid"): pa.string(),
}
_WIDER = ({"int", "long"}, "long"), ({"float", "double"}, "double")
_NO_DEFAULT = object()


@frozen(eq=False, kw_only=True)
class FieldShape:
    """A field of a reader's record."""

    name: str
    shape: "AvroShape"
    names: frozenset[str]
    """Name and aliases: the possible names in a writer's schema."""
    default: Any = _NO_DEFAULT

    @property
    def has_default(self) -> bool:
        return self.default is not _NO_DEFAULT


@frozen(eq=False, kw_only=True)
class AvroShape:
    """A schema, and its column's type. `kind` is Avro's name of the type; `logical` is "" without a known one."""

    kind: str
    type: pa.DataType
    logical: str = ""
    schema: Any = None
    name: str = ""
    """Name of a named type, without its namespace."""
    aliases: frozenset[str] = frozenset()
    fields: tuple[FieldShape, ...] = ()
    items: "AvroShape | None" = None
    """The items of an array; the values of a map."""
    symbols: tuple[str, ...] = ()
    size: int = 0
    branches: tuple["AvroShape", ...] = ()
    members: bool = False
    """True for a union whose column is a struct of members."""
    plain: Callable[[Any], Any] = field(repr=False)
    """Converts a value of fastavro to one for Arrow."""

    @property
    def nullable(self) -> bool:
        return self.kind == "null" or any(branch.kind == "null" for branch in self.branches)


def shape_of(schema: Any, names: Mapping[str, Any]) -> AvroShape:
    """Return the shape of a parsed schema with its named types. Raises `ConfigError` for a recursive one."""
    return _Shapes(names).of(schema)


class _Shapes:
    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._within: list[str] = []

    def of(self, schema: Any) -> AvroShape:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return _primitive(schema, {})
            schema = self._names[schema]
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            items = self.of(schema["items"])
            listed = pa.list_(pa.field("element", items.type))
            return AvroShape(kind=kind, type=listed, items=items, plain=partial(_plain_list, items))
        if kind == "map":
            items = self.of(schema["values"])
            mapped = pa.map_(pa.string(), pa.field("value", items.type))
            return AvroShape(kind=kind, type=mapped, items=items, plain=partial(_plain_map, items))
        if kind == "enum":
            symbols = tuple(schema["symbols"])
            named = {**_named(schema), "symbols": symbols}
            return AvroShape(kind=kind, type=pa.string(), schema=schema, plain=_same, **named)
        if kind == "fixed":
            return _primitive(kind, schema)
        if kind in PRIMITIVES:
            return _primitive(kind, schema)
        return self.of(kind)  # {"type": "the name of a type"}

    def _record(self, schema: Any) -> AvroShape:
        name = schema["name"]
        if name in self._within:
            raise ConfigError(f"the Avro record {name} is recursive and has no column type; read value as bytes")
        self._within.append(name)
        fields = []
        for each in schema["fields"]:
            shape = self.of(each["type"])
            called = frozenset({each["name"], *each.get("aliases", ())})
            default = shape_default(shape, each["default"]) if "default" in each else _NO_DEFAULT
            fields.append(FieldShape(name=each["name"], shape=shape, names=called, default=default))
        self._within.pop()
        columns = pa.struct([pa.field(each.name, each.shape.type) for each in fields])
        plain = partial(_plain_record, tuple(fields))
        return AvroShape(
            kind="record", type=columns, schema=schema, fields=tuple(fields), plain=plain, **_named(schema)
        )

    def _union(self, schema: list[Any]) -> AvroShape:
        branches = tuple(self.of(each) for each in schema)
        real = [branch for branch in branches if branch.kind != "null"]
        if len(real) <= 1:
            one = real[0] if real else branches[0]
            return AvroShape(kind="union", type=one.type, branches=branches, plain=partial(_plain_nullable, one))
        for kinds, wider in _WIDER:
            if {branch.kind for branch in real} <= kinds and not any(branch.logical for branch in real):
                return AvroShape(kind="union", type=PRIMITIVES[wider], branches=branches, plain=_same)
        struct = pa.struct([pa.field(f"member{i}", branch.type) for i, branch in enumerate(real)])
        plain = partial(_plain_member, tuple(zip(real, (b for b in schema if b != "null"), strict=True)), self._names)
        return AvroShape(kind="union", type=struct, branches=branches, members=True, plain=plain)


def _primitive(kind: str, schema: Mapping[str, Any]) -> AvroShape:
    logical = str(schema.get("logicalType", ""))
    size = int(schema.get("size", 0))
    base = pa.binary() if kind == "fixed" else PRIMITIVES[kind]
    named = _named(schema) if kind == "fixed" else {}
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > DECIMAL_DIGITS_MAX:
            raise ConfigError(
                f"a decimal of {precision} digits has no column type; the maximum is {DECIMAL_DIGITS_MAX}"
            )
        decimal = pa.decimal128(precision, scale)
        return AvroShape(kind=kind, type=decimal, logical=logical, size=size, plain=_same, schema=schema, **named)
    known = _LOGICAL.get((kind, logical))
    if known is None or (kind == "fixed" and size != 16):
        plain = partial(_plain_time, 1000 if logical == "time-millis" else 1) if logical.startswith("time-") else _same
        return AvroShape(kind=kind, type=base, size=size, plain=plain, schema=schema, **named)
    return AvroShape(kind=kind, type=known, logical=logical, size=size, plain=_plain_uuid, schema=schema, **named)


def _named(schema: Mapping[str, Any]) -> dict[str, Any]:
    own = str(schema["name"]).rpartition(".")[2]
    return {"name": own, "aliases": frozenset(str(each).rpartition(".")[2] for each in schema.get("aliases", ()))}


def shape_default(shape: AvroShape, default: Any) -> Any:
    """Convert a field's default from JSON to Arrow; null without a default."""
    if shape.kind == "union":
        real = [branch for branch in shape.branches if branch.kind != "null"]
        if default is None or not real:
            return None
        value = shape_default(shape.branches[0] if shape.branches[0].kind != "null" else real[0], default)
        return {"member0": value} if shape.members else value
    if default is None:
        return None
    if shape.kind == "record":
        given = {**{each.name: each.default for each in shape.fields if each.has_default}}
        for each in shape.fields:
            if each.name in default:
                given[each.name] = shape_default(each.shape, default[each.name])
        return given
    if shape.items is not None:
        items = shape.items
        if shape.kind == "array":
            return [shape_default(items, each) for each in default]
        return [(key, shape_default(items, each)) for key, each in default.items()]
    return _leaf_default(shape, default)


def _leaf_default(shape: AvroShape, default: Any) -> Any:
    if shape.kind in ("bytes", "fixed"):
        data = str(default).encode("latin-1")
        if shape.logical == "decimal":
            import decimal

            return decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-shape.type.scale)
        return str(uuid.UUID(bytes=data)) if shape.logical else data
    if pa.types.is_timestamp(shape.type):
        per_second = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}[shape.logical.rpartition("-")[2]]
        return pa.scalar(default * 10**6 // per_second, pa.int64()).cast(shape.type).as_py()
    if shape.logical == "date":
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=default)
    return default


def _same(value: Any) -> Any:
    return value


def _plain_uuid(value: Any) -> Any:
    return str(value) if isinstance(value, uuid.UUID) else value


def _plain_time(unit_us: int, value: Any) -> Any:
    if not isinstance(value, datetime.time):
        return value
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) // unit_us


def _plain_list(items: AvroShape, value: Any) -> Any:
    return None if value is None else [items.plain(each) for each in value]


def _plain_map(items: AvroShape, value: Any) -> Any:
    return None if value is None else [(key, items.plain(each)) for key, each in value.items()]


def _plain_record(fields: tuple[FieldShape, ...], value: Any) -> Any:
    return None if value is None else {each.name: each.shape.plain(value[each.name]) for each in fields}


def _plain_nullable(one: AvroShape, value: Any) -> Any:
    return None if value is None else one.plain(value)


def _plain_member(members: tuple[tuple[AvroShape, Any], ...], names: Mapping[str, Any], value: Any) -> Any:
    from fastavro import parse_schema
    from fastavro.validation import validate

    if value is None:
        return None
    for index, (shape, schema) in enumerate(members):
        parsed = parse_schema(schema, named_schemas=dict(names), _force=True) if isinstance(schema, str) else schema
        if validate(value, parsed, raise_errors=False):
            return {f"member{index}": shape.plain(value)}
    raise ValueError(f"{value!r} is of no type of its union")
