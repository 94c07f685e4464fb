"""Streams over topics: small functions over DataFrames, for `rows.transform(...)`, and sinks for their results.

All of them take and return DataFrames of Spark, batches and streams unless they say otherwise; arguments have Spark's
names. docs/streams.md shows each of them. Sinks are for `writeStream.foreachBatch`: topics, Delta tables and pages.

`watch` gives rates and lag of a session's streams to Prometheus and the log. Spark's API for Python data sources has no
place for metrics of a source, and the sinks of Spark's own metrics know the rates alone. Spark notifies a listener of
each batch, though, with its rates and the offsets of the sources.
"""

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..app.extras import install_command, require
from ..ports.errors import ConfigError
from .report.panels import Panel, write_page
from .session import SPARK_PACKAGES
from .source.options import write_options
from .source.stream_plan import StreamOffsets
from .topics.model import ClusterPartition

try:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )
except ModuleNotFoundError as error:
    text = f"streams: {error.name} not installed; to get it: {install_command('spark')}"
    raise ImportError(text, name=__name__) from None

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

__all__ = [
    "anomaly_scores",
    "append_batches",
    "as_messages",
    "co_occurrence",
    "connector_checkpoint",
    "deduplicated",
    "item_pairs",
    "join_latest",
    "join_within",
    "json_fields",
    "latest",
    "offsets_behind_latest",
    "over_limit",
    "page_batches",
    "rate_limited",
    "sessions",
    "table_batches",
    "top_k",
    "watch",
    "windowed_counts",
]


_log = logging.getLogger("barnabas.pipeline")


@frozen(kw_only=True)
class StreamState:
    """State of a stream after its last batch; the rates and `rows` as in Spark's progress."""

    batch: int
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    batch_s: float
    """The time from its planning until it was committed."""
    behind: Mapping[ClusterPartition, int]
    """Offsets to the end of each partition of the topics that it reads, as it was when the batch was planned."""

    @property
    def offsets_behind(self) -> int:
        """The sum over all partitions."""
        return sum(self.behind.values())


class StreamWatch(StreamingQueryListener):
    """The streams of a session that have done a batch and not ended, by their names, or ids where they have none."""

    def __init__(self, spark: "SparkSession", registry: "CollectorRegistry | None" = None) -> None:
        self._spark = spark
        self._registry = registry
        self._lock = threading.Lock()
        self._states: dict[str, tuple[str, StreamState]] = {}
        spark.streams.addListener(self)
        if registry is not None:
            registry.register(self)

    @property
    def streams(self) -> dict[str, StreamState]:
        """The states by the streams' names."""
        with self._lock:
            return dict(self._states.values())

    def stop(self) -> None:
        """Look no longer. Twice is harmless."""
        self._spark.streams.removeListener(self)
        if self._registry is not None:
            self._registry.unregister(self)
            self._registry = None

    def collect(self) -> "Iterator[GaugeMetricFamily]":
        """Yield gauges for a registry of prometheus_client: lag as kafka_exporter has it of groups, rates as Spark
        names them.
        """
        from prometheus_client.core import GaugeMetricFamily

        def gauge(name: str, text: str, *labels: str) -> "GaugeMetricFamily":
            return GaugeMetricFamily(name, text, labels=labels)

        lag = gauge("kafka_consumergroup_lag", "Offsets behind latest", "consumergroup", "topic", "partition")
        sums = gauge("kafka_consumergroup_lag_sum", "Offsets behind latest, all partitions", "consumergroup", "topic")
        given = gauge("spark_streaming_input_rows_per_second", "Rows that came in between batches, per second", "query")
        done = gauge("spark_streaming_processed_rows_per_second", "Rows of the last batch per second of it", "query")
        took = gauge("spark_streaming_batch_seconds", "How long the last batch took", "query")
        for name, state in self.streams.items():
            by_topic: dict[str, int] = {}
            for tp, behind in state.behind.items():
                lag.add_metric([name, tp.topic, tp.key], behind)
                by_topic[tp.topic] = by_topic.get(tp.topic, 0) + behind
            for topic, behind in by_topic.items():
                sums.add_metric([name, topic], behind)
            given.add_metric([name], state.input_rows_per_second)
            done.add_metric([name], state.processed_rows_per_second)
            took.add_metric([name], state.batch_s)
        yield from (lag, sums, given, done, took)

    # --- called by Spark

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Ignore the start of a stream: it has no figures yet."""

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """A batch is done, or there was none to do for a while."""
        progress = event.progress
        name, state = progress.name or str(progress.id), _state(progress)
        with self._lock:
            self._states[str(progress.id)] = (name, state)
        text = "stream %s: batch %d had %d rows, %.0f rows/s, %.2f s; %d offsets behind latest"
        rate = state.processed_rows_per_second
        _log.info(text, name, state.batch, state.rows, rate, state.batch_s, state.offsets_behind)

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """Remove the figures of the ended stream."""
        with self._lock:
            self._states.pop(str(event.id), None)


def watch(spark: "SparkSession", registry: "CollectorRegistry | None" = None) -> StreamWatch:
    """Keep the rates and the lag of all streams of a session at hand, from now on until `stop()`.

    They are in `streams` of what is returned, in the log (`barnabas.pipeline`, a line at INFO per batch), and among the
    metrics of `registry`, where one of prometheus_client is given: `kafka_consumergroup_lag` with the stream's name as
    the group, `spark_streaming_processed_rows_per_second` and others. Streams of Spark's own Kafka source are watched,
    too. The lag of a stream without a topic is empty.
    """
    return StreamWatch(spark, registry)


def _state(progress: Any) -> StreamState:
    behind: dict[ClusterPartition, int] = {}
    for source in progress.sources:
        try:
            behind |= behind_latest(source)
        except (ConfigError, ValueError):
            continue  # offsets of another kind of source
    return StreamState(
        batch=progress.batchId,
        rows=progress.numInputRows,
        input_rows_per_second=_number(progress.inputRowsPerSecond),
        processed_rows_per_second=_number(progress.processedRowsPerSecond),
        batch_s=progress.durationMs.get("triggerExecution", 0) / 1000,
        behind=behind,
    )


def _number(found: float | None) -> float:
    """Spark says NaN, or nothing, for a rate of no rows in no time."""
    return found if found is not None and isfinite(found) else 0.0


def offsets_behind_latest(source: Any) -> dict[str, str]:
    """Return the lag of a stream behind the ends of its topics' partitions: minOffsetsBehindLatest,
    maxOffsetsBehindLatest and avgOffsetsBehindLatest, as Spark's Kafka source has them among the metrics of its
    progress.

    `source` is one of `query.lastProgress.sources`, or of `event.progress.sources` in a `StreamingQueryListener`.
    Empty before the first batch. Python data sources cannot put metrics into the progress themselves.
    """
    behind = list(behind_latest(source).values())
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def behind_latest(source: Any) -> dict[ClusterPartition, int]:
    """Return the lag of each partition."""
    end, latest = (_offsets(source, name) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return {}
    return {
        tp: offset - (0 if end.another(tp.topic, latest.topic_ids.get(tp.topic, "")) else end.positions.get(tp, 0))
        for tp, offset in latest.positions.items()
    }


def _offsets(source: Any, name: str) -> StreamOffsets | None:
    """Read offsets from Spark's progress, which has them as JSON in an object, or as a mapping in a mapping."""
    found = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if isinstance(found, str):
        found = json.loads(found)
    return StreamOffsets.unpacked(found) if found and isinstance(found, Mapping) else None


def table_batches(folder: Path | str, *keys: str, appId: str = "barnabas-stream") -> "Callable[[DataFrame, int], None]":
    """For `writeStream.foreachBatch(...)`: bring the rows of each batch into the Delta table in `folder`.

    With `keys` a row takes the place of the one with the same values in these columns (`window` and what was counted
    by; output modes update and complete); without, rows are appended. The number of the batch is an application
    transaction `appId` inside the commit, so a batch that Spark repeats after a failure is not written again: give each
    query into one table a name of its own, and a new name with a new checkpoint. For results, not for raw topics
    (`barnabas load`): a batch passes through the driver's memory. Raises `ConfigError` when deltalake is missing.
    """
    require("a table of results", (*SPARK_PACKAGES, "deltalake"), "tables")

    def write(rows: "DataFrame", batch: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        if unknown := [name for name in keys if name not in rows.columns]:
            raise ConfigError(f"no column {', '.join(unknown)} in the rows; there is {', '.join(rows.columns)}")
        where = str(Path(folder).absolute())
        there = DeltaTable.is_deltatable(where)
        if there:
            done = DeltaTable(where).transaction_version(appId)
            if done is not None and done >= batch:
                rows.write.format("noop").mode("overwrite").save()  # Spark wants its state computed nevertheless
                return
        found = (rows.dropDuplicates([*keys]) if keys else rows).toArrow()
        if there and not found.num_rows:
            return
        note = CommitProperties(app_transactions=[Transaction(appId, batch)])
        if not there or not keys:
            write_deltalake(where, found, mode="append", commit_properties=note)
            return
        same = " AND ".join(f'target."{name}" IS NOT DISTINCT FROM source."{name}"' for name in keys)
        merge = DeltaTable(where).merge(
            found, same, source_alias="source", target_alias="target", commit_properties=note
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return write


def page_batches(
    path: Path | str,
    title: str,
    panels: "Callable[[Sequence[Mapping[str, Any]]], Sequence[Panel]]",
    *,
    keys: Sequence[str],
) -> "Callable[[DataFrame, int], None]":
    """For `writeStream.foreachBatch(...)`: keep the newest row for each value of the columns `keys`, and write the page
    that `panels` makes of these rows (as mappings) after each batch, in one step.

    For results that a page can show, thousands of rows at most: they stay in the driver's memory, and are forgotten
    when the query starts again (the output mode complete brings them back).
    """
    rows_by_key: dict[tuple[object, ...], Mapping[str, Any]] = {}

    def write(rows: "DataFrame", batch: int) -> None:
        for row in rows.collect():
            found = row.asDict(recursive=True)
            rows_by_key[tuple(repr(found[name]) for name in keys)] = found
        write_page(Path(path), title, f"after micro-batch {batch}", panels(list(rows_by_key.values())))

    return write


def append_batches(**options: str) -> "Callable[[DataFrame, int], None]":
    """For `writeStream.foreachBatch(...)`: append the rows of each batch to topics, with the options of `df.write`.

    Spark refuses the output mode `update` for data sources in Python; with this it can be had, as Spark's Kafka sink
    has it: the rows that changed are appended. At least once, like the sink. Raises `ConfigError` at once for wrong
    options. `**{"kafka.bootstrap.servers": ...}` for those with dots.
    """
    chosen = write_options(options)
    if chosen.txn_version is not None:
        raise ConfigError("txnVersion is the number of each batch here: leave it out")

    def append(rows: "DataFrame", batch: int) -> None:
        numbered = {} if chosen.txn_app_id is None else {"txnVersion": str(batch)}
        rows.write.format("barnabas").mode("append").options(**options, **numbered).save()

    return append


_OFFSETS = "offsets"
_VERSION = "v1"


def connector_checkpoint(checkpoint: str | os.PathLike[str], copy: str | os.PathLike[str]) -> int:
    """Copy the checkpoint of a stream that reads `format("barnabas")`, so that the same stream with `format("kafka")`
    continues where it was; return the number of batches whose offsets were rewritten.

    The other direction needs no copy: `format("barnabas")` reads a checkpoint of `format("kafka")` as it is. Both are
    folders of this machine, and the stream is stopped. Raises `ConfigError` if `copy` exists, or if `checkpoint` is no
    checkpoint.
    """
    source, target = Path(checkpoint), Path(copy)
    if not (source / _OFFSETS).is_dir():
        raise ConfigError(f"{source} is not the checkpoint of a stream: it has no folder {_OFFSETS!r}")
    if target.exists():
        raise ConfigError(f"{target} already exists; give a folder that does not")
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    rewritten = 0
    for file in sorted((draft / _OFFSETS).glob("[0-9]*")):
        rewritten += _rewrite(file)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's, of what was there before
    draft.rename(target)
    return rewritten


def _rewrite(file: Path) -> bool:
    """Rewrite a batch's offsets (a version, metadata, a line per source, "-" for none); return True if they changed."""
    version, metadata, *sources = file.read_text(encoding="utf-8").split("\n")
    if version != _VERSION:
        raise ConfigError(f"{file.name} of the checkpoint's offsets has version {version!r}, not {_VERSION}")
    lines = [_connector_line(line) for line in sources]
    file.write_text("\n".join([version, metadata, *lines]), encoding="utf-8")
    return lines != sources


def _connector_line(line: str) -> str:
    try:
        found = json.loads(line)
    except ValueError:
        return line  # another kind of source
    if not isinstance(found, dict) or not isinstance(found.get("offsets"), str):
        return line
    return StreamOffsets.unpacked(found).connector_form()


def over_limit(
    rows: "DataFrame",
    *by: str,
    limit: int,
    windowDuration: str,
    slideDuration: str | None = None,
    timeColumn: str = "timestamp",
    delayThreshold: str | None = None,
) -> "DataFrame":
    """Return the windows in which a value of the columns `by` has more than `limit` rows: columns as of
    `windowed_counts`.

    Streams: append (once, when the window is over), update (as soon as it is above the limit, and at each change then).
    """
    from pyspark.sql import functions as f

    counts = windowed_counts(
        rows,
        *by,
        windowDuration=windowDuration,
        slideDuration=slideDuration,
        timeColumn=timeColumn,
        delayThreshold=delayThreshold,
    )
    return counts.where(f.col("count") > limit)


def rate_limited(
    rows: "DataFrame",
    *by: str,
    limit: int,
    windowDuration: str,
    timeColumn: str = "timestamp",
    delayThreshold: str | None = None,
) -> "DataFrame":
    """Return every row with a column `allowed` (boolean): true for the first `limit` rows of its key (`by`) in its
    window.

    The first are those with the smallest `timeColumn`; on a stream, of those that came in earlier micro-batches first.
    No row is left out, those without a time are allowed. Streams: append, `delayThreshold` needed (or a watermark
    before): counts are forgotten behind it. This runs in Python, a few milliseconds per key and micro-batch.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f
    from pyspark.sql.types import BooleanType, StructField, StructType

    timed = watermarked(rows, timeColumn, delayThreshold)
    start = f.unix_micros(f.window(timeColumn, windowDuration).getField("start"))
    if not rows.isStreaming:
        rank = f.row_number().over(Window.partitionBy(*by, start).orderBy(timeColumn))
        return rows.withColumn("allowed", (rank <= limit) | f.col(timeColumn).isNull())
    end = f.unix_millis(f.window(timeColumn, windowDuration).getField("end"))
    marked = timed.withColumn("_window_end_ms", f.coalesce(end, f.lit(0)))
    shape = StructType([*rows.schema.fields, StructField("allowed", BooleanType())])

    def decide(_: tuple[Any, ...], parts: "Iterator[pd.DataFrame]", state: "GroupState") -> "Iterator[pd.DataFrame]":
        if state.hasTimedOut:
            state.remove()
            return
        seen: dict[int, int] = dict(json.loads(state.get[0])) if state.exists else {}
        for part in parts:
            ends = part["_window_end_ms"].tolist()
            allowed = [True] * len(ends)
            for row in part[timeColumn].argsort(kind="stable").tolist():
                end = ends[row]
                allowed[row] = end == 0 or seen.get(end, 0) < limit
                seen[end] = seen.get(end, 0) + 1
            del part["_window_end_ms"]
            part["allowed"] = allowed
            yield part
        watermark = state.getCurrentWatermarkMs()
        open_windows = {end: count for end, count in seen.items() if end > watermark}
        if open_windows:
            state.update((json.dumps(list(open_windows.items())),))
            state.setTimeoutTimestamp(max(open_windows))
        elif state.exists:
            state.remove()

    return marked.groupBy(*by).applyInPandasWithState(decide, shape, "counts STRING", "append", "EventTimeTimeout")


def sessions(
    rows: "DataFrame",
    *by: str,
    gapDuration: str,
    timeColumn: str = "timestamp",
    delayThreshold: str | None = None,
    exprs: "Sequence[Column]" = (),
) -> "DataFrame":
    """Return one row per session of each value of the columns `by`: it ends where nothing comes for `gapDuration`.

    Result: `session_window` (struct; its end is that of the last row and the gap), `by`, `started` and `ended` (times
    of the first and the last row), `count` (bigint), and `exprs`, aggregates with a name. `by` may be empty on a batch
    only. Streams: append, with `delayThreshold` or a watermark before; complete. Spark has no update for sessions.
    """
    from pyspark.sql import functions as f

    timed = watermarked(rows, timeColumn, delayThreshold).where(f.col(timeColumn).isNotNull())
    return timed.groupBy(f.session_window(timeColumn, gapDuration).alias("session_window"), *by).agg(
        f.min(timeColumn).alias("started"), f.max(timeColumn).alias("ended"), f.count("*").alias("count"), *exprs
    )


def watermarked(rows: "DataFrame", timeColumn: str, delayThreshold: str | None) -> "DataFrame":
    """Return the rows with a watermark on `timeColumn`, if a threshold is given; a batch ignores it."""
    return rows if delayThreshold is None else rows.withWatermark(timeColumn, delayThreshold)


def windowed_counts(
    rows: "DataFrame",
    *by: str,
    windowDuration: str,
    slideDuration: str | None = None,
    timeColumn: str = "timestamp",
    delayThreshold: str | None = None,
    exprs: "Sequence[Column]" = (),
) -> "DataFrame":
    """Count the rows in each window of time, for each value of the columns `by`.

    `timeColumn` is a timestamp; durations are Spark's ("1 hour", "10 minutes"), windows overlap with `slideDuration`.
    Result: `window` (struct of start and end, end exclusive), `by`, `count` (bigint), and `exprs`, aggregates with a
    name, for instance `sum("bytes").alias("bytes")`. Rows without a time are left out.

    Streams: append (a window comes once, when the watermark has passed its end: needs `delayThreshold`, or a watermark
    before), update (each change), complete (needs no watermark, keeps everything in memory).
    """
    from pyspark.sql import functions as f

    windows = f.window(timeColumn, windowDuration, slideDuration)
    timed = watermarked(rows, timeColumn, delayThreshold).where(f.col(timeColumn).isNotNull())
    return timed.groupBy(windows.alias("window"), *by).agg(f.count("*").alias("count"), *exprs)


def top_k(rows: "DataFrame", *by: str, k: int, orderBy: str = "count") -> "DataFrame":
    """Return the `k` rows with the largest `orderBy` (a number) for each value of the columns `by`, such as `window`.

    Result: `by`, `rank` (int, from 1), then the other columns as they are; of equal numbers the one whose other columns
    come first. Each group is gathered whole in one task, so count first (`windowed_counts`), then take the top: the
    different items of a window have to fit into memory, a few tens of bytes each.

    Streams: append only, behind `windowed_counts(..., delayThreshold=...)` with `window` among `by`. Without `by`, on a
    batch, the top of all.
    """
    from pyspark.sql import functions as f

    others = [name for name in rows.columns if name not in by]
    entry = f.struct((-f.col(orderBy)).alias("_order"), *(name for name in others if name != orderBy))
    gathered = rows.groupBy(*by).agg(f.slice(f.sort_array(f.collect_list(entry)), 1, k).alias("_top"))
    placed = gathered.select(*by, f.posexplode("_top").alias("_place", "_entry"))
    values = [
        (-f.col("_entry._order") if name == orderBy else f.col(f"_entry.`{name}`")).alias(name) for name in others
    ]
    return placed.select(*by, (f.col("_place") + 1).alias("rank"), *values)


# Anomaly scores: how far a value is from the recent values of its series, by a measure that resists outliers.

MAD_TO_SIGMA = 1.4826
"""The standard deviation of normal values is this times the median of their absolute deviations."""


def anomaly_scores(
    rows: "DataFrame",
    *by: str,
    valueColumn: str = "value",
    timeColumn: str = "timestamp",
    windowRows: int = 288,
    minScale: float = 0.01,
    delayThreshold: str | None = None,
) -> "DataFrame":
    """Return every row with `expected` and `score` (doubles): how many robust standard deviations its `valueColumn` is
    off.

    Per value of the columns `by`, a series in the order of `timeColumn`: `expected` is the median of the `windowRows`
    values before, the deviation is divided by 1.4826 times the median of the absolute deviations before (MAD), at
    least `minScale` times the expected value. Positive above, negative below; null until half of `windowRows` is there,
    and for values that are null. Rules of thumb: |score| > 6 is rare, > 12 wants a look.

    Streams: append, any watermark or none; a series keeps 2 * `windowRows` values (8 bytes each) for ever.
    Within a micro-batch rows are put in order, late ones of later micro-batches are scored when they come.
    """
    from pyspark.sql.types import DoubleType, StructField, StructType

    shape = StructType([*rows.schema.fields, StructField("expected", DoubleType()), StructField("score", DoubleType())])

    def scored(part: "pd.DataFrame", history: "np.ndarray") -> "pd.DataFrame":
        found = part.sort_values(timeColumn, kind="stable")
        values = found[valueColumn].to_numpy(dtype="float64", na_value=float("nan"))
        found["expected"], found["score"] = robust_scores(values, history, window=windowRows, min_scale=minScale)
        return found

    if not rows.isStreaming:
        import numpy as np

        return rows.groupBy(*by).applyInPandas(lambda part: scored(part, np.empty(0)), shape)

    def score_rows(
        _: tuple[Any, ...], parts: "Iterator[pd.DataFrame]", state: "GroupState"
    ) -> "Iterator[pd.DataFrame]":
        import numpy as np
        import pandas as pd

        history = np.frombuffer(state.get[0] if state.exists else b"", dtype="<f8")
        found = scored(pd.concat(list(parts)), history)
        known = found[valueColumn].to_numpy(dtype="float64", na_value=float("nan"))
        newest = np.concatenate([history, known[~np.isnan(known)]])[-2 * windowRows :]
        state.update((newest.astype("<f8").tobytes(),))
        yield found

    timed = watermarked(rows, timeColumn, delayThreshold)
    return timed.groupBy(*by).applyInPandasWithState(score_rows, shape, "history BINARY", "append", "NoTimeout")


def robust_scores(
    values: "np.ndarray", history: "np.ndarray", *, window: int, min_scale: float
) -> "tuple[np.ndarray, np.ndarray]":
    """(expected, score) of each of `values`, which follow those of `history`; NaN where there is too little before.

    With the last 2 * `window` values as history the scores are the same as over the whole series.
    """
    import numpy as np
    import pandas as pd

    known = ~np.isnan(values)
    series = pd.Series(np.concatenate([history, values[known]]))
    least = max(2, window // 2)
    expected = series.rolling(window, min_periods=least).median().shift(1)
    deviation = series - expected
    spread = deviation.abs().rolling(window, min_periods=least).median().shift(1) * MAD_TO_SIGMA
    scale = np.maximum(np.maximum(spread, expected.abs() * min_scale), np.finfo(float).tiny)
    result = np.full((2, len(values)), np.nan)
    result[0, known] = expected.to_numpy()[len(history) :]
    result[1, known] = (deviation / scale).to_numpy()[len(history) :]
    return result[0], result[1]


def item_pairs(baskets: "DataFrame", items: str, *, maxItems: int = 200) -> "DataFrame":
    """Return each unordered pair of different items of each basket: the other columns of `baskets`, `item`, `other`.

    `items` is a column with an array, one row is one basket. `item` < `other`. Baskets with more than `maxItems`
    different items are left out: a basket of n items has n * (n - 1) / 2 pairs, and a wholesaler's says little.
    Streams: append, update, no watermark, nothing is kept.
    """
    from pyspark.sql import functions as f

    others = [name for name in baskets.columns if name != items]
    ordered = baskets.select(*others, f.array_sort(f.array_distinct(f.array_compact(items))).alias("_items"))
    small = ordered.where(f.size("_items").between(2, maxItems))
    firsts = small.select("*", f.posexplode("_items").alias("_place", "item"))
    rest = f.slice("_items", f.col("_place") + 2, f.size("_items"))
    return firsts.select(*others, "item", f.explode(rest).alias("other"))


def co_occurrence(
    baskets: "DataFrame", items: str, *, minCount: int = 5, maxItems: int = 200, others: Sequence[str] | None = None
) -> "DataFrame":
    """Compute how strongly items go together, each pair in both directions.

    Result: `item`, `other`, `together` (baskets with both), `count` and `other_count` (baskets with each), `score`: the
    cosine, together / sqrt(count * other_count), from 0 to 1. Pairs in fewer than `minCount` baskets, and baskets with
    more than `maxItems` items, are left out. `others`: only pairs of which `other` is one of these (much quicker when
    they are few). Batch: a stream keeps `item_pairs` in a topic or a table, or calls this in `foreachBatch` on what was
    loaded.
    """
    from pyspark.sql import functions as f

    once = baskets.select(f.array_distinct(f.array_compact(items)).alias("items"))
    small = once.where(f.size("items").between(1, maxItems))
    counts = small.select(f.explode("items").alias("item")).groupBy("item").agg(f.count("*").alias("count"))
    if others is None:
        pairs = item_pairs(once, "items", maxItems=maxItems)
    else:
        wanted = f.array_intersect("items", f.array(*map(f.lit, others)).cast("array<string>")).alias("_others")
        firsts = small.select("items", wanted).select(f.explode("items").alias("item"), "_others")
        pairs = firsts.select("item", f.explode("_others").alias("other")).where("item <> other")
    together = pairs.groupBy("item", "other").agg(f.count("*").alias("together")).where(f.col("together") >= minCount)
    both = together if others is not None else together.union(together.select("other", "item", "together"))
    other_counts = counts.withColumnsRenamed({"item": "other", "count": "other_count"})
    score = f.col("together") / f.sqrt(f.col("count") * f.col("other_count"))
    return (
        both.join(counts, "item")
        .join(other_counts, "other")
        .select("item", "other", "together", "count", "other_count", score.alias("score"))
    )


# Each thing once, however often it was sent.


def deduplicated(
    rows: "DataFrame", *subset: str, timeColumn: str = "timestamp", delayThreshold: str | None = None
) -> "DataFrame":
    """Keep one row for each value of the columns `subset`: any of them on a batch, the first to arrive on a stream.

    Streams: any output mode that Spark takes behind it (append by default). With `delayThreshold`, duplicates are found
    that come within that much event time (`dropDuplicatesWithinWatermark`), and the state is dropped after it; without,
    every value is kept for ever. A message that producers may have sent twice needs an id of its own for this; topic,
    partition and offset identify a message in the log only.
    """
    if rows.isStreaming and delayThreshold is not None:
        return watermarked(rows, timeColumn, delayThreshold).dropDuplicatesWithinWatermark([*subset])
    return rows.dropDuplicates([*subset])


def join_within(
    left: "DataFrame",
    right: "DataFrame",
    on: Sequence[str],
    *,
    within: str,
    early: str = "0 seconds",
    leftTime: str,
    rightTime: str,
    delayThreshold: str | None = None,
    how: str = "inner",
) -> "DataFrame":
    """Return each row of `left` with the rows of `right` that agree in the columns `on` and follow it `within` a
    duration.

    For instance views with the clicks on them. `early` is how long before the left row the right one may be (clocks
    differ). `leftTime` and `rightTime` are timestamps with different names. `how`: inner, left_outer, right_outer,
    left_semi. Columns `on` come once. A right row joins every left row that it follows.

    Streams: append; `delayThreshold` (or watermarks before) on both sides, so that Spark knows how long to keep rows;
    outer rows without a partner come when the watermark has passed the time in which one could come.
    """
    from pyspark.sql import functions as f

    first = watermarked(left, leftTime, delayThreshold).alias("_left")
    other = watermarked(right, rightTime, delayThreshold)
    names = {name: f"_right_{name}" for name in on}
    second = other.withColumnsRenamed(names).alias("_right")
    condition: Column = f.expr(
        f"`{rightTime}` >= `{leftTime}` - interval {early} AND `{rightTime}` <= `{leftTime}` + interval {within}"
    )
    for name, renamed in names.items():
        condition &= f.col(f"_left.{name}") == f.col(f"_right.{renamed}")
    joined = first.join(second, condition, how)
    if how == "right_outer":
        joined = joined.withColumns({name: f.coalesce(f.col(name), f.col(renamed)) for name, renamed in names.items()})
    return joined.drop(*names.values())


def latest(rows: "DataFrame", *by: str, orderBy: Sequence[str] = ("timestamp",)) -> "DataFrame":
    """Return the newest row for each value of the columns `by`: a topic of changes, read as the table that it
    describes.

    The newest has the largest `orderBy`, compared column by column (of a topic: `("partition", "offset")` with the
    key in `by`, since a key stays in its partition). All columns of `rows`. Batch only; a stream reads it by
    `join_latest`.
    """
    from pyspark.sql import functions as f

    newest = f.max_by(f.struct(*rows.columns), f.struct(*orderBy)).alias("_newest")
    return rows.groupBy(*by).agg(newest).select("_newest.*")


def join_latest(
    rows: "DataFrame",
    changes: "DataFrame",
    on: Sequence[str],
    *,
    orderBy: Sequence[str] = ("timestamp",),
    how: str = "left",
) -> "DataFrame":
    """Return each row with what is known of its key at that moment: `rows` joined with the newest row per key of
    `changes`.

    `changes` is a batch frame over a topic or a table (`spark.read.format("barnabas")`, `read_table`); those of its
    columns that `rows` has too (`timestamp`, ...) are left out. `orderBy` as of `latest`. `how`: left, inner,
    left_anti, left_semi. Streams: every output mode, no watermark, but with what the table held when the query began:
    Spark plans the reading of a data source in Python once. For a table that changes meanwhile call it inside of
    `foreachBatch`, with a frame that is loaded there (examples/streams/orders_with_names.py).
    """
    again = [name for name in changes.columns if name in rows.columns and name not in on]
    return rows.join(latest(changes, *on, orderBy=orderBy).drop(*again), [*on], how)


def json_fields(rows: "DataFrame", schema: str, *keep: str) -> "DataFrame":
    """Return the fields of JSON values as columns: `schema` is Spark's ("address STRING, bytes BIGINT"), `keep` names
    columns of the messages that stay (`timestamp`, `key`, ...). A value that is no JSON object has null in all fields;
    a field of the same name as a kept column takes its place. Batches and streams.
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
