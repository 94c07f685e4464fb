"""Files of logs: the data folders of a broker, a folder per partition, the segment and index files in it.

Every path a caller passes is a plain name (no separator, not '.' or '..'); anything else raises `ValueError`.
Implementations translate their own failures into the errors below. Unless a method says otherwise it is called from
one thread, the owner.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from .errors import BarnabasError
from .types import Buffer, Position
from .values import frozen


class StorageError(BarnabasError):
    """The storage failed (I/O error). The failed call changed nothing, unless its docstring says otherwise."""

    __module__ = "barnabas"


class StorageFull(StorageError):
    """No space is left."""


class StorageReadOnly(StorageError):
    """The storage cannot be written to (permissions, or mounted read-only)."""


class FileMissing(StorageError):
    """There is no such file or folder."""


class FolderLocked(StorageError):
    """Another broker has this data folder in use."""


@frozen(kw_only=True)
class FileInfo:
    """Size and modification time of a file in a listing."""

    size: int
    modified_ms: int


class Region(Protocol):
    """A fixed range of a file, to be read or to be handed to a transport without copying.

    It keeps the file readable for as long as it is referenced: deleting or renaming the file does not disturb it.
    Truncating the file below its end may make reads shorter. Its methods are callable from any thread.
    """

    @property
    def size(self) -> int:
        """Bytes in the region; may be 0."""
        ...

    @property
    def position(self) -> Position:
        """The start of the region in its file."""
        ...

    def fileno(self) -> int:
        """Return the descriptor to `sendfile` from, or -1 when there is none (memory)."""
        ...

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """Return `size` bytes (None: all the rest) from `start` bytes into the region; clipped to the region."""
        ...


_IN_MEMORY = (bytes, bytearray, memoryview)  # `isinstance` is quicker with it than with a union


class JoinedBuffers:
    """Buffers in memory that follow each other, as one `Region`: what goes to a transport need not be copied together.

    The buffers must not change as long as it is in use.
    """

    __slots__ = ("parts", "size")

    position = Position(0)

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self.parts = parts
        self.size = sum(map(len, parts))

    def fileno(self) -> int:
        return -1

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        end = self.size if size is None else min(start + size, self.size)
        found, position = bytearray(), 0
        for part in self.parts:
            if start < position + len(part) and end > position:
                found += memoryview(part)[max(0, start - position) : end - position]
            position += len(part)
        return bytes(found)


def size_of(data: Buffer | Region) -> int:
    """Return the number of bytes in a buffer or region."""
    return len(data) if isinstance(data, _IN_MEMORY) else data.size


class File(Protocol):
    """An open file that grows at its end only."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes in the file, those not flushed included."""
        ...

    def append(self, *buffers: Buffer) -> Position:
        """Write the buffers one after the other at the end, in one system call; return the start position.

        Visible to `read` and `region` on return, durable only after `flush`. The buffers are not kept. On failure
        (`StorageFull`, `StorageReadOnly`, `StorageError`) the file has its old size: no partial write remains.
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer at the end of the file, none beyond it."""
        ...

    def region(self, position: int, size: int) -> Region:
        """Return a region, clipped to the current size of the file."""
        ...

    def flush(self) -> None:
        """Make everything appended before this call durable (fsync).

        Callable from any thread while the owner appends.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; a larger `size` raises `ValueError`. Durable after the next `flush`."""
        ...

    def close(self) -> None:
        """Release the file without flushing; regions already handed out stay readable. Twice is harmless."""
        ...


class Folder(Protocol):
    """The files of one folder."""

    @property
    def name(self) -> str: ...

    def files(self) -> Mapping[str, FileInfo]:
        """Return all plain files in the folder, also unknown ones and targets of symbolic links, without sub-folders.

        Raises `StorageError` for a dangling link.
        """
        ...

    def open(self, name: str, *, create: bool = True) -> File:
        """Open a file to read and append. Without `create` a missing file raises `FileMissing`."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; replace `new` if it exists. Raises `FileMissing`. Open files and regions stay valid."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file; a missing one is no error. Open files and regions stay valid. Callable from any thread."""
        ...

    def read_small(self, name: str) -> bytes:
        """Return the whole content of a small file. Raises `FileMissing`."""
        ...

    def write_small(self, name: str, content: bytes) -> None:
        """Replace a small file atomically and durably: after a crash it has the old content or the new one, whole.

        Callable from any thread.
        """
        ...

    def write_all_small(self, contents: Mapping[str, bytes]) -> None:
        """Replace several small files, one after the other, each atomically; all are durable on return."""
        ...

    def flush(self) -> None:
        """Make creations, renames and removals in this folder durable. Callable from any thread."""
        ...


class LogDir(Protocol):
    """One data folder of a broker (an entry of `log.dirs`), locked for this process while open."""

    @property
    def path(self) -> str:
        """The path in log lines and in DescribeLogDirs."""
        ...

    @property
    def root(self) -> Folder:
        """The files directly in the data folder: checkpoints, markers."""
        ...

    def folders(self) -> list[str]:
        """Return the names of its sub-folders, sorted."""
        ...

    def folder(self, name: str) -> Folder:
        """Open a sub-folder; create it if it is missing.

        Callable from any thread. One thread at a time may use the folder and its files.
        """
        ...

    def rename_folder(self, old: str, new: str) -> None:
        """Rename the sub-folder `old` atomically. Raises `FileMissing`, or `StorageError` when `new` exists."""
        ...

    def delete_folder(self, name: str) -> None:
        """Remove a sub-folder with its files; a missing one is not an error. Callable from any thread."""
        ...

    def space(self) -> tuple[int, int]:
        """Return (total bytes, usable bytes) of the volume; (-1, -1) when unknown."""
        ...

    def close(self) -> None:
        """Release the lock. Files opened from here must be closed before."""
        ...
