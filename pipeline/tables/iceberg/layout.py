"""Columns and partitions of an Iceberg table, as the Parquet files of its commits have them."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, ResolveError, ValidationError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform

from ..files import table_columns
from ..layout import Layout
from ..state import TableError
from .files import StagedFile

_METADATA_FILES_MAX = "100"


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
            TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: _METADATA_FILES_MAX,
            TableProperties.WRITE_DATA_PATH: folder.absolute().as_posix(),  # others write where Spark does
            **({} if metadata is None else {TableProperties.WRITE_METADATA_PATH: metadata.absolute().as_posix()}),
        },
    )


def take_in(table: Table, transaction: Transaction, files: Sequence[StagedFile], layout: Layout) -> TableMetadata:
    """Give the table the columns of these files that it has not, and if it has none, its layout; returns what it is
    then. Asks the transaction for that as seldom as possible: it copies all that it knows of all snapshots each time.

    Raises `TableError` for files of another layout than the table's, or with columns of other types.
    """
    metadata, wanted = table.metadata, tuple(layout.types)
    columns = table_columns([file.path for file in files], layout)
    known = schema_to_pyarrow(metadata.schema(), include_field_ids=False)
    if not (_is_known(known, columns) if files else known.names):
        _add_columns(transaction, columns)
        metadata = transaction.table_metadata
    if not metadata.spec().fields:
        with transaction.update_spec() as update:
            for column in wanted:
                update.add_field(column, IdentityTransform(), column)
        metadata = transaction.table_metadata
    there = tuple(field.name for field in metadata.spec().fields)
    written = {tuple(file.values) for file in files} - {there}
    if written:
        text = " and by ".join(", ".join(each) for each in sorted(written))
        raise TableError(f"files laid out by {text} do not go into an Iceberg table laid out by {', '.join(there)}")
    return metadata


def _is_known(known: Any, wanted: Any) -> bool:
    """True if all fields are there, those inside of structs, too, and have the types that Iceberg makes of them."""
    import pyarrow as pa

    if isinstance(wanted, pa.Schema | pa.StructType):
        names = {known.field(i).name: known.field(i).type for i in range(len(known))} if _has_fields(known) else {}
        return all(field.name in names and _is_known(names[field.name], field.type) for field in wanted)
    if pa.types.is_list(wanted):
        lists = pa.types.is_list(known) or pa.types.is_large_list(known)
        return lists and _is_known(known.value_type, wanted.value_type)
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return bool(plain.get(known, known) == plain.get(wanted, wanted))


def _has_fields(known: Any) -> bool:
    import pyarrow as pa

    return isinstance(known, pa.Schema | pa.StructType)


def _add_columns(transaction: Transaction, schema: Any) -> None:
    """Raises `TableError` where the type of one is another."""
    try:
        with transaction.update_schema() as update:
            update.union_by_name(schema)
    except (ValidationError, ResolveError) as error:
        raise TableError(f"these rows have columns of other types than the table: {error}") from error
    # Spark's files have no field ids: readers find the columns by their names.
    mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
    transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
