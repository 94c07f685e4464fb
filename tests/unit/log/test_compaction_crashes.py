"""A crash before each change that compaction makes to the disk: nothing is lost, nothing comes back (facts B3)."""

import pytest
from attrs import evolve
from support.cleaned_log import COMPACT, CleanedLogs, last_values, messages_of
from support.long_tests import first_is_quick

from barnabas.adapters.storage_memory import MemoryDisk
from barnabas.core.log.compaction.cleaning_job import CleanerSettings
from barnabas.ports.storage import StorageError
from barnabas.testing.logs import TP


class WatchedDisk(MemoryDisk):
    """Keeps what a crash would leave before each change."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(now_ms=disk.now_ms)
        self.__dict__.update(disk.after_crash().__dict__)
        self.left: list[tuple[str, MemoryDisk]] = []

    def check_write(self, added: int, what: str) -> None:
        super().check_write(added, what)
        for power_cut in (False, True):
            self.left.append((what, self.after_crash(power_cut=power_cut)))


def filled(logs: CleanedLogs) -> dict[bytes | None, bytes | None]:
    """Keys that are written again, and some that are deleted, two days ago; the first cleaning has been."""
    for number in range(20):
        logs.put((b"k%d" % (number % 3), b"v%d" % number), (b"gone%d" % (number % 4), b"x"))
    for number in range(4):
        logs.put((b"gone%d" % number, None), (b"once%d" % number, b"y"))
    logs.clean()
    logs.wait(200_000_000)
    for number in range(20):
        logs.put((b"k%d" % (number % 3), b"w%d" % number), (b"new", b"%d" % number))
    logs.roll()
    return last_values(logs.log)


@pytest.mark.parametrize("segment_bytes", first_is_quick([1000, 500]))
def test_a_crash_before_each_change(segment_bytes: int) -> None:
    logs = CleanedLogs(evolve(COMPACT, segment_bytes=segment_bytes))
    wanted = filled(logs)
    assert not any(key is not None and key.startswith(b"gone") for key in wanted)
    before = {message.offset: message for message in messages_of(logs.log)}
    logs.stop()
    watched = logs.disk = WatchedDisk(logs.disk)
    logs.start()
    watched.left.clear()
    logs.wait(3000)
    assert sum("is compacted below" in line for line in logs.reports) == 2
    assert not any(message.value is None for message in messages_of(logs.log))
    names = {what for what, _ in watched.left}
    assert any(name.endswith(".cleaned") for name in names)
    assert any(name.endswith(".swap") for name in names)
    assert any(name.endswith(".deleted") for name in names)
    assert len(watched.left) > 100, len(watched.left)
    for what, disk in watched.left:
        crashed = CleanedLogs.__new__(CleanedLogs)
        crashed.__dict__.update(logs.__dict__)
        crashed.disk, crashed.reports, crashed.settings = disk, [], CleanerSettings(backoff_ms=10)
        crashed.start()
        assert last_values(crashed.log) == wanted, what
        assert all(before[message.offset] == message for message in messages_of(crashed.log)), what
        assert not [line for line in crashed.reports if "lost" in line or "aside" in line or "not there" in line], what
        crashed.wait(100)
        assert last_values(crashed.log) == wanted, what
        assert not any(message.value is None for message in messages_of(crashed.log)), what
        names_left = set(crashed.disk.folders[str(TP)])
        assert not any(name.endswith((".cleaned", ".swap")) for name in names_left), names_left


class RefusingDisk(MemoryDisk):
    """Refuses to rename to and from names of deleted files, after some."""

    def __init__(self, disk: MemoryDisk, after: int) -> None:
        super().__init__(now_ms=disk.now_ms)
        self.__dict__.update(disk.after_crash().__dict__)
        self.left = after

    def check_write(self, added: int, what: str) -> None:
        self.left -= what.endswith(".deleted")
        if self.left < 0 and not added and what.endswith((".deleted", ".log")):
            raise StorageError(f"{what}: the disk says no")
        super().check_write(added, what)


@pytest.mark.parametrize("after", first_is_quick([5, 1, 3, 8]))
def test_a_disk_that_fails_in_the_midst_of_an_exchange(after: int) -> None:
    logs = CleanedLogs(evolve(COMPACT, segment_bytes=500))
    wanted = filled(logs)
    logs.stop()
    logs.disk = RefusingDisk(logs.disk, after)
    logs.start()
    logs.wait(3000)
    assert logs.log.failure is not None
    assert any("is offline until a restart" in line for line in logs.reports)
    logs.kill()
    logs.start()
    assert last_values(logs.log) == wanted
    assert any("an interrupted cleaning is completed" in line for line in logs.reports)
    logs.wait(3000)
    assert last_values(logs.log) == wanted
