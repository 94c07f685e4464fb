"""Recording what this process does to a folder: functions of `os` and `open` are replaced for a while.

Files that are written by others, in C or by another process, are noticed when they are synced or renamed by this one.
A hard link to a file outside of the folder has its content at once, durable. Symbolic links, and moves over the edge of
the folder, are not known.
"""

import builtins
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from unittest import mock

from ...ports.entropy import Entropy
from .disk import Disk, Left
from .operations import ROOT, Cut, Made, Moved, Note, Operation, Removed, Synced, Wrote

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


_APPENDS = os.O_APPEND
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class Recording:
    """A context manager. What is in the folder at its beginning is taken for durable. One thread at a time writes."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).absolute()
        self.operations: list[Operation] = []
        self.began = 0
        """The number of first operations that only describe what was there at the beginning."""
        self._nodes: dict[int, int] = {}
        self._contents: dict[int, bytearray] = {}
        self._device = 0
        self._numbers = ROOT
        self._patches = ExitStack()

    def note(self, what: object, *, at: int | None = None) -> None:
        """Put a note among the operations; `at`: before the operation of that number."""
        self.operations.insert(len(self.operations) if at is None else at, Note(what))

    def __enter__(self) -> Self:
        found = self.folder.stat()
        self._device = found.st_dev
        self._nodes[found.st_ino] = ROOT
        self._look()
        self.operations += [Synced(number) for number in (*self._contents, *self._folders())]
        self.began = len(self.operations)
        wrappers: dict[Callable[..., Any], tuple[str, ...]] = {
            self._open: ("open",),
            self._write: ("write",),
            self._writev: ("writev",),
            self._pwrite: ("pwrite",),
            self._copy_file_range: ("copy_file_range",),
            self._fsync: ("fsync", "fdatasync"),
            self._ftruncate: ("ftruncate",),
            self._truncate: ("truncate",),
            self._rename: ("rename", "replace"),
            self._link: ("link",),
            self._remove: ("unlink", "remove", "rmdir"),
            self._mkdir: ("mkdir",),
        }
        for wrapper, names in wrappers.items():
            for name in names:
                if hasattr(os, name):  # macOS has no fdatasync
                    self._replace(os, name, wrapper)
        self._replace(fcntl, "fcntl", self._fcntl)
        for module in (io, builtins):
            self._replace(module, "open", partial(recorded_open, self._is_inside))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._patches.close()

    def _replace(self, module: Any, name: str, wrapper: Callable[..., Any]) -> None:
        real = getattr(module, name)
        replaced = lambda *args, **kwargs: wrapper(real, *args, **kwargs)  # noqa: E731
        self._patches.enter_context(mock.patch.object(module, name, replaced))

    # --- which file it is

    def _is_inside(self, path: Any) -> bool:
        if isinstance(path, int):
            return self._of_descriptor(path) is not None
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  # resolves no links
        return text == str(self.folder) or text.startswith(f"{self.folder}{os.sep}")

    def _of_descriptor(self, fd: int) -> int | None:
        found = os.fstat(fd)
        return self._nodes.get(found.st_ino) if found.st_dev == self._device else None

    def _place(self, path: Any, dir_fd: int | None) -> tuple[int, str] | None:
        """(number of the folder, name) of a path in the recorded folder."""
        text = os.fsdecode(path)
        if dir_fd is not None and not os.path.isabs(text):  # noqa: PTH117
            folder = self._of_descriptor(dir_fd)
            return None if folder is None else (folder, text)
        whole = Path(text).absolute()
        if self.folder not in whole.parents:
            return None
        found = whole.parent.stat()
        if found.st_ino not in self._nodes:
            self._look()
        return self._nodes[found.st_ino], whole.name

    def _number(self, found: os.stat_result) -> int:
        """Return a new one, of a file or folder that has just come."""
        self._numbers += 1
        self._nodes[found.st_ino] = self._numbers
        if not stat.S_ISDIR(found.st_mode):
            self._contents[self._numbers] = bytearray()
        return self._numbers

    def _folders(self) -> Iterable[int]:
        return (number for number in self._nodes.values() if number not in self._contents)

    def _look(self) -> None:
        """Notice what has come by other means."""
        known = {(op.folder, op.name) for op in self.operations if isinstance(op, Made)}
        for parent, folders, files in os.walk(self.folder):
            number = self._nodes[Path(parent).stat().st_ino]
            for name in (*folders, *files):
                path = Path(parent, name)
                found = path.lstat()
                if found.st_ino in self._nodes and (number, name) in known:
                    continue
                if found.st_ino not in self._nodes:
                    self.operations.append(Made(number, name, self._number(found), name in folders))
                    if name in files:
                        self._compare(self._nodes[found.st_ino], path)

    def _compare(self, node: int, path: Path | int) -> None:
        """Notice what was written to a file by other means."""
        if isinstance(path, int):
            size = os.fstat(path).st_size
            content = os.pread(path, size, 0) if _readable(path) else bytes(self._contents[node])
        else:
            content = path.read_bytes()
        known = self._contents[node]
        if known != content:
            if len(content) < len(known):
                self._add(Cut(node, len(content)))
            self._add(Wrote(node, 0, content))

    def _add(self, operation: Operation) -> None:
        self.operations.append(operation)
        if isinstance(operation, Wrote):
            content = self._contents[operation.node]
            content.extend(bytes(max(0, operation.position - len(content))))
            content[operation.position : operation.position + len(operation.data)] = operation.data
        elif isinstance(operation, Cut):
            del self._contents[operation.node][operation.size :]

    # --- what is done

    def _open(self, real: Callable[..., int], path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        place = self._place(path, more.get("dir_fd")) if flags & (os.O_CREAT | os.O_TRUNC) else None
        if place is None:
            return real(path, flags, mode, **more)
        try:
            before: os.stat_result | None = os.stat(path, **more)  # noqa: PTH116  # paths know no dir_fd
        except FileNotFoundError:
            before = None
        fd = real(path, flags, mode, **more)
        if before is None:
            self._add(Made(*place, self._number(os.fstat(fd)), is_folder=False))
        elif flags & os.O_TRUNC and before.st_size:
            node = self._of_descriptor(fd)
            assert node is not None
            self._add(Cut(node, 0))
        return fd

    def _wrote(self, fd: int, write: Callable[[], int], data: Callable[[], bytes], position: int | None = None) -> int:
        node = self._of_descriptor(fd)
        if node is None:
            return write()
        if position is None:
            appends = fcntl.fcntl(fd, fcntl.F_GETFL) & _APPENDS
            position = os.fstat(fd).st_size if appends else os.lseek(fd, 0, os.SEEK_CUR)
        count = write()
        if count:
            self._add(Wrote(node, position, data()[:count]))
        return count

    def _write(self, real: Callable[..., int], fd: int, data: Any) -> int:
        return self._wrote(fd, lambda: real(fd, data), lambda: bytes(data))

    def _writev(self, real: Callable[..., int], fd: int, buffers: Any) -> int:
        return self._wrote(fd, lambda: real(fd, buffers), lambda: b"".join(buffers))

    def _pwrite(self, real: Callable[..., int], fd: int, data: Any, position: int) -> int:
        return self._wrote(fd, lambda: real(fd, data, position), lambda: bytes(data), position)

    def _copy_file_range(
        self,
        real: Callable[..., int],
        source: int,
        target: int,
        count: int,
        offset_src: int | None = None,
        offset_dst: int | None = None,
    ) -> int:
        start = os.lseek(source, 0, os.SEEK_CUR) if offset_src is None else offset_src
        done = [0]

        def copied() -> int:
            done[0] = real(source, target, count, offset_src, offset_dst)
            return done[0]

        return self._wrote(target, copied, lambda: os.pread(source, done[0], start), offset_dst)

    def _ftruncate(self, real: Callable[..., None], fd: int, size: int) -> None:
        node, before = self._of_descriptor(fd), os.fstat(fd).st_size
        real(fd, size)
        if node is not None and size != before:
            self._add(Cut(node, size) if size < before else Wrote(node, before, bytes(size - before)))

    def _truncate(self, real: Callable[..., None], path: Any, size: int) -> None:
        if not self._is_inside(path):
            real(path, size)
            return
        fd = os.open(path, os.O_WRONLY)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def _fsync(self, real: Callable[..., None], fd: int) -> None:
        real(fd)
        self._synced(fd)

    def _fcntl(self, real: Callable[..., Any], fd: Any, command: int, *more: Any) -> Any:
        result = real(fd, command, *more)
        if _FULL_SYNC is not None and command == _FULL_SYNC:
            self._synced(fd if isinstance(fd, int) else fd.fileno())
        return result

    def _synced(self, fd: int) -> None:
        found = os.fstat(fd)
        if found.st_dev != self._device:
            return
        if found.st_ino not in self._nodes or stat.S_ISDIR(found.st_mode):
            self._look()
        node = self._nodes.get(found.st_ino)
        if node is not None:
            if node in self._contents:
                self._compare(node, fd)
            self._add(Synced(node))

    def _rename(self, real: Callable[..., None], old: Any, new: Any, **more: Any) -> None:
        source, target = self._place(old, more.get("src_dir_fd")), self._place(new, more.get("dst_dir_fd"))
        if source is None and target is None:
            real(old, new, **more)
            return
        if source is None or target is None:
            raise NotImplementedError(f"{old} to {new}: moves over the edge of what is recorded")
        found = os.stat(old, dir_fd=more.get("src_dir_fd"), follow_symlinks=False)
        if found.st_ino not in self._nodes:
            self._look()
        real(old, new, **more)
        self._add(Moved(*source, *target, self._nodes[found.st_ino]))

    def _link(self, real: Callable[..., None], source: Any, target: Any, **more: Any) -> None:
        place = self._place(target, more.get("dst_dir_fd"))
        real(source, target, **more)
        if place is None:
            return
        found = os.stat(target)  # noqa: PTH116
        node, content = self._nodes.get(found.st_ino), b""
        if node is None:
            node, content = self._number(found), Path(target).read_bytes()
            self._contents[node][:] = content
        self._add(Made(*place, node, is_folder=False, content=content))

    def _remove(self, real: Callable[..., None], path: Any, **more: Any) -> None:
        place = self._place(path, more.get("dir_fd"))
        real(path, **more)
        if place is not None:
            self._add(Removed(*place))

    def _mkdir(self, real: Callable[..., None], path: Any, mode: int = 0o777, **more: Any) -> None:
        place = self._place(path, more.get("dir_fd"))
        real(path, mode, **more)
        if place is not None:
            self._add(Made(*place, self._number(os.stat(path, **more)), is_folder=True))  # noqa: PTH116


def _readable(fd: int) -> bool:
    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY


# Every moment of a recording at which the power may go, and what is found then.


class Crash(NamedTuple):
    """A power cut after a number of `operations`; `number` says which of the states that may be left then."""

    operations: int
    number: int
    left: Left
    noted: Sequence[object]
    """All that was noted until then."""


def crashes(
    operations: Sequence[Operation], entropy: Entropy, *, first: int = 0, more: int = 4, loose: bool = True
) -> Iterator[Crash]:
    """Yield what may be left after each of the operations from number `first` on: each content once after the same
    notes.

    `more` is the number of random states at each moment, in addition to the extremes of what is possible.
    """
    disk, noted = Disk(), list[object]()
    reported: set[tuple[int, int]] = set()
    for count, operation in enumerate(operations, 1):
        disk.play(operation)
        if isinstance(operation, Note):
            noted.append(operation.what)
        if count < first:
            continue
        for number, left in enumerate(disk.left(entropy, more, loose=loose)):
            known = left.key, len(noted)
            if known not in reported:
                reported.add(known)
                yield Crash(count, number, left, noted)
