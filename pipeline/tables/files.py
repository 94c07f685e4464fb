"""Files of a table: what Parquet footers and paths say of them, and how they become durable."""

import os
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from attrs import frozen

from .layout import Layout

NULL = "__HIVE_DEFAULT_PARTITION__"
_WITH_BOUNDS = ("partition", "offset", "timestamp")


@frozen(kw_only=True)
class FileFacts:
    """Facts about a file from a format's log; `least` and `greatest` of the columns where that is known and of use."""

    name: str
    rows: int
    size_bytes: int
    modified_ms: int
    partition: Mapping[str, str | None]
    least: Mapping[str, Any]
    greatest: Mapping[str, Any]
    nulls: Mapping[str, int]

    @property
    def newest_ms(self) -> int | None:
        """The time of the newest record; None where records have none."""
        newest = self.greatest.get("timestamp")
        return int(newest.timestamp() * 1000) if isinstance(newest, datetime) else None


def file_facts(folder: Path, name: str) -> FileFacts:
    """Return the facts about the Parquet file of this name below the folder, from its footer."""
    import pyarrow.parquet as pq

    path = folder / name
    footer = pq.read_metadata(path)
    columns = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    bounds: dict[str, tuple[Any, Any]] = {}
    nulls: dict[str, int] = {}
    for column in (column for column in _WITH_BOUNDS if column in columns):
        groups = [footer.row_group(g).column(columns[column]).statistics for g in range(footer.num_row_groups)]
        if not groups or any(each is None or not each.has_null_count for each in groups):
            continue
        nulls[column] = sum(each.null_count for each in groups)
        filled = [each for each in groups if each.has_min_max]
        if filled and all(each.has_min_max or each.num_values == 0 for each in groups):
            bounds[column] = min(each.min for each in filled), max(each.max for each in filled)
    status = path.stat()
    return FileFacts(
        name=name,
        rows=int(footer.num_rows),
        size_bytes=status.st_size,
        modified_ms=int(status.st_mtime * 1000),
        partition=partition_values(Path(name)),
        least={column: low for column, (low, _) in bounds.items()},
        greatest={column: high for column, (_, high) in bounds.items()},
        nulls=nulls,
    )


def parquet_rows(path: Path) -> int:
    """Return the number of rows, from the file's footer."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def partition_values(name: Path) -> dict[str, str | None]:
    """Return the values in the folders `column=value` of a path, as Spark writes them."""
    pairs = (part.split("=", 1) for part in name.parts[:-1] if "=" in part)
    return {column: None if value == NULL else unquote(value) for column, value in pairs}


def table_columns(paths: Sequence[Path], layout: Layout) -> Any:
    """Return the Arrow schema of a table: that of the files (of all of them; without any, of an untyped load), then the
    partition columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = [pq.read_schema(path) for path in paths] or [untyped_columns()]
    types = arrow_types()
    parts = [pa.field(name, types[kind]) for name, kind in layout.types.items()]
    merged = pa.unify_schemas([schema.remove_metadata() for schema in found], promote_options="permissive")
    own = [field.with_nullable(True) for field in merged if field.name not in layout.types]
    return pa.schema(own + parts)


def arrow_types() -> Mapping[str, Any]:
    """Return the Arrow types by the names in `Layout.types`."""
    import pyarrow as pa

    return {"string": pa.string(), "date": pa.date32(), "int": pa.int32()}


def untyped_columns() -> Any:
    """Return the Arrow schema of the data source with headers, for a classic cluster or not, without `topic`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from ..source.datasource import source_schema

    schema = to_arrow_schema(source_schema(include_headers=True, classic=True), timezone="UTC")
    return schema.remove(schema.get_field_index("topic"))


def as_text(value: Any) -> str | None:
    """Return a partition value, as folders and logs have it."""
    if value is None:
        return None
    return value.isoformat() if isinstance(value, date) else str(value)


def sync(path: Path) -> None:
    """Make a file's content, or a folder's entries, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_down_to(folder: Path, top: Path) -> None:
    """Sync all folders from `folder` up to `top`: where a file system keeps no order between folders, each must durably
    name the next one.
    """
    for each in (folder, *folder.parents):
        sync(each)
        if each == top:
            return


def write_durably(path: Path, text: str) -> None:
    """The whole file, or the one before."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    temporary.rename(path)
    sync(path.parent)
