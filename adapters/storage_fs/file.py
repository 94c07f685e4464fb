"""One file that grows at its end."""

import fcntl
import os
from errno import EACCES, EPERM, EROFS
from pathlib import Path
from typing import Protocol

from ...ports.errors import ClosedError
from ...ports.storage import StorageReadOnly
from ...ports.types import Buffer, Position
from .descriptors import Descriptor, DescriptorPool
from .errors import storage_error

_BUFFERS_PER_CALL = 1024  # IOV_MAX on Linux and macOS
_COPY_BYTES = 1 << 24
_COPY_SUFFIX = "cleaned"
"""A start removes a copy that was interrupted, as what compaction leaves unfinished."""
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache


def sync(fd: int) -> None:
    """Make what was written through any descriptor of this file durable. Raises `OSError`."""
    if _FULL_SYNC is None:
        os.fsync(fd)
    else:
        fcntl.fcntl(fd, _FULL_SYNC)


class FilePlace(Protocol):
    """The location of a file: its folder, which may be renamed while the file is open."""

    @property
    def path(self) -> Path: ...

    @property
    def pool(self) -> DescriptorPool: ...


class FsRegion:
    """A range of a file; holds the descriptor, so the bytes stay readable after the file is renamed or unlinked."""

    __slots__ = ("_descriptor", "position", "size")  # not properties: each fetch reads them several times

    def __init__(self, descriptor: Descriptor, position: Position, size: int) -> None:
        self._descriptor = descriptor
        self.position = position
        self.size = size

    def fileno(self) -> int:
        return self._descriptor.fd

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        left = self.size - start
        try:
            wanted = left if size is None or size > left else size
            return _read(self._descriptor.fd, self.position + start, wanted)
        except OSError as error:
            raise storage_error(error, f"cannot read {left} bytes at {self.position + start}") from error


class FsFile:
    """A file of a folder. Its descriptor may be closed and opened again behind the scenes; regions keep theirs."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_descriptor",
        "_own",
        "_pinned",
        "_place",
        "_size",
        "_torn",
        "listed",
        "name",
        "used",
    )

    def __init__(self, place: FilePlace, name: str, *, create: bool) -> None:
        self.name = name
        self.used = self.listed = False
        self._place = place
        self._closed = False
        self._pinned = False
        self._torn = False
        self._own = False
        self._descriptor: Descriptor | None = None
        try:
            descriptor = self._open(create=create)
            self._size = os.fstat(descriptor.fd).st_size
        except OSError as error:
            raise storage_error(error, f"cannot open {self._path}") from error

    @property
    def size(self) -> int:
        return self._size

    @property
    def _path(self) -> Path:
        return self._place.path / self.name

    def append(self, *buffers: Buffer) -> Position:
        position = self._size
        wanted = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        if not wanted:
            return Position(position)
        descriptor = self._writable()  # held until the end: another thread may give it back meanwhile
        fd = descriptor.fd
        if self._torn:
            self._cut(fd)
        if len(buffers) > _BUFFERS_PER_CALL:
            buffers = (b"".join(buffers),)
        try:
            written = os.writev(fd, buffers)
            if written < wanted:
                _write_rest(fd, memoryview(b"".join(buffers))[written:])
        except OSError as error:
            failure = storage_error(error, f"cannot append {wanted} bytes to {self._path}")
            try:
                os.ftruncate(fd, position)
            except OSError:
                self._torn = True  # what lies beyond `size` is cut off before the next append
            del descriptor  # the error references this frame, and must not keep the file open
            raise failure from error
        self._size = position + wanted
        return Position(position)

    def read(self, position: int, size: int) -> bytes:
        if position < 0 or size < 0:
            raise ValueError(f"cannot read {size} bytes at {position}")
        descriptor = self._hold()
        try:
            return _read(descriptor.fd, position, min(size, self._size - position))
        except OSError as error:
            del descriptor
            raise storage_error(error, f"cannot read {self._path}") from error

    def region(self, position: int, size: int) -> FsRegion:
        if position < 0 or size < 0:
            raise ValueError(f"no region of {size} bytes at {position}")
        start = position if position < self._size else self._size
        left = self._size - start
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._hold()
        self.used = True
        return FsRegion(descriptor, Position(start), size if size < left else left)

    def flush(self) -> None:
        descriptor = self._hold()
        try:
            sync(descriptor.fd)
        except OSError as error:
            del descriptor
            raise storage_error(error, f"cannot flush {self._path}") from error

    def truncate(self, size: int) -> None:
        if not 0 <= size <= self._size:
            raise ValueError(f"cannot truncate {self._path} of {self._size} bytes to {size}")
        descriptor = self._writable()
        try:
            os.ftruncate(descriptor.fd, size)
        except OSError as error:
            del descriptor
            raise storage_error(error, f"cannot truncate {self._path}") from error
        self._size = size
        self._torn = False

    def close(self) -> None:
        self._closed = True
        self._descriptor = None

    def release(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        if not self._pinned:
            self._descriptor = None

    def pin(self) -> None:
        """Hold the descriptor until closed: the name is about to go away."""
        if not self._closed:
            self._pinned = True
            self._hold()

    def _hold(self) -> Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            try:
                descriptor = self._open(create=False)
            except OSError as error:
                raise storage_error(error, f"cannot open {self._path}") from error
        self.used = True
        return descriptor

    def _open(self, *, create: bool) -> Descriptor:
        if self._closed:
            raise ClosedError(f"{self._path} was closed")
        flags = os.O_APPEND | os.O_CLOEXEC
        try:
            fd = os.open(self._path, os.O_RDWR | flags | (os.O_CREAT if create else 0), 0o644)
            descriptor = Descriptor(fd, writable=True)
        except OSError as error:
            if error.errno not in (EROFS, EACCES, EPERM):
                raise
            try:
                descriptor = Descriptor(os.open(self._path, os.O_RDONLY | flags), writable=False)
            except FileNotFoundError:
                raise error from None
        self._descriptor = descriptor
        self._place.pool.opened(self)
        return descriptor

    def _writable(self) -> Descriptor:
        """Return one to write to. Raises `StorageReadOnly`; asks again each time, the volume may be writable now."""
        descriptor = self._hold()
        if not descriptor.writable:
            if not self._pinned:
                self._descriptor = None
                descriptor = self._hold()
            if not descriptor.writable:
                del descriptor
                raise StorageReadOnly(f"{self._path} cannot be written to; check permissions and mount options")
        if not self._own:
            descriptor = self._owned(descriptor)
        return descriptor

    def _owned(self, descriptor: Descriptor) -> Descriptor:
        """Replace a file that has another hard link by a copy, before the first write to it: an import may have linked
        the segments of another broker, which must not change. Raises `StorageError`."""
        try:
            if os.fstat(descriptor.fd).st_nlink > 1 and not self._pinned:
                _replace_by_copy(self._path, descriptor.fd, self._size)
                self._descriptor = None
                descriptor = self._open(create=False)
        except OSError as error:
            raise storage_error(error, f"cannot copy {self._path}, which has another hard link") from error
        self._own = True
        return descriptor

    def _cut(self, fd: int) -> None:
        try:
            os.ftruncate(fd, self._size)
        except OSError as error:
            raise storage_error(error, f"cannot cut a half-written end off {self._path}") from error
        self._torn = False


def _replace_by_copy(path: Path, fd: int, size: int) -> None:
    """Put a durable copy of the first bytes of an open file in its place. Raises `OSError`."""
    copy = path.with_name(f"{path.name}.{_COPY_SUFFIX}")
    with copy.open("wb") as writer:
        os.fchmod(writer.fileno(), os.fstat(fd).st_mode & 0o7777)
        for position in range(0, size, _COPY_BYTES):
            writer.write(_read(fd, position, min(_COPY_BYTES, size - position)))
        writer.flush()
        sync(writer.fileno())
    copy.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(folder)
    finally:
        os.close(folder)


def _read(fd: int, position: int, size: int) -> bytes:
    if size <= 0:
        return b""
    data = os.pread(fd, size, position)
    while 0 < len(data) < size:
        more = os.pread(fd, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def _write_rest(fd: int, rest: memoryview) -> None:
    """Continue after a short write, until all is written. Raises `OSError`."""
    while rest:
        written = os.writev(fd, (rest,))
        if not written:
            raise OSError("the system wrote nothing and gave no reason")
        rest = rest[written:]
