"""State of a table, whatever its format: how far each topic is loaded, and what each commit did."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from attrs import frozen

from ...ports.errors import BarnabasError
from ..topics.damage import DamagedRange
from ..topics.model import NO_BROKER
from .files import parquet_rows
from .layout import DEFAULT_LAYOUT

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


LOAD = "load"
COMPACT = "compact"


class TableError(BarnabasError):
    """The folder is not a table of ours, or is damaged. The text says which file."""


@frozen(kw_only=True)
class TopicState:
    """Progress of a topic: the next offset per partition, by `ClusterPartition.key`: "0", or "broker-partition" of a
    classic cluster. `topic_id` "" = unknown.
    """

    topic_id: str = ""
    next_offsets: Mapping[str, int] = attrs.field(factory=dict)


@frozen(kw_only=True)
class Range:
    """Offsets that one load took from one partition: start ≤ offset < end."""

    topic: str
    partition: int
    start: int
    end: int
    broker: int = NO_BROKER


@frozen(kw_only=True)
class TableChange:
    """One atomic change of a table. `topics` and `damaged` are the whole state afterwards."""

    topics: Mapping[str, TopicState]
    layout: str = DEFAULT_LAYOUT
    """The table's, see `Layout`."""
    operation: str = LOAD
    """LOAD, COMPACT or what else a command calls it; only a load brings new rows."""
    ranges: Sequence[Range] = ()
    """The ranges that a load read. Rows of `files` outside of them were in the table before, in files
    that are removed.
    """
    rows: int = 0
    """The number of new rows."""
    replaced_rows: int = 0
    files: Sequence[str] = ()
    """Paths below staging, and then below the table: folders `column=value` say the values of partition columns."""
    removed: Sequence[str] = ()
    """Files of the newest version, by `DataFile.name`."""
    lost: Sequence[str] = ()
    """Data loss that was accepted, one text each."""
    damaged: Sequence[DamagedRange] = ()
    """All that the table lacks because it was damaged when it was read."""
    newest_ms: Mapping[str, int] = attrs.field(factory=dict)
    """The time of the newest record that was ever loaded, for each topic whose records have times."""


@frozen(kw_only=True)
class Commit(TableChange):
    """One change that took effect. `number` is the commit or version, later ones are greater."""

    number: int
    created_ms: int


def fields_of(change: TableChange) -> dict[str, Any]:
    """Return the fields of a change by name, as arguments for another one."""
    return {field.name: getattr(change, field.name) for field in attrs.fields(type(change))}


def commit_of(change: TableChange, *, number: int, created_ms: int) -> Commit:
    """Return a change that took effect."""
    return Commit(number=number, created_ms=created_ms, **fields_of(change))


def no_table(folder: Path) -> TableError:
    """Return the error for readers of a folder into which nothing was loaded."""
    return TableError(f"{folder} is not a loaded table: it has no commits; run 'barnabas load' into it first")


@frozen(kw_only=True)
class DataFile:
    """A Parquet file of the newest version. `name` is its path relative to the table's folder."""

    name: str
    rows: int
    size_bytes: int
    partition: Mapping[str, str | None]
    """The values of the partition columns; None is null."""


# Small files of one folder become one: each task of Spark's writes its own file into every folder it has rows for.

SMALL_BYTES = 16 * 1024 * 1024
SMALL_ROWS = 50_000
_ROW_GROUP_BYTES = 128 * 1024 * 1024
_THREADS = 2


def gather_small_files(
    paths: Iterable[Path], *, small_bytes: int = SMALL_BYTES, small_rows: int = SMALL_ROWS, rows_max: int | None = None
) -> None:
    """Join the small ones of these Parquet files that are in the same folder, up to eight times `small_bytes` and
    `rows_max` rows in a file. The first file of each group stays, with all the rows; the others are deleted. A file
    with `small_rows` or more does not count as small, however well it is compressed: to rewrite it would cost as much
    as the load.
    """
    few = (path for path in paths if path.stat().st_size < small_bytes)
    rows = {path: parquet_rows(path) for path in few}
    small = sorted(path for path, count in rows.items() if count < small_rows)
    groups: list[list[Path]] = []
    for _, of_folder in groupby(small, key=lambda path: path.parent):
        groups += _filled([(path, rows[path]) for path in of_folder], 8 * small_bytes, rows_max)
    with ThreadPoolExecutor(_THREADS, "barnabas-gather") as threads:
        for _ in threads.map(_merge, (group for group in groups if len(group) > 1)):
            pass


def _filled(files: Sequence[tuple[Path, int]], most_bytes: int, most_rows: int | None) -> list[list[Path]]:
    groups: list[list[Path]] = [[]]
    size = rows = 0
    for path, count in files:
        here = path.stat().st_size
        if groups[-1] and (size + here > most_bytes or (most_rows is not None and rows + count > most_rows)):
            groups.append([])
            size = rows = 0
        groups[-1].append(path)
        size, rows = size + here, rows + count
    return groups


def _merge(paths: Sequence[Path]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = paths[0].with_suffix(".gathering")
    writer: pq.ParquetWriter | None = None
    waiting: list[pa.Table] = []
    for path in paths:
        with pq.ParquetFile(path) as file:
            if writer is None:
                writer = pq.ParquetWriter(target, file.schema_arrow, compression="zstd")
            for index in range(file.num_row_groups):
                waiting.append(file.read_row_group(index))
                if sum(table.nbytes for table in waiting) > _ROW_GROUP_BYTES:
                    _write(writer, waiting)
    if writer is not None:
        _write(writer, waiting)
        writer.close()
    target.rename(paths[0])
    for path in paths[1:]:
        path.unlink()


def _write(writer: "pq.ParquetWriter", waiting: "list[pa.Table]") -> None:
    import pyarrow as pa

    if waiting:
        writer.write_table(pa.concat_tables(waiting))
        waiting.clear()


@frozen(kw_only=True)
class Staging:
    """The folder with the files of one change: folders `column=value`, in the order of the table's layout."""

    folder: Path
    number: int
    """The number that the commit will probably have."""

    def name_files(self, *, gather: bool = True, rows_max: int | None = None) -> list[str]:
        """Gather small ones of the Parquet files that Spark wrote there, up to `rows_max` rows in one, and give all
        names that no other load uses; returns them relative to the folder."""
        names = []
        if gather:
            gather_small_files(self._written(), rows_max=rows_max)
        for index, path in enumerate(sorted(self._written())):
            named = path.with_name(f"part-{self.folder.name}-{index:05d}.parquet")
            path.rename(named)
            names.append(named.relative_to(self.folder).as_posix())
        return names

    def _written(self) -> Iterator[Path]:
        for path in self.folder.rglob("part-*.parquet"):
            if all("=" in part for part in path.relative_to(self.folder).parts[:-1]):
                yield path


@contextmanager
def plain_os_errors(folder: Path) -> Iterator[None]:
    """Raise an error of a full or read-only disk as a `TableError` that names the table, which stays as it was."""
    try:
        yield
    except OSError as error:
        raise TableError(f"{folder}: {error.strerror or error} ({error.filename or 'no file named'})") from error
