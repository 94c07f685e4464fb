"""The conversion of the system's errors to those of the storage port."""

import errno

from ...ports.storage import FileMissing, StorageError, StorageFull, StorageReadOnly

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
