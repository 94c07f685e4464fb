"""Between messages and columns, as JSON."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def json_fields(rows: "DataFrame", schema: str, *keep: str) -> "DataFrame":
    """The fields of JSON values as columns: `schema` is Spark's ("address STRING, bytes BIGINT"), `keep` names columns
    of the messages that stay (`timestamp`, `key`, ...). A value that is no JSON object has null in all fields; a field
    of the same name as a kept column takes its place. Batches and streams.
    """
    from pyspark.sql import functions as f

    parsed = f.from_json(f.col("value").cast("string"), schema).alias("_fields")
    columns = [f.col(name).alias(name) for name in keep]
    return rows.select(*columns, parsed).select(*keep, "_fields.*")


def as_messages(rows: "DataFrame", *key: str) -> "DataFrame":
    """Turn rows into messages, for `write.format("barnabas")`: `key` (the named columns, as text, with "|" between
    several; a window is given by its start) and `value`, all columns as a JSON object. Without names the key is null.
    Batches and streams.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    def text(name: str) -> "Column":
        column = f.col(name)
        window = isinstance(rows.schema[name].dataType, StructType)
        return (column.getField("start") if window else column).cast("string")

    named = f.concat_ws("|", *map(text, key)) if key else f.lit(None).cast("string")
    return rows.select(named.alias("key"), f.to_json(f.struct(*rows.columns)).alias("value"))
