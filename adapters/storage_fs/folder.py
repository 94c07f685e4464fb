"""The files of one folder."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from stat import S_ISREG
from weakref import ref

from ...ports.storage import FileInfo, StorageError
from .descriptors import DescriptorPool
from .errors import plain_name, storage_error
from .file import FsFile, sync


def sync_folder(path: Path) -> None:
    """Make the entries of a folder durable. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """System errors inside become those of the port."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, what) from error


_PRUNE_MIN = 8
"""References to files that are gone are removed from this many on."""


class FsFolder:
    """A folder on disk. Open files follow their folder and their own name when these are renamed."""

    def __init__(self, path: Path, pool: DescriptorPool) -> None:
        self.path = path
        self.pool = pool
        self._open: list[ref[FsFile]] = []
        """A list, since a `WeakSet` takes 1 KB, and every partition has a folder."""
        self._prune_at = _PRUNE_MIN
        self._lock = threading.Lock()
        self._small_lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.path.name

    def files(self) -> Mapping[str, FileInfo]:
        found: dict[str, FileInfo] = {}
        with translated(f"cannot list {self.path}"), os.scandir(self.path) as entries:
            for entry in entries:
                try:
                    stat = entry.stat()  # of the file that a symbolic link leads to
                except FileNotFoundError:
                    if entry.is_symlink() and os.path.lexists(entry.path) and not entry.name.startswith("."):
                        raise self._dangling(entry.name) from None
                    continue  # deleted since the listing began
                if S_ISREG(stat.st_mode):
                    found[entry.name] = FileInfo(size=stat.st_size, modified_ms=stat.st_mtime_ns // 1_000_000)
        return found

    def _dangling(self, name: str) -> StorageError:
        """Taken for missing, a segment on another volume that is not mounted would be begun from nothing."""
        path = self.path / name
        target = path.readlink()
        return StorageError(
            f"{path} is a symbolic link to {target}, which does not exist; restore it, or delete the link"
        )

    def open(self, name: str, *, create: bool = True) -> FsFile:
        file = FsFile(self, plain_name(name), create=create)
        with self._lock:
            if len(self._open) >= self._prune_at:
                self._open = [each for each in self._open if each() is not None]
                self._prune_at = max(_PRUNE_MIN, 2 * len(self._open))
            self._open.append(ref(file))
        return file

    def rename(self, old: str, new: str) -> None:
        old_path, new_path = self.path / plain_name(old), self.path / plain_name(new)
        with self._lock, translated(f"cannot rename {old_path} to {new}"):
            if old_path != new_path and old_path.exists():
                self._pin(new)
            old_path.replace(new_path)
            for file in self._files_of(old):
                file.name = new

    def delete(self, name: str) -> None:
        """Remove the name: of a symbolic link the link alone, as Kafka does."""
        path = self.path / plain_name(name)
        with translated(f"cannot delete {path}"):
            with self._lock:
                if path.exists():
                    self._pin(name)
            path.unlink(missing_ok=True)  # a large file takes its time; the owner does not wait for it

    def read_small(self, name: str) -> bytes:
        path = self.path / plain_name(name)
        with translated(f"cannot read {path}"):
            return path.read_bytes()

    def write_small(self, name: str, content: bytes) -> None:
        self.write_all_small({name: content})

    def write_all_small(self, contents: Mapping[str, bytes]) -> None:
        if not contents:
            return
        paths = {self.path / f"{plain_name(name)}.tmp": self.path / name for name in contents}
        with self._small_lock, translated(f"cannot write {', '.join(map(str, paths.values()))}"), ExitStack() as opened:
            try:
                files = [opened.enter_context(temporary.open("wb")) for temporary in paths]
                for file, content in zip(files, contents.values(), strict=True):
                    file.write(content)
                    file.flush()
                for file in files:  # all are written: the file system does much of the work once for all
                    sync(file.fileno())
                for temporary, path in paths.items():
                    temporary.replace(path)
            except OSError:
                for temporary in paths:
                    _discard(temporary)
                raise
            sync_folder(self.path)

    def flush(self) -> None:
        with translated(f"cannot flush {self.path}"):
            sync_folder(self.path)

    def _pin(self, name: str) -> None:
        """Pin the descriptors of open files of this name: they cannot be reopened by name soon."""
        for file in self._files_of(name):
            file.pin()

    def _files_of(self, name: str) -> list[FsFile]:
        return [file for each in self._open if (file := each()) is not None and file.name == name]


def _discard(path: Path) -> None:
    """Remove a half-written temporary file; if even that fails it is harmless, the next write replaces it."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
