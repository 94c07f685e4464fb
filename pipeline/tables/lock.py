"""One writer per table: a lock that the operating system gives back when its process dies, however it dies."""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ...ports.errors import BarnabasError, ConfigError

_PAUSE_S = 0.05
_TRIES = 100


class TableLocked(BarnabasError):
    """Another process is changing the table."""


@contextmanager
def exclusive(path: Path, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock at `path` (an advisory file lock, `flock`), waiting up to `wait_s` for it. Raises `TableLocked`.

    The file stays: its content only shows others which process holds it. A dead holder's lock is free at once. But if
    its folder was made for it, and is otherwise empty at the end, it is removed again, with the folders that were made.
    """
    file, made = _locked(path, time.monotonic() + wait_s)
    with file:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        try:
            yield
        finally:
            _remove_created(path, made)


def _locked(path: Path, deadline: float) -> tuple[IO[str], list[Path]]:
    """Return the file, and the folders that were made for it, the innermost first. Raises `TableLocked`."""
    made: list[Path] = []
    for tries_left in reversed(range(_TRIES)):
        made += [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("a+")
        except FileNotFoundError:  # who held it has just taken its folder back
            if tries_left:
                continue
            raise
        try:
            _wait_for(file, path, deadline)
            if _is_at(file, path):
                return file, made
        except BaseException:
            file.close()
            raise
        file.close()
    raise _in_use(path, "another process")


def _wait_for(file: IO[str], path: Path, deadline: float) -> None:
    try:
        import fcntl
    except ImportError:
        raise ConfigError("loading needs file locks of a POSIX system (Linux, macOS)") from None
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                file.seek(0)
                raise _in_use(path, file.read().strip() or "another process") from None
            time.sleep(_PAUSE_S)


def _in_use(path: Path, holder: str) -> TableLocked:
    return TableLocked(f"{path.parent.parent} is being changed by {holder}; try again when it is done")


def _is_at(file: IO[str], path: Path) -> bool:
    """Return False for the lock of a holder who took it back while it was waited for."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _remove_created(path: Path, made: Sequence[Path]) -> None:
    below = sorted(path.parent.rglob("*"), reverse=True)
    if not made or any(each != path and not each.is_dir() for each in below):
        return
    with suppress(OSError):  # something has just come into one of them: it stays
        path.unlink()
        for folder in (*(each for each in below if each != path), *made):
            folder.rmdir()
