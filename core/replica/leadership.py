"""The manager that lets a broker's partitions lead, follow or rest, as the partition states say (facts D3)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from attrs import evolve

from ...ports.clock import Clock
from ...ports.metrics import Metrics
from ..cluster.topics import NO_LEADER, PartitionState, ReplicaId
from .partition.partition import Partition
from .purgatory import Purgatory


class Following(Protocol):
    """The component that fetches from leaders (`ReplicaFetcherManager`)."""

    def follow(self, partition: Partition) -> None:
        """Fetch from the leader that the partition names, in its leader epoch, and stop fetching from any other."""
        ...

    def forget(self, partition: Partition) -> None:
        """Stop fetching for this partition; one that is not followed is no error."""
        ...

    def close(self) -> None:
        """Stop all fetching."""
        ...


class LeadershipManager:
    """Applies partition states to the open partitions, and calls the leadership listeners. Owner thread only."""

    def __init__(
        self, own: ReplicaId, purgatory: Purgatory, following: Following, clock: Clock, metrics: Metrics
    ) -> None:
        self.own = own
        """This broker with its present broker epoch; with an unknown epoch it leads nothing."""
        self.when_led: list[Callable[[Partition], None]] = []
        self.when_resigned: list[Callable[[Partition], None]] = []
        self._purgatory = purgatory
        self._following = following
        self._clock = clock
        name = "kafka_server_replicamanager_isr"
        self._shrinks = metrics.counter(f"{name}shrinks_total", "Members that left ISRs whose leader is here.")
        self._expands = metrics.counter(f"{name}expands_total", "Members that came into ISRs whose leader is here.")

    def start_partition(self, partition: Partition) -> None:
        """Start leading or following a partition that was just opened, in the state that it has."""
        self._settle(partition, began=True)
        if partition.is_leader:
            self._notify(self.when_led, partition)

    def apply(self, partition: Partition, state: PartitionState, replicas: Sequence[int]) -> None:
        """Apply another partition state, unless it is older than the known one."""
        known = partition.state
        if state.leader_epoch < known.leader_epoch or state.partition_epoch < known.partition_epoch:
            return
        if state == known and tuple(replicas) == partition.replicas:
            return
        self._take(partition, state, replicas)

    def end_leadership(self, partition: Partition) -> None:
        """Stop leading a partition whose topic was deleted, whatever its stored state says."""
        state = partition.state
        ended = evolve(state, leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)
        if partition.is_leader:
            self._take(partition, ended, partition.replicas)

    def on_broker_epoch_changed(self, broker_epoch: int, partitions: Iterable[Partition]) -> None:
        """Apply another broker epoch, or an unknown one: the broker leads a partition in one broker epoch only."""
        if broker_epoch == self.own.broker_epoch:
            return
        self.own = ReplicaId(self.own.broker_id, broker_epoch)
        for partition in partitions:
            self._take(partition, partition.state, partition.replicas)

    def take_offline(self, partition: Partition) -> None:
        """Neither lead nor follow a partition whose log is out of use."""
        partition.offline = True
        self._take(partition, partition.state, partition.replicas)

    def end(self, partition: Partition) -> None:
        """Stop leading and following a partition that is removed."""
        was_leader, partition.leader, partition.followers = partition.is_leader, NO_LEADER, None
        self._following.forget(partition)
        if was_leader:
            self._notify(self.when_resigned, partition)
        self._purgatory.check(partition.topic_partition)

    def _take(self, partition: Partition, state: PartitionState, replicas: Sequence[int]) -> None:
        was_leader, before = partition.is_leader, (partition.leader, partition.leader_epoch)
        in_sync = set(partition.isr)
        risen = partition.apply_state(state, replicas, self.own, self._clock.monotonic_ms())
        again = before == (partition.leader, partition.leader_epoch)
        if again and was_leader:
            self._shrinks.add(len(in_sync - set(partition.isr)))
            self._expands.add(len(set(partition.isr) - in_sync))
        self._settle(partition, began=not again)
        if was_leader and not partition.is_leader:
            self._notify(self.when_resigned, partition)
        elif partition.is_leader and not again:
            self._notify(self.when_led, partition)
        if risen or not again:
            self._purgatory.check(partition.topic_partition)

    def _settle(self, partition: Partition, *, began: bool) -> None:
        """Follow the leader if there is one elsewhere, else stop following."""
        if partition.is_leader or partition.leader == NO_LEADER or partition.offline:
            self._following.forget(partition)
        elif began:
            self._following.follow(partition)

    def _notify(self, listeners: Iterable[Callable[[Partition], None]], partition: Partition) -> None:
        for listener in listeners:
            listener(partition)
