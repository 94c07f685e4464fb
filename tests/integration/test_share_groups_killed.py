"""Broker processes of share groups are killed: leaders, share coordinators, and brokers that are both."""

import os
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster_process import ClusterProcess
from support.raw_shares import RawShareMember, acquire_all
from support.share_groups import read_from_the_beginning
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Producer, ShareConsumer
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.errors import BarnabasError

pytestmark = [pytest.mark.process, pytest.mark.slow]

LOG, GROUP, TOPIC = "__share_group_state", "g", "t"
PARTITIONS, COUNT = 3, 1_500
ACCEPT, RELEASE, REJECT = b"\x01", b"\x02", b"\x03"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    words = ("--set", "share.coordinator.state.topic.num.partitions=3", "--set", "zookeeper.session.timeout.ms=3000")
    running = ClusterProcess(tmp_path / "cluster", "--brokers", "3", *words)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def admin(cluster: ClusterProcess) -> Iterator[Admin]:
    with Admin(cluster.bootstrap) as client:
        yield client


def wait_in_sync(admin: Admin, *topics: str) -> None:
    def in_sync() -> bool:
        try:
            observed = [part for topic in admin.describe_topics(topics) for part in topic.partitions]
        except BarnabasError:
            return False
        return all(part.leader >= 0 and len(part.isr) == 3 for part in observed)

    wait_for(in_sync, pause_s=0.05)


def leader_of(admin: Admin, topic: str, partition: int) -> int:
    found = {each.partition: each.leader for each in admin.describe_topic(topic).partitions}
    return found[partition]


def kill(cluster: ClusterProcess, broker: int) -> None:
    os.kill(cluster.broker(broker).pid, signal.SIGKILL)


def begun(cluster: ClusterProcess, admin: Admin, *, same: bool) -> tuple[RawShareMember, int, int]:
    """Start a member; the partition leader is also its share coordinator, or is not. Return it and both brokers."""
    for attempt in range(20):
        topic = f"t{attempt}"
        admin.create_topic(topic, partitions=3, replication_factor=3)
        for partition in range(3):
            member = RawShareMember(cluster.bootstrap, topic, partition=partition)
            member.initialize()
            wait_in_sync(admin, topic, LOG)
            leader, coordinator = leader_of(admin, topic, partition), member.coordinator()
            if (leader == coordinator) == same:
                return member, leader, coordinator
    raise AssertionError("no partition has such brokers")


@pytest.mark.parametrize("victim", ["leader", "coordinator", "both"])
def test_what_is_acknowledged_outlives_the_kill_of(cluster: ClusterProcess, admin: Admin, victim: str) -> None:
    member, leader, coordinator = begun(cluster, admin, same=victim == "both")
    with Producer(cluster.bootstrap, acks="all") as producer:
        for number in range(10):
            producer.send(member.topic, b"%d" % number, partition=member.partition)
    assert acquire_all(member, 10) == dict.fromkeys(range(10), 1)
    assert member.acknowledge((0, 2, ACCEPT), (3, 3, RELEASE), (4, 4, REJECT), (5, 5, ACCEPT)) is E.NONE
    kill(cluster, coordinator if victim == "coordinator" else leader)
    if victim == "coordinator":
        assert member.acknowledge((6, 6, ACCEPT), (7, 7, RELEASE)) is E.NONE, "it waits for the next coordinator"
        assert acquire_all(member, 2) == {3: 2, 7: 2}
        assert member.acknowledge((3, 3, ACCEPT), (7, 9, ACCEPT)) is E.NONE
    else:
        member.leave()
        assert acquire_all(member, 5) == {3: 2, **dict.fromkeys(range(6, 10), 1)}
        assert member.acknowledge((3, 3, ACCEPT), (6, 9, ACCEPT)) is E.NONE
    assert member.state() == (10, [])
    member.leave()


class Worker:
    """A share consumer on a thread of its own; it releases every tenth message once and accepts all others."""

    def __init__(self, bootstrap: str, events: list[tuple[str, int, int, int]]) -> None:
        self._consumer = ShareConsumer(
            bootstrap, group_id=GROUP, share_acknowledgement_mode="explicit", max_poll_records=20
        )
        self._events = events
        """The list collects what happens: each entry is a word, the partition, the offset, the delivery count."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._consumer.subscribe(TOPIC)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(PATIENCE_S)
        self._consumer.close()

    def _run(self) -> None:
        while not self._ends.is_set():
            accepted: list[tuple[int, int, int]] = []
            for message in self._consumer.poll_many(20, 0.2):
                row = (message.partition, message.offset, message.delivery_count)
                self._events.append(("delivered", *row))
                is_released = message.offset % 10 == 0 and message.delivery_count == 1
                self._consumer.acknowledge(message, "release" if is_released else "accept")
                if not is_released:
                    accepted.append(row)
                    self._events.append(("accepted", *row))
            if accepted:
                results = self._consumer.commit_sync(PATIENCE_S)
                stored = {tp.partition for tp, error in results.items() if error is None}
                self._events.extend(("stored", *row) for row in accepted if row[0] in stored)


def test_consumers_accept_each_message_while_leaders_and_coordinators_are_killed(
    cluster: ClusterProcess, admin: Admin
) -> None:
    admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
    read_from_the_beginning(cluster.bootstrap, GROUP)
    events: list[tuple[str, int, int, int]] = []
    workers = [Worker(cluster.bootstrap, events) for _ in range(2)]

    def wait_for_accepted(count: int) -> None:
        wait_for(lambda: len({each[1:3] for each in list(events) if each[0] == "accepted"}) >= count, pause_s=0.02)

    try:
        wait_for(lambda: len(admin.describe_group(GROUP).members) == 2, pause_s=0.05)
        member = RawShareMember(cluster.bootstrap, TOPIC, group=GROUP)
        for turn, victim in enumerate(("leader", "coordinator", "leader")):
            before, after = turn * COUNT, (turn + 1) * COUNT
            with Producer(cluster.bootstrap, acks="all") as producer:
                for number in range(before, after):
                    producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                wait_for_accepted(before + 1)
                kill(cluster, leader_of(admin, TOPIC, 0) if victim == "leader" else member.coordinator())
            wait_for_accepted(after)
            wait_in_sync(admin, TOPIC, LOG)
        wait_for(lambda: all(each.lag == 0 for each in admin.share_group_offsets(GROUP).values()), pause_s=0.1)
    finally:
        for worker in workers:
            worker.stop()
    assert {place.partition: each.offset for place, each in admin.share_group_offsets(GROUP).items()} == dict.fromkeys(
        range(PARTITIONS), after // PARTITIONS
    )
    deliveries: dict[tuple[int, int], int] = defaultdict(int)
    stored: set[tuple[int, int]] = set()
    for word, partition, offset, count in events:
        place = (partition, offset)
        if word == "delivered":
            assert place not in stored, f"{place} was accepted, and comes again"
            deliveries[place] += 1
            assert 1 <= count <= deliveries[place], place
        elif word == "stored":
            assert place not in stored
            stored.add(place)
    assert len(deliveries) == after
