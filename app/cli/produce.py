"""`barnabas produce`: lines to messages."""

import gzip
import io
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from ...core.message.message import Message
from ...ports.errors import ConfigError
from ..clients.producer import Producer
from .options import PATIENCE_MS, Bootstrap, Settings, parse_settings, progress

LINES_AT_ONCE = 5_000


def register(app: typer.Typer) -> None:
    app.command("produce")(produce)


def produce(
    bootstrap: Bootstrap,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read from here, not standard input; .gz is unpacked.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="What stands between key and value in a line.")
    ] = None,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    acks: Annotated[str, typer.Option(help="all, 1 or 0.")] = "all",
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Always this one.")] = None,
    settings: Settings = None,
) -> None:
    """Send each line as a message; a line without the key separator has no key."""
    config = {"max.block.ms": PATIENCE_MS, "compression.type": compression, "acks": acks, **parse_settings(settings)}
    separator = key_separator.encode() if key_separator is not None else None
    if separator == b"":
        raise ConfigError("--key-separator must not be empty")
    with _open(file) as lines, Producer(bootstrap, config=config) as producer:
        sent = 0
        with progress(f"to {topic}", None) as advance:
            messages = (_message(line.rstrip(b"\n"), separator) for line in lines)
            while batch := list(islice(messages, LINES_AT_ONCE)):
                producer.send_many(topic, batch, partition=partition)
                sent += len(batch)
                advance(sent)
        producer.flush()
        failed = producer.failed
    typer.echo(f"{sent - failed} messages to {topic}", err=True)
    if failed:
        typer.echo(f"barnabas: {failed} messages were not taken", err=True)
        raise typer.Exit(1)


def _open(file: Path | None) -> BinaryIO:
    if file is None:
        return sys.stdin.buffer
    if file.suffix == ".gz":
        return io.BufferedReader(gzip.open(file))
    return file.open("rb")


def _message(line: bytes, separator: bytes | None) -> Message:
    if separator is None:
        return Message(value=line)
    key, found, value = line.partition(separator)
    return Message(value=value, key=key) if found else Message(value=line)
