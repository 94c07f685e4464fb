"""Transactions in one log: what is open, what was aborted, and what is refused (facts B1 to B3)."""

from collections.abc import Callable
from functools import partial

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.batch_scan import BatchIterator
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import AppendResult, UnifiedLog
from barnabas.core.log.producers.producer_state import ProducerStateEntry, ProducerStates
from barnabas.core.log.segment.segment import Segment
from barnabas.core.message.batch_header import parse_header
from barnabas.core.message.batch_reader import open_records
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.control_records import EndTransactionMarker, encode_marker, read_marker
from barnabas.core.traffic.steps import complete
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import File, Folder, StorageError
from barnabas.ports.types import Position
from barnabas.testing.logs import batch, numbered, open_log, put

FAR = 1 << 40
SMALL = LogConfig(segment_bytes=3 * 80)


@pytest.fixture
def log() -> UnifiedLog:
    return open_log(MemoryLogDir().folder("t-0"))


def send(
    log: UnifiedLog,
    *values: bytes,
    producer: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    origin: AppendOrigin = AppendOrigin.TRANSACTION,
) -> int:
    records = numbered(*values, producer=producer, epoch=epoch, sequence=sequence, transactional=True)
    return log.append(records, leader_epoch=0, now_ms=1000, origin=origin).base_offset


def end(log: UnifiedLog, *, committed: bool, producer: int = 1, epoch: int = 0, coordinator: int = 0) -> int:
    return marked(log, committed=committed, producer=producer, epoch=epoch, coordinator=coordinator).base_offset


def marked(
    log: UnifiedLog, *, committed: bool, producer: int = 1, epoch: int = 0, coordinator: int = 0
) -> AppendResult:
    return log.append_marker(producer, epoch, committed, coordinator, leader_epoch=0, now_ms=2000)


def end_in_version_2(log: UnifiedLog, *, epoch: int, committed: bool = True, coordinator: int = 0) -> AppendResult:
    return log.append_marker(1, epoch, committed, coordinator, leader_epoch=0, now_ms=2000, bumps_epoch=True)


def refused(act: Callable[[], object], log: UnifiedLog) -> ErrorCode:
    before = (log.log_end_offset, log.size_bytes, log.transactions.first_unstable_offset(FAR))
    with pytest.raises(ApiError) as caught:
        act()
    assert (log.log_end_offset, log.size_bytes, log.transactions.first_unstable_offset(FAR)) == before
    return caught.value.code


def aborted(log: UnifiedLog, start: int = 0, upto: int | None = None) -> list[tuple[int, int, int]]:
    upto = log.log_end_offset if upto is None else upto
    return [(each.producer_id, each.first_offset, each.last_offset) for each in log.transactions.aborted(start, upto)]


# --- the bytes of a marker


def test_a_marker_has_kafkas_bytes() -> None:
    encoded = encode_marker(
        EndTransactionMarker(committed=True, coordinator_epoch=7), producer_id=4, producer_epoch=2, now_ms=5
    )
    header = parse_header(encoded)
    assert (header.control, header.transactional, header.count, header.base_sequence) == (True, True, 1, -1)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (4, 2, 5)
    assert bytes(encoded[61:]).hex() == "20000000" + "08" + "00000001" + "0c" + "000000000007" + "00"
    records = open_records(encoded, header, NO_CODECS, max_bytes=100)
    assert (records.keys, records.values) == ([b"\0\0\0\1"], [b"\0\0\0\0\0\7"])
    assert read_marker(encoded, header) == (True, 7)


@pytest.mark.parametrize("cut", range(61, 78))
def test_a_cut_marker_is_damaged(cut: int) -> None:
    encoded = encode_marker(
        EndTransactionMarker(committed=False, coordinator_epoch=0), producer_id=4, producer_epoch=0, now_ms=0
    )
    with pytest.raises(ApiError) as caught:
        read_marker(encoded[:cut], parse_header(encoded))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


# --- markers of version 2, which have the epoch after that of the transaction (KIP-890)


def test_marker_of_version_2_ends_a_transaction_of_the_epoch_before_and_fences_it(log: UnifiedLog) -> None:
    send(log, b"a")
    end_in_version_2(log, epoch=1, committed=False)
    assert aborted(log) == [(1, 0, 1)]
    assert refused(lambda: send(log, b"late", sequence=1), log) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, b"next", epoch=1) == 2


def test_marker_of_version_2_with_the_epoch_of_the_open_transaction_is_a_late_repetition(log: UnifiedLog) -> None:
    send(log, b"a")
    end_in_version_2(log, epoch=1)
    send(log, b"next", epoch=1)
    late = ErrorCode.INVALID_PRODUCER_EPOCH
    for committed in (True, False):
        assert refused(lambda committed=committed: end_in_version_2(log, epoch=1, committed=committed), log) is late  # type: ignore[misc]
    assert log.transactions.first_unstable_offset(FAR) is not None
    end_in_version_2(log, epoch=2)
    assert log.transactions.first_unstable_offset(FAR) is None
    assert not aborted(log)


def test_marker_of_version_2_may_be_repeated_while_nothing_is_open(log: UnifiedLog) -> None:
    end_in_version_2(log, epoch=1)
    end_in_version_2(log, epoch=1)
    send(log, b"a", epoch=1)
    end_in_version_2(log, epoch=2)
    end_in_version_2(log, epoch=2, coordinator=1)
    assert refused(lambda: end_in_version_2(log, epoch=1), log) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(lambda: end_in_version_2(log, epoch=3), log) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_marker_of_version_1_has_the_epoch_of_its_transaction(log: UnifiedLog) -> None:
    send(log, b"a", epoch=4)
    assert end(log, committed=True, epoch=4) == 1
    send(log, b"b", epoch=4, sequence=1)
    end_in_version_2(log, epoch=5)
    assert log.transactions.first_unstable_offset(FAR) is None


# --- what is open


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark(log: UnifiedLog) -> None:
    put(log, b"plain")
    assert log.transactions.first_unstable_offset(FAR) is None
    assert send(log, b"a", b"b") == 1
    assert send(log, b"c", sequence=2) == 3
    assert log.transactions.first_unstable_offset(FAR) == 1
    assert end(log, committed=True) == 4
    assert log.transactions.first_unstable_offset(4) == 1
    assert log.transactions.first_unstable_offset(5) is None
    assert not log.transactions.aborted(0, FAR)


def test_the_oldest_open_transaction_counts(log: UnifiedLog) -> None:
    for producer in range(3):
        send(log, b"x", producer=producer)
    end(log, committed=True, producer=1)
    assert log.transactions.first_unstable_offset(FAR) == 0
    end(log, committed=False, producer=0)
    assert log.transactions.first_unstable_offset(FAR) == 2
    assert log.transactions.first_unstable_offset(4) == 2
    end(log, committed=True, producer=2)
    assert log.transactions.first_unstable_offset(FAR) is None


def test_markers_that_wait_for_replicas_hold_back_what_began_before_them(log: UnifiedLog) -> None:
    send(log, b"x", producer=1)
    send(log, b"x", producer=2)
    assert end(log, committed=True, producer=2) == 2
    assert end(log, committed=True, producer=1) == 3
    assert log.transactions.first_unstable_offset(2) == 0
    assert log.transactions.first_unstable_offset(3) == 0
    assert log.transactions.first_unstable_offset(4) is None


def test_any_number_of_ended_transactions_may_wait_for_replicas(log: UnifiedLog) -> None:
    for number in range(3000):
        send(log, b"x", sequence=number)
        end(log, committed=bool(number % 2))
    states = log.producers
    assert len(states.open._not_replicated._ended) <= 1024
    assert log.transactions.first_unstable_offset(0) == 0
    assert log.transactions.first_unstable_offset(2) in (0, 2)
    stable = 0
    for high_watermark in range(0, 6001, 7):
        found = log.transactions.first_unstable_offset(high_watermark)
        assert found is not None
        assert stable <= found <= high_watermark  # never too bold, never back
        stable = found
    assert log.transactions.first_unstable_offset(6000) is None


def test_a_marker_without_a_transaction_changes_nothing_for_readers(log: UnifiedLog) -> None:
    put(log, b"plain")
    assert end(log, committed=False, producer=77, epoch=3) == 1
    assert log.transactions.first_unstable_offset(FAR) is None
    assert not log.transactions.aborted(0, FAR)
    assert log.producers.producers[77].epoch == 3


# --- what was aborted


def test_aborted_transactions_are_returned_for_the_offsets_that_they_touch(log: UnifiedLog) -> None:
    send(log, b"a", producer=1)  # 0
    send(log, b"b", producer=2)  # 1
    end(log, committed=False, producer=1)  # 2
    put(log, b"plain")  # 3
    end(log, committed=False, producer=2)  # 4
    send(log, b"c", producer=1, sequence=1)  # 5
    end(log, committed=False, producer=1)  # 6
    assert aborted(log) == [(1, 0, 2), (2, 1, 4), (1, 5, 6)]
    assert aborted(log, 0, 1) == [(1, 0, 2)]
    assert aborted(log, 3, 4) == [(2, 1, 4)]
    assert aborted(log, 5) == [(1, 5, 6)]
    assert aborted(log, 7) == []


def test_the_index_has_kafkas_bytes() -> None:
    folder = MemoryLogDir().folder("t-0")
    log = open_log(folder)
    put(log, b"plain")
    assert f"{0:020d}.txnindex" not in folder.files()
    send(log, b"a", producer=4)
    send(log, b"b", producer=5)
    end(log, committed=False, producer=4)
    written = folder.open(f"{0:020d}.txnindex", create=False).read(0, 100)
    assert written.hex() == "0000" + "".join(number.to_bytes(8, "big").hex() for number in (4, 1, 3, 2))


def test_a_read_returns_only_aborted_transactions_near_it() -> None:
    log = open_log(MemoryLogDir().folder("t-0"), config=LogConfig(index_interval_bytes=100))
    for number in range(200):
        send(log, b"x" * 50, sequence=number)
        end(log, committed=False)
    found = log.read(200, max_bytes=2000, limit=400)
    near = log.transactions.aborted_in(200, found)
    assert [each.first_offset for each in near][:3] == [200, 202, 204]
    assert len(near) < 20


def test_an_aborted_transaction_is_found_from_every_segment_that_it_touches() -> None:
    log = open_log(MemoryLogDir().folder("t-0"), config=LogConfig(segment_bytes=200))
    send(log, b"first", producer=9)
    for number in range(40):
        put(log, b"%d" % number)
    assert len(log.segments) > 5
    end(log, committed=False, producer=9)
    for start in range(42):
        assert aborted(log, start, start + 1) == [(9, 0, 41)]
    assert aborted(log, 42, FAR) == []


# --- what is refused


def test_invalid_transactional_batch_is_refused(log: UnifiedLog) -> None:
    plain = partial(numbered, b"x", sequence=1)
    send(log, b"a")
    assert refused(lambda: log.append(plain(), leader_epoch=0, now_ms=0), log) is ErrorCode.INVALID_TXN_STATE
    assert refused(lambda: send(log, b"b", sequence=2), log) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    newer = lambda: log.append(numbered(b"x", epoch=1), leader_epoch=0, now_ms=0)  # noqa: E731
    assert refused(newer, log) is ErrorCode.INVALID_TXN_STATE
    end(log, committed=True)
    log.append(plain(), leader_epoch=0, now_ms=0)
    send(log, b"c", epoch=2)
    assert refused(lambda: send(log, b"b", sequence=2, epoch=1), log) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_clients_write_no_control_batches_and_no_nameless_transactions(log: UnifiedLog) -> None:
    forged = encode_marker(
        EndTransactionMarker(committed=True, coordinator_epoch=0), producer_id=1, producer_epoch=0, now_ms=0
    )
    without_id = numbered(b"x", producer=-1, epoch=-1, sequence=-1, transactional=True)
    for records in (memoryview(forged), without_id):
        for origin in AppendOrigin:
            act = partial(log.append, records, leader_epoch=0, now_ms=0, origin=origin)
            assert refused(act, log) is ErrorCode.INVALID_RECORD


def test_late_coordinators_and_late_markers_are_refused(log: UnifiedLog) -> None:
    send(log, b"a", epoch=5)
    assert refused(lambda: end(log, committed=True, epoch=4), log) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, committed=True, epoch=5, coordinator=3)
    late = lambda: end(log, committed=False, epoch=5, coordinator=2)  # noqa: E731
    assert refused(late, log) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end(log, committed=False, epoch=6, coordinator=3)
    assert refused(lambda: send(log, b"b", epoch=5, sequence=1), log) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, b"b", epoch=6) == 3


def test_a_transaction_continues_in_a_newer_epoch(log: UnifiedLog) -> None:
    send(log, b"a", epoch=0)
    send(log, b"b", epoch=1)
    assert log.transactions.first_unstable_offset(FAR) == 0
    end(log, committed=False, epoch=1)
    assert log.transactions.first_unstable_offset(FAR) is None
    assert aborted(log) == [(1, 0, 2)]


def test_the_brokers_own_batches_have_no_sequence(log: UnifiedLog) -> None:
    for _ in range(3):
        send(log, b"position", sequence=-1, origin=AppendOrigin.BROKER)
    assert log.transactions.first_unstable_offset(FAR) == 0
    assert log.producers.producers[1].batches == ()
    end(log, committed=False)
    assert aborted(log) == [(1, 0, 3)]
    assert refused(lambda: send(log, b"x", sequence=-1), log) is ErrorCode.INVALID_RECORD


def test_a_batch_of_a_transaction_that_is_sent_again_is_not_appended_again(log: UnifiedLog) -> None:
    send(log, b"a", b"b")
    assert send(log, b"a", b"b") == 0
    end(log, committed=True)
    assert send(log, b"a", b"b") == 0
    assert log.transactions.first_unstable_offset(FAR) is None
    assert log.log_end_offset == 3


def test_markers_have_the_time_of_the_topic() -> None:
    log = open_log(MemoryLogDir().folder("t-0"), config=LogConfig(message_timestamp_type="LogAppendTime"))
    send(log, b"a")
    assert marked(log, committed=True).log_append_time_ms == 2000
    position = log.read(1, max_bytes=1, limit=2).records
    assert not isinstance(position, bytes)
    assert parse_header(position.read()).log_append_time


# --- who is remembered


def test_producers_in_a_transaction_are_never_forgotten(log: UnifiedLog) -> None:
    send(log, b"a", producer=1)
    log.append(numbered(b"b", producer=2), leader_epoch=0, now_ms=1000)
    assert log.producers.expire(FAR) == 1
    assert list(log.producers.producers) == [1]
    end(log, committed=True)
    assert log.producers.expire(FAR) == 1
    assert not log.producers.producers


def test_there_is_room_for_those_in_a_transaction() -> None:
    states = ProducerStates(limit=10)
    for number in range(50):
        states.put(number, ProducerStateEntry(0, 0, (), seen_ms=number, txn_first_offset=number))
    for number in range(50, 150):
        states.put(number, ProducerStateEntry(0, 0, (), seen_ms=0))
        assert number in states.producers
    assert set(range(50)) <= states.producers.keys()
    assert len(states.producers) <= 60


def test_plain_messages_are_no_business_of_it(log: UnifiedLog) -> None:
    log.append(batch(b"a"), leader_epoch=0, now_ms=0, origin=AppendOrigin.TRANSACTION)
    assert not log.producers.producers


# --- files that crashes leave


def committed_after_aborted(folder: Folder) -> None:
    """In the first segment of a closed log: at 0 what is aborted at 1, at 2 what is committed at 3."""
    log = open_log(folder, config=LogConfig(segment_bytes=4 * 80))
    send(log, b"a")
    end(log, committed=False)
    send(log, b"b", sequence=1)
    end(log, committed=True)
    put(log, b"plain")
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    log.close()


@pytest.mark.parametrize("left_over", ["the old index", "the new index", "no index"])
def test_an_exchange_of_segments_that_was_interrupted(left_over: str) -> None:
    folder = MemoryLogDir().folder("t-0")
    committed_after_aborted(folder)
    name, index = f"{0:020d}.log", f"{0:020d}.txnindex"
    content = folder.open(name).read(0, 1000)
    folder.rename(name, name + ".deleted")
    cleaned = folder.open(name + ".swap")
    cleaned.append(content[len(numbered(b"a")) + 78 :])
    cleaned.close()
    if left_over != "the old index":
        folder.delete(index)
    if left_over == "the new index":
        folder.rename(name + ".swap", name)
        wrong = folder.open(index + ".swap")
        wrong.append(b"\0" * 34)
        wrong.close()
    log = open_log(folder, recover=False)
    assert aborted(log) == []
    assert log.segments[0].size == len(content) - len(numbered(b"a")) - 78
    assert not any(left.endswith((".swap", ".deleted")) for left in folder.files())


@pytest.mark.parametrize("content", [b"", b"\0", b"\xff" * 34, b"\0" * 68])
def test_a_damaged_transaction_index_is_reported_and_rebuilt(content: bytes) -> None:
    folder = MemoryLogDir().folder("t-0")
    committed_after_aborted(folder)
    name = f"{0:020d}.txnindex"
    file = folder.open(name)
    good = file.read(0, 100)
    if content:
        file.truncate(0)
    file.append(content or b"x" * 10)
    file.close()
    reports: list[str] = []
    log = open_log(folder, recover=False, report=reports.append)
    assert aborted(log) == [(1, 0, 1)]
    (report,) = reports
    assert f"{name} is corrupt and is rebuilt" in report
    assert aborted(log) == [(1, 0, 1)]
    assert len(reports) == 1
    assert folder.open(name).read(0, 100) == good


def six_aborted(folder: Folder) -> list[tuple[int, int, int]]:
    """Make a log of four segments, each with an index and a snapshot; return the expected index entries."""
    log = open_log(folder, config=SMALL)
    for number in range(6):
        send(log, b"gone", sequence=number)
        end(log, committed=False)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    log.close()
    return [(1, first, first + 1) for first in range(0, 12, 2)]


def spoil(folder: Folder, *suffixes: str) -> list[str]:
    """Fill every file of these kinds with 0xff; return their names."""
    names = [name for name in folder.files() if name.endswith(suffixes)]
    for name in names:
        file = folder.open(name)
        size = file.size
        file.truncate(0)
        file.append(b"\xff" * size)
        file.flush()
        file.close()
    return names


def test_a_transaction_index_missing_among_others_is_rebuilt_at_once() -> None:
    """The next start would find nothing wrong beside it, and take what was aborted for committed."""
    folder = MemoryLogDir().folder("t-0")
    expected = six_aborted(folder)
    for name in list(folder.files()):
        if name.endswith((".index", ".timeindex", ".txnindex")):
            folder.delete(name)
    open_log(folder, recover=False, config=SMALL).close()
    assert aborted(open_log(folder, recover=False, config=SMALL)) == expected


def test_transaction_indexes_are_rebuilt_with_damaged_snapshots() -> None:
    folder = MemoryLogDir().folder("t-0")
    expected = six_aborted(folder)
    newest = f"{12:020d}.snapshot"
    good = folder.read_small(newest)
    assert len(spoil(folder, ".txnindex", ".snapshot")) == 8
    folder.write_small(newest, good)  # a start reads no other
    assert aborted(open_log(folder, recover=False, config=SMALL)) == expected


def test_transaction_indexes_without_snapshots_are_rebuilt_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = MemoryLogDir().folder("t-0")
    expected = six_aborted(folder)
    for name in list(folder.files()):
        if name.endswith(".snapshot"):
            folder.delete(name)
    assert len(spoil(folder, ".txnindex")) == 4
    log = open_log(folder, recover=False, config=SMALL)
    read: list[int] = []
    batches = Segment.batches

    def counted(self: Segment, *place: Position, check_crc: bool = False) -> BatchIterator:
        read.append(self.base_offset)
        return batches(self, *place, check_crc=check_crc)

    monkeypatch.setattr(Segment, "batches", counted)
    assert aborted(log) == expected
    assert read == [0, 3, 6, 9]


def test_a_transaction_index_is_rebuilt_while_a_snapshot_is_being_written() -> None:
    folder = MemoryLogDir().folder("t-0")
    log = open_log(folder, config=SMALL)
    for number in range(6):
        send(log, b"gone", sequence=number)
        end(log, committed=False)
    work = log.flushes.begin_flush()
    assert work is not None
    assert len(work.snapshots) == 3
    assert spoil(folder, ".txnindex")
    assert aborted(log) == [(1, first, first + 1) for first in range(0, 12, 2)]
    work()
    log.flushes.end_flush(work)
    assert set(work.snapshots) <= set(folder.files())


def test_a_transaction_index_that_could_not_be_rebuilt_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = MemoryLogDir().folder("t-0")
    expected = six_aborted(folder)
    assert len(spoil(folder, ".txnindex")) == 4
    log = open_log(folder, recover=False, config=SMALL)
    with monkeypatch.context() as patch:
        file = type(log.segments[0].file)
        read = file.read

        def fails(self: File, position: int, size: int) -> bytes:
            if self.name.endswith(".log"):
                raise StorageError("the disk does not answer")
            return read(self, position, size)

        patch.setattr(file, "read", fails)
        with pytest.raises(StorageError):
            aborted(log)
    assert aborted(log) == expected


def test_a_rebuilt_transaction_index_is_durable() -> None:
    """The segment was flushed long ago, and is not flushed again."""
    disk = MemoryDisk()
    folder = MemoryLogDir(disk).folder("t-0")
    expected = six_aborted(folder)
    spoil(folder, ".txnindex")
    log = open_log(folder, recover=False, config=SMALL)
    assert aborted(log) == expected
    left = MemoryLogDir(disk.after_crash(power_cut=True)).folder("t-0")
    assert aborted(open_log(left, recovery_point=log.recovery_point, config=SMALL)) == expected


def test_entries_of_an_unwritable_transaction_index_stay_in_memory() -> None:
    disk = MemoryDisk()
    folder = MemoryLogDir(disk).folder("t-0")
    log = open_log(folder)
    send(log, b"a")
    send(log, b"b", sequence=1)
    disk.capacity = sum(file.size for file in folder.files().values()) + 78  # room for the marker alone
    end(log, committed=False)
    assert aborted(log) == [(1, 0, 2)]
    disk.capacity += 10_000
    send(log, b"c", sequence=2)
    end(log, committed=False)
    assert aborted(log) == [(1, 0, 2), (1, 3, 4)]
    log.close()
    again = open_log(folder, recover=False)
    assert aborted(again) == [(1, 0, 2), (1, 3, 4)]


def test_a_marker_that_cannot_be_written_ends_nothing() -> None:
    disk = MemoryDisk()
    folder = MemoryLogDir(disk).folder("t-0")
    log = open_log(folder)
    send(log, b"a")
    disk.capacity = sum(file.size for file in folder.files().values()) + 77
    with pytest.raises(StorageError):
        end(log, committed=False)
    assert (log.transactions.first_unstable_offset(FAR), log.log_end_offset) == (0, 1)
    disk.capacity += 10_000
    end(log, committed=False)
    assert aborted(log) == [(1, 0, 1)]


def test_old_segments_take_their_indexes_with_them() -> None:
    folder = MemoryLogDir().folder("t-0")
    log = open_log(folder, config=LogConfig(segment_bytes=4 * 80))
    send(log, b"a")
    end(log, committed=False)
    for number in range(4):
        put(log, b"%d" % number)
    log.advance_log_start(4)
    (removed, *_) = complete(log.retain(0, log.log_end_offset))
    assert f"{0:020d}.txnindex.deleted" in folder.files()
    removed.delete()
    assert not any(".txnindex" in name for name in folder.files())


def test_a_fully_truncated_log_reads_its_producers_again_at_a_truncation() -> None:
    folder = MemoryLogDir().folder("t-0")
    log = open_log(folder)
    send(log, b"a")
    log.abandon()
    again = open_log(folder, log_start_offset=10)
    assert (again.log_start_offset, again.log_end_offset) == (10, 10)
    put(again, b"plain")
    send(again, b"b", producer=2)
    again.truncate_to(11)
    assert again.transactions.first_unstable_offset(FAR) is None
    assert not again.producers.producers


def test_aborted_transactions_are_durable_with_the_records() -> None:
    """A start believes the index of a segment below the recovery point."""
    disk = MemoryDisk()
    log = open_log(MemoryLogDir(disk).folder("t-0"), config=LogConfig(segment_bytes=200))
    send(log, b"gone", producer=7)
    end(log, committed=False, producer=7)
    log.flushes.now()
    put(log, b"in the next segment")
    left = MemoryLogDir(disk.after_crash(power_cut=True)).folder("t-0")
    assert left.files()[f"{0:020d}.txnindex"].size == 34
    assert aborted(open_log(left, recovery_point=2)) == [(7, 0, 1)]


def test_a_marker_that_is_not_durable_leaves_its_transaction_undecided_on_the_disk(log: UnifiedLog) -> None:
    send(log, b"first")
    log.flushes.now()
    end(log, committed=True)
    assert log.transactions.first_unstable_offset(FAR) is None
    assert log.transactions.first_undecided_on_disk == 0
    log.flushes.now()
    assert log.transactions.first_undecided_on_disk is None
