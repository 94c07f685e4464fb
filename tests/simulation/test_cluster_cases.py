"""Defects that seeds have found, each as a case of its own."""

from functools import partial
from typing import Any

import pytest
from simulation.cluster_checker import Agreed, Entry, offsets_in
from support.long_tests import first_is_quick

from barnabas import Admin, Consumer, Producer
from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.core.client.cluster_view import ClusterView
from barnabas.core.cluster import layout, registry
from barnabas.core.cluster.change_queue import elsewhere
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.core.cluster.topic_store import states_paths
from barnabas.core.cluster.topics import NO_LEADER
from barnabas.core.coordinator.group.records import StoredOffset, encode_offset, encode_offset_key
from barnabas.core.message.batch_header import parse_header
from barnabas.core.message.batch_writer import make_empty_batch
from barnabas.core.tree import tree
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.metadata import NO_TOPIC_ID
from barnabas.ports.broker_api.replicas import ElectionType
from barnabas.ports.broker_api.topics import NewTopic
from barnabas.ports.coordination import CoordinationError
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.types import Offset, TopicPartition
from barnabas.simulation import COORDINATION, World
from barnabas.simulation.machine import SimulatedSession
from barnabas.testing.logs import batch, open_log

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
        offsets = {tuple(tp): committed.offset for tp, committed in admin.group_offsets("g").items()}
        assert offsets == {("t", 0): 1}
        admin.delete_topics(["t"])
        world.run(1)
        assert not admin.group_offsets("g")


def test_a_reader_of_the_deleted_topic_commits_nothing_into_the_next_one() -> None:
    """The consumer has not heard of the deletion, and the coordinator has."""
    with cluster(1) as world, Admin(world.client("founder")) as admin:
        admin.create_topic("t", partitions=1)
        with Producer(world.client("p"), acks="all") as producer:
            for number in range(4):
                producer.send("t", b"old %d" % number).result()
        options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        with Consumer(world.client("c"), **options) as consumer:
            consumer.subscribe("t")
            for _ in range(4):
                assert consumer.poll(10.0) is not None
            node = world.brokers[admin.coordinator("g").node_id].node
            assert node is not None
            before = node.state.image.topics["t"].topic_id
            consumer.pause(("t", 0))  # a fetch would reveal it
            world.run(1)
            admin.delete_topics(["t"])
            admin.create_topic("t", partitions=1)
            assert node.state.image.topics["t"].topic_id != before
            with pytest.raises(ApiError, match="t-0"):
                consumer.commit()
        assert admin.group_offsets("g") == {}


def test_committed_offsets_do_not_outlive_a_topic_deleted_while_the_group_has_no_coordinator() -> None:
    with cluster(1) as world, Admin(world.client("founder")) as admin:
        admin.create_topic("t", partitions=1)
        with Producer(world.client("p"), acks="all") as producer:
            for number in range(4):
                producer.send("t", b"old %d" % number).result()
        options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
        with Consumer(world.client("c"), enable_auto_commit=False, **options) as consumer:
            consumer.subscribe("t")
            for _ in range(4):
                assert consumer.poll(10.0) is not None
            consumer.commit()
        assert [each.offset for each in admin.group_offsets("g").values()] == [4]
        coordinator = admin.coordinator("g").node_id
        world.brokers[coordinator].kill()
        admin.delete_topics(["t"])
        admin.create_topic("t", partitions=1)
        leads = world.look.states
        world.run_until(lambda: leads("__consumer_offsets")[0].leader not in (coordinator, NO_LEADER))
        world.run(3)
        assert admin.group_offsets("g") == {}
        with Producer(world.client("p2"), acks="all") as producer:
            for number in range(6):
                producer.send("t", b"new %d" % number).result()
        with Consumer(world.client("c2"), **options) as consumer:
            consumer.subscribe("t")
            read = [consumer.poll(10.0) for _ in range(6)]
        assert [each and each.value for each in read] == [b"new %d" % number for number in range(6)]


def test_coordinator_cut_off_from_coordination_serves_no_offset_of_a_deleted_topic() -> None:
    """The lease is valid for a while, but the broker's image still has the deleted topic."""
    with cluster(2) as world, Admin(world.client("founder")) as admin:
        admin.create_topic("t", partitions=1)
        with Producer(world.client("p"), acks="all") as producer:
            producer.send("t", b"old").result()
        options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
        with Consumer(world.client("c"), enable_auto_commit=False, **options) as consumer:
            consumer.subscribe("t")
            assert consumer.poll(10.0) is not None
            consumer.commit()
        coordinator = _coordinator_apart_from_controller(world, admin, "g")
        known = _topic_id(world, coordinator)
        world.network.partition(coordinator, COORDINATION)
        admin.delete_topics(["t"])
        admin.create_topic("t", partitions=1)
        assert _topic_id(world, coordinator) == known, "it has learned of the deletion"
        world.scheduler.call_later(500, world.network.heal)
        assert admin.group_offsets("g") == {}
        assert _topic_id(world, coordinator) != known


def test_coordinator_that_knows_the_new_topic_serves_no_offset_that_is_left_of_the_one_before() -> None:
    """The broker's image has the new topic, as the tree has; the offset names its topic id."""
    with cluster(2) as world, Admin(world.client("founder")) as admin:
        admin.create_topic("t", partitions=1)
        coordinator, controller = _coordinator_apart_from_controller(world, admin, "g"), world.look.controller()
        admin.alter_group_offsets("g", {("t", 0): 0})
        world.network.partition(coordinator, COORDINATION)
        admin.delete_topics(["t"])
        admin.create_topic("t", partitions=1)
        informed, node = world.brokers[controller].node, world.brokers[coordinator].node
        assert informed is not None and node is not None
        node.state.registry.image = informed.state.image
        world.scheduler.call_later(500, world.network.heal)
        with Admin(world.client("asker"), default_api_timeout_ms=2000) as asker:
            try:
                found = asker.group_offsets("g")
            except BarnabasError:
                found = {}  # it is asked again
        assert found == {}


def _coordinator_apart_from_controller(world: World, admin: Admin, group: str) -> int:
    """Return the coordinator of a group, moved where it was the controller, which clients ask to create topics."""
    coordinator, controller = admin.coordinator(group).node_id, world.look.controller()
    if coordinator != controller:
        return coordinator
    offsets = TopicPartition("__consumer_offsets", 0)
    others = [each for each in world.look.topics()[offsets.topic].partitions[0] if each != controller]
    admin.reassign_partitions({offsets: [*others, controller]})
    admin.elect_leaders([offsets])
    world.run_until(lambda: world.look.states(offsets.topic)[0].leader == others[0])
    world.run_until(lambda: admin.coordinator(group).node_id == others[0])
    return others[0]


def _knows(world: World, broker: int, topic_id: bytes) -> bool:
    node = world.brokers[broker].node
    return node is not None and any(each.topic_id == topic_id for each in node.state.image.topics.values())


def _topic_id(world: World, broker: int) -> bytes:
    node = world.brokers[broker].node
    assert node is not None
    return node.state.image.topics["t"].topic_id


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


def test_late_fetch_for_a_log_that_a_move_deleted_does_not_count_for_the_next_one() -> None:
    """The follower is moved away and back meanwhile, and its log is empty then."""
    with cluster(1, min_insync_replicas=1) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1, replication_factor=2)
        leader, follower = world.look.topics()["t"].partitions[0]

        def log_end() -> int | None:
            partition = world.brokers[follower].partitions.get(("t", 0))
            return None if partition is None else partition.log.log_end_offset

        def move(*brokers: int) -> None:
            admin.reassign_partitions({("t", 0): list(brokers)})
            world.run_until(lambda: world.look.topics()["t"].partitions[0] == brokers)

        with Producer(world.client(), acks=1) as producer:
            producer.send("t", b"a").result()
            world.run_until(lambda: log_end() == 1)
            world.run(0.05)  # its next fetch waits at the leader
            sender = world.brokers[follower].name
            ends = [end for name, end in world.network.connections_to(leader) if name == sender]
            arrive = [world.network.delay_requests(end) for end in ends]
            producer.send("t", b"b").result()
        world.run_until(lambda: log_end() == 2)
        world.run(0.05)  # its next fetch is on its way
        move(leader)
        world.run_until(lambda: log_end() is None)
        move(leader, follower)
        world.run_until(lambda: log_end() == 0)
        world.network.partition(leader, follower, one_way=True)
        for each in arrive:
            each()
        world.run(0.5)
        assert (log_end(), world.look.states("t")[0].isr) == (0, (leader,))
        world.network.heal()
        world.run_until(lambda: follower in world.look.states("t")[0].isr)
        assert log_end() == 2


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


@pytest.mark.parametrize("chosen", first_is_quick([3, 4, 8]))
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


def test_replica_added_without_leader_claims_its_log_end_when_it_is_open() -> None:
    """Nothing else may happen after it is open; and that it has most does not make it the leader."""
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
        world.run_until(lambda: world.look.states("t")[0].claims.keys() == {spare})
        assert world.look.states("t")[0].leader == NO_LEADER
        for broker in replicas:
            world.brokers[broker].start()
        world.run_until(lambda: world.look.states("t")[0].leader in replicas)
        world.run_until(lambda: set(world.look.states("t")[0].isr) == {spare, *replicas[:2]})


def test_a_message_committed_in_a_later_epoch_stays_when_a_replica_has_another_of_an_epoch_between() -> None:
    """Raft's figure 8: `late` has a message of epoch 1 where the others have a committed one of epoch 0."""
    with cluster(1, replica_lag_time_max_ms=10_000) as world:
        with Admin(world.client()) as admin:
            admin.create_topic("t", partitions=1)
        world.run(1)
        first, late, third = world.look.topics()["t"].partitions[0]
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"base").result()
        world.run(1)
        for side in (first, third, "producer"):
            world.network.partition(late, side)
        producer = Producer(world.client("producer"), acks="all", delivery_timeout_ms=600_000, request_timeout_ms=2000)
        sent = producer.send("t", b"precious")

        def log_ends() -> list[int]:
            found = [world.partition(each, "t", 0) for each in (first, late, third)]
            return [0 if each is None else each.log.log_end_offset for each in found]

        world.run_until(lambda: log_ends() == [2, 1, 2])
        world.brokers[first].kill()
        world.run_until(lambda: world.look.states("t")[0].leader == late)
        other = Producer(world.client("other"), acks=1, enable_idempotence=False)
        world.network.partition("other", third)
        assert other.send("t", b"other").result().offset == 1
        world.brokers[late].kill()
        world.run_until(lambda: world.look.states("t")[0].leader == third)
        world.network.heal()
        world.network.partition("other", third)
        world.brokers[first].start()
        world.run_until(lambda: set(world.look.states("t")[0].isr) == {first, third})
        assert sent.result().offset == 1
        for broker in (first, third):
            world.brokers[broker].kill()
        world.run_until(lambda: not world.look.brokers())
        for broker in (late, first, third):
            world.brokers[broker].start()
        world.run_until(lambda: set(world.look.states("t")[0].isr) == {first, late, third})
        assert read_all(world, 2) == [b"base", b"precious"]


def test_failed_claim_of_log_end_is_retried_until_leader_is_elected(monkeypatch: pytest.MonkeyPatch) -> None:
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


def _acknowledged_by_new_replicas(world: World, admin: Admin) -> tuple[list[int], list[int], list[int]]:
    """Move a partition until two of three new replicas are in sync, stop the old ones, and write to the new ones.

    Returns the old brokers, the new ones, and the offsets that were acknowledged last.
    """
    admin.create_topic("t", partitions=1)
    world.run(1)
    old = list(world.look.topics()["t"].partitions[0])
    new = [broker for broker in world.brokers if broker not in old][:3]
    with Producer(world.client(), acks="all") as producer:
        producer.send("t", b"before").result()
        world.network.partition(new[-1], *old)
        world.network.partition(new[-1], *new[:-1])
        admin.reassign_partitions({("t", 0): new})
        world.run_until(lambda: set(new[:2]) <= set(world.look.states("t")[0].isr))
        for broker in old:
            world.brokers[broker].stop()
        world.run_until(lambda: set(world.look.states("t")[0].isr) == set(new[:2]))
        world.run_until(lambda: world.look.states("t")[0].leader in new)
        acknowledged = [producer.send("t", b"acknowledged %d" % each).result().offset for each in range(3)]
    return old, new, acknowledged


def _messages(world: World) -> list[int]:
    with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        seen: list[int] = []
        while (message := consumer.poll(3.0)) is not None:
            seen.append(message.offset)
        return seen


def test_cancelled_move_is_refused_while_only_new_replicas_have_acknowledged_messages() -> None:
    with cluster(1, brokers=6) as world, Admin(world.client()) as admin:
        old, new, acknowledged = _acknowledged_by_new_replicas(world, admin)
        with pytest.raises(ApiError, match="alive and in sync"):
            admin.reassign_partitions({("t", 0): None})
        for broker in old:
            world.brokers[broker].start()
        world.run_until(lambda: set(old) <= set(world.look.states("t")[0].isr))
        world.run(1)  # all brokers have heard of it
        admin.reassign_partitions({("t", 0): None})
        world.run_until(lambda: world.look.topics()["t"].partitions[0] == tuple(old))
        world.network.heal()
        assert set(acknowledged) <= set(_messages(world))
        world.run_until(lambda: not any(("t", 0) in world.brokers[broker].partitions for broker in new))


def test_replaced_move_keeps_the_replicas_that_have_acknowledged_messages() -> None:
    with cluster(2, brokers=7) as world, Admin(world.client()) as admin:
        old, new, acknowledged = _acknowledged_by_new_replicas(world, admin)
        last = next(broker for broker in world.brokers if broker not in (*old, *new))
        target = [last, old[0], old[1]]
        admin.reassign_partitions({("t", 0): target})
        world.run(3)
        assert all(("t", 0) in world.brokers[broker].partitions for broker in new[:2]), "their replicas are deleted"
        world.network.heal()
        for broker in old:
            world.brokers[broker].start()
        world.run_until(lambda: world.look.topics()["t"].partitions[0] == tuple(target))
        assert set(acknowledged) <= set(_messages(world))
        world.run_until(lambda: not any(("t", 0) in world.brokers[broker].partitions for broker in new))


def test_broker_whose_registration_lost_its_answer_leads_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    create, armed = SimulatedSession.create, [True]

    def lossy(self: SimulatedSession, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        create(self, path, data, ephemeral=ephemeral)
        if path == layout.broker_path(2) and armed:
            armed.pop()
            raise CoordinationError("the connection was lost, and the answer with it")

    with cluster(1) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        monkeypatch.setattr(SimulatedSession, "create", lossy)
        world.coordination.expire(2)
        world.run(3)
        assert not armed and world.brokers[2].running
        world.run_until(lambda: world.look.in_sync_everywhere(2), 5)
        assert not any("broker 2 stops" in line for line in world.reports)


@pytest.mark.parametrize("heals", first_is_quick([0.475, 0.4, 0.55]))
def test_late_isr_change_of_a_deleted_topic_does_not_reach_its_successor(heals: float) -> None:
    settings = {**QUICK, "zookeeper_session_timeout_ms": 6000}
    with (
        World(1, brokers=3, session_seconds=6.0, **settings) as world,
        Admin(world.client("founder"), request_timeout_ms=2000, default_api_timeout_ms=20000) as admin,
    ):
        admin.create_topic("t", partitions=3)
        world.run(1)
        controller = world.look.controller()
        states = world.look.states("t")
        number, late = next((n, state.leader) for n, state in states.items() if state.leader != controller)
        follower = next(broker for broker in world.brokers if broker not in (controller, late))
        world.network.partition(late, follower)
        with Producer(world.client("p"), acks=1, enable_idempotence=False) as producer:
            producer.send("t", b"x", partition=number).result()
        world.run(1)
        world.network.partition(late, COORDINATION)
        world.network.partition(late, "founder")
        world.run(1.5)
        admin.delete_topics(["t"])
        admin.create_topic("t", partitions=3)
        made = world.look.topics()["t"].topic_id
        world.run(heals)
        world.network.heal()
        world.run(5)
        data = world.node(layout.states_path(made))
        assert data is not None and layout.decode_states(data)[0] == made
        with Producer(world.client("q"), acks="all", delivery_timeout_ms=20_000) as producer:
            assert [producer.send("t", b"y", partition=n).result().offset for n in range(3)] == [0, 0, 0]


def test_topic_with_states_in_many_nodes_is_led_again_after_all_brokers_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that hold the claims of ten partitions, and not of thirty."""
    monkeypatch.setattr(layout, "PARTITIONS_PER_NODE", 10)
    with cluster(1) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=30)
        world.run(2)
        sizes = [len(world.node(path) or b"") for path in states_paths(world.look.topics()["t"])]
        assert len(sizes) == 3
        of_one = sum(sizes) + 30 * 22  # two claims for each of thirty partitions, not three
        monkeypatch.setattr(tree, "DATA_BYTES_MAX", of_one)
        monkeypatch.setattr(registry, "COMMIT_BYTES", of_one // 2)
        for broker in world.brokers.values():
            broker.kill()
        world.run_until(lambda: not world.look.brokers(), 20)
        for broker in world.brokers.values():
            broker.start()
        world.run_until(lambda: all(s.leader_epoch and s.leader != NO_LEADER for s in world.look.states("t").values()))
        world.run_until(lambda: all(len(state.isr) == 3 for state in world.look.states("t").values()), 20)
        assert not any("a node holds at most" in line for line in world.reports)


@pytest.mark.parametrize("copies", [2, 3])
@pytest.mark.parametrize("others_live", first_is_quick([True, False]))
def test_a_broker_that_comes_back_with_an_empty_disk_does_not_lead(copies: int, others_live: bool) -> None:
    """The other replicas have fallen behind, and a minimal ISR of one suffices."""
    with cluster(3, default_replication_factor=copies, min_insync_replicas=1) as world:
        with Admin(world.client()) as admin:
            admin.create_topic("t", partitions=1)
        world.run(1)
        first, *others = world.look.topics()["t"].partitions[0]
        with Producer(world.client()) as producer:
            producer.send("t", b"before").result()
            world.run(1)
            for other in others:
                world.brokers[other].kill()
            world.run_until(lambda: world.look.states("t")[0].isr == (first,))
            producer.send("t", b"alone").result()
        world.brokers[first].lose_disk()
        world.run_until(lambda: first not in world.look.brokers())
        for broker in [first, *others] if others_live else [first]:
            world.brokers[broker].start()
        reports: list[str] = []

        def is_reported() -> bool:
            reports[:] = [line for line in world.reports if "t-0 has no leader: the disk of broker" in line]
            return bool(reports)

        world.run_until(is_reported)
        world.run(10)
        assert world.look.states("t")[0].leader == NO_LEADER
        for broker in others:
            world.brokers[broker].start()
        world.run(5)
        assert world.look.states("t")[0].leader == NO_LEADER, "only an unclean election makes one of them the leader"
        assert any("which was not in sync, ends at offset 1" in line for line in world.reports)
        with Admin(world.client()) as admin:
            assert admin.elect_leaders([("t", 0)], ElectionType.UNCLEAN)
        world.run_until(lambda: set(world.look.states("t")[0].isr) == {first, *others})
        assert any("by an unclean election" in line for line in world.reports)
        assert read_all(world, 1) == [b"before"]


def test_a_broker_that_lost_what_was_visible_in_a_power_cut_does_not_lead() -> None:
    with cluster(3, default_replication_factor=2, min_insync_replicas=1) as world:
        with Admin(world.client()) as admin:
            admin.create_topic("t", partitions=1)
        world.run(1)
        first, other = world.look.topics()["t"].partitions[0]
        with Producer(world.client()) as producer:
            for number in range(20):
                producer.send("t", b"%d" % number).result()
            world.run(6)  # the high watermark is checkpointed, the log is not flushed
            world.brokers[other].kill()
            world.run_until(lambda: world.look.states("t")[0].isr == (first,))
        world.brokers[first].power_cut()
        world.run_until(lambda: first not in world.look.brokers())
        for broker in (first, other):
            world.brokers[broker].start()
        world.run_until(lambda: world.look.states("t")[0].claims.keys() == {first, other})
        claims = world.look.states("t")[0].claims
        assert claims[first].lost and claims[first].log_end < claims[other].log_end == 20
        world.run(10)
        assert world.look.states("t")[0].leader == NO_LEADER
        with Admin(world.client()) as admin:
            assert admin.elect_leaders([("t", 0)], ElectionType.UNCLEAN)
        world.run_until(lambda: set(world.look.states("t")[0].isr) == {first, other})
        assert len(read_all(world, 20)) == 20


def test_the_only_replica_leads_with_an_empty_disk() -> None:
    with cluster(4, default_replication_factor=1, min_insync_replicas=1) as world:
        with Admin(world.client()) as admin:
            admin.create_topic("t", partitions=1)
        with Producer(world.client()) as producer:
            producer.send("t", b"a").result()
        (only,) = world.look.topics()["t"].partitions[0]
        world.brokers[only].lose_disk()
        world.run_until(lambda: world.look.states("t")[0].leader == NO_LEADER)
        world.brokers[only].start()
        world.run_until(lambda: world.look.states("t")[0].leader == only)


def test_after_a_kill_of_all_an_unclean_election_waits_for_those_that_are_in_sync() -> None:
    with cluster(5, unclean_leader_election_enable=True) as world:
        with Admin(world.client()) as admin:
            admin.create_topic("t", partitions=1)
        world.run(1)
        first, second, late = world.look.topics()["t"].partitions[0]
        with Producer(world.client()) as producer:
            producer.send("t", b"all").result()
            world.run(1)
            world.brokers[late].kill()
            world.run_until(lambda: set(world.look.states("t")[0].isr) == {first, second})
            producer.send("t", b"two").result()
        for broker in (first, second):
            world.brokers[broker].kill()
        world.run_until(lambda: not world.look.brokers())
        world.brokers[late].start()
        world.run_until(lambda: late in world.look.states("t")[0].claims)
        world.run(2)
        for broker in (first, second):
            world.brokers[broker].start()
        world.run_until(lambda: set(world.look.states("t")[0].isr) == {first, second, late})
        assert read_all(world, 2) == [b"all", b"two"]
        for broker in (first, second, late):
            world.brokers[broker].kill()
        world.run_until(lambda: not world.look.brokers())
        world.brokers[late].start()
        world.run_until(lambda: world.look.states("t")[0].leader == late, 30)


def test_a_lower_default_of_min_insync_replicas_loses_nothing() -> None:
    """An eligible replica lacks what its leader commits alone from then on."""
    with cluster(1, default_replication_factor=2) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        leader, other = world.look.topics()["t"].partitions[0]
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"before").result()
            world.brokers[other].stop()
            world.run_until(lambda: world.look.states("t")[0].elr == (other,))
            admin.alter_configs(ResourceKind.BROKER, "", {"min.insync.replicas": "1"})
            described = admin.describe_configs(ResourceKind.TOPIC, "t")
            assert {each.name: each.value for each in described}["min.insync.replicas"] == "1"
            assert producer.send("t", b"alone").result().offset == 1
            assert world.look.states("t")[0].members == (leader,)
        world.brokers[leader].kill()
        world.run_until(lambda: world.look.states("t")[0].leader == NO_LEADER)
        world.brokers[other].start()
        world.run(5)
        assert world.look.states("t")[0].leader == NO_LEADER, "it lacks a committed message"
        world.brokers[leader].start()
        world.run_until(lambda: set(world.look.states("t")[0].isr) == {leader, other})
        assert read_all(world, 2) == [b"before", b"alone"]
        admin.alter_configs(ResourceKind.BROKER, "", {"min.insync.replicas": "2"})
        world.run_until(lambda: world.look.states("t")[0].min_isr == 2)
        world.brokers[other].kill()
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 1)
        with (
            Producer(world.client(), acks="all", delivery_timeout_ms=3000, request_timeout_ms=1000) as producer,
            pytest.raises(BarnabasError, match=r"in sync|NOT_ENOUGH_REPLICAS|3000"),
        ):
            producer.send("t", b"too few").result()


def test_min_insync_replicas_lowered_in_the_files_broker_by_broker_loses_nothing() -> None:
    """One broker crashes while another one stands still for its restart."""
    with cluster(1, default_replication_factor=2) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        one, two = world.look.topics()["t"].partitions[0]
        (third,) = set(world.brokers) - {one, two}
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"before").result()
            world.brokers[one].settings["min_insync_replicas"] = 1
            world.brokers[one].restart(after=0.5)
            world.run_until(lambda: world.look.states("t")[0].leader == two and len(world.look.states("t")[0].isr) == 2)
            assert any("min.insync.replicas differs between the brokers" in line for line in world.reports)
            world.brokers[two].settings["min_insync_replicas"] = 1
            world.brokers[two].stop()
            world.run_until(lambda: world.look.states("t")[0].isr == (one,))
            sent = producer.send("t", b"with two")
            world.run(1)
            assert world.look.states("t")[0].min_isr == 2 and not sent.done, "brokers differ: 2 counts"
            world.brokers[one].kill()
            world.run_until(lambda: world.look.states("t")[0].leader == NO_LEADER)
            world.brokers[two].start()
            world.brokers[one].start()
            sent.result()
        assert read_all(world, 2) == [b"before", b"with two"]
        world.brokers[third].settings["min_insync_replicas"] = 1
        world.brokers[third].restart(after=0.5)
        world.run_until(lambda: world.look.states("t")[0].min_isr == 1)


def read_all(world: World, count: int) -> list[bytes | None]:
    """Return `count` messages of t-0, from its beginning."""
    with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        found = [consumer.poll(5.0) for _ in range(count)]
    return [None if each is None else each.value for each in found]


def test_a_deleted_topic_is_forgotten_by_a_late_broker_that_has_no_replica_of_it() -> None:
    """When it reads the tree again, the last of those that had replicas has removed the note of the deletion."""
    with cluster(8, brokers=4) as world, Admin(world.client("admin")) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        late = next(
            each for each in world.brokers.values() if each.broker_id not in world.look.topics()["t"].partitions[0]
        )
        for side in (COORDINATION, "admin"):
            world.network.partition(late.broker_id, side)
        admin.delete_topics(["t"])
        world.run_until(lambda: world.node(layout.topic_path("t")) is None)
        world.run(1)
        world.network.heal()
        node = late.node
        assert node is not None and "t" in node.state.image.topics
        world.run_until(lambda: "t" not in node.state.image.topics)


def test_leader_of_the_old_topic_does_not_acknowledge_messages_of_the_new_one() -> None:
    """It makes another topic, which takes long, and hears late of topics, though not of who leads."""
    alone: dict[str, Any] = {"default_replication_factor": 1, "min_insync_replicas": 1}
    with cluster(9, **alone) as world, Admin(world.client()) as admin:
        late = next(each for each in world.brokers.values() if each.broker_id != world.look.controller())
        node = late.node
        assert node is not None
        here = NewTopic(name="t", assignments={0: [late.broker_id]})
        admin.create_topics([here])
        world.run_until(lambda: ("t", 0) in late.partitions)
        with Producer(world.client()) as producer:
            producer.send("t", b"of the first", partition=0).result()
            is_free = False

            async def make_another() -> None:
                while not is_free:
                    await elsewhere(lambda: None)

            node.state.changes.submit("CreateTopics", make_another, lambda _: None)
            before = world.look.topics()["t"].topic_id
            admin.delete_topics(["t"])
            admin.create_topics([here])
            world.run_until(lambda: world.look.topics()["t"].topic_id != before)
            world.run(1)
            assert node.state.image.topics["t"].topic_id == before, "it has not heard of it"
            sent = producer.send("t", b"of the second", partition=0)
            world.run(3)
            is_free = True
            sent.result()
        world.run_until(lambda: node.state.image.topics["t"].topic_id != before)
        world.run(1)
        with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            record = consumer.poll(10.0)
            assert record is not None and record.value == b"of the second"


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "by name"])
def test_leader_alone_in_the_isr_that_has_not_heard_of_a_deletion_acknowledges_nothing_for_the_next_topic(
    monkeypatch: pytest.MonkeyPatch, by_id: bool
) -> None:
    """The leader is cut off from the tree, with a valid lease. By name a message would be acknowledged and lost."""
    if not by_id:
        monkeypatch.setattr(ClusterView, "topic_id", lambda *_: NO_TOPIC_ID)
    alone: dict[str, Any] = {"default_replication_factor": 1, "min_insync_replicas": 1}
    settings = {**QUICK, **alone, "zookeeper_session_timeout_ms": 20_000}
    with World(9, brokers=3, session_seconds=20.0, **settings) as world, Admin(world.client()) as admin:
        late = next(each for each in world.brokers.values() if each.broker_id != world.look.controller())
        others = [each for each in world.brokers if each != late.broker_id]
        here = NewTopic(name="t", assignments={0: [late.broker_id]})
        admin.create_topics([here])
        world.run_until(lambda: ("t", 0) in late.partitions)
        before = _topic_id(world, late.broker_id)
        with Producer(world.client("p"), delivery_timeout_ms=60_000) as producer:
            producer.send("t", b"of the first", partition=0).result()
            world.network.partition(late.broker_id, COORDINATION)
            admin.delete_topics(["t"])
            admin.create_topics([here])
            known = world.look.topics()["t"].topic_id
            world.run_until(lambda: all(_knows(world, each, known) for each in others))
            assert _topic_id(world, late.broker_id) == before, "it has heard of it"
            view = producer._shell.view
            view._turn = sorted(view.brokers).index(others[0])
            view.request_refresh()
            world.run_until(lambda: (now := view.topic("t")) is not None and now.topic_id == known)
            world.scheduler.call_later(1000, world.network.heal)
            producer.send("t", b"of the second", partition=0).result()
        world.run(5)
        with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            record = consumer.poll(10.0)
        assert (record is not None and record.value == b"of the second") is by_id


def _lead_in_turn(world: World, producer: Producer, turns: int) -> None:
    """Restart one leader after the other, and have each next one acknowledge a message."""

    def is_led_by_another(first: int) -> bool:
        return world.look.states("t")[0].leader not in (first, NO_LEADER)

    for turn in range(turns):
        first = world.look.states("t")[0].leader
        world.brokers[first].restart(after=3)
        world.run_until(partial(is_led_by_another, first))
        producer.send("t", b"turn %d" % turn).result()
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 3)


@pytest.mark.parametrize("min_isr", [1, 2])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("in_order", first_is_quick([False, True]))
def test_committed_messages_survive_a_coordination_service_restored_from_a_backup(
    min_isr: int, whole: bool, in_order: bool
) -> None:
    with cluster(1, min_insync_replicas=min_isr) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        backup, states = world.coordination.backup(), layout.states_path(world.look.topics()["t"].topic_id)
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"first").result()
            _lead_in_turn(world, producer, 3)
        before = world.look.states("t")[0]
        epochs = {number: broker.broker_epoch for number, broker in world.look.brokers().items()}
        given_out = layout.decode_producer_ids(world.node(layout.PRODUCER_IDS) or b"")
        for broker in world.brokers.values():
            if in_order:
                broker.stop()
            else:
                broker.kill()
        world.run_until(lambda: not world.look.brokers())
        if whole:
            world.coordination.restore(backup)
        else:
            world.tree.session().set(states, next(data for path, data, _ in backup if path == states))
        for broker in world.brokers.values():
            broker.start()
        world.run_until(lambda: len(world.look.brokers()) == 3)
        world.run_until(lambda: world.look.states("t")[0].leader != NO_LEADER)
        world.run_until(lambda: world.look.states("t")[0].leader_epoch >= before.leader_epoch)
        with Producer(world.client("again"), acks="all") as producer:
            assert producer.send("t", b"after").result().offset == 4
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 3)
        assert _messages(world) == [0, 1, 2, 3, 4]
        assert all(broker.broker_epoch > epochs[number] for number, broker in world.look.brokers().items())
        assert layout.decode_producer_ids(world.node(layout.PRODUCER_IDS) or b"").start >= given_out.stop
        assert any("forgotten later states of topic t" in line for line in world.reports) or not in_order
        assert whole == any("reassignments of after the backup are lost" in line for line in world.reports)
        assert whole == any("New producers get ids from" in line for line in world.reports)
        assert not any("below the high watermark" in line for line in world.reports)


def _lag_behind(world: World, producer: Producer, follower: int, *, count: int) -> None:
    """A follower leaves the ISR, and messages are committed without it."""
    leader = world.look.states("t")[0].leader
    world.network.partition(leader, follower)
    sent = [producer.send("t", b"alone %d" % number) for number in range(count)]
    world.run_until(lambda: world.look.states("t")[0].isr == (leader,))
    for each in sent:
        each.result()


def _stop_all(world: World, *, in_order: bool) -> None:
    for broker in world.brokers.values():
        if in_order:
            broker.stop()
        else:
            broker.kill()
    world.run_until(lambda: not world.look.brokers() and all(each.node is None for each in world.brokers.values()))
    world.network.heal()


@pytest.mark.parametrize("first", first_is_quick([2, 3, 4]))
def test_restore_that_a_broker_hides_which_starts_first_loses_nothing(first: int) -> None:
    """Only the ISR has changed since the backup, and all brokers have registered once more."""
    with cluster(1, brokers=4, min_insync_replicas=1) as world, Admin(world.client()) as admin:
        admin.create_topics([NewTopic(name="t", assignments={0: (1, 2)})])
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"first").result()
            world.run(1)
            backup = world.coordination.backup()
            for number in (2, 3, 4):
                world.coordination.expire(number)
            world.run_until(lambda: len(world.look.brokers()) == 4)
            world.run_until(lambda: len(world.look.states("t")[0].isr) == 2)
            _lag_behind(world, producer, 2, count=3)
        world.run(1)
        _stop_all(world, in_order=False)
        world.coordination.restore(backup)
        for number in sorted(world.brokers, key=lambda each: (each != first, each == 1)):
            world.brokers[number].start()
            world.run(2)
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 2)
        assert _messages(world) == [0, 1, 2, 3]


@pytest.mark.parametrize("lives", [1, 3])
def test_broker_that_is_killed_when_it_has_noticed_a_restore_distrusts_the_states_later(lives: int) -> None:
    with cluster(1, brokers=2, default_replication_factor=2, min_insync_replicas=1) as world:
        with Admin(world.client()) as admin:
            admin.create_topics([NewTopic(name="t", assignments={0: (1, 2)})])
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"first").result()
            world.run(1)
            backup = world.coordination.backup()
            world.coordination.expire(2)
            world.coordination.expire(1)
            world.run_until(lambda: len(world.look.states("t")[0].isr) == 2 and len(world.look.brokers()) == 2)
            _lag_behind(world, producer, 3 - world.look.states("t")[0].leader, count=3)
        alone = world.look.states("t")[0].leader
        _stop_all(world, in_order=False)
        world.coordination.restore(backup)
        behind = world.brokers[3 - alone]
        for _ in range(lives):
            behind.start()
            world.run_until(lambda: behind.broker_id in world.look.brokers())
            behind.kill()
            world.run_until(lambda: not world.look.brokers())
        behind.start()
        world.run(3)
        assert world.look.states("t")[0].leader == NO_LEADER, "the other one may have more"
        world.brokers[alone].start()
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 2)
        assert _messages(world) == [0, 1, 2, 3]
        world.run(1)
        behind.restart()
        world.run_until(lambda: behind.running and len(world.look.states("t")[0].isr) == 2)
        observed = [line for line in world.reports if "reassignments of after the backup are lost" in line]
        assert len([line for line in observed if behind.name in line]) == 1, "it is settled"


@pytest.mark.parametrize(
    ("in_order", "is_removed", "survive"),
    [(False, False, 1), (False, True, 4), (True, False, 4)],
)
def test_restore_after_which_no_broker_had_registered_is_noticed_where_brokers_stopped_in_order(
    in_order: bool, is_removed: bool, survive: int
) -> None:
    """Brokers that were killed notice nothing, unless the operator removes the nodes of the last registrations."""
    with cluster(1, brokers=2, default_replication_factor=2, min_insync_replicas=1) as world:
        with Admin(world.client()) as admin:
            admin.create_topics([NewTopic(name="t", assignments={0: (1, 2)})])
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"first").result()
            world.run(1)
            backup = world.coordination.backup()
            behind = 3 - world.look.states("t")[0].leader
            _lag_behind(world, producer, behind, count=3)
        _stop_all(world, in_order=in_order)
        world.coordination.restore(backup)
        if is_removed:
            for number in world.brokers:
                world.tree.session().delete(layout.last_registration_path(number))
        for number in (behind, 3 - behind):
            world.brokers[number].start()
            world.run(2)
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 2)
        assert _messages(world) == [*range(survive)]


def test_broker_without_partitions_refuses_a_tree_that_has_lost_its_cluster() -> None:
    with cluster(1, brokers=2) as world:
        broker, known = world.brokers[1], world.node(layout.CLUSTER_ID)
        _stop_all(world, in_order=True)
        before = world.coordination.backup()
        world.coordination.restore(before[:1])  # the root alone
        broker.start()
        world.run(3)
        assert not broker.running and world.node(layout.CLUSTER_ID) is None
        assert any("was registered in it as one of the cluster" in line for line in world.reports)
        world.coordination.restore([each for each in before if layout.CLUSTER_ID.startswith(each[0])])
        world.run_until(lambda: broker.running)
        assert world.node(layout.CLUSTER_ID) == known


@pytest.mark.parametrize("turns", first_is_quick([3, 0]))
def test_committed_messages_survive_a_restore_while_brokers_run(turns: int) -> None:
    """The brokers stop, and are started again by what supervises them."""
    with cluster(1) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1)
        world.run(1)
        first = world.look.states("t")[0].leader
        world.network.partition(first, *(each for each in world.brokers if each != first))
        with Producer(world.client(), acks=1, enable_idempotence=False) as producer:
            producer.send("t", b"nobody follows").result()
        world.run_until(lambda: world.look.states("t")[0].isr == (first,))
        backup = world.coordination.backup()
        world.network.heal()
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 3)
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"first").result()
            _lead_in_turn(world, producer, turns)
        for number in world.brokers:
            world.coordination.expire(number)
        world.coordination.restore(backup)
        world.run_until(lambda: bool(world.given_up))
        world.run_until(lambda: all(broker.running for broker in world.brokers.values()))
        world.run(5)
        world.run_until(lambda: len(world.look.states("t")[0].isr) == 3)
        with Producer(world.client("again"), acks="all") as producer:
            assert producer.send("t", b"after").result().offset == turns + 2
        assert _messages(world) == [*range(turns + 3)]
        assert any("restored from a backup" in line for line in world.reports)


@pytest.mark.parametrize("fault", ["lost", "failed"])
def test_one_of_two_data_folders_without_its_disk_is_copied_again_after_a_restart(fault: str) -> None:
    settings: dict[str, Any] = {
        "default_replication_factor": 3,
        "min_insync_replicas": 2,
        "replica_lag_time_max_ms": 1500,
    }
    with World(5, brokers=3, session_seconds=2.0, data_folders=2, **settings) as world:
        with Admin(world.client()) as admin:
            admin.create_topic("t", partitions=4)
        with Producer(world.client(), acks="all") as producer:
            for number in range(20):
                producer.send("t", b"%d" % number, partition=number % 4).result(30)
            broker = world.brokers[1]
            if fault == "lost":
                broker.lose_data_folder(1)
            else:
                broker.disks[1].failed = True
            for number in range(20, 40):
                producer.send("t", b"%d" % number, partition=number % 4).result(30)
            broker.disks[1].failed = False
            broker.kill()
            broker.start()
            world.run_until(lambda: broker.running and world.look.in_sync_everywhere(1), 60)
        logs = [broker.partitions["t", number].log.log_end_offset for number in range(4)]
        assert logs == [10, 10, 10, 10]
        assert all(any(name.startswith("t-") for name in disk.folders) for disk in broker.disks)


def test_checker_gives_up_what_an_unclean_leader_has_written_otherwise() -> None:
    """Two unclean elections in a row, to logs of the same length (seed 1229 of the story of tiers)."""
    old, lost = Entry(base=0, next=1, epoch=0, crc=1), Entry(base=0, next=1, epoch=2, crc=2)
    agreed = Agreed(TopicPartition("t", 0), entries={0: lost}, end=1)
    agreed.cut_where_it_differs([old], 1, 4)
    assert (agreed.entries, agreed.end, agreed.given_up_before) == ({}, 0, 4)
    agreed = Agreed(TopicPartition("t", 0), entries={0: lost}, end=1)
    agreed.cut_where_it_differs([lost], 1, 4)
    assert (agreed.entries, agreed.end, agreed.given_up_before) == ({0: lost}, 1, 0)


def test_checker_finds_committed_offsets_after_batches_that_compaction_emptied() -> None:
    """Seed 1027 of `security`: a segment that ended with such a batch."""
    log = open_log(MemoryLogDir().folder("__consumer_offsets-0"))

    def commit(offset: int) -> None:
        key, value = encode_offset_key("g", "t", 0), encode_offset(StoredOffset(offset))
        log.append(batch(value, keys=[key]), leader_epoch=0, now_ms=1000)

    commit(5)
    header = parse_header(batch(b""))._replace(base_offset=Offset(1), last_offset_delta=1, leader_epoch=0)
    log.append_replicated(memoryview(make_empty_batch(header)), now_ms=1000)
    log.roll(now_ms=1000)
    commit(9)
    found = [offset for _, offset in offsets_in(log, 0, log.log_end_offset)]
    assert found == [5, 9]
