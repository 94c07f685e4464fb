"""Helpers of the benchmarks of the data source: one session with Spark's own Kafka connector and ours.

The two take turns, and the figure is the median of the rounds' ratios: other work on the machine hits both. It does not
hit both alike, though, so the CPU time is reported, too.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil
from attrs import frozen
from harness import MESSAGE_BYTES, BareClient, RunningBroker, broker, produce_frame

from barnabas import Admin, Message
from barnabas.core.message.batch_writer import encode_batch
from barnabas.pipeline.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))
connector: Any = import_module("support.spark_kafka")
maven: Any = import_module("support.maven")

SIDES = ("kafka", "barnabas")
BATCH_ROWS = 500


@frozen
class Bench:
    """A session, a broker, and a folder for what a round leaves."""

    spark: "SparkSession"
    running: RunningBroker
    scratch: Path
    sides: tuple[str, ...]
    """Ours alone where the connector cannot be had."""

    @property
    def server(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.running.bootstrap}

    def create(self, topic: str, partitions: int) -> None:
        with Admin(self.running.bootstrap) as admin:
            admin.create_topic(topic, partitions=partitions)

    def fill(self, topic: str, partitions: int, rows: int, batch_rows: int = BATCH_ROWS) -> None:
        """Create a topic with `rows` messages, shared out by batches."""
        self.create(topic, partitions)
        values = [Message(value=os.urandom(MESSAGE_BYTES)) for _ in range(batch_rows)]
        batch = bytes(encode_batch(values, now_ms=time.time_ns() // 1_000_000))
        client = BareClient(self.running.host, self.running.port)
        for number in range(rows // batch_rows):
            client.exchange(produce_frame(topic, number % partitions, batch))
        client.close()

    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.scratch))

    def stream(
        self, frame: "DataFrame", sink: str = "noop", options: Mapping[str, str] | None = None
    ) -> "list[dict[str, Any]]":
        """Run a stream over all that is there; the progress of its batches that had rows."""
        checkpoint = str(self.folder())
        writer = frame.writeStream.format(sink).options(**{**(options or {}), "checkpointLocation": checkpoint})
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        found = [json.loads(each.json) for each in query.recentProgress]
        return [each for each in found if each["numInputRows"]]


@frozen
class Rounds:
    """The figures of each side in each round: milliseconds or a rate, and CPU seconds of all processes together."""

    by_side: Mapping[str, Sequence[float]]
    work: Mapping[str, Sequence[float]]

    def ratio(self) -> float:
        """Return the median of ours over theirs; of ours alone where theirs is not here."""
        return _median_ratio(self.by_side)

    def details(self) -> dict[str, float]:
        names = {"kafka": "connector", "barnabas": "ours"}
        return {names[side]: median(found) for side, found in self.by_side.items()} | {
            "CPU time, ratio to the connector's": _median_ratio(self.work)
        }


def _median_ratio(by_side: Mapping[str, Sequence[float]]) -> float:
    ours = by_side["barnabas"]
    theirs = by_side.get("kafka")
    return median(ours) if theirs is None else median(a / b for a, b in zip(ours, theirs, strict=True))


@contextmanager
def bench() -> Iterator[Bench]:
    try:
        jars: Sequence[Path] = connector.connector_jars(ROOT / ".build" / "jars")
    except maven.NoJars as error:
        print(f"Spark's own connector is not available, so ours is not compared: {error}", file=sys.stderr)
        jars = ()
    config = {"spark.jars": ",".join(map(str, jars))} if jars else {}
    config["spark.sql.streaming.numRecentProgressUpdates"] = "1000"
    with (
        broker() as running,
        tempfile.TemporaryDirectory() as scratch,
        local_session(cores=2, quick=False, log_file=Path(scratch) / "java.log", config=config) as spark,
    ):
        yield Bench(spark, running, Path(scratch), SIDES if jars else SIDES[1:])


def rounds(found: Bench, count: int, measure: Callable[[str], float]) -> Rounds:
    """Measure each side once to warm up and then in turns, the other one first in every second round."""
    figures: dict[str, list[float]] = {side: [] for side in found.sides}
    work: dict[str, list[float]] = {side: [] for side in found.sides}
    for side in found.sides:
        measure(side)
    for number in range(count):
        for side in found.sides if number % 2 else reversed(found.sides):
            before = _cpu_seconds()
            figures[side].append(measure(side))
            after = _cpu_seconds()
            work[side].append(sum(spent - before.get(pid, 0.0) for pid, spent in after.items()))
    return Rounds(figures, work)


def _cpu_seconds() -> dict[int, float]:
    """Return the CPU seconds of the broker, Java and Spark's workers, by process."""
    spent = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            spent[process.pid] = float(times.user + times.system)
    return spent


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
