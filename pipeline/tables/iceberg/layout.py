"""Columns and partitions of an Iceberg table, as the Parquet files of its commits have them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.transforms import IdentityTransform

from ..files import arrow_types
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


def take_in(transaction: Transaction, files: Sequence[StagedFile], types: Mapping[str, str]) -> None:
    """Give the table the columns of these files that it has not, and if it is empty, their layout; `types` are those of
    the columns that are folders.

    Raises `TableError` for files of another layout than the table's.
    """
    import pyarrow as pa

    folders = {tuple(file.values) for file in files}
    if not folders:
        return
    layout = next(iter(folders))
    columns, kinds = pa.unify_schemas([file.schema for file in files]), arrow_types()
    for column in layout:
        columns = columns.append(pa.field(column, kinds[types.get(column, "string")]))
    _add_columns(transaction, columns)
    there = tuple(field.name for field in transaction.table_metadata.spec().fields)
    if not there:
        with transaction.update_spec() as update:
            for column in layout:
                update.add_field(column, IdentityTransform(), column)
        there = layout
    if len(folders) > 1 or layout != there:
        written = " and by ".join(", ".join(each) for each in sorted(folders))
        raise TableError(f"files laid out by {written} do not go into an Iceberg table laid out by {', '.join(there)}")


def _add_columns(transaction: Transaction, schema: Any) -> None:
    known = {field.name for field in transaction.table_metadata.schema().fields}
    if all(name in known for name in schema.names):
        return
    with transaction.update_schema() as update:
        update.union_by_name(schema)
    # Spark's files have no field ids: readers find the columns by their names.
    mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
    transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
