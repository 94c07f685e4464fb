"""Logs in the file system: `writev` to append, `fsync` to keep, regions for `sendfile`, a lock per data folder.

A file grows at its end. Its descriptor closes with its last user, and a bounded number stays open for idle files.
"""

import errno
import fcntl
import os
import resource
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from errno import EACCES, EAGAIN, EPERM, EROFS, EWOULDBLOCK
from pathlib import Path
from stat import S_ISREG
from typing import Protocol
from weakref import ReferenceType, WeakValueDictionary, ref

from ..ports.errors import ClosedError
from ..ports.storage import FileInfo, FileMissing, FolderLocked, StorageError, StorageFull, StorageReadOnly
from ..ports.types import Buffer, Position

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


def storage_error(error: OSError, what: str) -> StorageError:
    """Return the port's error for a failed system call; `what` names what was tried and on which path."""
    text = f"{what}: {error.strerror or error}"
    if error.errno in FULL:
        return StorageFull(f"{text}; free some space, or move the data folder to a larger volume")
    if error.errno in READ_ONLY:
        return StorageReadOnly(f"{text}; check the permissions of the folder and how its volume is mounted")
    if error.errno == errno.ENOENT:
        return FileMissing(text)
    return StorageError(text)


def plain_name(name: str) -> str:
    """Return the name itself. Raises `ValueError` unless it is a plain name: no separator, no NUL, not '.' or '..'."""
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"not a plain file name: {name!r}")
    return name


class Descriptor:
    """An open descriptor that is closed with its last reference: the file, a region, or a running flush."""

    __slots__ = ("fd", "writable")

    def __init__(self, fd: int, *, writable: bool) -> None:
        self.fd = fd
        self.writable = writable

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


class Holder(Protocol):
    """A file that keeps a descriptor and can open it again. `used` is set by each use and cleared by the pool, to which
    `listed` belongs."""

    used: bool
    listed: bool

    def release(self) -> None: ...


class DescriptorPool:
    """Bounds how many files keep a descriptor: beyond `limit`, files not used of late give theirs back (CLOCK).

    Callable from any thread.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._holders: deque[ReferenceType[Holder]] = deque()
        self._lock = threading.Lock()

    def opened(self, holder: Holder) -> None:
        """`holder` has just opened its descriptor."""
        with self._lock:
            holder.used = True
            if not holder.listed:  # else it opened again what it had not given back
                holder.listed = True
                self._holders.append(ref(holder))
            second_chances = len(self._holders)
            while len(self._holders) > self._limit:
                oldest = self._holders.popleft()
                file = oldest()
                if file is None:
                    continue
                if file.used and file is not holder and second_chances > 0:
                    second_chances -= 1
                    file.used = False
                    self._holders.append(oldest)
                elif file is holder:
                    self._holders.append(oldest)
                else:
                    file.listed = False
                    file.release()


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


LOCK_FILE = ".lock"
DIR_MODE = 0o700
"""The default mode: only the broker's user may read messages."""


class FsLogDir:
    """An entry of `log.dirs`. Made by `open_log_dir`."""

    def __init__(self, path: Path, lock_fd: int, pool: DescriptorPool, mode: int | None = DIR_MODE) -> None:
        """`mode` None: folders are not made."""
        self._path = path
        self._lock_fd = lock_fd
        self._pool = pool
        self._mode = mode
        self._root = FsFolder(path, pool)
        self._folders: WeakValueDictionary[str, FsFolder] = WeakValueDictionary()
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        return str(self._path)

    @property
    def root(self) -> FsFolder:
        return self._root

    def folders(self) -> list[str]:
        with translated(f"cannot list {self._path}"), os.scandir(self._path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def folder(self, name: str) -> FsFolder:
        path = self._path / plain_name(name)
        if self._mode is not None:
            with translated(f"cannot create {path}"):
                _make(path, self._mode)
        elif not path.is_dir():
            raise FileMissing(f"{path} is not a folder")
        with self._lock:
            folder = self._folders.get(name)
            if folder is None:
                folder = self._folders[name] = FsFolder(path, self._pool)
        return folder

    def rename_folder(self, old: str, new: str) -> None:
        old_path, new_path = self._path / plain_name(old), self._path / plain_name(new)
        if old != new and new_path.exists():
            raise StorageError(f"cannot rename {old_path}: {new_path} exists")
        with translated(f"cannot rename {old_path} to {new}"):
            old_path.rename(new_path)
        with self._lock:
            folder = self._folders.pop(old, None)
            if folder is not None:
                folder.path = new_path
                self._folders[new] = folder

    def delete_folder(self, name: str) -> None:
        """Remove a folder with its files: of a symbolic link the link alone, as Kafka does."""
        path = self._path / plain_name(name)
        with translated(f"cannot delete {path}"):
            try:
                if path.is_symlink():
                    path.unlink()
                else:
                    from shutil import rmtree  # 0.5 MB, which a broker that deletes nothing does without

                    rmtree(path)
            except FileNotFoundError:
                if path.exists():
                    raise

    def space(self) -> tuple[int, int]:
        try:
            volume = os.statvfs(self._path)
        except OSError:
            return -1, -1
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def close(self) -> None:
        """Give the lock back; twice is harmless."""
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)


def open_log_dir(path: str | Path, *, open_files_max: int | None = None, mode: int = DIR_MODE) -> FsLogDir:
    """Lock a data folder for this process and open it; creates it when it is missing.

    `mode`: the permissions of folders that are made here; those that are there keep theirs.
    At most `open_files_max` files at rest keep a descriptor (None: a quarter of what the process may have). Raises
    `FolderLocked` when a broker has it already, in this process or another, and the errors of the storage port.
    """
    folder = Path(path).absolute()
    with translated(f"cannot create the data folder {folder}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make(folder, mode)
    fd = _open_lock(folder / LOCK_FILE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (EWOULDBLOCK, EAGAIN, EACCES):
            raise FolderLocked(
                f"the data folder {folder} is in use by another broker; stop it, or give this one a folder of its own"
            ) from error
        raise storage_error(error, f"cannot lock {folder / LOCK_FILE}") from error
    return FsLogDir(folder, fd, DescriptorPool(open_files_max or _share_of_descriptors()), mode)


def look_into(path: str | Path) -> FsLogDir:
    """Open a folder without a lock, to read only, even while a broker writes there.

    `folder` creates nothing: a missing one raises `FileMissing`.
    """
    return FsLogDir(Path(path).absolute(), -1, DescriptorPool(_share_of_descriptors()), mode=None)


def is_in_use(path: str | Path) -> bool:
    """Return True if a broker has locked this data folder, one of Kafka too, which locks in another way. Each lock is
    tried for no longer than that takes."""
    try:
        fd = os.open(Path(path) / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _make(folder: Path, mode: int) -> None:
    """Make a folder unless it is there. Raises `OSError`."""
    try:
        folder.mkdir(mode)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        folder.chmod(mode)  # whatever the umask took away


def _open_lock(path: Path) -> int:
    with translated(f"cannot open {path}"):
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in (EROFS, EACCES, EPERM) or not path.exists():
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a lock needs no right to write


def _share_of_descriptors() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else max(16, soft // 4)
