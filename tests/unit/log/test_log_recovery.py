"""Opening what an earlier run left: orderly, killed, damaged, half cleaned (facts B3)."""

from collections.abc import Iterator
from unittest import mock

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryFile, MemoryLogDir
from barnabas.core.log import batch_scan
from barnabas.core.log.checkpoints import LEADER_EPOCHS
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_header import parse_header
from barnabas.core.traffic.steps import complete
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import Folder
from barnabas.testing.logs import batch, bytes_of, open_log, put, read_all

SIZE = len(batch(b"12345678"))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE)


@pytest.fixture
def folder() -> Folder:
    return MemoryLogDir().folder("t-0")


def _written(folder: Folder, batches: int = 12, config: LogConfig = CONFIG) -> UnifiedLog:
    """Three segments, 0 to 4, 5 to 9, 10 and 11."""
    log = open_log(folder, config=config)
    for number in range(batches):
        put(log, b"%08d" % number, at=1000 + number, epoch=number // 4)
    return log


def _expected(count: int, start: int = 0) -> list[tuple[int, bytes]]:
    return [(number, b"%08d" % number) for number in range(start, count)]


def _log_file(base: int) -> str:
    return f"{base:020d}.log"


def _overwrite(folder: Folder, name: str, content: bytes) -> None:
    """Overwrite a file of the same name, as a crash may do."""
    folder.delete(name)
    file = folder.open(name)
    file.append(content)
    file.close()


def _content(folder: Folder, name: str) -> bytes:
    return folder.read_small(name)


def test_orderly_stop_and_start(folder: Folder) -> None:
    log = _written(folder)
    log.close()
    log.close()
    before = {name: _content(folder, name) for name in folder.files()}
    reports: list[str] = []
    log = open_log(folder, recover=False, config=CONFIG, report=reports.append)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 12, 12)
    assert read_all(log) == _expected(12)
    assert log.epochs.entries == [(0, 0), (1, 4), (2, 8)]
    assert not reports
    assert {name: _content(folder, name) for name in folder.files()} == before
    assert put(log, b"%08d" % 12, at=1012, epoch=2) == 12
    log.close()
    log = open_log(folder, recover=False, config=CONFIG, report=reports.append)
    assert read_all(log) == _expected(13)
    assert not reports


def test_orderly_stop_opens_without_reading_the_segments(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    _written(folder, 200, LogConfig(segment_bytes=100 * SIZE, index_interval_bytes=SIZE)).close()
    real, scanned = parse_header, 0

    def counted(buf: bytes, pos: int = 0) -> object:
        nonlocal scanned
        scanned += 1
        return real(buf, pos)

    monkeypatch.setattr(batch_scan, "parse_header", counted)
    log = open_log(folder, recover=False, config=LogConfig(segment_bytes=100 * SIZE, index_interval_bytes=SIZE))
    assert log.log_end_offset == 200
    assert scanned <= 5


def test_recovery_after_a_kill_keeps_everything(folder: Folder) -> None:
    log = _written(folder)
    assert log.recovery_point == 0
    for recovery_point in (0, 5, 7, 12):
        log = open_log(folder, recover=True, recovery_point=recovery_point, config=CONFIG)
        assert read_all(log) == _expected(12)
        assert log.recovery_point == min(12, recovery_point)
        assert log.epochs.latest == 2
        assert complete(log.times.find_first_at(1003)) == (1003, 3, log.epochs.epoch_at(3))


@pytest.mark.parametrize("cut", range(SIZE))
def test_torn_tail_at_every_byte(folder: Folder, cut: int) -> None:
    _written(folder)
    name = _log_file(10)
    _overwrite(folder, name, _content(folder, name)[: SIZE + cut])
    reports: list[str] = []
    log = open_log(folder, config=CONFIG, report=reports.append)
    assert read_all(log) == _expected(11)
    assert log.log_end_offset == 11
    assert folder.files()[name].size == SIZE
    assert len(reports) == (1 if cut else 0)
    assert put(log, b"00000011") == 11
    assert read_all(log) == _expected(12)


@pytest.mark.parametrize("position", [0, 1, 8, 11, 16, 17, 20, 30, 60, SIZE - 1])
@pytest.mark.parametrize("bad", [1, 7, 10])
def test_damage_cuts_there_and_drops_what_follows(folder: Folder, bad: int, position: int) -> None:
    _written(folder)
    base = bad // 5 * 5
    content = bytearray(_content(folder, _log_file(base)))
    content[(bad - base) * SIZE + position] ^= 0xFF
    _overwrite(folder, _log_file(base), bytes(content))
    reports: list[str] = []
    log = open_log(folder, config=CONFIG, report=reports.append)
    assert read_all(log) == _expected(bad)
    assert log.log_end_offset == bad
    assert [segment.base_offset for segment in log.segments] == [b for b in (0, 5, 10) if b <= base]
    assert {name for name in folder.files() if name.endswith(".log")} == {_log_file(b) for b in (0, 5, 10) if b <= base}
    observed = "does not begin with a batch of this log" if bad == base == 10 else "first corrupt batch"
    assert any(observed in line for line in reports)
    assert log.epochs.latest <= (bad - 1) // 4


def test_the_leader_epoch_is_outside_the_checksum(folder: Folder) -> None:
    """Recovery cannot see damage there, and takes the batch."""
    _written(folder, 3)
    content = bytearray(_content(folder, _log_file(0)))
    content[2 * SIZE + 15] ^= 1
    _overwrite(folder, _log_file(0), bytes(content))
    assert open_log(folder, config=CONFIG).log_end_offset == 3


@pytest.mark.parametrize("tail", [b"\0", bytes(61), bytes(4096), b"\xff" * 100, b"garbage"])
def test_garbage_behind_the_end(folder: Folder, tail: bytes) -> None:
    _written(folder)
    _overwrite(folder, _log_file(10), _content(folder, _log_file(10)) + tail)
    log = open_log(folder, config=CONFIG)
    assert read_all(log) == _expected(12)
    assert folder.files()[_log_file(10)].size == 2 * SIZE


def test_marker_that_lies_is_found_out(folder: Folder) -> None:
    """The end of the active segment is looked at after an orderly stop as well."""
    _written(folder).close()
    _overwrite(folder, _log_file(10), _content(folder, _log_file(10))[:-1])
    reports: list[str] = []
    log = open_log(folder, recover=False, config=CONFIG, report=reports.append)
    assert read_all(log) == _expected(11)
    assert reports


def test_segments_below_the_recovery_point_are_not_read(folder: Folder) -> None:
    _written(folder).close()
    content = bytearray(_content(folder, _log_file(0)))
    content[SIZE - 1] ^= 0xFF
    _overwrite(folder, _log_file(0), bytes(content))
    assert open_log(folder, recovery_point=12, config=CONFIG).log_end_offset == 12
    assert open_log(folder, recovery_point=5, config=CONFIG).log_end_offset == 12
    log = open_log(folder, recovery_point=4, config=CONFIG)
    assert log.log_end_offset == 12
    assert read_all(log, 1) == _expected(12, 1)
    with pytest.raises(ApiError, match="seek to 1"):
        bytes_of(log, 0)


def test_recovery_reads_in_chunks(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches larger than a chunk are checked piece by piece."""
    log = open_log(folder)
    values = [bytes([number]) * 100_000 for number in range(5)]
    for value in values:
        put(log, value)
    monkeypatch.setattr(batch_scan, "SCAN_CHUNK_BYTES", 4096)
    largest = 0
    file_type = type(folder.open(_log_file(0)))
    real = file_type.read

    def measured(self: object, position: int, size: int) -> bytes:
        nonlocal largest
        largest = max(largest, size)
        return real(self, position, size)  # type: ignore[arg-type]  # the very class it was taken from

    monkeypatch.setattr(file_type, "read", measured)
    monkeypatch.setattr(batch_scan.scan_batches, "__kwdefaults__", {"chunk_bytes": 4096, "check_crc": False})
    assert [value for _, value in _recovered(folder)] == values
    assert largest <= 200_000  # the reader of this test; the scan itself stays below 4096
    content = bytearray(_content(folder, _log_file(0)))
    content[-50_000] ^= 1
    _overwrite(folder, _log_file(0), bytes(content))
    assert [value for _, value in _recovered(folder)] == values[:4]


def _recovered(folder: Folder) -> list[tuple[int, bytes | None]]:
    return read_all(open_log(folder), max_bytes=100_000)


def test_offsets_that_do_not_grow_are_cut(folder: Folder) -> None:
    _written(folder, 3)
    content = _content(folder, _log_file(0))
    _overwrite(folder, _log_file(0), content + content[SIZE : 2 * SIZE])
    assert read_all(open_log(folder, config=CONFIG)) == _expected(3)


def test_foreign_files_are_reported_and_left_alone(folder: Folder) -> None:
    _written(folder).close()
    foreign = {"notes.txt": b"mine", "5.log": b"x", "0000000000000000000x.log": b"", "a.tmp": b""}
    for name, content in foreign.items():
        folder.write_small(name, content)
    reports: list[str] = []
    log = open_log(folder, recover=False, config=CONFIG, report=reports.append)
    assert read_all(log) == _expected(12)
    assert {name: _content(folder, name) for name in foreign} == foreign
    assert len(reports) == 4
    assert all(any(name in line for line in reports) for name in foreign)


def test_stale_files_are_removed_at_startup(folder: Folder) -> None:
    _written(folder).close()
    for name in (
        _log_file(3) + ".deleted",
        f"{3:020d}.index.deleted",
        _log_file(0) + ".cleaned",
        f"{0:020d}.timeindex.cleaned",
        LEADER_EPOCHS + ".tmp",
        f"{99:020d}.index",
        f"{99:020d}.timeindex",
    ):
        folder.write_small(name, b"x" * 12)
    log = open_log(folder, recover=False, config=CONFIG)
    assert read_all(log) == _expected(12)
    assert len(folder.files()) == 3 * 3 + 1 + 3  # and snapshots of producers at 5, 10 and 12
    assert LEADER_EPOCHS in folder.files()


def test_finished_cleaning_takes_the_place_of_what_it_was_made_from(folder: Folder) -> None:
    """`.swap`: one segment made from the first two, without the offsets 1 to 8."""
    _written(folder).close()
    first, second = _content(folder, _log_file(0)), _content(folder, _log_file(5))
    folder.write_small(_log_file(0) + ".swap", first[:SIZE] + second[-SIZE:])
    folder.write_small(f"{0:020d}.index.swap", b"old")
    for recover in (False, True):
        log = open_log(folder, recover=recover, config=CONFIG)
        assert [segment.base_offset for segment in log.segments] == [0, 10]
        assert read_all(log) == [(0, b"00000000"), (9, b"00000009"), *_expected(12, 10)]
        assert not any(name.endswith(".swap") for name in folder.files())
        log.close()


def test_missing_segment_is_a_gap(folder: Folder) -> None:
    """The segment was durable once: there is a snapshot of the producers behind it."""
    _written(folder).flushes.now()
    for suffix in (".log", ".index", ".timeindex"):
        folder.delete(f"{5:020d}{suffix}")
    reports: list[str] = []
    log = open_log(folder, config=CONFIG, report=reports.append)
    assert read_all(log) == _expected(5) + _expected(12, 10)
    assert any("5 to 9" in line for line in reports)


def test_segments_behind_a_gap_that_was_never_durable_are_quarantined(folder: Folder) -> None:
    """The power went: the end of the first segment never reached the disk, the second one did."""
    _written(folder)
    folder.open(_log_file(0)).truncate(3 * SIZE)
    reports: list[str] = []
    log = open_log(folder, config=CONFIG, recovery_point=2, report=reports.append)
    assert (read_all(log), log.log_end_offset) == (_expected(3), 3)
    assert [name for name in sorted(folder.files()) if name.endswith(".log.aside")] == [
        f"{_log_file(base)}.aside" for base in (5, 10)
    ]
    assert any("begins above offset 3, where the log is truncated" in line for line in reports)
    assert put(log, b"00000003") == 3
    log.close()
    assert read_all(open_log(folder, recover=False, config=CONFIG)) == _expected(4)


def test_log_start_survives_a_restart(folder: Folder) -> None:
    _written(folder).close()
    log = open_log(folder, recover=False, config=CONFIG, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 12)
    assert log.epochs.entries == [(1, 7), (2, 8)]
    log.close()
    assert open_log(folder, recover=False, config=CONFIG).log_start_offset == 0


def test_a_log_that_is_found_with_nothing_in_it_has_no_epoch(folder: Folder) -> None:
    """One that began below its start and ended with it is noted, and stands nowhere."""
    _written(folder).close()
    log = open_log(folder, recover=False, config=CONFIG, log_start_offset=12)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (12, 12, [])
    put(log, b"x", epoch=2)
    assert log.epochs.entries == [(2, 12)]


def test_a_log_start_above_the_end_truncates_the_log_fully(folder: Folder) -> None:
    _written(folder).close()
    reports: list[str] = []
    log = open_log(folder, recover=False, config=CONFIG, log_start_offset=50, report=reports.append)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (50, 50, 0)
    assert len(folder.files()) == 4
    assert reports
    assert put(log, b"x") == 50


def test_damaged_leader_epochs_are_found_again_by_recovery(folder: Folder) -> None:
    _written(folder).close()
    folder.write_small(LEADER_EPOCHS, b"garbage")
    reports: list[str] = []
    log = open_log(folder, config=CONFIG, report=reports.append)
    assert log.epochs.entries == [(0, 0), (1, 4), (2, 8)]
    assert len(reports) == 1


def test_empty_active_segment(folder: Folder) -> None:
    log = _written(folder, 5)
    log.update_config(LogConfig(retention_ms=0, segment_bytes=5 * SIZE))
    complete(log.retain(10**9, 5))
    log.close()
    for recover in (False, True):
        log = open_log(folder, recover=recover, config=CONFIG)
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)
        log.close()


# --- damaged indexes


def _index_damages(good: bytes) -> Iterator[tuple[str, bytes | None]]:
    yield "missing", None
    yield "empty", b""
    yield "cut within an entry", good[:-3]
    yield "points beyond the file", good[:-4] + b"\x7f\xff\xff\xff"
    yield "points before the file", good[:-4] + b"\xff\xff\xff\xff"
    yield "offset beyond the segment", good[:-8] + b"\x7f\xff\xff\xff" + good[-4:]
    yield "negative offset", b"\xff\xff\xff\xff" + good[4:]
    yield (
        "all points to the middle of a batch",
        b"".join(
            good[i : i + 4] + (int.from_bytes(good[i + 4 : i + 8], "big") + 7).to_bytes(4, "big")
            for i in range(0, len(good), 8)
        ),
    )
    yield (
        "points too far",
        b"".join(
            good[i : i + 4] + (int.from_bytes(good[i + 4 : i + 8], "big") + SIZE).to_bytes(4, "big")
            for i in range(0, len(good), 8)
        ),
    )
    yield "backwards", b"".join(good[i : i + 8] for i in range(len(good) - 8, -1, -8))
    yield "zeros", bytes(len(good))
    yield "garbage", bytes(range(40, 40 + len(good)))


_GOOD = b"".join(entry.to_bytes(4, "big") + (entry * SIZE).to_bytes(4, "big") for entry in (2, 4))


_INDEX_DAMAGES = dict(_index_damages(_GOOD))


@pytest.mark.parametrize("what", list(_INDEX_DAMAGES))
@pytest.mark.parametrize("base", [0, 5])
@pytest.mark.parametrize("recover", [False, True])
def test_damaged_offset_index(folder: Folder, what: str, base: int, recover: bool) -> None:
    content = _INDEX_DAMAGES[what]
    _written(folder, 10).close()
    name = f"{base:020d}.index"
    assert _content(folder, name) == _GOOD
    folder.delete(name)
    if content is not None:
        folder.write_small(name, content)
    log = open_log(folder, recover=recover, recovery_point=10, config=CONFIG)
    assert log.log_end_offset == 10
    for offset in range(10):
        assert parse_header(bytes_of(log, offset)).base_offset == offset
    assert read_all(log) == _expected(10)
    put(log, b"00000010")
    log.close()
    log = open_log(folder, recover=False, config=CONFIG)
    assert read_all(log) == _expected(11)


def _time_damages(good: bytes) -> Iterator[tuple[str, bytes | None]]:
    yield "missing", None
    yield "empty", b""
    yield "cut within an entry", good[:-3]
    yield "offset beyond the segment", good[:-4] + b"\x7f\xff\xff\xff"
    yield "negative offset", good[:-4] + b"\xff\xff\xff\xff"


_GOOD_TIMES = b"".join((1000 + entry).to_bytes(8, "big") + entry.to_bytes(4, "big") for entry in (2, 4))


_TIME_DAMAGES = dict(_time_damages(_GOOD_TIMES))


@pytest.mark.parametrize("what", list(_TIME_DAMAGES))
def test_damaged_time_index(folder: Folder, what: str) -> None:
    content = _TIME_DAMAGES[what]
    _written(folder, 10).close()
    name = f"{0:020d}.timeindex"
    assert _content(folder, name) == _GOOD_TIMES
    folder.delete(name)
    if content is not None:
        folder.write_small(name, content)
    log = open_log(folder, recover=False, config=CONFIG)
    for number in range(10):
        assert complete(log.times.find_first_at(1000 + number)) == (1000 + number, number, number // 4)
    assert _content(folder, name) == _GOOD_TIMES


def test_index_damaged_while_open(folder: Folder) -> None:
    _written(folder, 10).close()
    reports: list[str] = []
    log = open_log(folder, recover=False, config=CONFIG, report=reports.append)
    folder.open(f"{0:020d}.index").truncate(3)
    folder.open(f"{5:020d}.index").truncate(0)
    for offset in range(10):
        assert parse_header(bytes_of(log, offset)).base_offset == offset
    assert len(reports) == 2


def test_damaged_segment_is_an_error_and_the_rest_readable(folder: Folder) -> None:
    _written(folder, 10).close()
    content = bytearray(_content(folder, _log_file(0)))
    content[3 * SIZE + 16] = 99
    _overwrite(folder, _log_file(0), bytes(content))
    reports: list[str] = []
    log = open_log(folder, recover=False, config=CONFIG, report=reports.append)
    for offset in (0, 1, 2, 5, 9):
        assert parse_header(bytes_of(log, offset, max_bytes=1)).base_offset == offset
    for _ in range(3):
        with pytest.raises(ApiError) as caught:
            bytes_of(log, 3, max_bytes=1)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert 1 <= len(reports) <= 2


@pytest.fixture
def flushed() -> Iterator[list[str]]:
    """The names of the files that were flushed."""
    names: list[str] = []
    flush = MemoryFile.flush

    def noted(file: MemoryFile) -> None:
        names.append(file.name)
        flush(file)

    with mock.patch.object(MemoryFile, "flush", noted):
        yield names


def test_log_truncated_to_nothing_by_recovery_is_durable_after_a_stop(flushed: list[str]) -> None:
    """Else what it has dropped may come back behind the marker of an orderly stop, and is believed."""
    disk = MemoryDisk()
    folder = MemoryLogDir(disk).folder("t-0")
    folder.open(_log_file(0)).append(b"torn" * 50)
    log = open_log(folder, config=CONFIG)
    assert log.log_end_offset == 0
    flushed.clear()
    log.close()
    assert _log_file(0) in flushed


def test_rebuilt_index_of_a_flushed_segment_is_durable(folder: Folder, flushed: list[str]) -> None:
    """Else a second power cut tears it, and a start that trusts the segment trusts it too (a seed found it)."""
    _written(folder, 10).close()
    folder.open(f"{0:020d}.index").truncate(7)
    flushed.clear()
    open_log(folder, recovery_point=10, config=CONFIG).close()
    assert {f"{0:020d}.index", f"{0:020d}.timeindex"} <= set(flushed)
    log = open_log(folder, recover=False, config=CONFIG)
    folder.open(f"{5:020d}.index").truncate(0)
    flushed.clear()
    assert parse_header(bytes_of(log, 7)).base_offset == 7
    assert {f"{5:020d}.index", f"{5:020d}.timeindex"} <= set(flushed)
