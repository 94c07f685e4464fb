"""Maintenance of a table: compaction of small files, conversion, and deletion of old rows."""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from attrs import frozen

from ....ports.errors import ConfigError
from ..delta import DELTA, DeltaLakeTable
from ..formats import ICEBERG, open_store, require_format
from ..parquet import PARQUET, ParquetTable
from ..state import Commit, DataFile, TableChange, TableError, no_table
from ..store import Checkpoint, TableStore, no_checkpoint
from .rewriting import rewrite, staged_names
from .times import COLUMN, file_times

if TYPE_CHECKING:
    import pyarrow as pa


COMPACT = "compact"
TARGET_BYTES = 128 * 1024 * 1024
_COMMIT_BYTES = 4 * 1024**3
"""The approximate size of one commit: an interruption loses only this work, and the disk needs only this space."""

Progress = Callable[[int, int], None]
"""Called with the number of files done, and of all."""


@frozen(kw_only=True)
class Compacted:
    """Result of a compaction: the numbers of files before and after; `commit` None: there was nothing to do."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    commit: int | None


# A change of the files alone.


def change_files(
    last: Commit, operation: str, *, files: Sequence[str], removed: Iterable[str], replaced_rows: int = 0
) -> TableChange:
    """Everything else that the table says of itself is as it was."""
    carried = {field.name: getattr(last, field.name) for field in attrs.fields(TableChange)}
    done = {"operation": operation, "ranges": (), "rows": 0, "replaced_rows": replaced_rows, "lost": ()}
    return TableChange(**{**carried, **done, "files": files, "removed": list(removed)})


def compact(
    store: TableStore, *, target_bytes: int = TARGET_BYTES, progress: Progress = lambda _done, _of: None
) -> Compacted:
    """Needs the lock. Rows and offsets stay as they are. Raises `TableError`."""
    bins = list(choose(store.files(), target_bytes))
    total = sum(map(len, bins))
    done = after = bytes_after = 0
    commit: int | None = None
    for several in _portions(bins):
        last = store.last()
        if last is None:
            raise TableError(f"{store.folder} is not a loaded table")
        staging = store.begin_commit()
        for index, files in enumerate(several):
            rows = rewrite(store.folder, files, staging, index).rows
            if rows != sum(file.rows for file in files):
                said = ", ".join(file.name for file in files)
                raise TableError(f"{store.folder}: {rows} rows were read from {said}, which should have more or less")
            done += len(files)
            progress(done, total)
        rows = sum(file.rows for files in several for file in files)
        names = staged_names(staging, rows, gather=False)  # they are as large as they should be
        bytes_after += sum((staging.folder / name).stat().st_size for name in names)
        after += len(names)
        removed = [file.name for files in several for file in files]
        commit = store.commit(staging, change_files(last, COMPACT, files=names, removed=removed)).number
    before = sum(file.size_bytes for files in bins for file in files)
    return Compacted(files_before=total, files_after=after, bytes_before=before, bytes_after=bytes_after, commit=commit)


def choose(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Yield groups of files to join: of the same partition, smaller than half of the target, at least two."""
    small = [file for file in files if file.size_bytes < target_bytes // 2]
    for _, group in groupby(sorted(small, key=_place), key=lambda file: _place(file)[0]):
        together: list[DataFile] = []
        size = 0
        for file in group:
            if together and size + file.size_bytes > target_bytes:
                if len(together) > 1:
                    yield together
                together, size = [], 0
            together.append(file)
            size += file.size_bytes
        if len(together) > 1:
            yield together


def _place(file: DataFile) -> tuple[tuple[tuple[str, str], ...], str]:
    return tuple((column, value or "") for column, value in file.partition.items()), file.name


def _portions(bins: Sequence[list[DataFile]]) -> Iterator[list[list[DataFile]]]:
    portion: list[list[DataFile]] = []
    size = 0
    for files in bins:
        portion.append(files)
        size += sum(file.size_bytes for file in files)
        if size >= _COMMIT_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


# A Parquet table becomes one in another format, by its files as they are.

CONVERT = "convert"


def convert_table(
    folder: Path, to: str, *, catalog: str = "", table: str = "", checkpoint: Checkpoint = no_checkpoint
) -> Commit:
    """Convert a table in place: no row is rewritten, and offsets and damage are kept. Afterwards the folder is a table
    in that format; stopped before, it is as it was. Takes the lock.

    Raises `ConfigError` for a table in another format than Parquet, `TableLocked`, `TableError`.
    """
    if to not in (DELTA, ICEBERG):
        raise ConfigError(f"a table is converted to {DELTA} or {ICEBERG}, not to {to!r}")
    store = open_store(folder)
    if not store.exists():
        raise no_table(folder)
    if store.format != PARQUET:
        raise ConfigError(f"{folder} is a table in format {store.format}; only one in {PARQUET} is converted")
    if to != ICEBERG and (catalog or table):
        raise ConfigError(f"a catalog is for tables in format {ICEBERG}, not {to}")
    require_format(to)
    source = ParquetTable(folder)
    source.finish_commit()
    with source.locked():
        source.recover()
        last = source.last()
        if last is None:
            raise no_table(folder)
        change = change_files(last, CONVERT, files=[file.name for file in source.files()], removed=())
        if to == DELTA:
            return DeltaLakeTable(folder, checkpoint=checkpoint).adopt(change)
        from ..iceberg.catalog import find_place
        from ..iceberg.store import IcebergTable

        target = IcebergTable(folder, find_place(folder, catalog, table), checkpoint=checkpoint)
        return target.adopt(change, last.number + 1)


DELETE = "delete"
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
