"""Producers over restarts: snapshot files in Kafka's format, and without them the batches (facts B3)."""

from collections.abc import Callable, Sequence

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.log_format import LogSegment
from barnabas.core.log.partition_log.log_state import LogState
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.producers.producer_state import ProducerStateEntry, ProducerStates, SentBatch
from barnabas.core.log.producers.snapshot import decode_snapshot, encode_snapshot
from barnabas.core.traffic.steps import Steps, complete
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import Folder, StorageError, StorageFull
from barnabas.testing.logs import numbered, open_log, put, read_all

SIZE = len(numbered(b"12345678"))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=SIZE)
# Version, CRC-32C, count; id, epoch, last sequence, last offset, delta, timestamp, coordinator epoch, transaction.
GOLDEN = bytes.fromhex(
    """
    0001 8ced67f4 00000002
    0000000000000fa0 0003 00000013 000000000000002a 00000002 00000174876e8005 ffffffff ffffffffffffffff
    0000000000000fa1 0000 ffffffff ffffffffffffffff 00000000 0000000000000001 ffffffff ffffffffffffffff
    """
)


@pytest.fixture
def folder() -> Folder:
    return MemoryLogDir().folder("t-0")


def send(log: UnifiedLog, number: int, producer: int = 1) -> int:
    return log.append(numbered(b"%08d" % number, sequence=number, producer=producer), leader_epoch=0, now_ms=1000)[0]


def written(folder: Folder, batches: int = 12) -> UnifiedLog:
    """Three segments, 0 to 4, 5 to 9, 10 and 11."""
    log = open_log(folder, config=CONFIG)
    for number in range(batches):
        send(log, number)
    return log


def flush(log: UnifiedLog) -> None:
    work = log.flushes.begin_flush(0)
    assert work is not None
    work()
    log.flushes.end_flush(work)


def snapshots(folder: Folder) -> list[int]:
    return sorted(int(name[:20]) for name in folder.files() if name.endswith(".snapshot"))


def check_knows_the_last_five(log: UnifiedLog, end: int = 12) -> None:
    before = log.log_end_offset
    for number in range(max(0, end - 5), end):
        assert send(log, number) == number
    assert log.log_end_offset == before
    assert send(log, end) == before


def test_snapshot_has_the_golden_bytes() -> None:
    states = ProducerStates()
    states.put(
        4000, ProducerStateEntry(3, 19, (SentBatch(0, 16, 0, 16, 1), SentBatch(17, 19, 40, 42, 7)), 1600000000005)
    )
    states.put(4001, ProducerStateEntry(0, -1, (), 1))
    assert encode_snapshot(states) == GOLDEN
    read = decode_snapshot(GOLDEN, now_ms=1700000000000).producers
    assert list(read) == [4000, 4001]
    assert (read[4000].epoch, read[4000].last_sequence, read[4000].seen_ms) == (3, 19, 1600000000005)
    assert read[4000].batches == (SentBatch(17, 19, 40, 42, 1600000000005),)
    assert (read[4001].last_sequence, read[4001].batches) == (-1, ())


def test_the_sequence_of_a_snapshot_may_wrap() -> None:
    states = ProducerStates()
    states.put(1, ProducerStateEntry(0, 1, (SentBatch(2**31 - 1, 1, 10, 12, 5),), 5))
    assert decode_snapshot(encode_snapshot(states), now_ms=9).producers[1].batches == ((2**31 - 1, 1, 10, 12, 5),)


@pytest.mark.parametrize("length", range(len(GOLDEN)))
def test_a_cut_snapshot_is_noticed(length: int) -> None:
    with pytest.raises(ValueError):
        decode_snapshot(GOLDEN[:length], now_ms=0)


@pytest.mark.parametrize("position", range(len(GOLDEN)))
def test_a_changed_snapshot_is_noticed(position: int) -> None:
    content = bytearray(GOLDEN)
    content[position] ^= 0x40
    with pytest.raises(ValueError):
        decode_snapshot(content, now_ms=0)


def test_snapshots_are_written_at_roll_and_close(folder: Folder) -> None:
    log = written(folder)
    assert snapshots(folder) == []
    flush(log)
    assert snapshots(folder) == [5, 10]
    log.close()
    assert snapshots(folder) == [5, 10, 12]
    assert decode_snapshot(folder.read_small(f"{5:020d}.snapshot"), now_ms=0).producers[1].last_sequence == 4


def test_a_start_after_a_clean_shutdown_reads_only_the_snapshot(folder: Folder) -> None:
    log = written(folder)
    log.close()
    log = open_log(folder, recover=False, config=CONFIG)
    check_knows_the_last_five(log)
    log.close()
    assert snapshots(folder) == [5, 10, 12, 13]
    open_log(folder, recover=False, config=CONFIG).close()
    assert snapshots(folder) == [5, 10, 13]


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize("left", [[], [5], [10], [12], [5, 10], [5, 10, 12]])
@pytest.mark.parametrize("damaged", [False, True])
def test_missing_or_damaged_snapshot_is_rebuilt(folder: Folder, recover: bool, left: list[int], damaged: bool) -> None:
    written(folder).close()
    for offset in (5, 10, 12):
        name = f"{offset:020d}.snapshot"
        if offset not in left and damaged:
            folder.write_small(name, folder.read_small(name)[:-1] + b"x")
        elif offset not in left:
            folder.delete(name)
    reports: list[str] = []
    log = open_log(folder, recover=recover, recovery_point=10 if recover else 12, config=CONFIG, report=reports.append)
    assert bool(reports) == (damaged and 10 not in left if recover else damaged and 12 not in left)
    check_knows_the_last_five(log)


@pytest.mark.parametrize("flushed", [0, 3, 7, 10, 12])
@pytest.mark.parametrize("recovery_point", [0, 5, 7, 10, 12])
def test_recovery_after_a_kill_keeps_everything(folder: Folder, flushed: int, recovery_point: int) -> None:
    log = open_log(folder, config=CONFIG)
    for number in range(12):
        if number == flushed and number:
            flush(log)
        send(log, number)
    log.abandon()
    log = open_log(folder, recovery_point=recovery_point, config=CONFIG)
    check_knows_the_last_five(log)


def test_batch_cut_off_by_recovery_may_be_sent_again(folder: Folder) -> None:
    log = written(folder)
    log.close()
    content = folder.read_small(f"{10:020d}.log")
    folder.delete(f"{10:020d}.log")
    file = folder.open(f"{10:020d}.log")
    file.append(content[: SIZE + 20])
    file.close()
    log = open_log(folder, config=CONFIG)
    assert log.log_end_offset == 11
    assert snapshots(folder) == [5, 10]
    check_knows_the_last_five(log, 11)


@pytest.mark.parametrize("offset", range(13))
def test_truncated_batch_may_be_sent_again(folder: Folder, offset: int) -> None:
    log = written(folder)
    flush(log)
    log.truncate_to(offset)
    assert all(known <= offset for known in snapshots(folder))
    check_knows_the_last_five(log, offset)
    log.close()
    check_knows_the_last_five(open_log(folder, recover=False, config=CONFIG), offset + 1)


def test_a_flush_that_a_truncation_overtakes_leaves_no_snapshot(folder: Folder) -> None:
    log = written(folder)
    work = log.flushes.begin_flush(0)
    assert work is not None
    log.truncate_to(3)
    work()
    log.flushes.end_flush(work)
    assert snapshots(folder) == []


def test_snapshots_are_deleted_with_their_segments(folder: Folder) -> None:
    log = written(folder)
    flush(log)
    log.advance_log_start(10)
    for segment in complete(log.retain(0, 12)):
        segment.delete()
    assert [segment.base_offset for segment in log.segments] == [10]
    assert snapshots(folder) == [10]
    check_knows_the_last_five(log)


def test_producers_outlive_their_records(folder: Folder) -> None:
    log = written(folder, 10)
    log.update_config(LogConfig(segment_bytes=5 * SIZE, retention_ms=1))
    removed = complete(log.retain(10**9, 10))
    assert len(removed) == 2
    assert send(log, 9) == 9
    log.close()
    log = open_log(folder, recover=False, config=CONFIG, log_start_offset=10)
    assert send(log, 9) == 9
    assert send(log, 10) == 10


def killed(log: UnifiedLog, folder: Folder, *, lost: Sequence[int] = ()) -> UnifiedLog:
    """Return the log after kill -9, of which these snapshots had not been written."""
    log.abandon()
    for offset in lost:
        folder.delete(f"{offset:020}.snapshot")
    return open_log(folder, config=CONFIG, log_start_offset=log.log_start_offset)


def of_two(folder: Folder) -> UnifiedLog:
    """Three segments from 0, 5 and 10; producer 2 has written offset 0 only."""
    log = open_log(folder, config=CONFIG)
    send(log, 0, producer=2)
    for number in range(11):
        send(log, number)
    return log


def finish(steps: Steps[list[LogSegment]], work: Callable[[], object] | None) -> Sequence[LogSegment]:
    """Run the rest of the steps, from this work on."""
    while True:
        try:
            work = steps.send(work() if work is not None else None)
        except StopIteration as end:
            return list(end.value)


def knows_both(log: UnifiedLog, last: int = 10) -> None:
    assert send(log, 0, producer=2) == 0, "it is known, and not appended"
    assert send(log, last) == last + 1


@pytest.mark.parametrize("recovered", [False, True])
def test_kill_after_retention_keeps_producers_of_removed_segments(folder: Folder, recovered: bool) -> None:
    log = of_two(folder)
    if recovered:  # then no snapshot is waiting to be written
        log = killed(log, folder)
        assert snapshots(folder) == []
    log.advance_log_start(10)
    for segment in complete(log.retain(2000, 12)):
        segment.delete()
    assert log.local_log_start_offset == 10
    knows_both(killed(log, folder))


def test_retention_writes_the_producers_also_while_a_flush_does(folder: Folder) -> None:
    log = of_two(folder)
    work = log.flushes.begin_flush(0)
    assert work is not None
    log.advance_log_start(10)
    for segment in complete(log.retain(2000, 12)):
        segment.delete()
    assert log.local_log_start_offset == 10
    knows_both(killed(log, folder))


@pytest.mark.parametrize("recovered", [False, True])
def test_producers_and_their_records_are_durable_before_segments_are_removed(recovered: bool) -> None:
    disk = MemoryDisk()
    folder = MemoryLogDir(disk).folder("t-0")
    log = of_two(folder)
    if recovered:
        log = killed(log, folder)
    log.advance_log_start(10)
    steps = log.retain(2000, 12)
    work = next(steps)
    assert (log.local_log_start_offset, log.segments[0].base_offset) == (10, 0)
    assert finish(steps, work)
    assert log.recovery_point >= 10
    log.abandon()
    after = MemoryLogDir(disk.after_crash(power_cut=True)).folder("t-0")
    log = open_log(after, config=CONFIG, log_start_offset=10, recovery_point=10)
    assert send(log, 0, producer=2) == 0
    assert log.producers.producers[1].last_sequence >= 8, "its batches from 10 on were not flushed"


def test_kill_while_retention_removes_segments_keeps_the_producers(folder: Folder) -> None:
    log = of_two(folder)
    log.advance_log_start(10)
    removed = complete(log.retain(2000, 12))
    folder.rename(f"{5:020}.log.deleted", f"{5:020}.log")  # the second of two was not renamed yet
    assert [segment.base_offset for segment in removed] == [0, 5]
    log.abandon()
    knows_both(open_log(folder, config=CONFIG))


def test_retention_on_a_full_disk_keeps_the_producers_for_the_next_flush() -> None:
    disk = MemoryDisk()
    folder = MemoryLogDir(disk).folder("t-0")
    log = killed(of_two(folder), folder)
    log.advance_log_start(10)
    disk.capacity = 0
    removed = complete(log.retain(2000, 12))
    assert len(removed) == 2, "the disk needs the space more than the snapshot"
    disk.capacity = None
    for segment in removed:
        segment.delete()
    send(log, 11)
    flush(log)
    knows_both(killed(log, folder), 11)


def test_retention_without_space_for_a_segment_removes_all_but_the_active_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(folder)
    log.update_config(LogConfig(segment_bytes=5 * SIZE, retention_ms=0))

    def full(*_: object) -> None:
        raise StorageFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(LogState, "create_segment", full)
        assert [segment.base_offset for segment in complete(log.retain(10**9, 12))] == [0, 5]
    assert [segment.base_offset for segment in complete(log.retain(10**9, 12))] == [10]


def test_log_truncated_while_retention_writes_the_producers_loses_nothing(folder: Folder) -> None:
    log = of_two(folder)
    log.advance_log_start(10)
    steps = log.retain(2000, 12)
    work = next(steps)
    log.truncate_to(11)
    assert finish(steps, work) == []
    assert snapshots(folder) == []
    assert len(complete(log.retain(2000, 12))) == 2
    assert snapshots(folder) == [10]


def test_flush_of_a_log_truncated_meanwhile_leaves_the_snapshot_of_its_first_segment(folder: Folder) -> None:
    log = of_two(folder)
    work = log.flushes.begin_flush(0)
    assert work is not None
    log.advance_log_start(10)
    assert len(complete(log.retain(2000, 12))) == 2
    log.truncate_to(11)
    work()
    log.flushes.end_flush(work)
    assert snapshots(folder) == [10]


def test_failed_flush_of_records_by_retention_removes_nothing(folder: Folder) -> None:
    log = of_two(folder)
    log.advance_log_start(10)
    steps = log.retain(2000, 12)
    next(steps)
    with pytest.raises(StorageError, match="bad sector"):
        steps.throw(StorageError("bad sector"))
    assert log.failure is not None
    assert complete(log.retain(2000, 12)) == [], "nothing can be made durable"
    assert log.segments[0].base_offset == 0


def test_snapshot_that_could_not_be_written_is_written_by_the_next_flush(folder: Folder) -> None:
    log = written(folder)
    work = log.flushes.begin_flush(0)
    assert work is not None
    work.files_flushed = True
    log.flushes.end_flush(work, StorageFull("no space left"))
    assert snapshots(folder) == []
    send(log, 12)
    flush(log)
    assert snapshots(folder) == [5, 10]


def test_snapshot_of_a_closed_segment_keeps_the_times_of_an_earlier_one(folder: Folder) -> None:
    log = open_log(folder, config=CONFIG)
    send(log, 0, producer=2)
    for number in range(11):
        send(log, number)
    flush(log)
    log = killed(log, folder, lost=[10])
    read = decode_snapshot(log.snapshot_at(10, 9000)(), now_ms=10**9).producers
    assert read[2].seen_ms == 1000, "else it would expire at once"


def test_a_fully_truncated_log_knows_no_producers(folder: Folder) -> None:
    log = written(folder)
    flush(log)
    log.truncate_to(0)
    log.close()
    log = open_log(folder, recover=False, config=CONFIG, log_start_offset=50)
    assert log.log_end_offset == 50
    assert snapshots(folder) == []
    assert not log.producers.producers


def test_half_written_ones_are_cleared_away(folder: Folder) -> None:
    written(folder).close()
    folder.write_small(f"{10:020d}.snapshot.tmp", b"half")
    folder.write_small(f"{10:020d}.txnindex.tmp", b"half")
    folder.write_small(f"{5:020d}.snapshot.deleted", b"gone")
    reports: list[str] = []
    open_log(folder, recover=False, config=CONFIG, report=reports.append)
    assert not reports
    assert {name for name in folder.files() if not name.endswith((".log", "index", ".snapshot"))} == {
        "leader-epoch-checkpoint"
    }


def test_silent_producers_are_not_read_back_for_ever(folder: Folder) -> None:
    log = written(folder)
    log.close()
    log = open_log(folder, recover=False, config=CONFIG, now_ms=500)
    assert log.producers.producers[1].seen_ms == 500  # never in the future
    assert log.producers.expire(499) == 0
    assert log.producers.expire(500) == 1


def test_many_small_batches_of_others_come_between(folder: Folder) -> None:
    config = LogConfig(index_interval_bytes=4096)
    log = open_log(folder, config=config)
    for number in range(5):
        send(log, number)
    for number in range(500):
        put(log, b"%d" % number)
    log.close()
    log = open_log(folder, recover=False, config=config)
    assert [send(log, number) for number in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("reopen", [True, False])
def test_a_gap_is_refused_after_a_restart_too(folder: Folder, reopen: bool) -> None:
    log = written(folder)
    if reopen:
        log.close()
        log = open_log(folder, recover=False, config=CONFIG)
    with pytest.raises(ApiError) as caught:
        send(log, 14)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(read_all(log)) == 12


def test_the_oldest_of_five_is_known_over_a_roll_and_a_stop(folder: Folder) -> None:
    """The snapshot has the last batch only; the others stand in two segments."""
    written(folder, 11).close()
    check_knows_the_last_five(open_log(folder, recover=False, config=CONFIG), 11)


def test_opening_reads_few_batches(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.core.log import batch_scan
    from barnabas.core.message.batch_header import parse_header

    config = LogConfig(index_interval_bytes=4096)
    log = open_log(folder, config=config)
    for number in range(3000):
        send(log, number)
    log.close()
    counted: list[int] = []

    def counting(parse: Callable[..., object]) -> Callable[..., object]:
        def parsed(buf: bytes, pos: int = 0) -> object:
            counted.append(pos)
            return parse(buf, pos)

        return parsed

    monkeypatch.setattr(batch_scan, "parse_header", counting(parse_header))
    check_knows_the_last_five(open_log(folder, recover=False, config=config), 3000)
    assert len(counted) < 33 * 4096 / SIZE + 200
