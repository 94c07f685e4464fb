"""Which format a table has."""

from pathlib import Path

from ...app.extras import require
from ...ports.errors import ConfigError
from .parquet import PARQUET, ParquetTable
from .store import Checkpoint, TableStore, no_checkpoint

ICEBERG = "iceberg"
FORMATS = (PARQUET, ICEBERG)
_PACKAGES = {ICEBERG: ("pyiceberg", "sqlalchemy")}
_MARKERS = {ICEBERG: Path("_barnabas", "iceberg.json")}


def open_store(
    folder: Path,
    named: str | None = None,
    *,
    catalog: str = "",
    table: str = "",
    checkpoint: Checkpoint = no_checkpoint,
) -> TableStore:
    """The table in this folder; `named` is the format that it is to have. Nothing is written yet.

    For an Iceberg table that is to be made `catalog` is the URI of a REST or SQL catalog (default: SQLite in its
    folder), `table` is NAMESPACE.NAME (default: barnabas.FOLDER).

    Raises `ConfigError` for an unknown format, or another one than the table has, or a package that is missing.
    """
    if named is not None and named not in FORMATS:
        raise ConfigError(f"a table's format is one of {', '.join(FORMATS)}, not {named!r}")
    found = next((name for name, marker in _MARKERS.items() if (folder / marker).exists()), None)
    if found is None and ParquetTable(folder).exists():
        found = PARQUET
    if named is not None and found is not None and named != found:
        text = f"{folder} is a table in format {found}, not {named}; 'barnabas table convert' makes another of it"
        raise ConfigError(text)
    format_ = named or found or PARQUET
    if format_ != ICEBERG and (catalog or table):
        raise ConfigError(f"a catalog is for tables in format {ICEBERG}, not {format_}")
    if format_ in _PACKAGES:
        require(f"a table in format {format_}", _PACKAGES[format_], "tables")
    if format_ == ICEBERG:
        from .iceberg.catalog import find_place
        from .iceberg.store import IcebergTable

        return IcebergTable(folder, find_place(folder, catalog, table), checkpoint=checkpoint)
    return ParquetTable(folder, checkpoint=checkpoint)
