"""Columns of records as the pipeline has them: lists, or arrays of Arrow."""

from collections.abc import Sequence

import pyarrow as pa


def plain(column: "Sequence[bytes | None] | pa.Array") -> list[bytes | None]:
    """Return the column as a list."""
    return column.to_pylist() if isinstance(column, pa.Array) else list(column)
