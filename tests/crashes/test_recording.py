"""The recorded operations of a folder, and the states that a disk may have after them."""

import os
import shutil
from pathlib import Path

import pytest

from barnabas.adapters.system import SeededEntropy
from barnabas.testing.crashes import Cut, Disk, Left, Made, Moved, Note, Operation, Recording, Removed, Synced, Wrote
from barnabas.testing.crashes import crashes as crashes_of

MANY = 60


def possible(operations: list[Operation], *, loose: bool = True) -> list[Left]:
    disk = Disk()
    for operation in operations:
        disk.play(operation)
    return list(disk.left(SeededEntropy(1), MANY, loose=loose))


def contents(operations: list[Operation], name: str, *, loose: bool = True) -> set[bytes | None]:
    return {left.files.get(name) for left in possible(operations, loose=loose)}


def test_calls_are_recorded_in_their_order(folder: Path) -> None:
    (folder / "before").write_bytes(b"old")
    with Recording(folder) as recording:
        (folder / "sub").mkdir()
        with (folder / "sub" / "text").open("w") as file:
            file.write("one\ntwo\n")
        fd = os.open(folder / "raw", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.writev(fd, [b"ab", b"cd"])
        os.fsync(fd)
        os.ftruncate(fd, 1)
        os.close(fd)
        recording.note("here")
        (folder / "raw").rename(folder / "sub" / "moved")
        (folder / "before").unlink()
        shutil.rmtree(folder / "sub")
    assert recording.operations[: recording.began] == [
        Made(0, "before", 1, False),
        Wrote(1, 0, b"old"),
        Synced(1),
        Synced(0),
    ]
    assert recording.operations[recording.began : -3] == [
        Made(0, "sub", 2, True),
        Made(2, "text", 3, False),
        Wrote(3, 0, b"one\ntwo\n"),
        Made(0, "raw", 4, False),
        Wrote(4, 0, b"abcd"),
        Synced(4),
        Cut(4, 1),
        Note("here"),
        Moved(0, "raw", 2, "moved", 4),
        Removed(0, "before"),
    ]
    assert sorted(recording.operations[-3:]) == [Removed(0, "sub"), Removed(2, "moved"), Removed(2, "text")]
    assert not list(folder.iterdir())


def test_copies_within_the_system_are_recorded(folder: Path) -> None:
    (folder / "source").write_bytes(b"0123456789")
    with (
        Recording(folder) as recording,
        (folder / "source").open("rb") as source,
        (folder / "target").open("xb", buffering=0) as target,
    ):
        assert os.copy_file_range(source.fileno(), target.fileno(), 4) == 4
        assert os.copy_file_range(source.fileno(), target.fileno(), 100, 6) == 4
    assert recording.operations[recording.began :] == [
        Made(0, "target", 2, False),
        Wrote(2, 0, b"0123"),
        Wrote(2, 4, b"6789"),
    ]
    assert (folder / "target").read_bytes() == b"01236789"


def test_writes_of_other_clients_are_noticed_after_a_sync(folder: Path) -> None:
    with Recording(folder) as recording:
        shutil.copyfile(__file__, folder / "copy")
        fd = os.open(folder / "copy", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    copied = Path(__file__).read_bytes()
    assert contents(recording.operations, "copy", loose=False) == {copied}


def test_synced_writes_survive_a_crash_and_others_may() -> None:
    operations: list[Operation] = [Made(0, "f", 1, False), Wrote(1, 0, b"kept"), Synced(1), Synced(0)]
    assert contents(operations, "f") == {b"kept"}
    found = contents([*operations, Wrote(1, 4, b"more")], "f")
    assert {b"kept", b"keptmore", b"keptmo", b"kept\0\0\0\0"} <= found
    assert all(each is not None and each.startswith(b"kept") for each in found)


def test_a_cut_comes_back_until_it_is_synced() -> None:
    operations: list[Operation] = [Made(0, "f", 1, False), Wrote(1, 0, b"long"), Synced(1), Synced(0), Cut(1, 1)]
    assert contents(operations, "f") == {b"l", b"long"}
    assert contents([*operations, Synced(1)], "f") == {b"l"}


def test_a_rename_is_whole_or_not() -> None:
    first: list[Operation] = [Made(0, "f", 1, False), Wrote(1, 0, b"old"), Synced(1), Synced(0)]
    second: list[Operation] = [Made(0, "f.tmp", 2, False), Wrote(2, 0, b"new"), Synced(2), Moved(0, "f.tmp", 0, "f", 2)]
    assert contents([*first, *second], "f") == {b"old", b"new"}
    assert contents([*first, *second, Synced(0)], "f") == {b"new"}
    assert b"" in contents([*first, *second[:2], second[3]], "f")  # the replacement was not synced


def test_a_journal_keeps_the_order_between_folders_and_a_loose_disk_does_not() -> None:
    operations: list[Operation] = [
        Made(0, "a", 1, True),
        Synced(0),
        Made(0, "first", 2, False),
        Made(1, "second", 3, False),
    ]

    def both(left: Left) -> tuple[bool, bool]:
        return "first" in left.files, "a/second" in left.files

    assert {both(left) for left in possible(operations, loose=False)} == {(False, False), (True, False), (True, True)}
    assert (False, True) in {both(left) for left in possible(operations)}
    # fsync of a file takes the names before it along in a journal, and says nothing of them on a loose disk.
    operations += [Wrote(3, 0, b"x"), Synced(3)]
    assert {both(left) for left in possible(operations, loose=False)} == {(True, True)}
    assert (False, False) in {both(left) for left in possible(operations)}


def test_crashes_of_a_recording(folder: Path, tmp_path: Path) -> None:
    with Recording(folder) as recording:
        (folder / "sub").mkdir()
        (folder / "sub" / "f").write_bytes(b"content")
        recording.note("written")
    found = list(crashes_of(recording.operations, SeededEntropy(1), first=recording.began))
    assert any(not crash.left.folders for crash in found)
    last = [crash for crash in found if crash.operations == len(recording.operations) and crash.number == 0]
    assert [list(crash.noted) for crash in last] == [["written"]]
    last[0].left.write_to(tmp_path / "again")
    assert (tmp_path / "again" / "sub" / "f").read_bytes() == b"content"


def test_moves_over_the_edge_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with Recording(folder), pytest.raises(NotImplementedError, match="over the edge"):
        (tmp_path / "f").rename(folder / "f")
