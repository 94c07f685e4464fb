"""Loads of typed values: columns that grow with the schemas, and a quarantine for what does not decode."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.registry_stub import RegistryStub, registry_stub

from barnabas import Broker, Producer
from barnabas.pipeline.load import LoadResult, TableLoad, TopicsFailed, load
from barnabas.pipeline.table import read_table
from barnabas.pipeline.tables.state import TableError
from barnabas.pipeline.tables.typed import TopicNotTyped
from barnabas.schemas import AvroEncoder
from barnabas.schemas.client import RegistryUnreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
WIDE_POINT = {
    **POINT,
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"], "default": None}],
}


def _visit(point: Any, *more: Any) -> dict[str, Any]:
    points = {"name": "points", "type": {"type": "array", "items": point}}
    return {"type": "record", "name": "Visit", "fields": [{"name": "id", "type": "long"}, points, *more]}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory") as running:
        yield running


@pytest.fixture(scope="module")
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


def _send(broker: Broker, stub: RegistryStub, topic: str, schema: Any, *values: Any) -> None:
    with Producer(broker, encoder=AvroEncoder(stub.url, schema)) as producer:
        producer.send_many(topic, list(values))


def _soil(broker: Broker, topic: str, *values: bytes) -> None:
    with Producer(broker) as producer:
        producer.send_many(topic, list(values))


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_columns_grow_and_nothing_is_lost(
    spark: "SparkSession",
    broker: Broker,
    stub: RegistryStub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
) -> None:
    topic, folder = f"visits-{format_}", tmp_path / "table"

    def load_more(**more: Any) -> LoadResult:
        observed = {"value_format": "avro", "registry": stub.url, "format": format_, "spark": spark, **more}
        return load(broker.bootstrap, [topic], folder, **observed)

    _send(broker, stub, topic, _visit(POINT), {"id": 1, "points": [{"x": 1}]})
    _soil(broker, topic, b"plain text")
    first = load_more()
    assert (first.rows, first.quarantined) == (1, 1)

    wide = _visit(WIDE_POINT, {"name": "note", "type": "string", "default": ""})
    _send(broker, stub, topic, wide, {"id": 2, "points": [{"x": 2, "y": 3}], "note": "n"}, None)
    stub.subjects[f"{topic}-value"].append(stub.put("other", json.dumps(wide)))
    _soil(broker, topic, b"more text")
    with monkeypatch.context() as broken:

        def fail(*arguments: Any) -> None:
            raise TableError("killed here")

        broken.setattr(TableLoad, "_commit", fail)
        with pytest.raises(TableError, match="killed here"):
            load_more()
    second = load_more()
    assert (second.rows, second.quarantined) == (2, 1)
    rows = read_table(spark, folder).orderBy("offset").select("offset", "value").collect()
    found = [(row.offset, row.value and row.value.asDict(recursive=True)) for row in rows]
    assert found == [
        (0, {"id": 1, "points": [{"x": 1, "y": None}], "note": None}),
        (2, {"id": 2, "points": [{"x": 2, "y": 3}], "note": "n"}),
        (3, None),
    ]
    bad = read_table(spark, folder / "_quarantine").orderBy("offset").select("offset", "value", "error").collect()
    assert [(row.offset, bytes(row.value)) for row in bad] == [(1, b"plain text"), (4, b"more text")]
    assert bad[0].error == "no schema's id: expected 00 and four bytes of an id, got 706c61696e"

    assert load_more(since_ms=0).replaced_rows == 3
    assert read_table(spark, folder).count() == 3
    assert read_table(spark, folder / "_quarantine").count() == 2


@pytest.mark.slow
def test_another_type_stops_its_topic_only(
    spark: "SparkSession", broker: Broker, stub: RegistryStub, tmp_path: Path
) -> None:
    _send(broker, stub, "good", {"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}, {"id": 1})
    _send(
        broker, stub, "text", {"type": "record", "name": "A", "fields": [{"name": "id", "type": "string"}]}, {"id": "1"}
    )
    observed: dict[str, Any] = {"value_format": "avro", "registry": stub.url, "spark": spark}
    load(broker.bootstrap, ["good"], tmp_path, **observed)
    _soil(broker, "unknown", b"x")
    _send(broker, stub, "good", {"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}, {"id": 2})
    with pytest.raises(TopicsFailed) as failed:
        load(broker.bootstrap, ["good", "text", "unknown"], tmp_path, **observed)
    assert failed.value.result.rows == 1
    assert isinstance(failed.value.failed["text"], TopicNotTyped)
    assert "value.id is bigint in the table and string in the schema now" in str(failed.value.failed["text"])
    assert "Subject not found" in str(failed.value.failed["unknown"])
    for wrong, kind, text in (
        ({}, TableError, "has typed values: load with --value-format as before"),
        ({**observed, "value_format": "json"}, TopicNotTyped, "is of type AVRO, expected JSON"),
        ({**observed, "registry": "http://127.0.0.1:1"}, RegistryUnreachable, "127.0.0.1:1"),
    ):
        with pytest.raises(kind, match=text):  # although nothing is new
            load(broker.bootstrap, ["good"], tmp_path, **{"spark": spark, **wrong})
    _soil(broker, "good", b"one more")
    with pytest.raises(RegistryUnreachable):
        load(broker.bootstrap, ["good"], tmp_path, **{**observed, "registry": "http://127.0.0.1:1"})
    assert load(broker.bootstrap, ["good"], tmp_path, **observed).quarantined == 1
