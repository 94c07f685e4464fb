"""The stage of an example: a broker, a Spark session, a folder for results."""

import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, frozen

from barnabas import Admin, BarnabasError, Broker, Consumer, Message, Producer
from barnabas.pipeline.report.panels import Panel, write_page
from barnabas.pipeline.session import local_session, session_settings
from barnabas.pipeline.streams import as_messages

from .data import RealData

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
MESSAGES_AT_ONCE = 2000


@define(kw_only=True)
class Stage:
    """One run of one example. Its topics are called `examples.NAME.*`; those of an earlier run are deleted."""

    name: str
    spark: "SparkSession"
    bootstrap: str
    data: Path
    out: Path
    scratch: Path
    metrics: str | None
    """The address of the metrics of this run's broker, as HOST:PORT; None: it is a broker of yours."""

    @property
    def page(self) -> Path:
        return self.out / f"{self.name}.html"

    def table(self, what: str) -> Path:
        """Return the folder of a table of results; that of an earlier run is deleted."""
        folder = self.out / self.name / what
        if (folder / "_delta_log").is_dir():
            shutil.rmtree(folder)
        return folder

    def topic(self, what: str) -> str:
        return f"examples.{self.name}.{what}"

    def make_topic(self, what: str) -> str:
        """Create an empty topic that accepts messages of any age; return its whole name."""
        topic = self.topic(what)
        with Admin(self.bootstrap) as admin:
            if topic in admin.list_topics():
                admin.delete_topics([topic])
            admin.create_topic(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        return topic

    def fill(self, what: str, messages: Iterable[Message]) -> int:
        """Make the topic and send it all messages; returns how many. Raises `BarnabasError` if some did not arrive."""
        topic, waiting, sent = self.make_topic(what), iter(messages), 0
        with Producer(self.bootstrap, linger_ms=5) as producer:
            while batch := list(islice(waiting, MESSAGES_AT_ONCE)):
                producer.send_many(topic, batch)
                sent += len(batch)
            producer.flush()
            if producer.failed:
                raise BarnabasError(f"{producer.failed} of {sent} messages were not taken by the broker")
        return sent

    def read(self, what: str) -> "DataFrame":
        """Return a topic as a batch."""
        return self.spark.read.format("barnabas").options(**self._source(what)).load()

    def stream(self, what: str) -> "DataFrame":
        """Return a topic as a stream from its beginning."""
        options = {**self._source(what), "startingOffsets": "earliest"}
        return self.spark.readStream.format("barnabas").options(**options).load()

    def _source(self, what: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic(what)}

    def send(self, rows: "DataFrame", what: str, *key: str) -> int:
        """Results to a topic of their own, as JSON keyed by these columns: all rows of a batch, or those that a stream
        appends until it has read what is there now. Returns the number of messages that arrived."""
        topic = self.make_topic(what)
        messages = as_messages(rows, *key)
        target = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic}
        if rows.isStreaming:
            writer = messages.writeStream.format("barnabas").outputMode("append").options(**target)
            writer.option("checkpointLocation", str(self.scratch / what)).trigger(
                availableNow=True
            ).start().awaitTermination()
        else:
            messages.write.format("barnabas").mode("append").options(**target).save()
        with Consumer(self.bootstrap) as consumer:
            consumer.assign(topic, position="earliest")
            return sum(1 for _ in consumer.messages(stop_at_end=True))

    def run(self, rows: "DataFrame", sink: "Callable[[DataFrame, int], None]", outputMode: str, name: str) -> None:
        """Run a stream into a sink for `foreachBatch`, until it has read what is there now."""
        writer = rows.writeStream.foreachBatch(sink).outputMode(outputMode)
        writer.option("checkpointLocation", str(self.scratch / name)).trigger(
            availableNow=True
        ).start().awaitTermination()

    def result(self, folder: Path) -> "pa.Table":
        """Return a Delta table as any reader sees it."""
        from deltalake import DeltaTable

        return DeltaTable(folder).to_pyarrow_table()

    def show(self, title: str, subtitle: str, parts: Sequence[Panel]) -> None:
        """Write the page."""
        write_page(self.page, title, subtitle, parts)


@frozen(kw_only=True)
class Use:
    """An example: what the log is for, the data that it needs, and how to play it; `play` returns what it found."""

    name: str
    title: str
    files: Sequence[RealData]
    play: Callable[[Stage], Sequence[str]]


@frozen(kw_only=True)
class Played:
    """The result of an example: a few lines with figures, the page, and how long it took."""

    lines: Sequence[str]
    page: Path
    seconds: float


def play(use: Use, data: Path, out: Path, bootstrap: str | None = None) -> Played:
    """Play an example with the data in `data`; results go to the folder `out` and to topics `examples.NAME.*`.

    `bootstrap` None = a broker of its own for this run. Raises `ConfigError` when data or a package is missing.
    """
    for file in use.files:
        file.find(data)
    started = time.monotonic()
    with (
        _scratch() as scratch,
        own_broker(bootstrap, scratch / "log") as (address, metrics),
        local_session("barnabas examples") as spark,
        session_settings(spark, {"spark.sql.session.timeZone": "UTC"}),
    ):
        stage = Stage(
            name=use.name, spark=spark, bootstrap=address, data=data, out=out, scratch=scratch, metrics=metrics
        )
        lines = use.play(stage)
    return Played(lines=lines, page=stage.page, seconds=time.monotonic() - started)


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="barnabas-examples-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def own_broker(bootstrap: str | None, folder: Path) -> Iterator[tuple[str, str | None]]:
    """The address of a broker for one run, and that of its metrics; of `bootstrap`, if given, without metrics."""
    if bootstrap is not None:
        yield bootstrap, None
        return
    with ExitStack() as keep:
        metrics = f"127.0.0.1:{_reserve_port(keep)}"
        broker = keep.enter_context(Broker(folder, metrics_listen=metrics))
        yield broker.bootstrap, metrics


def _reserve_port(keep: ExitStack) -> int:
    """Return a free port. On Linux no other program gets it until `keep` is closed: a bound socket that does not listen
    lets another one listen at its address, if both set SO_REUSEADDR.
    """
    with ExitStack() as found:
        holder = found.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        if sys.platform == "linux":
            keep.enter_context(found.pop_all())
    return port
