"""The built-in encoders and decoders: bytes, string, json."""
# ruff: noqa: ARG002  # every encoder gets the topic

import json
from typing import Any


class BytesSerde:
    """Bytes as they are."""

    def encode(self, topic: str, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise TypeError(f'expected bytes, got {type(value).__name__}: encode it, or choose encoder="string" or "json"')

    def decode(self, topic: str, data: bytes | None) -> bytes | None:
        return data


class StringSerde:
    """Text as UTF-8."""

    def encode(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise TypeError(f"expected str, got {type(value).__name__}")
        return value.encode()

    def decode(self, topic: str, data: bytes | None) -> str | None:
        return None if data is None else str(data, "utf-8")


class JsonSerde:
    """JSON as compact UTF-8; None is a null value (a tombstone), not the text `null`."""

    def encode(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, topic: str, data: bytes | None) -> Any:
        return None if data is None else json.loads(data)


_MAKERS: dict[str, type[BytesSerde] | type[StringSerde] | type[JsonSerde]] = {
    "bytes": BytesSerde,
    "string": StringSerde,
    "json": JsonSerde,
}

SERDE_NAMES = tuple(_MAKERS)


def builtin_serde(name: str) -> BytesSerde | StringSerde | JsonSerde | None:
    """The encoder and decoder of that name, or None."""
    maker = _MAKERS.get(name)
    return None if maker is None else maker()
