"""Compiles Protobuf texts by Google's own compiler, in a separate process, since the texts are untrusted."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from .parsed import InvalidSchema, UnsupportedFormat

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
