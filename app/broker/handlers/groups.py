"""Consumer groups: the requests to their group coordinator, and FindCoordinator (facts C6)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from attrs import evolve

from ....core.cluster.deltas import Delta, TopicDeleting, TopicGone, TopicSet
from ....core.cluster.features import GROUP_VERSION, FeaturesImage
from ....core.cluster.image import ClusterImage
from ....core.cluster.topic_store import read_live_topics
from ....core.cluster.topics import INTERNAL_TOPICS, Topic
from ....core.coordinator.group.config import GroupCoordinatorConfig
from ....core.coordinator.group.coordinator import GroupCoordinator
from ....core.coordinator.group.counters import GroupCounters
from ....core.coordinator.group.group import GroupType
from ....core.coordinator.group.group_config import GroupConfigManager
from ....core.coordinator.group.loading import Loading
from ....core.coordinator.group.states import CLASSIC_STATES, CONSUMER_STATES
from ....core.coordinator.log import CoordinatorLog
from ....core.coordinator.log_loader import LogLoader
from ....core.coordinator.table import partition_of
from ....core.replica.leader.verified_appends import Verify
from ....core.share.persister import Persister, SharePartitionKey
from ....core.traffic.steps import Steps
from ....ports.broker_api.acls import ResourceType
from ....ports.broker_api.cluster import BrokerNode
from ....ports.broker_api.consumer_groups import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from ....ports.broker_api.envelope import Caller, Reply, Request
from ....ports.broker_api.groups import (
    GROUP_COORDINATOR,
    SHARE_COORDINATOR,
    TRANSACTION_COORDINATOR,
    Coordinator,
    DeleteGroups,
    DescribeGroups,
    FetchedGroup,
    FindCoordinator,
    FindCoordinatorResult,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResult,
    SyncGroup,
)
from ....ports.broker_api.operations import Operation
from ....ports.broker_api.transactions import TxnOffsetCommit
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.metrics import Metrics
from ....ports.report import to_logger
from ....ports.scheduler import Outcome
from ....ports.types import TopicPartition
from ...config import BrokerConfig
from ..state.authorization import Authorization
from ..state.broker_state import BrokerState
from .internal_topic_creation import InternalTopics
from .internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from .led_partitions import follow_leaders
from .share_groups import PartitionEnds

MINUTE_MS = 60_000
_RETRY_MS = 1000.0
_NOT_ENABLED = "The consumer group protocol is not enabled (group.version, group.coordinator.rebalance.protocols)."
_COORDINATOR_TOPICS = {
    GROUP_COORDINATOR: OFFSETS_TOPIC,
    TRANSACTION_COORDINATOR: TRANSACTIONS_TOPIC,
    SHARE_COORDINATOR: SHARE_STATE_TOPIC,
}
"""FindCoordinator: the coordinator of a key leads the key's partition of this internal topic."""


# Metrics of consumer groups that this broker coordinates, by the names of kafka_exporter.

_LAG_LABELS = ("consumergroup", "topic", "partition")
_GROUP_TOPIC = ("consumergroup", "topic")
EndOf = Callable[[TopicPartition], int | None]
"""The high watermark of a partition; None where this broker has no replica of it."""

_Row = tuple[Sequence[str], float]


def show_lag(metrics: Metrics, coordinator: GroupCoordinator, end_of: EndOf) -> None:
    """Register the metrics of groups: committed offsets, lags and members.

    A lag is available where this broker has a replica of the partition.
    """
    metrics.gauges(
        "kafka_consumergroup_current_offset",
        "Committed position of a group in a partition.",
        _LAG_LABELS,
        lambda: [((group, *_texts(tp)), float(offset)) for group, tp, offset in coordinator.committed()],
    )
    metrics.gauges(
        "kafka_consumergroup_lag",
        "Messages between a group's committed position and the high watermark of a partition.",
        _LAG_LABELS,
        lambda: [((group, *_texts(tp)), lag) for group, tp, lag in _lags(coordinator, end_of)],
    )
    metrics.gauges(
        "kafka_consumergroup_lag_sum",
        "The lag of a group in all partitions of a topic.",
        _GROUP_TOPIC,
        lambda: _sums(coordinator, end_of),
    )
    metrics.gauges(
        "kafka_consumergroup_members",
        "Members of a group.",
        ("consumergroup",),
        lambda: [((group,), float(count)) for group, count in coordinator.member_counts()],
    )


def _texts(tp: TopicPartition) -> tuple[str, str]:
    return tp.topic, str(tp.partition)


def _lags(coordinator: GroupCoordinator, end_of: EndOf) -> Iterator[tuple[str, TopicPartition, float]]:
    for group, tp, offset in coordinator.committed():
        end = end_of(tp)
        if end is not None:
            yield group, tp, float(max(0, end - offset))


def _sums(coordinator: GroupCoordinator, end_of: EndOf) -> list[_Row]:
    sums: dict[tuple[str, str], float] = {}
    for group, tp, lag in _lags(coordinator, end_of):
        key = (group, tp.topic)
        sums[key] = sums.get(key, 0.0) + lag
    return list(sums.items())


class ImageTopics:
    """The topics of the image, as modern groups see them."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.version = 0
        """Grows with each change of a topic."""
        self._names: frozenset[str] = frozenset()
        self._names_version = -1

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of the topic with this name, or None."""
        topic = self._state.image.topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._state.image.name_of(topic_id) or None

    def names(self) -> AbstractSet[str]:
        """Return the names of all topics that are not internal; the same object until `version` grows."""
        if self._names_version != self.version:
            self._names_version = self.version
            self._names = frozenset(self._state.image.topics) - INTERNAL_TOPICS
        return self._names

    def num_partitions(self, topic_id: bytes) -> int:
        """Return -1 if there is no such topic."""
        topic = self._state.image.topics.get(self._state.image.name_of(topic_id))
        return -1 if topic is None else len(topic.partitions)


def _describable(authorization: Authorization | None, caller: Caller, names: Collection[str]) -> Collection[str]:
    """Return the topics that the caller may describe."""
    if authorization is None:
        return names
    return [
        name
        for name in names
        if authorization.allows(caller, Operation.DESCRIBE, ResourceType.TOPIC, name, log_if_denied=False)
    ]


class GroupService:
    """Coordinates the groups whose partition of `__consumer_offsets` this broker leads.

    It loads a partition when this broker begins to lead it: at the start, after the topic is created, and after another
    broker has led it. It unloads the partition when another broker leads it. Owner thread only.
    """

    def __init__(
        self,
        state: BrokerState,
        verify: Verify,
        configs: GroupConfigManager,
        authorization: Authorization | None,
        persister: Persister,
    ) -> None:
        """`authorization` None: every caller may do everything."""
        static = state.settings.static
        self._state = state
        self._verify_partition = verify
        self._topics = ImageTopics(state)
        self._log = CoordinatorLog(
            OFFSETS_TOPIC,
            state.replicas,
            clock=state.clock,
            scheduler=state.scheduler,
            timeout_ms=static.offsets_commit_timeout_ms,
            failed=state.failed,
        )
        self.coordinator = GroupCoordinator(
            config=_group_config(static),
            partition_count=static.offsets_topic_num_partitions,
            clock=state.clock,
            scheduler=state.scheduler,
            entropy=state.entropy,
            append=self._log.append,
            topic_id_of=self._topic_id_of,
            topics=self._topics,
            configs=configs,
            leads=state.replicas.leading(OFFSETS_TOPIC),
            report=to_logger(state.report, "core.coordinator"),
            counters=_counters(state.metrics),
            steps=state.steps,
            verify=self._verify,
            describable=partial(_describable, authorization),
            persister=persister,
            find_ends=PartitionEnds(state).find,
        )
        self._loader = LogLoader(
            state.replicas,
            self.coordinator.begin_load,
            self._loaded,
            codecs=state.logs.codecs,
            clock=state.clock,
            scheduler=state.scheduler,
            slice_bytes=static.offsets_load_buffer_size,
            report=state.report,
            failed=state.failed,
            still_open=Loading.add_open,
        )
        self._deleted: list[tuple[bytes, Sequence[TopicPartition]]] = []
        """Partitions deleted while groups are being loaded, which may have offsets in them, by topic id."""
        self._checking = 0
        """The number of loaded partitions whose topic ids are being compared with the tree."""
        self._is_started = self._is_closed = False
        state.registry.listen(self._cluster_changed)
        follow_leaders(state, OFFSETS_TOPIC, self.coordinator, self._loader, self._log)
        state.replicas.markers.add_txn_completed_listener(self._transaction_ended)
        _show(state.metrics, self.coordinator, self._loader)
        show_lag(state.metrics, self.coordinator, _end_of(state))

    @property
    def handlers(self) -> Mapping[type[Request[Any]], Callable[[Any, Caller, Any], None]]:
        """The handler of each request type."""
        coordinator = self.coordinator
        return {
            JoinGroup: coordinator.join,
            SyncGroup: coordinator.sync,
            Heartbeat: coordinator.heartbeat,
            LeaveGroup: coordinator.leave,
            ConsumerGroupHeartbeat: self._offered(coordinator.consumer_group_heartbeat),
            ConsumerGroupDescribe: self._offered(coordinator.describe_consumer_groups),
            OffsetCommit: coordinator.commit_offsets,
            OffsetFetch: self._fetch_offsets,
            OffsetDelete: coordinator.delete_offsets,
            TxnOffsetCommit: coordinator.commit_in_transaction,
            DescribeGroups: coordinator.describe_groups,
            ListGroups: coordinator.list_groups,
            DeleteGroups: coordinator.delete_groups,
        }

    def _offered(self, handle: Callable[[Any, Caller, Any], None]) -> Callable[[Any, Caller, Any], None]:
        """Return the handler of a request that is offered where the cluster has consumer groups by KIP-848."""
        registry, context = self._state.registry, self.coordinator.context
        features: FeaturesImage | None = None
        config: GroupCoordinatorConfig | None = None
        is_offered = False

        def handle_if_offered(request: Request[Any], caller: Caller, reply: Reply[Any]) -> None:
            nonlocal features, config, is_offered
            if registry.image.features is not features or context.config is not config:
                features, config = registry.image.features, context.config
                is_offered = features.level(GROUP_VERSION) >= 1 and config.offers_consumer_groups
            if not is_offered:
                reply(request.failed(ApiError(ErrorCode.UNSUPPORTED_VERSION, _NOT_ENABLED)))
                return
            handle(request, caller, reply)

        return handle_if_offered

    # --- life

    def start(self) -> None:
        """Start the coordinator, after the topics of an earlier start are open."""
        self._is_started = True
        self._forget_deleted()
        self.coordinator.start()

    def close(self) -> None:
        """Write accepted changes, and answer waiting requests with NOT_COORDINATOR. Twice is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loader.close()
        self._log.flush()
        self.coordinator.close()
        self._log.close()

    # --- committed offsets

    def _fetch_offsets(self, request: OffsetFetch, caller: Caller, reply: Reply[OffsetFetchResult]) -> None:
        """Answer with offsets of existing topics: the topic ids are read from the tree, as the image may be behind.

        Otherwise a coordinator with a late image could return the offset of a deleted topic to consumers of the next
        topic of that name, which would skip its messages.
        """
        if self._state.is_alone:
            self.coordinator.fetch_offsets(request, caller, reply)
            return

        def answered(result: OffsetFetchResult | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                reply(result)
                return
            committed = (each for group in result.groups for each in group.partitions if each.offset >= 0)
            names = tuple(dict.fromkeys(each.topic for each in committed))
            if not names:
                reply(result)
                return
            coordination = self._state.registry.coordination
            self._state.scheduler.offload(
                lambda: read_live_topics(coordination, names), lambda outcome: reply(_confirmed(result, outcome))
            )

        self.coordinator.fetch_offsets(request, caller, answered)

    # --- transactions, and topics that go

    def _verify(self, request: TxnOffsetCommit, number: int, callback: Callable[[ErrorCode], None]) -> None:
        """Verify the partition of a transactional commit as produce does, where verification is on."""
        partition = TopicPartition(OFFSETS_TOPIC, number)
        self._verify_partition(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            partition,
            request.supported_operation,
            callback,
        )

    def _transaction_ended(self, key: TopicPartition, producer_id: int, epoch: int, committed: bool) -> None:
        if key.topic == OFFSETS_TOPIC:
            self.coordinator.transaction_ended(key.partition, producer_id, epoch, committed=committed)

    def _cluster_changed(self, delta: Delta, before: ClusterImage) -> None:
        """Delete the offsets of partitions that the cluster deletes, with or without a replica here."""
        if isinstance(delta, TopicDeleting | TopicSet | TopicGone):
            self._topics.version += 1
        match delta:
            case TopicDeleting(topic=topic):
                known = before.topics.get(topic.name)
                if known is not None and known.topic_id != topic.topic_id:
                    self._gone(known, known.partitions)  # its end and the next topic's start were not announced
                self._gone(topic, topic.partitions)
            case TopicSet(topic=topic):
                known = before.topics.get(topic.name)
                if known is not None:
                    left = known.partitions.keys() - topic.partitions.keys()
                    self._gone(known, known.partitions if known.topic_id != topic.topic_id else left)
            case TopicGone(name=name):
                gone_topic = before.topics.get(name)
                if gone_topic is not None:
                    self._gone(gone_topic, gone_topic.partitions)

    def _gone(self, topic: Topic, numbers: Iterable[int]) -> None:
        partitions = [TopicPartition(topic.name, number) for number in numbers]
        if not partitions or topic.name == OFFSETS_TOPIC:
            return
        self.coordinator.partitions_deleted(topic.topic_id, partitions)
        self._log.flush()  # before the topic's name is free again
        if self._is_loading:
            self._deleted.append((topic.topic_id, partitions))

    @property
    def _is_loading(self) -> bool:
        return not self._is_started or self._loader.is_busy or self._checking > 0

    def _loaded(self, loading: Loading) -> None:
        """Serve the groups of a loaded partition when all its offsets are of existing topics.

        An offset of another topic id than the image has is compared with the tree, since the image may be behind.
        """
        topics = self._state.image.topics
        doubtful = loading.topics_unlike(lambda name: topics[name].topic_id if name in topics else None)
        if doubtful:
            self._checking += 1
            self._check_topics(loading, doubtful)
        else:
            self._serve(loading)

    def _check_topics(self, loading: Loading, names: Sequence[str]) -> None:
        coordination = self._state.registry.coordination

        def check() -> None:
            topics = read_live_topics(coordination, names)
            loading.drop_other_topics(
                {name: None if topic is None else topic.topic_id for name, topic in topics.items()}
            )

        def checked(outcome: Outcome[None]) -> None:
            if self._is_closed or not self.coordinator.is_wanted(loading):
                self._checking -= 1
                self._forget_deleted()
            elif outcome.error is None:
                self._checking -= 1
                self._serve(loading)
            else:
                text = f"__consumer_offsets-{loading.partition}: checking the topics of committed offsets failed"
                self._state.report(f"{text}; its groups stay loading, and it is tried again: {outcome.error}")
                self._state.scheduler.call_later(_RETRY_MS, lambda: self._check_topics(loading, names))

        self._state.scheduler.offload(check, checked)

    def _serve(self, loading: Loading) -> None:
        self.coordinator.loaded(loading)
        for topic_id, partitions in self._deleted:
            self.coordinator.partitions_deleted(topic_id, partitions, stored_in=loading.partition)
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        if not self._is_loading:
            self._deleted.clear()

    def _topic_id_of(self, partition: TopicPartition) -> bytes | None:
        topic = self._state.image.topics.get(partition.topic)
        return topic.topic_id if topic is not None and partition.partition in topic.partitions else None


def _confirmed(result: OffsetFetchResult, outcome: Outcome[dict[str, Topic | None]]) -> OffsetFetchResult:
    """Return the response if each committed offset has the topic id of the tree.

    A group with an offset of another one, or all groups if the tree cannot be read, are answered with
    COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
    """
    found = {} if outcome.error is not None else outcome.get()
    topic_ids = {name: topic.topic_id for name, topic in found.items() if topic is not None}
    groups = [
        FetchedGroup(group_id=group.group_id, partitions=(), error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if any(each.offset >= 0 and topic_ids.get(each.topic) != each.topic_id for each in group.partitions)
        else group
        for group in result.groups
    ]
    return evolve(result, groups=groups)


def _group_config(static: BrokerConfig) -> GroupCoordinatorConfig:
    return GroupCoordinatorConfig(
        group_min_session_timeout_ms=static.group_min_session_timeout_ms,
        group_max_session_timeout_ms=static.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=static.group_initial_rebalance_delay_ms,
        group_max_size=static.group_max_size,
        offset_metadata_max_bytes=static.offset_metadata_max_bytes,
        offsets_retention_ms=static.offsets_retention_minutes * MINUTE_MS,
        offsets_retention_check_interval_ms=static.offsets_retention_check_interval_ms,
        group_coordinator_rebalance_protocols=static.group_coordinator_rebalance_protocols,
        group_consumer_max_size=static.group_consumer_max_size,
        group_consumer_assignors=static.group_consumer_assignors,
        group_consumer_migration_policy=static.group_consumer_migration_policy,
        group_consumer_regex_refresh_interval_ms=static.group_consumer_regex_refresh_interval_ms,
        group_share_max_size=static.group_share_max_size,
        group_share_assignors=static.group_share_assignors,
        group_share_max_share_sessions=static.group_share_max_share_sessions,
    )


def _counters(metrics: Metrics) -> GroupCounters:
    """Create the counters by Kafka's names (group-coordinator-metrics)."""
    prefix = "kafka_server_group_coordinator_metrics"
    return GroupCounters(
        commits=metrics.counter(f"{prefix}_offset_commit_total", "Positions that were committed."),
        expirations=metrics.counter(f"{prefix}_offset_expiration_total", "Positions that were old enough to go."),
        deletions=metrics.counter(f"{prefix}_offset_deletion_total", "Positions that were deleted."),
        rebalances=metrics.counter(
            f"{prefix}_group_completed_rebalance_total", "Generations that all members have joined."
        ),
        share_group_rebalances=metrics.counter(f"{prefix}_share_group_rebalance_total", "Assignments of share groups."),
        consumer_group_rebalances=metrics.counter(
            f"{prefix}_consumer_group_rebalance_total", "Target assignments of groups by KIP-848."
        ),
    )


def _show(metrics: Metrics, coordinator: GroupCoordinator, loader: LogLoader[Loading]) -> None:
    """Register the gauges by Kafka's names (GroupMetadataManager)."""
    prefix = "kafka_coordinator_group_groupmetadatamanager"
    metrics.gauge(f"{prefix}_numgroups", "Groups.", coordinator.group_count)
    metrics.gauge(f"{prefix}_numoffsets", "Committed positions.", coordinator.offset_count)
    for state in CLASSIC_STATES:
        name = f"{prefix}_numgroups{state.value.lower()}"
        metrics.gauge(name, f"Groups in the state {state.value}.", partial(coordinator.group_count, state))
    metrics_prefix = "kafka_server_group_coordinator_metrics"
    for group_type in GroupType:
        metrics.gauge(
            f"{metrics_prefix}_group_count",
            "Groups, by the protocol of their members.",
            partial(coordinator.group_count, None, group_type),
            protocol=group_type.value,
        )
    for state in CONSUMER_STATES:
        metrics.gauge(
            f"{metrics_prefix}_consumer_group_count",
            "Groups by KIP-848, by their state.",
            partial(coordinator.group_count, state, GroupType.CONSUMER),
            state=state.value.lower(),
        )
    metrics.gauge(
        "kafka_server_group_coordinator_metrics_partition_load_time_max",
        "Milliseconds that the slowest partition took to load.",
        lambda: loader.longest_ms,
    )


def _end_of(state: BrokerState) -> Callable[[TopicPartition], int | None]:
    def end(tp: TopicPartition) -> int | None:
        partition = state.replicas.partitions.get(tp)
        return None if partition is None else partition.high_watermark

    return end


class CoordinatorService:
    """Finds coordinators. Owner thread only."""

    def __init__(self, state: BrokerState, internal: InternalTopics) -> None:
        self._state = state
        self._internal = internal

    def find(self, request: FindCoordinator, caller: Caller, reply: Reply[FindCoordinatorResult]) -> None:
        """Answer with the coordinators; create the internal topic at its first use."""
        topic, text = _COORDINATOR_TOPICS.get(request.key_type), f"there are no coordinators of type {request.key_type}"
        if request.key_type == SHARE_COORDINATOR:
            text = _fault_of(request)
        if topic is None or (topic == SHARE_STATE_TOPIC and text):
            refused = [Coordinator(key=k, error=ErrorCode.INVALID_REQUEST, error_message=text) for k in request.keys]
            reply(FindCoordinatorResult(coordinators=refused))
        elif not request.keys:
            reply(FindCoordinatorResult(coordinators=()))
        else:
            self._internal.make(topic, partial(self._answer, request, topic, caller, reply))

    def _answer(
        self, request: FindCoordinator, topic: str, caller: Caller, reply: Reply[FindCoordinatorResult], why_not: str
    ) -> None:
        """Answer in steps, since a request may contain very many keys."""

        def found() -> Steps[FindCoordinatorResult]:
            nodes = {node.node_id: node for node in self._state.endpoints.nodes(self._state.image.brokers, caller)}
            coordinators = []
            for key in request.keys:
                coordinators.append(self._coordinator_of(key, topic, nodes, why_not))
                yield None
            return FindCoordinatorResult(coordinators=coordinators)

        self._state.answer_in_steps("FindCoordinator", found(), caller, reply)

    def _coordinator_of(self, key: str, topic_name: str, nodes: Mapping[int, BrokerNode], why_not: str) -> Coordinator:
        state = self._state
        topic = state.image.topics.get(topic_name)
        if topic is None:
            return _unavailable(key, why_not or f"there is no topic {topic_name}")
        tp = TopicPartition(topic_name, partition_of(key, len(topic.partitions)))
        leader = state.image.state(tp).leader
        node = nodes.get(leader)
        if node is None or not state.has_replica(*tp, leader):
            return _unavailable(key, f"{tp} has no leader")
        return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)


def _fault_of(request: FindCoordinator) -> str:
    """Return why there are no share coordinators for the request, or an empty text."""
    if not request.knows_share:
        return "this version of FindCoordinator has no share partitions"
    try:
        for key in request.keys:
            SharePartitionKey.parse(key)
    except ValueError:
        return f"{key[:260]!r} is not GROUP:TOPIC_ID:PARTITION"
    return ""


def _unavailable(key: str, text: str) -> Coordinator:
    return Coordinator(key=key, error=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=text)
