"""Reading by offset (facts C6 fetch sizes), by time (facts B3 end), and what is ready."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_header import assign_offset
from barnabas.core.message.batch_reader import whole_batches
from barnabas.core.message.codec import Codecs
from barnabas.core.traffic.steps import complete
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import Folder
from barnabas.testing.logs import batch, bytes_of, messages_in, open_log, put, read_all

SIZE = len(batch(b"12345678"))


@pytest.fixture
def folder() -> Folder:
    return MemoryLogDir().folder("t-0")


def _filled(folder: Folder, *, batches: int = 30, per_segment: int = 10, reopened: bool = False) -> UnifiedLog:
    """Batches of one record each, the number as its value."""
    config = LogConfig(segment_bytes=per_segment * SIZE, index_interval_bytes=3 * SIZE)
    log = open_log(folder, config=config)
    for number in range(batches):
        put(log, b"%08d" % number, at=1000 + number)
    if reopened:
        log.close()
        log = open_log(folder, config=config, recover=False)
    return log


@pytest.mark.parametrize("reopened", [False, True])
def test_every_offset_is_found(folder: Folder, reopened: bool) -> None:
    log = _filled(folder, reopened=reopened)
    for offset in range(30):
        assert messages_in(bytes_of(log, offset, max_bytes=SIZE)) == [(offset, b"%08d" % offset)]
        upto = 10 * (offset // 10 + 1)
        assert [found for found, _ in messages_in(bytes_of(log, offset))] == list(range(offset, upto))
    assert [offset for offset, _ in read_all(log)] == list(range(30))


@pytest.mark.parametrize("reopened", [False, True])
def test_never_at_or_above_the_limit(folder: Folder, reopened: bool) -> None:
    log = _filled(folder, reopened=reopened)
    for limit in range(31):
        for offset in range(31):
            found = [number for number, _ in messages_in(bytes_of(log, offset, limit=limit))]
            assert found == list(range(offset, min(limit, 10 * (offset // 10 + 1))))


def test_limit_inside_a_batch_leaves_the_batch_out(folder: Folder) -> None:
    log = open_log(folder)
    put(log, b"a", b"b")
    put(log, b"c", b"d")
    assert [offset for offset, _ in messages_in(bytes_of(log, 0, limit=3))] == [0, 1]
    assert bytes_of(log, 2, limit=3) == b""


def test_out_of_range(folder: Folder) -> None:
    log = _filled(folder)
    log.advance_log_start(5)
    for offset in (-1, 4, 31):
        with pytest.raises(ApiError) as caught:
            log.read(offset, max_bytes=100, limit=30)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(30, max_bytes=100, limit=30).size == 0
    assert log.read(29, max_bytes=100, limit=20).size == 0


@pytest.mark.parametrize("reopened", [False, True])
def test_read_respects_size_limits(folder: Folder, reopened: bool) -> None:
    log = _filled(folder, reopened=reopened)
    for max_bytes in (0, 1, SIZE - 1, SIZE):
        assert log.read(3, max_bytes=max_bytes, limit=30).size == SIZE
    assert log.read(3, max_bytes=SIZE - 1, limit=30, whole_first_batch=False).size == 0
    assert log.read(3, max_bytes=SIZE, limit=30, whole_first_batch=False).size == SIZE
    cut = log.read(3, max_bytes=2 * SIZE + 10, limit=30)
    assert cut.size == 2 * SIZE + 10
    assert (cut.segment_base_offset, cut.position) == (0, 3 * SIZE)
    assert not isinstance(cut.records, bytes)
    assert [header.base_offset for _, header in whole_batches(cut.records.read())] == [3, 4]
    assert log.read(8, max_bytes=10**9, limit=30).size == 2 * SIZE


def test_first_batch_comes_from_its_beginning(folder: Folder) -> None:
    log = open_log(folder)
    put(log, *[b"x"] * 10)
    assert len(messages_in(bytes_of(log, 7))) == 10


def test_available_bytes_are_those_between_two_offsets(folder: Folder) -> None:
    log = _filled(folder)
    assert log.available_bytes(30, 30, 10**9) == 0
    assert log.available_bytes(29, 30, 10**9) == SIZE
    assert log.available_bytes(29, 30, 10) == 10
    assert log.available_bytes(0, 30, 10**9) == 30 * SIZE
    assert log.available_bytes(0, 15, 10**9) == 15 * SIZE
    assert log.available_bytes(5, 5, 10**9) == 0
    log.advance_log_start(3)
    assert log.available_bytes(2, 30, 10**9) == 0


def test_read_at_an_offset_gap_continues_in_the_next_segment(folder: Folder) -> None:
    """Compaction leaves such logs: the first segment lacks its last offsets, the second its first."""
    log = open_log(folder, config=LogConfig(segment_bytes=2 * SIZE))
    put(log, b"00000000")
    put(log, b"00000001")
    for base in (10, 15):
        records = batch(b"%08d" % base)
        assign_offset(records, base, 0)
        log.append_replicated(records, now_ms=1000)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    for offset in range(2, 11):
        assert messages_in(bytes_of(log, offset))[0] == (10, b"00000010")
    for offset in range(11, 16):
        assert messages_in(bytes_of(log, offset))[0] == (15, b"00000015")
    assert bytes_of(log, 5, limit=8) == b""
    assert bytes_of(log, 12, limit=14) == b""
    assert read_all(log, 0) == [(offset, b"%08d" % offset) for offset in (0, 1, 10, 15)]
    log.close()
    log = open_log(folder, config=LogConfig(segment_bytes=2 * SIZE), recover=False)
    assert read_all(log, 0) == [(offset, b"%08d" % offset) for offset in (0, 1, 10, 15)]


def test_region_does_not_change_while_the_log_grows(folder: Folder) -> None:
    log = _filled(folder)
    region = log.read(0, max_bytes=10**6, limit=30).records
    assert not isinstance(region, bytes)
    before = region.read()
    log.update_config(LogConfig(retention_ms=0))
    for segment in complete(log.retain(10**9, log.log_end_offset)):
        segment.delete()
    put(log, b"later")
    assert region.read() == before


# --- by time


@pytest.mark.parametrize("reopened", [False, True])
def test_offset_for_timestamp(folder: Folder, reopened: bool) -> None:
    log = _filled(folder, reopened=reopened)
    assert complete(log.times.find_first_at(0)) == (1000, 0, 0)
    for number in range(30):
        assert complete(log.times.find_first_at(1000 + number)) == (1000 + number, number, 0)
    assert complete(log.times.find_first_at(1030)) is None
    assert complete(log.times.find_max_timestamp()) == (1029, 29, 0)
    log.advance_log_start(15)
    assert complete(log.times.find_first_at(1003)) == (1015, 15, 0)


def test_no_timestamps_at_all(folder: Folder) -> None:
    log = open_log(folder)
    assert complete(log.times.find_max_timestamp()) is None
    put(log, b"x", at=-1)
    assert complete(log.times.find_first_at(0)) is None
    assert complete(log.times.find_max_timestamp()) is None


def test_the_record_not_the_batch(folder: Folder) -> None:
    codecs: Codecs = builtin_codecs()
    log = open_log(folder, codecs=codecs)
    log.append(batch(b"a", b"b", b"c", timestamps=[5, 50, 20], codec=codecs.by_name("lz4")), leader_epoch=9, now_ms=1)
    log.append(batch(b"d", b"e", timestamps=[10, 30]), leader_epoch=9, now_ms=1)
    assert complete(log.times.find_first_at(6)) == (50, 1, 9)
    assert complete(log.times.find_first_at(20)) == (50, 1, 9)
    assert complete(log.times.find_max_timestamp()) == (50, 1, 9)
    log.advance_log_start(2)
    assert complete(log.times.find_first_at(6)) == (20, 2, 9)
    assert complete(log.times.find_first_at(21)) == (30, 4, 9)
    assert complete(log.times.find_max_timestamp()) == (30, 4, 9)


@given(
    groups=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=25),
    start=st.integers(0, 30),
    reopened=st.booleans(),
)
def test_times_in_any_order_against_a_list(groups: list[list[int]], start: int, reopened: bool) -> None:
    folder = MemoryLogDir().folder("t-0")
    config = LogConfig(segment_bytes=400, index_interval_bytes=150)
    log = open_log(folder, config=config)
    for group in groups:
        log.append(batch(*[b"v"] * len(group), timestamps=group), leader_epoch=0, now_ms=0)
    if reopened:
        log.close()
        log = open_log(folder, config=config, recover=False)
    times = [time for group in groups for time in group]
    start = min(start, len(times))
    log.advance_log_start(start)
    rest = list(enumerate(times))[start:]
    for target in range(62):
        expected = next(((time, offset, 0) for offset, time in rest if time >= target), None)
        assert complete(log.times.find_first_at(target)) == expected
    largest = max((time for _, time in rest), default=None)
    expected = next(((time, offset, 0) for offset, time in rest if time == largest), None)
    assert complete(log.times.find_max_timestamp()) == expected
