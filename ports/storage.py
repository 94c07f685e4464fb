"""Files of logs: the data folders of a broker, a folder per partition, the segment and index files in it.

Every path a caller passes is a plain name (no separator, not '.' or '..'); anything else raises `ValueError`.
Implementations translate their own failures into the errors below. Unless a method says otherwise it is called from
one thread, the owner.
"""

from collections.abc import Mapping
from typing import Protocol

from .errors import BarnabasError
from .types import Buffer, Position
from .values import frozen


class StorageError(BarnabasError):
    """The storage failed (I/O error). What the failed call was to do has not been done, unless it says otherwise."""


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
    """What a listing tells of a file."""

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
        """Where the region begins in its file."""
        ...

    def fileno(self) -> int:
        """The descriptor to `sendfile` from, or -1 when there is none (memory)."""
        ...

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """`size` bytes (None: all the rest) from `start` bytes into the region; clipped to the region."""
        ...


_IN_MEMORY = (bytes, bytearray, memoryview)  # `isinstance` is quicker with it than with a union


def size_of(data: Buffer | Region) -> int:
    """Bytes in a buffer or in a region."""
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
        """Write the buffers one after the other at the end, in one call to the system; returns where they begin.

        Visible to `read` and `region` on return, durable only after `flush`. The buffers are not kept. On failure
        (`StorageFull`, `StorageReadOnly`, `StorageError`) the file has its old size: nothing half-written stays.
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; shorter at the end of the file, empty beyond it."""
        ...

    def region(self, position: int, size: int) -> Region:
        """A region, clipped to the present size of the file."""
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
        """All plain files in the folder, foreign ones included, and those that symbolic links lead to; sub-folders are
        left out. Raises `StorageError` where a link leads nowhere."""
        ...

    def open(self, name: str, *, create: bool = True) -> File:
        """Open a file to read and append. Without `create` a missing file raises `FileMissing`."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; replaces `new` if it exists. Raises `FileMissing`. Open files and regions work on."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file; a missing one is not an error. Open files and regions work on. Callable from any thread."""
        ...

    def read_small(self, name: str) -> bytes:
        """The whole content of a small file. Raises `FileMissing`."""
        ...

    def write_small(self, name: str, content: bytes) -> None:
        """Replace a small file atomically and durably: after a crash it has the old content or the new one, whole.

        Callable from any thread.
        """
        ...

    def write_all_small(self, contents: Mapping[str, bytes]) -> None:
        """The same for several files, by name, one after the other: each is whole, and all are durable on return."""
        ...

    def flush(self) -> None:
        """Make creations, renames and removals in this folder durable. Callable from any thread."""
        ...


class LogDir(Protocol):
    """One data folder of a broker (an entry of `log.dirs`), locked for this process while open."""

    @property
    def path(self) -> str:
        """What to call it in messages and in DescribeLogDirs."""
        ...

    @property
    def root(self) -> Folder:
        """The files directly in the data folder: checkpoints, markers."""
        ...

    def folders(self) -> list[str]:
        """The names of its sub-folders, sorted."""
        ...

    def folder(self, name: str) -> Folder:
        """Open a sub-folder; creates it when it is missing. Callable from any thread, as is all of a folder and its
        files that nobody else has."""
        ...

    def rename_folder(self, old: str, new: str) -> None:
        """Rename a sub-folder atomically. Raises `FileMissing`, or `StorageError` when `new` exists."""
        ...

    def delete_folder(self, name: str) -> None:
        """Remove a sub-folder with its files; a missing one is not an error. Callable from any thread."""
        ...

    def space(self) -> tuple[int, int]:
        """(total bytes, usable bytes) of the volume; (-1, -1) when unknown."""
        ...

    def close(self) -> None:
        """Give the lock back. Files opened from here must be closed before."""
        ...
