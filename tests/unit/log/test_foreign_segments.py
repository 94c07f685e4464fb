"""Files that do not belong into a log cost it nothing: they are set aside, and everything intact is served."""

from collections.abc import Callable

import pytest

from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.core.log.checkpoints import SealedSegment
from barnabas.core.log.config import LogConfig
from barnabas.core.message.batch_header import assign_offset
from barnabas.ports.report import Level, Line
from barnabas.ports.storage import File, Folder
from barnabas.ports.types import Offset
from barnabas.testing.logs import batch, open_log, put, read_all

SIZE = len(batch(b"00000000"))
COUNT = 12
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=2 * SIZE)
EXPECTED = [(number, b"%08d" % number) for number in range(COUNT)]


def name_of(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


@pytest.fixture
def folder() -> Folder:
    """A log in segments of five batches that an orderly stop has left."""
    folder = MemoryLogDir().folder("t-0")
    log = open_log(folder, config=CONFIG)
    for number in range(COUNT):
        put(log, b"%08d" % number)
    log.close()
    return folder


def batches(*offsets: int, of: bytes = b"other") -> bytes:
    content = bytearray()
    for offset in offsets:
        one = batch(of)
        assign_offset(one, offset, 0)
        content += one
    return bytes(content)


def write(folder: Folder, name: str, content: bytes) -> None:
    folder.open(name).append(content)


def check_whole(folder: Folder, reports: list[str], *, recover: bool, recovery_point: int = COUNT) -> None:
    """All is served, and so it is after another start; the reports go to the list."""
    for _ in range(2):
        log = open_log(folder, recover=recover, recovery_point=recovery_point, config=CONFIG, report=reports.append)
        assert read_all(log) == EXPECTED
        assert log.log_end_offset == COUNT
        log.close()
        if recover:
            recovery_point = COUNT
    assert put(open_log(folder, recovery_point=COUNT, config=CONFIG), b"more") == COUNT


def quarantined(folder: Folder) -> dict[str, bytes]:
    return {name: folder.read_small(name) for name in folder.files() if ".aside" in name}


STARTS = pytest.mark.parametrize(("recover", "recovery_point"), [(False, COUNT), (True, COUNT), (True, 7), (True, 0)])


@STARTS
@pytest.mark.parametrize("base", [2**63 - 1, 2**63, 10**20 - 1])
@pytest.mark.parametrize("suffix", [".log", ".index", ".log.swap", ".log.deleted", ".log.cleaned"])
def test_beyond_all_offsets(folder: Folder, base: int, suffix: str, recover: bool, recovery_point: int) -> None:
    content = batches(1, 2)
    write(folder, name_of(base, suffix), content)
    reports: list[str] = []
    check_whole(folder, reports, recover=recover, recovery_point=recovery_point)
    assert quarantined(folder) == {f"{name_of(base, suffix)}.aside": content}
    assert "begins beyond all offsets" in reports[0]
    assert isinstance(reports[0], Line)
    assert reports[0].level is Level.WARNING


INSIDE = {
    "batches of the same offsets": (2, batches(2, 3)),
    "batches of offsets below its name": (7, batches(0, 1)),
    "batches of offsets far above": (3, b""),
    "nothing": (7, b""),
    "garbage": (8, bytes(range(256)) * 3),
    "an end of its own": (6, batches(6, 7, 8, 9, 10, 11)),
    "inside of the newest segment": (11, batches(11)),
}


@STARTS
@pytest.mark.parametrize("what", INSIDE)
def test_inside_of_another_segment(folder: Folder, what: str, recover: bool, recovery_point: int) -> None:
    base, content = INSIDE[what]
    write(folder, name_of(base), content)
    write(folder, name_of(base, ".index"), b"\0" * 8)
    reports: list[str] = []
    check_whole(folder, reports, recover=recover, recovery_point=recovery_point)
    assert quarantined(folder)[f"{name_of(base)}.aside"] == content
    (line,) = [line for line in reports if "renamed to" in line]
    assert f"{name_of(base)} lies inside" in line


@pytest.mark.parametrize("content", [batches(400, 401), b"", batches(1, 2)])
def test_behind_the_end_of_a_log_that_was_stopped_in_order(folder: Folder, content: bytes) -> None:
    write(folder, name_of(400), content)
    reports: list[str] = []
    check_whole(folder, reports, recover=False)
    assert quarantined(folder) == {f"{name_of(400)}.aside": content}
    assert f"begins above the log end offset {COUNT}" in reports[0]


@pytest.mark.parametrize("base", [COUNT, 400])
def test_stray_segment_does_not_become_the_log_end(folder: Folder, base: int) -> None:
    """The broker was killed: the end of the log is not recorded."""
    content = batches(1, 2)
    write(folder, name_of(base), content)
    reports: list[str] = []
    check_whole(folder, reports, recover=True, recovery_point=7)
    assert quarantined(folder)[f"{name_of(base)}.aside"] == content
    why = "does not begin with a batch of this log" if base == COUNT else "begins above offset"
    assert any(why in line for line in reports)


def test_a_lying_last_batch_does_not_make_the_next_segment_foreign(folder: Folder) -> None:
    """The base offset of the batch, which no CRC covers, claims the offsets of the next segments."""
    content = bytearray(folder.read_small(name_of(0)))
    content[4 * SIZE + 7] ^= 64
    folder.delete(name_of(0))
    write(folder, name_of(0), bytes(content))
    for recover in (False, True):
        log = open_log(folder, recover=recover, recovery_point=COUNT, config=CONFIG)
        assert [segment.base_offset for segment in log.segments] == [0, 5, 10]
        assert read_all(log, 5) == EXPECTED[5:]
        log.close()
    assert not quarantined(folder)


def test_segments_above_a_truncation_are_quarantined(folder: Folder) -> None:
    content = bytearray(folder.read_small(name_of(5)))
    content[2 * SIZE + 70] ^= 1
    folder.delete(name_of(5))
    write(folder, name_of(5), bytes(content))
    last = folder.read_small(name_of(10))
    log = open_log(folder, recover=True, recovery_point=3, config=CONFIG)
    assert read_all(log) == EXPECTED[:7]
    assert quarantined(folder)[f"{name_of(10)}.aside"] == last


def damaged(content: bytes) -> bytes:
    return content[: SIZE + 70] + bytes([content[SIZE + 70] ^ 1]) + content[SIZE + 71 :]


SWAPS: dict[str, Callable[[bytes], bytes]] = {
    "damaged": damaged,
    "cut": lambda content: content[: 2 * SIZE + 30],
    "empty": lambda _: b"",
    "of other offsets": lambda _: batches(90, 1, 2),
    "shorter than what it is to replace": lambda content: content[: 3 * SIZE],
}


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize("what", [name for name in SWAPS if not name.startswith("shorter")])
@pytest.mark.parametrize("old", ["live", "about to be deleted", "half of them"])
def test_a_damaged_swap_does_not_replace_anything(folder: Folder, what: str, old: str, recover: bool) -> None:
    first = folder.read_small(name_of(0))
    swap = SWAPS[what](first + folder.read_small(name_of(5)))
    write(folder, name_of(0, ".log.swap"), swap)
    gone = {"live": (), "about to be deleted": (0, 5), "half of them": (0,)}[old]
    for base in gone:
        folder.rename(name_of(base), name_of(base, ".log.deleted"))
    reports: list[str] = []
    check_whole(folder, reports, recover=recover)
    assert quarantined(folder) == {f"{name_of(0, '.log.swap')}.aside": swap}
    assert sum("is restored" in line for line in reports) == len(gone)


def test_a_damaged_swap_is_better_than_nothing(folder: Folder) -> None:
    content = damaged(folder.read_small(name_of(0)))
    write(folder, name_of(0, ".log.swap"), content)
    folder.delete(name_of(0))
    log = open_log(folder, recover=False, recovery_point=COUNT, config=CONFIG)
    assert folder.read_small(name_of(0)) == content
    assert read_all(log, 2) == EXPECTED[2:]


@pytest.mark.parametrize("recover", [False, True])
def test_segment_outside_a_swap_is_not_deleted(folder: Folder, recover: bool) -> None:
    first = folder.read_small(name_of(0))
    write(folder, name_of(0, ".log.swap"), SWAPS["shorter than what it is to replace"](first))
    reports: list[str] = []
    log = open_log(folder, recover=recover, recovery_point=COUNT, config=CONFIG, report=reports.append)
    assert read_all(log, 5) == EXPECTED[5:]
    assert quarantined(folder)[f"{name_of(0)}.aside"] == first
    assert any("ends at offset 5, and its cleaned segment at 3" in line for line in reports)


def test_segments_that_the_checkpoint_knows_are_not_read(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(type(folder), "open", _noting(type(folder).open, opened))
    sealed = [SealedSegment(Offset(0), Offset(5), 5 * SIZE), SealedSegment(Offset(5), Offset(10), 5 * SIZE)]
    for known in ((), sealed):
        opened.clear()
        open_log(folder, recover=False, recovery_point=COUNT, config=CONFIG, sealed=known).close()
        assert (name_of(5) in opened) == (not known)
    write(folder, name_of(7), batches(7))
    log = open_log(folder, recover=False, recovery_point=COUNT, config=CONFIG, sealed=sealed)
    assert read_all(log) == EXPECTED


def _noting(open_file: Callable[..., File], opened: list[str]) -> Callable[..., File]:
    def wrapped(self: Folder, name: str, *, create: bool = True) -> File:
        opened.append(name)
        return open_file(self, name, create=create)

    return wrapped


def test_quarantined_files_are_never_overwritten(folder: Folder) -> None:
    for number in range(3):
        write(folder, name_of(7), batches(7) * (number + 1))
        open_log(folder, recover=False, recovery_point=COUNT, config=CONFIG).close()
    assert quarantined(folder) == {
        f"{name_of(7)}.aside{suffix}": batches(7) * count for count, suffix in enumerate(("", "-2", "-3"), 1)
    }
