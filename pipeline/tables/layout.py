"""Layout of a table: its rows are in folders by topic, within it by time, by a field, or by a hash of the key."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from ...ports.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DEFAULT_LAYOUT = "day"
NOT_PARTITIONED = "none"
PARTITION_VALUE_CHARACTERS = 100
_TIMES: Mapping[str, Mapping[str, str]] = {
    "hour": {"day": "date", "hour": "int"},
    "day": {"day": "date"},
    "month": {"month": "date"},
}
"""Columns and their types, as Spark's SQL calls them."""
_KNOWN = (
    "hour, day, month (of the record's time), field:NAME (of a JSON value), header:NAME, key, key-hash:BUCKETS, "
    "several with a comma, or none"
)
_RESERVED = {
    *("key", "value", "topic", "partition", "offset", "timestamp", "timestamptype", "headers", "broker"),
    *("wrapperindex", "day", "hour", "month", "key_hash"),
}


@frozen
class _Part:
    """`kind` is one of `hour`, `field`, ...; `argument` a name or a number."""

    kind: str
    argument: str = ""

    @property
    def columns(self) -> Mapping[str, str]:
        if self.kind in _TIMES:
            return _TIMES[self.kind]
        if self.kind == "key-hash":
            return {"key_hash": "int"}
        name = "key_text" if self.kind == "key" else re.sub(r"\W", "_", self.argument)
        return {f"{self.kind}_{name}" if name.lower() in _RESERVED else name: "string"}

    def __str__(self) -> str:
        return f"{self.kind}:{self.argument}" if self.argument else self.kind


@frozen
class Layout:
    """The partition columns of a table after `topic`, which is the first."""

    parts: Sequence[_Part]

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """Parse the text of `--partition-by`. Raises `ConfigError`."""
        words = [word.strip() for word in text.split(",") if word.strip()]
        layout = cls([] if words == [NOT_PARTITIONED] else [_part(word) for word in words])
        names = [name.lower() for part in layout.parts for name in part.columns]
        if not words or len(set(names)) < len(names):
            raise ConfigError(f"partition_by {text!r} names a column twice, or none; known: {_KNOWN}")
        return layout

    @property
    def types(self) -> dict[str, str]:
        """The partition columns, `topic` first, with their types as Spark's SQL calls them: string, date, int."""
        columns = {"topic": "string"}
        for part in self.parts:
            columns |= part.columns
        return columns

    def __str__(self) -> str:
        return ",".join(str(part) for part in self.parts) or NOT_PARTITIONED

    def with_columns(self, rows: "DataFrame", moment: "Column") -> "DataFrame":
        """Return the rows with these columns; `moment` is the record's time. An empty text becomes null, as Spark has
        it."""
        for part in self.parts:
            for name, column in _expressions(part, moment, rows).items():
                rows = rows.withColumn(name, column)
        return rows


def agreed_layout(of_table: str | None, wanted: str | None) -> Layout:
    """Raises `ConfigError` when another one is wanted than the table has."""
    asked = None if wanted is None else Layout.parse(wanted)
    if of_table is None:
        return asked or Layout.parse(DEFAULT_LAYOUT)
    if asked is not None and str(asked) != of_table:
        raise ConfigError(f"the table is partitioned by {of_table}, not by {asked}; load into another folder")
    return Layout.parse(of_table)


def _part(word: str) -> _Part:
    kind, _, argument = word.partition(":")
    plain = not argument and kind in (*_TIMES, "key")
    named = kind in ("field", "header") and argument
    hashed = kind == "key-hash" and re.fullmatch(r"[1-9]\d{0,3}", argument)
    if not (plain or named or hashed):
        raise ConfigError(f"partition_by {word!r} is not known; known: {_KNOWN}")
    return _Part(kind, argument)


def _expressions(part: _Part, moment: "Column", rows: "DataFrame") -> "dict[str, Column]":
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    if part.kind in _TIMES:
        times = {
            "day": f.to_date(moment),
            "hour": f.hour(moment),
            "month": f.trunc(moment, "month"),
        }
        return {name: times[name] for name in part.columns}
    if part.kind == "key-hash":
        buckets = f.lit(int(part.argument))
        return {"key_hash": (f.crc32("key") % buckets).cast("int")}
    if part.kind == "key":
        text = f.col("key").cast("string")
    elif part.kind == "field" and isinstance(rows.schema["value"].dataType, StructType):
        fields = rows.schema["value"].dataType.names
        if part.argument not in fields:
            raise ConfigError(f"partition_by field:{part.argument}: the values have {', '.join(fields)}")
        text = f.col("value")[part.argument].cast("string")
    elif part.kind == "field":
        text = f.get_json_object(f.col("value").cast("string"), f"$.{part.argument}")
    else:
        there = f.filter("headers", lambda header: header["key"] == f.lit(part.argument))
        text = f.try_element_at(there, f.lit(-1))["value"].cast("string")
    (name,) = part.columns
    return {name: f.substring(text, 1, PARTITION_VALUE_CHARACTERS)}
