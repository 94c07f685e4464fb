"""Rates and lag of streams, from the events that Spark gives a listener."""

import json
import math
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from barnabas.pipeline.streams import watch
from barnabas.pipeline.topics.model import ClusterPartition


class Streams:
    def __init__(self) -> None:
        self.listeners: list[Any] = []

    def addListener(self, listener: object) -> None:
        self.listeners.append(listener)

    def removeListener(self, listener: object) -> None:
        self.listeners.remove(listener)


def _progress(query: str, name: str | None, *sources: dict[str, Any], rate: float = 50.0) -> SimpleNamespace:
    progress = SimpleNamespace(
        id=query,
        name=name,
        batchId=3,
        numInputRows=100,
        inputRowsPerSecond=rate,
        processedRowsPerSecond=200.0,
        durationMs={"triggerExecution": 500},
        sources=[SimpleNamespace(**source) for source in sources],
    )
    return SimpleNamespace(progress=progress)


OURS = {
    "endOffset": json.dumps({"offsets": '{"t": {"0": 10, "1": 4}}', "topicIds": {"t": "one"}}),
    "latestOffset": json.dumps({"offsets": '{"t": {"0": 10, "1": 6}}', "topicIds": {"t": "one"}}),
}
THEIRS = {"endOffset": '{"u": {"0": 7}}', "latestOffset": '{"u": {"0": 8}}'}
OTHER = {"endOffset": "17", "latestOffset": None}
FILES = {"endOffset": '{"logOffset": 3}', "latestOffset": '{"logOffset": 4}'}


def test_rates_and_lag_of_every_stream() -> None:
    streams, registry = Streams(), CollectorRegistry()
    spark: Any = SimpleNamespace(streams=streams)
    watching = watch(spark, registry)
    (listener,) = streams.listeners
    listener.onQueryProgress(_progress("1", "visits", OURS, OTHER, FILES))
    listener.onQueryProgress(_progress("2", None, THEIRS, rate=math.nan))
    state = watching.streams["visits"]
    assert state.behind == {ClusterPartition("t", 0): 0, ClusterPartition("t", 1): 2}
    assert (state.batch, state.rows, state.offsets_behind, state.batch_s) == (3, 100, 2, 0.5)
    assert watching.streams["2"].behind == {ClusterPartition("u", 0): 1}
    assert watching.streams["2"].input_rows_per_second == 0
    page = generate_latest(registry).decode()
    assert 'kafka_consumergroup_lag{consumergroup="visits",partition="1",topic="t"} 2.0' in page
    assert 'kafka_consumergroup_lag_sum{consumergroup="2",topic="u"} 1.0' in page
    assert 'spark_streaming_processed_rows_per_second{query="visits"} 200.0' in page
    listener.onQueryTerminated(SimpleNamespace(id="1"))
    assert list(watching.streams) == ["2"]
    watching.stop()
    assert streams.listeners == []
    assert generate_latest(registry) == b""
