"""Sequences of idempotent producers on append: the rules of facts B2."""

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import AppendResult, UnifiedLog
from barnabas.core.log.producers.producer_state import ProducerStateEntry, ProducerStates
from barnabas.core.message.batch_header import parse_header
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import StorageError
from barnabas.testing.logs import batch, bytes_of, numbered, open_log, put, read_all

NEWEST = 2**31 - 1


@pytest.fixture
def log() -> UnifiedLog:
    return open_log(MemoryLogDir().folder("t-0"))


def send(
    log: UnifiedLog,
    *values: bytes,
    sequence: int,
    producer: int = 1,
    epoch: int = 0,
    now_ms: int = 1000,
    at: int = 1000,
) -> AppendResult:
    records = numbered(*values, producer=producer, epoch=epoch, sequence=sequence, at=at)
    return log.append(records, leader_epoch=0, now_ms=now_ms)


def refused(log: UnifiedLog, *values: bytes, sequence: int, producer: int = 1, epoch: int = 0) -> ErrorCode:
    before = (log.log_end_offset, log.size_bytes)
    with pytest.raises(ApiError) as caught:
        send(log, *values, sequence=sequence, producer=producer, epoch=epoch)
    assert (log.log_end_offset, log.size_bytes) == before
    return caught.value.code


def test_sequences_follow_each_other_per_producer(log: UnifiedLog) -> None:
    assert send(log, b"a", b"b", sequence=0).base_offset == 0
    assert send(log, b"x", sequence=0, producer=2).base_offset == 2
    assert send(log, b"c", sequence=2).base_offset == 3
    assert put(log, b"without") == 4
    assert send(log, b"d", sequence=3).base_offset == 5
    assert refused(log, b"f", sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, b"e", sequence=4).base_offset == 6
    assert [value for _, value in read_all(log)] == [b"a", b"b", b"x", b"c", b"without", b"d", b"e"]


def test_the_last_five_batches_are_recognised(log: UnifiedLog) -> None:
    for number in range(7):
        send(log, b"%d" % number, b"+", sequence=2 * number)
    for number in range(2, 7):
        again = send(log, b"%d" % number, b"+", sequence=2 * number)
        assert again == (2 * number, 2 * number + 1, -1, 0, 0)
    assert log.log_end_offset == 14
    assert refused(log, b"1", b"+", sequence=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("values", "sequence"), [((b"a",), 0), ((b"b",), 1), ((b"a", b"b", b"c"), 0)])
def test_only_a_whole_batch_is_a_duplicate(log: UnifiedLog, values: tuple[bytes, ...], sequence: int) -> None:
    send(log, b"a", b"b", sequence=0)
    assert refused(log, *values, sequence=sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_has_the_time_of_the_first() -> None:
    log = open_log(MemoryLogDir().folder("t-0"), config=LogConfig(message_timestamp_type="LogAppendTime"))
    assert send(log, b"a", sequence=0, now_ms=5000).log_append_time_ms == 5000
    assert send(log, b"b", sequence=1, now_ms=6000).log_append_time_ms == 6000
    assert send(log, b"a", sequence=0, now_ms=7000) == (0, 0, 5000, 0, 0)


def test_an_unknown_producer_begins_anywhere(log: UnifiedLog) -> None:
    assert send(log, b"a", sequence=77, epoch=3).base_offset == 0
    assert send(log, b"b", sequence=78, epoch=3).base_offset == 1
    assert refused(log, b"c", sequence=0, epoch=3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_with_zero_and_ends_the_old_one(log: UnifiedLog) -> None:
    send(log, b"a", sequence=0)
    assert refused(log, b"b", sequence=1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, b"b", sequence=0, epoch=1).base_offset == 1
    assert refused(log, b"a", sequence=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, b"a", sequence=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, b"b", sequence=0, epoch=1).base_offset == 1


def test_after_the_largest_sequence_comes_zero(log: UnifiedLog) -> None:
    send(log, b"a", sequence=NEWEST - 1)
    across = send(log, b"b", b"c", b"d", sequence=NEWEST)
    assert across.base_offset == 1
    assert send(log, b"b", b"c", b"d", sequence=NEWEST).base_offset == 1
    assert refused(log, b"e", sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, b"e", sequence=2).base_offset == 4


def test_transactional_batches_need_the_transactional_id_in_their_request(log: UnifiedLog) -> None:
    with pytest.raises(ApiError) as caught:
        log.append(numbered(b"a", transactional=True), leader_epoch=0, now_ms=0)
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert log.log_end_offset == 0


def test_failed_append_leaves_no_producer_state() -> None:
    size = len(numbered(b"a"))
    disk = MemoryDisk(capacity=2 * size)
    log = open_log(MemoryLogDir(disk).folder("t-0"))
    send(log, b"a", sequence=0)
    send(log, b"b", sequence=1)
    with pytest.raises(StorageError):
        send(log, b"c", sequence=2)
    disk.capacity = 100 * size
    assert send(log, b"c", sequence=2).base_offset == 2


def test_a_damaged_batch_is_refused_before_its_sequence_counts(log: UnifiedLog) -> None:
    records = numbered(b"a")
    records[-1] ^= 1
    with pytest.raises(ApiError) as caught:
        log.append(records, leader_epoch=0, now_ms=0)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert not log.producers.producers


def test_silent_producers_are_forgotten(log: UnifiedLog) -> None:
    send(log, b"a", sequence=0, producer=1, now_ms=1000)
    send(log, b"a", sequence=0, producer=2, now_ms=2000)
    assert log.producers.expire(1000) == 1
    assert list(log.producers.producers) == [2]
    assert send(log, b"b", sequence=9, producer=1).base_offset == 2


def test_the_longest_silent_go_when_there_are_too_many() -> None:
    states = ProducerStates(limit=20)
    for number in range(100):
        states.put(number, ProducerStateEntry(0, 0, (), seen_ms=number))
        assert len(states.producers) <= 20
    assert set(range(90, 100)) <= states.producers.keys()


def test_batches_without_a_producer_are_no_business_of_it(log: UnifiedLog) -> None:
    log.append(batch(b"a"), leader_epoch=0, now_ms=0)
    log.append(batch(b"a"), leader_epoch=0, now_ms=0)
    assert log.log_end_offset == 2
    assert not log.producers.producers


def test_the_answer_survives_a_rebuilt_batch() -> None:
    """A topic with log-append time stamps each batch again: sequences and producer stay."""
    log = open_log(MemoryLogDir().folder("t-0"), config=LogConfig(message_timestamp_type="LogAppendTime"))
    records = numbered(b"a", producer=9, epoch=2, sequence=5)
    log.append(records, leader_epoch=0, now_ms=0)
    header = parse_header(records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 5)


# --- retriable rejections


class Disk:
    """A log whose disk can be full."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.log = open_log(MemoryLogDir(self.disk).folder("t-0"))

    def full_for(self, *values: bytes, sequence: int, epoch: int = 0) -> None:
        self.disk.capacity = self.disk.used
        with pytest.raises(StorageError):
            send(self.log, *values, sequence=sequence, epoch=epoch)
        records = numbered(*values, producer=1, epoch=epoch, sequence=sequence)
        self.log.producers.reject_retriable(records, ErrorCode.KAFKA_STORAGE_ERROR)
        self.disk.capacity = None


def test_batches_behind_one_rejected_by_a_full_disk_get_the_same_error_until_it_arrives() -> None:
    """With OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka begins an epoch, and sends what is on its way a second time."""
    harness = Disk()
    log = harness.log
    send(log, b"a", sequence=0)
    harness.full_for(b"b", b"c", sequence=1)
    for sequence in (3, 4):
        assert refused(log, b"d", sequence=sequence) is ErrorCode.KAFKA_STORAGE_ERROR
    assert send(log, b"a", sequence=0).base_offset == 0, "what it repeats is still known"
    assert send(log, b"x", sequence=0, producer=2).base_offset == 1, "others continue"
    assert send(log, b"b", b"c", sequence=1).base_offset == 2
    assert refused(log, b"e", sequence=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, b"d", sequence=3).base_offset == 4


def test_an_unknown_producer_does_not_begin_behind_a_rejected_batch() -> None:
    harness = Disk()
    harness.full_for(b"a", sequence=0)
    assert refused(harness.log, b"b", sequence=1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert send(harness.log, b"a", sequence=0).base_offset == 0
    assert send(harness.log, b"b", sequence=1).base_offset == 1


def test_a_new_epoch_does_not_wait_for_a_rejected_batch() -> None:
    harness = Disk()
    send(harness.log, b"a", sequence=0)
    harness.full_for(b"b", sequence=1)
    assert send(harness.log, b"b", sequence=0, epoch=1).base_offset == 1
    assert refused(harness.log, b"c", sequence=2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_rejected_batch_may_arrive_by_replication() -> None:
    harness = Disk()
    send(harness.log, b"a", sequence=0)
    harness.full_for(b"b", sequence=1)
    leader = open_log(MemoryLogDir().folder("t-0"))
    send(leader, b"a", sequence=0)
    send(leader, b"b", sequence=1)
    harness.log.append_replicated(memoryview(bytearray(bytes_of(leader, 1))), now_ms=0)
    assert refused(harness.log, b"d", sequence=3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(harness.log, b"c", sequence=2).base_offset == 2


def test_only_the_next_batch_is_recorded_as_rejected() -> None:
    states = ProducerStates()
    states.reject_retriable(memoryview(b"no batch at all"), ErrorCode.NOT_ENOUGH_REPLICAS)
    states.update(parse_header(numbered(b"a", producer=1, sequence=0)), 0, 0)
    for sequence in (0, 2, 500):
        states.reject_retriable(numbered(b"x", producer=1, sequence=sequence), ErrorCode.NOT_ENOUGH_REPLICAS)
    assert states.check(parse_header(numbered(b"b", producer=1, sequence=1))) is None


def test_the_first_rejected_batch_of_an_unknown_producer_must_arrive_first() -> None:
    states = ProducerStates()
    for sequence in (3, 4, 5, 2):
        states.reject_retriable(numbered(b"x", producer=1, sequence=sequence), ErrorCode.NOT_ENOUGH_REPLICAS)
    for sequence in (3, 4, 5):
        with pytest.raises(ApiError):
            states.check(parse_header(numbered(b"x", producer=1, sequence=sequence)))
    assert states.check(parse_header(numbered(b"x", producer=1, sequence=2))) is None


def test_wrapped_sequences_are_behind_the_rejected_batch() -> None:
    states = ProducerStates()
    states.reject_retriable(numbered(b"x", producer=1, sequence=NEWEST), ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(ApiError) as caught:
        states.check(parse_header(numbered(b"y", producer=1, sequence=0)))
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_rejected_batches_take_bounded_memory() -> None:
    states = ProducerStates(limit=10)
    for producer in range(25):
        states.reject_retriable(numbered(b"x", producer=producer, sequence=0), ErrorCode.NOT_ENOUGH_REPLICAS)
    observed = 0
    for producer in range(25):
        try:
            states.check(parse_header(numbered(b"y", producer=producer, sequence=1)))
        except ApiError:
            observed += 1
    assert 1 <= observed <= 10
