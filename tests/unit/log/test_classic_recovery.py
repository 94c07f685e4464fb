"""Opening a classic log again: after an orderly stop, and after none (facts A4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.classic_frames import entry, gzip_wrapper, message_set
from support.classic_logs import content, flush, open_classic, overwrite, put, put_set, visible

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.formats.classic_segment import SCAN_CHUNK_BYTES
from barnabas.ports.report import counted
from barnabas.ports.storage import Folder, StorageError

PAYLOADS = [b"one", b"", b"three", b"x" * 300]
DATA = b"".join(map(entry, PAYLOADS))


def new_folder() -> Folder:
    return MemoryLogDir(MemoryDisk(now_ms=lambda: 7)).folder("t-0")


def left_behind(data: bytes, base_offset: int = 0) -> Folder:
    """Return the folder of a log after a crash."""
    folder = new_folder()
    overwrite(folder, base_offset, data)
    return folder


def whole_entries(data: bytes) -> bytes:
    """Return the part of `data` that consists of whole entries."""
    at = 0
    while at + 4 <= len(data) and (end := at + 4 + int.from_bytes(data[at : at + 4], "big")) <= len(data):
        at = end
    return data[:at]


def test_after_a_clean_shutdown_everything_is_readable() -> None:
    folder = new_folder()
    log = open_classic(folder, config=LogConfig(segment_bytes=14))
    for number in range(5):
        put(log, b"number %d" % number)
    data = b"".join(message_set(b"number %d" % number) for number in range(5))
    log.close()
    reports: list[str] = []
    log = open_classic(folder, recover=False, report=reports.append)
    assert log.readable_end == log.log_end_offset == log.recovery_point == len(data)
    assert visible(log) == data
    assert not log.flushes.due(10**15)
    assert put(log, b"next") == len(data)
    assert not reports


def test_an_orderly_stop_is_trusted_up_to_the_recovery_point() -> None:
    log = open_classic(left_behind(DATA[:-1]), recover=False, recovery_point=len(DATA) - 1)
    assert log.log_end_offset == len(DATA) - 1


@pytest.mark.parametrize("recovery_point", [len(DATA), 0, len(DATA) - 3])
@pytest.mark.parametrize("tail", [bytes(7), bytes(1), b"\0\0\0\5", entry(b"cut")[:-1], b"\xff" * 50])
def test_bytes_after_the_last_message_are_cut_at_every_start(tail: bytes, recovery_point: int) -> None:
    """Else what is appended behind it would be dropped by a later recovery, although it was flushed."""
    folder = left_behind(DATA + tail)
    reports: list[str] = []
    log = open_classic(folder, recover=False, recovery_point=recovery_point, report=reports.append)
    assert log.log_end_offset == len(DATA)
    (line,) = reports
    assert f"{counted(len(tail), 'byte is', 'bytes are')} dropped" in line
    put(log, b"next")
    flush(log)
    log.abandon()
    log = open_classic(folder, recover=True, recovery_point=recovery_point, report=reports.append)
    assert visible(log) == DATA + message_set(b"next")
    assert len(reports) == 1


def test_whole_messages_behind_the_recovery_point_count() -> None:
    log = open_classic(left_behind(DATA + entry(b"more")), recover=False, recovery_point=len(DATA))
    assert visible(log) == DATA + entry(b"more")


def test_durable_messages_behind_later_damage_are_retained() -> None:
    data = bytearray(DATA + entry(b"late") + entry(b"torn")[:-2])
    data[len(entry(b"one")) + 7] ^= 1
    reports: list[str] = []
    log = open_classic(left_behind(bytes(data)), recovery_point=len(DATA), report=reports.append)
    assert visible(log) == bytes(data[: len(DATA + entry(b"late"))])
    assert f"is damaged at position {len(entry(b'one'))}" in reports[0]
    assert "bytes are dropped" in reports[1]


def test_recovered_messages_are_flushed_before_they_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_folder()
    log = open_classic(folder)
    put(log, b"a")
    log.abandon()
    flushed: list[str] = []
    monkeypatch.setattr(type(folder.open(f"{0:020d}.kafka")), "flush", lambda file: flushed.append(file.name))
    monkeypatch.setattr(folder, "flush", lambda: flushed.append("the folder"))
    log = open_classic(folder)
    assert flushed == [f"{0:020d}.kafka", "the folder"]
    assert log.readable_end == log.log_end_offset == len(message_set(b"a"))


@pytest.mark.parametrize("size", range(len(DATA) + 1))
def test_a_torn_tail_is_cut_at_the_last_whole_message(size: int) -> None:
    reports: list[str] = []
    folder = left_behind(DATA[:size])
    log = open_classic(folder, report=reports.append)
    whole = whole_entries(DATA[:size])
    assert log.log_end_offset == log.readable_end == len(whole)
    assert content(folder) == visible(log) == whole
    assert len(reports) == (len(whole) < size)
    if reports:
        assert f"{counted(size - len(whole), 'byte is', 'bytes are')} dropped" in reports[0]
    assert put(log, b"goes on") == len(whole)


@pytest.mark.parametrize("position", range(len(DATA)))
def test_damage_cuts_the_log_before_the_damaged_message(position: int) -> None:
    damaged = bytearray(DATA)
    damaged[position] ^= 0x40
    folder = left_behind(bytes(damaged))
    log = open_classic(folder)
    whole = whole_entries(DATA[:position])
    if log.log_end_offset != len(DATA):
        assert visible(log) == whole
    else:  # an attribute bit without a meaning
        assert (position - len(whole)) == 5


@pytest.mark.parametrize(
    "garbage",
    [bytes(4096), b"\xff" * 50, b"\x7f\xff\xff\xff" + bytes(50), bytes([0, 0, 0, 4]) + bytes(20), entry(b"x")[:5]],
)
def test_garbage_at_the_end_is_dropped(garbage: bytes) -> None:
    log = open_classic(left_behind(DATA + garbage))
    assert visible(log) == DATA


@given(st.binary(max_size=300))
def test_any_bytes_are_a_log_of_some_length(data: bytes) -> None:
    log = open_classic(left_behind(data))
    assert 0 <= log.log_end_offset <= len(data)
    assert visible(log) == data[: log.log_end_offset]


def test_recovery_is_shallow() -> None:
    inner_damage = entry(b"not what gzip makes", codec=1)
    log = open_classic(left_behind(gzip_wrapper(b"a") + inner_damage))
    assert visible(log) == gzip_wrapper(b"a") + inner_damage


@pytest.mark.parametrize("payload_bytes", [SCAN_CHUNK_BYTES - 10, SCAN_CHUNK_BYTES, 3 * SCAN_CHUNK_BYTES + 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_larger_than_a_chunk_of_the_scan(payload_bytes: int, magic: int) -> None:
    data = message_set(b"before") + entry(bytes(payload_bytes), magic=magic) + message_set(b"after")
    assert open_classic(left_behind(data)).log_end_offset == len(data)
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    reports: list[str] = []
    log = open_classic(left_behind(bytes(damaged)), report=reports.append)
    assert visible(log) == message_set(b"before")
    assert "CRC" in reports[0]
    cut = data[: -len(message_set(b"after")) - 1]
    assert open_classic(left_behind(cut)).log_end_offset == len(message_set(b"before"))


def test_many_messages_over_several_chunks() -> None:
    data = message_set(*(bytes(1000 + number % 7) for number in range(2500)))
    assert open_classic(left_behind(data)).log_end_offset == len(data)
    assert open_classic(left_behind(data[:-1])).log_end_offset == len(data) - len(entry(bytes(1000 + 2499 % 7)))


def test_only_the_newest_segment_is_scanned() -> None:
    folder = new_folder()
    log = open_classic(folder, config=LogConfig(segment_bytes=14))
    for number in range(3):
        put(log, b"number %d" % number)
    log.abandon()
    first, last = bytearray(content(folder)), content(folder, 36)
    first[12] ^= 1
    overwrite(folder, 0, bytes(first))
    overwrite(folder, 36, last[:-1])
    log = open_classic(folder)
    assert [segment.base_offset for segment in log.segments] == [0, 18, 36]
    assert log.log_end_offset == 36
    assert visible(log) == bytes(first) + message_set(b"number 1")


@pytest.mark.parametrize("recover", [True, False])
@pytest.mark.parametrize("size", [17, 19, 0])
def test_a_gap_between_segments_names_both_files(recover: bool, size: int) -> None:
    folder = left_behind(bytes(size))
    overwrite(folder, 18, message_set(b"x"))
    with pytest.raises(StorageError) as caught:
        open_classic(folder, recover=recover)
    for text in (f"{0:020d}.kafka", f"{18:020d}.kafka", f"ends at {size}"):
        assert text in str(caught.value)
    assert content(folder) == bytes(size), "nothing is changed"


def test_stale_files_are_deleted_and_unknown_files_stay() -> None:
    folder = left_behind(DATA)
    folder.open(f"{0:020d}.kafka.deleted").append(b"old")
    folder.open("notes.txt").append(b"mine")
    reports: list[str] = []
    log = open_classic(folder, report=reports.append)
    assert visible(log) == DATA
    assert set(folder.files()) == {f"{0:020d}.kafka", "notes.txt"}
    assert len(reports) == 1
    assert "notes.txt is not a file of a classic log" in reports[0]


def test_a_log_that_ends_below_its_start_is_truncated_fully() -> None:
    reports: list[str] = []
    log = open_classic(left_behind(DATA), log_start_offset=len(DATA) + 5, report=reports.append)
    assert (log.log_start_offset, log.readable_end) == (len(DATA) + 5, len(DATA) + 5)
    assert "truncated fully" in reports[0]


def test_an_empty_segment_at_the_end() -> None:
    folder = left_behind(DATA)
    overwrite(folder, len(DATA), b"")
    log = open_classic(folder)
    assert log.log_end_offset == len(DATA)
    put_set(log, DATA)
    flush(log)
    assert visible(log) == DATA + DATA


def chain() -> tuple[Folder, bytes]:
    """Return a log of four segments."""
    folder = new_folder()
    log = open_classic(folder, config=LogConfig(segment_bytes=30))
    for number in range(7):
        put(log, b"%08d" % number)
    data = b"".join(message_set(b"%08d" % n) for n in range(7))
    flush(log)
    assert visible(log) == data
    assert [segment.base_offset for segment in log.segments] == [0, 36, 72, 108]
    log.close()
    return folder, data


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize(
    ("base", "payload"),
    [(10, b""), (40, b"x"), (18, b"x" * 26), (110, b"x"), (110, b"x" * 90), (2**63 - 1, b"x"), (10**20 - 1, b"")],
)
def test_stray_segments_are_quarantined(base: int, payload: bytes, recover: bool) -> None:
    folder, data = chain()
    content = message_set(payload) if payload else b""
    overwrite(folder, base, content)
    reports: list[str] = []
    for _ in range(2):
        log = open_classic(folder, recover=recover, recovery_point=len(data), report=reports.append)
        assert visible(log) == data
        log.close()
    assert {name: folder.read_small(name) for name in folder.files() if "aside" in name} == {
        f"{base:020d}.kafka.aside": content
    }
    assert "renamed to" in reports[0]


def test_a_segment_above_the_end_of_a_clean_shutdown_is_quarantined() -> None:
    folder, data = chain()
    overwrite(folder, 1000, message_set(b"x"))
    reports: list[str] = []
    log = open_classic(folder, recover=False, recovery_point=len(data), report=reports.append)
    assert visible(log) == data
    assert f"begins above the log end offset {len(data)}" in reports[0]


def test_a_log_that_was_killed_is_not_opened_with_a_segment_behind_its_end() -> None:
    """A segment between them may be missing."""
    folder, data = chain()
    overwrite(folder, 1000, message_set(b"x"))
    before = folder.files().keys()
    with pytest.raises(StorageError, match="a segment is missing or damaged"):
        open_classic(folder, recover=True, recovery_point=len(data))
    assert folder.files().keys() == before
