"""Files of Iceberg's metadata that survive a power cut: pyiceberg only closes what it writes to a local disk."""

import io
import os
from pathlib import Path
from typing import Any

from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from ..files import sync


class DurableFileIO(PyArrowFileIO):
    """File access like pyiceberg's own; but a local file, with its name, is durable when it is closed."""

    def new_output(self, location: str) -> Any:
        """Other schemes (s3:// and such) are durable by themselves."""
        path = local_path(location)
        return super().new_output(location) if path is None else _LocalOutput(location, path, self)


def local_path(location: str) -> Path | None:
    """Return the path of a location; None if it is not on a local disk."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return None if "://" in location else Path(location)


class _LocalOutput(OutputFile):
    def __init__(self, location: str, path: Path, files: PyArrowFileIO) -> None:
        super().__init__(location)
        self._path = path
        self._files = files

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        return self._path.exists()

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return SyncedStream(self._path, "w" if overwrite else "x")


class SyncedStream(io.BufferedWriter):
    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(io.FileIO(path, mode))
        self._folder = path.parent

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync(self._folder)
