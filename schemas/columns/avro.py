"""Decodes a column of Avro values into a typed column."""

import datetime
import io
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from ...ports.errors import ConfigError
from ..client import RegistryClient, RegistryRefused
from ..loaded_avro import LoadedAvro, registered_avro
from ..wire import HEADER_BYTES
from .decoded import DecodedColumn, put_together, regions_of, rows_by_schema
from .span import Ints, Span

_ODD = "the bytes are not of that schema: out of range, or some are left over"


# Readers of Avro columns: values of a writer's schema, as a reader's schema needs them, for many rows at once.
#
# The rules of schema resolution (Avro 1.12, "Schema Resolution") are applied when the nodes are made; then a node
# reads its part of every row. A row that a node cannot read becomes odd, and the caller decodes it alone.

_ITEMS_MAX = 1000
"""Arrays and maps are read one item of all rows at a time; a row with more items is decoded alone."""
_WIDENS: dict[str, set[str]] = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_PER_SECOND = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_MICROSECONDS_MAX = 2**63 - 1


class DoesNotFit(ConfigError):
    """The reader's schema cannot read the writer's; the text has the place."""


class AvroNode(ABC):
    """Reads one part of each row of a span, and advances the span."""

    type: pa.DataType

    @abstractmethod
    def read(self, span: Span) -> pa.Array:
        """Return a column of the length of the span; values of odd rows are arbitrary."""


# The column types of Avro schemas: those of Spark's own Avro source.
#
# Enums, uuids: string. fixed: binary. Times of the day: the number. A union with null: the other type, nullable; int
# with long, float with double: the wider one; other unions: a struct member0, member1, ... of which one is set.

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


def node_of(writer: AvroShape, reader: AvroShape, where: str = "value") -> AvroNode:
    """Return the node for a writer's and a reader's shape. Raises `DoesNotFit`."""
    if writer.kind == "union":
        return UnionNode(writer, reader, where)
    if reader.kind == "union":
        return _into_union(writer, reader, where)
    if writer.kind == reader.kind == "record":
        return RecordNode(writer, reader, where)
    if writer.kind == reader.kind and writer.items is not None and reader.items is not None:
        inner = node_of(writer.items, reader.items, f"{where}[]")
        return ItemsNode(inner, reader.type, keyed=writer.kind == "map")
    if writer.kind == reader.kind == "enum":
        return EnumNode(writer, reader)
    if not _matches(writer, reader):
        raise DoesNotFit(f"{where}: written as {_describe(writer)}, to be read as {_describe(reader)}")
    return LeafNode(writer, reader, where)


def _describe(shape: AvroShape) -> str:
    return f"{shape.kind} {shape.name}".strip() + (f" ({shape.logical})" if shape.logical else "")


def _matches(writer: AvroShape, reader: AvroShape) -> bool:
    if writer.kind != reader.kind:
        return reader.kind in _WIDENS.get(writer.kind, ())
    if writer.kind == "fixed":
        return writer.size == reader.size
    return True


def _same_name(writer: AvroShape, reader: AvroShape) -> bool:
    return writer.name == reader.name or writer.name in reader.aliases


def _into_union(writer: AvroShape, reader: AvroShape, where: str) -> AvroNode:
    """Select the first branch of the same type, else the first that is wide enough."""
    exact = [b for b in reader.branches if b.kind == writer.kind and _matches(writer, b) and _same_name(writer, b)]
    alike = [branch for branch in reader.branches if branch.kind == writer.kind and branch.kind == "record"]
    chosen = [*exact, *alike, *(branch for branch in reader.branches if _matches(writer, branch))]
    if not chosen:
        kinds = ", ".join(_describe(branch) for branch in reader.branches)
        raise DoesNotFit(f"{where}: written as {_describe(writer)}, to be read as one of {kinds}")
    if writer.kind == "null":
        return NullNode(reader.type)
    node = node_of(writer, chosen[0], where)
    if reader.members:
        real = [branch for branch in reader.branches if branch.kind != "null"]
        return MemberNode(node, real.index(chosen[0]), reader.type)
    return node if node.type == reader.type else WiderNode(node, reader.type)


class NullNode(AvroNode):
    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind

    def read(self, span: Span) -> pa.Array:
        return pa.nulls(len(span), self.type)


class WiderNode(AvroNode):
    def __init__(self, inner: AvroNode, kind: pa.DataType) -> None:
        self.inner, self.type = inner, kind

    def read(self, span: Span) -> pa.Array:
        return self.inner.read(span).cast(self.type, safe=False)


class MemberNode(AvroNode):
    """Reads a member of a union's struct."""

    def __init__(self, inner: AvroNode, index: int, kind: pa.DataType) -> None:
        self.inner, self.index, self.type = inner, index, kind

    def read(self, span: Span) -> pa.Array:
        found = self.inner.read(span)
        columns = [found if i == self.index else pa.nulls(len(span), each.type) for i, each in enumerate(self.type)]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


class RecordNode(AvroNode):
    """Reads fields in the writer's order; unwanted ones are dropped, missing ones get their defaults."""

    def __init__(self, writer: AvroShape, reader: AvroShape, where: str) -> None:
        self.type = reader.type
        self.steps: list[tuple[int, AvroNode]] = []
        places = {name: i for i, each in reversed(list(enumerate(reader.fields))) for name in each.names}
        places |= {each.name: i for i, each in enumerate(reader.fields)}
        seen: set[int] = set()
        for each in writer.fields:
            place = places.get(each.name, -1)
            wanted = reader.fields[place].shape if place >= 0 and place not in seen else each.shape
            self.steps.append((place if place not in seen else -1, node_of(each.shape, wanted, f"{where}.{each.name}")))
            seen.add(place)
        self.defaults = {i: _default(f, where) for i, f in enumerate(reader.fields) if i not in seen}

    def read(self, span: Span) -> pa.Array:
        columns: list[Any] = [None] * len(self.type)
        for place, node in self.steps:
            found = node.read(span)
            if place >= 0:
                columns[place] = found
        for place, default in self.defaults.items():
            columns[place] = default.take(pa.array(np.zeros(len(span), dtype=np.int64)))
        if not columns:
            return pa.array([{}] * len(span), self.type)
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


def _default(each: FieldShape, where: str) -> pa.Array:
    if not each.has_default:
        raise DoesNotFit(
            f"{where}.{each.name}: missing in the writer's schema, and without a default in the reader's; give it one"
        )
    return pa.array([each.default], each.shape.type)


class EnumNode(AvroNode):
    def __init__(self, writer: AvroShape, reader: AvroShape) -> None:
        self.type = reader.type
        default = (reader.schema or {}).get("default")
        known = set(reader.symbols)
        self.symbols = pa.array([s if s in known else default for s in writer.symbols], pa.string())

    def read(self, span: Span) -> pa.Array:
        index = span.longs()
        span.refuse((index < 0) | (index >= len(self.symbols)))
        found = self.symbols.take(pa.array(np.where(span.odd, 0, index)))
        if found.null_count:  # a symbol that the reader does not know, without a default
            span.refuse(np.asarray(found.is_null()))
        return found


class LeafNode(AvroNode):
    """Reads a primitive, then converts it to the logical type and the reader's type."""

    def __init__(self, writer: AvroShape, reader: AvroShape, where: str) -> None:
        self.type = reader.type
        self.size = writer.size if writer.kind == "fixed" else None
        shown = writer if writer.logical and reader.logical else reader
        self.logical = shown.logical if writer.kind == shown.kind else ""
        self.shown = shown.type if self.logical else PRIMITIVES.get(writer.kind, pa.binary())
        self._raw = _RAW[writer.kind]
        if self.shown != self.type and not _castable(self.shown, self.type):
            raise DoesNotFit(f"{where}: written as {_describe(writer)}, to be read as {_describe(reader)}")

    def read(self, span: Span) -> pa.Array:
        found = self._shown(span)
        if self.shown == self.type:
            return found
        try:
            return found.cast(self.type)
        except pa.ArrowInvalid:
            return _cast_each(found, self.type, span)

    def _shown(self, span: Span) -> pa.Array:
        if self.logical == "decimal":
            unscaled = span.unscaled(self.size)
            return _decimals(unscaled, self.shown, span)
        if self.logical in ("", "uuid"):
            found = self._raw(span, self.size)
            if self.logical and pa.types.is_binary(found.type):
                return _uuids(found)
            return found
        if self.logical == "date":
            return pa.array(span.ints()).cast(pa.date32())
        per_second = _PER_SECOND[self.logical.rpartition("-")[2]]
        numbers = span.longs()
        if per_second == 10**3:
            span.refuse(np.abs(numbers) > _MICROSECONDS_MAX // 1000)
            numbers = numbers * 1000
        elif per_second == 10**9:
            numbers = numbers // 1000
        return pa.array(numbers).cast(self.shown)


_RAW: Mapping[str, Callable[[Span, int | None], pa.Array]] = {
    "null": lambda span, _: pa.nulls(len(span)),
    "boolean": lambda span, _: pa.array(span.booleans()),
    "int": lambda span, _: pa.array(span.ints()),
    "long": lambda span, _: pa.array(span.longs()),
    "float": lambda span, _: pa.array(span.floats()),
    "double": lambda span, _: pa.array(span.doubles()),
    "string": lambda span, _: span.strings(),
    "bytes": lambda span, size: span.binary(size),
    "fixed": lambda span, size: span.binary(size),
}


def _castable(one: pa.DataType, other: pa.DataType) -> bool:
    try:
        pa.nulls(0, one).cast(other)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def _cast_each(column: pa.Array, kind: pa.DataType, span: Span) -> pa.Array:
    """Cast row by row if the whole cast fails; failing rows become odd."""
    found: list[Any] = []
    wrong = np.zeros(len(column), dtype=np.bool_)
    for index, value in enumerate(column):
        try:
            found.append(value.cast(kind))
        except pa.ArrowInvalid:
            found.append(pa.scalar(None, kind))
            wrong[index] = True
    span.refuse(wrong)
    return pa.array(found, kind)


def _decimals(unscaled: Any, kind: pa.DataType, span: Span) -> pa.Array:
    """Convert to decimals; rows with too many digits become odd."""
    widest = pa.decimal128(38, kind.scale)
    found = pa.Array.from_buffers(widest, len(span), [None, pa.py_buffer(unscaled)])
    if kind == widest:
        return found
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        return _cast_each(found, kind, span)


def _uuids(found: pa.BinaryArray) -> pa.Array:
    """Format bytes as text with dashes."""
    texts = [None if v is None else v.hex() for v in found.to_pylist()]
    dashed = [t and f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts]
    return pa.array(dashed, pa.string())


class UnionNode(AvroNode):
    """Reads the branch of each row by its number; branches without a reader's type make odd rows."""

    def __init__(self, writer: AvroShape, reader: AvroShape, where: str) -> None:
        self.type = reader.type
        self.branches: list[AvroNode | None] = []
        first: DoesNotFit | None = None
        for branch in writer.branches:
            try:
                self.branches.append(node_of(branch, reader, where))
            except DoesNotFit as error:
                first = first or error
                self.branches.append(None)
        if first is not None and not any(self.branches):
            raise first

    def read(self, span: Span) -> pa.Array:
        index = span.longs()
        span.refuse((index < 0) | (index >= len(self.branches)))
        parts: list[pa.Array] = []
        order = np.zeros(len(span), dtype=np.int64)
        filled = 0
        for number, node in enumerate(self.branches):
            rows = np.flatnonzero((index == number) & ~span.odd)
            if not len(rows):
                continue
            if node is None:
                wrong = np.zeros(len(span), dtype=np.bool_)
                wrong[rows] = True
                span.refuse(wrong)
                continue
            if len(rows) == len(span):
                return node.read(span)
            part = span.some(rows)
            found = pa.nulls(len(rows), self.type) if isinstance(node, NullNode) else node.read(part)
            span.put(rows, part)
            order[rows] = np.arange(filled, filled + len(rows))
            filled += len(rows)
            parts.append(found)
        if not parts:
            return pa.nulls(len(span), self.type)
        both = pa.concat_arrays(parts) if len(parts) > 1 else parts[0]
        return both.take(pa.array(order, mask=span.odd) if span.odd.any() else pa.array(order))


class ItemsNode(AvroNode):
    """Reads arrays and maps: blocks of items with their counts; the next item of all rows at once."""

    def __init__(self, inner: AvroNode, kind: pa.DataType, *, keyed: bool) -> None:
        self.inner, self.type, self.keyed = inner, kind, keyed

    def read(self, span: Span) -> pa.Array:
        left = np.zeros(len(span), dtype=np.int64)
        total = np.zeros(len(span), dtype=np.int64)
        going = np.arange(len(span))
        owners: list[Ints] = []
        keys: list[pa.Array] = []
        items: list[pa.Array] = []
        while True:
            self._begin_blocks(span, going[left[going] == 0], left, total)
            going = going[left[going] > 0]
            if not len(going):
                break
            part = span.some(going)
            if self.keyed:
                keys.append(part.strings())
            items.append(self.inner.read(part))
            owners.append(going)
            span.put(going, part)
            left[going] -= 1
            total[going] += 1
            going = going[~span.odd[going]]
        offsets = np.zeros(len(span) + 1, dtype=np.int32)
        np.cumsum(total, out=offsets[1:])
        order = pa.array(np.argsort(np.concatenate(owners), kind="stable")) if owners else None
        values = _in_order(items, order, self.inner.type)
        if self.keyed:
            texts = _in_order(keys, order, pa.string())
            return pa.MapArray.from_arrays(pa.array(offsets), texts, values).cast(self.type)
        return pa.ListArray.from_arrays(pa.array(offsets), values).cast(self.type)

    @staticmethod
    def _begin_blocks(span: Span, rows: Ints, left: Ints, total: Ints) -> None:
        if not len(rows):
            return
        part = span.some(rows)
        count = part.longs()
        sized = np.flatnonzero(count < 0)
        if len(sized):  # then the count is followed by the block's size in bytes
            inner = part.some(sized)
            inner.longs()
            part.put(sized, inner)
            count[sized] = -count[sized]
        part.refuse((count < 0) | (count + total[rows] > _ITEMS_MAX))
        left[rows] = np.where(part.odd, 0, count)
        span.put(rows, part)


def _in_order(parts: Sequence[pa.Array], order: pa.Array | None, kind: pa.DataType) -> pa.Array:
    return pa.nulls(0, kind) if order is None else pc.take(pa.concat_arrays(list(parts)), order)


@frozen(eq=False)
class _Written:
    """The reader of values that were written with one schema."""

    node: AvroNode
    schema: LoadedAvro


class AvroColumns:
    """Decodes values with a schema id in front; each id is requested once. `reader` is the column's schema."""

    def __init__(self, client: RegistryClient, reader: LoadedAvro) -> None:
        self._client = client
        self._reader = reader
        self._shape: AvroShape = shape_of(reader.parsed, reader.names)
        self._written: dict[int, _Written | str] = {}

    @property
    def type(self) -> pa.DataType:
        return self._shape.type

    def decode(self, encoded: pa.BinaryArray) -> DecodedColumn:
        by_schema, errors = rows_by_schema(encoded)
        begin, end, buffer = regions_of(encoded)
        parts = []
        for schema_id, rows in by_schema.items():
            written = self._of(schema_id)
            if isinstance(written, str):
                errors |= dict.fromkeys(rows.tolist(), written)
                continue
            span = Span(buffer, begin[rows] + HEADER_BYTES, end[rows])
            values = written.node.read(span)
            odd = span.odd | (span.position != span.end)
            if odd.any():
                values = self._one_by_one(values, odd, encoded, rows, schema_id, written, errors)
            parts.append((rows, values))
        return DecodedColumn(put_together(parts, len(encoded), self.type), errors)

    def _of(self, schema_id: int) -> _Written | str:
        """Return the reader for a writer's schema; or the reason why there is none."""
        known = self._written.get(schema_id)
        if known is None:
            try:
                schema = registered_avro(self._client, self._client.by_id(schema_id))
                known = _Written(node_of(shape_of(schema.parsed, schema.names), self._shape), schema)
            except (RegistryRefused, ConfigError) as error:
                known = f"schema {schema_id}: {error}"
            self._written[schema_id] = known
        return known

    def _one_by_one(
        self,
        values: pa.Array,
        odd: Any,
        encoded: pa.BinaryArray,
        rows: Ints,
        schema_id: int,
        written: _Written,
        errors: dict[int, str],
    ) -> pa.Array:
        """Decode odd rows by fastavro: rows with very long arrays are valid, for others it has the error."""
        places = np.flatnonzero(odd)
        decoded = []
        for place in places.tolist():
            row = int(rows[place])
            try:
                decoded.append(self._one(encoded[row].as_py(), written.schema))
            except Exception as error:  # noqa: BLE001  # fastavro raises anything for bytes that are not Avro
                text = str(error) if isinstance(error, pa.ArrowInvalid | ValueError) and str(error) else _ODD
                errors[row] = f"schema {schema_id}: {text}"
                decoded.append(pa.nulls(1, self.type))
        good = np.flatnonzero(~odd)
        fine = values.take(pa.array(good))
        return put_together([(good, fine), (places, pa.concat_arrays(decoded))], len(values), self.type)

    def _one(self, message: bytes, written: LoadedAvro) -> pa.Array:
        from fastavro import schemaless_reader

        stream = io.BytesIO(message[HEADER_BYTES:])
        value = schemaless_reader(stream, written.parsed, self._reader.parsed)
        if stream.tell() != len(message) - HEADER_BYTES:
            raise ValueError(_ODD)
        return pa.array([self._shape.plain(value)], self.type)
