"""DescribeCluster (facts C6), the features of the cluster, UnregisterBroker, DescribeLogDirs (replicas and space of
the data folders), DescribeConnections, and the metrics of clients (KIP-714).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from attrs import evolve

from ....core.cluster import layout
from ....core.cluster.brokers import children, is_registered, random_uuid
from ....core.cluster.change_queue import elsewhere
from ....core.cluster.features import feature_metadata
from ....core.cluster.registry import TOPICS_AT_A_TIME
from ....core.cluster.topic_store import confirm_deleted, deleted_of, read_live_topics
from ....core.traffic.steps import Steps
from ....ports.broker_api.cluster import (
    METADATA_TOPIC,
    BrokerNode,
    DescribeCluster,
    DescribeClusterResult,
    DescribeConnections,
    DescribeConnectionsResult,
    DescribeLogDirs,
    DescribeLogDirsResult,
    DescribeQuorum,
    DescribeQuorumResult,
    LogDirDescription,
    LogDirReplica,
    QuorumDescription,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    ReplicaState,
    UnregisterBroker,
    UnregisterBrokerResult,
)
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.features import (
    DescribeFeatures,
    DescribeFeaturesResult,
    UpdatedFeature,
    UpdateFeatures,
    UpdateFeaturesResult,
)
from ....ports.broker_api.operations import CLUSTER_OPERATIONS, NO_AUTHORIZED_OPERATIONS
from ....ports.broker_api.telemetry import (
    NO_INSTANCE,
    GetTelemetrySubscriptions,
    GetTelemetrySubscriptionsResult,
    PushTelemetry,
    PushTelemetryResult,
)
from ....ports.coordination import BadVersion, Coordination
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.report import counted
from ....ports.storage import StorageError
from ..state.broker_state import BrokerState
from ..state.dependencies import Server
from .topics import ATTEMPTS, TopicService

_BROKERS = 1
_NAMED_MAX = 5
CONNECTIONS_MAX = 1000
"""The most connections in one answer."""
SOFTWARES_MAX = 100
"""The most names and versions of clients' software in the metrics of a listener, as in Kafka."""
SUBSCRIPTION_ID = 1
"""The id of the subscription to no metrics."""
COMPRESSION_TYPES = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy; 0 is none."""
PUSH_INTERVAL_MS = 300_000
TELEMETRY_MAX_BYTES = 1_048_576
"""`telemetry.max.bytes`"""


class ClusterService:
    """Returns the cluster id, the controller and the brokers."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(self, request: DescribeCluster, caller: Caller, reply: Reply[DescribeClusterResult]) -> None:
        state = self._state
        known = request.endpoint_type == _BROKERS
        asked = request.include_authorized_operations
        reply(
            DescribeClusterResult(
                cluster_id=state.cluster_id,
                controller_id=state.controller_id,
                brokers=state.endpoints.nodes_with_own(state.image.brokers, caller) if known else (),
                error=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
                error_message=None if known else "only brokers (endpoint type 1) are supported",
                endpoint_type=request.endpoint_type,
                authorized_operations=CLUSTER_OPERATIONS if asked and known else NO_AUTHORIZED_OPERATIONS,
            )
        )


class QuorumService:
    """Answers Kafka's tools that ask for the quorum of controllers: the controller as its leader, and as voters the
    live brokers, each of which may become the controller. There is no log of metadata, so offsets are 0, and times are
    not known: what brokers know is in the coordination tree."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(self, request: DescribeQuorum, caller: Caller, reply: Reply[DescribeQuorumResult]) -> None:
        state = self._state

        async def describing() -> DescribeQuorumResult:
            epoch = await elsewhere(partial(_controller_epoch, state.registry.coordination))
            nodes = state.endpoints.nodes_with_own(state.image.brokers, caller)
            name = state.endpoints.listener_name(caller)
            return DescribeQuorumResult(
                partitions=[self._partition(each, epoch, nodes) for each in request.partitions],
                nodes=[
                    QuorumNode(
                        node_id=each.node_id,
                        listeners=[QuorumListener(name=name, host=each.host, port=each.port)],
                    )
                    for each in nodes
                ],
            )

        state.changes.submit("DescribeQuorum", describing, reply, state.leader_changes)

    def _partition(self, asked: QuorumPartition, epoch: int, nodes: Sequence[BrokerNode]) -> QuorumDescription:
        if (asked.topic, asked.partition) != (METADATA_TOPIC, 0):
            return QuorumDescription(
                topic=asked.topic, partition=asked.partition, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return QuorumDescription(
            topic=asked.topic,
            partition=asked.partition,
            leader_id=self._state.controller_id,
            leader_epoch=epoch,
            high_watermark=0,
            voters=[ReplicaState(replica_id=each.node_id, log_end_offset=0) for each in nodes],
        )


def _controller_epoch(coordination: Coordination) -> int:
    """Return the controller epoch; 0: no broker has counted one, since the broker is alone."""
    (node,) = coordination.get_many([layout.CONTROLLER_EPOCH])
    return 0 if node is None else node.version


class FeatureService:
    """Describes the features of the cluster, and changes their finalized levels, on any broker: as Kafka's brokers,
    which pass UpdateFeatures on to the controller."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(self, _request: DescribeFeatures, _caller: Caller, reply: Reply[DescribeFeaturesResult]) -> None:
        reply(DescribeFeaturesResult(features=feature_metadata(self._state.image.features)))

    def update(self, request: UpdateFeatures, _caller: Caller, reply: Reply[UpdateFeaturesResult]) -> None:
        """Change all levels, or none. The result names the features for clients before version 2."""
        state, registry = self._state, self._state.registry

        async def updating() -> UpdateFeaturesResult:
            try:
                state.check_owns_topics()
                with state.changes.reread_on_failure(
                    "the levels of features", registry.reread_features, state.leader_changes
                ):
                    await registry.update_features(request.updates, validate_only=request.validate_only)
            except ApiError as error:
                return request.failed(error)
            return UpdateFeaturesResult(results=[UpdatedFeature(each.feature) for each in request.updates])

        state.changes.submit("UpdateFeatures", updating, reply, state.leader_changes)


class UnregisterService:
    """Forgets brokers that have left for good, on any broker of the cluster."""

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._topics = topics

    def unregister(self, request: UnregisterBroker, _caller: Caller, reply: Reply[UnregisterBrokerResult]) -> None:
        """Forget a broker that is down and has no replicas. Kafka forgets others, too, whose partitions then lack a
        replica until they are reassigned."""

        async def forgetting() -> UnregisterBrokerResult:
            try:
                await self._forget(request.broker_id)
            except ApiError as error:
                return request.failed(error)
            return UnregisterBrokerResult()

        self._state.changes.submit("UnregisterBroker", forgetting, reply)

    async def _forget(self, broker_id: int) -> None:
        state, coordination = self._state, self._state.registry.coordination
        state.check_owns_topics()
        held, former = await elsewhere(partial(_replicas_of, coordination, broker_id))
        if held:
            some = ", ".join(held[:_NAMED_MAX]) + (", ..." if len(held) > _NAMED_MAX else "")
            text = f"broker {broker_id} still has replicas of {counted(len(held), 'partition')} ({some})"
            cure = f"move them to other brokers with 'barnabas brokers drain {broker_id} --execute'"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{text}: {cure}")
        if broker_id == state.node_id or await elsewhere(partial(is_registered, coordination, broker_id)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is alive: stop it first")
        for name in former:
            await self._forget_in(name, broker_id)
        for topic_id in await elsewhere(partial(deleted_of, coordination, broker_id)):
            await elsewhere(partial(confirm_deleted, coordination, topic_id, broker_id))
        subject = f"the configs of broker {broker_id}"
        with state.changes.reread_on_failure(subject, partial(state.registry.reread_configs, broker_id)):
            is_known = await state.registry.remove_broker(broker_id)
        if not is_known:
            text = f"the cluster has no broker {broker_id}, or it was removed before"
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)

    async def _forget_in(self, name: str, broker_id: int) -> None:
        """Let the topic no longer expect logs on a broker: it would wait for it when it is deleted."""
        for _ in range(ATTEMPTS):
            with self._topics.reread_on_failure(name):
                await self._topics.apply_topic(name)
                topic = self._state.image.topics.get(name)
                if topic is None or broker_id not in topic.former:
                    return
                former = tuple(each for each in topic.former if each != broker_id)
                with suppress(BadVersion):  # another broker has changed it
                    await self._state.registry.move(evolve(topic, former=former), {})
                    return
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"others change topic {name} as often as it is tried")


def _replicas_of(coordination: Coordination, broker_id: int) -> tuple[list[str], list[str]]:
    """Return the partitions with a replica on the broker, and the topics of which it may have logs from before, by the
    tree as of now."""
    held, former = [], []
    names = children(coordination, layout.TOPICS)
    for start in range(0, len(names), TOPICS_AT_A_TIME):
        for name, topic in sorted(read_live_topics(coordination, names[start : start + TOPICS_AT_A_TIME]).items()):
            if topic is not None:
                held += [f"{name}-{number}" for number, on in topic.partitions.items() if broker_id in on]
                former += [name] if broker_id in topic.former else []
    return held, former


class LogDirService:
    """Describes the data folders."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def describe(self, request: DescribeLogDirs, caller: Caller, reply: Reply[DescribeLogDirsResult]) -> None:
        self._state.answer_in_steps("DescribeLogDirs", self._describe_all(request), caller, reply)

    def _describe_all(self, request: DescribeLogDirs) -> Steps[DescribeLogDirsResult]:
        state = self._state
        replicas: dict[str, list[LogDirReplica]] = {log_dir.path: [] for log_dir in state.logs.dirs}
        wanted = None if request.topics is None else {topic: set(asked) for topic, asked in request.topics.items()}
        for key, log in tuple(state.logs.logs().items()):
            partition = state.replicas.partitions.get(key)
            if log.closed or (partition is None and not state.classic.has(key.topic)):
                continue  # left of a deleted topic
            if wanted is None or key.partition in wanted.get(key.topic, ()):
                lag = max(0, partition.high_watermark - log.log_end_offset) if partition is not None else 0
                replica = LogDirReplica(topic=key.topic, partition=key.partition, size_bytes=log.size_bytes, lag=lag)
                replicas[state.logs.dir_of(key).path].append(replica)
            yield None
        return DescribeLogDirsResult(log_dirs=[self._describe(path, found) for path, found in replicas.items()])

    def _describe(self, path: str, replicas: list[LogDirReplica]) -> LogDirDescription:
        log_dir = next(log_dir for log_dir in self._state.logs.dirs if log_dir.path == path)
        if self._state.logs.failure_of(log_dir) is not None:
            return LogDirDescription(path=path, replicas=replicas, error=ErrorCode.KAFKA_STORAGE_ERROR)
        is_cordoned = self._state.settings.is_cordoned(path)
        try:
            total, usable = log_dir.space()
        except StorageError as error:
            self._state.failed(f"looking at {path}", error)
            return LogDirDescription(path=path, replicas=replicas, error=ErrorCode.KAFKA_STORAGE_ERROR)
        return LogDirDescription(
            path=path, replicas=replicas, total_bytes=total, usable_bytes=usable, is_cordoned=is_cordoned
        )


class ConnectionService:
    """Describes the connections of the broker's listeners."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._servers: Sequence[Server] = ()

    def serve(self, servers: Sequence[Server]) -> None:
        """Describe the connections of these servers from now on."""
        self._servers = servers

    def describe(self, request: DescribeConnections, caller: Caller, reply: Reply[DescribeConnectionsResult]) -> None:
        self._state.answer_in_steps("DescribeConnections", self._describe_some(request), caller, reply)

    def _describe_some(self, request: DescribeConnections) -> Steps[DescribeConnectionsResult]:
        limit = max(0, min(request.limit, CONNECTIONS_MAX))
        later = [
            item
            for server in self._servers
            for item in islice((item for item in server.connections.items() if item[0] > request.after), limit)
        ]
        total = sum(len(server.connections) for server in self._servers)
        found = []
        for _, connection in sorted(later, key=lambda item: item[0])[:limit]:
            found.append(connection.describe())
            yield None
        return DescribeConnectionsResult(connections=found, total=total)


def count_software(server: Server) -> Iterable[tuple[Sequence[str], float]]:
    """Return the number of connections of each client software as (name, version), the most frequent ones."""
    counts = Counter(connection.software for connection in tuple(server.connections.values()))
    return [((name, version), float(number)) for (name, version), number in counts.most_common(SOFTWARES_MAX) if name]


class TelemetryService:
    """Answers clients that ask which metrics to send, whatever ApiVersions says.

    It answers as a broker of Kafka without a plug-in for them: it subscribes to none, and drops what a client sends.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def subscriptions(
        self, request: GetTelemetrySubscriptions, _caller: Caller, reply: Reply[GetTelemetrySubscriptionsResult]
    ) -> None:
        instance = request.client_instance_id
        reply(
            GetTelemetrySubscriptionsResult(
                client_instance_id=random_uuid(self._state.entropy) if instance == NO_INSTANCE else instance,
                subscription_id=SUBSCRIPTION_ID,
                accepted_compression_types=COMPRESSION_TYPES,
                push_interval_ms=PUSH_INTERVAL_MS,
                telemetry_max_bytes=TELEMETRY_MAX_BYTES,
                delta_temporality=True,
            )
        )

    def push(self, request: PushTelemetry, _caller: Caller, reply: Reply[PushTelemetryResult]) -> None:
        reply(PushTelemetryResult(error=_why_refused(request)))


def _why_refused(request: PushTelemetry) -> ErrorCode:
    if request.client_instance_id == NO_INSTANCE:
        return ErrorCode.INVALID_REQUEST
    if request.subscription_id != SUBSCRIPTION_ID:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in (0, *COMPRESSION_TYPES):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if len(request.metrics) > TELEMETRY_MAX_BYTES:
        return ErrorCode.TELEMETRY_TOO_LARGE
    return ErrorCode.NONE
