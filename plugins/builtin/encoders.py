"""The built-in encoders and decoders: bytes, string, json."""
# ruff: noqa: ARG002  # every encoder gets the topic

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import attrs

from ..data_classes import KINDS, is_model


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
    """JSON as compact UTF-8; None is a null value (a tombstone), not the text `null`.

    Dataclasses, attrs classes and pydantic models become objects. Times and dates are texts as ISO 8601 has them, a
    Decimal and a UUID are texts, an enum is its value, bytes within an object are base64, a set is an array.
    """

    def encode(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, bytes | bytearray | memoryview):
            raise TypeError('bytes are no JSON value; encoder="bytes" sends them as they are')
        try:
            return _to_json(value).encode()
        except TypeError as error:
            raise TypeError(_without_json(value, "") or str(error)) from error

    def decode(self, topic: str, data: bytes | None) -> Any:
        return None if data is None else json.loads(data)


def _plain(value: Any) -> Any:
    """Return what stands for an object in JSON, one level deep. Raises `TypeError`."""
    from base64 import b64encode
    from datetime import date, time
    from decimal import Decimal
    from enum import Enum
    from uuid import UUID

    cls = type(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_model(cls):
        return value.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(cls):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(cls)}
    if attrs.has(cls):
        return {each.name: getattr(value, each.name) for each in attrs.fields(cls)}
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return sorted(value, key=_to_json)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{cls.__name__} is {KINDS}, and has no JSON form")


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode
_WAY_OUT = "convert it: encoder=lambda v: json.dumps(v, default=str).encode()"


def _without_json(value: Any, path: str) -> str:
    """Return which part of the value has no JSON form, with its path; "" if all have one."""
    if value is None or isinstance(value, str | int | float):
        return ""
    where = f"{path.lstrip('.')}: " if path else ""
    if isinstance(value, dict):
        for key in value:
            if key is not None and not isinstance(key, str | int | float):
                text = f"a key of the dict is of type {type(key).__name__}, and JSON has texts"
                return f"{where}{text}; {_WAY_OUT}"
        parts = [(f"{path}.{key}", each) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"{path}[{number}]", each) for number, each in enumerate(value)]
    else:
        try:
            parts = [(path, _plain(value))]
        except TypeError as error:
            return f"{where}{error}; {_WAY_OUT}"
    return next((found for inner, each in parts if (found := _without_json(each, inner))), "")


_MAKERS: dict[str, type[BytesSerde] | type[StringSerde] | type[JsonSerde]] = {
    "bytes": BytesSerde,
    "string": StringSerde,
    "json": JsonSerde,
}

SERDE_NAMES = tuple(_MAKERS)


def builtin_serde(name: str) -> BytesSerde | StringSerde | JsonSerde | None:
    """Return the encoder and decoder of that name, or None."""
    maker = _MAKERS.get(name)
    return None if maker is None else maker()
