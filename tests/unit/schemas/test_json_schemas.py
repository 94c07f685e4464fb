"""JSON Schema: what is one, and which of them allow all that others allow; tried with jsonschema."""

import json
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from support.long_tests import examples

from barnabas.schemas.formats.json_schema import JsonSchema, parse_json_schema
from barnabas.schemas.formats.parsed import InvalidSchema, Referenced

Json = Any
STRING, INTEGER, NUMBER, NULL = ({"type": each} for each in ("string", "integer", "number", "null"))


def parsed(schema: Json, *references: Referenced) -> JsonSchema:
    return parse_json_schema(json.dumps(schema), references)


def has(closed: bool = False, required: tuple[str, ...] = (), **properties: Json) -> Json:
    more = ({"additionalProperties": False} if closed else {}) | ({"required": list(required)} if required else {})
    return {"type": "object", "properties": properties, **more}


def items(schema: Json) -> Json:
    return {"type": "array", "items": schema}


TREE = {"$ref": "#/definitions/n", "definitions": {"n": has(v=INTEGER, kids=items({"$ref": "#/definitions/n"}))}}
TREE_NUMBER = {"$ref": "#/definitions/n", "definitions": {"n": has(v=NUMBER, kids=items({"$ref": "#/definitions/n"}))}}
OPTIONAL_TREE = {"anyOf": [NULL, has(v=INTEGER, next={"$ref": "#"})]}
OPTIONAL_TREE_NUMBER = {"anyOf": [NULL, has(v=NUMBER, next={"$ref": "#"})]}

ALLOWS: list[tuple[str, Json, Json]] = [
    ("anything", {}, STRING),
    ("never", STRING, False),
    ("annotations", {**STRING, "title": "new", "description": "d"}, {**STRING, "title": "old"}),
    ("number", NUMBER, INTEGER),
    ("a type more", {"type": ["string", "null"]}, STRING),
    ("an enum value more", {"enum": ["a", "b"]}, {"enum": ["a"]}),
    ("const to enum", {"enum": ["a", "b"]}, {"const": "a"}),
    ("enum to its type", STRING, {"enum": ["a"]}),
    ("longer", {**STRING, "maxLength": 5}, {**STRING, "maxLength": 4}),
    ("a bound less", INTEGER, {**INTEGER, "minimum": 4}),
    ("a looser bound", {**INTEGER, "minimum": 3}, {**INTEGER, "exclusiveMinimum": 3}),
    ("multiples", {**INTEGER, "multipleOf": 2}, {**INTEGER, "multipleOf": 4}),
    ("bounds of other types", {"maxLength": 5}, INTEGER),
    ("a property more, closed before", has(True, a=STRING, b=INTEGER), has(True, a=STRING)),
    ("no longer closed", has(a=STRING), has(True, a=STRING)),
    ("a property less, open", has(a=STRING), has(a=STRING, b=INTEGER)),
    ("a property that may be anything", has(a=STRING, b={}), has(a=STRING)),
    ("no longer required", has(a=STRING), has(a=STRING, required=("a",))),
    ("required with a default", has(a={**STRING, "default": ""}, required=("a",)), has(a=STRING)),
    ("items", items(NUMBER), items(INTEGER)),
    ("a branch more", {"oneOf": [STRING, INTEGER, NULL]}, {"oneOf": [STRING, INTEGER]}),
    ("into a sum", {"anyOf": [STRING, INTEGER]}, STRING),
    ("wider in a sum", {"oneOf": [STRING, NUMBER]}, {"oneOf": [STRING, INTEGER]}),
    ("allOf taken apart", has(a=STRING), {"allOf": [has(a=STRING), has(b=STRING)]}),
    ("recursive", TREE_NUMBER, TREE),
    ("recursive in a sum", OPTIONAL_TREE_NUMBER, OPTIONAL_TREE),
    ("the same not", {"not": STRING, "minimum": 1}, {"not": STRING, "minimum": 2}),
    (
        "tagged",
        {"oneOf": [has(t={"const": "a"}, required=("t",)), has(t={"const": "b"}, n=INTEGER, required=("t",))]},
        has(t={"const": "a"}, required=("t",)),
    ),
]
DOES_NOT: list[tuple[str, Json, Json, str, str]] = [
    ("another type", INTEGER, STRING, "TYPE_CHANGED", "/type"),
    ("a type less", STRING, {"type": ["string", "null"]}, "TYPE_NARROWED", "/type"),
    ("integers only", INTEGER, NUMBER, "TYPE_NARROWED", "/type"),
    ("nothing", False, STRING, "TYPE_NARROWED", "/"),
    ("an enum value less", {"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_NARROWED", "/enum"),
    ("true is not 1", {"enum": [1]}, {"enum": [True]}, "ENUM_ARRAY_NARROWED", "/enum"),
    ("shorter", {**STRING, "maxLength": 3}, {**STRING, "maxLength": 4}, "MAX_LENGTH_NARROWED", "/maxLength"),
    ("a bound more", {**STRING, "minLength": 1}, STRING, "MIN_LENGTH_NARROWED", "/minLength"),
    ("higher", {**INTEGER, "minimum": 5}, {**INTEGER, "minimum": 4}, "MINIMUM_NARROWED", "/minimum"),
    ("a pattern", {**STRING, "pattern": "a"}, STRING, "KEYWORD_CHANGED", "/pattern"),
    ("a property more, open", has(b=INTEGER), has(), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "/properties/b"),
    (
        "a property less, closed",
        has(True),
        has(True, b=INTEGER),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "/properties/b",
    ),
    ("closed", has(True), has(), "ADDITIONAL_PROPERTIES_NARROWED", "/additionalProperties"),
    ("a property's type", has(a=INTEGER), has(a=STRING), "TYPE_CHANGED", "/properties/a/type"),
    ("required", has(a=STRING, required=("a",)), has(a=STRING), "REQUIRED_ATTRIBUTE_ADDED", "/required/a"),
    ("items", items(INTEGER), items(NUMBER), "TYPE_NARROWED", "/items/type"),
    ("a branch less", {"oneOf": [STRING]}, {"oneOf": [STRING, INTEGER]}, "SUM_TYPE_NARROWED", "/oneOf"),
    ("two branches", {"oneOf": [INTEGER, NUMBER]}, INTEGER, "SUM_TYPE_NARROWED", "/oneOf"),
    ("recursive", TREE, TREE_NUMBER, "TYPE_NARROWED", "/properties/v/type"),
    ("a definition", has(a={"not": {"$ref": "#/d"}}) | {"d": STRING}, has(a={"not": {"$ref": "#/d"}}) | {"d": INTEGER},
     "KEYWORD_CHANGED", "/properties/a/not"),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer"), [case[1:] for case in ALLOWS], ids=[case[0] for case in ALLOWS])
def test_compatible_json_schema_has_no_difference(reader: Json, writer: Json) -> None:
    assert parsed(reader).cannot_read(parsed(writer)) == []
    assert parsed(writer).cannot_read(parsed(writer)) == []


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "path"), [case[1:] for case in DOES_NOT], ids=[case[0] for case in DOES_NOT]
)
def test_incompatible_json_schema_has_difference(reader: Json, writer: Json, kind: str, path: str) -> None:
    assert (kind, path) in [(each.kind, each.path) for each in parsed(reader).cannot_read(parsed(writer))]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[]", "is an object, true or false"),
        ('{"type":"strin"}', "$.type"),
        ('{"$schema":"https://json-schema.org/draft/2020-12/schema","minItems":-1}', "$.minItems"),
        ('{"$ref":"#/nowhere"}', "cannot be resolved"),
        ('{"properties":{"a":{"$ref":"http://example.com/a.json"}}}', "cannot be resolved"),
        ('{"not":' * 200 + "{}" + "}" * 200, "nested deeper than 100"),
    ],
)
def test_text_that_is_no_schema_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parse_json_schema(text)
    assert why in str(refused.value)


def test_schemas_are_stored_in_canonical_form() -> None:
    schema = parse_json_schema('{ "type": "object", "properties": {"b": {}, "a": {"enum": [1.0, "é"]}} }')
    assert schema.canonical == '{"type":"object","properties":{"b":{},"a":{"enum":[1.0,"é"]}}}'
    assert schema.normalized == '{"properties":{"a":{"enum":[1.0,"é"]},"b":{}},"type":"object"}'


def test_references_to_other_schemas_are_resolved() -> None:
    old, new = Referenced("n.json", '{"type":"integer"}'), Referenced("n.json", '{"type":"number"}')
    schema = has(a={"$ref": "n.json"})
    assert parsed(schema, new).cannot_read(parsed(schema, old)) == []
    assert [each.path for each in parsed(schema, old).cannot_read(parsed(schema, new))] == ["/properties/a/type"]


# --- what the rule promises, tried

VALUES: st.SearchStrategy[Json] = st.recursive(
    st.sampled_from((None, True, 0, 1, 2.5, 4, "", "a", "bc")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)
LEAVES = st.sampled_from(
    (
        *(STRING, INTEGER, NUMBER, NULL, {}, True, False, {"type": ["string", "null"]}, {"const": "a"}),
        *({"enum": ["a", 1]}, {"minimum": 1}, {**NUMBER, "maximum": 2}, {**STRING, "minLength": 1}, {"maxLength": 1}),
        *({"type": "boolean"}, {"multipleOf": 2}, {"exclusiveMinimum": 1}, {"minItems": 1}, {"minProperties": 1}),
    )
)


def _around(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    several = st.lists(inner, min_size=1, max_size=2)
    names = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
    objects = st.fixed_dictionaries(
        {"properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2)},
        optional={
            "type": st.just("object"),
            "required": names,
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(("a", "b|c")), inner, max_size=1),
        },
    )
    # `additionalItems` beside `items: true` makes jsonschema stumble.
    arrays = st.fixed_dictionaries({"items": inner}, optional={"type": st.just("array")}) | st.fixed_dictionaries(
        {"items": several}, optional={"additionalItems": inner}
    )
    sums = st.one_of(*(st.fixed_dictionaries({key: several}) for key in ("anyOf", "oneOf", "allOf")))
    return objects | arrays | sums | st.fixed_dictionaries({"not": inner}) | st.builds(_both, sums, objects)


def _both(one: Json, other: Json) -> Json:
    return {**one, **other}


SCHEMAS = st.recursive(LEAVES, _around, max_leaves=4)


@settings(max_examples=examples(250))
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=1, max_size=12), st.integers(0, 3))
def test_compatible_schema_validates_old_values(writer: Json, other: Json, values: list[Json], how: int) -> None:
    reader = (other, {"anyOf": [other, writer]}, _wider(writer), writer)[how]
    if parsed(reader).cannot_read(parsed(writer)):
        return
    for value in values:
        if Draft7Validator(writer).is_valid(value):
            note(f"{value!r} is valid by {writer}, and shall be by {reader}")
            assert Draft7Validator(reader).is_valid(value)


def _wider(schema: Json) -> Json:
    """Types that allow more, one by one; no rule may be deceived by what is around them."""
    if isinstance(schema, list):
        return [_wider(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: NUMBER["type"] if value == "integer" else _wider(value)
        for key, value in schema.items()
        if key != "minimum"
    }
