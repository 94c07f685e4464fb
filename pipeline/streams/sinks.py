"""Sinks of streams for `writeStream.foreachBatch`: topics, Delta tables and pages."""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...app.extras import require
from ...ports.errors import ConfigError
from ..report.panels import Panel, write_page
from ..session import SPARK_PACKAGES
from ..source.options import write_options
from ..source.stream_plan import StreamOffsets

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


def append_batches(**options: str) -> "Callable[[DataFrame, int], None]":
    """For `writeStream.foreachBatch(...)`: append the rows of each batch to topics, with the options of `df.write`.

    Spark refuses the output mode `update` for data sources in Python; with this it can be had, as Spark's Kafka sink
    has it: the rows that changed are appended. At least once, like the sink. Raises `ConfigError` at once for wrong
    options. `**{"kafka.bootstrap.servers": ...}` for those with dots.
    """
    chosen = write_options(options)
    if chosen.txn_version is not None:
        raise ConfigError("txnVersion is the number of each batch here: leave it out")

    def append(rows: "DataFrame", batch: int) -> None:
        numbered = {} if chosen.txn_app_id is None else {"txnVersion": str(batch)}
        rows.write.format("barnabas").mode("append").options(**options, **numbered).save()

    return append


_OFFSETS = "offsets"
_VERSION = "v1"


def connector_checkpoint(checkpoint: str | os.PathLike[str], copy: str | os.PathLike[str]) -> int:
    """Copy the checkpoint of a stream that reads `format("barnabas")`, so that the same stream with `format("kafka")`
    continues where it was; return the number of batches whose offsets were rewritten.

    The other direction needs no copy: `format("barnabas")` reads a checkpoint of `format("kafka")` as it is. Both are
    folders of this machine, and the stream is stopped. Raises `ConfigError` if `copy` exists, or if `checkpoint` is no
    checkpoint.
    """
    source, target = Path(checkpoint), Path(copy)
    if not (source / _OFFSETS).is_dir():
        raise ConfigError(f"{source} is not the checkpoint of a stream: it has no folder {_OFFSETS!r}")
    if target.exists():
        raise ConfigError(f"{target} already exists; give a folder that does not")
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    rewritten = 0
    for file in sorted((draft / _OFFSETS).glob("[0-9]*")):
        rewritten += _rewrite(file)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's, of what was there before
    draft.rename(target)
    return rewritten


def _rewrite(file: Path) -> bool:
    """Rewrite a batch's offsets (a version, metadata, a line per source, "-" for none); return True if they changed."""
    version, metadata, *sources = file.read_text(encoding="utf-8").split("\n")
    if version != _VERSION:
        raise ConfigError(f"{file.name} of the checkpoint's offsets has version {version!r}, not {_VERSION}")
    lines = [_connector_line(line) for line in sources]
    file.write_text("\n".join([version, metadata, *lines]), encoding="utf-8")
    return lines != sources


def _connector_line(line: str) -> str:
    try:
        found = json.loads(line)
    except ValueError:
        return line  # another kind of source
    if not isinstance(found, dict) or not isinstance(found.get("offsets"), str):
        return line
    return StreamOffsets.unpacked(found).connector_form()
