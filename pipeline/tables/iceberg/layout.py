"""Columns and partitions of an Iceberg table, as the Parquet files of its commits have them."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, ResolveError, ValidationError
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.transforms import IdentityTransform

from ..files import table_columns
from ..layout import Layout
from ..state import TableError
from .files import StagedFile

_KEPT_METADATA_FILES = "100"


def create_table(catalog: Catalog, name: str, folder: Path, *, metadata: Path | None = None) -> Table:
    """An empty table, without columns. `metadata` None: its folder is DIR/metadata, as everywhere."""
    import pyarrow as pa

    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(name.rpartition(".")[0])
    return catalog.create_table(
        name,
        schema=pa.schema([]),
        location=folder.absolute().as_posix(),
        properties={
            TableProperties.FORMAT_VERSION: "2",
            TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
            TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: _KEPT_METADATA_FILES,
            **({} if metadata is None else {TableProperties.WRITE_METADATA_PATH: metadata.absolute().as_posix()}),
        },
    )


def take_in(transaction: Transaction, files: Sequence[StagedFile], layout: Layout) -> None:
    """Give the table the columns of these files that it has not, and if it has none, its layout.

    Raises `TableError` for files of another layout than the table's.
    """
    wanted = tuple(layout.types)
    if files or not transaction.table_metadata.schema().fields:
        _add_columns(transaction, table_columns([file.path for file in files], layout))
    there = tuple(field.name for field in transaction.table_metadata.spec().fields)
    if not there:
        with transaction.update_spec() as update:
            for column in wanted:
                update.add_field(column, IdentityTransform(), column)
        there = wanted
    written = {tuple(file.values) for file in files} - {there}
    if written:
        text = " and by ".join(", ".join(each) for each in sorted(written))
        raise TableError(f"files laid out by {text} do not go into an Iceberg table laid out by {', '.join(there)}")


def _add_columns(transaction: Transaction, schema: Any) -> None:
    """Fields inside of columns, too. Raises `TableError` where the type of one is another."""
    before = transaction.table_metadata.schema()
    try:
        with transaction.update_schema() as update:
            update.union_by_name(schema)
    except (ValidationError, ResolveError) as error:
        raise TableError(f"these rows have columns of other types than the table: {error}") from error
    after = transaction.table_metadata.schema()
    if after != before:  # Spark's files have no field ids: readers find the columns by their names
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: after.name_mapping.model_dump_json()})
