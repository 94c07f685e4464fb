"""From a producer to a Delta table, by `load --every 1s` and by a stream: how old a message is when it can be read.

The paper reports about 10 seconds from a producer to consumers in the other data centre.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from threading import Event, Thread

import pyarrow.parquet as pq
from deltalake import DeltaTable
from harness import MESSAGE_BYTES, Result
from spark_pair import Bench, bench

from barnabas import Producer
from barnabas.pipeline.load import load
from barnabas.pipeline.streams import table_batches
from barnabas.pipeline.tables.formats import open_store

TOPIC = "delay"
PER_S = 200
ROUNDS = 12
EVERY_S = 1.0


@contextmanager
def _steady(bootstrap: str) -> Iterator[None]:
    stop = Event()

    def send() -> None:
        with Producer(bootstrap, linger_ms=5) as producer:
            while not stop.wait(1 / PER_S):
                producer.send(TOPIC, bytes(MESSAGE_BYTES))

    thread = Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def measure() -> list[Result]:
    with bench() as found:
        found.create(TOPIC, 2)
        with _steady(found.running.bootstrap):
            return [_by_loads(found), _by_a_stream(found)]


def _by_loads(found: Bench) -> Result:
    table = found.folder()
    for _ in range(ROUNDS):
        began = time.monotonic()
        load(found.running.bootstrap, [TOPIC], table, spark=found.spark)
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))
    delays = []
    for commit in list(open_store(table).history())[: ROUNDS // 2]:  # the later half, when the JVM is warm
        delays += _ages(table, commit.files, commit.created_ms)
    return _result("load every second", delays)


def _by_a_stream(found: Bench) -> Result:
    table = found.folder()
    options = {"kafka.bootstrap.servers": found.running.bootstrap, "subscribe": TOPIC}
    rows = found.spark.readStream.format("barnabas").options(**options).load().select("value", "timestamp")
    query = (
        rows.writeStream.foreachBatch(table_batches(table))
        .option("checkpointLocation", str(found.folder()))
        .trigger(processingTime=f"{EVERY_S:g} seconds")
        .start()
    )
    try:
        while (query.lastProgress or {"batchId": 0})["batchId"] < ROUNDS:
            if (failed := query.exception()) is not None:
                raise failed
            time.sleep(EVERY_S / 10)
    finally:
        query.stop()
    delays = []
    for version in DeltaTable(table).history(ROUNDS // 2):
        adds = DeltaTable(table, version=version["version"]).file_uris()
        before = DeltaTable(table, version=version["version"] - 1).file_uris()
        delays += _ages(table, set(adds) - set(before), version["timestamp"])
    return _result("a stream, a micro-batch each second", delays)


def _ages(table: Path, files: Iterable[str], committed_ms: int) -> list[float]:
    """Return the age in seconds of each message in these files."""
    read = [pq.read_table(table / name, columns=["timestamp"])["timestamp"].to_pylist() for name in files]
    return [committed_ms / 1000 - each.timestamp() for times in read for each in times]


def _result(how: str, delays: list[float]) -> Result:
    details = {"p95": quantiles(delays, n=20)[-1], "messages": len(delays), "every s": EVERY_S}
    return Result(f"producer to Delta table, {how}", median(delays), "s", 10, False, details=details)


if __name__ == "__main__":
    print(measure())
