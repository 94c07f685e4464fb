"""Typed columns of topics: with a registry and without, in a batch and in a stream, read and written."""

import datetime
import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.registry_stub import RegistryStub, registry_stub
from support.spark_streams import despite_slow_workers

from barnabas import Broker, Consumer, Producer
from barnabas.pipeline.session import register
from barnabas.pipeline.source.decoding import parse_ddl
from barnabas.pipeline.spark.errors import summary
from barnabas.schemas import AvroEncoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

OLD = {"type": "record", "name": "Visit", "fields": [{"name": "id", "type": "long"}]}
AT = {"type": "long", "logicalType": "timestamp-millis"}
NEW = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", AT], "default": None},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "default": "\0",
        },
        {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {}},
    ],
}
NOON = datetime.datetime(2011, 6, 12, 12, tzinfo=datetime.UTC)
VISIT = {"id": 2, "at": NOON, "price": decimal.Decimal("1.50"), "tags": {"a": 1}}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory") as running:
        yield running


@pytest.fixture(scope="module")
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


def _options(broker: Broker, stub: RegistryStub, topic: str, **options: str) -> dict[str, str]:
    place = {"kafka.bootstrap.servers": broker.bootstrap, "schema.registry.url": stub.url}
    return {**place, "subscribe": topic, "value.format": "avro", **{k.replace("_", "."): v for k, v in options.items()}}


def _visits(broker: Broker, stub: RegistryStub, topic: str) -> None:
    with Producer(broker, encoder=AvroEncoder(stub.url, OLD)) as producer:
        producer.send_many(topic, [{"id": 1}])
    with Producer(broker, encoder=AvroEncoder(stub.url, NEW)) as producer:
        producer.send_many(topic, [VISIT, None])


def test_rows_of_old_and_new_schemas(spark: "SparkSession", broker: Broker, stub: RegistryStub) -> None:
    _visits(broker, stub, "visits")
    frame = register(spark).read.format("barnabas").options(**_options(broker, stub, "visits")).load()
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,at:timestamp,price:decimal(9,2),tags:map<string,int>>"
    )
    rows = (
        frame.orderBy("offset").selectExpr("value.id", "unix_seconds(value.at)", "value.price", "value.tags").collect()
    )
    nothing = (None,) * 4
    assert [tuple(row) for row in rows] == [
        (1, None, decimal.Decimal(0), {}),
        (2, int(NOON.timestamp()), decimal.Decimal("1.50"), {"a": 1}),
        nothing,
    ]
    first = str(stub.subjects["visits-value"][0])
    pinned = spark.read.format("barnabas").options(**_options(broker, stub, "visits", value_schema_id=first)).load()
    assert pinned.where("value is not null").selectExpr("value.*").columns == ["id"]


def test_value_that_does_not_decode_is_an_error(spark: "SparkSession", broker: Broker, stub: RegistryStub) -> None:
    _visits(broker, stub, "soiled")
    with Producer(broker) as producer:
        producer.send_many("soiled", [b"plain text", b"\0\0\0\0\x63gone"])
    frame = register(spark).read.format("barnabas").options(**_options(broker, stub, "soiled"))
    with pytest.raises(Exception, match="soiled") as failed:
        frame.load().collect()
    assert "soiled-0 offset 3: value does not decode: no schema's id" in summary(str(failed.value))
    assert "mode=PERMISSIVE" in summary(str(failed.value))
    rows = frame.option("mode", "PERMISSIVE").load().orderBy("offset").collect()
    assert [row.value_error is None for row in rows] == [True, True, True, False, False]
    assert [row.value is None for row in rows] == [False, False, True, True, True]
    assert bytes(rows[3].value_raw) == b"plain text"
    assert rows[4].value_error.startswith("schema 99: ")
    assert rows[0].value_raw is None


@pytest.mark.slow
def test_a_stream_of_json_without_a_registry(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    with Producer(broker, encoder="json") as producer:
        producer.send_many("plain", [{"id": n, "more": {"x": [n]}} for n in range(50)])
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "plain", "value.format": "json"}
    inferred = register(spark).read.format("barnabas").options(**options).load()
    assert inferred.schema["value"].dataType.simpleString() == "struct<id:bigint,more:struct<x:array<bigint>>>"
    observed = {**options, "value.schema": "id INT, more STRING", "startingOffsets": "earliest"}
    stream = spark.readStream.format("barnabas").options(**observed).load()
    seen: list[tuple[int, str]] = []

    def keep(batch: "DataFrame", number: int) -> None:
        seen.extend((row.id, row.more) for row in batch.selectExpr("value.*").collect())

    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    despite_slow_workers(lambda: query.start().awaitTermination())
    assert sorted(seen) == [(n, json.dumps({"x": [n]}, separators=(",", ":"))) for n in range(50)]


def test_types_are_read_as_spark_reads_them(spark: "SparkSession") -> None:
    from pyspark.sql.types import DataType

    texts = (
        "id BIGINT, `odd ``name` STRING NOT NULL COMMENT 'it''s', d DECIMAL(9,2), e decimal",
        "a: array<struct<x: int, m: map<string, array<timestamp_ntz>>>>, s struct<>",
        "map<string,date>",
        "string",
    )
    for text in texts:
        assert parse_ddl(text) == DataType.fromDDL(text), text


@pytest.mark.slow
def test_typed_rows_are_written(spark: "SparkSession", broker: Broker, stub: RegistryStub) -> None:
    frame = spark.sql(
        "select named_struct('id', 7L, 'day', date'2011-06-12', 'tags', map('a', array(1, null))) as value, 'k' as key"
    )
    place = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "written"}
    register(spark)
    with pytest.raises(Exception, match="say how it is to be encoded"):
        frame.write.format("barnabas").options(**place).mode("append").save()
    for name in ("avro", "json"):
        options = {**place, "value.format": name, "schema.registry.url": stub.url, "value.subject": f"written-{name}"}
        frame.write.format("barnabas").options(**options).mode("append").save()
    with Consumer(broker) as consumer:
        consumer.assign("written", position="earliest")
        first, second = [message.value for message in consumer.messages(stop_at_end=True)]
    assert AvroEncoder(stub.url).decode("written", first) == {
        "id": 7,
        "day": datetime.date(2011, 6, 12),
        "tags": {"a": [1, None]},
    }
    assert second is not None
    assert json.loads(second[5:]) == {"id": 7, "day": "2011-06-12", "tags": {"a": [1, None]}}
