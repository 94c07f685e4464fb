"""A small coordinator of one group by KIP-848: epochs, a target assignment, and the rules of reconciliation."""

from typing import Any

from attrs import define, field
from support.group_world import Consumer, World
from support.plain_cluster import id_of

from barnabas.ports.broker_api.consumer_groups import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    TopicIdPartitions,
)
from barnabas.ports.broker_api.groups import (
    FetchedGroup,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
    PartitionOutcome,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

INTERVAL_MS = 5_000
SESSION_MS = 45_000
ASSIGNMENT_INTERVAL_MS = 1_000


@define
class ModelMember:
    """One member: its assignment, and what it still has to give up."""

    epoch: int = 0
    previous_epoch: int = 0
    topics: tuple[str, ...] = ()
    assigned: set[TopicPartition] = field(factory=set)
    revoking: set[TopicPartition] = field(factory=set)
    observed: set[TopicPartition] | None = None
    heard_ms: float = 0.0


class ModelGroup:
    """Answers the heartbeats, commits and fetches of offsets of `World`'s consumers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.epoch = 1
        self.members: dict[str, ModelMember] = {}
        self.target: dict[str, set[TopicPartition]] = {}
        self._target_epoch = 1
        self._assigned_ms: float = -ASSIGNMENT_INTERVAL_MS
        self._counts: dict[str, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        world.scripts.append(self._answer)

    @property
    def is_stable(self) -> bool:
        """True if every member has its target and has said so."""
        if not self.members:
            return True
        return self._target_epoch == self.epoch and all(
            member.epoch == self.epoch and not member.revoking and member.assigned == self.target.get(name, set())
            for name, member in self.members.items()
        )

    def _answer(self, consumer: Consumer, request: Any) -> Any:
        if isinstance(request, ConsumerGroupHeartbeat):
            self.expire()
            return self._heartbeat(request)
        if isinstance(request, OffsetFetch):
            return self._fetch(request)
        return self._commit(request) if isinstance(request, OffsetCommit) else None

    def expire(self) -> None:
        """Remove the members whose sessions are over, and look at the topics."""
        for name, member in list(self.members.items()):
            if self._world.now - member.heard_ms > SESSION_MS:
                self._remove(name)
        counts = dict(self._world.cluster.topics)
        if counts != self._counts:
            self._counts = counts
            self.epoch += 1

    def _remove(self, name: str) -> None:
        del self.members[name]
        self.epoch += 1

    def _heartbeat(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResult:
        name, now = request.member_id, self._world.now
        member = self.members.get(name)
        if request.member_epoch < 0:
            if member is None:
                return ConsumerGroupHeartbeatResult(error=ErrorCode.UNKNOWN_MEMBER_ID)
            self._remove(name)
            return ConsumerGroupHeartbeatResult(member_id=name, member_epoch=request.member_epoch)
        if request.member_epoch == 0:
            assert request.topic_partitions is not None
            assert not request.topic_partitions
            assert request.subscribed_topic_names is not None
            member = self.members[name] = ModelMember()
            self.epoch += 1
        if member is None:
            return ConsumerGroupHeartbeatResult(error=ErrorCode.UNKNOWN_MEMBER_ID)
        owned = None if request.topic_partitions is None else self._named(request.topic_partitions)
        if request.member_epoch not in (0, member.epoch):
            is_repeated = request.member_epoch == member.previous_epoch
            if not is_repeated or owned is None or not owned <= member.assigned | member.revoking:
                return ConsumerGroupHeartbeatResult(error=ErrorCode.FENCED_MEMBER_EPOCH)
        member.heard_ms = now
        if request.subscribed_topic_names is not None and tuple(request.subscribed_topic_names) != member.topics:
            member.topics = tuple(request.subscribed_topic_names)
            self.epoch += 1
        if self._target_epoch < self.epoch and now >= self._assigned_ms + ASSIGNMENT_INTERVAL_MS:
            self._assign(now)
        self._reconcile(name, member, owned)
        is_full = request.rebalance_timeout_ms >= 0 and owned is not None
        says_it = is_full or member.observed != member.assigned
        member.observed = set(member.assigned)
        return ConsumerGroupHeartbeatResult(
            member_id=name,
            member_epoch=member.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=self._by_id(member.assigned) if says_it else None,
        )

    def _assign(self, now: float) -> None:
        """Give each partition to the subscriber with the fewest, but leave it with its owner if that is fair."""
        shares: dict[str, set[TopicPartition]] = {name: set() for name in self.members}
        for topic, count in sorted(self._counts.items()):
            takers = sorted(name for name, member in self.members.items() if topic in member.topics)
            if not takers:
                continue
            quota = -(-count // len(takers))
            free = []
            for number in range(count):
                tp = TopicPartition(topic, number)
                owner = next((name for name in takers if tp in self.target.get(name, ())), None)
                if owner is not None and sum(each.topic == topic for each in shares[owner]) < quota:
                    shares[owner].add(tp)
                else:
                    free.append(tp)
            for tp in free:
                shares[min(takers, key=lambda name: (len(shares[name]), name))].add(tp)
        self.target = shares
        self._target_epoch = self.epoch
        self._assigned_ms = now

    def _reconcile(self, name: str, member: ModelMember, owned: set[TopicPartition] | None) -> None:
        if member.revoking:
            if owned is None or owned & member.revoking:
                return
            member.revoking = set()
        target = self.target.get(name, set())
        member.revoking = member.assigned - target
        if member.revoking:
            member.assigned &= target
            return
        if self._target_epoch > member.epoch:
            member.previous_epoch, member.epoch = member.epoch, self._target_epoch
        taken = set().union(*(each.assigned | each.revoking for each in self.members.values() if each is not member))
        member.assigned |= target - taken

    def _fetch(self, request: OffsetFetch) -> OffsetFetchResult:
        (group,) = request.groups
        error = ErrorCode.NONE
        if group.member_id is not None:
            member = self.members.get(group.member_id)
            error = ErrorCode.UNKNOWN_MEMBER_ID if member is None else error
            if member is not None and member.epoch != group.member_epoch:
                error = ErrorCode.STALE_MEMBER_EPOCH
        found = [FetchedOffset(*tp, self.offsets.get(tp, -1)) for tp in group.partitions or ()]
        return OffsetFetchResult(groups=[FetchedGroup(group_id=group.group_id, partitions=found, error=error)])

    def _commit(self, request: OffsetCommit) -> OffsetCommitResult:
        member = self.members.get(request.member_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if member is not None:
            error = ErrorCode.NONE if member.epoch == request.generation_id else ErrorCode.STALE_MEMBER_EPOCH
        if error is ErrorCode.NONE:
            self.offsets |= {TopicPartition(each.topic, each.partition): each.offset for each in request.partitions}
        return OffsetCommitResult(
            partitions=[PartitionOutcome(each.topic, each.partition, error) for each in request.partitions]
        )

    def _named(self, topics: Any) -> set[TopicPartition]:
        names = {id_of(name): name for name in self._world.cluster.topics}
        return {TopicPartition(names[each.topic_id], number) for each in topics for number in each.partitions}

    def _by_id(self, partitions: set[TopicPartition]) -> list[TopicIdPartitions]:
        topics: dict[bytes, list[int]] = {}
        for tp in sorted(partitions):
            topics.setdefault(id_of(tp.topic), []).append(tp.partition)
        return [TopicIdPartitions(*each) for each in topics.items()]
