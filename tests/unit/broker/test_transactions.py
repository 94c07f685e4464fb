"""Transactions at a partition's leader: what is taken, what readers of committed records see, how they end."""

from typing import Any

import pytest

from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.message_set import MessageSet
from barnabas.ports.broker_api.fetch import AbortedTransaction, FetchResultPartition
from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.offsets import EARLIEST, LATEST, ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.producers import DescribeProducers
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkers
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import numbered
from barnabas.testing.manual_broker import HERE, ITSELF, ManualBroker, fetch

E = ErrorCode
TP = TopicPartition("t", 0)


@pytest.fixture
def broker() -> ManualBroker:
    running = ManualBroker(transaction_partition_verification_enable=False)  # there is no coordinator here
    running.create("t", 2)
    return running


def send(
    broker: ManualBroker,
    *values: bytes,
    producer: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    transactional_id: str | None = "orders",
    transactional: bool = True,
) -> Any:
    records = numbered(*values, producer=producer, epoch=epoch, sequence=sequence, transactional=transactional)
    entry = ProducePartition("t", 0, records)
    return broker.ask(Produce(partitions=[entry], transactional_id=transactional_id)).partitions[0]


def end(
    broker: ManualBroker, committed: bool, *, producer: int = 1, epoch: int = 0, coordinator: int = 0, on: Any = TP
) -> ErrorCode:
    marker = TxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        committed=committed,
        partitions=[on],
        coordinator_epoch=coordinator,
    )
    (written,) = broker.ask(WriteTxnMarkers(markers=[marker])).markers
    assert written.producer_id == producer
    (outcome,) = written.partitions
    assert (outcome.topic, outcome.partition) == on
    return outcome.error


def committed(broker: ManualBroker, offset: int = 0) -> FetchResultPartition:
    return broker.fetch("t", offset, isolation_level=1).partitions[0]


def listed(broker: ManualBroker, timestamp: int, isolation: int) -> int:
    asked = ListOffsetsPartition(topic="t", partition=0, timestamp=timestamp)
    return broker.ask(ListOffsets(partitions=[asked], isolation_level=isolation)).partitions[0].offset


def test_readers_of_committed_records_stop_before_what_is_open(broker: ManualBroker) -> None:
    broker.produce("t", b"plain")
    assert send(broker, b"a", b"b").base_offset == 1
    broker.produce("t", b"later")
    found = committed(broker)
    assert (found.high_watermark, found.last_stable_offset, found.aborted) == (4, 1, [])
    assert [message.value for message in MessageSet(found.records, NO_CODECS)] == [b"plain"]
    assert (committed(broker, 1).records, committed(broker, 1).error) == (b"", E.NONE)
    assert (committed(broker, 3).records, committed(broker, 3).error) == (b"", E.NONE)
    assert len(broker.values("t")) == 4, "others read it all"
    assert broker.fetch("t").partitions[0].aborted is None

    assert end(broker, True) is E.NONE
    found = committed(broker)
    assert (found.high_watermark, found.last_stable_offset, found.aborted) == (5, 5, [])
    assert [message.value for message in MessageSet(found.records, NO_CODECS)] == [b"plain", b"a", b"b", b"later"]


def test_read_committed_fetch_lists_aborted_transactions(broker: ManualBroker) -> None:
    send(broker, b"a")
    send(broker, b"b", producer=2)
    assert end(broker, False, producer=2) is E.NONE
    assert end(broker, False) is E.NONE
    send(broker, b"c", sequence=1)
    assert end(broker, True) is E.NONE
    found = committed(broker)
    assert found.aborted == [AbortedTransaction(1, 0), AbortedTransaction(2, 1)], "by their beginnings"
    assert committed(broker, 3).aborted == [AbortedTransaction(1, 0)]
    assert committed(broker, 4).aborted == []


def test_offsets_by_isolation_level(broker: ManualBroker) -> None:
    broker.produce("t", b"plain")
    send(broker, b"a")
    assert [listed(broker, LATEST, isolation) for isolation in (0, 1)] == [2, 1]
    assert [listed(broker, EARLIEST, isolation) for isolation in (0, 1)] == [0, 0]
    assert [listed(broker, 900, isolation) for isolation in (0, 1)] == [0, 0]
    end(broker, False)
    assert [listed(broker, LATEST, isolation) for isolation in (0, 1)] == [3, 3]


def test_read_committed_fetch_is_completed_by_the_end_marker(broker: ManualBroker) -> None:
    send(broker, b"a")
    waiting = broker.submit(fetch("t", 0, max_wait_ms=10_000, isolation_level=1))
    broker.produce("t", b"more")
    broker.scheduler.run_pending()
    assert not waiting
    end(broker, True)
    broker.scheduler.run_pending()
    (answer,) = waiting
    assert answer.partitions[0].last_stable_offset == 3


def test_producers_are_described_with_their_transactions(broker: ManualBroker) -> None:
    broker.produce("t", b"plain")
    send(broker, b"a", producer=7, epoch=2)
    (found,) = broker.ask(DescribeProducers(topics={"t": [0]})).partitions[0].producers
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (7, 2, 0)
    assert (found.coordinator_epoch, found.current_txn_start_offset) == (-1, 1)
    end(broker, True, producer=7, epoch=2, coordinator=5)
    (found,) = broker.ask(DescribeProducers(topics={"t": [0]})).partitions[0].producers
    assert (found.coordinator_epoch, found.current_txn_start_offset) == (5, -1)


def test_batch_outside_its_transaction_is_refused(broker: ManualBroker) -> None:
    refused = send(broker, b"a", transactional_id=None)
    assert refused.error is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "transactional id" in refused.error_message
    send(broker, b"a")
    assert send(broker, b"b", sequence=1, transactional=False).error is E.INVALID_TXN_STATE
    assert broker.fetch("t").partitions[0].high_watermark == 1


def test_markers_that_are_refused(broker: ManualBroker) -> None:
    send(broker, b"a", epoch=3)
    assert end(broker, True, epoch=2) is E.INVALID_PRODUCER_EPOCH
    assert end(broker, True, epoch=3, coordinator=4) is E.NONE
    assert end(broker, True, epoch=3, coordinator=3) is E.TRANSACTION_COORDINATOR_FENCED
    assert end(broker, True, on=TopicPartition("nowhere", 0)) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert end(broker, True, on=TopicPartition("t", 9)) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.fetch("t").partitions[0].high_watermark == 2


def test_many_markers_at_once_are_answered_in_their_order(broker: ManualBroker) -> None:
    for producer in (1, 2):
        send(broker, b"a", producer=producer)
    topic_partitions = [TP, TopicPartition("gone", 1), TopicPartition("t", 1)]
    markers = [
        TxnMarker(producer_id=producer, producer_epoch=0, committed=True, partitions=topic_partitions)
        for producer in (2, 1)
    ]
    written = broker.ask(WriteTxnMarkers(markers=markers)).markers
    outcomes = [
        PartitionOutcome("t", 0),
        PartitionOutcome("gone", 1, E.UNKNOWN_TOPIC_OR_PARTITION),
        PartitionOutcome("t", 1),
    ]
    assert [(each.producer_id, list(each.partitions)) for each in written] == [(2, outcomes), (1, outcomes)]
    assert committed(broker).last_stable_offset == 4


def test_more_markers_than_are_written_at_once_are_answered_in_their_order() -> None:
    broker = ManualBroker()
    broker.create("t", 90)
    places = [TopicPartition("t", number) for number in range(100)]
    markers = [
        TxnMarker(producer_id=producer, producer_epoch=0, committed=True, partitions=places[: 40 * producer])
        for producer in range(4)
    ]
    answers = broker.submit(WriteTxnMarkers(markers=markers))
    broker.scheduler.run_until(lambda: bool(answers))
    (answer,) = answers
    assert [each.producer_id for each in answer.markers] == [0, 1, 2, 3]
    for each in answer.markers:
        wanted = [
            PartitionOutcome(*tp, E.NONE if tp.partition < 90 else E.UNKNOWN_TOPIC_OR_PARTITION)
            for tp in places[: 40 * each.producer_id]
        ]
        assert list(each.partitions) == wanted
    assert broker.fetch("t", partition=10).partitions[0].high_watermark == 3


def test_marker_is_acknowledged_after_flush_with_flush_messages_1() -> None:
    broker = ManualBroker(transaction_partition_verification_enable=False)
    broker.create("t", flush_messages="1")
    log = broker.node.state.replicas.partitions[TP].log
    send(broker, b"a")
    assert log.recovery_point == 1
    ended: list[int] = []
    broker.node.state.replicas.markers.add_txn_completed_listener(lambda *_: ended.append(log.recovery_point))
    marker = TxnMarker(producer_id=1, producer_epoch=0, committed=True, partitions=[TP])
    answers = broker.submit(WriteTxnMarkers(markers=[marker]))
    assert (answers, log.recovery_point) == ([], 1)
    broker.scheduler.run_pending()
    assert [each.markers[0].partitions[0].error for each in answers] == [E.NONE]
    assert (ended, log.recovery_point) == ([2], 2)


def test_late_transactions_are_counted_by_metric(broker: ManualBroker) -> None:
    def late() -> float | None:
        return broker.metrics.value("kafka_server_replicamanager_partitionswithlatetransactionscount")

    broker.clock.advance(10_000_000)
    send(broker, b"a")
    assert late() == 0
    broker.clock.advance(900_000 + 300_000 + 1)
    assert late() == 1
    end(broker, False)
    assert late() == 0


def test_listeners_learn_of_transaction_end(broker: ManualBroker) -> None:
    heard: list[object] = []

    def broken(*_: object) -> None:
        raise KeyError("a fault")

    markers = broker.node.state.replicas.markers
    markers.add_txn_completed_listener(broken)
    markers.add_txn_completed_listener(lambda *end: heard.append(end))
    send(broker, b"a", epoch=1)
    end(broker, False, epoch=1)
    end(broker, True, producer=99)
    assert heard == [(TP, 1, 1, False), (TP, 99, 0, True)]
    assert "a fault" in broker.reports.pop()


def test_transactions_outlive_a_restart(broker: ManualBroker) -> None:
    send(broker, b"a", producer=1)
    end(broker, False, producer=1, coordinator=6)
    send(broker, b"b", producer=2)
    broker.restart()
    found = committed(broker)
    assert (found.last_stable_offset, found.aborted) == (2, [AbortedTransaction(1, 0)])
    assert end(broker, True, producer=1, coordinator=5) is E.TRANSACTION_COORDINATOR_FENCED
    assert end(broker, True, producer=2) is E.NONE
    assert committed(broker).last_stable_offset == 4


def test_deleted_records_take_their_transaction_with_them(broker: ManualBroker) -> None:
    broker.produce("t", b"plain")
    send(broker, b"a")
    broker.produce("t", b"later")
    broker.node.state.replicas.partitions["t", 0].delete_records(3)
    found = committed(broker, 3)
    assert (found.log_start_offset, found.last_stable_offset, found.error) == (3, 3, E.NONE)
    end(broker, False)
    assert committed(broker, 3).last_stable_offset == 4


def test_the_broker_writes_transactions_into_its_own_topics(broker: ManualBroker) -> None:
    broker.create("own")
    records = numbered(b"position", sequence=-1, transactional=True)
    entry = ProducePartition("own", 0, records)
    assert broker.ask(Produce(partitions=[entry]), ITSELF).partitions[0].error is E.NONE
    assert broker.ask(Produce(partitions=[entry]), HERE).partitions[0].error is E.INVALID_RECORD
