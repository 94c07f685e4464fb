import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructField, StructType

from barnabas.pipeline.source.datasource import ArrowWriter, by_topic
from barnabas.pipeline.source.options import write_options
from barnabas.ports.errors import ConfigError

OPTIONS = write_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})
NO_TOPIC = write_options({"kafka.bootstrap.servers": "h:1"})


def _schema(*fields: tuple[str, str]) -> StructType:
    pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    kinds = {"string": StringType(), "binary": BinaryType(), "int": IntegerType(), "headers": ArrayType(pair)}
    return StructType([StructField(name, kinds[kind]) for name, kind in fields])


def test_rows_by_topic_with_what_messages_have() -> None:
    batch = pa.record_batch(
        {
            "key": pa.array(["k", None, "l"]),
            "value": pa.array([b"v", None, b"w"], pa.binary()),
            "partition": pa.array([3, None, -1], pa.int32()),
            "topic": pa.array(["x", "y", "x"]),
            "other": pa.array([1, 2, 3]),
        }
    )
    columns = ["key", "value", "topic", "partition"]
    assert [(topic, rows.to_pylist()) for topic, rows in by_topic(batch, columns, None)] == [
        ("x", [{"key": "k", "value": b"v", "partition": 3}, {"key": "l", "value": b"w", "partition": None}]),
        ("y", [{"key": None, "value": None, "partition": None}]),
    ]
    ((topic, rows),) = by_topic(batch, columns, "z")
    assert (topic, rows.num_rows, rows.schema.names) == ("z", 3, ["key", "value", "partition"])


def test_a_row_without_a_topic_is_an_error() -> None:
    batch = pa.record_batch({"value": pa.array(["v"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(ConfigError, match="null in its topic"):
        list(by_topic(batch, ["value", "topic"], None))


def test_columns_are_checked() -> None:
    assert ArrowWriter(OPTIONS, _schema(("value", "binary"), ("other", "int"))).columns == ["value"]
    assert ArrowWriter(NO_TOPIC, _schema(("value", "string"), ("topic", "string"))).columns == ["value", "topic"]
    ArrowWriter(OPTIONS, _schema(("value", "string"), ("headers", "headers")))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([("key", "string")], "column 'value' is needed"),
        ([("value", "int")], "column 'value' must be binary or string, not int"),
        ([("value", "string"), ("partition", "string")], "column 'partition' must be integer or long"),
        ([("value", "string"), ("headers", "string")], "column 'headers' must be array"),
        ([("value", "string")], "say where to"),
    ],
)
def test_wrong_columns_say_what_is_right(fields: list[tuple[str, str]], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ArrowWriter(NO_TOPIC, _schema(*fields))
