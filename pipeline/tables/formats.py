"""Formats of tables, and the choice between them."""

from pathlib import Path

from ...app.extras import require
from ...ports.errors import ConfigError
from .commits import CommitLog
from .delta import DELTA, DeltaLakeTable
from .delta_log import DeltaLog
from .parquet import PARQUET, ParquetTable
from .store import Checkpoint, TableStore, no_checkpoint

ICEBERG = "iceberg"
FORMATS = (DELTA, ICEBERG, PARQUET)
DEFAULT_FORMAT = DELTA
_PACKAGES = {DELTA: ("deltalake", "pyarrow"), ICEBERG: ("pyiceberg", "sqlalchemy"), PARQUET: ("pyarrow",)}
_ICEBERG_MARKER = Path("_barnabas", "iceberg.json")


def open_store(
    folder: Path,
    named: str | None = None,
    *,
    catalog: str = "",
    table: str = "",
    checkpoint: Checkpoint = no_checkpoint,
) -> TableStore:
    """Return the table in this folder; `named` is the format that it is to have. Nothing is written yet.

    For an Iceberg table that is to be made `catalog` is the URI of a REST or SQL catalog (default: SQLite in its
    folder), `table` is NAMESPACE.NAME (default: barnabas.FOLDER).

    Raises `ConfigError` for an unknown format, or another one than the table has, or a package that is missing.
    """
    if named is not None and named not in FORMATS:
        raise ConfigError(f"a table's format is one of {', '.join(FORMATS)}, not {named!r}")
    found = _format_of(folder)
    if named is not None and found is not None and named != found:
        how = "leave the format out, or take another folder"
        if found == PARQUET:
            how = f"to make it one: barnabas table convert {folder} --to {named}"
        raise ConfigError(f"{folder} is a table in format {found}, not {named}; {how}")
    format_ = named or found or DEFAULT_FORMAT
    if format_ != ICEBERG and (catalog or table):
        raise ConfigError(f"a catalog is for tables in format {ICEBERG}, not {format_}")
    if named is not None or found is not None:
        require_format(format_)
    if format_ == ICEBERG:
        from .iceberg.catalog import find_entry
        from .iceberg.store import IcebergTable

        return IcebergTable(folder, find_entry(folder, catalog, table), checkpoint=checkpoint)
    if format_ == DELTA:
        return DeltaLakeTable(folder, checkpoint=checkpoint)
    return ParquetTable(folder, checkpoint=checkpoint)


def require_format(name: str) -> None:
    """Raises `ConfigError` when a package is missing that tables of this format need."""
    hint = "" if name == PARQUET else f" (or take --format {PARQUET})"
    require(f"a table in format {name}{hint}", _PACKAGES[name], "tables")


def _format_of(folder: Path) -> str | None:
    """Return the format; None: there is no table."""
    if DeltaLog(folder).version() is not None:
        return DELTA
    if (folder / _ICEBERG_MARKER).exists():
        return ICEBERG
    return PARQUET if CommitLog(folder).exists() else None
