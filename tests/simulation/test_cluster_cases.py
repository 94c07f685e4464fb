"""What the stories found, each as a case of its own."""

from functools import partial
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.core.cluster.topics import NO_LEADER
from barnabas.ports.coordination import CoordinationError
from barnabas.ports.words import TopicPartition
from barnabas.simulation import COORDINATION, World

QUICK: dict[str, Any] = {
    "default_replication_factor": 3,
    "offsets_topic_replication_factor": 3,
    "offsets_topic_num_partitions": 1,
    "min_insync_replicas": 2,
    "replica_lag_time_max_ms": 1500,
    "group_initial_rebalance_delay_ms": 0,
    "zookeeper_session_timeout_ms": 2000,
}


def cluster(seed: int, brokers: int = 3, **settings: Any) -> World:
    return World(seed, brokers=brokers, session_seconds=2.0, **{**QUICK, **settings})


def test_positions_stay_when_the_coordinator_gives_up_its_replica_of_the_topic() -> None:
    """They end with the topic."""
    with cluster(1, brokers=4) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        with Producer(world.client()) as producer:
            producer.send("t", b"a").result()
        with Consumer(world.client(), group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            assert consumer.poll(10.0) is not None
            consumer.commit()
        coordinator = admin.coordinator("g").node_id
        others = [broker for broker in world.brokers if broker != coordinator]

        def move(brokers: list[int]) -> None:
            admin.reassign_partitions({("t", 0): brokers})
            world.run_until(lambda: world.look.topics()["t"].partitions[0] == tuple(brokers))
            world.run(1)

        move([coordinator, *others[:2]])
        move(others)
        assert ("t", 0) not in world.brokers[coordinator].partitions, "a replica that has moved away is left"
        offsets = {tuple(place): committed.offset for place, committed in admin.group_offsets("g").items()}
        assert offsets == {("t", 0): 1}
        admin.delete_topics(["t"])
        world.run(1)
        assert not admin.group_offsets("g")


def test_a_topic_that_is_made_again_has_forgotten_the_disk_that_failed() -> None:
    with cluster(2) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        last = world.look.topics()["t"].partitions[0][-1]
        world.brokers[last].disk.errors_per_million = 1_000_000
        with Producer(world.client()) as producer:
            producer.send("t", b"a").result()
        world.run_until(lambda: world.brokers[last].disk_failed)
        world.brokers[last].disk.errors_per_million = 0
        world.run_until(lambda: last not in world.look.states("t")[0].isr)
        admin.delete_topics(["t"])
        world.run(1)
        admin.create_topic("t", partitions=1)
        with Producer(world.client()) as producer:
            producer.send("t", b"b").result()
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 3)


def test_two_moves_at_once_end_in_any_order() -> None:
    with cluster(3, brokers=4) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=2)
        world.run(1)
        spare = {
            number: next(broker for broker in world.brokers if broker not in replicas)
            for number, replicas in world.look.topics()["t"].partitions.items()
        }
        for number in (1, 0):
            before = world.look.topics()["t"].partitions[number]
            admin.reassign_partitions({("t", number): [spare[number], *before[:2]]})
        world.run_until(lambda: not (world.look.topics()["t"].adding or world.look.topics()["t"].removing))
        world.run_until(lambda: all(len(state.isr) == 3 for state in world.look.states("t").values()))


def test_followers_come_to_a_leader_that_hears_late_of_the_topic() -> None:
    with cluster(5) as world, Admin(world.client()) as admin:
        late = next(broker for broker in world.brokers if broker != world.look.controller())
        world.network.partition(late, COORDINATION)
        admin.create_topic("t", partitions=3)
        world.run(0.7)
        world.network.heal()
        world.run_until(lambda: any(state.leader == late for state in world.look.states("t").values()))
        world.run(3)
        assert [len(state.isr) for state in world.look.states("t").values()] == [3, 3, 3]


def test_partitions_that_one_broker_cannot_open_are_led_by_others() -> None:
    with cluster(4, log_flush_interval_messages=1) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        bad = world.look.topics()["t"].partitions[0][0]
        world.brokers[bad].disk.flush_errors_per_million = 1_000_000
        with Producer(world.client()) as producer:
            producer.send("t", b"a", partition=0).result()
        world.run_until(lambda: world.brokers[bad].disk_failed)
        admin.create_partitions("t", 4)
        world.run_until(lambda: all(bad not in (s.leader, *s.isr) for s in world.look.states("t").values()))
        assert len(world.look.topics()["t"].partitions) == 4
        nodes = [broker.node for broker in world.brokers.values() if broker.node is not None]
        world.run_until(lambda: all(len(node.state.image.topics["t"].partitions) == 4 for node in nodes))
        with Producer(world.client()) as producer:
            assert [producer.send("t", b"a", partition=n).result().partition for n in (1, 2, 3)] == [1, 2, 3]


@pytest.mark.parametrize("chosen", [3, 4, 8])
def test_topics_that_are_made_while_a_broker_comes_back_are_known_to_it(chosen: int) -> None:
    """Between its first reading of the tree and its watch nothing may be missed."""
    with cluster(chosen, default_replication_factor=1, min_insync_replicas=1) as world, Admin(world.client()) as admin:
        late = next(broker for broker in world.brokers.values() if broker.broker_id != world.look.controller())

        def knows(topics: int) -> bool:
            return late.running and late.node is not None and len(late.node.state.image.topics) == topics

        for number in range(10):
            late.kill()
            world.scheduler.call_later(1.0 * number, late.start)
            admin.create_topic(f"t{number}", partitions=1)
            world.run_until(partial(knows, number + 1))


def test_a_replica_that_is_moved_while_nobody_leads_tells_what_it_has_once_it_is_there() -> None:
    """Who leads is decided when all replicas that live have told; nothing else may happen after this one is open."""
    with cluster(6, brokers=5) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        replicas = world.look.topics()["t"].partitions[0]
        spare = next(broker for broker in world.brokers if broker not in replicas)
        for broker in replicas:
            world.brokers[broker].kill()
        world.run_until(lambda: world.look.states("t")[0].leader == NO_LEADER)
        world.brokers[spare].pause(1.5)
        admin.reassign_partitions({("t", 0): [spare, *replicas[:2]]})
        for broker in replicas:
            world.brokers[broker].start()
        world.run_until(lambda: world.look.states("t")[0].claims.keys() == set(replicas))
        assert world.look.states("t")[0].leader == NO_LEADER
        world.run_until(lambda: world.look.states("t")[0].leader != NO_LEADER)
        world.run_until(lambda: set(world.look.states("t")[0].isr) == {spare, *replicas[:2]})


def test_what_a_replica_has_is_told_again_when_it_could_not_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(7) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        for broker in world.brokers.values():
            broker.kill()
        refused: set[ClusterRegistry] = set()
        change_states = ClusterRegistry.change_states

        async def refuse_once(registry: ClusterRegistry, *arguments: Any) -> object:
            if registry not in refused and registry.image.state(TopicPartition("t", 0)).leader == NO_LEADER:
                refused.add(registry)
                raise CoordinationError("no answer in time")
            return await change_states(registry, *arguments)

        monkeypatch.setattr(ClusterRegistry, "change_states", refuse_once)
        for broker in world.brokers.values():
            broker.start()
        world.run_until(lambda: len(refused) == 3)
        world.run_until(lambda: world.look.states("t")[0].leader != NO_LEADER)
