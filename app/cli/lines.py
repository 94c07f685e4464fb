"""The lines that `barnabas produce` reads, and the messages that it makes of them."""

import base64
import binascii
import gzip
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ...core.message.message import Headers, Message
from ...ports.errors import BarnabasError, ConfigError
from ...ports.values import frozen

_CHUNK_BYTES = 65_536
_MESSAGE_BYTES_MAX = 1 << 30
"""Maximum size of a line, so that one without an end does not exhaust the memory."""


@frozen(kw_only=True)
class LineFormat:
    """The format of a line.

    delimiter:     ends a line.
    separator:     separates key and value; None: there are no keys. A line without it has no key.
    key:           the key of messages without one.
    headers:       of every message, before its own.
    timestamp_ms:  the timestamp of messages without one; None: now.
    as_json:       each line is an object as in the output of `consume --json`.
    empty_as_null: an empty value is a tombstone, an empty key none.
    """

    delimiter: bytes = b"\n"
    separator: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    as_json: bool = False
    empty_as_null: bool = False

    def message(self, line: bytes, number: int) -> Message:
        """Return the message of a line. Raises `BarnabasError` with the number of the line."""
        if self.as_json:
            return self._from_json(line, number)
        key, value = self.key, line
        if self.separator is not None:
            first, found, rest = line.partition(self.separator)
            if found:
                key, value = first, rest
        if self.empty_as_null:
            return Message(value or None, key or None, self.headers, self.timestamp_ms)
        return Message(value, key, self.headers, self.timestamp_ms)

    def _from_json(self, line: bytes, number: int) -> Message:
        try:
            found = json.loads(line)
            if not isinstance(found, dict) or "value" not in found:
                raise ValueError('an object with a "value" is expected')
            timestamp = found.get("timestamp")
            if timestamp is not None and (type(timestamp) is not int or timestamp < 0):
                timestamp = None if timestamp == -1 else _refused('"timestamp" must be milliseconds')
            key = _bytes(found.get("key"), "key")
            return Message(
                _bytes(found["value"], "value"),
                self.key if key is None else key,
                self.headers + _headers(found.get("headers") or []),
                self.timestamp_ms if timestamp is None else timestamp,
                partition=_partition(found.get("partition", -1)),
            )
        except ValueError as error:
            raise BarnabasError(f"line {number} is not in the format of `consume --json`: {error}") from error


def open_lines(file: Path | None) -> tuple[BinaryIO, int | None]:
    """Open standard input for None or `-`, or a file, decompressed if `.gz`; return its size too, if known."""
    if file is None or str(file) == "-":
        return sys.stdin.buffer, None
    if file.suffix == ".gz":
        return io.BufferedReader(gzip.open(file)), None
    return file.open("rb"), file.stat().st_size


def split_lines(source: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """Yield the lines without their delimiters as they arrive, and the text after the last one unless it is empty."""
    if delimiter == b"\n":
        for line in source:
            yield line[:-1] if line.endswith(b"\n") else line
        return
    read = getattr(source, "read1", source.read)
    rest = b""
    while chunk := read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(delimiter)
        yield from lines
        if len(rest) > _MESSAGE_BYTES_MAX:
            raise BarnabasError(f"no {delimiter!r} within {_MESSAGE_BYTES_MAX} bytes: is that the delimiter?")
    if rest:
        yield rest


def parse_headers(texts: list[str] | None) -> Headers:
    """Parse headers: `["a=1", "b"]`; one without `=` has a null value. Raises `ConfigError`."""
    found = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name:
            raise ConfigError(f"--header {text!r}: give NAME=VALUE")
        found.append((name, value.encode() if equals else None))
    return tuple(found)


def _refused(text: str) -> Any:
    raise ValueError(text)


def _bytes(found: Any, name: str) -> bytes | None:
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, dict) and set(found) == {"base64"} and isinstance(found["base64"], str):
        try:
            return base64.b64decode(found["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f'"{name}" has no base64: {error}') from error
    raise ValueError(f'"{name}" must be text, null or {{"base64": "..."}}')


def _headers(found: Any) -> Headers:
    if not isinstance(found, list) or not all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) for each in found
    ):
        raise ValueError('"headers" must be [["name", "value"], ...]')
    return tuple((name, _bytes(value, "headers")) for name, value in found)


def _partition(found: Any) -> int:
    if type(found) is not int or found < -1:
        raise ValueError('"partition" must be a number')
    return found
