"""A table in Iceberg's format: one snapshot per commit has the files, and in its summary the state of all topics."""

import json
import shutil
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import cattrs
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, ResolveError, ValidationError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.transforms import IdentityTransform

from ..files import sync, table_columns
from ..layout import Layout
from ..lock import exclusive
from ..state import Commit, DataFile, Staging, TableChange, TableError
from ..store import Checkpoint, no_checkpoint
from .catalog import CatalogEntry, opened, store_entry, stored_entry
from .durable import local_path
from .files import StagedFile, data_file, partition_texts


def expired(table: Table, before_ms: int) -> list[Snapshot]:
    """Return the snapshots that were no longer the newest one at that time. Heads of branches and tags stay."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    older = sorted((each for each in table.snapshots() if each.timestamp_ms < before_ms), key=_age)
    return [each for each in older[:-1] if each.snapshot_id not in heads]


def remove_empty(root: Path, folders: Collection[Path]) -> None:
    """Folders below `root` that have nothing left in them, and what is then empty above them."""
    for folder in sorted(folders, reverse=True):
        for each in (folder, *folder.parents):
            if each == root or any(each.iterdir()):
                break
            each.rmdir()


def _age(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.timestamp_ms, snapshot.sequence_number or 0


def needed(table: Table, without: Collection[Snapshot] = ()) -> set[str]:
    """Return the paths of the files that all snapshots except those of `without` need, and of the metadata files."""
    gone = {each.snapshot_id for each in without}
    remaining = [each for each in table.snapshots() if each.snapshot_id not in gone]
    manifests = {each.manifest_path: each for snapshot in remaining for each in snapshot.manifests(table.io)}
    entries = chain.from_iterable(each.fetch_manifest_entry(table.io) for each in manifests.values())
    statistics = (*table.metadata.statistics, *table.metadata.partition_statistics)
    return {
        table.metadata_location,
        *(each.metadata_file for each in table.metadata.metadata_log),
        *(each.manifest_list for each in remaining),
        *manifests,
        *(entry.data_file.file_path for entry in entries),
        *(each.statistics_path for each in statistics),
    }


def metadata_folder(table: Table) -> Path:
    path = local_path(table.location_provider().new_metadata_location("any"))
    return Path(table.location(), "metadata") if path is None else path.parent


def strays(folder: Path, metadata: Path, needed_at: Collection[str], before_ms: int) -> Iterator[Path]:
    """Yield the files of the table's folder that are older than this and are not needed."""
    there = {path for path in map(local_path, needed_at) if path is not None}
    rows = (path for path in folder.rglob("*.parquet") if not path.relative_to(folder).parts[0].startswith(("_", ".")))
    for path in sorted(chain(rows, metadata.glob("*"))):
        if path not in there and path.is_file() and path.stat().st_mtime * 1000 < before_ms:
            yield path


ICEBERG = "iceberg"
COMMIT = "barnabas.commit"
"""The property, of a snapshot's summary and of the table, that holds the state."""
_MOVES = "moves.json"
_NOT_IN_SUMMARY = ("files", "removed", "created_ms")


_METADATA_FILES_MAX = "100"


def create_table(catalog: Catalog, name: str, folder: Path, *, metadata: Path | None = None) -> Table:
    """Return an empty table, without columns. `metadata` None: its folder is DIR/metadata, as everywhere."""
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


def add_columns(table: Table, transaction: Transaction, files: Sequence[StagedFile], layout: Layout) -> TableMetadata:
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
    """Return True if all fields are there, those inside of structs, too, and have the types that Iceberg makes of
    them."""
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


class IcebergTable:
    """Fulfils `TableStore`.

    DIR/metadata/...                            Iceberg's own: snapshots and what they consist of
    DIR/topic=T/day=D/part-....parquet          the rows
    DIR/_barnabas/iceberg.json, catalog.db      where the table is registered
    DIR/_barnabas/lock, staging/...

    Files are moved to their places before the commit, which is when readers of Iceberg begin to see them: the catalog's
    pointer goes from one metadata file to the next. `moves.json` in the staging folder says what was moved, so that
    the next change takes away what a dead one left.
    """

    format = ICEBERG

    def __init__(self, folder: Path, entry: CatalogEntry, *, checkpoint: Checkpoint = no_checkpoint) -> None:
        self.folder = folder
        self.entry = entry
        self._staging = folder / "_barnabas" / "staging"
        self._checkpoint = checkpoint

    def exists(self) -> bool:
        return self.last() is not None

    def last(self) -> Commit | None:
        return next(self.history(), None)

    def history(self) -> Iterator[Commit]:
        with self._opened() as table:
            if table is not None:
                yield from _commits(table, self._name)

    def files(self) -> Sequence[DataFile]:
        with self.table() as table:
            return [
                DataFile(
                    name=self._name(file.file_path),
                    rows=file.record_count,
                    size_bytes=file.file_size_in_bytes,
                    partition=partition_texts(table.metadata, file),
                )
                for file in data_files(table, table.current_snapshot())
            ]

    def columns(self) -> Any:
        with self.table() as table:
            return table.schema().as_arrow()

    def paths(self) -> Sequence[Path]:
        return [self.folder / file.name for file in self.files()]

    def locked(self, *, wait_s: float = 0.0) -> AbstractContextManager[None]:
        return exclusive(self.folder / "_barnabas" / "lock", wait_s=wait_s)

    def finish_commit(self) -> None:
        if not self.exists():
            text = f"{self.folder} is not a loaded table: it has no commits; run 'barnabas load' into it first"
            raise TableError(text)

    def recover(self) -> None:
        if not self._staging.is_dir():
            return
        for left in sorted(self._staging.iterdir()):
            moves = left / _MOVES
            if moves.exists():
                self._remove_uncommitted(json.loads(moves.read_text()))
            # A Java whose load was killed may still write there for a moment; what remains goes the next time.
            shutil.rmtree(left, ignore_errors=True)

    def begin_commit(self) -> Staging:
        with opened(self.folder, self.entry) as catalog:
            table = self._load(catalog)
            newest = None if table is None else next(_commits(table, self._name), None)
        number = 1 if newest is None else newest.number + 1
        folder = self._staging / f"{number:06d}-{uuid.uuid4().hex[:8]}"
        self._checkpoint("staging")
        folder.mkdir(parents=True)
        return Staging(folder=folder, number=number)

    def commit(self, staging: Staging, change: TableChange) -> Commit:
        self._move(staging, change.files)
        with opened(self.folder, self.entry) as catalog:
            table = self._load(catalog)
            newest = None if table is None else next(_commits(table, self._name), None)
            if (0 if newest is None else newest.number) != staging.number - 1:
                raise TableError(f"{self.folder} was changed meanwhile; nothing is committed, try again")
            if table is None:
                self._checkpoint("create table")
                table = create_table(catalog, self.entry.table, self.folder)
            store_entry(self.folder, self.entry)
            commit = self._publish(table, change, staging.number)
        self._checkpoint("remove staging")
        shutil.rmtree(staging.folder)
        return commit

    def adopt(self, change: TableChange, number: int) -> Commit:
        """Make the table of files that are in their places already, of a table in another format. Needs the lock.

        The folder is this table's from the last step on; an earlier attempt that did not end is dropped first.
        """
        with opened(self.folder, self.entry) as catalog:
            if self._load(catalog) is not None:
                self._checkpoint("drop what was begun")
                catalog.drop_table(self.entry.table)
            self._checkpoint("create table")
            # Readers of Parquet, who come until this is done, pass over a folder of this name.
            table = create_table(catalog, self.entry.table, self.folder, metadata=self.folder / "_iceberg")
            commit = self._publish(table, change, number)
        self._checkpoint("change format")
        store_entry(self.folder, self.entry)
        return commit

    def _publish(self, table: Table, change: TableChange, number: int) -> Commit:
        # Never retry a commit on top of another one: the change was planned on the state before.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        transaction = table.transaction()
        self._checkpoint("write manifests")
        self._stage(transaction, table, change, number)
        self._checkpoint("commit")
        transaction.commit_transaction()
        fields = {field.name: getattr(change, field.name) for field in attrs.fields(TableChange)}
        return Commit(**fields, number=number, created_ms=table.metadata.last_updated_ms)

    def vacuum(self, before_ms: int, *, dry_run: bool) -> Sequence[str]:
        folder = self.folder.absolute()
        with self.table() as table:
            old = expired(table, before_ms)
            if old and not dry_run:
                self._checkpoint("expire snapshots")
                table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
                old = []
            found = list(strays(folder, metadata_folder(table), needed(table, old), before_ms))
        if not dry_run:
            for path in found:
                self._checkpoint("remove file")
                path.unlink()
            remove_empty(folder, {path.parent for path in found})
        return [path.relative_to(folder).as_posix() for path in found]

    @contextmanager
    def table(self) -> Iterator[Table]:
        """pyiceberg's table. Raises `TableError` where there is none."""
        with self._opened() as table:
            if table is None:
                raise TableError(f"{self.folder} is not a loaded table: no catalog has {self.entry.table}")
            yield table

    def _stage(self, transaction: Transaction, table: Table, change: TableChange, number: int) -> None:
        added = [StagedFile.of(self.folder.absolute(), name) for name in change.files]
        metadata = add_columns(table, transaction, added, Layout.parse(change.layout))
        before = data_files(table, table.current_snapshot()) if change.removed else []
        there = {self._name(file.file_path): file for file in before}
        unknown = next((name for name in change.removed if name not in there), None)
        if unknown is not None:
            raise TableError(f"{self.folder}: {unknown} is to be removed, and is not in the newest version")
        state = _summary(change, number)
        with transaction.update_snapshot(snapshot_properties={COMMIT: state}).overwrite() as update:
            _evaluate_each_manifest_alone(update)
            for name in change.removed:
                update.delete_data_file(there[name])
            for file in added:
                update.append_data_file(data_file(metadata, file))
        transaction.set_properties({COMMIT: state})

    def _move(self, staging: Staging, names: Sequence[str]) -> None:
        for name in names:
            self._checkpoint("sync staged file")
            sync(staging.folder / name)
        self._checkpoint("note moves")
        moves = staging.folder / _MOVES
        temporary = moves.with_suffix(".tmp")
        temporary.write_text(json.dumps(list(names)))
        sync(temporary)
        temporary.rename(moves)
        for folder in self._down_to(staging.folder):
            sync(folder)
        folders = {(self.folder / name).parent for name in names}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            self._checkpoint("move file")
            (staging.folder / name).rename(self.folder / name)
        for each in sorted({above for folder in folders for above in self._down_to(folder)}):
            sync(each)

    def _down_to(self, folder: Path) -> Iterator[Path]:
        for each in (folder, *folder.parents):
            yield each
            if each == self.folder:
                return

    def _remove_uncommitted(self, names: Sequence[str]) -> None:
        """Remove what was moved for a commit that never came; one that did come keeps its files."""
        with self._opened() as table:
            known = set() if table is None else {self._name(path) for path in all_data_paths(table)}
        for name in names:
            if name not in known:
                self._checkpoint("take back file")
                (self.folder / name).unlink(missing_ok=True)

    def _name(self, location: str) -> str:
        path, root = local_path(location), self.folder.absolute()
        return path.relative_to(root).as_posix() if path is not None and path.is_relative_to(root) else location

    @contextmanager
    def _opened(self) -> Iterator[Table | None]:
        if stored_entry(self.folder) is None:
            yield None
            return
        with opened(self.folder, self.entry) as catalog:
            yield self._load(catalog)

    def _load(self, catalog: Catalog) -> Table | None:
        try:
            table = catalog.load_table(self.entry.table)
        except NoSuchTableError:
            return None
        except FileNotFoundError as error:
            raise TableError(f"{self._moved()} ({error})") from error
        if local_path(table.location()) != self.folder.absolute():
            raise TableError(f"{self.entry.table} is the table in {table.location()}. {self._moved()}")
        return table

    def _moved(self) -> str:
        return (
            f"Iceberg keeps whole paths, so a table cannot be moved to {self.folder.absolute()}: put the folder back "
            "where it was made, or a link there; or give a new table another name"
        )


def data_files(table: Table, snapshot: Snapshot | None) -> list[Any]:
    """Return pyiceberg's DataFiles of a snapshot. Raises `TableError` where another engine has marked single rows as
    deleted, which the files do not show."""
    found = []
    for manifest in snapshot.manifests(table.io) if snapshot is not None else []:
        entries = manifest.fetch_manifest_entry(table.io)
        if entries and manifest.content == ManifestContent.DELETES:
            raise TableError(
                f"{table.location()}: another engine keeps deleted rows in files of their own; rewrite the table's "
                "files with it (rewrite_data_files), then try again"
            )
        found += [entry.data_file for entry in entries]
    return found


def all_data_paths(table: Table) -> set[str]:
    """Return the paths of the data files of every snapshot that the table still has."""
    manifests = {each.manifest_path: each for snapshot in table.snapshots() for each in snapshot.manifests(table.io)}
    return {
        entry.data_file.file_path
        for manifest in manifests.values()
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


def _commits(table: Table, name: Any) -> Iterator[Commit]:
    """Yield the commits of the newest snapshot and its ancestors: after a roll-back the state is that of the rows."""
    known = False
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        state = snapshot.summary[COMMIT] if snapshot.summary is not None else None
        if state is not None:
            known = True
            yield _commit(state, snapshot.timestamp_ms, _entries(table, snapshot), name)
    state = table.properties.get(COMMIT)
    if not known and state is not None:  # another engine has rewritten the table, and forgotten our snapshots
        yield _commit(state, table.metadata.last_updated_ms, [], name)


def _evaluate_each_manifest_alone(update: Any) -> None:
    """Give each manifest an evaluator of its own in a commit.

    pyiceberg 0.12 reads manifests in threads, which share an evaluator that keeps the manifest in an attribute: a wrong
    one was skipped at times, and the commit failed with "Missing required files to delete".
    """
    build = update._build_manifest_evaluator

    def evaluate(spec_id: int, manifest: ManifestFile) -> bool:
        return bool(build(spec_id)(manifest))

    update._build_manifest_evaluator = lambda spec_id: partial(evaluate, spec_id)


def _entries(table: Table, snapshot: Snapshot) -> list[ManifestEntry]:
    """Return the entries that the snapshot added and removed."""
    manifests = [each for each in snapshot.manifests(table.io) if each.added_snapshot_id == snapshot.snapshot_id]
    return [entry for each in manifests for entry in each.fetch_manifest_entry(table.io, discard_deleted=False)]


def _summary(change: TableChange, number: int) -> str:
    raw = cattrs.unstructure(change)
    fields = {key: value for key, value in raw.items() if key not in _NOT_IN_SUMMARY}
    return json.dumps({"number": number, **fields}, separators=(",", ":"))


def _commit(state: str, created_ms: int, entries: Sequence[ManifestEntry], name: Any) -> Commit:
    places = {
        key: sorted(name(entry.data_file.file_path) for entry in entries if entry.status == status)
        for key, status in (("files", ManifestEntryStatus.ADDED), ("removed", ManifestEntryStatus.DELETED))
    }
    try:
        return cattrs.structure({**json.loads(state), **places, "created_ms": created_ms}, Commit)
    except (ValueError, TypeError, cattrs.BaseValidationError) as error:
        raise TableError(f"the property {COMMIT} of an Iceberg table is damaged: {error!r}") from error
