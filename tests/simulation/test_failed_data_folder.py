"""Brokers with a data folder that cannot be used when they start."""

from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.core.cluster import layout
from barnabas.core.cluster.topics import NO_LEADER
from barnabas.ports.broker_api.topics import NewTopic
from barnabas.ports.types import TopicPartition
from barnabas.simulation import Disasters, World
from barnabas.simulation.broker import SimulatedBroker
from barnabas.simulation.machine import SimulatedSession

SETTINGS: dict[str, Any] = {
    "default_replication_factor": 1,
    "min_insync_replicas": 1,
    "replica_lag_time_max_ms": 1500,
    "zookeeper_session_timeout_ms": 2000,
}


def cluster(seed: int) -> World:
    return World(seed, brokers=2, session_seconds=2.0, data_folders=2, **SETTINGS)


def in_folder(broker: SimulatedBroker, number: int) -> set[TopicPartition]:
    names = [name for name in broker.disks[number].folders if name.startswith("t-")]
    return {TopicPartition("t", int(name.rpartition("-")[2])) for name in names}


@pytest.mark.parametrize("replicas", [(2,), (2, 1)])
def test_registration_names_the_partitions_of_a_failed_data_folder_from_the_start(
    replicas: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the broker may be elected for them before it has said so."""
    registered: list[bytes] = []
    create = SimulatedSession.create

    def noted(self: Any, path: str, data: bytes = b"", *, ephemeral: bool = False) -> Any:
        if path == layout.broker_path(2):
            registered.append(data)
        return create(self, path, data, ephemeral=ephemeral)

    with cluster(1) as world, Admin(world.client()) as admin:
        admin.create_topics([NewTopic(name="t", assignments=dict.fromkeys(range(4), replicas))])
        broker = world.brokers[2]
        world.run_until(lambda: len(broker.partitions) == 4)
        lost = in_folder(broker, 1)
        assert len(lost) == 2
        broker.kill()
        broker.disks[1].failed = True
        world.run_until(lambda: 2 not in world.look.brokers())
        monkeypatch.setattr(SimulatedSession, "create", noted)
        leaders: set[int] = set()
        broker.start()
        while not broker.running or 2 not in world.look.brokers():
            world.run(0.01)
            states = world.look.states("t")
            leaders |= {states[key.partition].leader for key in lost if 2 in world.look.brokers()}
        world.run(1)
        assert layout.decode_broker("2", registered[0]).offline == lost
        assert leaders | {world.look.states("t")[key.partition].leader for key in lost} <= {1, NO_LEADER}


def test_log_in_a_failed_data_folder_is_not_replaced_by_an_empty_one() -> None:
    """A change of the topic has the broker open its logs again; the only complete one may be in the folder."""
    with cluster(2) as world, Admin(world.client()) as admin:
        admin.create_topics([NewTopic(name="t", assignments=dict.fromkeys(range(4), (2,)))])
        broker = world.brokers[2]
        with Producer(world.client(), acks="all") as producer:
            for number in range(4):
                producer.send("t", b"kept", partition=number).result()
        lost = in_folder(broker, 1)
        broker.kill()
        broker.disks[1].failed = True
        world.run_until(lambda: 2 not in world.look.brokers())
        broker.start()
        world.run_until(lambda: broker.running)
        admin.alter_topic_configs("t", {"retention.ms": "3600000000"})
        world.run(5)
        assert not lost & in_folder(broker, 0)
        assert all(world.look.states("t")[key.partition].leader == NO_LEADER for key in lost)
        broker.kill()
        broker.disks[1].failed = False
        world.run_until(lambda: 2 not in world.look.brokers())
        broker.start()
        world.run_until(lambda: all(state.leader == 2 for state in world.look.states("t").values()))
        assert all(partition.log.log_end_offset == 1 for partition in broker.partitions.values())


def test_new_topic_is_created_in_the_data_folders_that_work() -> None:
    with cluster(3) as world, Admin(world.client()) as admin:
        broker = world.brokers[2]
        broker.kill()
        broker.disks[1].failed = True
        world.run_until(lambda: 2 not in world.look.brokers())
        broker.start()
        world.run_until(lambda: broker.running and 2 in world.look.brokers())
        admin.create_topics([NewTopic(name="t", assignments=dict.fromkeys(range(4), (2,)))])
        world.run_until(lambda: all(state.leader == 2 for state in world.look.states("t").values()))
        world.run_until(lambda: len(in_folder(broker, 0)) == 4)


def test_folder_that_answers_again_before_its_broker_is_registered_is_used() -> None:
    """A broker takes up a failed folder at its next start: an operator who has repaired the disk starts it again."""
    with cluster(4) as world:
        broker = world.brokers[2]
        broker.kill()
        broker.disks[1].failed = True
        broker.start()
        world.run_until(lambda: broker.disk_failed)
        assert not broker.running
        disasters = Disasters(world, kinds=["fail_folder"])
        disasters.begin()
        disasters.end()
        world.run_until(lambda: broker.running)
        assert not broker.disk_failed


def test_topic_stays_whose_logs_its_creator_cannot_create() -> None:
    """Other brokers lead its partitions, and may have acknowledged messages before its creator finds the failure."""
    with (
        World(
            3, brokers=3, session_seconds=2.0, data_folders=2, **{**SETTINGS, "default_replication_factor": 3}
        ) as world,
        Admin(world.client()) as admin,
    ):
        admin.create_topic("first")
        world.brokers[world.look.controller()].disks[1].failed = True
        made = admin.create_topic("t", partitions=4)
        with Producer(world.client("writer"), acks="all") as producer:
            for partition in range(4):
                producer.send("t", b"x", partition=partition).result(10)
        world.run(1)
        assert world.look.topics()["t"].topic_id == made.topic_id
        ends = admin.list_offsets(dict.fromkeys((TopicPartition("t", each) for each in range(4)), "latest"))
        assert list(ends.values()) == [1] * 4
