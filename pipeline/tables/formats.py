"""Which format a table has."""

from pathlib import Path

from ...ports.errors import ConfigError
from .parquet import PARQUET, ParquetTable
from .store import Checkpoint, TableStore, no_checkpoint

FORMATS = (PARQUET,)


def open_store(folder: Path, named: str | None = None, *, checkpoint: Checkpoint = no_checkpoint) -> TableStore:
    """The table in this folder; `named` is the format that it is to have. Nothing is written yet.

    Raises `ConfigError` for an unknown format, or another one than the table has.
    """
    if named is not None and named not in FORMATS:
        raise ConfigError(f"a table's format is one of {', '.join(FORMATS)}, not {named!r}")
    return ParquetTable(folder, checkpoint=checkpoint)
