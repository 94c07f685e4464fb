"""Draining a broker: it gets no new replicas, and all that it has move to other brokers, so that it may leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition
from ....ports.values import frozen
from .reassignments import (
    PARTITIONS_AT_A_TIME,
    ReplicaAssignment,
    current_assignment,
    drained,
    moved,
    racks_of,
    remove_throttle,
    replica_sizes,
    set_throttle,
)

if TYPE_CHECKING:
    from .admin import Admin

NAMED_MAX = 5
FAILURES_MAX = 20
"""The number of consecutive refused requests after which the drain fails."""


@frozen(kw_only=True)
class DrainPlan:
    """The moves that empty a broker, of partitions that are not moving off it already."""

    broker: int
    is_alive: bool
    before: ReplicaAssignment
    after: ReplicaAssignment
    sizes: Mapping[TopicPartition, int]
    already_moving: int
    """The number of partitions that are on their way off the broker."""

    @property
    def copies(self) -> list[tuple[TopicPartition, int]]:
        """The replicas to copy: partition, and the broker that gets it."""
        return moved(self.before, self.after)

    @property
    def copy_bytes(self) -> int:
        """The bytes to copy."""
        return sum(self.sizes.get(tp, 0) for tp, _ in self.copies)


@frozen(kw_only=True)
class DrainProgress:
    """The partitions that still have a replica on the broker, and the number of these that it leads."""

    replicas: int
    leaders: int
    copied_bytes: int
    """The bytes that the new replicas have by now."""

    @property
    def is_done(self) -> bool:
        """True if the broker has no replica."""
        return self.replicas == 0


class BrokerDrain:
    """Moves everything off one broker. Each step reads the cluster again, so another process may continue it."""

    def __init__(
        self,
        admin: Admin,
        broker: int,
        *,
        replication_factor: int | None = None,
        throttle: int | None = None,
    ) -> None:
        """`replication_factor`: partitions with more replicas lose the one on this broker, without a new one.
        `throttle`: bytes per second to and from each broker."""
        self._admin = admin
        self._broker = broker
        self._replication_factor = replication_factor
        self._throttle = throttle
        self._copies: dict[TopicPartition, tuple[int, ...]] = {}
        self._before: dict[TopicPartition, Sequence[int]] = {}
        self._after: dict[TopicPartition, Sequence[int]] = {}
        """The moves that this object began: the throttle of a topic concerns all of them."""
        self._failures = 0

    def plan(self) -> DrainPlan:
        """Return the moves that are still to begin.

        Raises `ConfigError` if the cluster does not know the broker, no broker can get a replica, or a partition
        without a leader cannot be copied; `ApiError`.
        """
        admin, broker = self._admin, self._broker
        log_dirs = admin.describe_log_dirs()
        racks = racks_of(admin.describe_cluster().brokers)
        current = current_assignment(admin)
        if broker not in racks and not any(broker in held for held in current.values()):
            known = ", ".join(map(str, sorted(racks)))
            raise ConfigError(f"broker {broker} is not alive and has no replicas; live brokers: {known}")
        cordoned = {each for each, folders in log_dirs.items() if folders and all(f.is_cordoned for f in folders)}
        others = {each: rack for each, rack in racks.items() if each != broker and each not in cordoned}
        sizes = replica_sizes(log_dirs)
        after = drained(current, broker, others, sizes, self._replication_factor)
        self._check_led(after)
        moving = sum(broker in move.removing for move in admin.list_reassignments())
        before = {tp: current[tp] for tp in after}
        return DrainPlan(
            broker=broker, is_alive=broker in racks, before=before, after=after, sizes=sizes, already_moving=moving
        )

    def _check_led(self, after: ReplicaAssignment) -> None:
        topics = sorted({tp.topic for tp in after})
        led = {
            TopicPartition(str(topic.name), each.partition)
            for topic in (self._admin.describe_topics(topics) if topics else ())
            for each in topic.partitions
            if each.leader >= 0
        }
        stuck = sorted(tp for tp in after if tp not in led)
        if stuck:
            text = f"{counted(len(stuck), 'partition')} without a leader cannot be copied ({_partition_names(stuck)})"
            raise ConfigError(f"{text}: start their brokers, or elect a leader with 'barnabas cluster elect --unclean'")

    def start(self, plan: DrainPlan) -> None:
        """Cordon the broker, move its leaderships to other replicas in sync, and begin the moves. Raises `ApiError`."""
        self._admin.cordon_broker(self._broker)
        self._move_leaders()
        self._move(plan)

    def advance(self) -> DrainProgress:
        """Return what is left, and begin the moves of partitions that the broker got, or kept, since the last step.

        Raises `ApiError` and `ConfigError` if that fails again and again.
        """
        admin, broker = self._admin, self._broker
        held = [
            (TopicPartition(str(topic.name), each.partition), each.leader)
            for topic in admin.describe_topics()
            for each in topic.partitions
            if broker in each.replicas
        ]
        going = {
            TopicPartition(move.topic, move.partition) for move in admin.list_reassignments() if broker in move.removing
        }
        if any(tp not in going for tp, _ in held):
            try:
                self._move(self.plan())
                self._failures = 0
            except (ApiError, ConfigError):
                self._failures += 1
                if self._failures > FAILURES_MAX:
                    raise
        return DrainProgress(
            replicas=len(held), leaders=sum(leader == broker for _, leader in held), copied_bytes=self._copied_bytes()
        )

    def end(self) -> None:
        """Remove the throttle. The broker stays cordoned until it is removed, or the drain is cancelled."""
        remove_throttle(self._admin, self._admin.list_topics(internal=True))

    def cancel(self) -> int:
        """Cancel the moves off the broker, and let it get new replicas again. Returns the number of cancelled moves;
        those that were complete are not undone. Raises `ApiError`."""
        going = [
            TopicPartition(move.topic, move.partition)
            for move in self._admin.list_reassignments()
            if self._broker in move.removing
        ]
        self._admin.cordon_broker(self._broker, cordoned=False)
        try:
            for some in _batches(dict.fromkeys(going)):
                try:
                    self._admin.reassign_partitions(dict.fromkeys(some))
                except ApiError as error:
                    if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:  # complete by now
                        raise
        finally:
            self.end()
        return len(going)

    def _move_leaders(self) -> None:
        """Let other replicas in sync lead what the broker leads: it is listed last, then the first replica is elected.

        A partition that moves already, or has no other replica in sync, is led by the broker until the copy is there.
        """
        broker, moving = self._broker, {(each.topic, each.partition) for each in self._admin.list_reassignments()}
        reordered: dict[TopicPartition, list[int]] = {}
        led = _count_leaders(self._admin)
        for topic in self._admin.describe_topics():
            for each in topic.partitions:
                ready = [other for other in each.isr if other != broker and other in each.replicas]
                if each.leader != broker or not ready or (topic.name, each.partition) in moving:
                    continue
                first = min(ready, key=lambda other: (led.get(other, 0), other))
                led[first] = led.get(first, 0) + 1
                others = [other for other in each.replicas if other not in (first, broker)]
                reordered[TopicPartition(str(topic.name), each.partition)] = [first, *others, broker]
        for some in _batches(reordered):
            self._admin.reassign_partitions({tp: reordered[tp] for tp in some})
            with suppress(ApiError):  # a replica that is no longer in sync: the end of the move changes the leader
                self._admin.elect_leaders(some)

    def _move(self, plan: DrainPlan) -> None:
        self._before.update(plan.before)
        self._after.update(plan.after)
        if self._throttle is not None:
            set_throttle(self._admin, self._after, self._before, self._throttle)
        for tp, broker in plan.copies:
            self._copies[tp] = (*self._copies.get(tp, ()), broker)
        for some in _batches(plan.after):
            self._admin.reassign_partitions({tp: plan.after[tp] for tp in some})

    def _copied_bytes(self) -> int:
        targets = sorted({broker for held in self._copies.values() for broker in held})
        alive = {node.node_id for node in self._admin.describe_cluster().brokers} if targets else set()
        topics: dict[str, list[int]] = {}
        for tp in self._copies:
            topics.setdefault(tp.topic, []).append(tp.partition)
        found = self._admin.describe_log_dirs([each for each in targets if each in alive], topics)
        return sum(
            replica.size_bytes
            for broker, folders in found.items()
            for folder in folders
            for replica in folder.replicas
            if broker in self._copies.get(TopicPartition(replica.topic, replica.partition), ())
        )


def _count_leaders(admin: Admin) -> dict[int, int]:
    led: dict[int, int] = {}
    for topic in admin.describe_topics():
        for each in topic.partitions:
            led[each.leader] = led.get(each.leader, 0) + 1
    return led


def _batches(assignment: Mapping[TopicPartition, object]) -> Iterable[list[TopicPartition]]:
    partitions = sorted(assignment)
    for start in range(0, len(partitions), PARTITIONS_AT_A_TIME):
        yield partitions[start : start + PARTITIONS_AT_A_TIME]


def _partition_names(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions[:NAMED_MAX])) + (", ..." if len(partitions) > NAMED_MAX else "")
