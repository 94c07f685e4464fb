"""From a producer to a Delta table by `load --every 1s`: how old a message is when its version is committed.

The paper tells of about 10 seconds from a producer to consumers in the other data centre.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from threading import Event, Thread

import pyarrow.parquet as pq
from harness import MESSAGE_BYTES, Result
from spark_pair import bench

from barnabas import Producer
from barnabas.pipeline.load import load
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
        table = found.folder()
        with _steady(found.running.bootstrap):
            for _ in range(ROUNDS):
                began = time.monotonic()
                load(found.running.bootstrap, [TOPIC], table, spark=found.spark)
                time.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))
        store = open_store(table)
        delays = []
        for commit in list(store.history())[: ROUNDS // 2]:  # the later half, when the JVM is warm
            for name in commit.files:
                times = pq.read_table(table / name, columns=["timestamp"])["timestamp"].to_pylist()
                delays += [commit.created_ms / 1000 - each.timestamp() for each in times]
    details = {"p95": quantiles(delays, n=20)[-1], "messages": len(delays), "every s": EVERY_S}
    return [Result("producer to Delta table, load every second", median(delays), "s", 10, False, details=details)]


if __name__ == "__main__":
    print(measure())
