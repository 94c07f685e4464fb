"""Looking at the etcd servers that Barnabas runs by itself."""

from pathlib import Path

import psutil


def etcd_of(folder: Path, *, guard: bool = False) -> psutil.Process | None:
    """Return the running server whose data are below `folder`, or the shell in front of it."""
    mark = f"--data-dir={folder / 'data'}"
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if mark not in words or (words[0] == "/bin/sh") != guard or process.status() == psutil.STATUS_ZOMBIE:
                continue
            parent = process.parent() if guard else None
            if parent is None or parent.cmdline() != words:  # the shell's own child, which watches us, looks like it
                return process
        except psutil.Error:
            continue
    return None


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
