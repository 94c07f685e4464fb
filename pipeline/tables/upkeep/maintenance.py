"""Maintenance of a table: compaction of small files, conversion, and deletion of old rows."""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs
from attrs import frozen

from ....ports.errors import ConfigError
from ..delta import DELTA, DeltaLakeTable
from ..files import NULL, parquet_rows, partition_values
from ..formats import ICEBERG, open_store, require_format
from ..parquet import PARQUET, ParquetTable
from ..state import Commit, DataFile, Staging, TableChange, TableError, no_table
from ..store import Checkpoint, TableStore, no_checkpoint
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
    """Return a change of files that keeps all other properties of the table."""
    carried = {field.name: getattr(last, field.name) for field in attrs.fields(TableChange)}
    done = {"operation": operation, "ranges": (), "rows": 0, "replaced_rows": replaced_rows, "lost": ()}
    return TableChange(**{**carried, **done, "files": files, "removed": list(removed)})


# Rewriting of the rows of some files of a table, within bounded memory.

BATCH_ROWS = 65_536
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""The bytes in memory that are read, sorted and written at a time."""
_ORDER = ("broker", "partition", "offset", "wrapperIndex")

Keep = Callable[["pa.RecordBatch"], "pa.RecordBatch"]
"""The rows of a batch that stay."""


@frozen
class RewrittenFile:
    path: Path
    rows: int


def rewrite(
    folder: Path, files: Sequence[DataFile], staging: Staging, index: int, keep: Keep | None = None
) -> RewrittenFile:
    """Return the rows of `files`, which are of one partition, as one new file below `staging`; `index` makes it another
    than those of other calls. Without rows there is no file. Raises `TableError` for files whose columns do not go
    together.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(folder, files)
    path = staging.folder / _place_of(files[0]) / f"part-{index:05d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    writer: pq.ParquetWriter | None = None
    try:
        for batches in _chunks(_batches(folder, files, schema, keep)):
            if writer is None:
                writer = pq.ParquetWriter(path, schema, compression="zstd")
            table = pa.Table.from_batches(batches, schema)
            keys = [(name, "ascending") for name in _ORDER if name in schema.names]
            writer.write_table(table.sort_by(keys) if keys else table)
            rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return RewrittenFile(path, rows)


def staged_names(staging: Staging, rows: int, *, gather: bool) -> list[str]:
    """Name the files that were written there, and return the names. Raises `TableError` unless they
    have `rows` rows.
    """
    names = staging.name_files(gather=gather)
    found = sum(parquet_rows(staging.folder / name) for name in names)
    if found != rows:
        text = f"{found} rows are in the rewritten files, and {rows} should be; nothing is changed"
        raise TableError(f"{text}, please report this")
    return names


def _place_of(file: DataFile) -> Path:
    """Return the folders of a file; for a file of another program, which is elsewhere, those of our layout."""
    own = Path(*(part for part in Path(file.name).parent.parts if "=" in part))
    if partition_values(own / "file") == dict(file.partition):
        return own
    named = {
        quote(column): NULL if value is None else quote(value, safe="") for column, value in file.partition.items()
    }
    return Path(*(f"{column}={value}" for column, value in named.items()))


def _schema(folder: Path, files: Sequence[DataFile]) -> "pa.Schema":
    """Return the columns that stand in the files: not those of the folders, which others may have written there,
    too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = [pq.read_schema(folder / file.name).remove_metadata() for file in files]
    try:
        schema = pa.unify_schemas(found)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        names = ", ".join(file.name for file in files[:3])
        raise TableError(f"{folder}: the columns of {names} and others do not go together: {error}") from error
    return pa.schema([field for field in schema if field.name not in files[0].partition])


def _batches(
    folder: Path, files: Sequence[DataFile], schema: "pa.Schema", keep: Keep | None
) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in files:
        with pq.ParquetFile(folder / file.name) as opened:
            there = [name for name in schema.names if name in opened.schema_arrow.names]
            for batch in opened.iter_batches(batch_size=BATCH_ROWS, columns=there):
                whole = pa.RecordBatch.from_arrays(
                    [
                        batch[field.name].cast(field.type) if field.name in there else pa.nulls(len(batch), field.type)
                        for field in schema
                    ],
                    schema=schema,
                )
                yield whole if keep is None else keep(whole)


def _chunks(batches: Iterator["pa.RecordBatch"]) -> Iterator[list["pa.RecordBatch"]]:
    chunk: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        chunk.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


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
            expected = sum(file.rows for file in files)
            if rows != expected:
                said = ", ".join(file.name for file in files)
                raise TableError(f"{store.folder}: expected {expected} rows in {said}, read {rows}")
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
        from ..iceberg.catalog import find_entry
        from ..iceberg.store import IcebergTable

        target = IcebergTable(folder, find_entry(folder, catalog, table), checkpoint=checkpoint)
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
    """Return the files that go as a whole, and those that may have rows so old."""
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
