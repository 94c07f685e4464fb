"""The operations on a folder, one system call at a time. Files and folders have numbers, whatever their names are."""

from typing import NamedTuple, TypeAlias

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
