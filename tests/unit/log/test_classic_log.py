"""Classic logs: addresses, what is appended, what readers see, flush and roll (facts A2 to A4)."""

from pathlib import Path

import pytest
from support.classic_frames import entry, gzip_wrapper, message_set
from support.classic_logs import OVERHEAD, classic, content, flush, open_classic, put, put_set, visible

from barnabas.adapters.storage_fs import open_log_dir
from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.cluster.topics import ReplicaId, first_state
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.replica.partition.partition import Partition
from barnabas.core.traffic.steps import complete
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import File, Folder, StorageError, StorageFull
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import bytes_of

LATEST, EARLIEST = -1, -2


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(now_ms=lambda: 0)


@pytest.fixture
def folder(disk: MemoryDisk) -> Folder:
    return MemoryLogDir(disk).folder("t-0")


def _refused(log: UnifiedLog, records: bytes) -> ErrorCode:
    end, size = log.log_end_offset, log.size_bytes
    with pytest.raises(ApiError) as caught:
        put_set(log, records)
    assert (log.log_end_offset, log.size_bytes) == (end, size)
    return caught.value.code


def _bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# --- addresses and content


def test_an_offset_is_a_position_and_the_file_is_what_came(folder: Folder) -> None:
    log = open_classic(folder)
    first, second = message_set(b"a", b"bc"), entry(b"def", magic=0)
    assert log.append(memoryview(first), leader_epoch=7, now_ms=1) == (0, len(first) - 1, -1, 0, 2)
    assert put_set(log, second) == len(first)
    flush(log)
    assert log.log_end_offset == log.readable_end == log.size_bytes == len(first + second)
    assert visible(log) == content(folder) == first + second
    assert list(folder.files()) == [f"{0:020d}.kafka"], "no index, no leader epochs"
    log.close()
    assert list(folder.files()) == [f"{0:020d}.kafka"]


def test_a_new_log_begins_at_zero_or_at_its_log_start(folder: Folder) -> None:
    assert open_classic(folder).log_end_offset == 0
    other = MemoryLogDir().folder("t-1")
    log = open_classic(other, log_start_offset=55)
    assert (log.log_start_offset, log.readable_end, put(log, b"x")) == (55, 55, 55)


def test_partial_message_at_the_end_of_a_set_is_left_out(folder: Folder) -> None:
    log = open_classic(folder)
    whole = message_set(b"one", b"two")
    appended = log.append(memoryview(whole + message_set(b"three")[:-1]), leader_epoch=0, now_ms=1)
    assert appended == (0, len(whole) - 1, -1, 0, 2)
    assert content(folder) == whole


def test_an_empty_set_changes_nothing(folder: Folder) -> None:
    log = open_classic(folder)
    assert put(log) == 0
    assert log.log_end_offset == 0
    assert not log.flushes.due(10**12)


def test_messages_in_a_wrapper_are_counted_and_its_bytes_stored_unchanged(folder: Folder) -> None:
    log = open_classic(folder)
    wrapper = gzip_wrapper(b"a", b"b", b"c")
    assert log.append(memoryview(wrapper), leader_epoch=0, now_ms=1).messages == 3
    assert content(folder) == wrapper


def test_invalid_message_set_is_refused_and_changes_nothing(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(max_message_bytes=20))
    put(log, b"first")
    good = message_set(b"good")
    assert _refused(log, good + entry(b"x" * 21)) == ErrorCode.MESSAGE_TOO_LARGE
    assert _refused(log, good[:-1] + b"?") == ErrorCode.CORRUPT_MESSAGE
    assert _refused(log, entry(b"x", magic=1).replace(b"\x01", b"\x05", 1)) == ErrorCode.CORRUPT_MESSAGE
    assert _refused(log, good[:-1]) == ErrorCode.CORRUPT_MESSAGE
    assert _refused(log, entry(b"not gzip", codec=1)) == ErrorCode.CORRUPT_MESSAGE
    assert _refused(log, entry(b"?", codec=3)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert content(folder) == message_set(b"first")
    put(log, b"x" * 20)


def test_a_codec_that_is_not_there_is_refused(folder: Folder) -> None:
    log = open_classic(folder, codecs=NO_CODECS)
    assert _refused(log, gzip_wrapper(b"a")) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_bomb_is_refused(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(max_message_bytes=10**6))
    bomb = gzip_wrapper(bytes(110 * 10**6))
    assert len(bomb) < 10**6
    assert _refused(log, bomb) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_full_disk_leaves_the_log_as_it_was(disk: MemoryDisk, folder: Folder) -> None:
    log = open_classic(folder)
    put(log, b"a")
    disk.capacity = disk.used
    with pytest.raises(StorageFull):
        put(log, b"b")
    disk.capacity = None
    assert put(log, b"c") == OVERHEAD + 1
    flush(log)
    assert visible(log) == message_set(b"a", b"c")


# --- what readers see


def test_only_flushed_bytes_are_visible(folder: Folder) -> None:
    log = open_classic(folder)
    size = OVERHEAD + 1
    put(log, b"a")
    assert (log.readable_end, log.log_end_offset) == (0, size)
    assert bytes_of(log, 0) == b""
    assert log.available_bytes(0, 10**9, 10**9) == 0
    assert log.times.offsets_before(LATEST, 10, 5) == [0]
    with pytest.raises(ApiError) as caught:
        log.read(1, max_bytes=10, limit=10**9)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    work = log.flushes.begin_flush()
    assert work is not None
    put(log, b"b")
    work()
    assert log.readable_end == 0, "until the owner has taken note"
    log.flushes.end_flush(work)
    assert log.readable_end == size, "what came after the flush began is not part of it"
    assert bytes_of(log, 0, limit=10**9) == message_set(b"a")
    assert log.available_bytes(0, 10**9, 10**9) == size


def test_a_flush_that_fails_shows_nothing_and_ends_the_appending(folder: Folder) -> None:
    log = open_classic(folder)
    put(log, b"a")
    work = log.flushes.begin_flush()
    assert work is not None
    log.flushes.end_flush(work, StorageError("the disk is gone"))
    assert log.readable_end == 0
    with pytest.raises(StorageError, match="accepts no appends"):
        put(log, b"b")
    with pytest.raises(StorageError):
        log.close()
    assert list(folder.files()) == [f"{0:020d}.kafka"]


def test_reads_need_no_boundary_and_never_leave_the_segment(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(segment_bytes=40))
    data = b"".join(message_set(b"%d" % number) for number in range(10))
    for number in range(10):
        put(log, b"%d" % number)
    flush(log)
    bases = _bases(log)
    assert bases == [0, 44, 88]
    assert visible(log) == data
    assert visible(log, max_bytes=7) == data
    for offset in range(len(data)):
        end = next((base for base in bases if base > offset), len(data))
        assert bytes_of(log, offset) == data[offset:end]
        assert bytes_of(log, offset, max_bytes=5) == data[offset : min(end, offset + 5)]
        assert bytes_of(log, offset, limit=offset + 3) == data[offset : min(end, offset + 3)]
        assert log.available_bytes(offset, 10**9, 10**9) == len(data) - offset
    assert bytes_of(log, len(data)) == b"", "at the end there is nothing yet"
    assert bytes_of(log, 0, max_bytes=0) == b""
    for outside in (-1, len(data) + 1):
        with pytest.raises(ApiError) as caught:
            bytes_of(log, outside)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.available_bytes(outside, 10**9, 10) == 0


def test_a_read_gives_a_region_of_the_file(tmp_path: Path) -> None:
    log_dir = open_log_dir(tmp_path)
    log = open_classic(log_dir.folder("t-0"))
    put(log, b"abc")
    log.flushes.now()
    records = log.read(4, max_bytes=100, limit=log.readable_end).records
    assert not isinstance(records, bytes)
    assert (records.position, records.size) == (4, OVERHEAD + 3 - 4)
    assert records.fileno() >= 0
    log.close()
    assert records.read() == message_set(b"abc")[4:]
    log_dir.close()


def test_the_high_watermark_is_what_is_flushed(folder: Folder) -> None:
    log = open_classic(folder)
    put(log, b"a")
    flush(log)
    tp = TopicPartition("t", 0)
    own, state = ReplicaId(1, 0), first_state([1])
    partition = Partition(log, tp, topic_id=bytes(16), own=own, replicas=[1], state=state)
    assert partition.high_watermark == log.readable_end == OVERHEAD + 1
    partition.append_as_leader(memoryview(message_set(b"b")), now_ms=1)
    assert partition.high_watermark == OVERHEAD + 1
    flush(log)
    assert partition.apply_state(state, [1], own, 0)
    assert partition.high_watermark == log.log_end_offset


# --- when it is flushed


def test_a_flush_is_due_by_messages_those_in_wrappers_counted(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(flush_messages=4))
    put(log, b"a" * 100, b"b")
    assert not log.flushes.due(1000)
    put_set(log, gzip_wrapper(b"c", b"d"))
    assert log.flushes.due(1000)
    flush(log)
    assert not log.flushes.due(1000)
    put(log, b"e", b"f", b"g")
    assert not log.flushes.due(1000)
    put(log, b"h")
    assert log.flushes.due(1000)


def test_a_flush_is_due_by_time_if_there_is_anything(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(flush_ms=100), now_ms=1000)
    assert not log.flushes.due(5000)
    put(log, b"a")
    assert not log.flushes.due(1099)
    assert log.flushes.due(1100)
    flush(log, 1100)
    put(log, b"b")
    assert not log.flushes.due(1199)
    assert log.flushes.due(1200)


def test_a_clock_that_is_set_back_holds_no_flush_up(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(flush_ms=100), now_ms=1_000_000)
    put(log, b"a")
    assert not log.flushes.due(5000)
    assert not log.flushes.due(5099)
    assert log.flushes.due(5100)


def test_messages_that_come_during_a_flush_count_for_the_next(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(flush_messages=2))
    put(log, b"a", b"b")
    work = log.flushes.begin_flush()
    put(log, b"c")
    assert work is not None
    work()
    log.flushes.end_flush(work)
    assert not log.flushes.due(0)
    put(log, b"d")
    assert log.flushes.due(0)


# --- roll


def test_a_segment_rolls_when_it_is_larger_than_its_size(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(segment_bytes=22))
    put(log, b"a")
    put(log, b"b")  # 22 bytes: not larger
    put(log, b"c" * 100)  # not split, whatever its size
    assert _bases(log) == [0]
    put(log, b"d")
    assert _bases(log) == [0, 132]
    assert content(folder, 132) == message_set(b"d")


def test_a_segment_rolls_some_time_after_its_first_append(folder: Folder) -> None:
    config = LogConfig(segment_ms=100)
    log = open_classic(folder, config=config, now_ms=0)
    put(log, b"a", now_ms=5000)
    put(log, b"b", now_ms=5100)
    assert _bases(log) == [0]
    put(log, b"c", now_ms=5101)
    assert _bases(log) == [0, 22]
    log.close()
    log = open_classic(folder, config=config, recover=False, now_ms=9000)
    put(log, b"d", now_ms=9000)
    assert _bases(log) == [0, 22], "the age counts from the first append since it was opened"
    log.truncate_to(0)
    put(log, b"e", now_ms=99_000)
    assert _bases(log) == [0], "an empty segment has no age"


def test_sealed_segment_is_durable_before_the_next_one_exists(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_classic(folder, config=LogConfig(segment_bytes=14))
    put(log, b"12345")
    steps: list[str] = []
    open_file = folder.open

    def opened(name: str, *, create: bool = True) -> File:
        steps.append(f"{name} is opened, {log.readable_end} bytes are durable")
        return open_file(name, create=create)

    monkeypatch.setattr(folder, "open", opened)
    put(log, b"6")
    assert steps == [f"{15:020d}.kafka is opened, 15 bytes are durable"]
    assert bytes_of(log, 0, limit=10**9) == message_set(b"12345")


def test_a_roll_that_cannot_flush_appends_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_classic(folder, config=LogConfig(segment_bytes=14))
    put(log, b"12345")

    def fail(_: object) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(type(log.segments[0].file), "flush", fail)
        with pytest.raises(StorageError, match="gone"):
            put(log, b"6")
    assert log.failure is not None
    assert (_bases(log), log.log_end_offset, log.readable_end) == ([0], 15, 0)
    log.abandon()
    assert open_classic(folder).log_end_offset == 15


def test_a_stale_file_with_the_name_of_a_new_segment_is_emptied(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(segment_bytes=14))
    put(log, b"12345")
    folder.open(f"{15:020d}.kafka").append(b"leftover")
    put(log, b"6")
    assert content(folder, 15) == message_set(b"6")


# --- offsets before a time


def test_offsets_before_a_time_are_those_of_segments(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(segment_bytes=14))
    for number in range(4):
        put(log, b"12345", now_ms=1000 * (number + 1))
    flush(log)
    assert log.times.offsets_before(LATEST, 10, 9000) == [60, 45, 30, 15, 0]
    assert log.times.offsets_before(LATEST, 1, 9000) == [60]
    assert log.times.offsets_before(LATEST, 0, 9000) == []
    assert log.times.offsets_before(EARLIEST, 10, 9000) == [0]
    assert log.times.offsets_before(999, 10, 9000) == []
    assert log.times.offsets_before(1000, 10, 9000) == [0]
    assert log.times.offsets_before(3999, 10, 9000) == [30, 15, 0]
    assert log.times.offsets_before(3999, 2, 9000) == [30, 15]
    assert log.times.offsets_before(4000, 2, 9000) == [45, 30]
    assert log.times.offsets_before(9000, 2, 9000) == [60, 45], "the end counts as of now"


def test_an_empty_log_has_one_offset(folder: Folder) -> None:
    log = open_classic(folder, now_ms=500)
    assert log.times.offsets_before(LATEST, 5, 900) == log.times.offsets_before(EARLIEST, 5, 900) == [0]
    assert log.times.offsets_before(499, 5, 900) == []
    assert log.times.offsets_before(500, 5, 900) == [0]


# --- truncation


def test_truncation_is_by_bytes(folder: Folder) -> None:
    log = open_classic(folder, config=LogConfig(segment_bytes=14))
    for number in range(4):
        put(log, b"1234%d" % number)
    flush(log)
    before = visible(log)
    log.truncate_to(33)
    assert (log.log_end_offset, log.readable_end) == (33, 33)
    assert visible(log) == before[:33]
    log.truncate_to(30)
    assert _bases(log) == [0, 15]
    put(log, b"again")
    flush(log)
    assert visible(log) == before[:30] + message_set(b"again")
    log.truncate_to(0)
    assert (log.log_end_offset, log.readable_end, len(log.segments)) == (0, 0, 1)
    assert put(log, b"new") == 0


def test_a_flush_that_was_under_way_when_the_log_was_cut_shows_nothing_new(folder: Folder) -> None:
    log = open_classic(folder)
    put(log, b"a", b"b")
    work = log.flushes.begin_flush()
    log.truncate_to(OVERHEAD + 1)
    put(log, b"c")
    assert work is not None
    work()
    log.flushes.end_flush(work)
    assert log.readable_end == 0


def test_the_start_moves_up_to_what_is_flushed(folder: Folder) -> None:
    log = open_classic(folder)
    put(log, b"a")
    flush(log)
    put(log, b"b")
    log.advance_log_start(5)
    assert log.log_start_offset == 5
    assert log.times.offsets_before(EARLIEST, 1, 0) == [5]
    with pytest.raises(ApiError) as caught:
        log.advance_log_start(OVERHEAD + 2)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


# --- a log stays in its format


def test_a_log_stays_in_its_format_whatever_is_configured_later(folder: Folder) -> None:
    log = open_classic(folder)
    log.update_config(LogConfig(flush_messages=1))
    assert log.config == classic(LogConfig(flush_messages=1))
    put(log, b"a")
    assert log.flushes.due(0)


def test_classic_messages_have_no_timestamps(folder: Folder) -> None:
    log = open_classic(folder)
    put(log, b"a")
    flush(log)
    for timestamp in (-10, 0, 10**15):
        assert complete(log.times.find_first_at(timestamp)) is None
    assert complete(log.times.find_max_timestamp()) is None
