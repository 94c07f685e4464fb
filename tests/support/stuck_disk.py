"""A disk that does not answer: one thread of a process is held inside a system call, and all its others run."""

import ctypes
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000
_FDATASYNC = {"x86_64": 75, "aarch64": 83}
_PATIENCE_S = 120.0


@contextmanager
def fdatasync_held(pid: int, file_suffix: str) -> Iterator[None]:
    """Wait until a thread of the process `pid` syncs a file with this suffix, and let that call not return.

    The disk needs a writer meanwhile. Skips the test where the system does not allow it.
    """
    if sys.platform != "linux" or platform.machine() not in _FDATASYNC:
        pytest.skip("holding one thread of a process needs Linux")
    thread = _catch(pid, file_suffix)
    try:
        yield
    finally:
        _ptrace(_PTRACE_DETACH, thread)


def _catch(pid: int, file_suffix: str) -> int:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        for thread in [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]:
            if not _is_syncing(pid, thread, file_suffix):
                continue
            if _ptrace(_PTRACE_SEIZE, thread) != 0:
                pytest.skip("this system does not allow ptrace of a child")
            _ptrace(_PTRACE_INTERRUPT, thread)
            os.waitpid(thread, _WALL)
            if _is_syncing(pid, thread, file_suffix):  # it stops on its way out of the call
                return thread
            _ptrace(_PTRACE_DETACH, thread)
    raise TimeoutError(f"no fdatasync of *{file_suffix} was seen within {_PATIENCE_S:.0f} s")


def _is_syncing(pid: int, thread: int, file_suffix: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/task/{thread}/syscall").read_text().split()
        if words[0] != str(_FDATASYNC[platform.machine()]):
            return False
        return Path(f"/proc/{pid}/fd/{int(words[1], 16)}").readlink().name.endswith(file_suffix)
    except (OSError, IndexError):
        return False  # the thread, or the file, is gone


def _ptrace(request: int, thread: int) -> int:
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    ptrace.restype = ctypes.c_long
    return int(ptrace(request, thread, None, None))
