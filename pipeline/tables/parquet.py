"""Tables as plain Parquet: a commit log of our own decides what is in effect, then files are moved to their places."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import unquote

import attrs

from .commits import CommitLog, LoggedCommit
from .lock import TableLocked
from .state import Commit, DataFile, Staging, TableChange, TableError, plain_os_errors
from .store import Checkpoint, no_checkpoint

PARQUET = "parquet"
RECOVERY_WAIT_S = 30.0
_LOCK_WAIT_S = 0.2
_NULL = "__HIVE_DEFAULT_PARTITION__"


class ParquetTable:
    """Fulfils `TableStore`."""

    format = PARQUET

    def __init__(self, folder: Path, *, checkpoint: Checkpoint = no_checkpoint) -> None:
        self.folder = folder
        self._log = CommitLog(folder, checkpoint=checkpoint)

    def exists(self) -> bool:
        return self._log.exists()

    def last(self) -> Commit | None:
        return self._log.last()

    def history(self) -> Iterator[Commit]:
        return self._log.history()

    def files(self) -> Sequence[DataFile]:
        paths = sorted(self.folder.rglob("*.parquet"))
        named = ((path, path.relative_to(self.folder)) for path in paths)
        return [
            DataFile(
                name=name.as_posix(),
                rows=parquet_rows(path),
                size_bytes=path.stat().st_size,
                partition=partition_values(name),
            )
            for path, name in named
            if not name.parts[0].startswith("_")
        ]

    def locked(self, *, wait_s: float = 0.0) -> AbstractContextManager[None]:
        return self._log.locked(wait_s=wait_s)

    def recover(self) -> None:
        self._log.recover()

    def settle(self) -> None:
        if not self.exists():
            raise no_table(self.folder)
        deadline = time.monotonic() + RECOVERY_WAIT_S
        with plain_os_errors(self.folder):
            while self._log.unfinished():
                try:
                    with self.locked(wait_s=_LOCK_WAIT_S):
                        self.recover()
                except TableLocked:
                    if time.monotonic() >= deadline:
                        raise

    def vacuum(self, before_ms: int, *, dry_run: bool) -> Sequence[str]:
        """There are no versions: what a commit removes is gone at once."""
        del before_ms, dry_run
        return ()

    def begin(self) -> Staging:
        number, folder = self._log.begin()
        return Staging(folder=folder, number=number)

    def commit(self, staging: Staging, change: TableChange) -> Commit:
        fields = {field.name: getattr(change, field.name) for field in attrs.fields(TableChange)}
        now_ms = time.time_ns() // 1_000_000
        commit = LoggedCommit(number=staging.number, created_ms=now_ms, staging=staging.folder.name, **fields)
        self._log.commit(commit)
        return commit


def no_table(folder: Path) -> TableError:
    return TableError(f"{folder} is not a loaded table: it has no commits; run 'barnabas load' into it first")


def parquet_rows(path: Path) -> int:
    """The number of rows, from the file's footer."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def partition_values(name: Path) -> dict[str, str | None]:
    """From the folders `column=value` of a path, as Spark writes them."""
    pairs = (part.split("=", 1) for part in name.parts[:-1] if "=" in part)
    return {column: None if value == _NULL else unquote(value) for column, value in pairs}
