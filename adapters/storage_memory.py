"""Logs in memory: the same contract as the file system, for tests and for brokers that keep nothing."""

import threading
import time
from collections.abc import Callable, Mapping

from ..ports.errors import ClosedError
from ..ports.storage import FileInfo, FileMissing, FolderLocked, StorageError, StorageFull, StorageReadOnly
from ..ports.types import Buffer, Position


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryDisk:
    """The "disk" behind a `MemoryLogDir`, which survives its closing. May be shared between threads.

    `capacity` bounds the bytes of all files (None: no bound), `read_only` refuses changes; both may be changed at any
    time. `now_ms` stamps modifications.
    """

    def __init__(self, *, capacity: int | None = None, now_ms: Callable[[], int] = _system_ms) -> None:
        self.capacity = capacity
        self.read_only = False
        self.now_ms = now_ms
        self.lock = threading.RLock()
        self.folders: dict[str, dict[str, _FileContent]] = {}
        self.root: dict[str, _FileContent] = {}
        self.in_use = False

    @property
    def used(self) -> int:
        """Bytes in all files."""
        with self.lock:
            files = [self.root, *self.folders.values()]
            return sum(len(content.data) for folder in files for content in folder.values())

    def after_crash(self, *, power_cut: bool = False) -> "MemoryDisk":
        """Return a copy of the disk as after a crash of its broker; later writes to this disk do not reach the copy.

        With `power_cut`, appended bytes that were not flushed are lost; otherwise all appended bytes are there.
        """
        with self.lock:
            left = MemoryDisk(capacity=self.capacity, now_ms=self.now_ms)
            left.read_only = self.read_only
            left.root = _after_crash(self.root, power_cut)
            left.folders = {name: _after_crash(files, power_cut) for name, files in self.folders.items()}
            return left

    def check_write(self, added: int, what: str) -> None:
        """Raises `StorageReadOnly`, or `StorageFull` when `added` more bytes do not fit."""
        if self.read_only:
            raise StorageReadOnly(f"cannot write {what}: the storage is read-only")
        if self.capacity is not None and added and self.used + added > self.capacity:
            raise StorageFull(f"cannot write {what}: more than the {self.capacity} bytes that this storage may hold")


class _FileContent:
    """The bytes of a file, by whatever name it goes."""

    __slots__ = ("data", "flushed", "modified_ms")

    def __init__(self, data: bytearray, modified_ms: int) -> None:
        self.data = data
        self.flushed = len(data)
        """The number of bytes that survive a power cut."""
        self.modified_ms = modified_ms


def _after_crash(files: Mapping[str, _FileContent], power_cut: bool) -> dict[str, _FileContent]:
    return {
        name: _FileContent(content.data[: content.flushed if power_cut else None], content.modified_ms)
        for name, content in files.items()
    }


class MemoryRegion:
    """A range of a file in memory; keeps its bytes alive."""

    __slots__ = ("_content", "_disk", "_position", "_size")

    def __init__(self, disk: MemoryDisk, content: _FileContent, position: int, size: int) -> None:
        self._disk = disk
        self._content = content
        self._position = position
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    @property
    def position(self) -> Position:
        return Position(self._position)

    def fileno(self) -> int:
        return -1

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        left = self._size - start
        return _read(self._disk, self._content, self._position + start, left if size is None else min(size, left))


def _read(disk: MemoryDisk, content: _FileContent, position: int, size: int) -> bytes:
    if size <= 0:
        return b""
    with disk.lock, memoryview(content.data) as view:  # under the lock: an exported view forbids growing
        return bytes(view[position : position + size])


class MemoryFile:
    """An open file."""

    __slots__ = ("_closed", "_content", "_disk", "_name")

    def __init__(self, disk: MemoryDisk, name: str, content: _FileContent) -> None:
        self._disk = disk
        self._name = name
        self._content = content
        self._closed = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def size(self) -> int:
        return len(self._content.data)

    def append(self, *buffers: Buffer) -> Position:
        self._check_open()
        with self._disk.lock:
            self._disk.check_write(sum(map(len, buffers)), self._name)
            position = len(self._content.data)
            for buffer in buffers:
                self._content.data += buffer
            self._content.modified_ms = self._disk.now_ms()
            return Position(position)

    def read(self, position: int, size: int) -> bytes:
        self._check_open()
        if position < 0 or size < 0:
            raise ValueError(f"cannot read {size} bytes at {position}")
        return _read(self._disk, self._content, position, size)

    def region(self, position: int, size: int) -> MemoryRegion:
        self._check_open()
        if position < 0 or size < 0:
            raise ValueError(f"no region of {size} bytes at {position}")
        start = min(position, self.size)
        return MemoryRegion(self._disk, self._content, start, min(size, self.size - start))

    def flush(self) -> None:
        self._check_open()
        with self._disk.lock:
            self._content.flushed = len(self._content.data)

    def truncate(self, size: int) -> None:
        self._check_open()
        if not 0 <= size <= self.size:
            raise ValueError(f"cannot truncate {self._name} of {self.size} bytes to {size}")
        with self._disk.lock:
            self._disk.check_write(0, self._name)
            del self._content.data[size:]
            self._content.flushed = min(self._content.flushed, size)
            self._content.modified_ms = self._disk.now_ms()

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._name} was closed")


class MemoryFolder:
    """The files of one folder."""

    def __init__(self, disk: MemoryDisk, name: str, contents: dict[str, _FileContent]) -> None:
        self._disk = disk
        self._contents = contents
        self.folder_name = name

    @property
    def name(self) -> str:
        return self.folder_name

    def files(self) -> Mapping[str, FileInfo]:
        with self._disk.lock:
            return {
                name: FileInfo(size=len(content.data), modified_ms=content.modified_ms)
                for name, content in self._contents.items()
            }

    def open(self, name: str, *, create: bool = True) -> MemoryFile:
        _plain_name(name)
        with self._disk.lock:
            content = self._contents.get(name)
            if content is None:
                if not create:
                    raise FileMissing(f"no file {name} in {self.name}")
                self._disk.check_write(0, name)
                content = self._contents[name] = _FileContent(bytearray(), self._disk.now_ms())
            return MemoryFile(self._disk, name, content)

    def rename(self, old: str, new: str) -> None:
        _plain_name(old)
        _plain_name(new)
        with self._disk.lock:
            self._disk.check_write(0, new)
            if old not in self._contents:
                raise FileMissing(f"no file {old} in {self.name}")
            self._contents[new] = self._contents.pop(old)

    def delete(self, name: str) -> None:
        _plain_name(name)
        with self._disk.lock:
            self._disk.check_write(0, name)
            self._contents.pop(name, None)

    def read_small(self, name: str) -> bytes:
        _plain_name(name)
        with self._disk.lock:
            if name not in self._contents:
                raise FileMissing(f"no file {name} in {self.name}")
            return bytes(self._contents[name].data)

    def write_small(self, name: str, content: bytes) -> None:
        _plain_name(name)
        with self._disk.lock:
            self._disk.check_write(len(content), name)
            self._contents[name] = _FileContent(bytearray(content), self._disk.now_ms())

    def write_all_small(self, contents: Mapping[str, bytes]) -> None:
        for name, content in contents.items():
            self.write_small(name, content)

    def flush(self) -> None:
        """Memory is as durable as it gets."""


class MemoryLogDir:
    """A data folder in memory; open the same `MemoryDisk` again to find what an earlier one left.

    Its methods are those of the port, `LogDir`.
    """

    def __init__(self, disk: MemoryDisk | None = None, *, path: str = "memory:") -> None:
        self._disk = disk if disk is not None else MemoryDisk()
        self._path = path
        self._open = True
        with self._disk.lock:
            if self._disk.in_use:
                raise FolderLocked(f"the data folder {path} is in use by another broker")
            self._disk.in_use = True
        self._root = MemoryFolder(self._disk, path, self._disk.root)
        self._handed_out: dict[str, MemoryFolder] = {}

    @property
    def path(self) -> str:
        return self._path

    @property
    def root(self) -> MemoryFolder:
        return self._root

    def folders(self) -> list[str]:
        with self._disk.lock:
            return sorted(self._disk.folders)

    def folder(self, name: str) -> MemoryFolder:
        _plain_name(name)
        with self._disk.lock:
            if name not in self._disk.folders:
                self._disk.check_write(0, name)
                self._disk.folders[name] = {}
                self._handed_out.pop(name, None)
            if name not in self._handed_out:
                self._handed_out[name] = MemoryFolder(self._disk, name, self._disk.folders[name])
            return self._handed_out[name]

    def rename_folder(self, old: str, new: str) -> None:
        _plain_name(old)
        _plain_name(new)
        with self._disk.lock:
            self._disk.check_write(0, new)
            if old not in self._disk.folders:
                raise FileMissing(f"no folder {old} in {self._path}")
            if new in self._disk.folders and new != old:
                raise StorageError(f"cannot rename {old}: {new} exists")
            self._disk.folders[new] = self._disk.folders.pop(old)
            folder = self._handed_out.pop(old, None)
            if folder is not None:
                folder.folder_name = new
                self._handed_out[new] = folder

    def delete_folder(self, name: str) -> None:
        _plain_name(name)
        with self._disk.lock:
            self._disk.check_write(0, name)
            self._disk.folders.pop(name, None)
            self._handed_out.pop(name, None)

    def space(self) -> tuple[int, int]:
        capacity = self._disk.capacity
        return (-1, -1) if capacity is None else (capacity, max(0, capacity - self._disk.used))

    def close(self) -> None:
        with self._disk.lock:
            if self._open:
                self._open = False
                self._disk.in_use = False


def _plain_name(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"not a plain file name: {name!r}")
