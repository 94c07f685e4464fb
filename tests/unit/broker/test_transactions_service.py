"""The transaction coordinator in a whole broker: its topic, its starts and stops, what it counts."""

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve
from support.replica_harness import led_in_sync

from barnabas.core.coordinator.table import partition_of
from barnabas.ports.broker_api.configs import ConfigAlteration, ConfigResource, IncrementalAlterConfigs, ResourceKind
from barnabas.ports.broker_api.groups import TRANSACTION_COORDINATOR, Coordinator, FindCoordinator
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.producers import InitProducerId
from barnabas.ports.broker_api.topics import DeleteTopics
from barnabas.ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeTransactions,
    EndTxn,
    ListTransactions,
    TransactionSupportedOperation,
)
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import numbered
from barnabas.testing.manual_broker import ManualBroker

LOG, OFFSETS = "__transaction_state", "__consumer_offsets"


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker(transaction_state_log_num_partitions=4, offsets_topic_num_partitions=2)
    simulated.create("t", 2)
    yield simulated
    simulated.stop()
    assert simulated.reports == []


def find(broker: ManualBroker, *ids: str) -> list[Coordinator]:
    return list(broker.ask(FindCoordinator(keys=ids, key_type=TRANSACTION_COORDINATOR)).coordinators)


def begun(broker: ManualBroker, name: str = "x", **more: int) -> dict[str, Any]:
    """Return a producer of this id, as its requests name it."""
    find(broker, name)
    result = broker.ask(InitProducerId(transactional_id=name, **more))
    assert result.error is E.NONE
    return {
        "transactional_id": name,
        "producer_id": result.producer_id,
        "producer_epoch": result.producer_epoch,
    }


def add(broker: ManualBroker, who: dict[str, Any], *partitions: int) -> list[E]:
    keys = [TopicPartition("t", each) for each in partitions]
    return [each.error for each in broker.ask(AddPartitionsToTxn(**who, partitions=keys)).partitions]


ADD = TransactionSupportedOperation.ADD_PARTITION


def produce(
    broker: ManualBroker,
    who: dict[str, Any],
    partition: int = 0,
    sequence: int = 0,
    operation: TransactionSupportedOperation = TransactionSupportedOperation.DEFAULT_ERROR,
) -> E:
    records = numbered(
        b"v", producer=who["producer_id"], epoch=who["producer_epoch"], sequence=sequence, transactional=True
    )
    entry = ProducePartition("t", partition, records)
    request = Produce(
        partitions=[entry], acks=-1, transactional_id=who["transactional_id"], supported_operation=operation
    )
    result = broker.ask(request)
    return result.partitions[0].error


def state(broker: ManualBroker, name: str = "x") -> str:
    observed: str = broker.ask(DescribeTransactions(transactional_ids=[name])).transactions[0].state
    return observed


def test_find_coordinator_creates_transaction_state_topic(broker: ManualBroker) -> None:
    assert LOG not in broker.node.state.image.topics
    assert broker.ask(InitProducerId(transactional_id="x")).error is E.NOT_COORDINATOR
    first, second = find(broker, "x", "y")
    assert (first.error, first.node_id, second.node_id) == (E.NONE, 1, 1)
    topic = broker.node.state.image.topics[LOG]
    assert len(topic.partitions) == 4
    config = broker.node.state.replicas.partitions[(LOG, partition_of("x", 4))].log.config
    assert (config.compacted, config.compression_type, config.min_insync_replicas) == (True, "uncompressed", 2)
    assert config.segment_bytes == 104_857_600


def test_metadata_makes_the_same_topic(broker: ManualBroker) -> None:
    (topic,) = broker.ask(Metadata(topics=[LOG])).topics
    assert (topic.error, len(topic.partitions), topic.internal) == (E.NONE, 4, True)
    begun(broker)


def test_positions_make_the_topic_that_keeps_them(broker: ManualBroker) -> None:
    who = begun(broker)
    assert OFFSETS not in broker.node.state.image.topics
    assert broker.ask(AddOffsetsToTxn(**who, group_id="g")).error is E.NONE
    (observed,) = broker.ask(DescribeTransactions(transactional_ids=["x"])).transactions
    assert observed.topics == {OFFSETS: [partition_of("g", 2)]}


def test_a_produce_to_a_partition_that_was_never_added(broker: ManualBroker) -> None:
    who = begun(broker)
    assert produce(broker, who) is E.INVALID_TXN_STATE
    add(broker, who, 1)
    assert produce(broker, who, 0) is E.INVALID_TXN_STATE
    assert produce(broker, who, 1) is E.NONE
    assert broker.metrics.value("kafka_server_addpartitionstotxnmanager_verificationfailures_total") == 2


def test_transaction_of_version_2_needs_no_request_but_produce_and_its_end(broker: ManualBroker) -> None:
    who = begun(broker)
    assert produce(broker, who, operation=ADD) is E.NONE
    assert state(broker) == "Ongoing"
    ended = broker.ask(EndTxn(**who, committed=True, supports_epoch_bump=True))
    assert (ended.error, ended.producer_epoch) == (E.NONE, who["producer_epoch"] + 1)
    following = {**who, "producer_epoch": ended.producer_epoch}
    assert produce(broker, following, 0, operation=ADD) is E.NONE, "it has waited for the markers"
    assert produce(broker, who, 0, sequence=1, operation=ADD) is E.INVALID_PRODUCER_EPOCH
    assert produce(broker, who, 1, operation=ADD) is E.INVALID_PRODUCER_EPOCH, "it is not in the transaction"
    aborted = broker.ask(EndTxn(**following, committed=False, supports_epoch_bump=True))
    broker.scheduler.advance(10)
    assert (aborted.error, aborted.producer_epoch, state(broker)) == (E.NONE, 2, "CompleteAbort")


def test_a_classic_topic_has_no_transactions(broker: ManualBroker) -> None:
    broker.create("classic", 1, message_format="classic")
    who = begun(broker)
    keys = [TopicPartition("t", 0), TopicPartition("classic", 0)]
    observed = broker.ask(AddPartitionsToTxn(**who, partitions=keys)).partitions
    assert [each.error for each in observed] == [E.OPERATION_NOT_ATTEMPTED, E.UNSUPPORTED_FOR_MESSAGE_FORMAT]
    assert state(broker) == "Empty"


def test_verification_can_be_switched_off_while_the_broker_runs(broker: ManualBroker) -> None:
    who = begun(broker)
    everywhere = ConfigResource(kind=ResourceKind.BROKER, name="")
    change = ConfigAlteration(
        resource=everywhere,
        name="transaction.partition.verification.enable",
        value="false",
    )
    assert (
        broker.ask(IncrementalAlterConfigs(resources=[everywhere], alterations=[change])).resources[0].error is E.NONE
    )
    assert produce(broker, who) is E.NONE


def test_a_stop_in_order_in_every_state(broker: ManualBroker) -> None:
    empty, open_, ended = begun(broker, "empty"), begun(broker, "open"), begun(broker, "ended")
    for who, partition in ((open_, 0), (ended, 1)):
        assert add(broker, who, partition) == [E.NONE]
        assert produce(broker, who, partition) is E.NONE
    assert broker.ask(EndTxn(**ended, committed=True)).error is E.NONE
    broker.scheduler.run_pending()
    broker.restart()
    broker.scheduler.run_until(lambda: broker.ask(ListTransactions()).error is E.NONE)
    assert {name: state(broker, name) for name in ("empty", "open", "ended")} == {
        "empty": "Empty",
        "open": "Ongoing",
        "ended": "CompleteCommit",
    }
    assert produce(broker, open_, 0, sequence=1) is E.NONE
    assert broker.ask(EndTxn(**open_, committed=False)).error is E.NONE
    assert add(broker, empty, 0) == [E.NONE]
    listed = broker.ask(ListTransactions()).transactions
    assert sorted(each.transactional_id for each in listed) == ["empty", "ended", "open"]


def test_pending_transaction_requests_get_not_coordinator_at_broker_stop(broker: ManualBroker) -> None:
    who = begun(broker)
    add(broker, who, 0)
    waiting = broker.submit(EndTxn(**who, committed=True))
    after = broker.submit(AddPartitionsToTxn(**who, partitions=[TopicPartition("t", 1)]))
    broker.node.api.stop_coordinating()
    broker.scheduler.run_pending()
    assert waiting[0].error in (E.NONE, E.NOT_COORDINATOR)
    assert after[0].partitions[0].error is E.NOT_COORDINATOR
    assert broker.ask(EndTxn(**who, committed=True)).error is E.NOT_COORDINATOR


def test_a_transaction_times_out_and_its_marker_is_written(broker: ManualBroker) -> None:
    who = begun(broker, transaction_timeout_ms=5000)
    add(broker, who, 0)
    assert produce(broker, who) is E.NONE
    partition = broker.node.state.replicas.partitions[("t", 0)]
    assert partition.last_stable_offset == 0
    broker.scheduler.advance(20_000)
    assert state(broker) == "CompleteAbort"
    assert partition.last_stable_offset == partition.high_watermark == 2
    assert produce(broker, who, sequence=1) is E.INVALID_PRODUCER_EPOCH


def test_transaction_metrics_show_coordinator_state(broker: ManualBroker) -> None:
    begun(broker)
    for name in (
        "kafka_server_transaction_coordinator_metrics_partition_load_time_max",
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize",
    ):
        value = broker.metrics.value(name)
        assert value is not None
        assert value >= 0


def test_a_topic_that_the_image_does_not_have_yet_gets_its_marker_when_it_has(broker: ManualBroker) -> None:
    who = begun(broker)
    assert add(broker, who, 0) == [E.NONE]
    assert produce(broker, who) is E.NONE
    registry = broker.node.state.registry
    image = registry.image
    registry.image = image._without("t", image.version)
    assert broker.ask(EndTxn(**who, committed=True)).error is E.NONE
    broker.wait(20_000)
    assert state(broker) == "PrepareCommit"
    registry.image = image
    broker.wait(2000)
    assert state(broker) == "CompleteCommit"
    partition = broker.node.state.replicas.partitions["t", 0]
    assert (partition.last_stable_offset, partition.log.log_end_offset) == (2, 2)
    (line,) = broker.reports
    assert "no leader of t-0" in line
    broker.lines.clear()


def test_the_next_coordinator_sends_no_marker_to_an_earlier_topic_that_its_image_has(broker: ManualBroker) -> None:
    who = begun(broker)
    assert add(broker, who, 0) == [E.NONE]
    assert produce(broker, who) is E.NONE
    state_, log = broker.node.state, TopicPartition(LOG, partition_of("x", 4))
    registry, replicas = state_.registry, state_.replicas
    image = registry.image
    registry.image = image._without("t", image.version)
    assert broker.ask(EndTxn(**who, committed=True)).error is E.NONE
    broker.scheduler.run_pending()
    earlier = evolve(image.topics["t"], topic_id=b"an earlier topic")
    registry.image = evolve(image, topics=image.topics.put("t", earlier))
    for leader in (2, 1):
        led_in_sync(replicas, replicas.partitions[log], (1,), leader=leader, epochs=1)
        broker.scheduler.run_pending()
    partition = replicas.partitions["t", 0]
    broker.wait(5000)
    assert (state(broker), partition.log.log_end_offset) == ("PrepareCommit", 1)
    registry.image = image
    broker.wait(2000)
    assert (state(broker), partition.last_stable_offset) == ("CompleteCommit", 2)
    broker.lines.clear()


@pytest.mark.parametrize("makes_it_classic", [False, True])
def test_a_topic_that_was_deleted_needs_no_marker(broker: ManualBroker, makes_it_classic: bool) -> None:
    who = begun(broker)
    assert add(broker, who, 0, 1) == [E.NONE, E.NONE]
    assert broker.ask(DeleteTopics(names=["t"])).topics[0].error is E.NONE
    if makes_it_classic:
        broker.create("t", 2, message_format="classic")
    assert broker.ask(EndTxn(**who, committed=True)).error is E.NONE
    broker.wait(5000)
    assert state(broker) == "CompleteCommit"
