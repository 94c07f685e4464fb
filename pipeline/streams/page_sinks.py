"""Results of a stream as a page that is rewritten with each micro-batch."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..report.panels import Panel, write_page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def page_batches(
    path: Path | str,
    title: str,
    panels: "Callable[[Sequence[Mapping[str, Any]]], Sequence[Panel]]",
    *,
    keys: Sequence[str],
) -> "Callable[[DataFrame, int], None]":
    """For `writeStream.foreachBatch(...)`: keep the newest row for each value of the columns `keys`, and write the page
    that `panels` makes of these rows (as mappings) after each batch, in one step.

    For results that a page can show, thousands of rows at most: they stay in the driver's memory, and are forgotten
    when the query starts again (the output mode complete brings them back).
    """
    rows_by_key: dict[tuple[object, ...], Mapping[str, Any]] = {}

    def write(rows: "DataFrame", batch: int) -> None:
        for row in rows.collect():
            found = row.asDict(recursive=True)
            rows_by_key[tuple(repr(found[name]) for name in keys)] = found
        write_page(Path(path), title, f"after micro-batch {batch}", panels(list(rows_by_key.values())))

    return write
