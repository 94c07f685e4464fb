"""Share groups in a cluster whose leaders and share coordinators die: what was acknowledged is not delivered again."""

import time
from collections.abc import Callable, Iterator

import pytest
from support.long_tests import first_is_quick
from support.raw_shares import RawShareMember, acquire_all
from support.waiting import PATIENCE_S, wait_for

from barnabas.core.coordinator.table import partition_of
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.testing import TestCluster

LOG = "__share_group_state"
PARTITIONS = 3
ACCEPT, RELEASE, REJECT, RENEW = b"\x01", b"\x02", b"\x03", b"\x04"
Disturb = Callable[[TestCluster, str, int, int], None]


def move(cluster: TestCluster, topic: str, partition: int, leader: int) -> None:
    cluster.move_leader(topic, partition, next(each for each in cluster.running if each != leader))


def expire(cluster: TestCluster, topic: str, partition: int, leader: int) -> None:
    cluster.expire_session(leader)
    cluster.wait_for_leader(topic, partition, other_than=leader)


EVENTS: dict[str, Disturb] = {
    "moved": move,
    "stopped": lambda cluster, _topic, _partition, leader: cluster.stop(leader),
    "killed": lambda cluster, _topic, _partition, leader: cluster.kill(leader),
    "power": lambda cluster, _topic, _partition, leader: cluster.kill(leader, power_cut=True),
    "expired": expire,
}


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    config = {"share.coordinator.state.topic.num.partitions": PARTITIONS, "zookeeper.session.timeout.ms": 1500}
    with TestCluster(brokers=3, config=config) as running:
        yield running


@pytest.fixture
def member(cluster: TestCluster) -> Iterator[RawShareMember]:
    topic = cluster.create_topic(partitions=1)
    made = RawShareMember(cluster.bootstrap, topic)
    made.initialize()
    cluster.wait_in_sync(topic)
    cluster.wait_in_sync(LOG)
    with cluster.producer(acks="all") as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    yield made
    made.leave()


def acquire_first(member: RawShareMember) -> None:
    """Acquire the ten records with the delivery count 1; if an answer is lost or late on a busy machine, in another
    group.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (got := acquire_all(member)) != dict.fromkeys(range(10), 1):
        assert time.monotonic() < deadline, got
        member.leave()
        member.group += "-again"
        member.initialize()


@pytest.mark.parametrize("event", EVENTS)
def test_next_leader_delivers_what_was_not_acknowledged(
    cluster: TestCluster, member: RawShareMember, event: str
) -> None:
    acquire_first(member)
    outcome = member.acknowledge((0, 2, ACCEPT), (3, 3, RELEASE), (4, 4, REJECT), (5, 5, ACCEPT))
    assert outcome is E.NONE
    assert member.state() == (3, [(3, 3, 0, 1), (4, 4, 4, 1), (5, 5, 2, 1)])
    leader = member.leader
    EVENTS[event](cluster, member.topic, 0, leader)
    member.leave()
    got = acquire_all(member, 5)
    assert member.leader != leader
    assert got == {3: 2, **dict.fromkeys(range(6, 10), 1)}, "locks end with the leader, and counts are those stored"
    assert member.acknowledge((3, 3, ACCEPT), (6, 9, ACCEPT)) is E.NONE
    assert member.state() == (10, [])


@pytest.mark.parametrize("event", first_is_quick(EVENTS, 2))
def test_acknowledgement_waits_for_next_coordinator(cluster: TestCluster, member: RawShareMember, event: str) -> None:
    acquire_first(member)
    assert member.acknowledge((0, 1, ACCEPT)) is E.NONE
    coordinator = member.coordinator()
    place = partition_of(member.key(), PARTITIONS)
    assert coordinator == cluster.leader(LOG, place)
    if coordinator == member.leader:  # the leader of the records is to live
        cluster.move_leader(LOG, place, next(each for each in cluster.running if each != coordinator))
        wait_for(lambda: member.coordinator() not in (-1, coordinator))
        coordinator = member.coordinator()
    EVENTS[event](cluster, LOG, place, coordinator)
    assert member.acknowledge((2, 4, ACCEPT), (5, 5, RELEASE)) is E.NONE
    assert member.coordinator() != coordinator
    assert member.state() == (5, [(5, 5, 0, 1)])
    assert acquire_all(member, 1) == {5: 2}


def test_leader_that_is_also_the_coordinator_dies(cluster: TestCluster, member: RawShareMember) -> None:
    acquire_all(member, 10)
    assert member.acknowledge((0, 6, ACCEPT)) is E.NONE
    place = partition_of(member.key(), PARTITIONS)
    if cluster.leader(LOG, place) != member.leader:
        cluster.move_leader(LOG, place, member.leader)
    assert member.acknowledge((8, 8, ACCEPT)) is E.NONE
    cluster.kill(member.leader)
    member.leave()
    assert acquire_all(member, 2) == {7: 1, 9: 1}


def test_deposed_leader_cannot_store_what_a_later_leader_has_delivered(
    cluster: TestCluster, member: RawShareMember
) -> None:
    acquire_all(member, 10)
    before = member.leader
    cluster.move_leader(member.topic, 0, next(each for each in cluster.running if each != before))
    other = RawShareMember(cluster.bootstrap, member.topic, group=member.group, member="n")
    assert acquire_all(other, 10) == dict.fromkeys(range(10), 1)
    assert other.leader != before
    assert member.acknowledge((0, 9, ACCEPT)) is not E.NONE
    assert other.acknowledge((0, 9, RELEASE)) is E.NONE
    assert other.state() == (0, [(0, 9, 0, 1)])
    other.leave()


@pytest.mark.parametrize("event", first_is_quick(EVENTS, 2))
def test_renewed_lock_ends_with_its_leader(cluster: TestCluster, member: RawShareMember, event: str) -> None:
    """Neither locks nor deliveries under way are stored: the next leader counts from what was released."""
    acquire_first(member)
    assert member.acknowledge((0, 4, RELEASE)) is E.NONE
    assert acquire_all(member, 5) == dict.fromkeys(range(5), 2)
    assert member.acknowledge((0, 9, RENEW)) is E.NONE
    stored = (0, [(0, 4, 0, 1)])
    assert member.state() == stored
    leader = member.leader
    EVENTS[event](cluster, member.topic, 0, leader)
    other = RawShareMember(cluster.bootstrap, member.topic, group=member.group, member="n")
    assert acquire_all(other, 10) == {**dict.fromkeys(range(5), 2), **dict.fromkeys(range(5, 10), 1)}
    assert other.leader != leader
    member.leave()
    assert member.fetch() == [], "the other member has all of them"
    for late in (RENEW, ACCEPT, RELEASE):
        assert member.acknowledge((0, 9, late)) is E.INVALID_RECORD_STATE
    assert member.state() == stored
    assert other.acknowledge((0, 4, RELEASE), (5, 9, ACCEPT)) is E.NONE
    assert acquire_all(member, 5) == dict.fromkeys(range(5), 3)
    other.leave()


def test_dead_letters_reach_leaders_that_are_other_brokers(cluster: TestCluster, member: RawShareMember) -> None:
    member.configure("errors.deadletterqueue.topic.name", "dlq.t")
    with cluster.admin() as admin:
        admin.create_topic("dlq.t", replication_factor=3, configs={"errors.deadletterqueue.group.enable": "true"})
    cluster.wait_in_sync("dlq.t")
    acquire_all(member, 10)
    if cluster.leader("dlq.t", 0) == member.leader:
        cluster.move_leader("dlq.t", 0, next(each for each in cluster.running if each != member.leader))
    assert member.acknowledge((0, 3, REJECT), (4, 9, ACCEPT)) is E.NONE
    wait_for(lambda: member.state() == (10, []))
    with cluster.consumer(auto_offset_reset="earliest") as reader:
        reader.assign([("dlq.t", 0)])
        letters = [message for message in (reader.poll(PATIENCE_S) for _ in range(4)) if message is not None]
    assert [dict(each.headers)["__dlq.errors.offset"] for each in letters] == [b"0", b"1", b"2", b"3"]
