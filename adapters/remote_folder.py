"""Remote storage in a folder that all brokers share: `file:///PATH`, on one machine or on a network file system.

An object is a file below the folder: written under another name, flushed, and renamed. `replace` compares and renames
under a lock of the whole folder (`flock`, which network file systems honour, too). The version of an object is the hash
of its content.
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..ports.errors import ConfigError
from ..ports.remote_storage import (
    ObjectChanged,
    ObjectInfo,
    ObjectMissing,
    RemoteStorageError,
    StoredObject,
    check_key,
    check_prefix,
    chunks_of,
)
from ..ports.storage import Region
from ..ports.types import Buffer

_LOCK = ".lock"
_UNFINISHED = ".part"
"""Prefix of the names of files that are being written; no key may have a name that begins with a dot."""
_MADE_AGAIN = 3
"""Attempts to make a folder that another process removes as empty meanwhile."""


@contextmanager
def _translated(what: str, key: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ObjectMissing(f"there is no object {key}") from None
    except OSError as error:
        raise RemoteStorageError(f"cannot {what} the object {key}: {error.strerror or error}") from error


class FolderRemoteStorage:
    """Remote storage in a folder."""

    def __init__(self, root: Path) -> None:
        """Raises `ConfigError` when the folder cannot be made."""
        self._root = root
        try:
            _make_folders(root)
        except OSError as error:
            raise ConfigError(f"the folder of the remote storage cannot be made: {error}") from error

    def __repr__(self) -> str:
        return f"FolderRemoteStorage({str(self._root)!r})"

    def _path(self, key: str) -> Path:
        if any(name.startswith(".") for name in check_key(key).split("/")):
            raise ValueError(f"a name in the key {key!r} begins with a dot")
        return self._root / key

    def put(self, key: str, content: Buffer | Region) -> None:
        with _translated("store", key):
            self._store(self._path(key), content)

    def _store(self, path: Path, content: Buffer | Region) -> None:
        for attempt in range(_MADE_AGAIN):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.parent / f"{_UNFINISHED}-{secrets.token_hex(8)}"
            try:
                with part.open("xb", buffering=0) as file:
                    _write(file.fileno(), content)
                    os.fsync(file.fileno())
                part.replace(path)
                break
            except FileNotFoundError:
                if attempt == _MADE_AGAIN - 1:
                    raise
            except BaseException:
                with suppress(OSError):
                    part.unlink()
                raise
        folder = path.parent
        while True:  # the names of new folders must be durable, too
            _flush_folder(folder)
            if folder == self._root:
                return
            folder = folder.parent

    def replace(self, key: str, content: Buffer, version: str | None) -> str:
        path = self._path(key)
        with _translated("store", key), self._locked():
            present: str | None = None
            with suppress(FileNotFoundError):
                present = _version(path.read_bytes())
            if present != version:
                raise ObjectChanged(f"the object {key} has changed")
            self._store(path, content)
        return _version(content)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def read(self, key: str) -> StoredObject:
        with _translated("read", key):
            content = self._path(key).read_bytes()
        return StoredObject(content=content, version=_version(content))

    def get_range(self, key: str, start: int, size: int) -> bytes:
        if start < 0 or size < 0:
            raise ValueError(f"not a range: {start}, {size}")
        with _translated("read", key), self._path(key).open("rb", buffering=0) as file:
            found = bytearray()
            while len(found) < size:
                piece = os.pread(file.fileno(), size - len(found), start + len(found))
                if not piece:
                    break
                if len(piece) == size:
                    return piece
                found += piece
            return bytes(found)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _translated("delete", key), suppress(FileNotFoundError):
            path.unlink()
            _flush_folder(path.parent)
        with suppress(OSError):  # not empty, or another process was faster
            for folder in path.relative_to(self._root).parents[:-1]:
                (self._root / folder).rmdir()

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        prefix = check_prefix(prefix)
        top = self._path(prefix) if prefix else self._root
        found = []
        with _translated("list", prefix), suppress(FileNotFoundError):
            for folder, _, names in os.walk(top):
                for name in names:
                    path = Path(folder) / name
                    if not name.startswith("."):
                        with suppress(FileNotFoundError):
                            size = path.stat().st_size
                            found.append(ObjectInfo(key=path.relative_to(self._root).as_posix(), size=size))
        return iter(sorted(found, key=lambda each: each.key))

    def close(self) -> None:
        """Do nothing: no file stays open between two calls."""


def _make_folders(path: Path) -> None:
    """Make a folder and those above it, with durable names. Raises `OSError`."""
    if not path.is_dir():
        _make_folders(path.parent)
        path.mkdir(exist_ok=True)
        _flush_folder(path.parent)


def _write(target: int, content: Buffer | Region) -> None:
    """Write the content to an empty file; the system copies it from another file where it can. Raises `OSError`."""
    position = 0
    if not isinstance(content, bytes | bytearray | memoryview) and content.fileno() >= 0:
        position = _copied(content.fileno(), content.position, target, content.size)
    for chunk in chunks_of(content, start=position):
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(target, rest) :]


def _copied(source: int, position: int, target: int, size: int) -> int:
    """Copy a range of a file within the system, and return how many bytes were: fewer where it cannot do that."""
    done = 0
    if hasattr(os, "copy_file_range"):
        with suppress(OSError):  # between two file systems, or of a kind that cannot
            while done < size and (moved := os.copy_file_range(source, target, size - done, position + done)):
                done += moved
    if hasattr(os, "sendfile"):
        with suppress(OSError):  # only to sockets, as on macOS
            while done < size and (moved := os.sendfile(target, source, position + done, size - done)):
                done += moved
    return done


def _version(content: Buffer) -> str:
    return hashlib.sha256(content).hexdigest()


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_folder_remote_storage(url: str, settings: Mapping[str, str]) -> FolderRemoteStorage:
    """Open the folder of a URL, and make it if it is missing. Raises `ConfigError`."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or settings:
        raise ConfigError(f"{url} is not of the form file:///PATH, which has no settings")
    return FolderRemoteStorage(Path(unquote(parts.path)))
