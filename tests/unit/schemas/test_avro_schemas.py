"""Avro: which texts are schemas, and what they are kept as."""

import json
import re
from typing import Any

import pytest

from barnabas.schemas.formats.avro import parse_avro
from barnabas.schemas.formats.parsed import InvalidSchema, Referenced
from barnabas.schemas.registry.library import Library
from barnabas.schemas.registry.state import Subjects
from barnabas.schemas.registry.words import Content

CANONICAL = (
    ('"string"', '"string"'),
    ("string", '"string"'),
    ('{ "type" : "string" }', '"string"'),
    ('{"type":{"type":"string"}}', '"string"'),
    ('{"logicalType":"date","type":"int"}', '{"type":"int","logicalType":"date"}'),
    ('["null",{"items":"int","type":"array"}]', '["null",{"type":"array","items":"int"}]'),
    (
        '{"symbols":["A"],"name":"a.b.E","type":"enum","default":"A","doc":"d"}',
        '{"type":"enum","name":"E","namespace":"a.b","doc":"d","symbols":["A"],"default":"A"}',
    ),
    (
        '{"type":"record","name":"R","namespace":"a","fields":[{"type":"a.R","order":"ascending","name":"x","k":1},'
        '{"name":"y","type":{"type":"fixed","name":"b.F","size":2},"aliases":["z"],"default":"\\u00ff\\u0001"},'
        '{"name":"f","type":"b.F"}],"aliases":["O","c.P"]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"x","type":"R","k":1},'
        '{"name":"y","type":{"type":"fixed","name":"F","namespace":"b","size":2},"default":"ÿ\\u0001","aliases":["z"]},'
        '{"name":"f","type":"b.F"}],"aliases":["O","c.P"]}',
    ),
)


@pytest.mark.parametrize(("given", "canonical"), CANONICAL)
def test_schemas_are_stored_in_canonical_form(given: str, canonical: str) -> None:
    schema = parse_avro(given)
    assert schema.canonical == canonical
    assert parse_avro(canonical).canonical == canonical
    assert parse_avro(schema.normalized).canonical == canonical


def record(*fields: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields), **more})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ('{"type":"strin"}', "unknown type 'strin'"),
        ("nothing", "unknown type 'nothing'"),
        ("[]x", "not JSON"),
        ("3", "is not a schema"),
        ('{"type":"record","name":"R"}', "without a list of fields"),
        (record({"name": "x", "type": "int"}, {"name": "x", "type": "int"}), "/fields/1: a second field x"),
        (record({"name": "x"}), "a field has a name and a type"),
        (record({"name": "2x", "type": "int"}), "is not a name"),
        (record({"name": "x", "type": "int", "order": "up"}), "order 'up'"),
        (record({"name": "x", "type": record()}), "unknown type"),
        (record({"name": "x", "type": json.loads(record())}), "R is defined a second time"),
        ('["int","int"]', "a second int in a union"),
        ('["int",["null"]]', "a union directly within a union"),
        ('{"type":"array"}', "array without items"),
        ('{"type":"fixed","name":"F","size":-1}', "fixed F of size -1"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "duplicate symbol"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "is not a symbol of E"),
        ('{"type":"enum","name":"E","symbols":["a-b"]}', "is not a name"),
        ('{"type":"fixed","name":"int","size":1}', "is a type of Avro and"),
        ('{"type":"bytes","logicalType":"decimal","precision":2,"scale":3}', "a decimal of precision 2 and scale 3"),
        ('{"type":"fixed","name":"F","size":1,"logicalType":"decimal","precision":3}', "does not fit into 1 bytes"),
        ('{"type":"array","items":' * 200 + '"int"' + "}" * 200, "nested deeper than 100"),
        (record({"name": "x", "type": "double", "default": float("nan")}), "NaN is not a JSON value"),
    ],
)
def test_invalid_avro_schema_is_an_error(text: str, why: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parse_avro(text)
    assert why in str(refused.value)


def test_types_of_other_schemas() -> None:
    page = Referenced("page", '{"type":"record","name":"web.Page","fields":[{"name":"path","type":"string"}]}')
    schema = parse_avro('{"type":"array","items":"web.Page"}', [page])
    assert schema.canonical == '{"type":"array","items":"web.Page"}'
    assert json.loads(schema.resolved)["items"]["name"] == "Page"
    with pytest.raises(InvalidSchema, match="reference page"):
        parse_avro('"int"', [Referenced("page", "{")])


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record({"name": "x", "type": "int", "default": "1"}), "the default '1' of field x"),
        (record({"name": "x", "type": "int", "default": 2**31}), "is not of type INT"),
        (record({"name": "x", "type": ["null", "int"], "default": "n"}), "is not of type UNION"),
    ],
)
def test_wrong_default_is_refused_only_where_defaults_are_validated(schema: str, said: str) -> None:
    content = Content("AVRO", schema)
    assert parse_avro(schema).wrong_default
    Library().parse(content, Subjects(), fresh=True)
    strict = Library(validate_defaults=True)
    for _ in range(2):  # the second time it is known
        with pytest.raises(InvalidSchema, match=re.escape(said)):
            strict.parse(content, Subjects(), fresh=True)
    assert strict.parse(content, Subjects()), "a schema that is stored already can be read"
