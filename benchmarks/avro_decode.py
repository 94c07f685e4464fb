"""Avro with a registry to typed columns: the decoder alone on one core against fastavro, and a read by Spark on two.

A row has eleven fields: numbers, texts, a time, a decimal, an enum, an array, a record, one that may be null.
"""

import datetime
import decimal
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from harness import BareClient, Result, broker, produce_frame

from barnabas import Admin, Message
from barnabas.core.message.batch_writer import encode_batch
from barnabas.pipeline.session import local_session
from barnabas.schemas import AvroEncoder, RegistryClient
from barnabas.schemas.columns.avro import AvroColumns
from barnabas.schemas.loaded_avro import load_avro
from barnabas.schemas.registry.server import RegistryServer
from barnabas.schemas.wire import HEADER_BYTES

TOPIC = "visits"
PARTITIONS = 4
BATCH_ROWS = 500
ROWS = 1_000_000
ALONE_ROWS = 20_000
RUNS = 3
GOAL = 200_000
SCHEMA = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"], "default": None},
        {"name": "url", "type": "string"},
        {"name": "status", "type": "int"},
        {"name": "bytes", "type": "long"},
        {"name": "seconds", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "method", "type": {"type": "enum", "name": "Method", "symbols": ["GET", "POST", "PUT"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "country", "type": "string"}, {"name": "lat", "type": "float"}],
            },
        },
    ],
}


def _row(number: int) -> dict[str, Any]:
    return {
        "id": number * 1_000_003,
        "user": None if number % 3 else f"user-{number}",
        "url": f"/articles/{number % 100}/comments",
        "status": 200,
        "bytes": number * 17,
        "seconds": number / 7,
        "at": datetime.datetime.fromtimestamp(1_700_000_000 + number, datetime.UTC),
        "method": ("GET", "POST")[number % 2],
        "price": decimal.Decimal(number) / 100,
        "tags": ["new"] * (number % 3),
        "place": {"country": "DE", "lat": 52.5},
    }


def _best(work: Callable[[], object], rows: int) -> tuple[float, float]:
    """Return the best and the worst rate."""
    rates = []
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        rates.append(rows / (time.perf_counter() - started))
    return max(rates), min(rates)


def _alone(url: str, messages: list[bytes]) -> Result:
    schema = load_avro(SCHEMA)
    decoder = AvroColumns(RegistryClient(url), schema)
    column = pa.array(messages, pa.binary())
    decoder.decode(column)
    rate, worst = _best(lambda: decoder.decode(column), len(messages))

    def by_rows() -> pa.Array:
        rows = [schemaless_reader(io.BytesIO(each[HEADER_BYTES:]), schema.parsed, None) for each in messages]
        return pa.array(rows, decoder.type)

    theirs, _ = _best(by_rows, len(messages))
    details = {"fastavro rows/s": theirs, "of it": rate / theirs, "worst": worst}
    return Result("Avro to columns, one core", rate, "rows/s", GOAL / 2, details=details)


def measure() -> list[Result]:
    with broker() as running, tempfile.TemporaryDirectory() as scratch:
        registry = RegistryServer(running.bootstrap, ("127.0.0.1", 0), topic="_schemas")
        url = registry.start()
        try:
            with Admin(running.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=PARTITIONS)
            encoder = AvroEncoder(url, SCHEMA)
            messages = [encoder.encode(TOPIC, _row(number)) or b"" for number in range(ALONE_ROWS)]
            _fill(running.host, running.port, messages)
            results = [_alone(url, messages)]
            with local_session(cores=2, quick=False, log_file=Path(scratch) / "java.log") as spark:
                options = {"kafka.bootstrap.servers": running.bootstrap, "subscribe": TOPIC}
                bytes_only = spark.read.format("barnabas").options(**options)
                assert bytes_only.load().count() == ROWS
                plain, _ = _best(lambda: _read(bytes_only), ROWS)
                typed_too = bytes_only.options(**{"value.format": "avro", "schema.registry.url": url})
                typed_too.load().limit(1).collect()
                rate, worst = _best(lambda: _read(typed_too), ROWS)
        finally:
            registry.stop()
    details = {"as bytes": plain, "of it": rate / plain, "worst": worst}
    return [*results, Result("Spark batch read of Avro", rate, "rows/s", GOAL, details=details)]


def _fill(host: str, port: int, messages: list[bytes]) -> None:
    client = BareClient(host, port)
    for number in range(ROWS // BATCH_ROWS):
        start = number * BATCH_ROWS % len(messages)
        rows = [Message(value=value) for value in messages[start : start + BATCH_ROWS]]
        batch = bytes(encode_batch(rows, now_ms=time.time_ns() // 1_000_000))
        client.exchange(produce_frame(TOPIC, number % PARTITIONS, batch))
    client.close()


def _read(frame: Any) -> None:
    frame.load().write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    print(measure())
