"""Compatibility of Avro schemas: cases by the specification, and the results of fastavro."""

import io
import json
from typing import Any

import avro.schema
import fastavro
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given, note, settings
from hypothesis import strategies as st
from support.long_tests import examples

from barnabas.schemas.formats.avro import AvroSchema, parse_avro
from barnabas.schemas.formats.compatibility import Compatibility, conflicts
from barnabas.schemas.formats.json_schema import parse_json_schema
from barnabas.schemas.formats.parsed import InvalidSchema, Referenced

Json = Any


def parsed(schema: Json) -> AvroSchema:
    return parse_avro(json.dumps(schema))


def record(*fields: Json, name: str = "R", **more: Json) -> Json:
    return {"type": "record", "name": name, "fields": [_field(each) for each in fields], **more}


def _field(given: Json) -> Json:
    return {"name": given[0], "type": given[1], **(given[2] if len(given) > 2 else {})}


def enum(*symbols: str, **more: Json) -> Json:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Json) -> Json:
    return {"type": "fixed", "name": name, "size": size, **more}


def decimal(precision: int, scale: int) -> Json:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


TREE = record(("kids", {"type": "array", "items": "R"}), ("v", "int"))
TREE_LONG = record(("kids", {"type": "array", "items": "R"}), ("v", "long"))
SAME = ["int", enum("A"), fixed(3), record(), {"type": "map", "values": "int"}, ["null", "int"], TREE]
READS: list[tuple[str, Json, Json]] = [
    *((f"same {number}", each, each) for number, each in enumerate(SAME)),
    ("int to long", "long", "int"),
    ("int to float", "float", "int"),
    ("long to float", "float", "long"),
    ("float to double", "double", "float"),
    ("string to bytes", "bytes", "string"),
    ("bytes to string", "string", "bytes"),
    ("in arrays", {"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ("a field less", record(("a", "int")), record(("a", "int"), ("b", "int"))),
    ("a field more, with a default", record(("a", "int"), ("b", "int", {"default": 0})), record(("a", "int"))),
    ("a field by its alias", record(("b", "int", {"aliases": ["a"]})), record(("a", "int"))),
    ("another namespace", record(namespace="x"), record(namespace="y")),
    ("another name, by its alias", record(name="S", aliases=["R"]), record()),
    ("a symbol more", enum("A", "B"), enum("A")),
    ("a symbol less, with a default", enum("A", default="A"), enum("A", "B")),
    ("into a union", ["null", "long"], "int"),
    ("out of a union of one", "long", ["int"]),
    ("out of a union, all fit", "double", ["int", "float"]),
    ("a branch more", ["null", "int", "string"], ["null", "int"]),
    ("a union without branches", "int", []),
    ("recursive", TREE_LONG, TREE),
    ("a decimal of more digits", decimal(9, 2), decimal(4, 2)),
]
DOES_NOT: list[tuple[str, Json, Json, str, str]] = [
    ("long to int", "int", "long", "TYPE_MISMATCH", "/"),
    ("double to float", "float", "double", "TYPE_MISMATCH", "/"),
    ("int to string", "string", "int", "TYPE_MISMATCH", "/"),
    ("int to boolean", "boolean", "int", "TYPE_MISMATCH", "/"),
    ("array to map", {"type": "map", "values": "int"}, {"type": "array", "items": "int"}, "TYPE_MISMATCH", "/"),
    ("fixed to bytes", "bytes", fixed(3), "TYPE_MISMATCH", "/"),
    ("items", {"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "TYPE_MISMATCH", "/items"),
    ("values", {"type": "map", "values": "int"}, {"type": "map", "values": "long"}, "TYPE_MISMATCH", "/values"),
    (
        "a field more, without a default",
        record(("a", "int"), ("b", "int")),
        record(("a", "int")),
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/1",
    ),
    ("a field's type", record(("a", "int")), record(("a", "string")), "TYPE_MISMATCH", "/fields/0/type"),
    ("another name", record(name="S"), record(), "NAME_MISMATCH", "/name"),
    ("an alias of the writer's", record(name="S"), record(aliases=["S"]), "NAME_MISMATCH", "/name"),
    ("a symbol less", enum("A"), enum("A", "B"), "MISSING_ENUM_SYMBOLS", "/symbols"),
    ("a default of the writer's", enum("A"), enum("A", "B", default="A"), "MISSING_ENUM_SYMBOLS", "/symbols"),
    ("another size", fixed(4), fixed(3), "FIXED_SIZE_MISMATCH", "/size"),
    ("a branch less", ["null", "int"], ["null", "int", "string"], "MISSING_UNION_BRANCH", "/2"),
    ("into a union without it", ["null", "int"], "long", "MISSING_UNION_BRANCH", "/"),
    ("out of a union, one does not fit", "int", ["int", "null"], "TYPE_MISMATCH", "/"),
    ("deep in a branch", ["null", record(("a", "int"))], record(("a", "long")), "TYPE_MISMATCH", "/fields/0/type"),
    ("recursive", TREE, TREE_LONG, "TYPE_MISMATCH", "/fields/1/type"),
    ("another scale", decimal(4, 1), decimal(4, 2), "TYPE_MISMATCH", "/scale"),
    ("fewer digits", decimal(3, 2), decimal(4, 2), "TYPE_MISMATCH", "/precision"),
]


@pytest.mark.parametrize(("reader", "writer"), [case[1:] for case in READS], ids=[case[0] for case in READS])
def test_compatible_avro_schemas_read_each_other(reader: Json, writer: Json) -> None:
    assert parsed(reader).cannot_read(parsed(writer)) == []
    assert reads_by_the_rule_of_avro(reader, writer)


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "path"), [case[1:] for case in DOES_NOT], ids=[case[0] for case in DOES_NOT]
)
def test_incompatible_avro_reader_has_difference(reader: Json, writer: Json, kind: str, path: str) -> None:
    found = parsed(reader).cannot_read(parsed(writer))
    assert [(each.kind, each.path) for each in found] == [(kind, path)]


def test_every_incompatibility_is_reported() -> None:
    found = parsed(record(("a", "int"), ("b", "int"), name="S")).cannot_read(parsed(record(("a", "string"))))
    assert [each.kind for each in found] == ["NAME_MISMATCH", "TYPE_MISMATCH", "READER_FIELD_MISSING_DEFAULT_VALUE"]


def test_types_that_refer_to_each_other_without_end_in_sight() -> None:
    """Nine hundred schemas, each of which needs the one before."""

    def chain(kind: str) -> AvroSchema:
        texts = [
            json.dumps(record(("f", kind if number == 0 else f"R{number - 1}"), name=f"R{number}"))
            for number in range(900)
        ]
        return parse_avro(texts[-1], [Referenced(f"R{number}", text) for number, text in enumerate(texts[:-1])])

    with pytest.raises(InvalidSchema, match="too deep"):
        conflicts(Compatibility.BACKWARD, chain("long"), [(1, chain("int"))])


def test_levels_say_which_versions_are_looked_at() -> None:
    """Three versions of a record: a field came with a default, then lost it."""
    first, second = parsed(record()), parsed(record(("a", "int", {"default": 1})))
    third = parsed(record(("a", "int")))
    older = [(1, first), (2, second)]
    assert conflicts(Compatibility.BACKWARD, third, older) == []
    refused = conflicts(Compatibility.BACKWARD_TRANSITIVE, third, older)
    assert refused[0].startswith(
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'At /fields/0: field a of the new"
    )
    assert refused[-3:] == [
        "{oldSchemaVersion: 1}",
        f"{{oldSchema: '{first.canonical}'}}",
        "{compatibility: 'BACKWARD_TRANSITIVE'}",
    ]
    for level in (Compatibility.FORWARD, Compatibility.FORWARD_TRANSITIVE, Compatibility.FULL, Compatibility.NONE):
        assert conflicts(level, third, older) == []
    assert conflicts(Compatibility.FULL_TRANSITIVE, third, older) == [
        *refused[:-1],
        "{compatibility: 'FULL_TRANSITIVE'}",
    ]
    (forward, *_) = conflicts(Compatibility.FORWARD, first, [(3, third)])
    assert "field a of the old schema has no default, and the new schema does not have the field" in forward
    (other, *_) = conflicts(Compatibility.BACKWARD, parse_json_schema("{}"), older)
    assert "a schema of type JSON is incompatible with one of type AVRO" in other


# --- what the rule promises, tried: data of the writer's schema is decoded with the reader's

NAMES = ("a", "b", "c")
PLAIN = st.sampled_from(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "x",
    "string": "y",
}
ENUMS = st.builds(
    lambda symbols, default: enum(*symbols, **({"default": symbols[0]} if default else {})),
    st.lists(st.sampled_from("ABC"), min_size=1, max_size=3, unique=True),
    st.booleans(),
)


@st.composite
def records(draw: st.DrawFn, inner: st.SearchStrategy[Json]) -> Json:
    """Fields with and without defaults and aliases."""
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    fields = []
    for name in names:
        kind = draw(inner)
        more: dict[str, Json] = {}
        if isinstance(kind, str) and draw(st.booleans()):
            more["default"] = DEFAULTS[kind]
        if draw(st.integers(0, 3)) == 0:
            more["aliases"] = [draw(st.sampled_from(NAMES))]
        fields.append((name, kind, more))
    return record(*fields)


def _containers(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.one_of(
        st.builds(lambda each: {"type": "array", "items": each}, inner),
        st.builds(lambda each: {"type": "map", "values": each}, inner),
        records(inner),
    )


SCHEMAS = st.recursive(
    st.one_of(
        PLAIN, ENUMS, st.sampled_from((fixed(1), fixed(2))), st.lists(PLAIN, min_size=1, max_size=3, unique=True)
    ),
    _containers,
    max_leaves=4,
)


def one_definition(schema: Json) -> bool:
    """Named types are defined once each: the strategies use the same names again."""
    text = json.dumps(schema)
    return all(text.count(f'"name": "{name}"') <= 1 for name in ("R", "E", "F"))


@st.composite
def values_of(draw: st.DrawFn, schema: Json) -> Any:
    """Draw a value that the schema writes."""
    if isinstance(schema, list):
        return draw(values_of(draw(st.sampled_from(schema))))
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("record", "map"):
        inner = (
            {each["name"]: each["type"] for each in schema["fields"]} if kind == "record" else {"k": schema["values"]}
        )
        return {name: draw(values_of(each)) for name, each in inner.items()}
    if kind == "array":
        return [draw(values_of(schema["items"]))]
    if kind == "enum":
        return draw(st.sampled_from(schema["symbols"]))
    plain: dict[str, st.SearchStrategy[Any]] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.text(max_size=3).map(str.encode),  # what is read as a string has to be one
        "string": st.text(max_size=3),
        "fixed": st.just(b"x" * (schema["size"] if kind == "fixed" else 0)),
    }
    return draw(plain[kind])


WIDER = {
    "int": ("long", "double"),
    "long": ("float",),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


@st.composite
def evolved(draw: st.DrawFn, schema: Json) -> Json:
    """Draw a later version of a schema: mostly a compatible one."""
    if isinstance(schema, list):
        return [*draw(st.permutations(schema)), *(["null"] if "null" not in schema else [])]
    if isinstance(schema, str):
        wider = draw(st.sampled_from((schema, *WIDER.get(schema, ()))))
        return ["null", wider] if wider != "null" and draw(st.integers(0, 4)) == 0 else wider
    if schema["type"] == "record":
        fields = [{**each, "type": draw(evolved(each["type"]))} for each in draw(st.permutations(schema["fields"]))]
        fields = [{key: each[key] for key in ("name", "type")} for each in fields[draw(st.integers(0, 1)) :]]
        return {
            **schema,
            "fields": [*fields, {"name": "new", "type": "int", **draw(st.sampled_from(({}, {"default": 1})))}],
        }
    if schema["type"] == "enum":
        return {**schema, "symbols": draw(st.permutations("ABCD"))}
    inner = {key: draw(evolved(schema[key])) for key in ("items", "values") if key in schema}
    return {**schema, **inner}


def reads_by_the_rule_of_avro(reader: Json, writer: Json) -> bool:
    """Return the verdict of Apache Avro's own package, which does not know decimals."""
    schemas = [avro.schema.parse(json.dumps(each)) for each in (reader, writer)]
    rule: Any = ReaderWriterCompatibilityChecker  # its annotations are not what it takes
    found = rule().get_compatibility(*schemas)
    return bool(found.compatibility is SchemaCompatibilityType.compatible)


@settings(max_examples=examples(150))
@given(st.data(), SCHEMAS.filter(one_definition), SCHEMAS.filter(one_definition))
def test_compatible_schema_decodes_old_values(data: st.DataObject, writer: Json, reader: Json) -> None:
    """With one that was made of the other, and with two that have nothing to do with each other."""
    changed = reader if data.draw(st.integers(0, 3)) == 0 else data.draw(evolved(writer))
    value = data.draw(values_of(writer))
    differences = parsed(changed).cannot_read(parsed(writer))
    note(f"writer {writer}, reader {changed}: {differences}")
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(writer), value)
    written.seek(0)
    assert (not differences) == reads_by_the_rule_of_avro(changed, writer)
    if not differences:
        fastavro.schemaless_reader(written, fastavro.parse_schema(writer), fastavro.parse_schema(changed))
