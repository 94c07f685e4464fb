"""Storage in memory keeps the storage contract."""

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.ports.storage import LogDir, StorageFull, StorageReadOnly
from barnabas.testing.contracts.storage import Reopen, StorageContract, check_failed_append_leaves_nothing, machine_for


def _fresh() -> Reopen:
    disk = MemoryDisk()
    return lambda: MemoryLogDir(disk)


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def reopen(self) -> Reopen:
        return _fresh()


TestMemoryStorageMachine = machine_for(_fresh).TestCase


def _typed() -> LogDir:
    return MemoryLogDir()


def test_append_beyond_capacity_raises_storage_full() -> None:
    disk = MemoryDisk(capacity=50_000)
    file = MemoryLogDir(disk).folder("t-0").open("a.log")
    file.append(b"x" * 40_000)
    check_failed_append_leaves_nothing(file, StorageFull, lambda: None)
    disk.capacity = None
    file.append(b"y" * 100_000)
    assert disk.used == 140_000


def test_changes_on_read_only_disk_raise_storage_read_only() -> None:
    disk = MemoryDisk()
    log_dir = MemoryLogDir(disk)
    folder = log_dir.folder("t-0")
    file = folder.open("a.log")
    file.append(b"abc")

    def protect() -> None:
        disk.read_only = True

    check_failed_append_leaves_nothing(file, StorageReadOnly, protect)
    for call in (
        lambda: folder.open("b"),
        lambda: folder.write_small("c", b""),
        lambda: folder.delete("a.log"),
        lambda: folder.rename("a.log", "b"),
        lambda: log_dir.folder("t-1"),
        lambda: file.truncate(0),
    ):
        with pytest.raises(StorageReadOnly):
            call()
    assert folder.open("a.log").read(0, 9) == b"abc"


def test_times_come_from_the_disk() -> None:
    now = 5
    folder = MemoryLogDir(MemoryDisk(now_ms=lambda: now)).folder("t-0")
    file = folder.open("a")
    now = 7
    file.append(b"x")
    assert folder.files()["a"].modified_ms == 7


def test_process_death_keeps_written_bytes_and_power_cut_flushed_ones() -> None:
    disk = MemoryDisk()
    folder = MemoryLogDir(disk).folder("t-0")
    file = folder.open("a.log")
    file.append(b"flushed")
    file.flush()
    file.append(b", not flushed")
    folder.write_small("small", b"whole")
    died, lost_power = disk.after_crash(), disk.after_crash(power_cut=True)
    file.append(b", written by who does not know that he is dead")

    def left(of: MemoryDisk) -> bytes:
        found = MemoryLogDir(of).folder("t-0")  # it is open nowhere
        assert found.read_small("small") == b"whole"
        return found.open("a.log", create=False).read(0, 100)

    assert left(died) == b"flushed, not flushed"
    assert left(lost_power) == b"flushed"
    file.truncate(3)
    assert left(disk.after_crash(power_cut=True)) == b"flu"
