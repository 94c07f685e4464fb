"""A cluster whose topic is in remote storage that fails: one seed, played.

Closed segments leave the local disks soon, so that readers, rebuilt followers and new leaders need the tier. The
checker reads both tiers of every replica after everything that happens, the remote one without its faults.
"""

from typing import Any

from simulation.client import TOPIC
from simulation.cluster_actors import Remaker
from simulation.cluster_checker import TIERS
from simulation.cluster_story import ClusterStory

from barnabas import Admin
from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.adapters.system import SeededEntropy
from barnabas.core.tiering.manifest import topic_folder
from barnabas.ports.remote_storage import RemoteStorage
from barnabas.simulation import World
from barnabas.testing.faulty_remote_storage import FaultyRemoteStorage

TIERED: dict[str, object] = {
    "remote_log_storage_system_enable": True,
    "remote_log_storage_manager_class_name": "memory://simulated",
    "remote_log_manager_task_interval_ms": 200,
    "log_retention_check_interval_ms": 200,
    "log_retention_ms": -1,
    "log_segment_bytes": 2_000,
    "log_segment_delete_delay_ms": 100,
}


def left_behind(world: World, store: RemoteStorage) -> list[str]:
    """Return the keys of objects of deleted topics."""
    folders = {topic_folder(each.name, each.topic_id) for each in world.look.topics().values()}
    return [each.key for each in store.list_objects("") if not each.key.startswith(("groups/", *folders))]


class TieringStory(ClusterStory):
    """`failures`: the share of calls of remote storage that fail; below 0: as the seed has it. `early`: whether some
    producers end early, so that later only remote storage has what they wrote; None: as the seed has it."""

    name = "tiering"

    def __init__(self, seed: int, *, failures: float = -1.0, early: bool | None = None, **settings: Any) -> None:
        self.failures = failures
        self.early = SeededEntropy(f"early producers {seed}").below(3) == 0 if early is None else early
        begins_in_tier = SeededEntropy(f"new followers {seed}").below(2) == 0
        drawn = {"follower_fetch_last_tiered_offset_enable": begins_in_tier}
        super().__init__(seed, **{**TIERED, **drawn, **settings})
        self.remaker = Remaker({"remote.storage.enable": "true"})
        chance = SeededEntropy(f"tiering {seed}")
        self.local_bytes = (0, 2_000, 8_000)[chance.below(3)]
        self.world.remote_ms_max = (5.0, 50.0, 600.0)[chance.below(3)]

    def _remote_storage(self, seed: int) -> RemoteStorage:
        chance = SeededEntropy(f"remote storage {seed}")
        self.memory = MemoryRemoteStorage()
        share = self.failures if self.failures >= 0 else (0.0, 0.05, 0.2, 0.5)[chance.below(4)]
        self.store = FaultyRemoteStorage(self.memory, chance, failures=share)
        return self.store

    def play(self) -> None:
        TIERS.append(self.memory)
        try:
            super().play()
        finally:
            TIERS.pop()
            self.world.reached["tier: calls of remote storage"] += self.store.calls
            self.world.reached["tier: logs rebuilt"] += sum(
                "behind what is in remote storage" in line for line in self.world.reports
            )

    def _begin(self, admin: Admin) -> None:
        """Take the topic, which has records soon, into remote storage."""
        configs = {"remote.storage.enable": "true", "local.retention.bytes": str(self.local_bytes)}
        admin.alter_topic_configs(TOPIC, configs)
        if self.early:
            writers = [self._writer(f"early-{number}", number, self.books[number]) for number in range(self.partitions)]
            self._await("early producers get on", lambda: all(each.acknowledged for each in writers))
            for writer in writers:
                writer.vanish()

    def _wait_until_stable(self) -> None:
        self.store.failures = 0.0
        super()._wait_until_stable()
        self.store.settle()
        self._await("remote storage has nothing of deleted topics", lambda: not left_behind(self.world, self.memory))
        self._await("no deletion is noted for ever", lambda: not self.world.look.deleted_in_remote_storage())
        for broker in self.world.brokers.values():
            for partition in broker.partitions.values():
                log = partition.log
                self.world.reached["tier: partitions that begin remotely"] += (
                    log.log_start_offset < log.local_log_start_offset
                )
