"""Compatibility of single keywords of JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .bounded_json import write_json
from .json_conjuncts import Subschema, demands

TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_AT_LEAST = {"minLength": "string", "minItems": "array", "minProperties": "object"}
_AT_MOST = {"maxLength": "string", "maxItems": "array", "maxProperties": "object"}
_FOUND = tuple[str, str, str]
"""Kind of the difference, keyword, text."""


def types_of(parts: list[Subschema]) -> frozenset[str]:
    """Return the allowed types; integers are listed beside numbers."""
    found = TYPES
    for value, _ in demands(parts, "type"):
        named = {value} if isinstance(value, str) else set(value)
        found &= frozenset(named | ({"integer"} if "number" in named else set()))
    values = values_of(parts)
    if values is not None:
        found &= {kind for value in values for kind in _kinds(value)}
    return frozenset() if any(part.never for part in parts) else found


def values_of(parts: list[Subschema]) -> list[Any] | None:
    """Return the allowed values if they are enumerated, else None."""
    for value, _ in demands(parts, "const"):
        return [value]
    lists = [value for value, _ in demands(parts, "enum")]
    return min(lists, key=len) if lists else None


def plain(reader: dict[str, Any], writer: list[Subschema]) -> Iterator[_FOUND]:
    """Yield the differences of keywords for a value itself, not for its content."""
    types = types_of(writer)
    if "type" in reader:
        allowed = {reader["type"]} if isinstance(reader["type"], str) else set(reader["type"])
        extra = types - allowed - ({"integer"} if "number" in allowed else set())
        if extra:
            kind = "TYPE_NARROWED" if types & allowed else "TYPE_CHANGED"
            yield kind, "type", f"{{writer}} allows {', '.join(sorted(extra))}, {{reader}} does not"
    yield from _values(reader, values_of(writer))
    for key, kind in _AT_LEAST.items():
        if key in reader and kind in types and max(_lower(writer, key), 0) < reader[key]:
            yield _kind(key), key, f"{{writer}} allows less than {reader[key]}"
    for key, kind in _AT_MOST.items():
        if key in reader and kind in types:
            given = [value for value, _ in demands(writer, key)]
            if not given or min(given) > reader[key]:
                yield _kind(key), key, f"{{writer}} allows more than {reader[key]}"
    if "array" in types and reader.get("uniqueItems") and not any(value for value, _ in demands(writer, "uniqueItems")):
        yield "UNIQUE_ITEMS_ADDED", "uniqueItems", "{writer} allows an item twice"
    if types & {"number", "integer"}:
        yield from _numbers(reader, writer, types)
    if "object" in types:
        yield from _required(reader, writer)


def _values(reader: dict[str, Any], values: list[Any] | None) -> Iterator[_FOUND]:
    for key in ("const", "enum"):
        if key not in reader:
            continue
        allowed = {write_json(each) for each in ([reader[key]] if key == "const" else reader[key])}
        if values is None:
            yield "ENUM_ARRAY_NARROWED", key, "{writer} allows other values"
        elif extra := sorted({write_json(each) for each in values} - allowed):
            yield "ENUM_ARRAY_NARROWED", key, f"{{writer}} allows {', '.join(extra):.200} as well"


def _numbers(reader: dict[str, Any], writer: list[Subschema], types: frozenset[str]) -> Iterator[_FOUND]:
    for key, strict, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        for own, is_strict in ((key, reader.get(strict) is True), (strict, True)):
            bound = reader.get(own)
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                continue
            if not any(
                value * sign > bound * sign or (value == bound and (also_strict or not is_strict))
                for value, also_strict in _bounds(writer, key, strict)
            ):
                yield _kind(own), own, f"{{writer}} allows numbers beyond {bound}"
    step = reader.get("multipleOf")
    vacuous = step is None or (step == 1 and "number" not in types)
    if not vacuous and not any(value % step == 0 for value, _ in demands(writer, "multipleOf")):
        yield "MULTIPLE_OF_CHANGED", "multipleOf", f"{{writer}} allows what is no multiple of {step}"


def _bounds(writer: list[Subschema], key: str, strict: str) -> Iterator[tuple[float, bool]]:
    """Yield (bound, exclusive); in draft 4 `exclusiveMinimum` is true or false beside `minimum`."""
    for value, part in demands(writer, key):
        yield value, part.value.get(strict) is True
    for value, _ in demands(writer, strict):
        if not isinstance(value, bool):
            yield value, True


def _required(reader: dict[str, Any], writer: list[Subschema]) -> Iterator[_FOUND]:
    there = _required_names(writer)
    own = reader.get("properties", {})
    for name in reader.get("required", ()):
        schema = own.get(name)
        if name not in there and not (isinstance(schema, dict) and "default" in schema):
            yield "REQUIRED_ATTRIBUTE_ADDED", f"required/{name}", f"{{writer}} does not require property {name}"


def _required_names(writer: list[Subschema]) -> set[str]:
    return {name for value, _ in demands(writer, "required") if isinstance(value, list) for name in value}


def _lower(writer: list[Subschema], key: str) -> int:
    given = [value for value, _ in demands(writer, key)]
    if key == "minProperties":
        given.append(len(_required_names(writer)))
    return max(given, default=0)


def items_of(schema: Any) -> tuple[list[Any], Any, str]:
    """Return (schemas of the first items, schema of the others, keyword) for any draft."""
    if not isinstance(schema, dict):
        return [], schema, "items"
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", True), "prefixItems"
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True), "items"
    return [], items, "items"


def disjoint(one: list[Subschema], other: list[Subschema]) -> bool:
    """Return True if no value is valid for both: other types, values, or constants of a required property."""
    kinds = types_of(one), types_of(other)
    if not kinds[0] & kinds[1]:
        return True
    values = values_of(one), values_of(other)
    if values[0] is not None and values[1] is not None:
        return not {write_json(each) for each in values[0]} & {write_json(each) for each in values[1]}
    if kinds[0] == kinds[1] == {"object"}:
        for name in _required_names(one) & _required_names(other):
            inner = _property_values(one, name), _property_values(other, name)
            if inner[0] is not None and inner[1] is not None and not set(inner[0]) & set(inner[1]):
                return True
    return False


def _property_values(parts: list[Subschema], name: str) -> list[str] | None:
    found = [part.inner(value[name]) for value, part in demands(parts, "properties") if name in value]
    values = values_of(found)
    return None if values is None else [write_json(each) for each in values]


def _kinds(value: Any) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int | float):
        return frozenset({"integer", "number"} if value % 1 == 0 else {"number"})
    known = ((type(None), "null"), (str, "string"), (list, "array"), (dict, "object"))
    return frozenset(name for kind, name in known if isinstance(value, kind))


def _kind(key: str) -> str:
    """Return the kind of a difference: `minLength` → MIN_LENGTH_NARROWED."""
    return "".join(f"_{each}" if each.isupper() else each.upper() for each in key) + "_NARROWED"
