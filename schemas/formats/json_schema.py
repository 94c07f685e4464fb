"""JSON Schemas of any draft that `jsonschema` supports, with their references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from referencing import Registry
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT3, DRAFT4, DRAFT6, DRAFT7, specification_with

from .bounded_json import read_json, write_json
from .json_compatibility import cannot_read
from .json_conjuncts import Subschema
from .parsed import JSON, Difference, InvalidSchema, Referenced

_NOT_SCHEMAS = frozenset({"enum", "const", "default", "examples"})


class JsonSchema:
    """A JSON `ParsedSchema`."""

    format = JSON

    def __init__(self, value: Any, place: Subschema) -> None:
        self.value = value
        self.canonical = write_json(value)
        self._place = place

    @property
    def normalized(self) -> str:
        return write_json(_sorted(self.value))

    def cannot_read(self, writer: JsonSchema) -> list[Difference]:
        return cannot_read(self._place, writer._place)


def parse_json_schema(text: str, references: Sequence[Referenced] = ()) -> JsonSchema:
    """Parse the text. Raises `InvalidSchema`."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    value = _read(text, "")
    known: Registry[Any] = _specifications()
    for each in references:
        schema = _read(each.text, f"reference {each.name}: ")
        known = known.with_resource(each.name, _specification(schema).create_resource(schema))
    try:
        validator_for(value, default=Draft7Validator).check_schema(value)
    except SchemaError as error:
        raise InvalidSchema(f"{error.json_path}: {error.message:.500}") from error
    except (RecursionError, NoSuchResource) as error:
        raise InvalidSchema(f"{type(error).__name__}: {error}") from error
    draft = _specification(value)
    resolver = known.resolver_with_root(draft.create_resource(value))
    place = Subschema(value, resolver, draft in (DRAFT3, DRAFT4, DRAFT6, DRAFT7))
    _check_references(place)
    return JsonSchema(value, place)


def _read(text: str, whose: str) -> Any:
    value = read_json(text)
    if not isinstance(value, dict | bool):
        raise InvalidSchema(f"{whose}a JSON Schema is an object, true or false")
    return value


def _specification(value: Any) -> Any:
    given = value.get("$schema") if isinstance(value, dict) else None
    return specification_with(given, default=DRAFT7) if isinstance(given, str) else DRAFT7


def _specifications() -> Registry[Any]:
    """Return the meta-schemas of all drafts; nothing is fetched."""
    from jsonschema_specifications import REGISTRY

    known: Registry[Any] = REGISTRY
    return known


def _check_references(place: Subschema) -> None:
    for found in _references(place):
        try:
            found.follow()
        except (Unresolvable, RecursionError) as error:
            raise InvalidSchema(f"$ref {found.value['$ref']!r:.200} cannot be resolved: {error}") from error


def _references(place: Subschema) -> Iterator[Subschema]:
    if isinstance(place.value, dict):
        if isinstance(place.value.get("$ref"), str):
            yield place
        for key, inner in place.value.items():
            if key not in _NOT_SCHEMAS:
                yield from _references(place.inner(inner))
    elif isinstance(place.value, list):
        for inner in place.value:
            yield from _references(place.inner(inner))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value
