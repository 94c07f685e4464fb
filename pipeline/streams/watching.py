"""Rates and lag of a session's streams, for Prometheus and for the log.

Spark's API for Python data sources has no place for metrics of a source, and the sinks of Spark's own metrics know the
rates alone. Spark notifies a listener of each batch, though, with its rates and the offsets of the sources.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from attrs import frozen
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ...ports.errors import ConfigError
from ..topics.model import ClusterPartition
from .progress import behind_latest

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily
    from pyspark.sql import SparkSession

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
            for place, behind in state.behind.items():
                lag.add_metric([name, place.topic, place.key], behind)
                by_topic[place.topic] = by_topic.get(place.topic, 0) + behind
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
