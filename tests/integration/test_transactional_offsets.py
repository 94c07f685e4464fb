"""Offsets that librdkafka sends to a transaction are committed with its messages or not at all, by any coordinator."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from support.long_tests import first_is_quick
from support.waiting import PATIENCE_S, wait_for

from barnabas.core.coordinator.table import partition_of
from barnabas.testing import TestCluster

pytestmark = [pytest.mark.xdist_group("confluent")]

GROUP, OFFSETS, PARTITIONS = "g", "__consumer_offsets", 2
PARTITION = partition_of(GROUP, PARTITIONS)
QUICK = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.max.ms": 200, "log_level": 0}


def move(cluster: TestCluster, coordinator: int) -> None:
    cluster.move_leader(OFFSETS, PARTITION, next(each for each in cluster.broker_ids if each != coordinator))


EVENTS: dict[str, Callable[[TestCluster, int], None]] = {
    "moved": move,
    "stopped": lambda cluster, coordinator: cluster.stop(coordinator),
    "killed": lambda cluster, coordinator: cluster.kill(coordinator),
}


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(
        brokers=3, offsets_topic_num_partitions=PARTITIONS, transaction_state_log_num_partitions=2
    ) as running:
        yield running


@pytest.fixture
def closed() -> Iterator[ExitStack]:
    """Yield a stack that closes the clients at the end of the test."""
    with ExitStack() as stack:
        yield stack


def transactional(cluster: TestCluster) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "x", "linger.ms": 0, **QUICK})
    producer.init_transactions(PATIENCE_S)
    return producer


def consumer(cluster: TestCluster, group: str = GROUP) -> Consumer:
    """Return a consumer that asks for stable offsets."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "isolation.level": "read_committed", **QUICK}
    return Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})


def position(asker: Consumer, topic: str, patience_s: float = PATIENCE_S) -> int:
    until = time.monotonic() + patience_s
    while True:
        try:
            (place,) = asker.committed([TopicPartition(topic, 0)], max(0.1, until - time.monotonic()))
            if place.error is not None:
                raise KafkaException(place.error)
            return int(place.offset)
        except KafkaException as error:
            # librdkafka hands this one out if it meets a coordinator that does not lead yet, or no longer.
            if error.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > until:
                raise


def settled(call: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise
        else:
            return


@pytest.mark.parametrize("is_committed", first_is_quick([True, False]), ids=["committed", "aborted"])
@pytest.mark.parametrize("event", EVENTS)
def test_the_marker_comes_to_another_coordinator_than_the_positions(
    cluster: TestCluster, closed: ExitStack, event: str, is_committed: bool
) -> None:
    topic = cluster.create_topic()
    producer, asker = transactional(cluster), closed.enter_context(closing(consumer(cluster)))
    for number, is_last in ((1, False), (2, True)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        metadata = asker.consumer_group_metadata()
        settled(lambda: producer.send_offsets_to_transaction([TopicPartition(topic, 0, number)], metadata, PATIENCE_S))  # noqa: B023
        if not is_last:
            producer.commit_transaction(PATIENCE_S)
    cluster.wait_in_sync(OFFSETS)
    with pytest.raises(KafkaException) as unstable:
        position(asker, topic, 0.5)
    assert unstable.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
    coordinator = cluster.leader(OFFSETS, PARTITION)
    assert coordinator is not None
    EVENTS[event](cluster, coordinator)
    cluster.wait_for_leader(OFFSETS, PARTITION, other_than=coordinator)
    with pytest.raises(KafkaException):
        position(asker, topic, 0.5)
    settled(lambda: (producer.commit_transaction if is_committed else producer.abort_transaction)(PATIENCE_S))
    assert position(asker, topic) == (2 if is_committed else 1)
    with cluster.admin() as admin:
        (found,) = admin.group_offsets(GROUP).values()
        assert found.offset == (2 if is_committed else 1)


@pytest.mark.slow
def test_reader_of_messages_finds_the_position_behind_them(cluster: TestCluster, closed: ExitStack) -> None:
    """While only some brokers have the markers of a transaction, no client gets the old committed offset."""
    topic = cluster.create_topic()
    producer, asker = transactional(cluster), closed.enter_context(closing(consumer(cluster)))
    reader = closed.enter_context(closing(consumer(cluster, "reader")))
    reader.assign([TopicPartition(topic, 0, 0)])
    metadata = asker.consumer_group_metadata()
    seen = committed = 0
    for number in range(40):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, number + 1)], metadata, PATIENCE_S)
        if number % 4 == 3:
            producer.abort_transaction(PATIENCE_S)
            continue
        producer.commit_transaction(PATIENCE_S)
        committed += 1
        values: list[bytes] = []

        def came() -> bool:
            values.extend(each.value() or b"" for each in reader.consume(10, 0.1) if each.error() is None)  # noqa: B023
            return bool(values)  # noqa: B023

        wait_for(came)
        assert values == [b"%d" % number]
        assert position(asker, topic) == number + 1
        seen += 1
    assert seen == committed == 30


@pytest.mark.slow
def test_a_member_of_an_earlier_generation(cluster: TestCluster, closed: ExitStack) -> None:
    """KIP-447: the group says whose positions count, whatever the transactional ids are."""
    topic = cluster.create_topic()
    cluster.produce(topic, [b"1", b"2"])
    first = closed.enter_context(closing(consumer(cluster)))
    first.subscribe([topic])
    wait_for(lambda: any(each.error() is None for each in first.consume(2, 0.1)))
    metadata = first.consumer_group_metadata()
    producer = transactional(cluster)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    assert position(first, topic) == 1
    second = closed.enter_context(closing(consumer(cluster)))
    second.subscribe([topic])

    admin = closed.enter_context(cluster.admin())

    def joined() -> bool:
        first.poll(0.05)
        second.poll(0.05)
        (group,) = admin.describe_groups([GROUP])
        return (group.state, len(group.members)) == ("Stable", 2)

    wait_for(joined)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 2)], metadata, PATIENCE_S)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(PATIENCE_S)
    assert position(second, topic) == 1
