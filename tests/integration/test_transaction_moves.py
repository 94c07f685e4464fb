"""Transactions in a cluster whose coordinators and leaders die: what was decided is carried out, once."""

import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from support.api_connection import ApiConnection
from support.long_tests import first_is_quick
from support.raw_transactions import RawTransactions
from support.waiting import PATIENCE_S, wait_for

from barnabas.core.coordinator.table import partition_of
from barnabas.ports.broker_api.topics import CreateTopics, NewTopic
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.testing import TestCluster

LOG = "__transaction_state"
PARTITIONS = 3
NAME = "raw"
PARTITION = partition_of(NAME, PARTITIONS)
Disturb = Callable[[TestCluster, int], None]


def move(cluster: TestCluster, coordinator: int) -> None:
    cluster.move_leader(LOG, PARTITION, next(each for each in cluster.running if each != coordinator))


def expire(cluster: TestCluster, coordinator: int) -> None:
    cluster.expire_session(coordinator)
    cluster.wait_for_leader(LOG, PARTITION, other_than=coordinator)


EVENTS: dict[str, Disturb] = {
    "moved": move,
    "stopped": lambda cluster, coordinator: cluster.stop(coordinator),
    "killed": lambda cluster, coordinator: cluster.kill(coordinator),
    "power": lambda cluster, coordinator: cluster.kill(coordinator, power_cut=True),
    "expired": expire,
}


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(
        brokers=3,
        transaction_state_log_num_partitions=PARTITIONS,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=50,
    ) as running:
        yield running


@pytest.fixture
def sender(cluster: TestCluster) -> RawTransactions:
    made = RawTransactions(cluster.bootstrap, NAME)
    assert made.init() is E.NONE
    cluster.wait_in_sync(LOG)
    return made


@pytest.fixture
def topic(cluster: TestCluster) -> str:
    name = cluster.create_topic(partitions=2)
    cluster.wait_in_sync(name)
    return name


def begin(sender: RawTransactions, topic: str, *values: bytes) -> None:
    """A transaction in both partitions, the values in turn."""
    assert sender.add((topic, 0), (topic, 1)) == [E.NONE, E.NONE]
    for number, value in enumerate(values):
        assert sender.produce(topic, value, partition=number % 2) is E.NONE


def committed(cluster: TestCluster, topic: str, count: int, partitions: int = 2) -> list[bytes]:
    """Return the values of a reader of committed messages, a moment after there are `count`."""
    found: list[bytes] = []
    with cluster.consumer(isolation_level="read_committed", auto_offset_reset="earliest") as reader:
        reader.assign([(topic, number) for number in range(partitions)])
        deadline = time.monotonic() + PATIENCE_S
        more = True
        while more or (len(found) < count and time.monotonic() < deadline):
            message = reader.poll(0.2)
            more = message is not None
            found += [] if message is None else [message.value or b""]
    return sorted(found)


@pytest.mark.parametrize("event", first_is_quick(EVENTS, 3))
def test_transaction_continues_at_next_coordinator(
    cluster: TestCluster, sender: RawTransactions, topic: str, event: str
) -> None:
    begin(sender, topic, b"1", b"2")
    coordinator = sender.coordinator()
    assert coordinator == cluster.leader(LOG, PARTITION)
    EVENTS[event](cluster, coordinator)
    assert sender.produce(topic, b"3") is E.NONE
    assert sender.end(commit=True) is E.NONE
    wait_for(lambda: sender.describe().state == "CompleteCommit")
    assert sender.coordinator() != coordinator
    begin(sender, topic, b"4")
    assert sender.end(commit=False) is E.NONE
    assert committed(cluster, topic, 3) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("event", first_is_quick(EVENTS, 3))
@pytest.mark.parametrize("commit", first_is_quick([True, False]), ids=["commit", "abort"])
def test_next_coordinator_completes_a_decided_transaction(commit: bool, event: str) -> None:
    """One partition has no leader, so that its marker cannot be written before the coordinator has gone."""
    with TestCluster(brokers=4, transaction_state_log_num_partitions=PARTITIONS) as cluster:
        sender = RawTransactions(cluster.bootstrap, NAME)
        assert sender.init() is E.NONE
        cluster.wait_in_sync(LOG)
        (away,) = set(cluster.broker_ids) - set(cluster.replicas(LOG, PARTITION))
        topic, single = cluster.create_topic(partitions=2), create_on(cluster, "lonely", away)
        cluster.wait_in_sync()
        begin(sender, topic, b"1", b"2")
        assert sender.add((single, 0)) == [E.NONE]
        assert sender.produce(single, b"3") is E.NONE
        cluster.kill(away)
        wait_for(lambda: not {cluster.leader(topic, number) for number in (0, 1)} & {None, away})
        assert sender.end(commit=commit, is_stuck=True) is E.NONE
        coordinator = sender.coordinator()
        assert sender.describe().state == ("PrepareCommit" if commit else "PrepareAbort")
        EVENTS[event](cluster, coordinator)
        assert sender.describe().state == ("PrepareCommit" if commit else "PrepareAbort")
        cluster.start(away)
        wait_for(lambda: sender.describe().state == ("CompleteCommit" if commit else "CompleteAbort"))
        assert sender.coordinator() != coordinator
        assert committed(cluster, topic, 2 * commit) == ([b"1", b"2"] if commit else [])
        assert committed(cluster, single, int(commit), 1) == ([b"3"] if commit else [])


def create_on(cluster: TestCluster, name: str, broker: int) -> str:
    """Create a topic with one replica, on this broker."""
    new = NewTopic(name=name, assignments={0: [broker]})
    with ApiConnection(cluster.bootstrap.split(",")[0]) as connection:
        assert connection.ask(CreateTopics(topics=[new], timeout_ms=20_000)).topics[0].error is E.NONE
    return name


def test_a_coordinator_that_dies_at_every_step_of_many_transactions(
    cluster: TestCluster, sender: RawTransactions, topic: str
) -> None:
    """Each acknowledged commit is there, each acknowledged abort is not."""
    expected: list[bytes] = []

    def die() -> None:
        coordinator = sender.coordinator()
        if coordinator >= 0:
            cluster.kill(coordinator)
            cluster.start(coordinator)
            cluster.wait_in_sync(LOG)
            cluster.wait_in_sync(topic)

    steps: Sequence[int] = range(4)
    for step in steps:
        for commit in (True, False):
            value = b"%d-%d" % (step, commit)
            if step == 0:
                die()
            assert sender.add((topic, 0), (topic, 1)) == [E.NONE, E.NONE]
            if step == 1:
                die()
            assert sender.produce(topic, value) is E.NONE
            if step == 2:
                die()
            assert sender.end(commit=commit) is E.NONE
            if step == 3:
                die()
            expected += [value] if commit else []
    wait_for(lambda: sender.describe().state == "CompleteAbort")
    assert committed(cluster, topic, len(expected)) == sorted(expected)


def test_a_producer_is_fenced_across_a_fail_over(cluster: TestCluster, sender: RawTransactions, topic: str) -> None:
    begin(sender, topic, b"1")
    cluster.kill(sender.coordinator())
    other = RawTransactions(cluster.bootstrap, NAME)
    assert other.init() is E.NONE
    assert other.epoch > sender.epoch
    assert sender.end(commit=True) is E.PRODUCER_FENCED
    begin(other, topic, b"2")
    assert other.end(commit=True) is E.NONE
    assert committed(cluster, topic, 1) == [b"2"]


@pytest.mark.slow
def test_a_transaction_times_out_at_the_next_coordinator(cluster: TestCluster, topic: str) -> None:
    sender = RawTransactions(cluster.bootstrap, NAME, timeout_ms=4000)
    assert sender.init() is E.NONE
    cluster.wait_in_sync(LOG)
    begin(sender, topic, b"1")
    cluster.kill(sender.coordinator())
    wait_for(lambda: sender.describe().state == "CompleteAbort")
    assert sender.end(commit=True) is E.PRODUCER_FENCED
    assert committed(cluster, topic, 0) == []


def test_a_leader_asks_a_coordinator_that_is_another_broker(
    cluster: TestCluster, sender: RawTransactions, topic: str
) -> None:
    coordinator = sender.coordinator()
    other = next(each for each in cluster.broker_ids if each != coordinator)
    cluster.move_leader(topic, 0, other)
    assert sender.produce(topic, b"1") is E.TRANSACTION_ABORTABLE, "it was never added"
    assert sender.add((topic, 0)) == [E.NONE]
    assert sender.produce(topic, b"2") is E.NONE
    zombie = RawTransactions(cluster.bootstrap, NAME)
    zombie.producer_id, zombie.epoch = sender.producer_id, sender.epoch
    assert sender.init() is E.NONE
    assert zombie.produce(topic, b"3") is E.INVALID_PRODUCER_EPOCH
    assert committed(cluster, topic, 0) == []


@pytest.mark.slow
def test_a_leader_dies_while_its_marker_is_awaited(cluster: TestCluster, sender: RawTransactions, topic: str) -> None:
    begin(sender, topic, b"1", b"2")
    coordinator = sender.coordinator()
    for number in (0, 1):
        if cluster.leader(topic, number) == coordinator:
            cluster.move_leader(topic, number, next(each for each in cluster.broker_ids if each != coordinator))
    leader = cluster.leader(topic, 0)
    assert leader is not None
    cluster.pause(leader)  # its connections stay open, and nothing is answered
    assert sender.end(commit=True) is E.NONE
    cluster.wait_for_leader(topic, 0, other_than=leader)
    wait_for(lambda: sender.describe().state == "CompleteCommit")
    cluster.resume(leader)
    assert committed(cluster, topic, 2) == [b"1", b"2"]


def test_the_log_of_transactions_gets_its_replicas_as_brokers_come() -> None:
    with TestCluster(brokers=3, transaction_state_log_num_partitions=PARTITIONS) as cluster:
        for broker in (2, 3):
            cluster.kill(broker)
        sender = RawTransactions(cluster.bootstrap, NAME)
        wait_for(lambda: cluster.running == [1])
        cluster.wait_until(lambda: len(_live(cluster)) == 1, "the others are missed")
        assert sender.init() is E.NONE
        assert len(cluster.replicas(LOG, PARTITION)) == 1
        for broker in (2, 3):
            cluster.start(broker)
        wait_for(lambda: len(cluster.replicas(LOG, PARTITION)) == 3)
        cluster.wait_in_sync(LOG)


def _live(cluster: TestCluster) -> list[int]:
    with cluster.admin() as admin:
        return [node.node_id for node in admin.describe_cluster().brokers]
