"""Protobuf schemas: a `.proto` file as text, or its descriptor in base64, which some clients register.

Descriptors become text for people and for clients that know only text. Custom options and groups are left out, so a
user of the text must compile it and compare the descriptors.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from google.protobuf.text_encoding import CEscape

from ..confluent_files import PREFIX, confluent_file
from .parsed import PROTOBUF, Difference, InvalidSchema, Referenced, UnsupportedFormat

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto


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


_PATIENCE_S = 30
_NO_ERROR = re.compile(r"WARNING: All log messages|[IW]\d{4} |\s*$|.*: warning: ")
_IMPORTED = re.compile(r"(?!/)(?:(?!\.\.?/)[A-Za-z0-9_.+-]+/)*[A-Za-z0-9_+-][A-Za-z0-9_.+-]*")


def compile_texts(
    texts: Mapping[str, str], known: Iterable[FileDescriptorProto], wanted: str
) -> dict[str, FileDescriptorProto]:
    """Compile `wanted`, one of the texts (import path → text), and its imports; return descriptors by path.

    `known`: files with descriptors. Raises `InvalidSchema` with the compiler's errors, `UnsupportedFormat`.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if find_spec("grpc_tools") is None:
        raise UnsupportedFormat(
            "Protobuf as text needs the compiler of grpcio-tools, which is not installed: pip install grpcio-tools; or "
            "give the descriptor of the file (FileDescriptorProto) in base64"
        )
    with TemporaryDirectory(prefix="barnabas-protoc-") as folder:
        sources, deps, out = Path(folder) / "sources", Path(folder) / "known", Path(folder) / "out"
        for name, text in texts.items():
            if not _IMPORTED.fullmatch(name):
                raise InvalidSchema(f"reference {name!r:.200} is not a path to import: letters, digits and ._+- only")
            path = sources / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        deps.write_bytes(FileDescriptorSet(file=list(known)).SerializeToString())
        asked = [f"--proto_path={sources}", f"--descriptor_set_in={deps}", f"--descriptor_set_out={out}"]
        _run([*asked, "--include_imports", wanted], f"{sources}/")
        found = FileDescriptorSet.FromString(out.read_bytes())
    return {file.name: file for file in found.file}


def _run(arguments: list[str], folder: str) -> None:
    command = [sys.executable, "-I", "-m", "grpc_tools.protoc", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise InvalidSchema(f"the compiler of Protobuf did not end within {_PATIENCE_S} s") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").replace(folder, "").splitlines()
        errors = [line.strip() for line in said if not _NO_ERROR.match(line)]
        raise InvalidSchema("; ".join(errors[:5])[:2000] or f"protoc ended with {done.returncode}")


_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_OWN_NAME = "default.proto"
_WITH_PROTOBUF = ("google/protobuf/", "google/type/")
"""Files under these paths are in Python packages, and need no reference, like those of `confluent_files`."""
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', re.MULTILINE)


# Compatibility of Protobuf files: by field numbers and wire types.
#
# Field names are not on the wire and may change. Messages are matched by name.

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


class ProtobufSchema:
    """A protobuf `ParsedSchema`."""

    format = PROTOBUF

    def __init__(self, canonical: str, file: FileDescriptorProto, imported: Sequence[FileDescriptorProto]) -> None:
        """`imported`: the imported files, dependencies first."""
        self.canonical = canonical
        self.file = file
        self.imported = imported

    @cached_property
    def normalized(self) -> str:
        """Return the text made from the descriptor, which has no comments or whitespace."""
        return _as_text(self.file, self.imported)

    @property
    def serialized(self) -> str:
        """Return the file's descriptor in base64."""
        return _in_base64(self.file)

    def cannot_read(self, writer: ProtobufSchema) -> list[Difference]:
        return cannot_read((self.file, *self.imported), (writer.file, *writer.imported))


def parse_protobuf(text: str, references: Sequence[Referenced] = ()) -> ProtobufSchema:
    """Parse the text. Raises `InvalidSchema`, `UnsupportedFormat`."""
    own_name = _OWN_NAME
    while own_name in {each.name for each in references}:
        own_name = f"_{own_name}"
    given = {each.name: each.text for each in references} | {own_name: text}
    descriptors = {name: found for name, each in given.items() if (found := _descriptor(name, each)) is not None}
    texts = {name: each for name, each in given.items() if name not in descriptors}
    files = dict(descriptors)
    for name in [own_name, *given]:  # mostly the first one needs all others
        if name not in files:
            built_in = _with_packages(descriptors.values(), texts.values())
            files |= compile_texts(texts, [*built_in, *descriptors.values()], name)
    own = files.pop(own_name)
    imported = _in_order(own, files)
    _check(own, imported)
    return ProtobufSchema(_as_text(own, imported) if own_name in descriptors else text.strip(), own, imported)


def _descriptor(name: str, text: str) -> FileDescriptorProto | None:
    """Return the descriptor if the text is one in base64, else None."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if not _BASE64.fullmatch(text):
        return None
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    except (binascii.Error, DecodeError, ValueError):
        return None
    found.name = name
    found.ClearField("source_code_info")
    return found


def _as_text(file: FileDescriptorProto, imported: Sequence[FileDescriptorProto]) -> str:
    """Return the file as text, if the compiler makes the same descriptor of it; else in base64."""

    descriptor = _in_base64(file)
    text = proto_text(_bare(file))
    try:
        again = compile_texts({_OWN_NAME: text}, imported, _OWN_NAME)[_OWN_NAME]
    except (InvalidSchema, UnsupportedFormat):
        return descriptor
    return text if _in_base64(again) == descriptor else descriptor


def _in_base64(file: FileDescriptorProto) -> str:
    return base64.standard_b64encode(_bare(file).SerializeToString(deterministic=True)).decode("ascii")


def _bare(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return the descriptor without parts that depend on its origin."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    bare = FileDescriptorProto()
    bare.CopyFrom(file)
    bare.name = _OWN_NAME
    if bare.syntax == "proto2":
        bare.ClearField("syntax")
    for message in bare.message_type:
        _without_json_names(message)
    for each in bare.extension:
        _without_json_name(each)
    return bare


def _without_json_names(message: Any) -> None:
    for each in (*message.field, *message.extension):
        _without_json_name(each)
    for nested in message.nested_type:
        _without_json_names(nested)


def _without_json_name(field: Any) -> None:
    """Remove the JSON names that the compiler derives from the names."""
    if field.json_name == _json_name(field.name):
        field.ClearField("json_name")


def _json_name(name: str) -> str:
    first, *rest = re.split("_+", name) if "_" in name else [name]
    return first + "".join(each[:1].upper() + each[1:] for each in rest)


def _in_order(own: FileDescriptorProto, files: dict[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return all imported files, dependencies first. Raises `InvalidSchema` for a missing one."""
    found: dict[str, FileDescriptorProto] = {}

    def visit(importing: FileDescriptorProto) -> None:
        for name in importing.dependency:
            if name in found:
                continue
            file = files.get(name) or _from_package(name)
            if file is None:
                raise InvalidSchema(f"{importing.name} imports {name}, for which there is no reference")
            if name == own.name:
                raise InvalidSchema(f"{name} imports itself")
            visit(file)
            found[name] = file

    try:
        visit(own)
    except RecursionError:
        raise InvalidSchema("the files import each other, or nest too deep") from None
    return list(found.values())


def _with_packages(files: Iterable[FileDescriptorProto], texts: Iterable[str]) -> list[FileDescriptorProto]:
    """Return the built-in files that these import, directly or indirectly, dependencies first."""
    found: dict[str, FileDescriptorProto] = {}

    def visit(names: Iterable[str]) -> None:
        for name in names:
            file = None if name in found else _from_package(name)
            if file is not None:
                visit(file.dependency)
                found[name] = file

    visit(sorted({name for file in files for name in file.dependency}))
    visit(sorted({name for text in texts for name in _IMPORT.findall(text)}))
    return list(found.values())


def _from_package(name: str) -> FileDescriptorProto | None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name.startswith(PREFIX):
        return confluent_file(name)
    if not name.startswith(_WITH_PROTOBUF) or not re.fullmatch(r"[a-z_/]+\.proto", name):
        return None
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _check(own: FileDescriptorProto, imported: Iterable[FileDescriptorProto]) -> None:
    """Check a descriptor that was registered as such, without the compiler."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    try:
        for file in imported:
            pool.Add(file)
        pool.Add(own)
        pool.FindFileByName(own.name)
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidSchema(f"invalid descriptor: {error}") from error
