"""Numeric series as JSON lines, {"ts": ..., "metric": ..., "value": ...}."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POINTS = 240
SERIES_MAX = 24
SAMPLES = 10
_SECONDS = (-62_135_596_800, 253_402_300_799)
"""The years 1 to 9999."""
_MILLISECONDS_FROM = 1e11
"""A `ts` from here on is in milliseconds (as seconds it would be the year 5138)."""


@frozen(kw_only=True)
class Series:
    """One metric: averages, lowest and highest per bucket; times in seconds since 1970."""

    name: str
    count: int
    times: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


@frozen(kw_only=True)
class MetricFigures:
    """The figures of a report of metrics; `lines` = `parsed` + `malformed`."""

    lines: int
    parsed: int
    malformed: int
    malformed_samples: Sequence[str]
    counts: Mapping[str, int]
    series: Sequence[Series]


def is_metrics(samples: Sequence[bytes]) -> bool:
    """True if most of the samples are JSON objects with a metric and a number."""

    def fits(sample: bytes) -> bool:
        try:
            found = json.loads(sample)
        except (ValueError, RecursionError):
            return False
        return isinstance(found, dict) and "metric" in found and isinstance(found.get("value"), int | float)

    return bool(samples) and sum(map(fits, samples)) * 2 > len(samples)


def metric_figures(lines: "DataFrame") -> MetricFigures:
    """All figures of the rows with a column `value`."""
    from pyspark.sql import functions as f

    parsed = _parse(lines).persist()
    try:
        good = parsed.where("seconds IS NOT NULL AND metric IS NOT NULL AND number IS NOT NULL")
        span = good.agg(f.min("seconds"), f.max("seconds"), f.count("*")).first()
        assert span is not None
        first, last, count = span
        bad = parsed.where("seconds IS NULL OR metric IS NULL OR number IS NULL")
        malformed = bad.count()
        samples = [row.line[:500] for row in bad.select("line").limit(SAMPLES).collect()] if malformed else []
        cells: Sequence[Mapping[str, Any]] = []
        if count:
            width = max((last - first) / POINTS, 0.001)
            bucket = f.floor((f.col("seconds") - first) / width).alias("bucket")
            grouped = good.groupBy(f.col("metric"), bucket).agg(
                f.avg("seconds").alias("time"),
                f.avg("number").alias("mean"),
                f.min("number").alias("low"),
                f.max("number").alias("high"),
                f.count("*").alias("count"),
            )
            rows = grouped.orderBy("metric", "bucket").collect()
            cells = [row.asDict() for row in rows]
    finally:
        parsed.unpersist()
    series = _series(cells)
    return MetricFigures(
        lines=count + malformed,
        parsed=count,
        malformed=malformed,
        malformed_samples=samples,
        counts={each.name: each.count for each in series},
        series=series[:SERIES_MAX],
    )


def _parse(lines: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    text = f.make_valid_utf8(f.coalesce(f.col("value").cast("string"), f.lit("")))
    found = f.from_json(text, "ts STRING, metric STRING, value DOUBLE")
    rows = lines.select(text.alias("line"), found.alias("json"))
    number = f.col("json.value")
    finite = number.isNotNull() & ~f.isnan(number) & (f.abs(number) < float("inf"))
    return rows.select(
        "line",
        _seconds(f.col("json.ts")).alias("seconds"),
        f.col("json.metric").alias("metric"),
        f.when(finite, number).alias("number"),
    )


def _seconds(ts: "Column") -> "Column":
    """Seconds since 1970 of a number of seconds, a number of milliseconds, or an ISO time."""
    from pyspark.sql import functions as f

    number = ts.try_cast("double")
    seconds = f.when(f.abs(number) >= _MILLISECONDS_FROM, number / 1000).otherwise(number)
    found = f.coalesce(seconds, f.unix_micros(f.try_to_timestamp(ts)) / 1e6)
    return f.when(found.between(*_SECONDS), found)


def _series(cells: Sequence[Mapping[str, Any]]) -> list[Series]:
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        by_name.setdefault(str(cell["metric"]), []).append(cell)
    return [
        Series(
            name=name,
            count=sum(int(cell["count"]) for cell in rows),
            times=[cell["time"] for cell in rows],
            means=[cell["mean"] for cell in rows],
            lows=[cell["low"] for cell in rows],
            highs=[cell["high"] for cell in rows],
        )
        for name, rows in by_name.items()
    ]
