"""Folders of partitions that a broker should not have when it comes back: they are renamed, or left where in doubt."""

from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.core.cluster import layout
from barnabas.ports.broker_api.topics import NewTopic
from barnabas.simulation import World
from barnabas.simulation.broker import SimulatedBroker

T = ("t", 0)
SETTINGS: dict[str, Any] = {
    "default_replication_factor": 1,
    "min_insync_replicas": 1,
    "replica_lag_time_max_ms": 1500,
    "zookeeper_session_timeout_ms": 2000,
}


def cluster(seed: int) -> World:
    return World(seed, brokers=3, session_seconds=2.0, **SETTINGS)


def folders(broker: SimulatedBroker) -> list[str]:
    return [name for disk in broker.disks for name in disk.folders if name.startswith("t-")]


def content(broker: SimulatedBroker) -> bytes:
    (name,) = folders(broker)
    found = (disk.folders[name] for disk in broker.disks if name in disk.folders)
    return b"".join(bytes(file.data) for files in found for file in files.values())


def make_and_write(world: World, admin: Admin, value: bytes, *brokers: int) -> None:
    if "other" not in world.look.topics():
        admin.create_topics([NewTopic(name="other", assignments={0: (1, 2, 3)})])
    admin.create_topics([NewTopic(name="t", assignments={0: brokers})])
    write(world, value)
    world.run_until(lambda: set(world.look.states("t")[0].isr) == set(brokers))


def write(world: World, value: bytes) -> None:
    with Producer(world.client(f"p{world.now}"), acks="all") as producer:
        producer.send("t", value).result()


def values(world: World) -> list[bytes | None]:
    found = []
    with Consumer(world.client(f"c{world.now}"), auto_offset_reset="earliest") as consumer:
        consumer.assign([T])
        while (message := consumer.poll(3.0)) is not None:
            found.append(message.value)
    return found


def end(broker: SimulatedBroker, *, in_order: bool, world: World) -> None:
    if in_order:
        broker.stop()
    else:
        broker.kill()
    world.run_until(lambda: broker.node is None and broker.broker_id not in world.look.brokers())


def move(world: World, admin: Admin, *brokers: int) -> None:
    admin.reassign_partitions({T: list(brokers)})
    world.run_until(lambda: world.look.topics()["t"].partitions[0] == brokers)
    world.run(1)  # all brokers have heard of it


@pytest.mark.parametrize("in_order", [False, True])
def test_replica_that_moved_away_while_its_broker_was_down_is_renamed_to_stray(in_order: bool) -> None:
    with cluster(1) as world, Admin(world.client()) as admin:
        make_and_write(world, admin, b"first", 1, 2)
        late = world.brokers[2]
        end(late, in_order=in_order, world=world)
        move(world, admin, 1, 3)
        write(world, b"second")
        late.start()
        world.run_until(lambda: [name[-6:] for name in folders(late)] == ["-stray"])
        assert b"first" in content(late)
        line = next(line for line in world.reports if "found stray log dir" in line)
        assert "the current replica assignment [1, 3] does not contain the local brokerId 2" in line
        late.restart()
        world.run(200)
        assert len(folders(late)) == 1, "nothing deletes it"
        assert values(world) == [b"first", b"second"]
        move(world, admin, 2, 1)
        world.run_until(lambda: world.look.states("t")[0].isr == (2, 1) or set(world.look.states("t")[0].isr) == {1, 2})
        assert values(world) == [b"first", b"second"]


def test_log_that_is_ahead_of_a_restored_coordination_service_is_not_stray() -> None:
    """The tree is of a time before the move; those that have no replica by it have the only messages."""
    with cluster(2) as world, Admin(world.client()) as admin:
        make_and_write(world, admin, b"first", 1)
        world.run(1)
        states = layout.states_path(world.look.topics()["t"].topic_id)
        nodes = {path: world.node(path) for path in (states, layout.topic_path("t"))}
        move(world, admin, 2)
        write(world, b"second")
        world.run(1)
        for broker in world.brokers.values():
            broker.kill()
        world.run_until(lambda: not world.look.brokers())
        for path, data in nodes.items():
            world.tree.session().set(path, data or b"")
        for broker in world.brokers.values():
            broker.start()
        world.run(100)
        assert folders(world.brokers[2]) == ["t-0"]
        assert b"second" in content(world.brokers[2])
        assert any("has records that the leader, broker 1, has not" in line for line in world.reports)


def test_replica_is_not_stray_while_the_partition_has_no_live_leader() -> None:
    with cluster(3) as world, Admin(world.client()) as admin:
        make_and_write(world, admin, b"first", 1, 2)
        late = world.brokers[2]
        end(late, in_order=True, world=world)
        move(world, admin, 1, 3)
        for number in (3, 1):
            end(world.brokers[number], in_order=True, world=world)
        late.start()
        world.run(100)
        assert folders(late) == ["t-0"]
        for number in (1, 3):
            world.brokers[number].start()
        world.run_until(lambda: [name[-6:] for name in folders(late)] == ["-stray"])
        assert b"first" in content(late)


@pytest.mark.parametrize("in_order", [False, True])
def test_replica_that_moved_away_from_a_stopped_broker_is_removed_when_the_topic_was_deleted_since(
    in_order: bool,
) -> None:
    with cluster(6) as world, Admin(world.client()) as admin:
        make_and_write(world, admin, b"first", 1, 2)
        late = world.brokers[2]
        end(late, in_order=in_order, world=world)
        topic_id = world.look.topics()["t"].topic_id
        move(world, admin, 1, 3)
        admin.delete_topics(["t"])
        world.run_until(lambda: world.node(layout.topic_path("t")) is None)
        world.run(5)
        assert world.node(layout.deleted_path(topic_id)) is not None, "it waits for the broker that is down"
        late.start()
        world.run_until(lambda: not folders(late))
        world.run_until(lambda: world.node(layout.deleted_path(topic_id)) is None)


def test_folder_of_a_topic_whose_nodes_are_lost_is_left_alone() -> None:
    """They may come back."""
    with cluster(4) as world, Admin(world.client()) as admin:
        make_and_write(world, admin, b"first", 1, 2)
        late = world.brokers[2]
        end(late, in_order=True, world=world)
        move(world, admin, 1, 3)
        for number in (1, 3):
            end(world.brokers[number], in_order=True, world=world)
        world.tree.session().delete(layout.topic_path("t"))
        late.start()
        world.run_until(lambda: late.running)
        world.run(40)
        assert folders(late) == ["t-0"]
        assert b"first" in content(late)


def test_topic_made_again_is_opened_where_an_orphan_of_the_earlier_one_is() -> None:
    """KAFKA-14616: the partition would stay under-replicated until a restart."""
    with cluster(5) as world, Admin(world.client()) as admin:
        make_and_write(world, admin, b"first", 1, 2)
        late = world.brokers[2]
        end(late, in_order=False, world=world)
        topic_id = world.look.topics()["t"].topic_id
        move(world, admin, 1, 3)
        admin.delete_topics(["t"])
        world.run_until(lambda: world.node(layout.topic_path("t")) is None)
        world.run(5)
        world.tree.session().delete(layout.deleted_path(topic_id))  # earlier versions wrote no note for such brokers
        late.start()
        world.run_until(lambda: late.running)
        world.run(1)
        assert folders(late) == ["t-0"]
        make_and_write(world, admin, b"of the next", 1, 2)
        assert sorted(name[-6:] for name in folders(late)) == ["-stray", "t-0"]
        assert values(world) == [b"of the next"]
