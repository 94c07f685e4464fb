"""Columns of Avro are what fastavro reads row by row, whatever the schemas; odd rows are reported, and no others."""

import io
import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastavro import schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from barnabas.ports.errors import ConfigError
from barnabas.schemas.client import RegisteredSchema, RegistryRefused
from barnabas.schemas.columns.avro import AvroColumns
from barnabas.schemas.loaded_avro import load_avro


class Known:
    """Stands for a registry's client, by what it says about ids."""

    def __init__(self, *schemas: Any) -> None:
        self.schemas = schemas
        self.asked = 0

    def by_id(self, schema_id: int) -> RegisteredSchema:
        self.asked += 1
        if schema_id > len(self.schemas):
            raise RegistryRefused("Schema not found", 40403)
        return RegisteredSchema(id=schema_id, kind="AVRO", text=json.dumps(self.schemas[schema_id - 1]))

    def referred(self, schema: RegisteredSchema) -> dict[str, str]:
        return {}


def columns(reader: Any, *written: Any) -> AvroColumns:
    return AvroColumns(Known(*(written or (reader,))), load_avro(reader))  # type: ignore[arg-type]


def message(schema: Any, value: Any, schema_id: int = 1) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, load_avro(schema).parsed, value)
    return b"\0" + struct.pack(">I", schema_id) + out.getvalue()


LEAVES = st.sampled_from(
    [
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "string",
        "bytes",
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "long", "logicalType": "local-timestamp-micros"},
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
        {"type": "string", "logicalType": "uuid"},
    ]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda t: ["null", t] if not isinstance(t, list) else t),
        inner.map(lambda t: {"type": "array", "items": t}),
        inner.map(lambda t: {"type": "map", "values": t}),
        st.lists(inner, min_size=1, max_size=3).map(lambda ts: {"type": "record", "fields": ts}),
    ),
    max_leaves=6,
)


def named(kind: Any, path: str = "R") -> Any:
    """Records with names, and no union in a union."""
    if isinstance(kind, list):
        return [named(each, path) for each in kind]
    if isinstance(kind, dict) and kind["type"] == "record":
        fields = [{"name": f"f{i}", "type": named(each, f"{path}{i}")} for i, each in enumerate(kind["fields"])]
        return {"type": "record", "name": path, "fields": fields}
    if isinstance(kind, dict) and kind["type"] == "array":
        return {"type": "array", "items": named(kind["items"], path)}
    if isinstance(kind, dict) and kind["type"] == "map":
        return {"type": "map", "values": named(kind["values"], path)}
    return kind


RAW = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        return st.one_of(st.none(), values(kind[1]))
    if isinstance(kind, str):
        return RAW[kind]
    match kind.get("logicalType") or kind["type"]:
        case "record":
            return st.fixed_dictionaries({each["name"]: values(each["type"]) for each in kind["fields"]})
        case "array":
            return st.lists(values(kind["items"]), max_size=4)
        case "map":
            return st.dictionaries(st.text(max_size=5), values(kind["values"]), max_size=4)
        case "date":
            return st.integers(-10_000, 10_000).map(int)
        case "timestamp-millis":
            return st.integers(-(10**12), 10**13)
        case "timestamp-micros" | "local-timestamp-micros":
            return st.integers(-(10**15), 10**16)
        case "decimal":
            return st.decimals(min_value=-(10**16), max_value=10**16, places=3)
        case _:
            return st.uuids().map(str)


def as_read(value: Any) -> Any:
    """Return Arrow's form of a value that fastavro has decoded."""
    if isinstance(value, dict):
        return {key: as_read(each) for key, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: as_read(each) for key, each in value}
    if isinstance(value, list):
        return [as_read(each) for each in value]
    return str(value) if type(value).__name__ == "UUID" else value


@given(st.data())
def test_avro_columns_equal_those_of_fastavro(data: st.DataObject) -> None:
    schema = {"type": "record", "name": "Top", "fields": [{"name": "x", "type": named(data.draw(TYPES))}]}
    rows = data.draw(st.lists(values(schema), min_size=1, max_size=6))
    encoded = [message(schema, row) for row in rows]
    parsed = load_avro(schema).parsed
    expected = [as_read(schemaless_reader(io.BytesIO(each[5:]), parsed, None)) for each in encoded]
    found = columns(schema).decode(pa.array([None, *encoded], pa.binary()).slice(1))
    assert found.errors == {}
    found.values.validate(full=True)
    assert [_maps(row, found.values.type) for row in found.values.to_pylist()] == expected


def _maps(value: Any, kind: pa.DataType) -> Any:
    """Maps of Arrow come as lists of pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: _maps(value[each.name], each.type) for each in kind}
    if pa.types.is_map(kind):
        return {key: _maps(each, kind.item_type) for key, each in value}
    if pa.types.is_list(kind):
        return [_maps(each, kind.value_type) for each in value]
    return value


@given(st.data())
def test_cut_and_changed_bytes_are_an_error_or_another_value_but_never_touch_other_rows(data: st.DataObject) -> None:
    schema = {"type": "record", "name": "Top", "fields": [{"name": "x", "type": named(data.draw(TYPES))}]}
    good = message(schema, data.draw(values(schema)))
    broken = bytearray(message(schema, data.draw(values(schema))))
    if len(broken) > 5:
        place = data.draw(st.integers(5, len(broken) - 1))
        if data.draw(st.booleans()):
            del broken[place:]
        else:
            broken[place] = data.draw(st.integers(0, 255))
    decoder = columns(schema)
    found = decoder.decode(pa.array([good, bytes(broken), good], pa.binary()))
    alone = decoder.decode(pa.array([good], pa.binary()))
    assert set(found.errors) <= {1}
    assert found.values[0].equals(alone.values[0])
    assert found.values[2].equals(alone.values[0])
    if 1 in found.errors:
        assert not found.values[1].is_valid
        assert found.errors[1].startswith("schema 1: ")


V1 = {"type": "record", "name": "V", "fields": [{"name": "a", "type": "int"}, {"name": "gone", "type": "string"}]}
V2 = {
    "type": "record",
    "name": "V",
    "fields": [
        {"name": "new", "type": ["null", "string"], "default": None},
        {"name": "b", "type": "long", "aliases": ["a"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["none"]},
    ],
}


def test_rows_of_several_schemas_are_read_with_the_newest() -> None:
    decoder = columns(V2, V1, V2)
    two = {"new": "n", "b": 2**40, "tags": []}
    rows = [message(V1, {"a": 1, "gone": "x"}), None, message(V2, two, 2), message(V1, {"a": 3, "gone": ""})]
    found = decoder.decode(pa.array(rows, pa.binary()))
    decoder.decode(pa.array(rows, pa.binary()))
    assert found.errors == {}
    assert found.values.to_pylist() == [
        {"new": None, "b": 1, "tags": ["none"]},
        None,
        two,
        {"new": None, "b": 3, "tags": ["none"]},
    ]
    assert decoder._client.asked == 2  # type: ignore[attr-defined]


A_OR_B = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    "written,read,value,expected",
    [
        ("int", "double", 3, 3.0),
        ("long", "float", 2**24 + 1, float(2**24)),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", b"abc", "abc"),
        ("int", ["null", "long"], 3, 3),
        (["null", "int"], "int", 3, 3),
        (["int", "string"], ["string", "int"], "x", {"member0": "x", "member1": None}),
        ("int", ["string", "long"], 3, {"member0": None, "member1": 3}),
        (["int", "long"], ["int", "long"], 2**40, 2**40),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["B"]},
            "B",
            "B",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["B"], "default": "B"},
            "A",
            "B",
        ),
        ({"type": "fixed", "name": "F", "size": 3}, {"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [1, 2], [1, 2]),
    ],
)
def test_the_rules_of_resolution(written: Any, read: Any, value: Any, expected: Any) -> None:
    found = columns(read, written).decode(pa.array([message(written, value)], pa.binary()))
    assert found.errors == {}
    assert found.values.to_pylist() == [expected]


@pytest.mark.parametrize(
    "written,read,text",
    [
        ("string", "int", "written as string, to be read as int"),
        (
            V1,
            {"type": "record", "name": "V", "fields": [{"name": "z", "type": "int"}]},
            "z: missing in the writer's schema",
        ),
        ({"type": "fixed", "name": "F", "size": 3}, {"type": "fixed", "name": "F", "size": 4}, "written as fixed F"),
    ],
)
def test_incompatible_writer_schemas_are_reported_for_each_row(written: Any, read: Any, text: str) -> None:
    value = {"string": "x", "record": {"a": 1, "gone": ""}}.get(
        written if isinstance(written, str) else written["type"], b"abc"
    )
    found = columns(read, written).decode(pa.array([message(written, value)] * 2, pa.binary()))
    assert set(found.errors) == {0, 1}
    assert text in found.errors[0]


def test_values_without_a_schema_are_reported() -> None:
    rows = [
        b"",
        b"plain text",
        b"\0\0\0\0\7rest",
        message("long", 5),
        message("long", 5) + b"x",
        message("long", 5)[:-1],
    ]
    found = columns("long").decode(pa.array(rows, pa.binary()))
    assert found.values.to_pylist() == [None, None, None, 5, None, None]
    assert found.errors[0] == "no schema's id: expected 00 and four bytes of an id, got nothing"
    assert found.errors[1].endswith("got 706c61696e")
    assert found.errors[2] == "schema 7: Schema not found"
    assert "left over" in found.errors[4]


def test_very_long_arrays_are_read_one_by_one() -> None:
    schema = {"type": "array", "items": "string"}
    rows = [["x"] * 5000, ["y"], [], ["z"] * 1000]
    found = columns(schema).decode(pa.array([message(schema, row) for row in rows], pa.binary()))
    assert found.errors == {}
    assert found.values.to_pylist() == rows


def test_a_block_with_its_size() -> None:
    block = b"\0\0\0\0\1" + bytes([3, 4, 2, 4, 2, 6, 0])  # -2 items in 2 bytes; one more; the end
    assert columns({"type": "array", "items": "int"}).decode(pa.array([block], pa.binary())).values.to_pylist() == [
        [1, 2, 3]
    ]


def test_recursive_records_have_no_columns() -> None:
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}
    with pytest.raises(ConfigError, match="T is recursive"):
        columns(tree)


def test_a_large_batch_is_one_of_columns() -> None:
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}
    rows = [{"n": n, "s": str(n)} for n in range(-5000, 5000)]
    found = columns(schema).decode(pa.array([message(schema, row) for row in rows], pa.binary()))
    assert np.array_equal(found.values.field("n").to_numpy(), np.arange(-5000, 5000))
    assert found.values.field("s").to_pylist() == [row["s"] for row in rows]
