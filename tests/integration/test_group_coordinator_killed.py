"""A broker process that coordinates a group by KIP-848 is killed: its members keep what they have, and lose nothing."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster_process import ClusterProcess
from support.waiting import PATIENCE_S

from barnabas import Admin, Consumer, Producer
from barnabas.ports.types import TopicPartition

pytestmark = [pytest.mark.process, pytest.mark.slow]

GROUP, TOPIC, PARTITIONS = "g", "t", 6


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    running = ClusterProcess(tmp_path / "cluster", "--brokers", "3")
    try:
        yield running
    finally:
        running.stop()


class Reader:
    """A member, the messages that it got, and what it lost."""

    def __init__(self, bootstrap: str) -> None:
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 200}
        self.consumer = Consumer(bootstrap, group_id=GROUP, group_protocol="consumer", **settings)
        self.lost: list[TopicPartition] = []
        self.values: list[int] = []
        self.consumer.subscribe(TOPIC, on_lost=self.lost.extend)

    def poll(self) -> None:
        self.values += [int(message.value or b"") for message in self.consumer.poll_many(100, 0.05)]


def send(bootstrap: str, first: int, count: int) -> None:
    with Producer(bootstrap) as producer:
        for number in range(first, first + count):
            producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)


def read_until(readers: list[Reader], count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while sum(len(reader.values) for reader in readers) < count:
        assert time.monotonic() < deadline, [(reader.consumer.assignment, len(reader.values)) for reader in readers]
        for reader in readers:
            reader.poll()


def test_members_keep_their_partitions_when_their_coordinator_is_killed(cluster: ClusterProcess) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        readers = [Reader(cluster.bootstrap) for _ in range(2)]
        deadline = time.monotonic() + PATIENCE_S
        while [len(reader.consumer.assignment) for reader in readers] != [3, 3]:
            assert time.monotonic() < deadline
            for reader in readers:
                reader.poll()
        had = [reader.consumer.assignment for reader in readers]
        send(cluster.bootstrap, 0, 60)
        read_until(readers, 60)
        for reader in readers:
            reader.consumer.commit()
        os.kill(cluster.broker(admin._groups.coordinator(GROUP).node_id).pid, signal.SIGKILL)
        send(cluster.bootstrap, 60, 60)
        read_until(readers, 120)
        for reader in readers:
            reader.consumer.commit()
    assert sorted(value for reader in readers for value in reader.values) == list(range(120))
    assert [reader.consumer.assignment for reader in readers] == had
    assert [reader.lost for reader in readers] == [[], []]
    readers[0].consumer.close()
    deadline = time.monotonic() + PATIENCE_S
    while len(readers[1].consumer.assignment) != PARTITIONS:
        assert time.monotonic() < deadline
        readers[1].poll()
    readers[1].consumer.close()
