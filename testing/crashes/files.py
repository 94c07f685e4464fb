"""`open` for files that are recorded: what it opens writes through `os`."""

import io
import os
from collections.abc import Callable
from typing import Any

_BUFFER_BYTES = 8192


class _Raw(io.FileIO):
    """A file whose writes go through `os.write`, which is recorded."""

    def write(self, data: Any, /) -> int:
        return os.write(self.fileno(), bytes(data))

    def truncate(self, size: int | None = None, /) -> int:
        size = self.tell() if size is None else size
        os.ftruncate(self.fileno(), size)
        return size


def recorded_open(
    is_inside: Callable[[Any], bool],
    real: Callable[..., Any],
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[str, int], int] | None = None,
) -> Any:
    """Open a file as `open` does; writes inside the recorded folder are recorded."""
    if not set(mode) & set("wax+") or not is_inside(file):
        return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
    plain = mode.replace("b", "").replace("t", "")
    raw = _Raw(file, plain, closefd, opener or (lambda path, flags: os.open(path, flags, 0o666)))
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else _BUFFER_BYTES
    buffered = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
    if "b" in mode:
        return buffered
    return io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
