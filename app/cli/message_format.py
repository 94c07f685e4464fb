"""The output of `barnabas consume` for a message: kcat's format letters, or a line."""

import base64
import json
import struct
from collections.abc import Callable

from ...core.message.message import Message, ShareMessage
from ...ports.errors import ConfigError
from ...ports.values import frozen
from .escapes import unescaped

NULL = b"NULL"
"""A tombstone or a missing key in a format (kcat's word)."""

_Part = Callable[[Message], bytes]
_LENGTH = struct.Struct(">i")


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _raw_size(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1 if data is None else len(data))


def headers_text(message: Message) -> bytes:
    """Format headers as `name=value,name=value`."""
    return b",".join(name.encode() + b"=" + (NULL if value is None else value) for name, value in message.headers)


_LETTERS: dict[str, tuple[str, _Part]] = {
    "s": ("value", lambda m: NULL if m.value is None else m.value),
    "S": ("size of the value, -1 for null", lambda m: _size(m.value)),
    "R": ("the same as 4 bytes", lambda m: _raw_size(m.value)),
    "k": ("key", lambda m: NULL if m.key is None else m.key),
    "K": ("size of the key, -1 for none", lambda m: _size(m.key)),
    "T": ("timestamp, ms", lambda m: b"%d" % (-1 if m.timestamp_ms is None else m.timestamp_ms)),
    "t": ("topic", lambda m: m.topic.encode()),
    "p": ("partition", lambda m: b"%d" % m.partition),
    "o": ("offset", lambda m: b"%d" % m.offset),
    "h": ("headers", headers_text),
    "%": ("%", lambda _: b"%"),
}
LETTERS = ", ".join(f"%{letter} {meaning}" for letter, (meaning, _) in _LETTERS.items())


def compile_format(text: str) -> Callable[[Message], bytes]:
    r"""Compile a format: letters after `%`, escapes such as `\n`, and text between them.

    Raises `ConfigError` for an unknown letter.
    """
    first, pieces = _split(text)
    parts: list[_Part | bytes] = [unescaped(first, "--format")]
    for letter, rest in pieces:
        if letter not in _LETTERS:
            raise ConfigError(f"--format {text!r}: unknown letter %{letter}; known are {LETTERS}")
        parts += [_LETTERS[letter][1], unescaped(rest, "--format")]
    nonempty = [part for part in parts if part]
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in nonempty)


def _split(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the text before the first letter, and each letter with the text after it."""
    first = text.split("%", 1)[0]
    found = []
    at = len(first)
    while at < len(text):
        end = text.find("%", at + 2)
        end = len(text) if end < 0 else end
        found.append((text[at + 1 : at + 2], text[at + 2 : end]))
        at = end
    return first, found


@frozen(kw_only=True)
class LineStyle:
    """The format of a line: optional headers and key before the value.

    null: the text for a null value; None: nothing.
    """

    key_separator: bytes | None = None
    headers: bool = False
    null: bytes | None = NULL

    def line(self, message: Message) -> bytes:
        value = message.value
        if value is None:
            value = self.null or b""
        if self.key_separator is not None:
            value = (message.key or b"") + self.key_separator + value
        return (headers_text(message) + b"\t" if self.headers else b"") + value + b"\n"


def message_fields(message: Message, broker: int | None = None) -> dict[str, object]:
    """Return all fields of a message for JSON; a partition of the classic generation belongs to a broker."""
    fields: dict[str, object] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        "timestamp_type": message.timestamp_type,
        "key": _text(message.key),
        "value": _text(message.value),
        "headers": [[name, _text(value)] for name, value in message.headers],
    }
    if isinstance(message, ShareMessage):
        fields["delivery_count"] = message.delivery_count
    return fields if broker is None else {**fields, "broker": broker}


def json_line(message: Message, broker: int | None) -> bytes:
    """Return `message_fields` as a line."""
    return json.dumps(message_fields(message, broker), ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """Return UTF-8 as text; anything else as `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
