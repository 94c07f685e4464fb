"""Protobuf schemas: a `.proto` file as text, or its descriptor in base64, which some clients register."""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..confluent_files import PREFIX, confluent_file
from .parsed import PROTOBUF, Difference, InvalidSchema, Referenced, UnsupportedFormat
from .protobuf_compatibility import cannot_read

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto


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
    from .protobuf_text import proto_text

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
