"""The commit log of a table: what makes a load take effect all at once.

    DIR/topic=T/day=D/part-000007-00000.parquet      the rows
    DIR/_barnabas/commits/000007.json                one per load: offsets reached, files added and removed
    DIR/_barnabas/staging/000007-<token>/...         files of a load that is not in effect yet
    DIR/_barnabas/lock

A load writes its files below `staging`, makes them durable, and then writes its commit file atomically: that is the
moment at which it takes effect. Only then are files moved to their places and replaced files removed, and last the
staging folder goes. A staging folder without commit is rolled back; one with a commit is rolled forward. Both are safe
to repeat, so it does not matter where a process dies. Spark and other readers skip folders named with an underscore.
"""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import attrs
from attrs import frozen

from .files import sync, sync_down_to
from .lock import exclusive
from .state import Commit, TableError
from .store import Checkpoint, no_checkpoint

VERSION = 1
_META = "_barnabas"


@frozen(kw_only=True)
class LoggedCommit(Commit):
    """A commit as its file has it. `files` are paths below the table, before that below staging."""

    staging: str
    version: int = VERSION


class CommitLog:
    """The commit log of the table in `folder`. Everything but `last` needs the lock."""

    def __init__(self, folder: Path, *, checkpoint: Checkpoint = no_checkpoint) -> None:
        self.folder = folder
        self._meta = folder / _META
        self._commits = self._meta / "commits"
        self._staging = self._meta / "staging"
        self._checkpoint = checkpoint

    def locked(self, *, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Context manager: hold the table's lock. Raises `TableLocked`."""
        return exclusive(self._meta / "lock", wait_s=wait_s)

    def exists(self) -> bool:
        """Return True if something was ever committed here."""
        return any(self._numbers())

    def last(self) -> LoggedCommit | None:
        """Return the newest commit. Raises `TableError` when it cannot be read."""
        number = max(self._numbers(), default=None)
        return None if number is None else self._read(number)

    def history(self) -> Iterator[LoggedCommit]:
        """Yield all commits, newest first. Raises as `last`."""
        for number in sorted(self._numbers(), reverse=True):
            yield self._read(number)

    def _read(self, number: int) -> LoggedCommit:
        import cattrs

        path = self._path(number)
        try:
            raw = json.loads(path.read_text())
            if raw.get("version") != VERSION:
                raise TableError(
                    f"{path} has version {raw.get('version')}, this Barnabas knows {VERSION}; use a newer one"
                )
            return cattrs.structure(raw, LoggedCommit)
        except (ValueError, AttributeError, cattrs.BaseValidationError) as error:
            raise TableError(f"{path} is damaged: {error!r}") from error

    def unfinished(self) -> bool:
        """Return True if the newest commit is in effect but its files are not all in their places."""
        last = self.last()
        return last is not None and (self._staging / last.staging).exists()

    def recover(self) -> None:
        """Finish the newest commit and remove what never got one."""
        last = self.last()
        if last is not None and (self._staging / last.staging).exists():
            self._apply(last)
        if self._staging.is_dir():
            for left in sorted(self._staging.iterdir()):
                # A Java whose load was killed may still write there for a moment; what remains goes the next time.
                shutil.rmtree(left, ignore_errors=True)

    def begin_commit(self) -> tuple[int, Path]:
        """Return the next commit number and an empty staging folder for it."""
        number = max(self._numbers(), default=0) + 1
        staging = self._staging / f"{number:06d}-{uuid.uuid4().hex[:8]}"
        self._checkpoint("staging")
        staging.mkdir(parents=True)
        return number, staging

    def commit(self, commit: LoggedCommit) -> None:
        """Put a load into effect. Its files must lie below its staging folder."""
        staging = self._staging / commit.staging
        for name in commit.files:
            self._checkpoint("sync staged file")
            sync(staging / name)
        self._commits.mkdir(parents=True, exist_ok=True)
        for folder in {self._commits, *((staging / name).parent for name in commit.files)}:
            sync_down_to(folder, self.folder)
        self._checkpoint("write commit")
        temporary = self._commits / f".{commit.number:06d}.json.tmp"
        temporary.write_text(json.dumps(attrs.asdict(commit), indent=1))
        sync(temporary)
        self._checkpoint("rename commit")
        temporary.rename(self._path(commit.number))
        sync(self._commits)
        self._apply(commit)

    def _apply(self, commit: LoggedCommit) -> None:
        staging = self._staging / commit.staging
        changed = {(self.folder / name).parent for name in commit.files}
        for folder in changed:
            folder.mkdir(parents=True, exist_ok=True)
            sync_down_to(folder, self.folder)
        for name in commit.files:
            staged, final = staging / name, self.folder / name
            self._checkpoint("move file")
            if staged.exists():
                staged.rename(final)
            elif not final.exists():
                raise TableError(f"{final} is missing, although commit {commit.number} wrote it")
        for name in commit.removed:
            self._checkpoint("remove file")
            (self.folder / name).unlink(missing_ok=True)
            changed.add((self.folder / name).parent)
        for folder in sorted(changed):
            if folder.is_dir():
                sync(folder)
        self._checkpoint("remove staging")
        shutil.rmtree(staging)

    def _path(self, number: int) -> Path:
        return self._commits / f"{number:06d}.json"

    def _numbers(self) -> Iterator[int]:
        if self._commits.is_dir():
            for path in self._commits.glob("*.json"):
                if path.stem.isdigit():
                    yield int(path.stem)
