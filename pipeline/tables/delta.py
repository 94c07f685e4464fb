"""Tables in the format of Delta Lake, committed with delta-rs: data, offsets and all else in one step of Delta's log.

    DIR/topic=T/day=D/part-...parquet                the rows
    DIR/_delta_log/00000000000000000007.json         one per version, see `delta_log`
    DIR/_barnabas/staging/000007-<token>/...         files of a load that is not in effect yet
    DIR/_barnabas/lock

A load writes its files below `staging`, makes them durable, notes which ones they are, and moves them to their places,
where no reader minds them: readers go by Delta's log. The version that adds them is the moment at which the load takes
effect; it removes the files that are replaced, which stay until a vacuum, for readers of older versions. A staging
folder that is left is looked for in the log: if no version has it, its files go.
"""

import json
import math
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from .delta_log import METADATA_KEY, DeltaLog, packed
from .files import FileFacts, as_text, file_facts, parquet_rows, sync, sync_down_to, table_columns, write_durably
from .layout import Layout
from .lock import exclusive
from .state import COMPACT, Commit, DataFile, Staging, TableChange, TableError, commit_of, no_table
from .store import Checkpoint, no_checkpoint

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

DELTA = "delta"
_META = "_barnabas"
_PLACING = "placing.json"


class DeltaLakeTable:
    """Fulfils `TableStore`."""

    format = DELTA

    def __init__(self, folder: Path, *, checkpoint: Checkpoint = no_checkpoint) -> None:
        self.folder = folder
        self._log = DeltaLog(folder)
        self._staging = folder / _META / "staging"
        self._checkpoint = checkpoint

    def exists(self) -> bool:
        return self._log.version() is not None

    def last(self) -> Commit | None:
        return self._log.last()

    def history(self) -> Iterator[Commit]:
        return self._log.history()

    def files(self) -> Sequence[DataFile]:
        if not self.exists():
            return []
        found = [_data_file(self.folder, each) for each in _active(self._table())]
        return sorted(found, key=lambda file: file.name)

    def columns(self) -> "pa.Schema":
        import pyarrow as pa

        return pa.schema(self._table().schema().to_arrow())

    def paths(self) -> Sequence[Path]:
        return [self.folder / file.name for file in self.files()]

    def locked(self, *, wait_s: float = 0.0) -> AbstractContextManager[None]:
        return exclusive(self.folder / _META / "lock", wait_s=wait_s)

    def recover(self) -> None:
        self._log.drop_torn()
        if self._staging.is_dir():
            for left in sorted(self._staging.iterdir()):
                self._roll_back(left)
                # A Java whose load was killed may still write there for a moment; what remains goes the next time.
                shutil.rmtree(left, ignore_errors=True)
        self._log.keep_copy()

    def finish_commit(self) -> None:
        """There is never anything to wait for."""
        if not self.exists():
            raise no_table(self.folder)

    def vacuum(self, before_ms: int, *, dry_run: bool) -> Sequence[str]:
        hours = max(0, math.ceil((time.time() - before_ms / 1000) / 3600))  # delta-rs knows no less; rather too few go
        found = self._table().vacuum(
            retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False, full=False
        )
        return sorted(found)

    def begin_commit(self) -> Staging:
        version = self._log.version()
        number = 0 if version is None else version + 1
        folder = self._staging / f"{number:06d}-{uuid.uuid4().hex[:8]}"
        self._checkpoint("staging")
        folder.mkdir(parents=True)
        return Staging(folder=folder, number=number)

    def commit(self, staging: Staging, change: TableChange) -> Commit:
        facts = [file_facts(staging.folder, name) for name in change.files]
        columns = self._columns_of(staging, change)
        self._place(staging, change.files)
        done = self._publish(staging.folder.name, staging.number, change, facts, columns)
        self._checkpoint("remove staging")
        shutil.rmtree(staging.folder)
        return done

    def adopt(self, change: TableChange) -> Commit:
        """Make the table of files that stand in their places already, of a table in another format. Needs the lock.

        The folder is this table's when its first version is written.
        """
        facts = [file_facts(self.folder, name) for name in change.files]
        columns = table_columns([self.folder / name for name in change.files], Layout.parse(change.layout))
        return self._publish("", 0, change, facts, columns)

    def _publish(
        self, staging: str, number: int, change: TableChange, facts: Sequence[FileFacts], columns: "pa.Schema"
    ) -> Commit:
        """Staging is the name of the folder, and stands in the version."""
        self._widen(number, columns)
        self._checkpoint("commit version")
        number = self._write_version(staging, number, change, facts, columns)
        self._checkpoint("sync version")
        self._log.sync(number)
        self._checkpoint("keep copy")
        self._log.keep_copy()
        return commit_of(change, number=number, created_ms=time.time_ns() // 1_000_000)

    def _columns_of(self, staging: Staging, change: TableChange) -> "pa.Schema":
        if not change.files and self.exists():
            return self.columns()
        return table_columns([staging.folder / name for name in change.files], Layout.parse(change.layout))

    def _place(self, staging: Staging, names: Sequence[str]) -> None:
        """Durable, and in their places; a note says so before, for those who would have to take them back."""
        for name in names:
            self._checkpoint("sync staged file")
            sync(staging.folder / name)
        self._checkpoint("note places")
        write_durably(staging.folder / _PLACING, json.dumps({"number": staging.number, "files": list(names)}))
        sync_down_to(staging.folder, self.folder)
        for name in names:
            self._checkpoint("move file")
            final = self.folder / name
            final.parent.mkdir(parents=True, exist_ok=True)
            (staging.folder / name).rename(final)
        for folder in sorted({(self.folder / name).parent for name in names}):
            sync_down_to(folder, self.folder)

    def _roll_back(self, staging: Path) -> None:
        """Take back the files that were put into their places for a version that never came."""
        try:
            note = json.loads((staging / _PLACING).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        if self._log.knows_all_from(note["number"]) and self._log.made_of(staging.name, note["number"]) is None:
            for name in note["files"]:
                (self.folder / name).unlink(missing_ok=True)

    def _widen(self, number: int, columns: "pa.Schema") -> None:
        """See that the table has these columns. New ones are a version of their own, without rows. Raises `TableError`
        for columns of another type."""
        from deltalake import CommitProperties, Schema, write_deltalake
        from deltalake.exceptions import DeltaError

        if number == 0:
            return
        table = self._table()
        if _has_columns(json.loads(table.schema().to_json()), json.loads(Schema.from_arrow(columns).to_json())):
            return
        self._checkpoint("widen")
        properties = CommitProperties(max_commit_retries=0)
        try:
            write_deltalake(
                table, columns.empty_table(), mode="append", schema_mode="merge", commit_properties=properties
            )
        except DeltaError as error:
            raise TableError(f"{self.folder}: columns of the new rows do not go with the table's: {error}") from error
        self._log.sync(table.version())

    def _write_version(
        self, staging: str, number: int, change: TableChange, facts: Sequence[FileFacts], columns: "pa.Schema"
    ) -> int:
        from deltalake.exceptions import CommitFailedError, DeltaError

        adds = [_add_action(each, data_change=change.operation != COMPACT) for each in facts]
        nothing = "nothing of this change is in the table"
        try:
            return self._commit_actions(staging, number, change, adds, columns)
        except CommitFailedError as error:
            raise TableError(f"{self.folder} was changed by another program just now; {nothing}, try again") from error
        except DeltaError as error:
            # What comes behind a commit (a checkpoint of the log) may fail as well.
            done = self._log.made_of(staging, number)
            if done is None:
                raise TableError(f"{self.folder}: {error}; {nothing}") from error
            return done

    def _commit_actions(
        self, staging: str, number: int, change: TableChange, adds: "Sequence[AddAction]", columns: "pa.Schema"
    ) -> int:
        """Commit as the version of this number, or as a later one if other tools have committed meanwhile, whose
        versions leave the offsets as they are. Raises `TableError` if a commit of ours came first: it has another
        state.
        """
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.transaction import create_table_with_add_actions

        table = None if number == 0 else self._table()
        last = self._log.last()  # after the handle: a version that is in neither of them is a conflict
        positions = _positions(change, last)
        properties = CommitProperties(
            custom_metadata={METADATA_KEY: packed(change, staging)},
            app_transactions=[Transaction(app_id, offset, None) for app_id, offset in positions.items()],
            max_commit_retries=0,
        )
        schema, parts = Schema.from_arrow(columns), list(Layout.parse(change.layout).types)
        if table is None:
            create_table_with_add_actions(
                str(self.folder), schema, list(adds), partition_by=parts, commit_properties=properties
            )
            return 0
        if last is not None and last.number >= number:
            raise TableError(
                f"{self.folder} was changed by another program meanwhile: version {last.number} is a load's, too; "
                "nothing of this change is in the table, try again"
            )
        number = table.version() + 1
        actions: list[AddAction | RemoveAction] = [*adds, *_remove_actions(table, change)]
        table.create_write_transaction(
            actions, mode="append", schema=schema, partition_by=parts, commit_properties=properties
        )
        return number

    def _table(self) -> "DeltaTable":
        from deltalake import DeltaTable

        table = DeltaTable(str(self.folder))
        features = set(table.protocol().reader_features or ()) & {"deletionVectors", "columnMapping"}
        if features:
            raise TableError(
                f"{self.folder}: another tool enabled {', '.join(sorted(features))}, which Barnabas cannot write"
            )
        return table


def app_id(topic: str, key: str) -> str:
    """Return the application of Delta's transactions whose version is the next offset of a partition, see
    `Place.key`."""
    return f"barnabas/{topic}/{key}"


def _positions(change: TableChange, before: Commit | None) -> Mapping[str, int]:
    """Return the offsets that the change moves."""
    known = {} if before is None else _offsets(before)
    return {name: offset for name, offset in _offsets(change).items() if known.get(name) != offset}


def _offsets(change: TableChange) -> Mapping[str, int]:
    return {
        app_id(topic, key): offset
        for topic, state in change.topics.items()
        for key, offset in state.next_offsets.items()
    }


def _has_columns(have: Any, wanted: Any) -> bool:
    """Compare types in the JSON of Delta's schemas: whether `have` contains everything that is wanted."""
    if not (isinstance(have, dict) and isinstance(wanted, dict)):
        return bool(have == wanted)
    if wanted.get("type") == "struct":
        there = {field["name"]: field["type"] for field in have.get("fields", ())}
        return all(
            field["name"] in there and _has_columns(there[field["name"]], field["type"]) for field in wanted["fields"]
        )
    if wanted.get("type") == "array":
        return _has_columns(have.get("elementType"), wanted["elementType"])
    return have == wanted


def _active(table: "DeltaTable") -> list[dict[str, Any]]:
    import pyarrow as pa

    return list(pa.table(table.get_add_actions(flatten=True)).to_pylist())


def _data_file(folder: Path, action: Mapping[str, Any]) -> DataFile:
    name, rows = unquote(action["path"]), action.get("num_records")
    return DataFile(
        name=name,
        rows=parquet_rows(folder / name) if rows is None else rows,
        size_bytes=action["size_bytes"],
        partition=_partition(action),
    )


def _partition(action: Mapping[str, Any]) -> dict[str, str | None]:
    prefix = "partition."
    return {key.removeprefix(prefix): as_text(value) for key, value in action.items() if key.startswith(prefix)}


def _add_action(facts: FileFacts, *, data_change: bool) -> "AddAction":
    from deltalake.transaction import AddAction

    stats = {
        "numRecords": facts.rows,
        "minValues": {column: _in_stats(value) for column, value in facts.least.items()},
        "maxValues": {column: _in_stats(value) for column, value in facts.greatest.items()},
        "nullCount": dict(facts.nulls),
    }
    partition = dict(facts.partition)
    return AddAction(facts.name, facts.size_bytes, partition, facts.modified_ms, data_change, json.dumps(stats))


def _in_stats(value: Any) -> Any:
    """Delta's log has times to the millisecond; those of records are no finer."""
    return (
        value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
        if isinstance(value, datetime)
        else value
    )


def _remove_actions(table: "DeltaTable", change: TableChange) -> "list[RemoveAction]":
    """Raises `TableError` when another program has removed one of them before."""
    from deltalake.transaction import RemoveAction

    active = {unquote(each["path"]): each for each in _active(table)} if change.removed else {}
    gone = [name for name in change.removed if name not in active]
    if gone:
        raise TableError(f"{gone[0]} was removed from the table by another program meanwhile; try again")
    now_ms, data_change = time.time_ns() // 1_000_000, change.operation != COMPACT
    return [
        RemoveAction(name, data_change, now_ms, active[name]["size_bytes"], _partition(active[name]))
        for name in change.removed
    ]
