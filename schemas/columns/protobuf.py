"""Decodes a column of protobuf messages: the library parses them one by one, then they are converted to Arrow."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...ports.errors import ConfigError
from ..client import RegisteredSchema, RegistryClient, RegistryRefused
from ..descriptors import WRAPPERS, is_map, message_class, plain_message
from ..wire import NotFramed, read_message_indexes
from .decoded import DecodedColumn, rows_by_schema

_TIMES = {"google.protobuf.Timestamp": pa.timestamp("us", "UTC"), "google.protobuf.Duration": pa.duration("us")}
_Key = tuple[int, tuple[int, ...]]


class ProtobufColumns:
    """Decodes messages with schema id and message indexes in front, by the reader's message type at `indexes`.

    Fields are matched by number; enums become text, unsigned numbers the wider type. Messages of another type than the
    reader's are errors.
    """

    def __init__(self, client: RegistryClient, reader: RegisteredSchema, indexes: Sequence[int] = (0,)) -> None:
        self._client = client
        self._class = message_class(reader, client, indexes)
        self.type = _type(self._class.DESCRIPTOR, ())
        self._written: dict[_Key, str] = {(reader.id, tuple(indexes)): ""}

    def decode(self, encoded: pa.BinaryArray) -> DecodedColumn:
        from google.protobuf.message import DecodeError

        by_schema, errors = rows_by_schema(encoded)
        found: list[Any] = [None] * len(encoded)
        for schema_id, rows in by_schema.items():
            for row in rows.tolist():
                data = encoded[row].as_py()
                try:
                    indexes, begin = read_message_indexes(data)
                    fault = self._fault(schema_id, indexes)
                    if not fault:
                        found[row] = _plain(plain_message(self._class.FromString(data[begin:])), self.type)
                except (NotFramed, DecodeError, ValueError, OverflowError) as error:
                    fault = f"schema {schema_id}: {error}"
                if fault:
                    errors[row] = fault
        return DecodedColumn(pa.array(found, self.type), errors)

    def _fault(self, schema_id: int, indexes: tuple[int, ...]) -> str:
        """Return why messages of this schema and type cannot be read; empty if they can."""
        known = self._written.get((schema_id, indexes))
        if known is None:
            known = self._written[schema_id, indexes] = self._compared(schema_id, indexes)
        return known

    def _compared(self, schema_id: int, indexes: tuple[int, ...]) -> str:
        wanted = self._class.DESCRIPTOR.full_name
        try:
            written = message_class(self._client.by_id(schema_id, serialized=True), self._client, indexes)
        except (RegistryRefused, ConfigError) as error:
            return f"schema {schema_id}: {error}"
        name = written.DESCRIPTOR.full_name
        return "" if name == wanted else f"schema {schema_id}: a message of type {name}, not {wanted}"


def _type(descriptor: Any, within: tuple[str, ...]) -> pa.DataType:
    """Return the column type. Raises `ConfigError` for a recursive message."""
    name = descriptor.full_name
    if name in _TIMES:
        return _TIMES[name]
    if name in WRAPPERS:
        return _one(descriptor.fields_by_name["value"], within)
    if name in within:
        raise ConfigError(f"the protobuf message {name} is recursive and has no column type; read value as bytes")
    return pa.struct([pa.field(each.name, _field(each, (*within, name))) for each in descriptor.fields])


def _field(each: Any, within: tuple[str, ...]) -> pa.DataType:
    if is_map(each):
        parts = each.message_type.fields_by_name
        return pa.map_(_one(parts["key"], within), pa.field("value", _one(parts["value"], within)))
    one = _one(each, within)
    return pa.list_(pa.field("element", one)) if each.is_repeated else one


def _one(each: Any, within: tuple[str, ...]) -> pa.DataType:
    if each.message_type is not None:
        return _type(each.message_type, within)
    return _BY_CPP_TYPE[each.cpp_type] if each.type != each.TYPE_BYTES else pa.binary()


_BY_CPP_TYPE = {
    1: pa.int32(),
    2: pa.int64(),
    3: pa.int64(),  # of 32 bits without a sign
    4: pa.decimal128(20, 0),  # of 64 bits without a sign
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    8: pa.string(),
    9: pa.string(),
}
"""By `FieldDescriptor.cpp_type`."""


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Convert maps to pairs for Arrow."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: _plain(value[each.name], each.type) for each in kind}
    if pa.types.is_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return [(key, _plain(each, kind.item_type)) for key, each in value.items()]
    return value
