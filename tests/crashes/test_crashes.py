"""Crashes at every moment of recorded work (see docs/reliability.md); `make crashes POINTS=100000` tries more."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crashes.import_check import try_import_crashes
from crashes.log_check import try_crashes, try_retention_crashes
from crashes.quick_folder import quick_folder
from crashes.table_check import try_table_crashes
from crashes.tier_check import try_tier_crashes
from crashes.written import Broken
from support.long_tests import first_is_quick

from barnabas.adapters import remote_folder, storage_fs
from barnabas.app.kafka_import import carry_out, resuming
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.producers import producer_state_manager as producer_state_files
from barnabas.core.log.recovery import log_loader as loading
from barnabas.core.log.segment import damage
from barnabas.core.tiering import manifest as manifests
from barnabas.core.tiering import remote_log_manager
from barnabas.core.tiering.manifest import Manifest, RemoteSegment
from barnabas.core.traffic.steps import Steps
from barnabas.pipeline.tables import commits
from barnabas.pipeline.tables.state import TableError
from barnabas.ports.types import Offset

POINTS = 2_500
RETENTION_POINTS = 900
TABLE_POINTS = 250
TIER_POINTS = 100
IMPORT_POINTS = 60
"""Power cuts of each seed."""


@pytest.mark.slow
def test_logs_keep_their_promises() -> None:
    tried, seed = 0, 0
    while tried < POINTS:
        with quick_folder() as place:
            tried += try_crashes(seed, place, POINTS - tried)
        seed += 1
    assert seed > 1, "a broker alone, and one of a cluster"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_producers_outlive_records_that_retention_removes(seed: int) -> None:
    with quick_folder() as place:
        assert try_retention_crashes(seed, place, RETENTION_POINTS) > RETENTION_POINTS // 3


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False])
def test_retention_that_does_not_wait_for_the_producers_is_found(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def secure(log: UnifiedLog, base: Offset, now_ms: int) -> Steps[bool]:
        """Nothing, or the file without a flush, before the records below it are durable."""
        if early:
            file = log.folder.open(f"{base:020}.snapshot")
            file.truncate(0)
            file.append(log.snapshot_at(base, now_ms)())
            file.close()
        yield from ()
        return True

    monkeypatch.setattr(UnifiedLog, "_secure_producers", secure)
    with pytest.raises((Broken, AssertionError)):
        for seed in range(3):
            with quick_folder() as place:
                try_retention_crashes(seed, place, RETENTION_POINTS)


@pytest.mark.slow
def test_loads_are_whole_or_not_at_all(folder: Path) -> None:
    assert try_table_crashes(1, folder, TABLE_POINTS) == TABLE_POINTS


@pytest.mark.parametrize("seed", first_is_quick(range(12)))
def test_copies_in_remote_storage_are_whole_or_not_offered(seed: int, folder: Path) -> None:
    assert try_tier_crashes(seed, folder, TIER_POINTS) > TIER_POINTS // 2


def _nothing(*_: Any) -> None:
    return None


def records_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(storage_fs.FsFile, "flush", _nothing)


def folders_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(storage_fs, "sync_folder", _nothing)


def small_files_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(storage_fs, "sync", _nothing)


def recovery_believes_every_batch(patch: pytest.MonkeyPatch) -> None:
    walk = damage.walk
    patch.setattr(loading, "walk", lambda *args, **kwargs: walk(*args, **{**kwargs, "check_crc": False}))


def recovers_beyond_a_hole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loading, "snapshot_offsets", lambda _: [2**62])


def producers_are_not_read_from_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producer_state_files, "replay", _nothing)
    patch.setattr(producer_state_files.ProducerStateManager, "recovered", _nothing)


def the_recovery_point_is_where_the_log_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnifiedLog, "recovery_point", property(lambda self: self.log_end_offset))


@pytest.mark.parametrize(
    "break_it",
    first_is_quick(
        [
            records_are_not_flushed,
            folders_are_not_flushed,
            small_files_are_not_flushed,
            recovery_believes_every_batch,
            recovers_beyond_a_hole,
            producers_are_not_read_from_batches,
            the_recovery_point_is_where_the_log_ends,
        ]
    ),
)
def test_broken_promise_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises((Broken, AssertionError)):
        for seed in range(40):
            with quick_folder() as place:
                try_crashes(seed, place, 600)


def test_a_table_that_does_not_flush_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "sync", _nothing)
    with pytest.raises((AssertionError, TableError)):
        try_table_crashes(1, folder, TABLE_POINTS)


def names_in_the_store_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remote_folder, "_flush_folder", _nothing)


def objects_are_written_in_place(patch: pytest.MonkeyPatch) -> None:
    def store(_: Any, path: Path, content: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb", buffering=0) as stored:
            remote_folder._write(stored.fileno(), content)

    patch.setattr(remote_folder.FolderRemoteStorage, "_store", store)


def a_segment_is_offered_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    def start(manifest: Manifest, segment: RemoteSegment) -> Manifest:
        begun = manifests.start_copy(manifest, segment)
        return manifests.finish_copy(begun, segment.segment_id, begun.epochs)

    patch.setattr(remote_log_manager, "start_copy", start)


@pytest.mark.parametrize(
    "break_it",
    first_is_quick(
        [
            objects_are_written_in_place,
            names_in_the_store_are_not_flushed,
            a_segment_is_offered_before_it_is_stored,
        ]
    ),
)
def test_broken_promise_of_remote_storage_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises(Broken) as found:
        for seed in range(6):
            with quick_folder() as place:
                try_tier_crashes(seed, place, 400)
    print(found.value)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(4), 4, 7])
def test_interrupted_imports_are_refused_and_completed_by_the_same_command(seed: int, folder: Path) -> None:
    assert try_import_crashes(seed, folder, IMPORT_POINTS) > IMPORT_POINTS // 2


def an_import_leaves_no_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resuming.ImportMark, "write_first", _nothing)
    patch.setattr(resuming.ImportMark, "_append", _nothing)


def imported_folders_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    for module in (resuming, carry_out):
        patch.setattr(module, "sync_folder", _nothing)


def imported_files_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    def copy(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())

    patch.setattr(carry_out, "_copy", copy)
    patch.setattr(carry_out, "_sync_file", _nothing)


@pytest.mark.slow
def test_import_that_empties_what_it_has_linked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = shutil.rmtree

    def empty(folder: Any, **more: Any) -> None:
        if Path(folder).name == "orders-0":
            for path in folder.iterdir():
                path.write_bytes(b"")
        remove(folder, **more)

    monkeypatch.setattr(shutil, "rmtree", empty)
    with pytest.raises(Broken), quick_folder() as place:
        try_import_crashes(4, place, 400)


@pytest.mark.slow
@pytest.mark.parametrize(
    "break_it", [an_import_leaves_no_mark, imported_folders_are_not_flushed, imported_files_are_not_flushed]
)
def test_broken_promise_of_an_import_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises(Broken) as found:
        for seed in range(2, 4):
            with quick_folder() as place:
                try_import_crashes(seed, place, 400)
    print(found.value)
