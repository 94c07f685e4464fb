"""Compatibility of the content of objects and arrays."""

from __future__ import annotations

from typing import Protocol

from .json_conjuncts import Subschema, conjuncts, demands
from .json_keywords import items_of
from .parsed import Difference


class Comparing(Protocol):
    """The comparison that uses these parts."""

    def compare(self, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]: ...

    def reads(self, reader: Subschema, writer: list[Subschema], path: str) -> bool: ...


def object_differences(comparing: Comparing, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
    """Compare members by name, by patterns of names, and all others. Names are not matched against patterns: a possible
    match counts for a requirement, and not for a permission."""
    found: list[Difference] = []
    own, known = reader.value.get("properties", {}), _named(writer)
    for name, schema in own.items():
        where = f"{path}/properties/{name}"
        differences = comparing.compare(reader.inner(schema), _property(writer, name), where)
        if differences and name not in known:
            text = f"{{writer}} does not know property {name}, and so allows anything there"
            differences = [Difference("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", where, text)]
        found += differences
    patterns = reader.value.get("patternProperties", {})
    if "additionalProperties" not in reader.value and not patterns:
        return found
    rest = reader.inner(reader.value.get("additionalProperties", True))
    by_pattern = [reader.inner(schema) for schema in patterns.values()]
    for name in sorted(known | own.keys()):
        wanted = by_pattern if name in own else [*by_pattern, rest]
        where, given = f"{path}/properties/{name}", _property(writer, name)
        if not all(comparing.reads(each, given, where) for each in wanted):
            text = f"{{reader}} does not take property {name} as {{writer}} allows it"
            found.append(Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", where, text))
    return found + _unnamed(comparing, reader, rest, writer, path)


def _unnamed(
    comparing: Comparing, reader: Subschema, rest: Subschema, writer: list[Subschema], path: str
) -> list[Difference]:
    """Compare members that neither schema names."""
    found = []
    patterns = {key: reader.inner(schema) for key, schema in reader.value.get("patternProperties", {}).items()}
    theirs = {pattern for value, _ in demands(writer, "patternProperties") for pattern in value}
    for pattern in sorted(patterns.keys() | theirs):
        where, given = f"{path}/patternProperties/{pattern}", _by_pattern(writer, pattern)
        wanted = [patterns[pattern]] if pattern in patterns else [*patterns.values(), rest]
        if not all(comparing.reads(each, given, where) for each in wanted):
            found.append(Difference("PATTERN_PROPERTY_NARROWED", where, "{writer} allows more there"))
    additional = [
        each for value, part in demands(writer, "additionalProperties") for each in conjuncts(part.inner(value))
    ]
    where = f"{path}/additionalProperties"
    if not comparing.reads(rest, additional, where):
        text = "{writer} allows properties that {reader} does not"
        found.append(Difference("ADDITIONAL_PROPERTIES_NARROWED", where, text))
    return found


def _named(writer: list[Subschema]) -> set[str]:
    return {name for value, _ in demands(writer, "properties") for name in value}


def _property(writer: list[Subschema], name: str) -> list[Subschema]:
    """Return the schemas for a member of that name: in each conjunct its own, or the one of all others."""
    found: list[Subschema] = []
    for part in writer:
        if not isinstance(part.value, dict):
            continue
        if name in part.value.get("properties", {}):
            found += conjuncts(part.inner(part.value["properties"][name]))
        elif "patternProperties" not in part.value and "additionalProperties" in part.value:
            found += conjuncts(part.inner(part.value["additionalProperties"]))
    return found


def _by_pattern(writer: list[Subschema], pattern: str) -> list[Subschema]:
    """Return the schemas for unnamed members whose names match the pattern."""
    found: list[Subschema] = []
    for part in writer:
        if not isinstance(part.value, dict):
            continue
        own = part.value.get("patternProperties", {})
        if pattern in own:
            found += conjuncts(part.inner(own[pattern]))
        elif not own and "additionalProperties" in part.value:
            found += conjuncts(part.inner(part.value["additionalProperties"]))
    return found


def array_differences(comparing: Comparing, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
    """Compare the first items one by one, then the others."""
    own, rest, key = items_of(reader.value)
    given = [(part, *items_of(part.value)[:2]) for part in writer]
    found: list[Difference] = []
    for number in range(max([len(own), *(len(first) for _, first, _ in given)]) + 1):
        item: list[Subschema] = []
        for part, first, others in given:
            item += conjuncts(part.inner(first[number] if number < len(first) else others))
        wanted = own[number] if number < len(own) else rest
        where = f"{path}/{key}/{number}" if number < len(own) else f"{path}/{key}"
        found += comparing.compare(reader.inner(wanted), item, where)
    return found
