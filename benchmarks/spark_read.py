"""Reading a topic into Spark: rows per second of 200-byte values on two cores, all columns, after a warm-up."""

import os
import tempfile
import time
from pathlib import Path

from harness import MESSAGE_BYTES, BareClient, Result, broker, produce_frame

from barnabas import Admin, Message
from barnabas.core.message.batch_writer import encode_batch
from barnabas.pipeline.session import local_session

TOPIC = "bench"
PARTITIONS = 4
BATCH_ROWS = 500
ROWS = 1_600_000
RUNS = 3


def _fill(host: str, port: int) -> None:
    batch = bytes(
        encode_batch([Message(value=os.urandom(MESSAGE_BYTES))] * BATCH_ROWS, now_ms=time.time_ns() // 1_000_000)
    )
    client = BareClient(host, port)
    for number in range(ROWS // BATCH_ROWS):
        client.exchange(produce_frame(TOPIC, number % PARTITIONS, batch))
    client.close()


def measure() -> list[Result]:
    with broker() as running, tempfile.TemporaryDirectory() as scratch:
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        _fill(running.host, running.port)
        with local_session(cores=2, quick=False, log_file=Path(scratch) / "java.log") as spark:
            frame = spark.read.format("barnabas").options(
                **{"kafka.bootstrap.servers": running.bootstrap, "subscribe": TOPIC}
            )
            rows = frame.load().count()
            rates = []
            before = running.cpu_seconds()
            for _ in range(RUNS):
                started = time.perf_counter()
                frame.load().write.format("noop").mode("overwrite").save()
                rates.append(rows / (time.perf_counter() - started))
            broker_cpu = (running.cpu_seconds() - before) / RUNS
    details = {"rows": float(rows), "worst": min(rates), "broker CPU s": broker_cpu}
    return [Result("Spark batch read", max(rates), "rows/s", 300_000, details=details)]


if __name__ == "__main__":
    print(measure())
