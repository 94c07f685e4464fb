"""Parses Avro schemas by the rules of Avro 1.12, stricter than fastavro, which accepts what others refuse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define, field

from .bounded_json import read_json, write_json
from .parsed import AVRO, Difference, InvalidSchema, Referenced

_WHOLE = {"int": 2**31, "long": 2**63}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERS = ("ascending", "descending", "ignore")
_OWN = {
    "record": {"type", "name", "namespace", "doc", "aliases", "fields"},
    "enum": {"type", "name", "namespace", "doc", "aliases", "symbols", "default"},
    "fixed": {"type", "name", "namespace", "doc", "aliases", "size"},
    "array": {"type", "items"},
    "map": {"type", "values"},
}
_OWN["error"] = _OWN["record"]
_OWN_OF_FIELDS = {"name", "type", "doc", "default", "order", "aliases"}
_PLAIN_OWN = {"type"}


# Compatibility of Avro schemas: the specification's schema resolution, decided in advance.
#
# A schema reads another one's data if every value that the writer's schema allows resolves; the specification leaves
# much of that to the time when a value is read. Aliases are those of the reader.

_PROMOTED = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""Reader's kind → other kinds that it reads."""


# An Avro schema as a graph: a named type is one object, wherever it is used.

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})


@define(eq=False)
class AvroType:
    """A type; its kind decides which fields are set. `props`: attributes unknown to Avro."""

    kind: str
    props: dict[str, Any] = field(factory=dict)
    name: str = ""
    """Name of a named type, with the namespace."""
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    """With their namespaces."""
    fields: list[AvroField] = field(factory=list)
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    inner: AvroType | None = None
    """Items of an array, values of a map."""
    branches: tuple[AvroType, ...] = ()

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def label(self) -> str:
        """Return the description for messages."""
        return self.name or self.kind.upper()


@define(eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    doc: str | None = None
    has_default: bool = False
    default: Any = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    props: dict[str, Any] = field(factory=dict)


def cannot_read(reader: AvroType, writer: AvroType) -> list[Difference]:
    """Return every incompatibility, with its place in the reader's schema."""
    return _Comparison().compare(reader, writer, "")


class _Comparison:
    def __init__(self) -> None:
        self._under_way: dict[tuple[int, int], bool] = {}
        """Pairs of types whose comparison has begun: a recursive pair is compatible unless something else is not."""

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        if reader.kind == "union" or writer.kind == "union":
            return self._unions(reader, writer, path)
        if reader.kind not in NAMED:
            return self._plain(reader, writer, path)
        if (pair := (id(reader), id(writer))) in self._under_way:
            return []
        self._under_way[pair] = True
        return self._named(reader, writer, path)

    def _unions(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        if writer.kind == "union":
            found: list[Difference] = []
            for number, branch in enumerate(writer.branches):
                where = f"{path}/{number}" if reader.kind == "union" else path
                found += self.compare(reader, branch, where)
            return found
        chosen = _branch_for(reader.branches, writer)
        if chosen is None:
            text = f"{{reader}} has no branch for {writer.label} of {{writer}}"
            return [_difference("MISSING_UNION_BRANCH", path, text, writer.label)]
        return self.compare(chosen, writer, path)

    def _plain(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        if reader.inner is not None and writer.inner is not None and reader.kind == writer.kind:
            return self.compare(reader.inner, writer.inner, f"{path}/{'items' if reader.kind == 'array' else 'values'}")
        if reader.kind != writer.kind and writer.kind not in _PROMOTED.get(reader.kind, ()):
            return [_mismatch(reader, writer, path)]
        return _decimals(reader, writer, path) if reader.kind == writer.kind else []

    def _named(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        if _kind(reader) != _kind(writer):
            return [_mismatch(reader, writer, path)]
        found = []
        if not _same_name(reader, writer):
            text = f"{{writer}} calls it {writer.name}, {{reader}} {reader.name}"
            found.append(_difference("NAME_MISMATCH", f"{path}/name", text, writer.name))
        if reader.kind == "fixed":
            if reader.size != writer.size:
                text = f"{writer.size} bytes in {{writer}}, {reader.size} in {{reader}}"
                found.append(_difference("FIXED_SIZE_MISMATCH", f"{path}/size", text))
            return found + _decimals(reader, writer, path)
        if reader.kind == "enum":
            missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
            if missing and reader.default_symbol is None:
                symbols = ", ".join(missing)
                text = f"{{reader}} has neither the symbols {symbols} nor a default for them"
                found.append(_difference("MISSING_ENUM_SYMBOLS", f"{path}/symbols", text, symbols))
            return found
        return found + self._fields(reader, writer, path)

    def _fields(self, reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
        found: list[Difference] = []
        written = {each.name: each for each in writer.fields}
        own = {each.name for each in reader.fields}
        for number, each in enumerate(reader.fields):
            where = f"{path}/fields/{number}"
            other = _written(each, written, own)
            if other is not None:
                found += self.compare(each.type, other.type, f"{where}/type")
            elif not each.has_default:
                text = f"field {each.name} of {{reader}} has no default, and {{writer}} does not have the field"
                found.append(_difference("READER_FIELD_MISSING_DEFAULT_VALUE", where, text, each.name))
        return found


def _written(wanted: AvroField, written: dict[str, AvroField], own: Iterable[str]) -> AvroField | None:
    """Return the writer's field of that name, or of an alias; a field that the reader has too is not renamed."""
    if wanted.name in written:
        return written[wanted.name]
    return next((written[alias] for alias in wanted.aliases if alias in written and alias not in own), None)


def _branch_for(branches: Iterable[AvroType], writer: AvroType) -> AvroType | None:
    """Return the branch of a reader's union for the writer's type: of the full name, of the same kind, or the first
    that reads it."""
    reading = [branch for branch in branches if _matches(branch, writer)]
    for branch in reading:
        if branch.kind == writer.kind and branch.name == writer.name:
            return branch
    return reading[0] if reading else None


def _matches(reader: AvroType, writer: AvroType) -> bool:
    if reader.kind in NAMED:
        return _kind(reader) == _kind(writer) and _same_name(reader, writer)
    return reader.kind == writer.kind or writer.kind in _PROMOTED.get(reader.kind, ())


def _same_name(reader: AvroType, writer: AvroType) -> bool:
    """Compare names without namespace, as the specification says; or by an alias."""
    return reader.short_name == writer.short_name or writer.name in reader.aliases


def _kind(schema: AvroType) -> str:
    return "record" if schema.kind == "error" else schema.kind


def _decimals(reader: AvroType, writer: AvroType, path: str) -> list[Difference]:
    """Compare scale and precision: with another scale the same bytes are another number, without an error."""
    if not reader.props.get("logicalType") == writer.props.get("logicalType") == "decimal":
        return []
    scales = writer.props.get("scale", 0), reader.props.get("scale", 0)
    if scales[0] != scales[1]:
        return [
            _difference(
                "TYPE_MISMATCH",
                f"{path}/scale",
                f"a decimal of scale {scales[0]} in {{writer}}, {scales[1]} in {{reader}}",
            )
        ]
    wide, narrow = writer.props["precision"], reader.props["precision"]
    if narrow < wide:
        text = f"a decimal of precision {wide} in {{writer}}, only {narrow} in {{reader}}"
        return [_difference("TYPE_MISMATCH", f"{path}/precision", text)]
    return []


def _mismatch(reader: AvroType, writer: AvroType, path: str) -> Difference:
    text = f"{{reader}} has {reader.kind.upper()}, {{writer}} has {writer.kind.upper()}"
    return _difference("TYPE_MISMATCH", path, text)


def _difference(kind: str, path: str, text: str, detail: str = "") -> Difference:
    return Difference(kind, path or "/", text, detail)


# Avro schemas as text, in the form of Avro's own library for Java, which registries store and compare.


def canonical_text(schema: AvroType, known: frozenset[str] = frozenset()) -> str:
    """Return the text with attributes in Avro's order, and names as short as their namespace allows.

    `known`: names of types that other schemas define; they are not written out.
    """
    return write_json(_Writer(set(known), normal=False).write(schema, ""))


def normalized_text(schema: AvroType, known: frozenset[str] = frozenset()) -> str:
    """Return the text with full names, and a fixed order of attributes and aliases, which has no meaning."""
    return write_json(_Writer(set(known), normal=True).write(schema, ""))


class _Writer:
    def __init__(self, seen: set[str], *, normal: bool) -> None:
        self._seen = seen
        self._normal = normal

    def write(self, schema: AvroType, space: str) -> Any:
        if schema.kind == "union":
            return [self.write(branch, space) for branch in schema.branches]
        if schema.kind in PRIMITIVES:
            return {"type": schema.kind, **self._props(schema.props)} if schema.props else schema.kind
        if schema.inner is not None:
            part = "items" if schema.kind == "array" else "values"
            return {"type": schema.kind, part: self.write(schema.inner, space), **self._props(schema.props)}
        return self._named(schema, space)

    def _named(self, schema: AvroType, space: str) -> Any:
        if schema.name in self._seen:
            return self._reference(schema, space)
        self._seen.add(schema.name)
        out: dict[str, Any] = {"type": schema.kind, **self._name(schema, space)}
        if schema.doc is not None:
            out["doc"] = schema.doc
        if schema.kind == "enum":
            out["symbols"] = list(schema.symbols)
            if schema.default_symbol is not None:
                out["default"] = schema.default_symbol
        elif schema.kind == "fixed":
            out["size"] = schema.size
        else:
            out["fields"] = [self._field(each, schema.namespace) for each in schema.fields]
        out |= self._props(schema.props)
        if schema.aliases:
            out["aliases"] = self._aliases(schema.aliases, schema.namespace)
        return out

    def _field(self, given: AvroField, space: str) -> dict[str, Any]:
        out: dict[str, Any] = {"name": given.name, "type": self.write(given.type, space)}
        if given.doc is not None:
            out["doc"] = given.doc
        if given.has_default:
            out["default"] = given.default
        if given.order != "ascending":
            out["order"] = given.order
        if given.aliases:
            out["aliases"] = sorted(given.aliases) if self._normal else list(given.aliases)
        return out | self._props(given.props)

    def _reference(self, schema: AvroType, space: str) -> str:
        shortened = not self._normal and schema.namespace == space and schema.short_name not in PRIMITIVES
        return schema.short_name if shortened else schema.name

    def _name(self, schema: AvroType, space: str) -> dict[str, str]:
        if self._normal:
            return {"name": schema.name}
        name = {"name": schema.short_name}
        return name if schema.namespace == space else {**name, "namespace": schema.namespace}

    def _aliases(self, aliases: tuple[str, ...], space: str) -> list[str]:
        if self._normal:
            return sorted(aliases)
        return [alias.rpartition(".")[2] if alias.rpartition(".")[0] == space else alias for alias in aliases]

    def _props(self, props: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(props.items())) if self._normal else props


class AvroSchema:
    """An Avro `ParsedSchema`."""

    format = AVRO

    def __init__(self, root: AvroType, known: frozenset[str], wrong_default: str = "") -> None:
        """`known`: names that references define. `wrong_default`: the field with a default of another type."""
        self.wrong_default = wrong_default
        self.root = root
        self.canonical = canonical_text(root, known)
        self._known = known

    @property
    def normalized(self) -> str:
        return normalized_text(self.root, self._known)

    @property
    def resolved(self) -> str:
        """Return the text including the types of its references."""
        return canonical_text(self.root)

    def cannot_read(self, writer: AvroSchema) -> list[Difference]:
        return cannot_read(self.root, writer.root)


def parse_avro(text: str, references: Sequence[Referenced] = ()) -> AvroSchema:
    """Parse the text. Raises `InvalidSchema`."""
    reading = _Reading()
    for referenced in references:
        try:
            reading.read(_json(referenced.text), "", "")
        except InvalidSchema as error:
            raise InvalidSchema(f"reference {referenced.name}: {error}") from error
    known = frozenset(reading.named)
    reading.wrong_default = ""  # that of a reference does not matter
    return AvroSchema(reading.read(_json(text), "", ""), known, reading.wrong_default)


def _json(text: str) -> Any:
    """Parse JSON; a bare word is the name of a type, as in Avro's own parsers."""
    return text.strip() if _NAME.fullmatch(text.strip()) else read_json(text)


class _Reading:
    """Reads schemas in order; later ones may use types of earlier ones. Paths are JSON pointers."""

    def __init__(self) -> None:
        self.named: dict[str, AvroType] = {}
        self.wrong_default = ""

    def read(self, given: Any, space: str, path: str) -> AvroType:
        if isinstance(given, str):
            return self._by_name(given, space, path)
        if isinstance(given, list):
            return self._union(given, space, path)
        if not isinstance(given, dict):
            raise InvalidSchema(f"{path or '/'}: {given!r:.100} is not a schema")
        kind = given.get("type")
        if not isinstance(kind, str):
            if isinstance(kind, dict | list) and given.keys() == _PLAIN_OWN:
                return self.read(kind, space, f"{path}/type")
            raise InvalidSchema(f"{path or '/'}: missing or invalid type name: {kind!r:.100}")
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            if part not in given:
                raise InvalidSchema(f"{path or '/'}: {kind} without {part}")
            inner = self.read(given[part], space, f"{path}/{part}")
            return AvroType(kind, props=_props(given, _OWN[kind]), inner=inner)
        if kind in NAMED:
            return self._named(kind, given, space, path)
        if kind in PRIMITIVES:
            return AvroType(kind, props=_checked(kind, 0, _props(given, _PLAIN_OWN), path))
        return self._by_name(kind, space, path)

    def _by_name(self, name: str, space: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        found = self.named.get(name if "." in name or not space else f"{space}.{name}") or self.named.get(name)
        if found is None:
            raise InvalidSchema(f"{path or '/'}: unknown type {name!r:.100}")
        return found

    def _union(self, given: list[Any], space: str, path: str) -> AvroType:
        branches = tuple(self.read(each, space, f"{path}/{number}") for number, each in enumerate(given))
        seen: set[str] = set()
        for number, branch in enumerate(branches):
            if branch.kind == "union":
                raise InvalidSchema(f"{path}/{number}: a union directly within a union")
            if (key := branch.name or branch.kind) in seen:
                raise InvalidSchema(f"{path}/{number}: a second {key} in a union")
            seen.add(key)
        return AvroType("union", branches=branches)

    def _named(self, kind: str, given: dict[str, Any], space: str, path: str) -> AvroType:
        name = _full_name(given, space, path)
        if name in self.named:
            raise InvalidSchema(f"{path or '/'}: {name} is defined a second time")
        made = AvroType(kind, name=name, doc=_doc(given), aliases=_aliases(given, name.rpartition(".")[0], path))
        self.named[name] = made
        made.props = _props(given, _OWN[kind])
        if kind == "enum":
            _read_symbols(made, given, path)
        elif kind == "fixed":
            size = given.get("size")
            if type(size) is not int or not 0 <= size < 2**31:
                raise InvalidSchema(f"{path or '/'}: fixed {name} of size {size!r:.100}")
            made.size = size
            _checked(kind, size, made.props, path)
        else:
            self._read_fields(made, given, path)
        return made

    def _read_fields(self, made: AvroType, given: dict[str, Any], path: str) -> None:
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"{path or '/'}: record {made.name} without a list of fields")
        seen: set[str] = set()
        waiting: list[tuple[AvroField, str]] = []
        for number, each in enumerate(fields):
            where = f"{path}/fields/{number}"
            if not isinstance(each, dict) or "type" not in each:
                raise InvalidSchema(f"{where}: a field has a name and a type")
            name = _name(each.get("name"), where)
            if name in seen:
                raise InvalidSchema(f"{where}: a second field {name}")
            seen.add(name)
            field = self._field(name, each, made.namespace, where)
            made.fields.append(field)
            waiting.append((field, where))
        for field, where in waiting:  # a default may be of the record itself
            if field.has_default and not self.wrong_default and not _is_value(field.type, field.default):
                text = f"the default {field.default!r:.100} of field {field.name} is not of type {field.type.label}"
                self.wrong_default = f"{where}: {text}"

    def _field(self, name: str, given: dict[str, Any], space: str, where: str) -> AvroField:
        order = given.get("order", "ascending")
        if order not in _ORDERS:
            raise InvalidSchema(f"{where}: order {order!r:.100} is not one of {', '.join(_ORDERS)}")
        return AvroField(
            name,
            self.read(given["type"], space, f"{where}/type"),
            doc=_doc(given),
            has_default="default" in given,
            default=given.get("default"),
            order=order,
            aliases=_strings(given, "aliases", where),
            props=_props(given, _OWN_OF_FIELDS),
        )


def _read_symbols(made: AvroType, given: dict[str, Any], path: str) -> None:
    if not isinstance(given.get("symbols"), list):
        raise InvalidSchema(f"{path or '/'}: enum {made.name} without a list of symbols")
    made.symbols = tuple(_name(each, f"{path}/symbols") for each in given["symbols"])
    if len(set(made.symbols)) < len(made.symbols):
        raise InvalidSchema(f"{path}/symbols: duplicate symbol of {made.name}")
    default = given.get("default")
    if default is not None and default not in made.symbols:
        raise InvalidSchema(f"{path}/default: {default!r:.100} is not a symbol of {made.name}")
    made.default_symbol = default


def _full_name(given: dict[str, Any], space: str, path: str) -> str:
    name, namespace = given.get("name"), given.get("namespace", space)
    if isinstance(name, str) and "." in name:
        namespace, _, name = name.rpartition(".")
    if not isinstance(namespace, str):
        raise InvalidSchema(f"{path or '/'}: namespace {namespace!r:.100} is not a text")
    short = _name(name, path)
    if not namespace and short in PRIMITIVES:
        raise InvalidSchema(f"{path or '/'}: {short} is a type of Avro and cannot be redefined")
    return f"{namespace}.{short}" if namespace else short


def _name(given: Any, path: str) -> str:
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise InvalidSchema(f"{path or '/'}: {given!r:.100} is not a name: letters, digits and _, no digit first")
    return given


def _aliases(given: dict[str, Any], space: str, path: str) -> tuple[str, ...]:
    found = _strings(given, "aliases", path)
    return tuple(each if "." in each or not space else f"{space}.{each}" for each in found)


def _strings(given: dict[str, Any], key: str, path: str) -> tuple[str, ...]:
    found = given.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidSchema(f"{path}/{key}: not a list of texts")
    return tuple(found)


def _doc(given: dict[str, Any]) -> str | None:
    doc = given.get("doc")
    return doc if isinstance(doc, str) else None


def _props(given: dict[str, Any], own: set[str]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in own}


def _checked(kind: str, size: int, props: dict[str, Any], path: str) -> dict[str, Any]:
    """Check a decimal: readers would silently treat an invalid one as bytes."""
    if props.get("logicalType") != "decimal" or kind not in ("bytes", "fixed"):
        return props
    precision, scale = props.get("precision"), props.get("scale", 0)
    if type(precision) is not int or precision < 1 or type(scale) is not int or not 0 <= scale <= precision:
        raise InvalidSchema(f"{path or '/'}: a decimal of precision {precision!r:.20} and scale {scale!r:.20}")
    if kind == "fixed" and (2 ** (8 * size - 1) - 1 if size else 0) < 10**precision - 1:
        raise InvalidSchema(f"{path or '/'}: a decimal of precision {precision} does not fit into {size} bytes")
    return props


def _is_value(schema: AvroType, value: Any) -> bool:
    """Return True if the JSON value is valid for the type by the specification; for a union: for any branch."""
    kind = schema.kind
    if kind == "union":
        return any(_is_value(branch, value) for branch in schema.branches)
    if kind in _WHOLE:
        return type(value) is int and -_WHOLE[kind] <= value < _WHOLE[kind]
    if kind in ("float", "double"):
        return type(value) in (int, float)
    if kind in ("bytes", "fixed"):  # characters up to 255 are bytes
        fits = isinstance(value, str) and all(ord(each) < 256 for each in value)
        return fits and (kind == "bytes" or len(value) == schema.size)
    if kind in ("record", "error"):
        return isinstance(value, dict) and all(
            _is_value(each.type, value[each.name]) if each.name in value else each.has_default for each in schema.fields
        )
    if schema.inner is not None:
        inner = schema.inner
        if kind == "array":
            return isinstance(value, list) and all(_is_value(inner, each) for each in value)
        return isinstance(value, dict) and all(_is_value(inner, each) for each in value.values())
    if kind == "enum":
        return isinstance(value, str) and value in schema.symbols
    return value is None if kind == "null" else isinstance(value, bool if kind == "boolean" else str)
