"""The topics of the cluster: planned, stored in the coordination tree, and kept in memory for quick answers.

The methods that write are synchronous and wait for the coordination service. The view in memory belongs to the owner:
one thread calls everything here. Crash-safe: a topic exists once its own node does, which is written last when it is
created and removed last when it is deleted.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import evolve

from ...ports.broker_api import NewTopic
from ...ports.coordination import BadVersion, Coordination, NodeExists, NoNode
from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.words import TopicPartition
from . import layout
from .assignment import Racks, Replicas, assign_added, assign_new_topic, check_counts, check_manual
from .brokers import children, put, random_uuid, read_configs, remove
from .topics import NO_LEADER, PartitionState, Topic, check_topic_name, first_state, metric_name
from .tree import DATA_BYTES_MAX

PARTITIONS_PER_REQUEST_MAX = 10_000


class TopicRegistry:
    """The topics. `report` is told of nodes that make no sense; they are skipped."""

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

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name, without those that are being deleted."""
        return self._topics

    @property
    def deleting(self) -> Mapping[str, Topic]:
        """Topics marked for deletion; the owner removes their logs, then calls `finish_delete`."""
        return self._deleting

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
        """Read everything from the tree, in place of what was known."""
        self._topics, self._by_id, self._by_metric_name, self._deleting, self._states = {}, {}, {}, {}, {}
        self._unreadable = set()
        for name in children(self._coordination, layout.TOPICS):
            self._load_topic(name)

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
        _encode_checked(configs)
        return topic

    def create(self, topic: Topic) -> None:
        """Store a planned topic. Raises `ApiError(TOPIC_ALREADY_EXISTS)`."""
        self._check_new_name(topic.name)
        self._remove_states(topic.name)
        put(self._coordination, layout.topic_config_path(topic.name), _encode_checked(topic.configs))
        try:
            self._coordination.create(layout.topic_path(topic.name), layout.encode_topic(topic))
        except NodeExists as error:
            path = layout.topic_path(topic.name)
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the coordination tree has {path} already") from error
        self._know(topic)

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

    def grow(self, grown: Topic) -> None:
        """Store a topic that `plan_partitions` gave."""
        self.topic(grown.name)
        self._coordination.set(layout.topic_path(grown.name), layout.encode_topic(grown))
        self._know(grown)

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        """Replace the overrides of a topic. Raises `ApiError`: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG."""
        topic = self.topic(name).with_configs(configs)
        put(self._coordination, layout.topic_config_path(name), _encode_checked(configs))
        self._know(topic)
        return topic

    def begin_delete(self, name: str) -> Topic:
        """Mark a topic as going: from now on it is unknown, also after a crash, but its name is not free yet.

        Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`.
        """
        topic = self.topic(name)
        self._coordination.set(layout.topic_path(name), layout.encode_topic(topic, deleting=True))
        del self._topics[name], self._by_id[topic.topic_id]
        self._deleting[name] = topic
        return topic

    def finish_delete(self, name: str) -> None:
        """Remove all nodes of a topic that `begin_delete` marked; its name is free then. Doing it again is harmless."""
        self._remove_states(name)
        remove(self._coordination, layout.topic_config_path(name))
        remove(self._coordination, layout.topic_path(name))
        self._by_metric_name.pop(metric_name(name), None)
        self._deleting.pop(name, None)

    def state(self, partition: TopicPartition) -> PartitionState:
        """Who leads the partition. Raises `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        return self._states.get(partition) or first_state(topic.partitions[partition.partition])

    def set_state(self, partition: TopicPartition, state: PartitionState) -> PartitionState:
        """Store a new state if nobody changed the one with `state.version`; returns it with its new version.

        Raises `BadVersion`; `ApiError(UNKNOWN_TOPIC_OR_PARTITION)`.
        """
        self.state(partition)
        path = layout.state_path(*partition)
        if state.version is None:
            try:
                self._coordination.create(path, layout.encode_state(state))
            except NodeExists as error:
                raise BadVersion(f"{path} exists already") from error
            stored = evolve(state, version=0)
        else:
            version = self._coordination.set(path, layout.encode_state(state), version=state.version)
            stored = evolve(state, version=version)
        self._states[partition] = stored
        return stored

    def elect(self, partition: TopicPartition, live: Collection[int]) -> PartitionState:
        """Let the first live replica of the ISR lead, with the next leader epoch; none of them alive: no leader.

        The ISR shrinks to its live members, except that its last member stays (facts D2). Raises as `set_state`.
        """
        replicas = self.topic(partition.topic).partitions.get(partition.partition, ())
        known = self.state(partition)
        leader = next((broker for broker in replicas if broker in live and broker in known.isr), NO_LEADER)
        isr = tuple(broker for broker in known.isr if broker in live) or known.isr[:1]
        return self.set_state(partition, evolve(known, leader=leader, leader_epoch=known.leader_epoch + 1, isr=isr))

    def _remove_states(self, name: str) -> None:
        partitions = children(self._coordination, layout.partitions_path(name))
        for partition in partitions:
            path = f"{layout.partitions_path(name)}/{partition}"
            remove(self._coordination, f"{path}/state")
            remove(self._coordination, path)
        if partitions:
            remove(self._coordination, layout.partitions_path(name))
        self._states = {key: state for key, state in self._states.items() if key.topic != name}

    def _load_topic(self, name: str) -> None:
        path = layout.topic_path(name)
        try:
            data = self._coordination.get(path).data
            configs = read_configs(self._coordination, layout.topic_config_path(name), self._report)
            topic, deleting = layout.decode_topic(name, data, configs)
        except NoNode:
            return
        except (ValueError, ApiError) as error:
            self._report(f"skipped {path}, which does not describe a topic: {error}")
            self._unreadable.add(name)
            return
        if deleting:
            self._deleting[name] = topic
            self._by_metric_name[metric_name(name)] = name
            return
        self._know(topic)
        self._load_states(topic)

    def _load_states(self, topic: Topic) -> None:
        for name in children(self._coordination, layout.partitions_path(topic.name)):
            path = f"{layout.partitions_path(topic.name)}/{name}/state"
            try:
                node = self._coordination.get(path)
                partition = int(name)
                if layout.state_path(topic.name, partition) != path or partition not in topic.partitions:
                    raise ValueError(f"topic {topic.name!r} has no partition {name!r}")
                state = layout.decode_state(node.data, node.version)
            except NoNode:
                continue
            except ValueError as error:
                self._report(f"skipped {path}, which does not hold a partition's state: {error}")
                continue
            self._states[TopicPartition(topic.name, partition)] = state

    def _know(self, topic: Topic) -> None:
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


def _encode_checked(configs: Mapping[str, str]) -> bytes:
    encoded = layout.encode_configs(configs)
    if len(encoded) > DATA_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"the configs do not fit into one node ({len(encoded)} bytes)")
    return encoded
