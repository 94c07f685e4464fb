"""Figures of the records of any topic, whatever is in them: times, sizes, keys, and samples."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ..topics.model import NO_BROKER, ClusterPartition
from .charts import bucket_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS = 15
NEWEST = 5
SHOWN_CHARACTERS = 600
FIELDS_MAX = 60
_DEPTH_MAX = 4


@frozen(kw_only=True)
class SampleRecord:
    """One record as text; bytes that are no text are shown as hexadecimal digits. `key` and `value` None: null."""

    partition: str
    offset: int
    time_ms: int | None
    key: str | None
    value: str | None


@frozen(kw_only=True)
class FieldFigures:
    """A field of JSON objects, by its path: in how many of the rows that were looked at, and what it holds."""

    path: str
    rows: int
    types: Sequence[str]
    example: str


@frozen(kw_only=True)
class RecordFigures:
    """Sizes in bytes, of values; buckets of time in seconds since 1970."""

    lines: int
    size_bytes: int
    median_bytes: int
    largest_bytes: int
    tombstones: int
    bucket_s: int
    rows_per_bucket: Mapping[int, int]
    bytes_per_bucket: Mapping[int, int]
    partitions: Mapping[str, int]
    """The counts by partition number, or by "broker-partition" of a classic cluster."""
    keyed: int
    """Rows that have a key."""
    distinct_keys: int
    """The approximate number of different keys."""
    key_counts: Mapping[str, int]
    newest: Sequence[SampleRecord]
    fields: Sequence[FieldFigures] = ()
    field_rows: int = 0
    """Rows that were looked at for fields, and were JSON objects."""


def record_figures(rows: "DataFrame", some_values: Sequence[bytes]) -> RecordFigures:
    """Figures of the rows of one topic of a table. `some_values`: in which fields are looked for."""
    from pyspark.sql import functions as f

    there = set(rows.columns)
    moment = f.coalesce(f.col("timestamp"), f.to_timestamp("day")) if "day" in there else f.col("timestamp")
    broker = f.col("broker") if "broker" in there else f.lit(NO_BROKER)
    seconds, size = f.unix_timestamp(moment), f.length("value")
    rows = rows.select(
        *("key", "value", "partition", "offset", "timestamp"),
        f.coalesce(broker, f.lit(NO_BROKER)).alias("broker"),
        seconds.alias("seconds"),
        size.alias("size"),
    )
    found = rows.agg(
        f.count("*").alias("lines"),
        f.sum("size").alias("bytes"),
        f.percentile_approx("size", 0.5).alias("median"),
        f.max("size").alias("largest"),
        f.count("value").alias("values"),
        f.count("key").alias("keyed"),
        f.approx_count_distinct("key", 0.01).alias("keys"),
        f.min("seconds").alias("first"),
        f.max("seconds").alias("last"),
    ).first()
    assert found is not None
    bucket_s = bucket_for((found["last"] or 0) - (found["first"] or 0))
    per_bucket: Counter[int] = Counter()
    bytes_per_bucket: Counter[int] = Counter()
    per_partition: Counter[ClusterPartition] = Counter()
    bucket = (f.floor(f.col("seconds") / bucket_s) * bucket_s).alias("bucket")
    cells = rows.groupBy(bucket, "broker", "partition").agg(f.count("*").alias("count"), f.sum("size").alias("bytes"))
    for cell in cells.collect():
        per_partition[ClusterPartition("", cell.partition, cell.broker)] += cell["count"]
        if cell.bucket is not None:
            per_bucket[cell.bucket] += cell["count"]
            bytes_per_bucket[cell.bucket] += cell.bytes or 0
    fields, objects = json_fields(some_values)
    return RecordFigures(
        lines=found["lines"],
        size_bytes=found["bytes"] or 0,
        median_bytes=found["median"] or 0,
        largest_bytes=found["largest"] or 0,
        tombstones=found["lines"] - found["values"],
        bucket_s=bucket_s,
        rows_per_bucket=per_bucket,
        bytes_per_bucket=bytes_per_bucket,
        partitions={place.key: count for place, count in sorted(per_partition.items())},
        keyed=found["keyed"],
        distinct_keys=min(found["keys"], found["keyed"]),
        key_counts=_top_keys(rows) if found["keyed"] else {},
        newest=[_sample(row) for row in rows.orderBy(f.desc("seconds"), f.desc("offset")).limit(NEWEST).collect()],
        fields=fields,
        field_rows=objects,
    )


def json_fields(values: Sequence[bytes]) -> tuple[list[FieldFigures], int]:
    """The fields of those values that are JSON objects, the most frequent first; and how many are."""
    seen: dict[str, _Seen] = {}
    objects = 0
    for value in values:
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            objects += 1
            for path, each in _leaves(found, "", 1):
                seen.setdefault(path, _Seen()).add(each)
    if objects * 2 <= len(values):
        return [], 0
    ordered = sorted(seen.items(), key=lambda item: -item[1].rows)[:FIELDS_MAX]
    figures = [
        FieldFigures(path=path, rows=each.rows, types=sorted(each.types), example=each.example)
        for path, each in ordered
    ]
    return figures, objects


@define
class _Seen:
    rows: int = 0
    types: set[str] = field(factory=set)
    example: str = ""

    def add(self, value: Any) -> None:
        self.rows += 1
        self.types.add(_type_of(value))
        if not self.example and value is not None:
            self.example = json.dumps(value, ensure_ascii=False)[:80]


def _leaves(found: Mapping[str, Any], above: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and value and depth < _DEPTH_MAX:
            yield from _leaves(value, f"{path}.", depth + 1)
        else:
            yield path, value


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names[type(value)]


def _top_keys(rows: "DataFrame") -> dict[str, int]:
    from pyspark.sql import functions as f

    key = _text(f.substring(f.col("key"), 1, 200)).alias("name")
    keys = rows.where("key IS NOT NULL").groupBy(key).count().orderBy(f.desc("count"), "name").limit(KEYS).collect()
    return {row.name: row["count"] for row in keys}


def _text(column: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.make_valid_utf8(column.cast("string"))


def _sample(row: Any) -> SampleRecord:
    time_ms = None if row.timestamp is None or row.seconds is None else int(row.seconds) * 1000
    place = ClusterPartition("", row.partition, row.broker)
    return SampleRecord(
        partition=place.key, offset=row.offset, time_ms=time_ms, key=shown(row.key), value=shown(row.value)
    )


def shown(content: bytes | None) -> str | None:
    """Return content for a person: text, or else hexadecimal digits; shortened if it is long."""
    if content is None:
        return None
    data = bytes(content[: SHOWN_CHARACTERS * 4])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3 or len(data) == len(content):
            return f"0x{data[: SHOWN_CHARACTERS // 4].hex()}" + ("..." if len(content) > SHOWN_CHARACTERS // 4 else "")
        text = data[: error.start].decode()
    more = len(text) > SHOWN_CHARACTERS or len(data) < len(content)
    return text[:SHOWN_CHARACTERS] + ("..." if more else "")
