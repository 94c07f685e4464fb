"""`barnabas consume`: messages to lines."""

import base64
import json
import sys
from typing import Annotated, Any

import typer

from ...core.message.message import Message
from ...ports.errors import ConfigError
from ..clients.consumer import Consumer
from .options import PATIENCE_MS, AsJson, Bootstrap, Settings, parse_settings


def register(app: typer.Typer) -> None:
    app.command("consume")(consume)


def consume(
    bootstrap: Bootstrap,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="beginning, end, an offset, or a time as @milliseconds.")
    ] = "end",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this one; may be given again.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Stop after so many messages.")] = None,
    stop_at_end: Annotated[bool, typer.Option("--stop-at-end", "-e", help="Stop where the log ends now.")] = False,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Print the key and this before the value.")
    ] = None,
    as_json: AsJson = False,
    settings: Settings = None,
) -> None:
    """Print each message's value as a line; with --json an object per line, with everything about the message."""
    out = sys.stdout.buffer
    separator = key_separator.encode() if key_separator is not None else None
    with Consumer(bootstrap, config={"default.api.timeout.ms": PATIENCE_MS, **parse_settings(settings)}) as consumer:
        consumer.assign(topic, partitions=partition, **_where(start))
        left = count
        for message in consumer.messages(stop_at_end=stop_at_end):
            out.write(_as_json(message) if as_json else _as_line(message, separator))
            if left is not None and (left := left - 1) == 0:
                break
            if not consumer.buffered:
                out.flush()
        out.flush()


def _where(start: str) -> dict[str, Any]:
    if start in ("beginning", "earliest"):
        return {"position": "earliest"}
    if start in ("end", "latest"):
        return {"position": "latest"}
    number = start.removeprefix("@")
    if not number.isdigit():
        raise ConfigError(
            f"--from {start!r}: give beginning, end, an offset such as 42, or a time such as @1700000000000"
        )
    return {"timestamp_ms": int(number)} if start.startswith("@") else {"position": int(number)}


def _as_line(message: Message, separator: bytes | None) -> bytes:
    value = message.value or b""
    if separator is None:
        return value + b"\n"
    return (message.key or b"") + separator + value + b"\n"


def message_fields(message: Message) -> dict[str, object]:
    """Everything about a message, ready for JSON."""
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        "timestamp_type": message.timestamp_type,
        "key": _text(message.key),
        "value": _text(message.value),
        "headers": [[name, _text(value)] for name, value in message.headers],
    }


def _as_json(message: Message) -> bytes:
    return json.dumps(message_fields(message), ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """UTF-8 as text; anything else as `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
