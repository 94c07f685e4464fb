"""Compatibility of JSON Schemas: whether a schema allows every document that another one allows.

The check is by form, and conservative: what cannot be proved is a difference. Regular expressions are compared, never
run. As in Confluent's registry, a property that becomes required and has a default is no difference.
"""

from __future__ import annotations

from typing import Protocol

from . import json_keywords as keywords
from .json_conjuncts import STEPS_MAX, Choices, Subschema, conjuncts, demands, same_words
from .json_keywords import items_of
from .parsed import Difference, InvalidSchema


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


_TOGETHER = (
    *(("pattern",), ("propertyNames",), ("not",), ("if", "then", "else"), ("contains", "minContains", "maxContains")),
    *(("dependencies",), ("dependentSchemas",), ("dependentRequired",)),
)
"""Keywords that the writer's schema must have with equal values, those of a group in one place."""
_NOT_COMPARED = ("unevaluatedProperties", "unevaluatedItems", "$recursiveRef", "$dynamicRef")
"""Keywords whose meaning depends on their surroundings."""


def cannot_read(reader: Subschema, writer: Subschema) -> list[Difference]:
    """Return where the reader's schema may refuse documents of the writer's. Raises `InvalidSchema` if undecided."""
    return _Comparison().compare(reader, conjuncts(writer), "")


class _Comparison:
    def __init__(self) -> None:
        self._under_way: set[tuple[int, tuple[int, ...]]] = set()
        self._choices_of = Choices()
        self._same: dict[tuple[int, int], bool] = {}
        """Results for pairs of schemas, each compared once."""
        self._steps = 0

    def compare(self, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
        """`writer`: conjuncts. A pair whose comparison has begun is compatible, unless something else is not."""
        if reader.value is True or reader.value == {} or any(part.never for part in writer):
            return []
        if any(self._are_same(part, reader) for part in writer):
            return []
        pair = (id(reader.value), tuple(id(part.value) for part in writer))
        if pair in self._under_way:
            return []
        self._under_way.add(pair)
        return [each for part in conjuncts(reader) for each in self._part(part, writer, path)]

    def reads(self, reader: Subschema, writer: list[Subschema], path: str) -> bool:
        """Compare tentatively: assumptions are dropped if it fails."""
        before = set(self._under_way)
        if not self.compare(reader, writer, path):
            return True
        self._under_way = before
        return False

    def _has(self, part: Subschema, reader: Subschema, keys: list[str]) -> bool:
        """Return True if the writer's part has equal values of these keywords."""
        mine, theirs = reader.value, part.value
        if not isinstance(theirs, dict) or not all(key in mine and key in theirs for key in keys):
            return False
        return all(self._are_same(part.inner(theirs[key]), reader.inner(mine[key])) for key in keys)

    def _are_same(self, one: Subschema, other: Subschema) -> bool:
        pair = (id(one.value), id(other.value))
        if pair not in self._same:
            found = same_words(one, other)
            self._same |= dict.fromkeys(found, True) if found else {pair: False}
        return self._same[pair]

    def _part(self, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
        """Compare one conjunct of the reader's schema."""
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise InvalidSchema(f"comparing the schemas takes more than {STEPS_MAX} steps")
        if not isinstance(reader.value, dict):
            return [] if reader.value else [_difference("TYPE_NARROWED", path, "{reader} allows nothing here")]
        own = [key for key in reader.value if key not in ("allOf", "$ref")]
        if any(self._has(part, reader, own) for part in writer):
            return []
        choices = self._choices_of.of(writer)
        if choices and not any(self._has(part, reader, [key]) for part in writer for key in ("anyOf", "oneOf")):
            return [each for choice in choices for each in self._part(reader, choice, path)]
        found = [_difference(kind, f"{path}/{key}", text) for kind, key, text in keywords.plain(reader.value, writer)]
        found += self._sums(reader, writer, path)
        types = keywords.types_of(writer)
        if "object" in types:
            found += object_differences(self, reader, writer, path)
        if "array" in types:
            found += array_differences(self, reader, writer, path)
        for group in _TOGETHER:
            there = [key for key in group if key in reader.value]
            if group[0] in reader.value and not any(self._has(part, reader, there) for part in writer):
                text = f"{{writer}} does not say the same of {group[0]}"
                found.append(_difference("KEYWORD_CHANGED", f"{path}/{group[0]}", text))
        for key in _NOT_COMPARED:
            if key in reader.value:
                found.append(_difference("KEYWORD_CHANGED", f"{path}/{key}", "around it the schemas differ"))
        return found

    def _sums(self, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
        for key in ("anyOf", "oneOf"):
            branches = [reader.inner(each) for each in reader.value.get(key, ())]
            if not branches or any(self._has(part, reader, [key]) for part in writer):
                continue
            reading = next((branch for branch in branches if self.reads(branch, writer, path)), None)
            if reading is None:
                text = "no branch of {reader} takes all that {writer} allows"
                return [_difference("SUM_TYPE_NARROWED", f"{path}/{key}", text)]
            others = [conjuncts(branch) for branch in branches if branch is not reading]
            if key == "oneOf" and not all(keywords.disjoint(other, writer) for other in others):
                text = "several branches of {reader} may take what {writer} allows, and only one may"
                return [_difference("SUM_TYPE_NARROWED", f"{path}/{key}", text)]
        return []


def _difference(kind: str, path: str, text: str) -> Difference:
    return Difference(kind, path or "/", text)
