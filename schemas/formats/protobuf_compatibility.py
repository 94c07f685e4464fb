"""Compatibility of Protobuf files: by field numbers and wire types.

Field names are not on the wire and may change. Messages are matched by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .parsed import Difference

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP = range(1, 11)
_MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(11, 19)
"""The numbers of descriptor.proto."""
_SAME_WIRE = (
    {_INT32, _INT64, _UINT32, _UINT64, _BOOL, _ENUM},
    {_SINT32, _SINT64},
    {_FIXED32, _SFIXED32},
    {_FIXED64, _SFIXED64},
)
_REPEATED, _REQUIRED = 3, 2
_TAKES_ONE_OR_MANY = {_STRING, _BYTES, _MESSAGE, _GROUP}
Files = Sequence[Any]
"""Descriptors: the file, then its imports. They have no Python types."""


def cannot_read(reader: Files, writer: Files) -> list[Difference]:
    """Return where the reader's files lose or misread data of the writer's."""
    own, other = reader[0], writer[0]
    if own.package != other.package:
        text = f"package {other.package or '(none)'} in {{writer}}, {own.package or '(none)'} in {{reader}}"
        return [Difference("PACKAGE_CHANGED", "#/", text)]
    comparison = _Comparison(dict(_messages(reader)), dict(_messages(writer)))
    found: list[Difference] = []
    prefix = f".{own.package}." if own.package else "."
    for name, message in _within(other.message_type, prefix):
        if not message.options.map_entry:
            found += comparison.compare(name, name)
    return found


def _messages(files: Files) -> Iterator[tuple[str, Any]]:
    for file in files:
        yield from _within(file.message_type, f".{file.package}." if file.package else ".")


def _within(messages: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for message in messages:
        name = prefix + message.name
        yield name, message
        yield from _within(message.nested_type, f"{name}.")


class _Comparison:
    """Compares files. Names are full, with a dot before the package."""

    def __init__(self, reader: dict[str, Any], writer: dict[str, Any]) -> None:
        self._reader = reader
        self._writer = writer
        self._done: set[tuple[str, str]] = set()

    def compare(self, reader_name: str, writer_name: str) -> list[Difference]:
        """Compare two messages with their content; each pair once."""
        if (reader_name, writer_name) in self._done:
            return []
        self._done.add((reader_name, writer_name))
        own, other = self._reader.get(reader_name), self._writer.get(writer_name)
        path = f"#/{writer_name.removeprefix('.')}"
        if other is None:
            return []
        if own is None:
            return [Difference("MESSAGE_REMOVED", path, f"{{reader}} has no message {reader_name.removeprefix('.')}")]
        written = {each.number: each for each in other.field}
        found: list[Difference] = []
        for each in own.field:
            where = f"{path}/{each.number}"
            before = written.get(each.number)
            if each.label == _REQUIRED and (before is None or before.label != _REQUIRED):
                text = f"{{reader}} requires field {each.name}, {{writer}} does not"
                found.append(Difference("REQUIRED_FIELD_ADDED", where, text))
            if before is not None:
                found += self._field(each, before, where)
        return found + _oneofs(own, other, path)

    def _field(self, own: Any, before: Any, path: str) -> list[Difference]:
        kinds = own.type, before.type
        if (
            own.label != before.label
            and _REPEATED in (own.label, before.label)
            and not set(kinds) <= _TAKES_ONE_OR_MANY
        ):
            text = f"field {own.name} is repeated in one schema alone, and numbers are packed where they are"
            return [Difference("FIELD_NUMERIC_LABEL_CHANGED", path, text)]
        if {*kinds} <= {_MESSAGE, _GROUP} and kinds[0] == kinds[1]:
            return self._message_field(own, before, path)
        if kinds[0] == kinds[1] or kinds == (_BYTES, _STRING) or any(set(kinds) <= group for group in _SAME_WIRE):
            return []
        text = f"field {own.name} is {_name(own)} in {{reader}}, {_name(before)} in {{writer}}"
        plain = not {_MESSAGE, _GROUP, _ENUM} & set(kinds)
        return [Difference("FIELD_SCALAR_KIND_CHANGED" if plain else "FIELD_KIND_CHANGED", path, text)]

    def _message_field(self, own: Any, before: Any, path: str) -> list[Difference]:
        mine, theirs = self._reader.get(own.type_name), self._writer.get(before.type_name)
        maps = [message is not None and message.options.map_entry for message in (mine, theirs)]
        if maps[0] != maps[1]:
            return [Difference("FIELD_KIND_CHANGED", path, f"field {own.name} is a map in one schema alone")]
        if not maps[0] and own.type_name != before.type_name:
            names = before.type_name.removeprefix("."), own.type_name.removeprefix(".")
            text = f"field {own.name} is a {names[0]} in {{writer}}, a {names[1]} in {{reader}}"
            return [Difference("FIELD_NAMED_TYPE_CHANGED", path, text)]
        return self.compare(own.type_name, before.type_name)


def _oneofs(own: Any, other: Any, path: str) -> list[Difference]:
    found = []
    numbers = {each.number for each in own.field}
    before = {each.number: _oneof(each) for each in other.field}
    for each in other.field:
        if _oneof(each) is not None and each.number not in numbers:
            name = other.oneof_decl[each.oneof_index].name
            text = f"{{reader}} has no field {each.name}, which is one of {name} in {{writer}}"
            found.append(Difference("ONEOF_FIELD_REMOVED", f"{path}/{each.number}", text))
    for index, declared in enumerate(own.oneof_decl):
        known = [each.number for each in own.field if _oneof(each) == index and each.number in before]
        homes = {before[number] for number in known}
        if len(known) > 1 and (len(homes) > 1 or None in homes):
            text = f"several fields of {{writer}} that may be set together are one of {declared.name} in {{reader}}"
            found.append(Difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{declared.name}", text))
    return found


def _oneof(field: Any) -> int | None:
    """Return the oneof of a field; `optional` of proto3 is a oneof of one field, and does not count."""
    return field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None


def _name(field: Any) -> str:
    number: str = field.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number[field.type].name
    return number.removeprefix("TYPE_").lower()
