"""Protobuf message types: from registered schemas to classes, and from messages to plain values."""

import base64
import binascii
import datetime
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ..app.extras import require
from ..ports.errors import ConfigError
from .client import RegisteredSchema, RegistryClient
from .confluent_files import confluent_file

KIND = "PROTOBUF"
_TIMESTAMP = "google.protobuf.Timestamp"
_DURATION = "google.protobuf.Duration"
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
WELL_KNOWN_PREFIXES = ("google/protobuf/", "google/type/", "confluent/")
"""Files that clients have: they are not registered."""
_TYPES = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval", "latlng"),
    *("localized_text", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
)


def descriptor_text(descriptor: Any) -> str:
    """Return a file descriptor in base64, the form of a registry."""
    return base64.standard_b64encode(descriptor.serialized_pb).decode("ascii")


def message_class(schema: RegisteredSchema, client: RegistryClient, indexes: Sequence[int]) -> Any:
    """Return the class of a message type of a registered file. Raises `ConfigError`, and the client's errors."""
    require("protobuf", ("google.protobuf",), "schemas")
    from google.protobuf import descriptor_pool, message_factory

    if schema.kind != KIND:
        raise ConfigError(f"schema {schema.id} is of type {schema.kind}, expected PROTOBUF")
    pool = descriptor_pool.DescriptorPool()
    try:
        for name, text in client.referred(schema.references, serialized=True).items():
            _add(pool, name, text)
        file = _add(pool, f"schema-{schema.id}.proto", schema.text)
    except TypeError as error:
        raise ConfigError(f"schema {schema.id}: invalid descriptor: {error}") from error
    found: Any = None
    types: Any = list(file.message_types_by_name.values())
    for index in indexes:
        if index >= len(types):
            raise ConfigError(f"schema {schema.id} has no message type at {list(indexes)}")
        found = types[index]
        types = list(found.nested_types)
    return message_factory.GetMessageClass(found)


def _add(pool: Any, name: str, text: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    proto = FileDescriptorProto()
    try:
        proto.ParseFromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ConfigError(
            f"{name}: the registry gave no descriptor (format=serialized) but the text of a .proto file; "
            "give the encoder the class that protoc makes of it"
        ) from error
    proto.name = name
    for needed in proto.dependency:
        _add_well_known(pool, needed)
    pool.Add(proto)
    return pool.FindFileByName(name)


def _add_well_known(pool: Any, name: str) -> None:
    """Add files of the library to a pool."""
    from google.protobuf import descriptor_pool
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if not name.startswith(WELL_KNOWN_PREFIXES):
        return
    import_well_known()
    try:
        pool.FindFileByName(name)
        return
    except KeyError:
        pass
    proto = confluent_file(name)
    if proto is None:
        try:
            known = descriptor_pool.Default().FindFileByName(name)
        except KeyError:
            raise ConfigError(f"the protobuf schema needs {name}, which is not installed") from None
        proto = FileDescriptorProto()
        known.CopyToProto(proto)
    for dependency in proto.dependency:
        _add_well_known(pool, dependency)
    pool.Add(proto)


@cache
def import_well_known() -> None:
    """Load the files that come with their Python packages into the library's own pool."""
    from importlib import import_module

    for name in ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers"):
        import_module(f"google.protobuf.{name}_pb2")
    for name in _TYPES:
        import_module(f"google.type.{name}_pb2")


def indexes_of(descriptor: Any) -> list[int]:
    """Return the indexes of a message type in its file."""
    indexes: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = parent.nested_types if parent is not None else descriptor.file.message_types_by_name.values()
        indexes.insert(0, [each.name for each in siblings].index(descriptor.name))
        descriptor = parent
    return indexes


def plain_message(message: Any) -> Any:
    """Convert a message to a dict: enums by name, Timestamp and Duration as Python types, unset optional fields
    None."""
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP:
        return message.ToDatetime(tzinfo=datetime.UTC)
    if name == _DURATION:
        return message.ToTimedelta()
    if name in WRAPPERS:
        return message.value
    return {each.name: _plain_field(message, each) for each in message.DESCRIPTOR.fields}


def _plain_field(message: Any, each: Any) -> Any:
    value = getattr(message, each.name)
    if is_map(each):
        inner = each.message_type.fields_by_name["value"]
        return {key: _plain_one(value[key], inner) for key in value}
    if each.is_repeated:
        return [_plain_one(one, each) for one in value]
    if each.has_presence and not message.HasField(each.name):
        return None
    return _plain_one(value, each)


def _plain_one(value: Any, each: Any) -> Any:
    if each.message_type is not None:
        return plain_message(value)
    if each.enum_type is not None:
        known = each.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def is_map(each: Any) -> bool:
    """Return True for a map field."""
    return bool(each.is_repeated and each.message_type is not None and each.message_type.GetOptions().map_entry)


def message_of(cls: Any, value: Mapping[str, Any]) -> Any:
    """Convert a dict, as of `plain_message`, to a message. Raises `ValueError`, `TypeError`."""
    return cls(**{name: given for name, given in value.items() if given is not None})
