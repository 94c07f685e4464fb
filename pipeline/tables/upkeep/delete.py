"""Rows of before a time, out of a table."""

import shutil
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from attrs import frozen

from ....ports.errors import ConfigError
from ..state import DataFile, no_table
from ..store import TableStore
from .changes import change_files
from .rewriting import rewrite, staged_names
from .times import COLUMN, file_times

if TYPE_CHECKING:
    import pyarrow as pa

DELETE = "delete"
Progress = Callable[[int, int], None]
"""Called with the number of files looked at or rewritten, and of all."""


@frozen(kw_only=True)
class Deleted:
    """`commit` None: there was nothing so old. `files` went as a whole, `rewritten` ones in part."""

    rows: int
    files: int
    rewritten: int
    commit: int | None


def delete_before(
    store: TableStore,
    before_ms: int,
    *,
    topics: Collection[str] = (),
    progress: Progress = lambda _done, _of: None,
) -> Deleted:
    """Delete the rows whose record is older; only of `topics` if some are named. Needs the lock.

    Rows of classic messages have no time and are deleted by the day in which they were loaded. The offsets stay, so a
    load does not bring the rows again, unless it has to begin at an earlier time.

    Raises `TableError`, `ConfigError` for a topic that was never loaded.
    """
    last = store.last()
    if last is None:
        raise no_table(store.folder)
    unknown = sorted(set(topics) - set(last.topics))
    if unknown:
        there = ", ".join(sorted(last.topics)) or "none"
        raise ConfigError(f"there is no topic {unknown[0]!r} in {store.folder}; there is {there}")
    files = [file for file in store.files() if not topics or file.partition.get("topic") in topics]
    whole, partly = _affected(store, files, before_ms, progress)
    if not whole and not partly:
        return Deleted(rows=0, files=0, rewritten=0, commit=None)
    staging = store.begin_commit()
    rows, remaining, rewritten = sum(file.rows for file in whole), 0, list[DataFile]()
    for index, file in enumerate(partly):
        written = rewrite(store.folder, [file], staging, index, lambda batch: _not_before(batch, before_ms))
        progress(len(files) - len(partly) + index + 1, len(files))
        if written.rows == file.rows:
            written.path.unlink(missing_ok=True)
            continue
        rows += file.rows - written.rows
        remaining += written.rows
        rewritten.append(file)
    removed = [file.name for file in (*whole, *rewritten)]
    if not rows:
        shutil.rmtree(staging.folder)
        return Deleted(rows=0, files=0, rewritten=0, commit=None)
    names = staged_names(staging, remaining, gather=True)
    change = change_files(last, DELETE, files=names, removed=removed, replaced_rows=rows)
    commit = store.commit(staging, change).number
    return Deleted(rows=rows, files=len(whole), rewritten=len(rewritten), commit=commit)


def _affected(
    store: TableStore, files: Sequence[DataFile], before_ms: int, progress: Progress
) -> tuple[list[DataFile], list[DataFile]]:
    """The files that go as a whole, and those that may have rows so old."""
    whole: list[DataFile] = []
    partly: list[DataFile] = []
    for number, file in enumerate(files, 1):
        times = file_times(store.folder, file)
        if times.complete and times.newest_ms is not None and times.newest_ms < before_ms:
            whole.append(file)
        elif times.oldest_ms is None or times.oldest_ms < before_ms:
            partly.append(file)
        progress(number - 1, len(files))
    return whole, partly


def _not_before(batch: "pa.RecordBatch", before_ms: int) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc

    if COLUMN not in batch.schema.names:
        return batch
    moments = batch[COLUMN]
    limit = pa.scalar(datetime.fromtimestamp(before_ms / 1000, UTC), moments.type)
    return batch.filter(pc.fill_null(pc.greater_equal(moments, limit), True))
