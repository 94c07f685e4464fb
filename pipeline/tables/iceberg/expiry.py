"""Expired snapshots, and the files that only they need."""

from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from .durable import local_path


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
