"""Results of a stream as a Delta table that any reader opens: each micro-batch is one version, once."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...app.extras import require
from ...ports.errors import ConfigError
from ..session import SPARK_PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def table_batches(folder: Path | str, *keys: str, appId: str = "barnabas-stream") -> "Callable[[DataFrame, int], None]":
    """For `writeStream.foreachBatch(...)`: bring the rows of each batch into the Delta table in `folder`.

    With `keys` a row takes the place of the one with the same values in these columns (`window` and what was counted
    by; output modes update and complete); without, rows are appended. The number of the batch is an application
    transaction `appId` inside the commit, so a batch that Spark repeats after a failure is not written again: give each
    query into one table a name of its own, and a new name with a new checkpoint. For results, not for raw topics
    (`barnabas load`): a batch passes through the driver's memory. Raises `ConfigError` when deltalake is missing.
    """
    require("a table of results", (*SPARK_PACKAGES, "deltalake"), "tables")

    def write(rows: "DataFrame", batch: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        if unknown := [name for name in keys if name not in rows.columns]:
            raise ConfigError(f"no column {', '.join(unknown)} in the rows; there is {', '.join(rows.columns)}")
        where = str(Path(folder).absolute())
        there = DeltaTable.is_deltatable(where)
        if there:
            done = DeltaTable(where).transaction_version(appId)
            if done is not None and done >= batch:
                rows.write.format("noop").mode("overwrite").save()  # Spark wants its state computed nevertheless
                return
        found = (rows.dropDuplicates([*keys]) if keys else rows).toArrow()
        if there and not found.num_rows:
            return
        note = CommitProperties(app_transactions=[Transaction(appId, batch)])
        if not there or not keys:
            write_deltalake(where, found, mode="append", commit_properties=note)
            return
        same = " AND ".join(f'target."{name}" IS NOT DISTINCT FROM source."{name}"' for name in keys)
        merge = DeltaTable(where).merge(
            found, same, source_alias="source", target_alias="target", commit_properties=note
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return write
