"""Tables as plain Parquet: a commit log of our own decides what is in effect, then files are moved to their places."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from .commits import CommitLog, LoggedCommit
from .files import parquet_rows, partition_values, table_columns
from .layout import DEFAULT_LAYOUT, Layout
from .lock import TableLocked
from .state import LOAD, Commit, DataFile, Staging, TableChange, commit_of, fields_of, no_table, plain_os_errors
from .store import Checkpoint, no_checkpoint

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = "parquet"
RECOVERY_WAIT_S = 30.0
_LOCK_WAIT_S = 0.2


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

    def columns(self) -> "pa.Schema":
        last = self.last()
        layout = Layout.parse(DEFAULT_LAYOUT if last is None else last.layout)
        return table_columns(self._newest_files(), layout)

    def _newest_files(self) -> Sequence[Path]:
        """Files that have all columns between them: one of the newest load, whose files have them all, and those that
        other commands have made of older ones since then."""
        found: list[Path] = []
        for commit in self.history():
            there = [path for path in map(self.folder.joinpath, commit.files) if path.exists()]
            if commit.operation == LOAD and there:
                return [*found, there[0]]
            found += there
        return found

    def paths(self) -> Sequence[Path]:
        return [self.folder]

    def locked(self, *, wait_s: float = 0.0) -> AbstractContextManager[None]:
        return self._log.locked(wait_s=wait_s)

    def recover(self) -> None:
        self._log.recover()

    def finish_commit(self) -> None:
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

    def begin_commit(self) -> Staging:
        number, folder = self._log.begin_commit()
        return Staging(folder=folder, number=number)

    def commit(self, staging: Staging, change: TableChange) -> Commit:
        now_ms = time.time_ns() // 1_000_000
        commit = commit_of(change, number=staging.number, created_ms=now_ms)
        self._log.commit(LoggedCommit(staging=staging.folder.name, **fields_of(commit)))
        return commit
