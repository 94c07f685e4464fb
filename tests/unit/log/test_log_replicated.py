"""The batches that a follower's log accepts from its leader, and those that it refuses."""

from collections.abc import Callable

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_header import assign_offset
from barnabas.core.message.control_records import EndTransactionMarker, encode_marker
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import Folder, StorageError
from barnabas.ports.types import Buffer, Position
from barnabas.testing.logs import batch, bytes_of, numbered, open_log, put, read_all


@pytest.fixture
def folder() -> Folder:
    return MemoryLogDir(MemoryDisk(now_ms=lambda: 0)).folder("t-0")


def at(base: int, *values: bytes, epoch: int = 0) -> bytes:
    """Return a batch with the leader's offset and epoch."""
    records = bytearray(batch(*values))
    assign_offset(records, base, epoch)
    return bytes(records)


def take(log: UnifiedLog, *batches: bytes) -> int:
    """Append them together; returns where the log ends."""
    taken = log.append_replicated(memoryview(b"".join(batches)), now_ms=1000)
    assert taken.log_end_offset == log.log_end_offset
    return taken.log_end_offset


def test_batches_come_as_they_are_with_one_write(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(folder)
    sent = at(0, b"a", b"b", epoch=3) + at(2, b"c", epoch=3) + at(3, b"d", epoch=5)
    file = log.segments[-1].file
    writes: list[int] = []
    write = file.append

    def append(_self: object, *buffers: Buffer) -> Position:
        writes.append(len(buffers))
        return write(*buffers)

    monkeypatch.setattr(type(file), "append", append)
    assert log.append_replicated(memoryview(sent), now_ms=7) == (len(sent), 4, 4)
    assert writes == [1]
    assert bytes_of(log, 0) == sent
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert log.epochs.entries == [(3, 0), (5, 3)]


def test_a_batch_that_is_cut_is_left_out(folder: Folder) -> None:
    log = open_log(folder)
    whole, more = at(0, b"a"), at(1, b"b" * 50)
    for cut in (1, 12, 60, 61, len(more) - 1):
        assert log.append_replicated(memoryview(more[:cut]), now_ms=0) == (0, 0, log.log_end_offset)
    assert take(log, whole, more[:70]) == 1
    assert take(log, more) == 2
    assert bytes_of(log, 0) == whole + more


def test_replicated_offset_gaps_are_preserved(folder: Folder) -> None:
    log = open_log(folder)
    assert take(log, at(0, b"a"), at(10, b"b"), at(20, b"c")) == 21
    assert read_all(log) == [(0, b"a"), (10, b"b"), (20, b"c")]
    assert read_all(log, 5) == [(10, b"b"), (20, b"c")]
    log.close()
    reports: list[str] = []
    log = open_log(folder, recover=False, recovery_point=21, report=reports.append)
    assert (log.log_end_offset, reports) == (21, [])
    assert read_all(log) == [(0, b"a"), (10, b"b"), (20, b"c")]
    log.abandon()
    assert open_log(folder, recover=True).log_end_offset == 21


def test_a_hole_too_wide_for_a_segment_begins_another(folder: Folder) -> None:
    log = open_log(folder)
    far = 2**33
    assert take(log, at(far, b"a")) == far + 1
    assert [segment.base_offset for segment in log.segments] == [far]
    assert take(log, at(2 * far, b"b")) == 2 * far + 1
    assert [segment.base_offset for segment in log.segments] == [far, 2 * far]
    assert read_all(log) == [(far, b"a"), (2 * far, b"b")]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (at(0, b"x", epoch=2), "base offset 0"),
        (at(1, b"x", epoch=2)[:-1] + b"!", "CRC-32C"),
        (at(1, b"x", epoch=1), "leader epoch 1 after one of epoch 2"),
        (at(1, b"x", epoch=2)[:16] + b"\1" + at(1, b"x")[17:], "magic 1"),
    ],
)
def test_batch_out_of_order_is_refused_and_earlier_batches_are_appended(folder: Folder, bad: bytes, why: str) -> None:
    log = open_log(folder)
    good = at(0, b"a", epoch=2)
    assert take(log, good, bad) == 1
    with pytest.raises(ApiError, match=why) as refused:
        take(log, bad)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert bytes_of(log, 0) == good


def test_segments_roll_as_the_followers_own_configuration_says(folder: Folder) -> None:
    size = len(at(0, b"x"))
    log = open_log(folder, config=LogConfig(segment_bytes=3 * size))
    assert take(log, *(at(number, b"x") for number in range(8))) == 8
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert len(read_all(log)) == 8


def test_full_indexes_and_time_roll_too(folder: Folder) -> None:
    indexed = LogConfig(index_interval_bytes=0, segment_index_bytes=24)
    log = open_log(folder, config=indexed)
    take(log, *(at(number, b"x") for number in range(9)))
    assert len(log.segments) > 2
    assert len(read_all(log)) == 9
    old, new = bytearray(batch(b"a", at=0)), bytearray(batch(b"b", at=11))
    assign_offset(new, 1, 0)
    timed = open_log(
        MemoryLogDir(MemoryDisk(now_ms=lambda: 0)).folder("t-0"), config=LogConfig(segment_ms=10, segment_bytes=10**6)
    )
    take(timed, bytes(old), bytes(new))
    assert [segment.base_offset for segment in timed.segments] == [0, 1]


def test_producers_follow_without_being_judged(folder: Folder) -> None:
    log = open_log(folder)
    first, wild = bytearray(numbered(b"a", sequence=0)), bytearray(numbered(b"b", sequence=77, transactional=True))
    assign_offset(wild, 1, 0)
    control = encode_marker(
        EndTransactionMarker(committed=True, coordinator_epoch=0), producer_id=1, producer_epoch=0, now_ms=0
    )
    assign_offset(control, 2, 0)
    assert take(log, bytes(first), bytes(wild), bytes(control)) == 3
    producer = log.producers.producers[1]
    assert (producer.last_sequence, len(producer.batches)) == (77, 2)
    following = numbered(b"c", sequence=78)
    assert log.append(following, leader_epoch=1, now_ms=0).base_offset == 3, "the follower may become the leader"


def test_transactions_follow_from_the_middle_of_what_is_sent(folder: Folder) -> None:
    log = open_log(folder)
    sent = b""
    for number, (committed, sequence) in enumerate([(False, 0), (True, 1), (False, 2)]):
        records = numbered(b"a", producer=4, sequence=sequence, transactional=True)
        marker = encode_marker(EndTransactionMarker(committed, 0), producer_id=4, producer_epoch=0, now_ms=0)
        assign_offset(records, 2 * number, 0)
        assign_offset(marker, 2 * number + 1, 0)
        sent += bytes(records) + bytes(marker)
    assert take(log, sent[:-78]) == 5
    assert log.transactions.first_unstable_offset(99) == 4
    assert [(each.first_offset, each.last_offset) for each in log.transactions.aborted(0, 99)] == [(0, 1)]
    assert take(log, sent[-78:]) == 6
    assert log.transactions.first_unstable_offset(99) is None
    assert [(each.first_offset, each.last_offset) for each in log.transactions.aborted(0, 99)] == [(0, 1), (4, 5)]


def test_a_log_out_of_use_takes_nothing(folder: Folder) -> None:
    log = open_log(folder)
    log.fail(StorageError("broken"))
    with pytest.raises(StorageError, match="accepts no appends"):
        take(log, at(0, b"a"))


def test_a_leaders_start_in_the_middle_of_a_batch(folder: Folder) -> None:
    log = open_log(folder)
    log.truncate_fully_and_start_at(4)
    sent = at(3, b"a", b"b", b"c", epoch=2)
    assert take(log, sent, at(6, b"d", epoch=2)) == 7
    assert (log.log_start_offset, log.epochs.entries) == (4, [(2, 4)])
    assert read_all(log) == [(4, b"b"), (5, b"c"), (6, b"d")]
    with pytest.raises(ApiError, match="base offset 3"):
        take(log, sent)


# --- the end that a follower finds


def _cut_tail(folder: Folder, size: int) -> None:
    file = folder.open("00000000000000000000.log")
    file.truncate(size)
    file.close()


@pytest.mark.parametrize(("may_end_early", "end"), [(True, 2), (False, 3)])
def test_a_log_that_others_have_too_ends_where_it_ends(folder: Folder, may_end_early: bool, end: int) -> None:
    log = open_log(folder)
    for value in (b"a", b"b", b"c"):
        put(log, value)
    log.close()
    _cut_tail(folder, 2 * len(at(0, b"a")))
    reports: list[str] = []
    log = open_log(folder, recovery_point=3, may_end_early=may_end_early, report=reports.append)
    assert (log.log_end_offset, log.is_end_lost) == (end, True)
    assert any(f"it continues at {end}" in line for line in reports)


def test_an_empty_folder_ends_where_it_ends(folder: Folder) -> None:
    log = open_log(folder, recovery_point=3, may_end_early=True)
    assert (log.log_start_offset, log.log_end_offset, log.is_end_lost) == (0, 0, True)


# --- epochs


def test_recovery_keeps_where_an_epoch_began_below_what_it_reads(folder: Folder) -> None:
    log = open_log(folder, config=LogConfig(segment_bytes=200))
    for number in range(12):
        put(log, b"x", epoch=3 if number < 2 else 4)
    log.flushes.now()
    base = log.segments[-1].base_offset
    assert base > 2
    put(log, b"x", epoch=5)
    log.abandon()
    log = open_log(folder, config=LogConfig(segment_bytes=200), recovery_point=base)
    assert log.epochs.entries == [(3, 0), (4, 2), (5, 12)]


def test_epochs_of_batches_that_came_back_count_again(folder: Folder) -> None:
    log = open_log(folder)
    put(log, b"a", b"b", epoch=4)
    log.flushes.now()
    folder.write_small("leader-epoch-checkpoint", b"0\n2\n4 0\n5 1\n")
    put(log, b"c", epoch=4)
    log.abandon()
    assert open_log(folder).epochs.entries == [(4, 0)], "what was cut off and came back is of the old epoch"


def _garbage(folder: Folder) -> None:
    folder.write_small("leader-epoch-checkpoint", b"nonsense")


@pytest.mark.parametrize("spoil", [lambda f: f.delete("leader-epoch-checkpoint"), _garbage])
def test_lost_epochs_are_read_from_the_batches(folder: Folder, spoil: Callable[[Folder], None]) -> None:
    log = open_log(folder)
    for number in range(6):
        put(log, b"x", epoch=number // 2)
    log.close()
    spoil(folder)
    assert open_log(folder, recover=False, recovery_point=6).epochs.entries == [(0, 0), (1, 2), (2, 4)]


# --- truncation


def test_truncating_fully_restarts_at_any_offset(folder: Folder) -> None:
    log = open_log(folder, config=LogConfig(segment_bytes=200))
    for number in range(9):
        put(log, b"x", epoch=number // 3)
    log.flushes.now()
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (100, 100, 100)
    assert (log.epochs.entries, log.producers.producers) == ([], {})
    assert take(log, at(100, b"y", epoch=7)) == 101
    log.close()
    log = open_log(folder, recover=False, recovery_point=101)
    assert (log.log_start_offset, read_all(log), log.epochs.entries) == (100, [(100, b"y")], [(7, 100)])


def test_a_truncation_that_fails_takes_the_log_out_of_use(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(folder)
    put(log, b"a")
    put(log, b"b")

    def fails(_self: object, _size: int) -> None:
        raise StorageError("no")

    monkeypatch.setattr(type(log.segments[-1].file), "truncate", fails)
    with pytest.raises(StorageError):
        log.truncate_to(1)
    assert log.failure is not None
    with pytest.raises(StorageError, match="accepts no appends"):
        take(log, at(2, b"c"))
