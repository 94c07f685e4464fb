"""Quarantine of rows that do not decode: a table of its own in DIR/_quarantine, with the bytes, the reason, and the
place of each.

It is committed before the table. A load that is killed between the two begins again where the table is, and the rows
that it finds then replace those of the quarantine from there on: each row is here once, or in the table once.
"""

from functools import reduce
from typing import TYPE_CHECKING

from attrs import evolve

from ...ports.report import counted
from ..session import session_settings
from ..topics.model import ClusterPartition
from .delta import DELTA
from .files import file_facts
from .formats import open_store
from .layout import DEFAULT_LAYOUT, Layout
from .load_plan import LoadPlan
from .parquet import PARQUET
from .reading import affected_files
from .rows import SETTINGS, remaining_rows, typed_rows, write_files
from .source import LoadSource
from .state import TableChange, TableError
from .store import TableStore
from .typed import TypedValues

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "_quarantine"


def put_in_quarantine(
    spark: "SparkSession", table: TableStore, plan: LoadPlan, source: LoadSource, typed: TypedValues, count: int
) -> None:
    """Read the rows that do not decode, `count` of them, and keep them. Raises `TableError` when it were others now."""
    folder = table.folder / FOLDER
    store = open_store(folder, PARQUET if table.format == PARQUET else DELTA)
    if not count and not store.exists():
        return
    with store.locked():
        store.recover()
        last = store.last()
        starts = _starts(plan)
        affected = [] if last is None else affected_files(store, starts, plan.replaced_topics)
        if not count and not affected:
            return
        layout = Layout.parse(DEFAULT_LAYOUT)
        staging = store.begin_commit()
        partly = [file.name for file in affected if file.replaced_rows < file.rows]
        with session_settings(spark, SETTINGS):
            parts = []
            if count:
                rows = typed_rows(spark, plan, source, layout, typed, staging.folder).where("value_error is not null")
                rows = rows.drop("value").withColumnsRenamed({"value_raw": "value", "value_error": "error"})
                parts.append(rows)
            if partly:
                parts.append(remaining_rows(spark, evolve(plan, replaced_from=starts), store, partly))
            if parts:
                write_files(reduce(lambda a, b: a.unionByName(b), parts), source, layout, staging.folder)
        facts = [file_facts(staging.folder, name) for name in staging.name_files()]
        remaining = sum(file.rows - file.replaced_rows for file in affected)
        found = sum(each.rows for each in facts) - remaining
        if found != count:
            text = f"{counted(count, 'row')} did not decode, and then {found}: has the registry changed meanwhile?"
            raise TableError(f"{text} Nothing is committed, load once more")
        store.commit(
            staging,
            TableChange(
                layout=str(layout),
                topics=plan.topics,
                rows=found,
                replaced_rows=sum(file.replaced_rows for file in affected),
                files=[each.name for each in facts],
                removed=[file.name for file in affected],
            ),
        )


def _starts(plan: LoadPlan) -> dict[ClusterPartition, int]:
    """Return the offsets at which the load begins: rows of the quarantine from there on are found again."""
    starts = {part.tp: part.start for part in plan.ranges}
    return {**starts, **{p: min(start, starts.get(p, start)) for p, start in plan.replaced_from.items()}}
