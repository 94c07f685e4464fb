"""Produce and Fetch as the broker's callers see them."""

from collections.abc import Callable

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryRegion
from barnabas.ports.broker_api.envelope import Caller, Request
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.topics import CreateTopics, DeleteRecords, DeleteRecordsPartition, DeleteTopics, NewTopic
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkers
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.scheduler import Outcome
from barnabas.ports.storage import StorageError
from barnabas.ports.types import Offset, TopicPartition
from barnabas.testing.logs import numbered
from barnabas.testing.manual_broker import HERE, ITSELF, ManualBroker, batch, fetch, produce


@pytest.fixture
def broker() -> ManualBroker:
    simulated = ManualBroker()
    simulated.create("t", 2)
    return simulated


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_produced_records_are_fetched_unchanged(broker: ManualBroker, acks: int) -> None:
    first = broker.produce("t", b"a", b"b", acks=acks)
    second = broker.produce("t", b"c", acks=acks)
    assert (first.error, first.base_offset, second.base_offset) == (ErrorCode.NONE, 0, 2)
    assert (first.log_append_time_ms, first.log_start_offset) == (-1, 0)
    assert broker.values("t") == [b"a", b"b", b"c"]
    assert broker.values("t", 1) == [b"b", b"c"]
    assert broker.values("t", partition=1) == []
    answer = broker.fetch("t").partitions[0]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(broker: ManualBroker, acks: int) -> None:
    result = broker.produce("t", b"a", acks=acks)
    assert (result.error, result.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert broker.values("t") == []


def test_a_transactional_id_makes_no_transaction_of_plain_messages(broker: ManualBroker) -> None:
    result = broker.ask(produce("t", b"a", transactional_id="x")).partitions[0]
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)
    assert broker.fetch("t").partitions[0].last_stable_offset == 1


def test_one_partition_that_fails_leaves_the_others_alone(broker: ManualBroker) -> None:
    damaged = batch(b"damaged")
    damaged[-1] ^= 1
    entries = [
        ProducePartition("t", 0, batch(b"a")),
        ProducePartition("t", 9, batch(b"b")),
        ProducePartition("nowhere", 0, batch(b"c")),
        ProducePartition("t", 1, damaged),
        ProducePartition("t", 1, batch(b"e")),
    ]
    results = broker.ask(Produce(partitions=entries, acks=-1)).partitions
    assert [result.error for result in results] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NONE,
    ]
    assert (broker.values("t"), broker.values("t", partition=1)) == ([b"a"], [b"e"])


def test_min_insync_replicas_is_capped_by_replication_factor(broker: ManualBroker) -> None:
    """Kafka 4 does this, too: else a topic with one replica could not be written where the default is 2."""
    broker.create("safe", min_insync_replicas="2")
    assert broker.produce("safe", b"a", acks=-1).error is ErrorCode.NONE


def test_a_batch_above_the_maximum_is_refused(broker: ManualBroker) -> None:
    broker.create("small", max_message_bytes="100")
    assert broker.produce("small", b"x" * 100).error is ErrorCode.MESSAGE_TOO_LARGE
    assert broker.produce("small", b"x").error is ErrorCode.NONE


def test_out_of_range(broker: ManualBroker) -> None:
    broker.produce("t", b"a", b"b")
    for offset in (3, -1, 10**12):
        answer = broker.fetch("t", offset).partitions[0]
        assert (answer.error, answer.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert broker.fetch("t", 2).partitions[0].error is ErrorCode.NONE
    assert broker.fetch("t", 0, 9).partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    negative = broker.ask(Fetch(partitions=[FetchPartition("t", 0, 0, -1)], max_wait_ms=0))
    assert negative.partitions[0].error is ErrorCode.INVALID_FETCH_SIZE


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, ErrorCode.NONE), (0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_fetch_checks_current_leader_epoch(broker: ManualBroker, epoch: int, expected: ErrorCode) -> None:
    request = Fetch(partitions=[FetchPartition("t", 0, 0, 100, current_leader_epoch=epoch)], max_wait_ms=0)
    assert broker.ask(request).partitions[0].error is expected


def test_an_older_leader_epoch_is_fenced(broker: ManualBroker) -> None:
    broker.node.state.replicas.partitions[("t", 0)].leader_epoch = 5
    request = Fetch(partitions=[FetchPartition("t", 0, 0, 100, current_leader_epoch=4)], max_wait_ms=0)
    assert broker.ask(request).partitions[0].error is ErrorCode.FENCED_LEADER_EPOCH


# --- sizes


def test_the_first_partition_with_data_gives_a_whole_batch_however_small_the_limits(broker: ManualBroker) -> None:
    broker.produce("t", b"x" * 1000, partition=1)
    broker.produce("t", b"y" * 1000, partition=1)
    entries = [FetchPartition("t", 0, 0, 10), FetchPartition("t", 1, 0, 10)]
    empty, whole = broker.ask(Fetch(partitions=entries, max_bytes=10, max_wait_ms=0)).partitions
    assert _size(empty.records) == 0
    assert 1000 < _size(whole.records) < 2000


def test_the_total_limit_counts_in_the_order_of_the_request(broker: ManualBroker) -> None:
    for partition in (0, 1):
        broker.produce("t", b"x" * 1000, partition=partition)
    size = _size(broker.fetch("t").partitions[0].records)
    for order in ((0, 1), (1, 0)):
        entries = [FetchPartition("t", partition, 0, 1 << 20) for partition in order]
        first, second = broker.ask(Fetch(partitions=entries, max_bytes=size, max_wait_ms=0)).partitions
        assert (first.partition, second.partition) == order
        assert (_size(first.records), _size(second.records)) == (size, 0)


def test_the_brokers_own_limit_counts_too() -> None:
    broker = ManualBroker(fetch_max_bytes=1024)
    broker.create("t")
    for _ in range(10):
        broker.produce("t", b"x" * 500)
    assert _size(broker.fetch("t").partitions[0].records) <= 1024


def test_zstd_batches_are_withheld_from_clients_without_zstd(broker: ManualBroker) -> None:
    broker.produce("t", b"plain")
    plain = _size(broker.fetch("t").partitions[0].records)
    packed = Produce(partitions=[ProducePartition("t", 0, batch(b"packed", codec="zstd"))])
    assert broker.ask(packed).partitions[0].error is ErrorCode.NONE
    assert _size(broker.fetch("t", allows_zstd=False).partitions[0].records) == plain
    assert broker.fetch("t", 1, allows_zstd=False).partitions[0].error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    old = Produce(partitions=[ProducePartition("t", 0, batch(b"packed", codec="zstd"))], allows_zstd=False)
    assert broker.ask(old).partitions[0].error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_records_readable_by_old_clients_are_not_copied(broker: ManualBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        broker.produce("t", b"plain" * (number + 1))
    whole = broker.fetch("t").partitions[0].records
    assert isinstance(whole, MemoryRegion)
    looked: list[int] = []
    read = MemoryRegion.read

    def counted(region: MemoryRegion, start: int = 0, size: int | None = None) -> bytes:
        content = read(region, start, size)
        looked.append(len(content))
        return content

    monkeypatch.setattr(MemoryRegion, "read", counted)
    same = broker.fetch("t", allows_zstd=False).partitions[0].records
    assert isinstance(same, MemoryRegion)
    assert (same.position, same.size) == (whole.position, whole.size)
    assert sum(looked) < 5 * 61
    packed = Produce(partitions=[ProducePartition("t", 0, batch(b"packed", codec="zstd"))])
    assert broker.ask(packed).partitions[0].error is ErrorCode.NONE
    before = broker.fetch("t", allows_zstd=False).partitions[0].records
    assert isinstance(before, MemoryRegion)
    assert (before.position, before.size) == (whole.position, whole.size)


def test_fetch_without_zstd_support_stops_at_header_limit(
    broker: ManualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.core.replica.leader.fetch_params.HEADERS_MAX", 3)
    for _ in range(5):
        broker.produce("t", b"plain")
    whole = _size(broker.fetch("t").partitions[0].records)
    assert _size(broker.fetch("t", allows_zstd=False).partitions[0].records) == whole * 3 // 5
    assert _size(broker.fetch("t", 3, allows_zstd=False).partitions[0].records) == whole * 2 // 5


# --- waiting


def test_a_fetch_waits_for_data(broker: ManualBroker) -> None:
    waiting = broker.submit(fetch("t", max_wait_ms=500))
    broker.scheduler.advance(499)
    assert not waiting
    broker.produce("t", b"a")
    assert _size(waiting[0].partitions[0].records) > 0
    broker.scheduler.advance(1000)
    assert len(waiting) == 1


def test_a_fetch_waits_no_longer_than_it_says(broker: ManualBroker) -> None:
    waiting = broker.submit(fetch("t", max_wait_ms=500))
    broker.scheduler.advance(500)
    answer = waiting[0].partitions[0]
    assert (answer.error, _size(answer.records), answer.high_watermark) == (ErrorCode.NONE, 0, 0)


def test_a_fetch_waits_for_min_bytes_in_all_partitions_together(broker: ManualBroker) -> None:
    entries = [FetchPartition("t", 0, 0, 1 << 20), FetchPartition("t", 1, 0, 1 << 20)]
    waiting = broker.submit(Fetch(partitions=entries, max_wait_ms=500, min_bytes=400))
    broker.produce("t", b"x" * 100)
    broker.produce("t", b"x" * 10, partition=1)
    assert not waiting
    broker.produce("t", b"x" * 100, partition=1)
    first, second = waiting[0].partitions
    assert _size(first.records) > 100
    assert _size(second.records) > 110


def test_data_beyond_the_limit_of_a_partition_does_not_count(broker: ManualBroker) -> None:
    waiting = broker.submit(fetch("t", partition_bytes=200, max_wait_ms=500, min_bytes=1000))
    for _ in range(10):
        broker.produce("t", b"x" * 500)
    assert not waiting
    broker.scheduler.advance(500)
    assert len(waiting) == 1


def test_an_error_is_answered_at_once(broker: ManualBroker) -> None:
    entries = [FetchPartition("t", 0, 0, 100), FetchPartition("t", 9, 0, 100)]
    assert len(broker.submit(Fetch(partitions=entries, max_wait_ms=500))) == 1
    assert len(broker.submit(Fetch(partitions=[], max_wait_ms=500))) == 1
    assert len(broker.submit(fetch("t", max_wait_ms=-5))) == 1


def test_a_fetch_ends_when_its_topic_is_deleted(broker: ManualBroker) -> None:
    waiting = broker.submit(fetch("t", max_wait_ms=500))
    broker.ask(DeleteTopics(names=["t"]))
    assert waiting[0].partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_ends_when_the_log_starts_after_its_offset(broker: ManualBroker) -> None:
    broker.produce("t", b"a")
    waiting = broker.submit(fetch("t", max_wait_ms=500, min_bytes=10_000))
    broker.ask(DeleteRecords(partitions=[DeleteRecordsPartition(topic="t", partition=0, offset=1)]))
    assert waiting[0].partitions[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_does_not_wait_for_more_when_the_log_has_rolled_on(broker: ManualBroker) -> None:
    broker.create("rolling", segment_bytes="1000")
    broker.produce("rolling", b"x" * 600)
    waiting = broker.submit(fetch("rolling", max_wait_ms=500, min_bytes=100_000))
    assert not waiting
    broker.produce("rolling", b"x" * 600)
    assert _size(waiting[0].partitions[0].records) > 0


def test_waiting_request_ends_with_its_connection(broker: ManualBroker) -> None:
    other = Caller(host="127.0.0.1", connection=2)
    mine, others = broker.submit(fetch("t", max_wait_ms=10**9)), broker.submit(fetch("t", max_wait_ms=10**9), other)
    broker.node.state.gone(HERE.connection)
    assert (len(mine), len(others)) == (1, 0)
    assert len(broker.node.state.replicas.purgatory) == 1


def test_stopping_answers_what_waits(broker: ManualBroker) -> None:
    waiting = broker.submit(fetch("t", max_wait_ms=10**9))
    broker.stop()
    assert len(waiting) == 1


def test_many_waiting_fetches_do_not_slow_other_partitions(broker: ManualBroker) -> None:
    for _ in range(1000):
        broker.submit(fetch("t", max_wait_ms=10**9))
    watched: list[object] = []
    broker.node.state.replicas.partitions[("t", 0)].log = _Untouchable(watched)  # type: ignore[assignment]  # a spy
    broker.produce("t", b"a", partition=1)
    assert not watched


# --- durable answers


def test_an_answer_waits_for_the_flush_that_its_append_made_due(broker: ManualBroker) -> None:
    broker.create("durable", flush_messages="2")
    assert broker.produce("durable", b"a").error is ErrorCode.NONE
    waiting = broker.submit(produce("durable", b"b"))
    assert not waiting, "it is being flushed"
    broker.scheduler.run_pending()
    assert waiting[0].partitions[0].base_offset == 1
    assert broker.node.state.replicas.partitions[("durable", 0)].log.recovery_point == 2


def test_records_appended_during_a_flush_are_flushed_too(broker: ManualBroker) -> None:
    broker.create("durable", flush_messages="2")
    first = broker.submit(produce("durable", b"a", b"b"))
    second = broker.submit(produce("durable", b"c", acks=-1))
    assert not first + second
    broker.scheduler.run_pending()
    assert (len(first), len(second)) == (1, 1)
    assert broker.node.state.replicas.partitions[("durable", 0)].log.recovery_point == 3


def test_a_flush_that_fails_is_answered_as_such(broker: ManualBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create("durable", flush_messages="1")
    broker.scheduler.run_pending()

    def fail(_work: object, done: Callable[[Outcome[None]], None]) -> None:
        broker.scheduler.call_soon(lambda: done(Outcome(error=StorageError("the disk is gone"))))

    monkeypatch.setattr(broker.scheduler, "offload", fail)
    assert broker.produce("durable", b"a").error is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.produce("durable", b"b").error is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.fetch("durable").partitions[0].error is ErrorCode.NONE


# --- trouble


def test_a_full_disk_is_reported_and_the_broker_stays_readable() -> None:
    disk = MemoryDisk()
    broker = ManualBroker(disk=disk)
    broker.create("t")
    broker.produce("t", b"before")
    disk.capacity = disk.used
    for _ in range(3):
        result = broker.produce("t", b"no room")
        assert (result.error, result.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert result.error_message
    assert len([line for line in broker.reports if "t-0" in line]) == 1, "once, not for every request"
    assert broker.values("t") == [b"before"]
    disk.capacity = None
    assert broker.produce("t", b"after").base_offset == 1
    assert broker.values("t") == [b"before", b"after"]


def test_a_read_only_disk_is_reported_and_the_broker_stays_readable() -> None:
    disk = MemoryDisk()
    broker = ManualBroker(disk=disk)
    broker.create("t")
    broker.produce("t", b"before")
    disk.read_only = True
    assert broker.produce("t", b"x").error is ErrorCode.KAFKA_STORAGE_ERROR
    failed = broker.ask(CreateTopics(topics=[NewTopic(name="new")])).topics[0]
    assert failed.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "new" not in broker.node.state.image.topics
    assert broker.values("t") == [b"before"]
    disk.read_only = False
    broker.create("new")


def test_a_handler_that_fails_is_answered_and_reported(broker: ManualBroker) -> None:
    broker.node.state.replicas.partitions[("t", 0)].log = _Untouchable([])  # type: ignore[assignment]  # a fault
    both = [ProducePartition("t", number, batch(b"a")) for number in (0, 1)]
    produced = broker.ask(Produce(partitions=both, acks=-1)).partitions
    assert [result.error for result in produced] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert produced[0].error_message
    (line,) = [line for line in broker.reports if "RuntimeError" in line]
    assert "t-0" in line
    fetched = broker.ask(Fetch(partitions=[FetchPartition("t", number, 0, 1000) for number in (0, 1)]))
    assert [result.error for result in fetched.partitions] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


def test_an_unknown_request_is_refused(broker: ManualBroker) -> None:
    class Unknown(Request[None]):
        pass

    with pytest.raises(ApiError, match="UNSUPPORTED_VERSION"):
        broker.ask(Unknown())


def test_produce_and_fetch_update_topic_counters(broker: ManualBroker) -> None:
    broker.produce("t", b"a", b"b")
    broker.fetch("t")
    assert broker.metrics.value("kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 2
    size = len(batch(b"a", b"b"))
    assert broker.metrics.value("kafka_server_brokertopicmetrics_bytesin_total", topic="t") == size
    assert broker.metrics.value("kafka_server_brokertopicmetrics_bytesout_total", topic="t") == size


def test_messages_survive_a_restart(broker: ManualBroker) -> None:
    broker.produce("t", b"a")
    broker.restart()
    assert broker.values("t") == [b"a"]
    assert broker.produce("t", b"b").base_offset == 1


class _Untouchable:
    """In the place of a log; notes that it was used, and fails."""

    def __init__(self, used: list[object]) -> None:
        self._used = used

    def __getattr__(self, name: str) -> object:
        self._used.append(name)
        raise RuntimeError(f"{name} was used")


def _size(records: object) -> int:
    return records.size if hasattr(records, "size") else len(records)  # type: ignore[arg-type]  # a buffer


def test_leader_refuses_producers_while_damage_may_hide_their_batches(broker: ManualBroker) -> None:
    partition = broker.node.state.replicas.partitions["t", 0]
    suspected: list[int] = []
    broker.node.state.replicas.add_suspicion_listener(lambda _log, offset: suspected.append(offset))
    partition.log._state.producers._hidden = ((Offset(0), Offset(1)),)

    def append(sequence: int) -> ErrorCode:
        records = numbered(b"x", producer=7, sequence=sequence)
        return broker.ask(Produce(partitions=[ProducePartition("t", 0, records)])).partitions[0].error

    assert append(0) is ErrorCode.NONE, "there is no other replica, which may have what is hidden"
    partition.replicas = (1, 2)
    assert append(1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert suspected == [0], "its repair is requested"
    assert broker.produce("t", b"without a producer id", acks=1).error is ErrorCode.NONE

    def end() -> ErrorCode:
        markers = [TxnMarker(producer_id=7, producer_epoch=0, committed=False, partitions=[TopicPartition("t", 0)])]
        (written,) = broker.ask(WriteTxnMarkers(markers=markers), ITSELF).markers
        return written.partitions[0].error

    assert end() is ErrorCode.NOT_ENOUGH_REPLICAS, "which a coordinator tries again"
    broker.wait(131_000)
    assert append(1) is ErrorCode.NONE, "no repair has come"
    assert end() is ErrorCode.NONE
