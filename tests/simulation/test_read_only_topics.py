"""A topic of another cluster in the same store, read-only, on brokers that fail: what it shows is what was written
there, and nothing in the store changes by it."""

from typing import Any

import pytest
from simulation.tiering_story import TIERED

from barnabas import Admin, Consumer, Producer
from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.adapters.system import SeededEntropy
from barnabas.core.tiering.manifest import MANIFEST
from barnabas.ports.remote_storage import RemoteStorage
from barnabas.ports.types import Buffer, TopicPartition
from barnabas.simulation import Disasters, World
from barnabas.testing.faulty_remote_storage import FaultyRemoteStorage

SETTINGS: dict[str, Any] = {
    **TIERED,
    "default_replication_factor": 3,
    "min_insync_replicas": 2,
    "zookeeper_session_timeout_ms": 2000,
    "replica_lag_time_max_ms": 1500,
}


def contents(store: RemoteStorage) -> dict[str, bytes]:
    """Without the offsets of groups, which each cluster stores."""
    keys = [each.key for each in store.list_objects("") if not each.key.startswith("groups/")]
    return {key: bytes(store.read(key).content) for key in keys}


class Remembered(MemoryRemoteStorage):
    """It remembers the manifests that were stored, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.manifests: list[tuple[str, bytes]] = []

    def replace(self, key: str, content: Buffer, version: str | None) -> str:
        stored = super().replace(key, content, version)
        if key.endswith(MANIFEST):
            self.manifests.append((key, bytes(content)))
        return stored


def written(memory: MemoryRemoteStorage, seed: int) -> tuple[str, list[bytes]]:
    """Play the cluster that writes; return the folder of its topic, and its records."""
    values = [b"%05d" % number * 30 for number in range(120)]
    configs = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
    with World(seed, brokers=3, remote_storage=memory, **SETTINGS) as world:
        with Admin(world.client()) as admin:
            admin.create_topic("t", partitions=1, configs=configs)
        with Producer(world.client()) as producer:
            for value in values:
                producer.send("t", value).result()
        world.run(3)
    return next(iter(contents(memory))).partition("/")[0], values


def read(world: World, end: int) -> list[bytes]:
    found: list[bytes] = []
    with Consumer(world.client()) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        while len(found) < end:
            message = consumer.poll(60.0)
            assert message is not None and message.offset == len(found)
            found.append(bytes(message.value or b""))
    return found


def play(seed: int, seconds: float) -> None:
    memory = Remembered()
    source, values = written(memory, seed)
    before, later = contents(memory), memory.manifests[len(memory.manifests) // 3 :]
    memory.put(*later[0])
    store = FaultyRemoteStorage(memory, SeededEntropy(seed), failures=0.1)
    with World(f"reads {seed}", brokers=3, remote_storage=store, **SETTINGS) as world:
        with Admin(world.client()) as admin:
            admin.create_topic("t", partitions=1, configs={"remote.storage.source": source})

        def end() -> int:
            found = [world.partition(each, "t", 0) for each in world.brokers]
            return max((each.high_watermark for each in found if each is not None and each.is_leader), default=0)

        world.run_until(lambda: end() > 0)
        reached = end()
        with Disasters(world, every=0.5, lasting=1.5):
            for _ in range(int(seconds * 10)):
                world.run(0.1)
                reached = max(reached, end())
                if later:
                    memory.put(*later.pop(0))
        for each in later:
            memory.put(*each)
        store.failures = 0.0
        world.run_until(lambda: all(world.look.in_sync_everywhere(each) for each in world.brokers))
        world.run_until(lambda: end() >= reached)
        last = end()  # which may rise while it is read
        assert read(world, last) == values[:last]
        with Admin(world.client()) as admin:
            admin.delete_topics(["t"])
        world.run(2)
    store.settle()
    assert contents(memory) == before


def test_read_only_topic_shows_what_was_written_while_brokers_fail() -> None:
    play(1, 4.0)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2, 12))
def test_read_only_topic_shows_what_was_written_for_seed(number: int) -> None:
    play(number, 10.0)
