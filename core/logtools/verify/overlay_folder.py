"""Copy-on-write folders for dry runs: changes stay in memory, and nothing on the disk changes.

Appended bytes are in memory; copied parts of existing files are references.
"""

from collections.abc import Mapping

from ....ports.storage import File, FileInfo, FileMissing, Folder, LogDir, Region, StorageError
from ....ports.types import Buffer, Position

_COPY_BYTES = 1 << 20


class FilePart:
    """Bytes [start, end) of an existing file or of a buffer."""

    __slots__ = ("end", "source", "start")

    def __init__(self, source: File | bytes, start: int, end: int) -> None:
        self.source, self.start, self.end = source, start, end

    def read(self, at: int, size: int) -> bytes:
        start = self.start + at
        stop = min(start + size, self.end)
        if isinstance(self.source, bytes):
            return self.source[start:stop]
        return self.source.read(start, stop - start)


class _Content:
    __slots__ = ("modified_ms", "pieces", "size")

    def __init__(self, modified_ms: int, pieces: list[FilePart]) -> None:
        self.modified_ms = modified_ms
        self.pieces = pieces
        self.size = sum(piece.end - piece.start for piece in pieces)


class OverlayFile:
    """A `File` whose changes are in memory."""

    def __init__(self, name: str, content: _Content) -> None:
        self.name = name
        self._content = content

    @property
    def size(self) -> int:
        return self._content.size

    def append(self, *buffers: Buffer) -> Position:
        start = self._content.size
        for buffer in buffers:
            data = bytes(buffer)
            self.borrow(data, 0, len(data))
        return Position(start)

    def borrow(self, source: File | bytes, start: int, end: int) -> None:
        """Append that part of another file without reading it."""
        self._content.pieces.append(FilePart(source, start, end))
        self._content.size += end - start

    def read(self, position: int, size: int) -> bytes:
        found: list[bytes] = []
        at = 0
        for piece in self._content.pieces:
            length = piece.end - piece.start
            if position < at + length and size > 0:
                data = piece.read(position - at, size)
                found.append(data)
                position += len(data)
                size -= len(data)
            at += length
        return found[0] if len(found) == 1 else b"".join(found)

    def region(self, position: int, size: int) -> Region:
        raise NotImplementedError("an overlay file has no regions to send")

    def flush(self) -> None:
        """Do nothing: the content is not durable."""

    def truncate(self, size: int) -> None:
        pieces: list[FilePart] = []
        left = size
        for piece in self._content.pieces:
            length = min(left, piece.end - piece.start)
            if length:
                pieces.append(FilePart(piece.source, piece.start, piece.start + length))
            left -= length
        self._content.pieces, self._content.size = pieces, size

    def close(self) -> None:
        """Do nothing: the files below are closed with their folder."""


class OverlayFolder:
    """A `Folder` over an existing one (None: over an empty one). Raises as that does."""

    def __init__(self, folder: Folder | None, name: str = "") -> None:
        self._folder = folder
        self._name = folder.name if folder is not None else name
        self._files: dict[str, FileInfo | _Content] = dict(folder.files()) if folder is not None else {}
        self._behind: dict[str, str] = {name: name for name in self._files}
        """The names on the disk of files that are not opened yet."""

    @property
    def name(self) -> str:
        return self._name

    def files(self) -> Mapping[str, FileInfo]:
        return {
            name: FileInfo(size=file.size, modified_ms=file.modified_ms) for name, file in sorted(self._files.items())
        }

    def open(self, name: str, *, create: bool = True) -> OverlayFile:
        return OverlayFile(name, self._content(name, create=create))

    def _content(self, name: str, *, create: bool) -> _Content:
        file = self._files.get(name)
        if file is None:
            if not create:
                raise FileMissing(f"{self._name}/{name} is missing")
            file = self._files[name] = _Content(0, [])
        elif isinstance(file, FileInfo):
            assert self._folder is not None
            opened = self._folder.open(self._behind.pop(name), create=False)
            file = self._files[name] = _Content(file.modified_ms, [FilePart(opened, 0, opened.size)])
        return file

    def rename(self, old: str, new: str) -> None:
        if old not in self._files:
            raise FileMissing(f"{self._name}/{old} is missing")
        self._files[new] = self._files.pop(old)
        self._behind.pop(new, None)
        if old in self._behind:
            self._behind[new] = self._behind.pop(old)

    def delete(self, name: str) -> None:
        self._files.pop(name, None)
        self._behind.pop(name, None)

    def read_small(self, name: str) -> bytes:
        file = self._content(name, create=False)
        return OverlayFile(name, file).read(0, file.size)

    def write_small(self, name: str, content: bytes) -> None:
        self.delete(name)
        self.open(name).append(content)

    def write_all_small(self, contents: Mapping[str, bytes]) -> None:
        for name, content in contents.items():
            self.write_small(name, content)

    def flush(self) -> None:
        """Do nothing: the content is not durable."""


class OverlayLogDir:
    """A `LogDir` over an existing one."""

    def __init__(self, log_dir: LogDir) -> None:
        self._log_dir = log_dir
        self.root = OverlayFolder(log_dir.root)
        self._folders: dict[str, OverlayFolder | None] = dict.fromkeys(log_dir.folders())

    @property
    def path(self) -> str:
        return self._log_dir.path

    def folders(self) -> list[str]:
        return sorted(self._folders)

    def folder(self, name: str) -> OverlayFolder:
        made = self._folders.get(name)
        if made is None:
            behind = self._log_dir.folder(name) if name in self._folders else None
            made = self._folders[name] = OverlayFolder(behind, name)
        return made

    def rename_folder(self, old: str, new: str) -> None:
        if new in self._folders:
            raise StorageError(f"cannot rename {old}: {new} exists")
        self._folders[new] = self.folder(old)
        del self._folders[old]

    def delete_folder(self, name: str) -> None:
        self._folders.pop(name, None)

    def space(self) -> tuple[int, int]:
        return self._log_dir.space()

    def close(self) -> None:
        self._log_dir.close()


def copy_range(source: File, start: int, end: int, target: File) -> None:
    """Append bytes [start, end) of one file to another. Raises `StorageError`."""
    if isinstance(target, OverlayFile):
        target.borrow(source, start, end)
        return
    while start < end:
        piece = source.read(start, min(_COPY_BYTES, end - start))
        if not piece:
            raise StorageError(f"{source.name} is shorter than {end} bytes now")
        target.append(piece)
        start += len(piece)
