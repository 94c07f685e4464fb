"""Retention, moving the log start, truncation, flushing (facts B3)."""

from collections.abc import Sequence

import pytest
from attrs import evolve

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.retention import DeletionPolicy, SegmentInfo
from barnabas.core.message.batch_header import set_max_timestamp
from barnabas.core.traffic.steps import complete
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import Folder, StorageError, StorageFull
from barnabas.testing.logs import batch, open_log, put, read_all

SIZE = len(batch(b"12345678"))
CONFIG = LogConfig(segment_bytes=2 * SIZE, index_interval_bytes=SIZE, retention_ms=-1)


@pytest.fixture
def folder() -> Folder:
    return MemoryLogDir().folder("t-0")


def _written(
    folder: Folder, batches: int = 8, policy: DeletionPolicy | None = None, reports: list[str] | None = None
) -> UnifiedLog:
    """Segments of two batches of one record, at 1000, 1001, ..."""
    report = reports.append if reports is not None else lambda _: None
    log = open_log(folder, config=CONFIG, policy=policy, report=report)
    for number in range(batches):
        put(log, b"%08d" % number, at=1000 + number, epoch=number // 3)
    return log


def _bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def _retain(log: UnifiedLog, now_ms: int = 10_000, high_watermark: int = 99, **settings: object) -> int:
    log.update_config(evolve(CONFIG, **settings))  # type: ignore[arg-type]  # any of the fields
    return len(complete(log.retain(now_ms, high_watermark)))


def test_nothing_to_do(folder: Folder) -> None:
    log = _written(folder)
    assert _retain(log) == 0
    assert _retain(log, retention_bytes=8 * SIZE) == 0
    assert _retain(log, retention_ms=9000) == 0
    assert _bases(log) == [0, 2, 4, 6]


def test_retention_by_size_deletes_oldest_segments(folder: Folder) -> None:
    log = _written(folder)
    assert _retain(log, retention_bytes=4 * SIZE) == 2
    assert _bases(log) == [4, 6]
    assert (log.log_start_offset, log.size_bytes) == (4, 4 * SIZE)
    assert log.epochs.entries == [(1, 4), (2, 6)]


def test_by_age_of_the_largest_timestamp(folder: Folder) -> None:
    log = _written(folder)
    assert _retain(log, now_ms=1101, retention_ms=100) == 0
    assert _retain(log, now_ms=1102, retention_ms=100) == 1
    assert _retain(log, now_ms=1106, retention_ms=100) == 2
    assert log.log_start_offset == 6


def test_by_age_of_the_file_without_timestamps() -> None:
    folder = MemoryLogDir(MemoryDisk(now_ms=lambda: 500)).folder("t-0")
    log = open_log(folder, config=CONFIG)
    for now_ms in (100, 200, 300):
        put(log, b"%08d" % 0, at=-1, now_ms=now_ms)
    assert _retain(log, now_ms=301, retention_ms=100) == 1
    log.close()
    log = open_log(folder, config=CONFIG, recover=False)
    assert _retain(log, now_ms=600, retention_ms=100) == 0
    assert _retain(log, now_ms=601, retention_ms=100) == 1


@pytest.mark.parametrize("orderly", [True, False])
def test_records_without_timestamps_are_aged_by_the_file_time(orderly: bool) -> None:
    folder = MemoryLogDir(MemoryDisk(now_ms=lambda: 5000)).folder("t-0")
    log = open_log(folder, config=CONFIG)
    for _ in range(5):
        records = batch(b"12345678", at=-1)
        set_max_timestamp(records, 0, log_append_time=False)
        log.append(records, leader_epoch=0, now_ms=5000)
    assert _retain(log, now_ms=5100, retention_ms=100) == 0
    if orderly:
        log.close()
    log = open_log(folder, config=CONFIG, recover=not orderly, now_ms=9000)
    assert [segment.largest_timestamp for segment in log.segments] == [-1, -1, -1]
    assert complete(log.times.find_first_at(0)) is None
    assert _retain(log, now_ms=5100, retention_ms=100) == 0
    assert _retain(log, now_ms=5101, retention_ms=100) == 3


def test_a_header_that_was_taken_at_its_word_before_is_no_reason_to_delete() -> None:
    folder = MemoryLogDir(MemoryDisk(now_ms=lambda: 5000)).folder("t-0")
    log = open_log(folder, config=CONFIG)
    for _ in range(3):
        put(log, b"12345678", at=0, now_ms=5000)
    assert _retain(log, now_ms=5100, retention_ms=100) == 0
    assert _retain(log, now_ms=5101, retention_ms=100) == 2


@pytest.mark.parametrize(("high_watermark", "expected"), [(0, []), (1, []), (2, [0]), (5, [0, 2]), (7, [0, 2, 4])])
def test_only_below_the_high_watermark(folder: Folder, high_watermark: int, expected: list[int]) -> None:
    log = _written(folder)
    assert _retain(log, high_watermark=high_watermark, retention_ms=0) == len(expected)
    assert _bases(log)[0] == (expected[-1] + 2 if expected else 0)


def test_if_all_may_go_it_rolls_first(folder: Folder) -> None:
    log = _written(folder)
    assert _retain(log, high_watermark=8, retention_ms=0) == 4
    assert (_bases(log), log.log_start_offset, log.log_end_offset, log.size_bytes) == ([8], 8, 8, 0)
    assert _retain(log, high_watermark=8, retention_ms=0) == 0
    assert put(log, b"next") == 8


def test_files_are_renamed_and_later_deleted(folder: Folder) -> None:
    log = _written(folder)
    log.update_config(evolve(CONFIG, retention_ms=0))
    region = log.read(0, max_bytes=10**6, limit=8).records
    removed = complete(log.retain(10_000, 3))
    assert [segment.base_offset for segment in removed] == [0]
    gone = {f"{0:020d}{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")}
    assert gone < set(folder.files())
    for segment in removed:
        segment.delete()
    assert not gone & set(folder.files())
    assert not isinstance(region, bytes)
    assert len(region.read()) == 2 * SIZE
    assert read_all(log)[0] == (2, b"00000002")


def test_not_without_the_delete_policy_but_below_the_log_start(folder: Folder) -> None:
    log = _written(folder)
    compact = frozenset({"compact"})
    assert _retain(log, retention_ms=0, retention_bytes=0, cleanup_policy=compact) == 0
    log.advance_log_start(5)
    assert _retain(log, retention_ms=0, cleanup_policy=compact) == 2
    assert (_bases(log), log.log_start_offset) == ([4, 6], 5)
    log.advance_log_start(8)
    assert _retain(log, cleanup_policy=compact) == 1
    assert _bases(log) == [6]


class _Policy:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def deletable(self, segments: Sequence[SegmentInfo], *, now_ms: int, config: LogConfig) -> int:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]  # what a bad plugin does


@pytest.mark.parametrize("answer", [RuntimeError("broken"), -1, 5, 10**9, None, "all", 1.5, True])
def test_a_bad_policy_deletes_nothing_and_is_reported(folder: Folder, answer: object) -> None:
    reports: list[str] = []
    log = _written(folder, policy=_Policy(answer), reports=reports)
    assert complete(log.retain(10**9, 8)) == []
    assert _bases(log) == [0, 2, 4, 6]
    assert len(reports) == 1
    assert "policy" in reports[0]


def test_a_policy_sees_all_segments(folder: Folder) -> None:
    asked: list[SegmentInfo] = []

    class Curious:
        def deletable(self, segments: Sequence[SegmentInfo], *, now_ms: int, config: LogConfig) -> int:
            assert (now_ms, config) == (77, CONFIG)
            asked.extend(segments)
            return 1

    log = _written(folder, 5, policy=Curious())
    assert len(complete(log.retain(77, 5))) == 1
    assert [(info.base_offset, info.next_offset, info.size_bytes, info.largest_timestamp_ms) for info in asked] == [
        (0, 2, 2 * SIZE, 1001),
        (2, 4, 2 * SIZE, 1003),
        (4, 5, SIZE, 1004),
    ]
    assert [info.active for info in asked] == [False, False, True]


def test_retention_on_a_broken_disk_loses_nothing(folder: Folder) -> None:
    disk = MemoryDisk()
    log = _written(MemoryLogDir(disk).folder("t-0"))
    disk.read_only = True
    log.update_config(evolve(CONFIG, retention_ms=0))
    with pytest.raises(StorageError):
        complete(log.retain(10**9, 7))
    assert read_all(log) == [(number, b"%08d" % number) for number in range(8)]


# --- the log start


def test_advancing_the_log_start_hides_older_records(folder: Folder) -> None:
    log = _written(folder)
    log.advance_log_start(5)
    log.advance_log_start(3)
    assert log.log_start_offset == 5
    assert read_all(log)[0] == (5, b"00000005")
    with pytest.raises(ApiError) as caught:
        log.advance_log_start(9)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


# --- truncation


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("offset", range(10))
def test_truncation_drops_batches_from_the_offset_on(folder: Folder, offset: int, reopened: bool) -> None:
    log = _written(folder)
    if reopened:
        log.close()
        log = open_log(folder, config=CONFIG, recover=False)
    log.truncate_to(offset)
    end = min(offset, 8)
    expected = [(number, b"%08d" % number) for number in range(end)]
    assert log.log_end_offset == end
    assert read_all(log) == expected
    assert log.recovery_point <= end
    assert all(start < end for _, start in log.epochs.entries)
    assert complete(log.times.find_max_timestamp()) == ((999 + end, end - 1, (end - 1) // 3) if end else None)
    put(log, b"new", at=5000, epoch=9)
    for recover in (False, True):
        if not recover:
            log.close()
        log = open_log(folder, config=CONFIG, recover=recover)
        assert read_all(log) == [*expected, (end, b"new")]
        assert log.epochs.entries[-1] == (9, end)


def test_truncate_inside_a_batch_drops_the_batch(folder: Folder) -> None:
    log = open_log(folder)
    put(log, b"a", b"b")
    put(log, b"c", b"d", b"e")
    log.truncate_to(3)
    assert log.log_end_offset == 2
    assert read_all(log) == [(0, b"a"), (1, b"b")]


def test_truncation_below_the_start_restarts_the_log(folder: Folder) -> None:
    log = _written(folder)
    _retain(log, retention_bytes=4 * SIZE)
    log.truncate_to(1)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (1, 1, 0)
    assert log.epochs.entries == []
    assert put(log, b"x") == 1


def test_truncate_into_a_batch_that_the_start_is_in(folder: Folder) -> None:
    log = open_log(folder)
    put(log, b"a", b"b", b"c", b"d")
    log.advance_log_start(2)
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert put(log, b"x") == 2


# --- flushing


def test_flush_moves_the_recovery_point(folder: Folder) -> None:
    log = _written(folder, 5)
    work = log.flushes.begin_flush(50)
    assert work is not None
    assert log.flushes.begin_flush(50) is None
    put(log, b"%08d" % 5, epoch=1)
    work()
    assert log.recovery_point == 0
    log.flushes.end_flush(work)
    assert log.recovery_point == 5
    sealed = log.flushes.begin_flush(60, sealed_only=True)
    assert sealed is None
    put(log, b"%08d" % 6, epoch=1)
    sealed = log.flushes.begin_flush(60, sealed_only=True)
    assert sealed is not None
    sealed()
    log.flushes.end_flush(sealed)
    assert log.recovery_point == 6
    assert folder.read_small("leader-epoch-checkpoint") == b"0\n2\n0 0\n1 3\n"
    log.flushes.now()
    assert (log.recovery_point, log.flushes.begin_flush()) == (7, None)


def test_flush_is_due_by_messages_and_time(folder: Folder) -> None:
    log = open_log(folder, config=evolve(CONFIG, flush_messages=3, flush_ms=100), now_ms=1000)
    assert not log.flushes.due(5000)
    put(log, b"a", b"b")
    assert not log.flushes.due(1099)
    assert log.flushes.due(1100)
    put(log, b"c")
    assert log.flushes.due(1000)
    log.flushes.now(2000)
    put(log, b"d")
    assert not log.flushes.due(2099)
    assert log.flushes.due(2100)


def test_truncated_while_flushing_does_not_count_as_flushed(folder: Folder) -> None:
    log = _written(folder, 4)
    work = log.flushes.begin_flush()
    assert work is not None
    log.truncate_to(2)
    put(log, b"new")
    put(log, b"new")
    work()
    log.flushes.end_flush(work)
    assert log.recovery_point == 0


def test_retained_while_flushing(folder: Folder) -> None:
    log = _written(folder)
    work = log.flushes.begin_flush()
    assert work is not None
    assert _retain(log, high_watermark=5, retention_ms=0) == 2
    work()
    log.flushes.end_flush(work)
    assert log.recovery_point == 8


def test_failed_flush_of_records_ends_appending(folder: Folder) -> None:
    log = _written(folder, 3)
    work = log.flushes.begin_flush()
    assert work is not None
    log.flushes.end_flush(work, StorageError("fsync failed"))
    assert log.recovery_point == 0
    with pytest.raises(StorageError, match="fsync failed"):
        put(log, b"x")
    assert len(read_all(log)) == 3


def log_files(disk: MemoryDisk) -> set[str]:
    return set(disk.folders["t-0"])


def test_failed_checkpoint_does_not(folder: Folder) -> None:
    disk = MemoryDisk()
    log = _written(MemoryLogDir(disk).folder("t-0"), 3)
    disk.capacity = disk.used
    work = log.flushes.begin_flush()
    assert work is not None
    with pytest.raises(StorageFull):
        work()
    log.flushes.end_flush(work, StorageFull("full"))
    assert log.recovery_point == 3
    disk.capacity = None
    put(log, b"x")
    log.flushes.now()
    assert log.recovery_point == 4
    assert "leader-epoch-checkpoint" in log_files(disk)


def test_a_roll_calls_its_listener(folder: Folder) -> None:
    log = open_log(folder, config=CONFIG)
    rolled: list[int] = []
    log.rolled = lambda log: rolled.append(log.segments[-1].base_offset)
    for number in range(5):
        put(log, b"%08d" % number)
    assert rolled == [2, 4]
