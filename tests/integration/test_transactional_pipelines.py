"""Transactional pipelines under `TestBroker` and `TestCluster`: faults, time, coordinators and leaders that die."""

from collections.abc import Iterator

import pytest
from support.command import barnabas_here
from support.waiting import wait_for

from barnabas import AbortNeeded, CommitFailed, Message, Producer, ProducerFenced
from barnabas.core.message.batch_writer import encode_batch
from barnabas.ports.broker_api.features import UpgradeType
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestBroker, TestCluster

WAIT_S = 240


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        running.create_topic("orders", partitions=1)
        yield running


@pytest.fixture
def producer(broker: TestBroker) -> Iterator[Producer]:
    with broker.producer(transactional_id="shop") as producer:
        yield producer


def in_version_1(broker: TestBroker) -> None:
    """From now on the cluster has version 1 of transactions."""
    with broker.admin() as admin:
        admin.update_features({"transaction.version": 1}, UpgradeType.SAFE_DOWNGRADE)


@pytest.mark.parametrize(
    ("version", "api"),
    [
        *((2, api) for api in ("InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn")),
        *((1, api) for api in ("AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")),
    ],
)
@pytest.mark.parametrize("after", [False, True])
def test_connections_that_break(broker: TestBroker, producer: Producer, version: int, api: str, after: bool) -> None:
    if version == 1:
        in_version_1(broker)
    with broker.faults.drop(api, after=after, times=1) as fault, producer.transaction():
        producer.send("orders", b"one")
        producer.send_offsets({("orders", 0): 7}, "g")
    assert fault.hits == 1
    broker.assert_produced("orders", ["one"], committed=True)
    with broker.admin() as admin:
        assert admin.group_offsets("g")[TopicPartition("orders", 0)].offset == 7


@pytest.mark.parametrize(
    ("version", "api", "code"),
    [
        (1, "AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS"),
        (1, "AddPartitionsToTxn", "NOT_COORDINATOR"),
        (1, "AddOffsetsToTxn", "COORDINATOR_LOAD_IN_PROGRESS"),
        (1, "TxnOffsetCommit", "NOT_COORDINATOR"),
        (1, "EndTxn", "COORDINATOR_NOT_AVAILABLE"),
        (2, "Produce", "CONCURRENT_TRANSACTIONS"),
        (2, "TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
        (2, "EndTxn", "CONCURRENT_TRANSACTIONS"),
        (2, "EndTxn", "NOT_COORDINATOR"),
    ],
)
def test_errors_that_pass(broker: TestBroker, producer: Producer, version: int, api: str, code: str) -> None:
    if version == 1:
        in_version_1(broker)
    with broker.faults.error(api, code, times=2) as fault, producer.transaction():
        producer.send("orders", b"one")
        producer.send_offsets({("orders", 0): 7}, "g")
    assert fault.hits == 2
    broker.assert_produced("orders", ["one"], committed=True)


def test_committed_reads_show_committed_messages_only(broker: TestBroker, producer: Producer) -> None:
    with producer.transaction():
        producer.send("orders", b"open").result(WAIT_S)
        assert broker.produced("orders", committed=True) == []
        assert len(broker.produced("orders")) == 1
    assert [message.value for message in broker.produced("orders", committed=True)] == [b"open"]
    with broker.faults.error("Produce", "INVALID_RECORD", times=1), pytest.raises(AbortNeeded), producer.transaction():
        producer.send("orders", b"aborted")
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.send("orders", b"aborted").result(WAIT_S)
        1 / 0  # noqa: B018  # it is to raise
    broker.assert_produced("orders", ["open", "aborted"])
    broker.assert_produced("orders", ["open"], committed=True)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_takes_too_long(broker: TestBroker, version: int) -> None:
    if version == 1:
        in_version_1(broker)
    with broker.producer(transactional_id="slow", transaction_timeout_ms=1000) as slow:
        slow.begin_transaction()
        slow.send("orders", b"late").result(WAIT_S)
        broker.jump(minutes=5)
        with broker.admin() as admin:
            wait_for(lambda: admin.describe_transactions(["slow"])[0].state == "CompleteAbort", WAIT_S)
        if version == 1:
            with pytest.raises(ProducerFenced, match=r"longer than transaction\.timeout\.ms"):
                slow.commit_transaction()
        else:
            with pytest.raises(AbortNeeded):
                slow.commit_transaction()
            slow.abort_transaction()
            with slow.transaction():
                slow.send("orders", b"again")
    assert len(broker.produced("orders", committed=True)) == version - 1


def test_a_broker_that_restarts_within_a_transaction(broker: TestBroker, producer: Producer) -> None:
    with producer.transaction():
        producer.send("orders", b"before").result(WAIT_S)
        broker.restart()
        producer.send("orders", b"after")
    broker.assert_produced("orders", ["before", "after"], committed=True)


def test_a_transaction_that_hangs_is_found_and_ended() -> None:
    """The coordinator never knew the transaction, which brokers without verification accept."""
    with TestBroker(transaction_partition_verification_enable=False) as broker:
        broker.create_topic("orders", partitions=1)
        with broker.producer(transactional_id="shop") as producer, producer.transaction():
            producer.send("orders", b"good")
        batch = encode_batch(
            [Message(b"hanging")], now_ms=1000, producer_id=4321, producer_epoch=3, base_sequence=0, transactional=True
        )
        sent = broker.ask(
            Produce(partitions=[ProducePartition("orders", 0, memoryview(batch))], transactional_id="nobody")
        )
        assert sent.partitions[0].error is ErrorCode.NONE
        with broker.producer(transactional_id="shop") as producer, producer.transaction():
            producer.send("orders", b"behind")
        assert len(broker.produced("orders", committed=True)) == 1

        with broker.admin() as admin:
            assert admin.find_hanging_transactions() == [], "it is not that old"
            broker.jump(hours=1)
            (found,) = admin.find_hanging_transactions(now_ms=broker.clock.now_ms())
            assert (found.topic, found.partition, found.producer_id, found.producer_epoch) == ("orders", 0, 4321, 3)
        words = ("transactions", "abort", "orders:0", "--start-offset", str(found.start_offset))
        done = barnabas_here(*words, "--bootstrap", broker.bootstrap)
        assert b"producer 4321" in done.stderr
        broker.assert_produced("orders", ["good", "behind"], committed=True)
        with broker.admin() as admin:
            assert admin.find_hanging_transactions(max_timeout_ms=-1000) == []


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as running:
        running.create_topic("orders", partitions=3)
        yield running


def coordinator(cluster: TestCluster, name: str) -> int:
    with cluster.admin() as admin:
        return admin.transaction_coordinator(name).node_id


def test_a_coordinator_that_is_killed_within_a_transaction(cluster: TestCluster) -> None:
    with cluster.producer(transactional_id="shop") as producer:
        for number in range(3):
            with producer.transaction(timeout=WAIT_S):
                for partition in range(3):
                    producer.send("orders", b"%d-%d" % (number, partition), partition=partition).result(WAIT_S)
                home = coordinator(cluster, "shop")
                cluster.kill(home)
            cluster.restart(home)
            cluster.wait_in_sync()
    expected = [f"{number}-{partition}" for number in range(3) for partition in range(3)]
    cluster.assert_produced("orders", expected, committed=True, mode="any_order")


def test_a_leader_that_is_killed_within_a_transaction(cluster: TestCluster) -> None:
    with cluster.producer(transactional_id="shop") as producer:
        with producer.transaction(timeout=WAIT_S):
            producer.send("orders", b"before", partition=0).result(WAIT_S)
            home = cluster.leader("orders", 0)
            assert home is not None
            cluster.kill(home)
            producer.send("orders", b"after", partition=0)
        cluster.restart(home)
    cluster.assert_produced("orders", ["before", "after"], committed=True, partition=0)


def test_a_member_that_was_out_commits_nothing(broker: TestBroker, producer: Producer) -> None:
    """The member has joined again before its user sees the loss; other members may have had its partitions."""
    broker.produce("orders", ["1", "2", "3"])
    with broker.consumer(group_id="g", enable_auto_commit=False, heartbeat_interval_ms=20) as consumer:
        consumer.subscribe("orders")
        taken = consumer.poll_many(2, timeout=WAIT_S)
        assert taken
        before = consumer.group_metadata
        broker.expire_member("g", before.member_id)
        membership = consumer._group.membership if consumer._group is not None else None
        assert membership is not None
        wait_for(lambda: membership.settled and membership.member_id != before.member_id, WAIT_S)
        for offsets, group in ((consumer, None), (taken, consumer.group_metadata), ({("orders", 0): 2}, consumer)):
            with pytest.raises(CommitFailed), producer.transaction():
                producer.send("orders", b"out")
                producer.send_offsets(offsets, group)
        with pytest.raises(CommitFailed, match="went on without this member"):
            consumer.commit()
        again = consumer.poll_many(3, timeout=WAIT_S)
        assert [message.value for message in again][: len(taken)] == [message.value for message in taken]
        with producer.transaction():
            producer.send_offsets(consumer)
        assert consumer.committed()[TopicPartition("orders", 0)] is not None
