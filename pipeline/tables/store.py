"""The port to a table's format: what loads, commands and readers ask of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .state import Commit, DataFile, Staging, TableChange

if TYPE_CHECKING:
    import pyarrow as pa

Checkpoint = Callable[[str], None]
"""Called with the name of each step of a commit just before it: the tests stop the protocol there."""


def no_checkpoint(_step: str) -> None:
    return None


class TableStore(Protocol):
    """A table in a folder. What changes it needs the lock; reading does not.

    A commit takes effect at one moment, with the state of all topics, and is durable on return. Killed anywhere,
    the table is as before or after it; `recover` finishes or rolls back. Every method may raise `TableError` and
    `OSError`.
    """

    @property
    def folder(self) -> Path: ...

    @property
    def format(self) -> str:
        """One of `formats.FORMATS`."""
        ...

    def exists(self) -> bool:
        """Return True if something was ever committed here."""
        ...

    def last(self) -> Commit | None:
        """Return the newest commit, with the whole state of the table."""
        ...

    def history(self) -> Iterator[Commit]:
        """Yield the commits that are still known, newest first."""
        ...

    def files(self) -> Sequence[DataFile]:
        """Return the files of the newest version."""
        ...

    def columns(self) -> "pa.Schema":
        """Return the columns of the newest version, the partition columns last."""
        ...

    def paths(self) -> Sequence[Path]:
        """Return the files of the newest version as paths for Spark: files, or a folder in which nothing else is."""
        ...

    def locked(self, *, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Context manager: hold the table's lock. Raises `TableLocked`."""
        ...

    def recover(self) -> None:
        """Finish or roll back what others left. Needs the lock."""
        ...

    def finish_commit(self) -> None:
        """Make the newest commit readable: wait for a load that is just committing, and finish what a dead one left.
        Raises `TableError` where there is no table, `TableLocked`.
        """
        ...

    def vacuum(self, before_ms: int, *, dry_run: bool) -> Sequence[str]:
        """Remove the files, and return their names, that no version since this time needs; with `dry_run` only return
        the names. Readers of older versions fail afterwards. Needs the lock.
        """
        ...

    def begin_commit(self) -> Staging:
        """Return an empty staging folder for the next commit. Needs the lock."""
        ...

    def commit(self, staging: Staging, change: TableChange) -> Commit:
        """Put a change into effect, and remove the staging folder. Needs the lock."""
        ...
