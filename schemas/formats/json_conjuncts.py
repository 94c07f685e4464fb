"""A JSON Schema as conjuncts, with its references resolved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ports.values import frozen

STEPS_MAX = 20_000
"""Maximum number of steps of a comparison: some schemas would take for ever."""


@frozen(eq=False)
class Subschema:
    """A schema with the resolver of its references. `alone`: up to draft 7, `$ref` excludes other keywords."""

    value: Any
    resolver: Any
    alone: bool

    def inner(self, value: Any) -> Subschema:
        """Return a schema within this one."""
        if isinstance(value, dict) and isinstance(value.get("$id"), str):
            from referencing.jsonschema import DRAFT7, specification_with

            draft = specification_with(str(value.get("$schema", "")), default=DRAFT7)
            return Subschema(value, self.resolver.in_subresource(draft.create_resource(value)), self.alone)
        return Subschema(value, self.resolver, self.alone)

    @property
    def refers(self) -> bool:
        """Return True for a reference, perhaps with other keywords."""
        return isinstance(self.value, dict) and isinstance(self.value.get("$ref"), str)

    def follow(self) -> Subschema:
        """Return the target of `$ref`. Raises `referencing.exceptions.Unresolvable`."""
        found = self.resolver.lookup(self.value["$ref"])
        return Subschema(found.contents, found.resolver, self.alone)

    @property
    def never(self) -> bool:
        """Return True if nothing is valid."""
        return self.value is False


def same_words(one: Subschema, other: Subschema) -> set[tuple[int, int]]:
    """Return pairs of ids of all their values if they are equal, including referenced schemas; else empty."""
    seen: set[tuple[int, int]] = set()
    return seen if _same(one, other, seen) else set()


def _same(one: Subschema, other: Subschema, seen: set[tuple[int, int]]) -> bool:
    if (pair := (id(one.value), id(other.value))) in seen:
        return True
    seen.add(pair)
    if type(one.value) is not type(other.value):
        return False
    if isinstance(one.value, list):
        if len(one.value) != len(other.value):
            return False
        pairs = zip(one.value, other.value, strict=True)
        return all(_same(one.inner(mine), other.inner(theirs), seen) for mine, theirs in pairs)
    if not isinstance(one.value, dict):
        return bool(one.value == other.value)
    if one.value.keys() != other.value.keys() or (one.refers and not _same(one.follow(), other.follow(), seen)):
        return False
    return all(_same(one.inner(one.value[key]), other.inner(other.value[key]), seen) for key in one.value)


def conjuncts(place: Subschema) -> list[Subschema]:
    """Return schemas without `allOf` and `$ref` that together are equivalent. A circular reference adds nothing."""
    found: list[Subschema] = []
    seen: set[int] = set()

    def visit(each: Subschema) -> None:
        if id(each.value) in seen:
            return
        seen.add(id(each.value))
        if each.refers:
            visit(each.follow())
            if each.alone:
                return
        if isinstance(each.value, dict):
            for inner in each.value.get("allOf", ()):
                visit(each.inner(inner))
        found.append(each)

    visit(place)
    return found


def demands(parts: list[Subschema], key: str) -> Iterator[tuple[Any, Subschema]]:
    """Yield the values of a keyword in the conjuncts."""
    for part in parts:
        if isinstance(part.value, dict) and key in part.value:
            yield part.value[key], part


class Choices:
    """Splits schemas by their alternatives. A schema without its alternative is created once, and compared once."""

    def __init__(self) -> None:
        self._plain: dict[tuple[int, str], dict[str, Any]] = {}

    def of(self, parts: list[Subschema]) -> list[list[Subschema]]:
        """Return conjuncts for each branch of the first `anyOf` or `oneOf`; empty without one."""
        for part in parts:
            for key in ("oneOf", "anyOf") if isinstance(part.value, dict) else ():
                if key in part.value:
                    rest = [each for each in parts if each is not part] + [part.inner(self._without(part.value, key))]
                    return [[*rest, *conjuncts(part.inner(branch))] for branch in part.value[key]]
        return []

    def _without(self, schema: dict[str, Any], key: str) -> dict[str, Any]:
        known = self._plain.get((id(schema), key))
        if known is None:
            known = self._plain[id(schema), key] = {name: schema[name] for name in schema if name != key}
        return known
