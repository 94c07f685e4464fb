"""`barnabas bench`: produce and consume throughput, with Barnabas's own clients."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from ...core.message.message import Message
from ...ports.errors import BarnabasError
from ...ports.report import counted
from ...ports.types import TopicPartition
from ..clients.consumer.consumer import Consumer
from ..clients.producer.producer import Producer
from .command_config import connection_settings
from .options import AsJson, open_admin, print_json, progress

AT_ONCE = 1_000


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)


def bench(
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Default: a new broker in a process of its own."),
    ] = None,
    messages: Annotated[int, typer.Option("--messages", "-n", min=1, help="Number of messages.")] = 500_000,
    size: Annotated[int, typer.Option(min=0, help="Size of a message in bytes.")] = 200,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    acks: Annotated[str, typer.Option(help="all, 1 or 0.")] = "all",
    topic: Annotated[str | None, typer.Option(help="Default: a new topic, deleted afterwards.")] = None,
    as_json: AsJson = False,
) -> None:
    """Send messages to one partition, read them back, print both rates.

    The rates are those of this machine; `make bench` of the sources measures ratios that can be compared.
    """
    with _bootstrap(bootstrap) as address, open_admin(address) as admin:
        name = topic or f"bench-{time.time_ns()}"
        if topic is None:
            admin.create_topic(name, partitions=1)
        try:
            start = admin.list_offsets({(name, 0): "latest"})[TopicPartition(name, 0)]
            config = {**connection_settings(), "compression.type": compression, "acks": acks}
            sent = _send(address, name, messages, size, config)
            read = _read(address, name, start, messages)
        finally:
            if topic is None:
                admin.delete_topics([name])
    figures = {
        "messages": messages,
        "bytes_each": size,
        "produce_messages_per_s": round(messages / sent),
        "consume_messages_per_s": round(messages / read),
        "produce_mb_per_s": round(messages * size / sent / 1e6, 1),
        "consume_mb_per_s": round(messages * size / read / 1e6, 1),
    }
    if as_json:
        print_json(figures)
        return
    for label in ("produce", "consume"):
        rate, megabytes = figures[f"{label}_messages_per_s"], figures[f"{label}_mb_per_s"]
        typer.echo(f"{label}  {rate:>10,} messages/s  {megabytes:>8,} MB/s")


@contextmanager
def _bootstrap(given: str | None) -> Iterator[str]:
    """Yield the given broker, or a new one in a process of its own, so that it has a core of its own."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        command = [sys.executable, "-c", "from barnabas.app.cli.main import main; main()", "serve"]
        command += ["--data", str(Path(scratch) / "data"), "--listen", "kafka://127.0.0.1:0", "--log-level", "error"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline() if process.stdout is not None else ""
                if not line.startswith("barnabas ready "):
                    raise BarnabasError("the broker to measure did not start; its log is above")
                yield line.split()[2].removeprefix("kafka://")
            finally:
                process.terminate()


def _send(bootstrap: str, topic: str, messages: int, size: int, config: dict[str, Any]) -> float:
    batch = [Message(value=bytes(size))] * AT_ONCE
    with Producer(bootstrap, config=config) as producer, progress("produce", messages) as advance:
        producer.send_many(topic, batch[:1], partition=0)
        producer.flush()
        started = time.perf_counter()
        for done in range(1, messages, AT_ONCE):
            producer.send_many(topic, batch[: messages - done], partition=0)
            advance(done)
        producer.flush()
        seconds = time.perf_counter() - started
        advance(messages)
        if producer.failed:
            raise BarnabasError(
                f"{counted(producer.failed, 'message was', 'messages were')} not delivered, of {messages}"
            )
    return seconds


def _read(bootstrap: str, topic: str, start: int, messages: int) -> float:
    with Consumer(bootstrap, config=connection_settings()) as consumer, progress("consume", messages) as advance:
        consumer.assign(topic, partitions=[0], position=start)
        started = time.perf_counter()
        for done, _ in enumerate(islice(consumer.messages(), messages), 1):
            if done % 10_000 == 0:
                advance(done)
        seconds = time.perf_counter() - started
        advance(messages)
    return seconds
