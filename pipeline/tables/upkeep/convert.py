"""A Parquet table becomes one in another format, by its files as they are."""

from pathlib import Path

from ....ports.errors import ConfigError
from ..delta import DELTA, DeltaLakeTable
from ..formats import ICEBERG, open_store, require_format
from ..parquet import PARQUET, ParquetTable
from ..state import Commit, no_table
from ..store import Checkpoint, no_checkpoint
from .changes import change_files

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
