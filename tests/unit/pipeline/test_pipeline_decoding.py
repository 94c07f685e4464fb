"""The options of typed columns, the chosen schemas, and the errors for rows that do not decode."""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from support.registry_stub import RegistryStub, registry_stub

from barnabas.pipeline.source.datasource import source_schema
from barnabas.pipeline.source.decoding import Undecodable, decoded_batches, settled, typed_schema
from barnabas.pipeline.source.decoding_options import ColumnDecoding, decoding_of, encoding_of
from barnabas.ports.errors import ConfigError
from barnabas.schemas.client import RegistryUnreachable

URL = "http://127.0.0.1:1"
ID = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


def chosen(given: dict[str, str], topics: Sequence[str] = ("t",), sample: Sequence[bytes] = ()) -> ColumnDecoding:
    decoding = decoding_of(given)
    assert decoding is not None
    return settled(decoding, topics, lambda column: sample)


@pytest.mark.parametrize(
    "given,text",
    [
        ({"value.format": "xml"}, "value.format must be one of avro, json, protobuf, bytes, not 'xml'"),
        ({"value.format": "avro"}, "value.format=avro needs schema.registry.url"),
        ({"value.format": "json", "value.schema.id": "1"}, "needs schema.registry.url"),
        (
            {"value.format": "json", "mode": "DROPMALFORMED"},
            "nothing is dropped in silence here: filter on value_error",
        ),
        ({"value.schema": "id INT"}, "value.schema has no meaning without value.format"),
        ({"mode": "PERMISSIVE"}, "mode has no meaning without value.format or key.format"),
        ({"value.format": "json", "value.schema": "id INT", "value.schema.file": "f"}, "give one of value.schema and"),
        ({"value.format": "json", "value.schema.file": "/no/such"}, "value.schema.file cannot be read"),
        ({"value.format": "avro", "schema.registry.url": URL, "value.schema.id": "x"}, "must be a whole number"),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        decoding_of(given)


def test_options_of_a_write() -> None:
    assert encoding_of({}) is None
    with pytest.raises(ConfigError, match=r"use.latest.version must be 'true' or 'false'"):
        encoding_of({"value.format": "avro", "schema.registry.url": URL, "use.latest.version": "yes"})
    with pytest.raises(ConfigError, match=r"has no meaning without value\.format"):
        encoding_of({"auto.register.schemas": "true"})


def test_the_schema_is_the_newest_of_the_topics_subject(stub: RegistryStub) -> None:
    given = {"value.format": "avro", "schema.registry.url": stub.url}
    stub.put("a-value", json.dumps(ID))
    stub.put("b-value", json.dumps(ID))
    assert chosen(given, ["a", "b"]).columns[0].schema_id == 1
    stub.put("b-value", '"string"')
    with pytest.raises(ConfigError, match=r"several schemas \(a-value has 1, b-value has 2\): read them one by one"):
        chosen(given, ["a", "b"])
    assert chosen({**given, "value.subject": "b-value"}, ["a", "b"]).columns[0].schema_id == 2
    with pytest.raises(ConfigError, match="topics by a pattern have no common subject"):
        chosen(given, [])
    with pytest.raises(RegistryUnreachable, match="start one, or correct the address"):
        chosen({**given, "schema.registry.url": URL})


def test_json_schema_is_inferred_from_sample() -> None:
    given = {"value.format": "json"}
    raw = source_schema(include_headers=False)
    found = typed_schema(raw, chosen(given, sample=[b'{"id": 1}', b'{"name": "x"}']))
    assert found["value"].dataType == StructType([StructField("id", LongType()), StructField("name", StringType())])
    with pytest.raises(ConfigError, match="there is nothing to infer the type of value from"):
        chosen(given)
    with pytest.raises(ConfigError, match=r"no type can be inferred of value: .*give value.schema"):
        chosen(given, sample=[b"plain text"])


def rows_of(*values: bytes) -> tuple[StructType, pa.RecordBatch]:
    raw, count = source_schema(include_headers=False), len(values)
    row = {"value": values, "topic": ["t"] * count, "partition": [0] * count, "offset": range(7, 7 + count)}
    schema = to_arrow_schema(raw, timezone="UTC")
    columns = [pa.array(row[f.name], f.type) if f.name in row else pa.nulls(count, f.type) for f in schema]
    return raw, pa.RecordBatch.from_arrays(columns, schema=schema)


def test_a_registry_that_is_away_is_no_fault_of_the_rows() -> None:
    given = {"value.format": "avro", "schema.registry.url": URL, "value.schema": json.dumps(ID), "mode": "PERMISSIVE"}
    raw, batch = rows_of(b"\0\0\0\0\1\2")
    lenient = chosen(given)
    with pytest.raises(RegistryUnreachable, match="start one, or correct the address"):
        list(decoded_batches([batch], lenient, to_arrow_schema(typed_schema(raw, lenient), timezone="UTC")))


def test_rows_that_do_not_decode() -> None:
    raw, batch = rows_of(b'{"id": 1}', b"{")
    strict = chosen({"value.format": "json", "value.schema": "id BIGINT"})
    with pytest.raises(Undecodable, match="t-0 offset 8: value does not decode: not JSON of this type"):
        list(decoded_batches([batch], strict, to_arrow_schema(typed_schema(raw, strict), timezone="UTC")))
    lenient = chosen({"value.format": "json", "value.schema": "id BIGINT", "mode": "permissive"})
    wide = typed_schema(raw, lenient)
    assert [(f.name, f.dataType) for f in wide][-2:] == [("value_raw", BinaryType()), ("value_error", StringType())]
    [found] = decoded_batches([batch], lenient, to_arrow_schema(wide, timezone="UTC"))
    assert found.column("value").to_pylist() == [{"id": 1}, None]
    assert found.column("value_raw").to_pylist() == [None, b"{"]
    assert [error is None for error in found.column("value_error").to_pylist()] == [True, False]
