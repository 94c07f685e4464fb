"""Simulated power cuts: all operations on a folder are recorded, and the folder is made again as it may be found after
a crash at any moment.

    with Recording(folder) as recording:
        work(folder)                       # notes what it promises: recording.note(...)
    for crash in crashes(recording.operations, entropy):
        crash.left.write_to(elsewhere)     # or crash.left.files, in memory
        look(elsewhere, crash.noted)       # is all there that was promised?

A recording replaces functions of `os` and `open` for a while, and has one operation for each system call; files and
folders have numbers, whatever their names are. Files that are written by others, in C or by another process, are
noticed when they are synced or renamed by this one. A hard link to a file outside of the folder has its content at
once, durable. Symbolic links, and moves over the edge of the folder, are not known.

File systems differ in what they keep of calls without a sync. Two models of a disk are tried (see docs/reliability.md):

journalled: as ext4 (data=ordered) and XFS. All changes of names and all cuts go into one journal in their order, and
            a crash leaves the journal up to some moment. `fsync` of a file makes the journal durable up to the last
            change of that file, `fsync` of a folder up to the last change of a name in it. Bytes that were written and
            not synced are there or not, block by block.
loose:      only what POSIX guarantees. Each folder keeps its own names in their order, `fsync` of a file does not cover
            its name, each file its own cuts and bytes.
"""

import builtins
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias
from unittest import mock

from ..ports.entropy import Entropy

__all__ = [
    "Crash",
    "Cut",
    "Disk",
    "Left",
    "Made",
    "Moved",
    "Note",
    "Operation",
    "Recording",
    "Removed",
    "Synced",
    "Wrote",
    "crashes",
]

ROOT = 0
"""The number of the folder that is recorded."""


class Made(NamedTuple):
    """A file or a folder has come."""

    folder: int
    name: str
    node: int
    is_folder: bool
    content: bytes = b""
    """The content of a file that was linked from elsewhere, which is durable."""


class Wrote(NamedTuple):
    """Bytes of a file, there or beyond its end."""

    node: int
    position: int
    data: bytes


class Cut(NamedTuple):
    """A file was truncated."""

    node: int
    size: int


class Moved(NamedTuple):
    """Renamed; what had the new name before is gone."""

    folder: int
    name: str
    to_folder: int
    to_name: str
    node: int


class Removed(NamedTuple):
    """A name was taken away."""

    folder: int
    name: str


class Synced(NamedTuple):
    """A file or a folder was made durable (fsync), as it was when the call ended."""

    node: int


class Note(NamedTuple):
    """A statement of the program about itself at this moment; the disk does not change."""

    what: object


Operation: TypeAlias = Made | Wrote | Cut | Moved | Removed | Synced | Note


BLOCK = 512
"""A block is there as a whole or not, but for the last one that was being written. Small, as the files of tests are."""

_NameOp = Made | Moved | Removed
_Names = dict[int, dict[str, int]]


class Left:
    """One state after a crash: the content of each file by its path below the folder, and all folders there."""

    __slots__ = ("files", "folders", "loose")

    def __init__(self, files: Mapping[str, bytes], folders: Sequence[str], *, loose: bool = False) -> None:
        self.files = files
        self.folders = folders
        self.loose = loose
        """True if only a file system that keeps no order between folders leaves this."""

    @property
    def key(self) -> int:
        """A hash of the content: equal contents have equal keys."""
        return hash((frozenset(self.files.items()), frozenset(self.folders)))

    def write_to(self, folder: Path) -> None:
        """Make it again, below a folder that is empty or missing."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in self.folders:
            (folder / name).mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


class _Node:
    """A file as the platters are known to have it, and what came later."""

    __slots__ = ("_whole", "later", "synced")

    def __init__(self, synced: bytes) -> None:
        self.synced = synced
        self.later: list[tuple[int, Wrote | Cut]] = []
        self._whole: bytes | None = None

    def add(self, index: int, operation: Wrote | Cut) -> None:
        self.later.append((index, operation))
        self._whole = None

    def whole(self) -> bytes:
        """Return all of it, as programs see it."""
        if self._whole is None:
            self._whole = bytes(_played(self.synced, [op for _, op in self.later]))
        return self._whole

    def sync(self) -> None:
        self.synced = self.whole()
        self.later.clear()


def _played(content: bytes, operations: Sequence[Wrote | Cut]) -> bytearray:
    data = bytearray(content)
    for op in operations:
        if isinstance(op, Cut):
            del data[op.size :]
        else:
            data.extend(bytes(max(0, op.position - len(data))))
            data[op.position : op.position + len(op.data)] = op.data
    return data


def _changed(names: _Names, op: _NameOp, within: Callable[[int], bool]) -> None:
    """Do what an operation does to the names of the folders that `within` admits."""
    if isinstance(op, Made):
        if within(op.folder):
            names.setdefault(op.folder, {})[op.name] = op.node
        if op.is_folder:
            names.setdefault(op.node, {})
    elif isinstance(op, Removed):
        if within(op.folder):
            names.setdefault(op.folder, {}).pop(op.name, None)
    else:
        if within(op.folder) and names.setdefault(op.folder, {}).get(op.name) == op.node:
            del names[op.folder][op.name]
        if within(op.to_folder):
            names.setdefault(op.to_folder, {})[op.to_name] = op.node


def _folders_of(op: _NameOp) -> tuple[int, ...]:
    return (op.folder, op.to_folder) if isinstance(op, Moved) else (op.folder,)


class Disk:
    """Play operations with `play`, and ask for what may be `left` at any moment."""

    def __init__(self) -> None:
        self.played = 0
        self._files: dict[int, _Node] = {}
        self._journal: list[tuple[int, _NameOp]] = []
        """Changes of names behind `_journalled`, in order."""
        self._journalled = 0
        """The journal is durable up to this operation."""
        self._names: _Names = {ROOT: {}}
        """The names as the journal has them up to there."""
        self._loose: list[tuple[int, _NameOp, set[int]]] = []
        """Changes of names, and in which of their folders they are not durable."""
        self._loose_names: _Names = {ROOT: {}}

    def play(self, operation: Operation) -> None:
        self.played += 1
        index = self.played
        match operation:
            case Note():
                return
            case Wrote() | Cut():
                self._files[operation.node].add(index, operation)
            case Synced():
                self._sync(operation.node)
            case _:
                if isinstance(operation, Made) and not operation.is_folder and operation.node not in self._files:
                    self._files[operation.node] = _Node(operation.content)
                self._journal.append((index, operation))
                self._loose.append((index, operation, set(_folders_of(operation))))
                if isinstance(operation, Made) and operation.is_folder:
                    self._loose_names.setdefault(operation.node, {})

    def _sync(self, number: int) -> None:
        node = self._files.get(number)
        if node is None:
            concerned = [index for index, op in self._journal if number in _folders_of(op) or _node(op) == number]
            self._sync_folder(number)
        elif node.later:
            concerned = [self.played]
        else:
            concerned = [index for index, op in self._journal if _node(op) == number]
        self._journalled = max(self._journalled, *concerned, 0)
        while self._journal and self._journal[0][0] <= self._journalled:
            _changed(self._names, self._journal.pop(0)[1], lambda _: True)
        if node is not None:
            node.sync()

    def _sync_folder(self, number: int) -> None:
        waiting = []
        for index, op, folders in self._loose:
            if number in folders:
                _changed(self._loose_names, op, lambda folder: folder == number)
                folders.discard(number)
            if folders:
                waiting.append((index, op, folders))
        self._loose = waiting

    # --- what is left

    def left(self, entropy: Entropy, more: int, *, loose: bool = True) -> Iterator[Left]:
        """Yield states that may be found now: the extremes of what is possible, then `more` random ones. Some may be
        equal.
        """
        now = self.played
        yield self._tree(self._names_at(now), lambda node: node.whole())
        nothing = lambda node: _surviving_bytes(node, now, lambda _base, _whole: None)  # noqa: E731
        yield self._tree(self._names_at(now), nothing)
        durable = self._journalled
        yield self._tree(
            self._names_at(durable), lambda node: _surviving_bytes(node, durable, lambda _base, _whole: None)
        )
        for _ in range(more):
            yield self._left_loosely(entropy) if loose and entropy.below(3) == 0 else self._left_in_order(entropy)

    def _left_in_order(self, entropy: Entropy) -> Left:
        now, durable = self.played, self._journalled
        upto = durable + entropy.below(now - durable + 1) if entropy.below(2) else now
        lose = lambda base, whole: _torn(base, whole, entropy)  # noqa: E731
        return self._tree(self._names_at(upto), lambda node: _surviving_bytes(node, upto, lose))

    def _left_loosely(self, entropy: Entropy) -> Left:
        names = {folder: dict(entries) for folder, entries in self._loose_names.items()}
        bounds: dict[int, int] = {}
        for index, op, folders in self._loose:
            for folder in folders:
                if folder not in bounds:
                    bounds[folder] = entropy.below(self.played + 1)
            # A move from one folder to another is in both or in none.
            if all(index <= bounds[folder] for folder in folders):
                _changed(names, op, folders.__contains__)
            else:
                bounds.update({folder: min(bounds[folder], index - 1) for folder in folders})
        lose = lambda base, whole: _torn(base, whole, entropy)  # noqa: E731
        return self._tree(names, lambda node: _surviving_bytes(node, entropy.below(self.played + 1), lose), loose=True)

    def _names_at(self, upto: int) -> _Names:
        names = {folder: dict(entries) for folder, entries in self._names.items()}
        for index, op in self._journal:
            if index <= upto:
                _changed(names, op, lambda _: True)
        return names

    def _tree(self, names: _Names, content: Callable[[_Node], bytes], *, loose: bool = False) -> Left:
        files: dict[str, bytes] = {}
        folders: list[str] = []
        waiting = [("", ROOT)]
        while waiting:
            path, number = waiting.pop()
            for name, node in names[number].items():
                if node in self._files:
                    file = self._files[node]
                    files[path + name] = content(file) if file.later else file.synced
                else:
                    folders.append(path + name)
                    waiting.append((f"{path}{name}/", node))
        return Left(files, sorted(folders), loose=loose)


def _node(op: _NameOp) -> int | None:
    return None if isinstance(op, Removed) else op.node


def _surviving_bytes(node: _Node, upto: int, lose: Callable[[bytes, bytes], bytes | None]) -> bytes:
    """Return the content up to an operation: cuts count, of the bytes written later `lose` decides (None: all are
    lost)."""
    operations = [op for index, op in node.later if index <= upto]
    base = bytes(_played(node.synced, [op for op in operations if isinstance(op, Cut) and op.size < len(node.synced)]))
    whole = bytes(_played(node.synced, operations))
    surviving = lose(base, whole) if base != whole else whole
    return base if surviving is None else surviving


def _torn(base: bytes, whole: bytes, entropy: Entropy) -> bytes | None:
    """Return a file of which `base` was durable and `whole` was written."""
    kind = entropy.below(5)
    if kind == 0:
        return None
    if kind == 1:
        return whole
    grown = len(whole) - len(base)
    end = len(base) + entropy.below(grown + 1) if grown > 0 else len(whole)
    if kind == 2:
        return whole[:end]  # cut at any byte
    if kind == 3:
        return whole[:end] + bytes(len(whole) - end)  # the size is there, the bytes are not
    blocks = bytearray(whole)
    for start in range(0, len(whole), BLOCK):
        if entropy.below(2):
            old = base[start : start + BLOCK]
            blocks[start : start + BLOCK] = (old + bytes(BLOCK))[: len(whole[start : start + BLOCK])]
    return bytes(blocks)


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
        self._scan_folder()
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
            self._scan_folder()
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

    def _scan_folder(self) -> None:
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
            self._scan_folder()
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
            self._scan_folder()
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
