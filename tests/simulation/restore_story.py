"""A cluster whose coordination service is restored from a backup, between disasters before and calm after it."""

from collections.abc import Sequence
from typing import Any

from simulation.client import TOPIC
from simulation.cluster_checker import OFFSETS
from simulation.cluster_story import ClusterStory
from simulation.swarm import LOSSES

from barnabas.simulation import Disasters

LOOK_AGAIN_MS = 200.0
KINDS = tuple(kind for kind in Disasters.KINDS if kind not in LOSSES)


class RestoreStory(ClusterStory):
    """The backup is as old as the story. It is restored when all replicas are in sync and no broker runs: then nothing
    that was committed may be lost, though epochs and counters in the tree are behind those in the logs."""

    name = "restore"

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = KINDS, acts: Sequence[str] = ("elect",), **settings: Any
    ) -> None:
        super().__init__(seed, kinds=kinds, acts=acts, **settings)
        self.remakes = False
        self._backup: Sequence[tuple[str, bytes, int]] = ()
        self._back_up()

    def _back_up(self) -> None:
        """Back up the tree when all topics exist: later topics are missing after the restore."""
        if not {TOPIC, OFFSETS} <= self.world.look.topics().keys():
            self.world.scheduler.call_later(LOOK_AGAIN_MS, self._back_up)
            return
        self._backup = self.world.coordination.backup()
        self.world.report("--- the coordination service is backed up")

    def _wait_until_stable(self) -> None:
        world = self.world
        world.programs["operator"].cut_power()
        self._mend_logs()
        self._await("all brokers are in sync", self._all_in_sync)
        self._await("no broker is registered", self._all_stopped)
        world.coordination.restore(self._backup)
        self.checker.tree_restored()
        world.report("--- the coordination service is restored")
        world.reached["fault: restored coordination"] += 1
        for broker in world.brokers.values():
            broker.start()
        super()._wait_until_stable()

    def _all_stopped(self) -> bool:
        """Also what a disaster of before has begun to start again."""
        brokers = [broker for broker in self.world.brokers.values() if broker.node is not None]
        for broker in brokers:
            if self.seed % 2:
                broker.kill()
            else:
                broker.stop()
        return not brokers and not self.world.look.brokers() and not self.world.abandoned_sessions
