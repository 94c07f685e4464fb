"""A Parquet file that Spark wrote, as a data file of Iceberg: statistics by field id, partition by folder."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from attrs import frozen
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IntegerType, LongType, StringType, TimestampType, TimestamptzType

from ..files import partition_values
from ..state import TableError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen(kw_only=True)
class StagedFile:
    """`values` are those of its folders, which Spark leaves out of the file."""

    path: Path
    values: Mapping[str, str | None]
    footer: Any
    """pyarrow's FileMetaData."""

    @classmethod
    def of(cls, folder: Path, name: str) -> "StagedFile":
        import pyarrow.parquet as pq

        path = folder / name
        return cls(path=path, values=partition_values(Path(name)), footer=pq.read_metadata(path))

    @property
    def schema(self) -> Any:
        return self.footer.schema.to_arrow_schema().remove_metadata()


def data_file(metadata: TableMetadata, file: StagedFile) -> DataFile:
    """Return the entry of the file for a manifest.

    Readers take the columns of the folders from the partition in this entry, as the format's rules for column
    projection say: an identity partition counts where a file lacks the field.
    """
    schema, spec = metadata.schema(), metadata.spec()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=file.footer,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    partition = [_to_partition(schema.find_type(field.source_id), file.values[field.name]) for field in spec.fields]
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path.as_posix(),
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        file_size_in_bytes=file.path.stat().st_size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def partition_texts(metadata: TableMetadata, file: DataFile) -> dict[str, str | None]:
    """Return the values of the partition columns, as folders have them."""
    schema, fields = metadata.schema(), metadata.specs()[file.spec_id].fields
    return {
        field.name: _from_partition(schema.find_type(field.source_id), file.partition[position])
        for position, field in enumerate(fields)
    }


def _to_partition(kind: Any, text: str | None) -> Any:
    """Convert a value to Iceberg's form in a partition: dates are days, timestamps are microseconds since the epoch."""
    if text is None or isinstance(kind, StringType):
        return text
    if isinstance(kind, IntegerType | LongType):
        return int(text)
    if isinstance(kind, DateType):
        return (date.fromisoformat(text) - _EPOCH.date()).days
    if isinstance(kind, TimestampType | TimestamptzType):
        moment = datetime.fromisoformat(text)
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
    raise TableError(f"an Iceberg table cannot be laid out by a column of type {kind}")


def _from_partition(kind: Any, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(kind, DateType):
        return (_EPOCH.date() + timedelta(days=value)).isoformat()
    if isinstance(kind, TimestampType | TimestamptzType):
        return f"{_EPOCH.replace(tzinfo=None) + timedelta(microseconds=value):%Y-%m-%d %H:%M:%S}"
    return str(value)
