"""Protobuf files that Confluent's registry and clients have built in: `confluent/meta.proto` and the types."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

PREFIX = "confluent/"
_STRING, _BYTES, _UINT32, _INT32, _MESSAGE = 9, 12, 13, 5, 11
_OPTIONAL, _REPEATED = 1, 3
_META = "confluent/meta.proto"
_META_NUMBER = 1088
"""The field number of Confluent's options, registered with the Protobuf project."""
_PLAIN = {
    "confluent/type/decimal.proto": ("Decimal", (("value", _BYTES), ("precision", _UINT32), ("scale", _INT32))),
    "confluent/type/variant.proto": ("Variant", (("metadata", _BYTES), ("value", _BYTES))),
}


@cache
def confluent_file(name: str) -> FileDescriptorProto | None:
    """Return the descriptor of a built-in file by the path that imports name; None: no such file is built in."""
    if name == _META:
        return _meta_file()
    return _plain_file(name) if name in _PLAIN else None


def _file(name: str, package: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto(name=name, package=package, syntax="proto3")


def _add_field(message: Any, name: str, kind: int, *, label: int = _OPTIONAL, type_name: str = "") -> None:
    field = message.field.add(name=name, number=len(message.field) + 1, type=kind, label=label)
    if type_name:
        field.type_name = type_name


def _plain_file(name: str) -> FileDescriptorProto:
    file = _file(name, "confluent.type")
    message_name, fields = _PLAIN[name]
    message = file.message_type.add(name=message_name)
    for field_name, kind in fields:
        _add_field(message, field_name, kind)
    return file


def _meta_file() -> FileDescriptorProto:
    file = _file(_META, "confluent")
    file.dependency.append("google/protobuf/descriptor.proto")
    meta = file.message_type.add(name="Meta")
    _add_field(meta, "doc", _STRING)
    _add_field(meta, "params", _MESSAGE, label=_REPEATED, type_name=".confluent.Meta.ParamsEntry")
    _add_field(meta, "tags", _STRING, label=_REPEATED)
    _add_field(meta, "rules", _MESSAGE, label=_REPEATED, type_name=".confluent.Rule")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    _add_field(entry, "key", _STRING)
    _add_field(entry, "value", _STRING)
    rule = file.message_type.add(name="Rule")
    for name in ("name", "doc", "expr", "sql"):
        _add_field(rule, name, _STRING)
    for kind in ("File", "Message", "Field", "Enum", "EnumValue"):
        name = {"EnumValue": "enum_value"}.get(kind, kind.lower())
        file.extension.add(
            name=f"{name}_meta",
            number=_META_NUMBER,
            extendee=f".google.protobuf.{kind}Options",
            type=_MESSAGE,
            label=_OPTIONAL,
            type_name=".confluent.Meta",
        )
    return file
