"""Clusters over a remote storage that fails; `make sim STORY=tiering` plays many more of them."""

from collections.abc import Callable
from typing import Any

import pytest
from simulation.cluster_mutations import Mutation, by_cost
from simulation.tiering_mutations import MUTATIONS
from simulation.tiering_story import TIERED, TieringStory
from support.long_tests import first_is_quick

from barnabas import Admin, Consumer, Producer, SimpleConsumer
from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.adapters.system import SeededEntropy
from barnabas.core.cluster import layout
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.ports.types import TopicPartition
from barnabas.simulation import World
from barnabas.testing.faulty_remote_storage import FaultyRemoteStorage


@pytest.mark.slow
@pytest.mark.parametrize("number", [11, 3])
def test_tiering_story_holds_for_a_quick_seed(number: int) -> None:
    TieringStory(number, seconds=4).play()


@pytest.mark.parametrize("brokers", [1, 3])
def test_objects_of_a_deleted_topic_go_although_all_brokers_have_died(brokers: int) -> None:
    memory = MemoryRemoteStorage()
    memory.put("t-of-another-cluster/0/manifest.json.gz", b"")
    store = FaultyRemoteStorage(memory, SeededEntropy(1), failures=0.0)

    def objects(topic: str) -> list[str]:
        return sorted(each.key for each in memory.list_objects("") if each.key.startswith(f"{topic}-"))

    settings: dict[str, Any] = {**TIERED, "default_replication_factor": brokers, "zookeeper_session_timeout_ms": 2000}
    configs = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
    with World(1, brokers=brokers, remote_storage=store, **settings) as world:
        with Admin(world.client()) as admin:
            for name in ("t", "lives"):
                admin.create_topic(name, partitions=1, configs=configs)
                with Producer(world.client()) as producer:
                    for _ in range(60):
                        producer.send(name, bytes(200)).result()
            world.run(2)
            assert len(objects("t")) > 3 and len(objects("lives")) > 3
            lives = objects("lives")
            store.failures = 1.0
            admin.delete_topics(["t"])
            world.run(1)
        for broker in world.brokers.values():
            broker.kill()
        lives_id = world.look.topics()["lives"].topic_id
        note = layout.encode_deleted("lives", ())
        world.tree.session().create(layout.deleted_remote_path(lives_id), note)  # as by an error
        store.settle()
        store.failures = 0.0
        assert len(objects("t")) > 3, "they were not deleted"
        for broker in world.brokers.values():
            broker.start()
        world.run(15)
        assert objects("t") == ["t-of-another-cluster/0/manifest.json.gz"]
        assert objects("lives") == lives
        assert world.look.deleted_in_remote_storage() == [layout.encode_id(lives_id)]


def read_by_consumer(world: World, count: int) -> list[bytes | None]:
    with Consumer(world.client()) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        found = [consumer.poll(100.0) for _ in range(count)]
        return [message.value for message in found if message is not None]


def read_by_simple_consumer(world: World, count: int) -> list[bytes | None]:
    with SimpleConsumer(world.client(), skip_damaged=True) as consumer:
        return [message.value for found in consumer.read("t", 0, 0, count) for message in found]


@pytest.mark.parametrize("read", [read_by_consumer, read_by_simple_consumer])
def test_consumers_wait_for_remote_storage_however_slow_it_is(read: Callable[..., list[bytes | None]]) -> None:
    """Five fetches in a row get nothing of it in time, and no error: the leader's local log begins behind them."""
    settings: dict[str, Any] = {**TIERED, "remote_fetch_max_wait_ms": 50}
    configs = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
    values: list[bytes | None] = [b"%03d" % number * 60 for number in range(40)]
    with World(1, brokers=1, remote_storage=MemoryRemoteStorage(), **settings) as world:
        with Admin(world.client()) as admin, Producer(world.client()) as producer:
            admin.create_topic("t", partitions=1, configs=configs)
            for value in values:
                producer.send("t", value).result()
        world.run(2)
        partition = world.partition(1, "t", 0)
        assert partition is not None and partition.log.local_log_start_offset > 20
        world.remote_ms_max = 10_000.0
        assert read(world, len(values)) == values


@pytest.mark.parametrize("replicas", first_is_quick([1, 2]))
def test_leader_whose_producers_are_hidden_by_damage_waits_for_a_repair_before_it_copies(
    replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for 130 s at most, and not at all without another replica."""
    monkeypatch.setattr(UnifiedLog, "hidden_producers_at", property(lambda _: (0,)))
    settings: dict[str, Any] = {**TIERED, "default_replication_factor": replicas, "zookeeper_session_timeout_ms": 2000}
    with World(1, brokers=replicas, remote_storage=MemoryRemoteStorage(), **settings) as world:
        with Admin(world.client()) as admin, Producer(world.client(), enable_idempotence=False) as producer:
            admin.create_topic("t", partitions=1, configs={"remote.storage.enable": "true"})
            for _ in range(40):
                producer.send("t", bytes(200)).result()
        partitions = [broker.partitions["t", 0] for broker in world.brokers.values()]
        (log,) = [each.log for each in partitions if each.is_leader]
        world.run(120)
        assert (log.remote_end > 0) == (replicas == 1)
        world.run(20)
        assert log.remote_end > 0


@pytest.mark.parametrize("replicas", first_is_quick([1, 2]))
def test_local_retention_leaves_damage_that_hides_producers_until_a_repair(
    replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair needs the segment, and a snapshot of the producers behind it would lack what is hidden. It waits as
    copying does."""
    settings: dict[str, Any] = {**TIERED, "default_replication_factor": replicas, "zookeeper_session_timeout_ms": 2000}
    configs = {"remote.storage.enable": "true", "local.retention.bytes": "-1"}
    with World(1, brokers=replicas, remote_storage=MemoryRemoteStorage(), **settings) as world:
        with Admin(world.client()) as admin, Producer(world.client()) as producer:
            admin.create_topic("t", partitions=1, configs=configs)
            for _ in range(40):
                producer.send("t", bytes(200)).result()
            world.run(5)
            logs = [broker.partitions["t", 0].log for broker in world.brokers.values()]
            assert all(each.remote_end > 0 == each.local_log_start_offset for each in logs)
            monkeypatch.setattr(UnifiedLog, "hidden_producers_at", property(lambda _: (0,)))
            admin.alter_topic_configs("t", {"local.retention.bytes": "1"})
        world.run(120)
        assert [each.local_log_start_offset > 0 for each in logs] == [replicas == 1] * replicas
        world.run(20)
        assert all(each.local_log_start_offset > 0 for each in logs)


@pytest.mark.slow
def test_tiering_story_holds_for_seed(seed: int) -> None:
    TieringStory(seed).play()


@pytest.mark.parametrize("mutation", by_cost(MUTATIONS), ids=lambda mutation: mutation.name)
def test_the_story_of_the_tier_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.find(monkeypatch)
