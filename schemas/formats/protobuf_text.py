"""Protobuf descriptors as text of a `.proto` file, for people and for clients that know only text.

Custom options and groups are left out. So a user of the text must compile it and compare the descriptors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.text_encoding import CEscape

_TYPES = ("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "", "bytes",
          "uint32", "", "sfixed32", "sfixed64", "sint32", "sint64")  # fmt: skip
"""Type names by their numbers in descriptor.proto, from 1 on; messages and enums have names."""
_LABELS = {1: "optional ", 2: "required ", 3: "repeated "}
_STRING, _BYTES, _MESSAGE_END, _ENUM_END = 9, 12, 2**29, 2**31 - 1


def proto_text(file: Any) -> str:
    """Return the text of a FileDescriptorProto."""
    syntax = file.syntax or "proto2"
    lines = [f'syntax = "{syntax}";']
    if file.package:
        lines += [f"package {file.package};"]
    public = set(file.public_dependency)
    lines += [f'import {"public " * (n in public)}"{name}";' for n, name in enumerate(file.dependency)]
    lines += _options(file.options)
    writer = _Writer(syntax)
    for enum in file.enum_type:
        lines += writer.enum(enum)
    for message in file.message_type:
        lines += writer.message(message)
    lines += writer.extensions(file.extension)
    for service in file.service:
        lines += [f"service {service.name} {{", *_indented(_options(service.options))]
        lines += [f"  {_method(each)}" for each in service.method] + ["}"]
    return "\n".join(lines) + "\n"


class _Writer:
    def __init__(self, syntax: str) -> None:
        self._proto2 = syntax == "proto2"

    def message(self, message: Any) -> list[str]:
        lines = _options(message.options)
        maps = {each.name: each for each in message.nested_type if each.options.map_entry}
        for enum in message.enum_type:
            lines += self.enum(enum)
        for nested in message.nested_type:
            if not nested.options.map_entry:
                lines += self.message(nested)
        written: set[int] = set()
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                lines.append(self._field(field, maps))
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                inner = [
                    self._field(each, maps, alone=False)
                    for each in message.field
                    if each.HasField("oneof_index") and each.oneof_index == field.oneof_index
                ]
                declared = message.oneof_decl[field.oneof_index]
                lines += [f"oneof {declared.name} {{", *_indented([*_options(declared.options), *inner]), "}"]
        lines += [
            f"extensions {_range(each.start, each.end - 1, _MESSAGE_END - 1)};" for each in message.extension_range
        ]
        lines += [f"reserved {_range(each.start, each.end - 1, _MESSAGE_END - 1)};" for each in message.reserved_range]
        lines += [f'reserved "{name}";' for name in message.reserved_name]
        return [f"message {message.name} {{", *_indented([*lines, *self.extensions(message.extension)]), "}"]

    def enum(self, enum: Any) -> list[str]:
        lines = _options(enum.options)
        lines += [f"{each.name} = {each.number}{_in_brackets(_option_pairs(each.options))};" for each in enum.value]
        lines += [f"reserved {_range(each.start, each.end, _ENUM_END)};" for each in enum.reserved_range]
        lines += [f'reserved "{name}";' for name in enum.reserved_name]
        return [f"enum {enum.name} {{", *_indented(lines), "}"]

    def extensions(self, fields: Any) -> list[str]:
        lines: list[str] = []
        for field in fields:
            lines += [f"extend {field.extendee} {{", f"  {self._field(field, {})}", "}"]
        return lines

    def _field(self, field: Any, maps: dict[str, Any], *, alone: bool = True) -> str:
        entry = maps.get(field.type_name.rpartition(".")[2]) if field.type_name else None
        if entry is not None:
            key, value = entry.field
            kind, label = f"map<{_type(key)}, {_type(value)}>", ""
        else:
            kind = _type(field)
            shown = alone and (self._proto2 or field.proto3_optional or field.label == 3)
            label = _LABELS[field.label] if shown else ""
        pairs = list(_option_pairs(field.options))
        if field.HasField("default_value"):
            pairs.append(("default", _default(field)))
        if field.HasField("json_name"):
            pairs.append(("json_name", _quoted(field.json_name)))
        return f"{label}{kind} {field.name} = {field.number}{_in_brackets(pairs)};"


def _type(field: Any) -> str:
    name: str = field.type_name
    return name or _TYPES[field.type - 1]


def _default(field: Any) -> str:
    text: str = field.default_value
    if field.type == _STRING:
        return _quoted(text)
    return f'"{text}"' if field.type == _BYTES else text  # those of bytes are escaped already


def _method(method: Any) -> str:
    streams = "stream " * method.client_streaming, "stream " * method.server_streaming
    body = " ".join(_options(method.options))
    return (
        f"rpc {method.name} ({streams[0]}{method.input_type}) returns ({streams[1]}{method.output_type}) {{ {body} }}"
    )


def _options(options: Any) -> list[str]:
    return [f"option {name} = {value};" for name, value in _option_pairs(options)]


def _option_pairs(options: Any) -> Iterator[tuple[str, str]]:
    """Yield Protobuf's own options with plain values."""
    for field, value in options.ListFields():
        if field.is_extension or field.is_repeated or field.message_type is not None or field.name == "map_entry":
            continue
        if field.enum_type is not None:
            yield field.name, field.enum_type.values_by_number[value].name
        elif isinstance(value, bool):
            yield field.name, str(value).lower()
        else:
            yield field.name, _quoted(value) if isinstance(value, str) else str(value)


def _in_brackets(pairs: Iterable[tuple[str, str]]) -> str:
    inner = ", ".join(f"{name} = {value}" for name, value in pairs)
    return f" [{inner}]" if inner else ""


def _quoted(text: str) -> str:
    return f'"{CEscape(text.encode("utf-8", "surrogatepass"), as_utf8=False)}"'


def _range(first: int, last: int, most: int) -> str:
    return str(first) if first == last else f"{first} to {'max' if last == most else last}"


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
