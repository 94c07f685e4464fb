"""One damaged batch costs itself: what lies before and behind it is served, and the gap is reported."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.long_tests import examples, first_is_quick

from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.segment.damage import Gap, OffsetsDamaged, SegmentBytes, find_intact_batch, walk
from barnabas.core.log.segment.segment import Segment
from barnabas.core.message.batch_header import HEADER_SIZE, assign_offset, is_crc_valid, parse_header
from barnabas.core.traffic.steps import complete
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.report import counted
from barnabas.ports.storage import Folder
from barnabas.ports.types import Offset, Position
from barnabas.testing.logs import batch, bytes_of, numbered, open_log, put, read_all

SIZE = len(batch(b"12345678"))
COUNT = 24
CONFIG = LogConfig(segment_bytes=10 * SIZE, index_interval_bytes=3 * SIZE)
"""Segments of 10 batches, index entries for some of them."""
LOST_AT_THE_END = COUNT - 1
"""Once more is appended behind it, it is skipped as a hole that a cleaning has left."""
START = Position(0)
BASE_OFFSET, LENGTH, MAGIC, CRC = range(8), range(8, 12), range(16, 17), range(17, 21)


def new_folder() -> Folder:
    return MemoryLogDir().folder("t-0")


def written(folder: Folder, count: int = COUNT) -> UnifiedLog:
    log = open_log(folder, config=CONFIG)
    for number in range(count):
        put(log, b"%08d" % number, at=1000 + number)
    return log


def name_of(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


def change(folder: Folder, name: str, how: Callable[[bytearray], None]) -> None:
    content = bytearray(folder.read_small(name))
    how(content)
    folder.delete(name)
    folder.open(name).append(content)


def flip(folder: Folder, offset: int, byte: int, bit: int = 0) -> None:
    """One bit in the header of the batch with that offset."""

    def how(content: bytearray) -> None:
        content[offset % 10 * SIZE + byte] ^= 1 << bit

    change(folder, name_of(offset // 10 * 10), how)


def stopped_with(offset: int, byte: int, bit: int = 0, count: int = COUNT) -> Folder:
    folder = new_folder()
    written(folder, count).close()
    flip(folder, offset, byte, bit)
    return folder


def readable(log: UnifiedLog, *, max_bytes: int = 1) -> list[int]:
    """Return the intact offsets for a reader who fetches one after the other and skips refused ones."""
    found: list[int] = []
    offset: int = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = bytes_of(log, offset, max_bytes=max_bytes)
        except OffsetsDamaged as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            assert error.next_offset > offset
            offset = error.next_offset
            continue
        position = 0
        while position < len(data):
            header = parse_header(data, position)
            assert header.base_offset == offset or offset == LOST_AT_THE_END, "never another than comes next"
            offset = header.base_offset
            if is_crc_valid(data, header, position):
                found.append(offset)
            offset += 1
            position += header.size
    return found


def others(offset: int, count: int = COUNT) -> list[int]:
    return [number for number in range(count) if number != offset]


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize("offset", first_is_quick([4, 23, 0, 9, 13, 20, 22], 2))
@pytest.mark.parametrize("byte", [*BASE_OFFSET, *LENGTH, *MAGIC, *CRC, 23, 30, 60])
def test_a_flipped_bit_in_a_header_costs_its_batch_only(offset: int, byte: int, recover: bool) -> None:
    for bit in (0, 1, 5, 7):
        folder = stopped_with(offset, byte, bit)
        reports: list[str] = []
        log = open_log(folder, recover=recover, recovery_point=COUNT, config=CONFIG, report=reports.append)
        assert log.log_end_offset == COUNT
        assert readable(log) == others(offset)
        if byte in (*BASE_OFFSET, *LENGTH, *MAGIC) or (recover and offset >= 20):
            assert sum(f"the offsets {offset} to {offset} cannot be read" in line for line in reports) == (offset != 23)
        assert put(log, b"new") == COUNT
        log.close()
        again = open_log(folder, recover=recover, recovery_point=COUNT + 1, config=CONFIG, report=reports.append)
        assert readable(again) == [*others(offset), COUNT]


def test_the_index_stays_as_it_is() -> None:
    folder = stopped_with(4, MAGIC[0])
    before = {base: folder.read_small(name_of(base, ".index")) for base in (0, 10, 20)}
    log = open_log(folder, recover=False, recovery_point=COUNT, config=CONFIG)
    readable(log)
    assert {base: folder.read_small(name_of(base, ".index")) for base in before} == before
    log.close()
    assert {base: folder.read_small(name_of(base, ".index")) for base in before} == before


def test_a_missing_index_is_made_from_both_sides_of_the_damage() -> None:
    folder = stopped_with(4, MAGIC[0])
    folder.delete(name_of(0, ".index"))
    log = open_log(folder, recover=False, recovery_point=COUNT, config=CONFIG)
    assert len(folder.read_small(name_of(0, ".index"))) // 8 == 2
    assert readable(log) == others(4)


def test_a_fetch_before_known_damage_ends_there_and_one_behind_it_continues() -> None:
    log = open_log(stopped_with(4, MAGIC[0]), recover=False, recovery_point=COUNT, config=CONFIG)
    with pytest.raises(ApiError, match="seek to 5"):
        bytes_of(log, 4)
    assert len(bytes_of(log, 1)) == 3 * SIZE
    assert len(bytes_of(log, 5)) == 5 * SIZE
    assert log.available_bytes(1, COUNT, 1 << 20) > 0


def test_times_are_found_on_both_sides_of_the_damage() -> None:
    log = open_log(stopped_with(4, MAGIC[0]), recover=False, recovery_point=COUNT, config=CONFIG)
    for offset in others(4):
        assert complete(log.times.find_first_at(1000 + offset)) == (1000 + offset, offset, 0)
    assert complete(log.times.find_first_at(1004)) == (1005, 5, 0)
    assert complete(log.times.find_max_timestamp()) == (1000 + COUNT - 1, COUNT - 1, 0)


def test_damage_above_the_recovery_point_still_cuts() -> None:
    """There it is what a power cut leaves."""
    folder = stopped_with(13, MAGIC[0])
    log = open_log(folder, recover=True, recovery_point=13, config=CONFIG)
    assert log.log_end_offset == 13
    folder = stopped_with(13, MAGIC[0])
    assert readable(open_log(folder, recover=True, recovery_point=14, config=CONFIG)) == others(13)


def test_several_batches_in_one_gap_and_several_gaps() -> None:
    folder = new_folder()
    written(folder).close()
    for offset in (2, 3, 4, 7, 15):
        flip(folder, offset, MAGIC[0])
    reports: list[str] = []
    log = open_log(folder, recover=False, recovery_point=COUNT, config=CONFIG, report=reports.append)
    for _ in range(2):
        assert readable(log) == [n for n in range(COUNT) if n not in (2, 3, 4, 7, 15)]
    observed = [line.split("the offsets ")[1] for line in reports]
    assert observed == ["2 to 4 cannot be read", "7 to 7 cannot be read", "15 to 15 cannot be read"]


def test_content_of_a_damaged_batch_is_not_read_as_a_batch() -> None:
    """A message may hold the bytes of a batch."""
    inner = bytearray(batch(b"forged"))
    assign_offset(inner, 1, 0)
    folder = new_folder()
    log = open_log(folder)
    for value in (b"first", bytes(inner), b"last"):
        put(log, value)
    log.close()
    change(folder, name_of(0), lambda content: content.__setitem__(len(batch(b"first")) + MAGIC[0], 9))
    log = open_log(folder, recover=False, recovery_point=3)
    with pytest.raises(OffsetsDamaged):
        bytes_of(log, 1)
    assert read_all(log, 2) == [(2, b"last")]


def test_holes_of_a_cleaning_are_no_damage() -> None:
    folder = new_folder()
    written(folder).close()
    remaining = (0, 3, 4, 8)

    def how(content: bytearray) -> None:
        content[:] = b"".join(content[n * SIZE : (n + 1) * SIZE] for n in remaining)

    change(folder, name_of(0), how)
    folder.delete(name_of(0, ".index"))
    reports: list[str] = []
    log = open_log(folder, recover=False, recovery_point=COUNT, config=CONFIG, report=reports.append)
    assert [n for n, _ in read_all(log, max_bytes=1)] == [*remaining, *range(10, COUNT)]
    assert not [line for line in reports if "cannot be read" in line]


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(min_size=1, max_size=200), st.integers(0, 20 * SIZE))
@example((2 * SIZE - 12).to_bytes(4, "big"), 7 * SIZE + 8)  # the length of two
def test_any_garbage_in_a_segment_leaves_the_batches_it_does_not_touch(garbage: bytes, position: int) -> None:
    content = bytearray()
    for number in range(20):
        one = bytearray(batch(b"%08d" % number))
        assign_offset(one, number, 0)
        content += one
    end = min(len(content), position + len(garbage))
    sound = bytes(content)
    content[position:end] = garbage[: end - position]
    untouched = [n for n in range(20) if content[n * SIZE : (n + 1) * SIZE] == sound[n * SIZE : (n + 1) * SIZE]]
    found, reached = [], 0
    for item in walk(SegmentBytes(content), START, Position(len(content)), expected=Offset(0), below=Offset(20)):
        if isinstance(item, Gap):
            assert item.position == reached
            reached = item.end
        else:
            assert item[0] == reached
            reached += item[1].size
            if is_crc_valid(content, item[1], item[0]):
                found.append(item[1].base_offset)
    assert reached == len(content)
    assert set(untouched) <= set(found)
    assert found == sorted(found)


def test_nothing_intact_is_found_in_what_is_none() -> None:
    for data in (b"", bytes(1000), b"\x02" * 5000, bytes(range(256)) * 20):
        assert find_intact_batch(SegmentBytes(data), START, Position(len(data))) is None
    whole = bytes(batch(b"x"))
    assert find_intact_batch(SegmentBytes(b"\x02" * 70 + whole), START, Position(70 + len(whole))) == (
        70,
        parse_header(whole),
    )
    assert find_intact_batch(SegmentBytes(whole[:-1]), START, Position(len(whole) - 1)) is None
    assert len(whole) > HEADER_SIZE


@pytest.mark.parametrize("tail", [bytes(7), bytes(500), b"\xff" * 70, batch(b"torn")[:-1].tobytes()])
@pytest.mark.parametrize("recovery_point", [COUNT, 0])
def test_bytes_behind_the_last_batch_are_cut_at_every_start(tail: bytes, recovery_point: int) -> None:
    """Else what is appended behind it would be dropped by a later recovery, although it was flushed."""
    folder = new_folder()
    written(folder).close()
    folder.open(name_of(20)).append(tail)
    reports: list[str] = []
    log = open_log(folder, recover=False, recovery_point=recovery_point, config=CONFIG, report=reports.append)
    assert put(log, b"next") == COUNT
    assert any(f"{counted(len(tail), 'byte is', 'bytes are')} dropped" in line for line in reports)
    log.flushes.now()
    log.abandon()
    again = open_log(folder, recover=True, recovery_point=recovery_point, config=CONFIG)
    assert readable(again) == [*range(COUNT + 1)]


def test_damage_that_hides_batches_of_producers_is_known_until_its_repair() -> None:
    folder = new_folder()
    log = open_log(folder)
    for sequence in range(4):
        records = numbered(b"%d" % sequence, producer=7 + sequence % 2, sequence=sequence // 2)
        log.append(records, leader_epoch=0, now_ms=0)
    size = len(numbered(b"0"))
    log.abandon()
    intact = folder.read_small(name_of(0))
    change(folder, name_of(0), lambda content: content.__setitem__(2 * size + 30, content[2 * size + 30] ^ 1))
    damaged = open_log(folder, recovery_point=4)
    assert list(damaged.hidden_producers_at) == [2]
    assert damaged.producers.producers[7].last_sequence == 0, "the batch with the sequence 1 is damaged"
    segment = damaged.segments[0]
    assert isinstance(segment, Segment)
    segment.file.truncate(0)
    segment.file.append(intact)
    segment.gaps = ()
    complete(damaged.reload_producers(0))
    assert not damaged.hidden_producers_at
    assert {each.last_sequence for each in damaged.producers.producers.values()} == {1}


def test_damage_below_a_snapshot_hides_no_producers() -> None:
    folder = new_folder()
    log = open_log(folder)
    for sequence in range(3):
        log.append(numbered(b"0", producer=7, sequence=sequence), leader_epoch=0, now_ms=0)
    log.close()
    change(folder, name_of(0), lambda content: content.__setitem__(30, content[30] ^ 1))
    again = open_log(folder, recovery_point=3, recover=False)
    assert not again.hidden_producers_at
    assert again.producers.producers[7].last_sequence == 2


def hidden_log() -> tuple[UnifiedLog, bytes]:
    """Return a log whose second batch of four is damaged, and its intact content."""
    folder = new_folder()
    log = open_log(folder)
    for sequence in range(4):
        log.append(numbered(b"%d" % sequence, producer=7, sequence=sequence), leader_epoch=0, now_ms=0)
    log.abandon()
    intact = folder.read_small(name_of(0))
    at = len(intact) // 4 + 50
    change(folder, name_of(0), lambda content: content.__setitem__(at, content[at] ^ 1))
    return open_log(folder, recovery_point=4), intact


def mend(log: UnifiedLog, intact: bytes) -> None:
    segment = log.segments[0]
    assert isinstance(segment, Segment)
    segment.file.truncate(0)
    segment.file.append(intact)
    segment.gaps = ()


def test_producers_are_read_again_on_a_worker_and_what_is_appended_meanwhile_counts() -> None:
    log, intact = hidden_log()
    mend(log, intact)
    steps = log.reload_producers(0)
    work = next(steps)
    assert work is not None
    assert log.hidden_producers_at, "nothing has changed before the worker is done"
    log.append(numbered(b"4", producer=7, sequence=4), leader_epoch=0, now_ms=0)
    log.append(numbered(b"0", producer=8, sequence=0), leader_epoch=0, now_ms=0)
    log.producers.reject_retriable(numbered(b"6", producer=7, sequence=5), ErrorCode.NOT_ENOUGH_REPLICAS)
    read = work()
    with pytest.raises(StopIteration):
        steps.send(read)
    assert not log.hidden_producers_at
    assert {number: each.last_sequence for number, each in log.producers.producers.items()} == {7: 4, 8: 0}
    assert [each.base_sequence for each in log.producers.producers[7].batches] == [0, 1, 2, 3, 4]
    with pytest.raises(ApiError) as refused:
        log.append(numbered(b"6", producer=7, sequence=6), leader_epoch=0, now_ms=0)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS, "the batch that was refused comes first"


def test_owner_does_not_read_much_that_is_appended_while_producers_are_read() -> None:
    log, intact = hidden_log()
    mend(log, intact)
    steps = log.reload_producers(0)
    work = next(steps)
    assert work is not None
    log.append(numbered(bytes(600_000), b"4", producer=7, sequence=4), leader_epoch=0, now_ms=0)
    log.append(numbered(bytes(600_000), b"4", producer=7, sequence=6), leader_epoch=0, now_ms=0)
    again = steps.send(work())
    assert again is not None
    assert log.hidden_producers_at
    with pytest.raises(StopIteration):
        steps.send(again())
    assert not log.hidden_producers_at
    assert log.producers.producers[7].last_sequence == 7


@pytest.mark.parametrize("closes", [False, True])
def test_producers_that_were_read_while_the_log_was_cut_or_closed_are_dropped(closes: bool) -> None:
    log, intact = hidden_log()
    mend(log, intact)
    steps = log.reload_producers(0)
    work = next(steps)
    assert work is not None
    read = work()
    if closes:
        log.close()
    else:
        log.truncate_to(3)
    with pytest.raises(StopIteration):
        steps.send(read)
    assert log.producers.producers[7].last_sequence == (3 if closes else 2)
