"""A folder that appends a suffix to every name, for unfinished segments."""

from collections.abc import Mapping

from ....ports.storage import File, FileInfo, Folder


class SuffixedFolder:
    """Implements `Folder` over the files of another folder that have the suffix."""

    def __init__(self, folder: Folder, suffix: str) -> None:
        self._folder = folder
        self._suffix = suffix

    @property
    def name(self) -> str:
        return self._folder.name

    def files(self) -> Mapping[str, FileInfo]:
        found = self._folder.files().items()
        return {name.removesuffix(self._suffix): info for name, info in found if name.endswith(self._suffix)}

    def open(self, name: str, *, create: bool = True) -> File:
        return self._folder.open(name + self._suffix, create=create)

    def rename(self, old: str, new: str) -> None:
        self._folder.rename(old + self._suffix, new + self._suffix)

    def delete(self, name: str) -> None:
        self._folder.delete(name + self._suffix)

    def read_small(self, name: str) -> bytes:
        return self._folder.read_small(name + self._suffix)

    def write_small(self, name: str, content: bytes) -> None:
        self._folder.write_small(name + self._suffix, content)

    def write_all_small(self, contents: Mapping[str, bytes]) -> None:
        self._folder.write_all_small({name + self._suffix: content for name, content in contents.items()})

    def flush(self) -> None:
        self._folder.flush()
