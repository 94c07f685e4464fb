"""A disk that forgets what was not flushed when the power is cut, and that tears the last write."""

import copy
from collections.abc import Callable, Mapping
from typing import TypeVar

from ..core.log.names import DELETE_FOLDER_SUFFIX
from ..ports.entropy import Entropy
from ..ports.errors import ClosedError
from ..ports.storage import FileInfo, FileMissing, FolderLocked, StorageError, StorageFull
from ..ports.types import Buffer, Position
from .interference import Interference, point_of_append, point_of_rename

T = TypeVar("T")

PAGE = 4096


class FileContent:
    """A file as the running system sees it (`data`) and as the platters have it (`durable`)."""

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.durable = b""
        self.modified_ms = modified_ms

    def after_power_cut(self, entropy: Entropy) -> None:
        """The flushed content, then any prefix of what came later; a page given but not written holds zeros."""
        data, durable = bytes(self.data), self.durable
        if not data.startswith(durable):
            # Truncated since the last flush: either length may have reached the platters.
            self.data = bytearray(data if entropy.below(2) else durable)
        else:
            survived = data[: len(durable) + entropy.below(len(data) - len(durable) + 1)]
            if len(survived) > len(durable) and entropy.below(3) == 0:
                torn = max(len(durable), len(survived) - 1 - entropy.below(PAGE))
                survived = survived[:torn] + bytes(len(survived) - torn)
            self.data = bytearray(survived)
        self.durable = bytes(self.data)


class FaultyDisk:
    """A disk, which outlives the broker. Names (create, rename, delete) are journalled by the file system and survive.

    `errors_per_million` of the appends fail without having written anything, `flush_errors_per_million` of the flushes
    without having made anything durable.
    """

    def __init__(self, entropy: Entropy, now_ms: Callable[[], int], path: str = "sim:") -> None:
        self.entropy = entropy
        self.now_ms = now_ms
        self.path = path
        self.failed = False
        """Settable: while it is True, every read and write raises `StorageError`; nothing is lost."""
        self.errors_per_million = 0
        self.flush_errors_per_million = 0
        self.bytes_max = -1
        """The capacity, when it is not negative: appends beyond it fail."""
        self.folders: dict[str, dict[str, FileContent]] = {"": {}}
        self.epoch = 0
        self.in_use = False
        self.interference: Interference | None = None
        self._rotten: list[tuple[str, str, FileContent, int, int]] = []

    @property
    def used_bytes(self) -> int:
        """The sum of the sizes of all files."""
        return sum(len(content.data) for folder in self.folders.values() for content in folder.values())

    def rot(self, folder: str, name: str, position: int) -> None:
        """Change one byte of a file at rest: neither a write nor a read reports it."""
        content = self.folders[folder][name]
        value = content.data[position] ^ (1 + self.entropy.below(255))
        content.data[position] = value
        if position < len(content.durable):
            durable = bytearray(content.durable)
            durable[position] = value
            content.durable = bytes(durable)
        self._rotten.append((folder, name, content, position, value))

    @property
    def rotten(self) -> list[tuple[str, str]]:
        """The folders and files that still have a byte that `rot` changed."""

        def has_byte(folder: str, name: str, content: FileContent, position: int, value: int) -> bool:
            same = self.folders.get(folder, {}).get(name) is content
            return same and content.data[position : position + 1] == bytes((value,))

        self._rotten = [each for each in self._rotten if has_byte(*each)]
        return [(folder, name) for folder, name, *_ in self._rotten]

    def release(self) -> None:
        """Release the disk after its process was killed: all that was written is there, and that process can no longer
        change it.
        """
        self.epoch += 1
        self.in_use = False

    def lose_all(self) -> None:
        """Replace the disk by an empty one."""
        self.release()
        self.folders = {"": {}}

    def copy(self) -> dict[str, dict[str, FileContent]]:
        """Return a copy of the present content, for `put_back`."""
        return copy.deepcopy(self.folders)

    def put_back(self, folders: dict[str, dict[str, FileContent]]) -> None:
        """Replace the content by an earlier copy."""
        self.release()
        self.folders = copy.deepcopy(folders)

    def power_cut(self) -> None:
        """Lose some of what was not flushed. Files that were opened before can no longer change anything."""
        self.release()
        for folder in self.folders.values():
            for content in folder.values():
                content.after_power_cut(self.entropy)

    def open(self) -> "FaultyLogDir":
        return FaultyLogDir(self)

    def new_content(self) -> FileContent:
        return FileContent(self.now_ms())

    def work(self, point: str | None, work: Callable[[], T]) -> T:
        """Do something to files, which may be interfered with."""
        if self.interference is None or point is None or not self.interference.is_armed:
            return work()
        self.interference.before(point)
        result = work()
        self.interference.after(point)
        return result

    def check_alive(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise ClosedError("the power was cut")
        if self.failed:
            raise StorageError(f"{self.path} does not answer")


class FaultyRegion:
    def __init__(self, content: FileContent, position: int, size: int) -> None:
        self._content = content
        self.position = Position(position)
        self.size = size

    def fileno(self) -> int:
        return -1

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        left = max(0, self.size - start)
        begin = self.position + start
        return bytes(self._content.data[begin : begin + (left if size is None else min(size, left))])


class FaultyFile:
    def __init__(self, disk: FaultyDisk, name: str, content: FileContent, folder: str) -> None:
        self._disk = disk
        self._epoch = disk.epoch
        self._content = content
        self._folder = folder
        self._closed = False
        self.name = name

    @property
    def size(self) -> int:
        return len(self._content.data)

    def append(self, *buffers: Buffer) -> Position:
        self._check()
        disk = self._disk
        if disk.errors_per_million and disk.entropy.below(1_000_000) < disk.errors_per_million:
            raise StorageError(f"{self.name}: the disk says no")
        if disk.bytes_max >= 0 and disk.used_bytes + sum(map(len, buffers)) > disk.bytes_max:
            raise StorageFull(f"{self.name}: no space left on the disk")
        position = self.size
        for buffer in buffers:
            self._content.data += buffer
        self._content.modified_ms = disk.now_ms()
        if disk.interference is not None and disk.interference.is_armed:
            disk.interference.after(point_of_append(self._folder, self.name))
        return Position(position)

    def read(self, position: int, size: int) -> bytes:
        self._check()
        if position < 0 or size < 0:
            raise ValueError(f"{size} bytes at {position}")
        return bytes(self._content.data[position : position + size])

    def region(self, position: int, size: int) -> FaultyRegion:
        self._check()
        if position < 0 or size < 0:
            raise ValueError(f"{size} bytes at {position}")
        start = min(position, self.size)
        return FaultyRegion(self._content, start, min(size, self.size - start))

    def flush(self) -> None:
        self._check()
        disk = self._disk
        if disk.flush_errors_per_million and disk.entropy.below(1_000_000) < disk.flush_errors_per_million:
            raise StorageError(f"{self.name}: the disk cannot flush")
        self._content.durable = bytes(self._content.data)

    def truncate(self, size: int) -> None:
        self._check()
        if not 0 <= size <= self.size:
            raise ValueError(f"cannot truncate to {size}")
        del self._content.data[size:]

    def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"{self.name} was closed")
        self._disk.check_alive(self._epoch)


class FaultyFolder:
    def __init__(self, disk: FaultyDisk, name: str) -> None:
        self._disk = disk
        self._epoch = disk.epoch
        self.name = name

    @property
    def _contents(self) -> dict[str, FileContent]:
        self._disk.check_alive(self._epoch)
        contents = self._disk.folders.get(self.name)
        if contents is None:
            raise FileMissing(f"{self.name or 'the data folder'} was removed")
        return contents

    def files(self) -> Mapping[str, FileInfo]:
        return {n: FileInfo(size=len(c.data), modified_ms=c.modified_ms) for n, c in self._contents.items()}

    def open(self, name: str, *, create: bool = True) -> FaultyFile:
        _plain(name)
        contents = self._contents
        if name not in contents:
            if not create:
                raise FileMissing(name)
            contents[name] = self._disk.new_content()
        return FaultyFile(self._disk, name, contents[name], self.name)

    def rename(self, old: str, new: str) -> None:
        _plain(old)
        _plain(new)
        if old not in self._contents:
            raise FileMissing(old)

        def rename() -> None:
            self._contents[new] = self._contents.pop(old)

        self._disk.work(point_of_rename(old, new), rename)

    def delete(self, name: str) -> None:
        _plain(name)
        self._contents.pop(name, None)

    def read_small(self, name: str) -> bytes:
        _plain(name)
        if name not in self._contents:
            raise FileMissing(name)
        return bytes(self._contents[name].data)

    def write_small(self, name: str, content: bytes) -> None:
        _plain(name)
        fresh = self._disk.new_content()
        fresh.data += content
        fresh.durable = bytes(content)

        def replace() -> None:
            self._contents[name] = fresh

        self._disk.work("write of a checkpoint", replace)

    def write_all_small(self, contents: Mapping[str, bytes]) -> None:
        for name, content in contents.items():
            self.write_small(name, content)

    def flush(self) -> None:
        self._disk.check_alive(self._epoch)


class FaultyLogDir:
    """Fulfils `LogDir`."""

    def __init__(self, disk: FaultyDisk) -> None:
        if disk.in_use:
            raise FolderLocked(f"{disk.path} is in use by another broker")
        disk.in_use = True
        self._disk = disk
        self._epoch = disk.epoch
        self._handed_out: dict[str, FaultyFolder] = {}
        self.path = disk.path
        self.root = FaultyFolder(disk, "")

    def folders(self) -> list[str]:
        self._disk.check_alive(self._epoch)
        return sorted(name for name in self._disk.folders if name)

    def folder(self, name: str) -> FaultyFolder:
        _plain(name)
        self._disk.check_alive(self._epoch)
        self._disk.folders.setdefault(name, {})
        return self._handed_out.setdefault(name, FaultyFolder(self._disk, name))

    def rename_folder(self, old: str, new: str) -> None:
        _plain(old)
        _plain(new)
        self._disk.check_alive(self._epoch)
        if old not in self._disk.folders:
            raise FileMissing(old)
        if new in self._disk.folders and new != old:
            raise StorageError(f"{new} exists")

        def rename() -> None:
            self._disk.folders[new] = self._disk.folders.pop(old)
            folder = self._handed_out.pop(old, None)
            if folder is not None:
                folder.name = new
                self._handed_out[new] = folder

        self._disk.work("deletion of a folder" if new.endswith(DELETE_FOLDER_SUFFIX) else None, rename)

    def delete_folder(self, name: str) -> None:
        _plain(name)
        self._disk.check_alive(self._epoch)

        def delete() -> None:
            self._disk.folders.pop(name, None)
            self._handed_out.pop(name, None)

        self._disk.work("deletion of a folder", delete)

    def space(self) -> tuple[int, int]:
        return (-1, -1)

    def close(self) -> None:
        if self._epoch == self._disk.epoch:
            self._disk.in_use = False


def _plain(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"not a plain name: {name!r}")
