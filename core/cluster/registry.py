"""The topics of the cluster: planned, stored in the coordination tree, and kept in memory for quick answers.

The methods that write are changes for a `ChangeQueue` (or `complete`): they check, store off the owner thread, and only
then change the view in memory, which belongs to the owner: one thread calls everything here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from attrs import evolve

from ...ports.broker_api import NewTopic
from ...ports.coordination import Coordination
from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.words import TopicPartition
from ..tree.tree import DATA_BYTES_MAX
from . import layout, telling
from . import store as topic_nodes
from .assignment import Racks, Replicas, assign_added, assign_new_topic, check_counts, check_manual
from .brokers import children, random_uuid
from .change_queue import elsewhere
from .store import StoredTopic
from .topics import NO_LEADER, PartitionState, Topic, check_topic_name, first_state, metric_name

PARTITIONS_PER_REQUEST_MAX = 10_000


class TopicRegistry:
    """The topics. `report` is told of their changes, and of nodes that make no sense; these are skipped."""

    def __init__(self, coordination: Coordination, entropy: Entropy, report: Callable[[str], None]) -> None:
        self._coordination = coordination
        self._entropy = entropy
        self._report = report
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, str] = {}
        self._by_metric_name: dict[str, str] = {}
        self._deleting: dict[str, Topic] = {}
        self._states: dict[TopicPartition, PartitionState] = {}
        self._unreadable: set[str] = set()
        self.changed: set[str] = set()
        """Names of topics of which something is another since their owner emptied this: what was kept about them does
        not count any more. Whoever opens and closes their logs adds to it, too."""

    @property
    def coordination(self) -> Coordination:
        """The session with the tree."""
        return self._coordination

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name, without those that are being deleted."""
        return self._topics

    @property
    def deleting(self) -> Mapping[str, Topic]:
        """Topics marked for deletion; the owner removes their logs, then calls `finish_delete`."""
        return self._deleting

    @property
    def is_empty(self) -> bool:
        """True if the tree tells of no topic at all, not even of one that makes no sense."""
        return not (self._topics or self._deleting or self._unreadable)

    def id_of(self, partition: TopicPartition) -> bytes | None:
        """The id of the topic of a partition, also while it is being deleted; None for an unknown partition."""
        topic = self._topics.get(partition.topic) or self._deleting.get(partition.topic)
        return topic.topic_id if topic is not None and partition.partition in topic.partitions else None

    def topic(self, name: str) -> Topic:
        """Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`."""
        topic = self._topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name[:260]!r}")
        return topic

    def topic_by_id(self, topic_id: bytes) -> Topic:
        """Raises `ApiError(UNKNOWN_TOPIC_ID)`."""
        name = self._by_id.get(topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {layout.encode_id(topic_id)}")
        return self._topics[name]

    def load(self) -> None:
        """Read everything from the tree, in place of what was known; here and now (at a start)."""
        self._topics, self._by_id, self._by_metric_name, self._deleting, self._states = {}, {}, {}, {}, {}
        self._unreadable = set()
        for name in children(self._coordination, layout.TOPICS):
            self._take_over(name, topic_nodes.read_topic(self._coordination, name, self._report))

    async def reread(self, name: str) -> None:
        """Let what the tree says of a topic count: after a write that may have been done or not."""
        stored = await elsewhere(partial(topic_nodes.read_topic, self._coordination, name, self._report))
        self._take_over(name, stored)

    # Topics are made in two steps, so that a request can be checked without effect (validate_only).

    def plan_topic(
        self,
        new: NewTopic,
        racks: Racks,
        *,
        default_partitions: int,
        default_replication_factor: int,
        configs: Mapping[str, str],
    ) -> Topic:
        """The topic that a request asks for, with a new id; nothing is stored. `configs` are checked by the caller.

        Raises `ApiError`: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, POLICY_VIOLATION.
        """
        self._check_new_name(new.name)
        if new.assignments is not None:
            if new.partitions != -1 or new.replication_factor != -1:
                text = "an assignment by hand excludes numbers of partitions and replicas; leave them at -1"
                raise ApiError(ErrorCode.INVALID_REQUEST, text)
            partitions = _from_zero(new.assignments, racks)
        else:
            count = default_partitions if new.partitions == -1 else new.partitions
            replicas = default_replication_factor if new.replication_factor == -1 else new.replication_factor
            _check_request_size(count)
            partitions = assign_new_topic(racks, count, replicas, self._entropy)
        topic = Topic(name=new.name, topic_id=self._new_id(), partitions=partitions, configs=dict(configs))
        _check_fits(topic)
        topic_nodes.encode_configs(configs)
        return topic

    async def create(self, topic: Topic) -> None:
        """Store a planned topic. Raises `ApiError(TOPIC_ALREADY_EXISTS)`."""
        self._check_new_name(topic.name)
        await elsewhere(partial(topic_nodes.create_topic, self._coordination, topic))
        self._forget_states(topic.name)
        self._know(topic)
        self._report(telling.made(topic))

    def plan_partitions(
        self, name: str, count: int, racks: Racks, *, assignments: Sequence[Sequence[int]] | None = None
    ) -> Topic:
        """The topic grown to `count` partitions; nothing is stored.

        Raises `ApiError`: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
        INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION.
        """
        topic = self.topic(name)
        present = len(topic.partitions)
        if count <= present:
            text = f"topic {name!r} has {present} partitions already; {count} would not be more"
            raise ApiError(ErrorCode.INVALID_PARTITIONS, text)
        _check_request_size(count - present)
        if assignments is None:
            added = assign_added(racks, topic.partitions, count - present)
        else:
            if len(assignments) != count - present:
                text = f"{count - present} partitions are to be added, but {len(assignments)} assigned"
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
            checked = check_manual(assignments, racks, replication_factor=topic.replication_factor)
            added = dict(enumerate(checked, present))
        grown = topic.with_partitions(added)
        _check_fits(grown)
        return grown

    async def resize(self, topic: Topic) -> None:
        """Store a topic that `plan_partitions` gave, or with fewer partitions the one it was before."""
        before = self.topic(topic.name)
        await elsewhere(partial(topic_nodes.write_topic, self._coordination, topic))
        self._know(topic)
        self._report(telling.resized(before, topic))

    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace the overrides of a topic. Raises `ApiError`: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG."""
        before = self.topic(name)
        topic = before.with_configs(configs)
        await elsewhere(partial(topic_nodes.write_configs, self._coordination, topic))
        self._know(topic)
        told = telling.configured(f"topic {name}", before.configs, topic.configs)
        if told is not None:
            self._report(told)

    async def begin_delete(self, name: str) -> Topic:
        """Mark a topic as going: from now on it is unknown, also after a crash, but its name is not free yet.

        Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`.
        """
        topic = self.topic(name)
        await elsewhere(partial(topic_nodes.write_topic, self._coordination, topic, deleting=True))
        del self._topics[name], self._by_id[topic.topic_id]
        self.changed.add(name)
        self._deleting[name] = topic
        self._report(telling.deleted(topic))
        return topic

    async def finish_delete(self, name: str) -> None:
        """Remove all nodes of a topic that `begin_delete` marked; its name is free then. Doing it again is harmless."""
        await elsewhere(partial(topic_nodes.remove_topic, self._coordination, name))
        self._forget_states(name)
        self._by_metric_name.pop(metric_name(name), None)
        self._deleting.pop(name, None)

    def state(self, partition: TopicPartition) -> PartitionState:
        """Who leads the partition. Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        return self._states.get(partition) or first_state(topic.partitions[partition.partition])

    async def set_state(self, partition: TopicPartition, state: PartitionState) -> PartitionState:
        """Store a new state if nobody changed the one with `state.version`; returns it with its new version.

        Raises `BadVersion`; `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`.
        """
        self.state(partition)
        version = await elsewhere(partial(topic_nodes.write_state, self._coordination, partition, state))
        stored = self._states[partition] = evolve(state, version=version)
        self.changed.add(partition.topic)
        return stored

    async def elect(self, partition: TopicPartition, live: Collection[int]) -> PartitionState:
        """Let the first live replica of the ISR lead, with the next leader epoch; none of them alive: no leader.

        The ISR shrinks to its live members, except that its last member stays (facts D2). Raises as `set_state`.
        """
        replicas = self.topic(partition.topic).partitions.get(partition.partition, ())
        known = self.state(partition)
        leader = next((broker for broker in replicas if broker in live and broker in known.isr), NO_LEADER)
        isr = tuple(broker for broker in known.isr if broker in live) or known.isr[:1]
        return await self.set_state(
            partition, evolve(known, leader=leader, leader_epoch=known.leader_epoch + 1, isr=isr)
        )

    def _take_over(self, name: str, stored: StoredTopic | None) -> None:
        self.changed.add(name)
        known = self._topics.pop(name, None)
        if known is not None:
            del self._by_id[known.topic_id]
        if known is not None or self._deleting.pop(name, None) is not None:
            self._by_metric_name.pop(metric_name(name), None)
        self._unreadable.discard(name)
        self._forget_states(name)
        if stored is None:
            return
        if stored.topic is None:
            self._unreadable.add(name)
        elif stored.deleting:
            self._deleting[name] = stored.topic
            self._by_metric_name[metric_name(name)] = name
        else:
            self._know(stored.topic)
            self._states.update(stored.states)

    def _forget_states(self, name: str) -> None:
        self.changed.add(name)
        self._states = {key: state for key, state in self._states.items() if key.topic != name}

    def _know(self, topic: Topic) -> None:
        self.changed.add(topic.name)
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic.name
        self._by_metric_name[metric_name(topic.name)] = topic.name

    def _check_new_name(self, name: str) -> None:
        check_topic_name(name)
        if name in self._deleting:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} is still being deleted")
        if name in self._topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists")
        if name in self._unreadable:
            text = f"{layout.topic_path(name)} in the coordination tree does not describe a topic; remove it first"
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, text)
        other = self._by_metric_name.get(metric_name(name))
        if other is not None:
            text = f"topic name {name!r} collides with {other!r}: '.' and '_' are the same in metrics"
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)

    def _new_id(self) -> bytes:
        while (topic_id := random_uuid(self._entropy)) in self._by_id:
            continue
        return topic_id


def _from_zero(assignments: Mapping[int, Sequence[int]], racks: Racks) -> dict[int, Replicas]:
    check_counts(len(assignments), 1, max(1, len(racks)))
    _check_request_size(len(assignments))
    if sorted(assignments) != list(range(len(assignments))):
        text = f"partitions are numbered 0, 1, 2...; the assignment has {sorted(assignments)[:20]}"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    ordered = [assignments[partition] for partition in range(len(assignments))]
    return dict(enumerate(check_manual(ordered, racks)))


def _check_request_size(partitions: int) -> None:
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        text = f"{partitions} partitions at once are too many; at most {PARTITIONS_PER_REQUEST_MAX}"
        raise ApiError(ErrorCode.POLICY_VIOLATION, text)


def _check_fits(topic: Topic) -> None:
    size = len(layout.encode_topic(topic, deleting=True))
    if size > DATA_BYTES_MAX:
        text = f"the partitions and replicas of topic {topic.name!r} do not fit into one node ({size} bytes)"
        raise ApiError(ErrorCode.INVALID_PARTITIONS, text)
