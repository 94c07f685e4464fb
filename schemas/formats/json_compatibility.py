"""Compatibility of JSON Schemas: whether a schema allows every document that another one allows.

The check is by form, and conservative: what cannot be proved is a difference. Regular expressions are compared, never
run. As in Confluent's registry, a property that becomes required and has a default is no difference.
"""

from __future__ import annotations

from . import json_keywords as keywords
from .json_conjuncts import STEPS_MAX, Choices, Subschema, conjuncts, same_words
from .json_content import array_differences, object_differences
from .parsed import Difference, InvalidSchema

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
