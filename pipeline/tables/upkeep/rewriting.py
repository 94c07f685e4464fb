"""Rewriting of the rows of some files of a table, within bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from attrs import frozen

from ..files import NULL, parquet_rows, partition_values
from ..state import DataFile, Staging, TableError

if TYPE_CHECKING:
    import pyarrow as pa

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
    """The rows of `files`, which are of one partition, as one new file below `staging`; `index` makes it another than
    those of other calls. Without rows there is no file. Raises `TableError` for files whose columns do not go together.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(folder, files)
    path = staging.folder / _place(files[0]) / f"part-{index:05d}.parquet"
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


def _place(file: DataFile) -> Path:
    """Return the folders of a file; for a file of another program, which is elsewhere, those of our layout."""
    own = Path(*(part for part in Path(file.name).parent.parts if "=" in part))
    if partition_values(own / "file") == dict(file.partition):
        return own
    named = {
        quote(column): NULL if value is None else quote(value, safe="") for column, value in file.partition.items()
    }
    return Path(*(f"{column}={value}" for column, value in named.items()))


def _schema(folder: Path, files: Sequence[DataFile]) -> "pa.Schema":
    """The columns that stand in the files: not those of the folders, which others may have written there, too."""
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
