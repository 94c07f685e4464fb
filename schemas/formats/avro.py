"""Parses Avro schemas by the rules of Avro 1.12, stricter than fastavro, which accepts what others refuse."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .avro_compatibility import cannot_read
from .avro_text import canonical_text, normalized_text
from .avro_types import NAMED, PRIMITIVES, AvroField, AvroType
from .bounded_json import read_json
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
