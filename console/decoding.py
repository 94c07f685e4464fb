"""Shows keys and values of messages: text, JSON, hex, those with a schema of a registry, records of internal topics."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime
from datetime import time as day_time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from .. import BarnabasError, ConfigError, Message
from ..app.clients.internal_records import DECODERS
from ..ports.values import frozen

if TYPE_CHECKING:
    from ..schemas.client import RegistryClient

FORMS = ("auto", "text", "json", "schema", "hex")
"""The forms that a reader may choose. `schema`: by the schema id before the value; `auto`: what fits."""
_SCHEMA_NAMES = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}
_HEX_LINE = 16


@frozen(kw_only=True)
class Decoded:
    """A key, value or header. `kind` is its form, "null" for None; `plain`: the value itself, for filters."""

    kind: str
    text: str
    plain: Any
    size: int
    problem: str = ""

    def cut(self, length: int) -> str:
        """Return the beginning of the text."""
        return self.text if len(self.text) <= length else f"{self.text[:length]}…"

    def line(self, length: int) -> str:
        """Return the beginning of the text on one line: of JSON without its indents, of bytes their digits."""
        if self.kind == "hex":
            return str(self.plain)[:length] + ("…" if len(self.plain) > length else "")
        if self.kind == "text" or len(self.text) > 50 * length:
            return self.cut(length)
        text = json.dumps(self.plain, ensure_ascii=False, default=plain_json)
        return text if len(text) <= length else f"{text[:length]}…"


class Decoders:
    """Decodes what messages have. `registry`: a client of the schema registry; None: there is none."""

    def __init__(self, registry: RegistryClient | None) -> None:
        self._registry = registry
        self._by_kind: dict[tuple[str, str], Any] = {}

    def key(self, message: Message, form: str = "auto") -> Decoded:
        """Decode the key of a message. Raises nothing: `problem` says what does not fit."""
        return self._part(message, message.key, "key", form)

    def value(self, message: Message, form: str = "auto") -> Decoded:
        """Decode the value of a message, as `key` does."""
        return self._part(message, message.value, "value", form)

    def header(self, data: bytes | None) -> Decoded:
        """Decode the value of a header."""
        return _auto(data)

    def _part(self, message: Message, data: bytes | None, part: str, form: str) -> Decoded:
        if form == "auto" and message.topic in DECODERS and message.key is not None:
            plain = DECODERS[message.topic](message)
            if part in plain:
                size = 0 if data is None else len(data)
                return _of_json(plain[part], "record", size) if plain[part] is not None else _null()
        if data is None:
            return _null()
        if form == "hex":
            return Decoded(kind="hex", text=hex_dump(data), plain=data.hex(), size=len(data))
        if form == "text":
            return Decoded(
                kind="text", text=data.decode("utf-8", "replace"), plain=data.decode("utf-8", "replace"), size=len(data)
            )
        if form == "schema" or (form == "auto" and self._registry is not None and len(data) > 4 and data[0] == 0):
            found = self._by_schema(message.topic, data, part)
            if not found.problem or form == "schema":
                return found
        return _auto(data, wants_json=form == "json")

    def _by_schema(self, topic: str, data: bytes, part: str) -> Decoded:
        shown = Decoded(kind="hex", text=hex_dump(data), plain=data.hex(), size=len(data))
        if self._registry is None:
            return _with_problem(shown, "the console has no schema registry: start it with --registry URL")
        try:
            schema_id = int.from_bytes(data[1:5], "big")
            if data[:1] != b"\0" or len(data) < 5:
                return _with_problem(shown, "the bytes do not begin with a schema id")
            schema = self._registry.by_id(schema_id)
            plain = self._decoder(schema.kind, part).decode(topic, data)
        except BarnabasError as error:
            return _with_problem(shown, str(error))
        return _of_json(plain, f"{_SCHEMA_NAMES.get(schema.kind, schema.kind)} · schema {schema_id}", len(data))

    def _decoder(self, kind: str, part: str) -> Any:
        if (kind, part) not in self._by_kind:
            from ..schemas import AvroEncoder, JsonSchemaEncoder, ProtobufEncoder

            kinds: dict[str, Callable[..., Any]] = {
                "AVRO": AvroEncoder,
                "JSON": JsonSchemaEncoder,
                "PROTOBUF": ProtobufEncoder,
            }
            if kind not in kinds:
                raise ConfigError(f"schemas of type {kind} cannot be decoded")
            self._by_kind[kind, part] = kinds[kind](self._registry, is_key=part == "key")
        return self._by_kind[kind, part]


def hex_dump(data: bytes) -> str:
    """Return lines of offset, bytes and characters."""
    lines = []
    for start in range(0, len(data), _HEX_LINE):
        piece = data[start : start + _HEX_LINE]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in piece)
        lines.append(f"{start:08x}  {piece.hex(' '):<47}  {text}")
    return "\n".join(lines)


def plain_json(value: Any) -> Any:
    """Return what JSON cannot hold (of Avro and Protobuf) as text; for `json.dumps(default=...)`."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return base64.b64encode(data).decode()
    if isinstance(value, datetime | date | day_time):
        return value.isoformat()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    if isinstance(value, Decimal | UUID):
        return str(value)
    return repr(value)


def _null() -> Decoded:
    return Decoded(kind="null", text="null", plain=None, size=0)


def _with_problem(shown: Decoded, problem: str) -> Decoded:
    return Decoded(kind=shown.kind, text=shown.text, plain=shown.plain, size=shown.size, problem=problem)


def _of_json(plain: Any, kind: str, size: int) -> Decoded:
    try:
        text = json.dumps(plain, ensure_ascii=False, indent=2, default=plain_json)
    except RecursionError:
        return Decoded(kind=kind, text="", plain=None, size=size, problem="the value nests too deep to be shown")
    return Decoded(kind=kind, text=text, plain=plain, size=size)


def _auto(data: bytes | None, *, wants_json: bool = False) -> Decoded:
    if data is None:
        return _null()
    if data[:1] in (b"{", b"[") or wants_json:
        try:
            found = _of_json(json.loads(data), "JSON", len(data))
            if not found.problem:
                return found
        except (ValueError, RecursionError) as error:
            if wants_json:
                return _with_problem(_auto(data[:0] + b" " + data), f"it is not JSON: {error}")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if (data and not all(each.isprintable() or each in "\r\n\t" for each in text[:4096])) or (data and not text):
        return Decoded(kind="hex", text=hex_dump(data), plain=data.hex(), size=len(data))
    return Decoded(kind="text", text=text, plain=text, size=len(data))
