"""One data folder, locked for this process."""

import fcntl
import os
import resource
import threading
from errno import EACCES, EAGAIN, EPERM, EROFS, EWOULDBLOCK
from pathlib import Path
from weakref import WeakValueDictionary

from ...ports.storage import FileMissing, FolderLocked, StorageError
from .descriptors import DescriptorPool
from .errors import plain_name, storage_error
from .folder import FsFolder, translated

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
