"""One writer per table: a lock that the operating system gives back when its process dies, however it dies."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...ports.errors import BarnabasError, ConfigError


class TableLocked(BarnabasError):
    """Another process is changing the table."""


@contextmanager
def exclusive(path: Path, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock at `path` (an advisory file lock, `flock`), waiting up to `wait_s` for it. Raises `TableLocked`.

    The file stays: its content only tells others who holds it. A dead holder's lock is free at once.
    """
    try:
        import fcntl
    except ImportError:
        raise ConfigError("loading needs file locks of a POSIX system (Linux, macOS)") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    with path.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    file.seek(0)
                    holder = file.read().strip() or "another process"
                    raise TableLocked(
                        f"{path.parent.parent} is being changed by {holder}; try again when it is done"
                    ) from None
                time.sleep(0.05)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield
