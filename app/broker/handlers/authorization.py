"""The gate of the broker: what each API asks of its caller, as Kafka's `KafkaApis` and `ControllerApis` do.

`STEPS` is the table: for each request its steps in order. A step allows the request, answers it as a whole, or allows
a part of it; the denied items are then added to the answer of the handler, or are left out of it silently.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from attrs import evolve

from ....ports.broker_api.acls import CLUSTER_NAME, CreateAcls, DeleteAcls, DescribeAcls, ResourceType
from ....ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicOffsetsResult,
    ClassicProduce,
    ClassicProducePartition,
    ClassicProduceResult,
    ClassicProduceResultPartition,
)
from ....ports.broker_api.cluster import (
    DescribeCluster,
    DescribeClusterResult,
    DescribeConnections,
    DescribeLogDirs,
    DescribeQuorum,
    UnregisterBroker,
)
from ....ports.broker_api.configs import (
    AlterConfigs,
    ConfigResource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ListConfigResources,
    ResourceKind,
)
from ....ports.broker_api.consumer_groups import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
)
from ....ports.broker_api.envelope import Caller, Origin, Reply, Request
from ....ports.broker_api.epochs import OffsetForLeaderEpoch
from ....ports.broker_api.features import DescribeFeatures, UpdateFeatures
from ....ports.broker_api.fetch import Fetch
from ....ports.broker_api.groups import (
    GROUP_COORDINATOR,
    TRANSACTION_COORDINATOR,
    DeleteGroups,
    DescribeGroups,
    FetchedOffset,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListGroupsResult,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchResult,
    SyncGroup,
)
from ....ports.broker_api.metadata import (
    DescribeTopicPartitions,
    DescribeTopicPartitionsResult,
    Metadata,
    MetadataResult,
    TopicMetadata,
)
from ....ports.broker_api.mirroring import MirrorRecords
from ....ports.broker_api.offsets import ListOffsets
from ....ports.broker_api.operations import NO_AUTHORIZED_OPERATIONS, Operation
from ....ports.broker_api.produce import Produce
from ....ports.broker_api.producers import DescribeProducers, InitProducerId
from ....ports.broker_api.quotas import AlterClientQuotas, DescribeClientQuotas
from ....ports.broker_api.replicas import AlterPartitionReassignments, ElectLeaders, ListPartitionReassignments
from ....ports.broker_api.scram import AlterUserScramCredentials, DescribeUserScramCredentials
from ....ports.broker_api.share_group_offsets import (
    AlteredShareTopic,
    AlterShareGroupOffsets,
    DeletedShareTopic,
    DeleteShareGroupOffsets,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResult,
    SharePartitionOffset,
    ShareStartOutcome,
    ShareTopicOffsets,
)
from ....ports.broker_api.share_groups import (
    ShareAcknowledge,
    ShareFetch,
    ShareGroupDescribe,
    ShareGroupDescribeResult,
    ShareGroupDescription,
    ShareGroupHeartbeat,
)
from ....ports.broker_api.share_partitions import DescribeSharePartitions
from ....ports.broker_api.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    WriteShareGroupState,
)
from ....ports.broker_api.telemetry import GetTelemetrySubscriptions, PushTelemetry
from ....ports.broker_api.tokens import (
    CreateDelegationToken,
    DelegationToken,
    DescribeDelegationToken,
    DescribeDelegationTokenResult,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from ....ports.broker_api.topics import (
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeletedTopic,
    DeleteRecords,
    DeleteTopics,
)
from ....ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    DescribeTransactions,
    DescribeTransactionsResult,
    EndTxn,
    ListTransactions,
    ListTransactionsResult,
    TxnOffsetCommit,
    WriteTxnMarkers,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.values import frozen
from ..state.authorization import Authorization

READ, WRITE, CREATE, DELETE, ALTER = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
)
DESCRIBE, CLUSTER_ACTION = Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

DENIED = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error of a denied operation, by the type of its resource."""
_TEXTS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "",
}
_BROKER = Origin.BROKER  # the attribute of an enumeration is slow in Python 3.11
_TRANSACTIONAL = 0x10
_ATTRIBUTES_POSITION = 22
"""The position of the byte of a record batch with the flag above."""


class Topics(Protocol):
    """The names of topics, for the gate."""

    def topic_name(self, topic_id: bytes) -> str:
        """Return the name of the topic with this id; empty if there is none."""
        ...

    def creates_topic(self, name: str) -> bool:
        """Return True if a Metadata request that names this topic would create it."""
        ...


class AccessCheck:
    """The checks for one request."""

    __slots__ = ("authorization", "caller", "request", "topics")

    def __init__(self, authorization: Authorization, topics: Topics, caller: Caller, request: str) -> None:
        self.authorization = authorization
        self.topics = topics
        self.caller = caller
        self.request = request

    def allows(self, operation: Operation, resource_type: ResourceType, name: str, *, log: bool = True) -> bool:
        """Return True if the caller may perform this."""
        return self.authorization.allows(
            self.caller, operation, resource_type, name, request=self.request, log_if_denied=log
        )

    def allows_cluster(self, operation: Operation, *, log: bool = True) -> bool:
        """Return True if the caller may perform this on the cluster."""
        return self.allows(operation, CLUSTER, CLUSTER_NAME, log=log)


@frozen
class DeniedAnswer:
    """The answer to a request that is denied."""

    result: Any


@frozen
class AllowedPart:
    """The allowed part of a request, and the function that completes its result."""

    request: Any
    complete: Callable[[Any], Any]


Step = Callable[[AccessCheck, Any], DeniedAnswer | AllowedPart | None]
"""Check a request; None: it is allowed."""


def denied(code: ErrorCode) -> ApiError:
    """Return the error with Kafka's text."""
    return ApiError(code, _TEXTS[code])


def _answer(request: Request[Any], code: ErrorCode) -> DeniedAnswer:
    return DeniedAnswer(request.failed(denied(code)))


@frozen
class Whole:
    """The request needs this right on the resource that it names, or all of it is denied."""

    operation: Operation
    resource_type: ResourceType
    name: Callable[[Any], str] = lambda _request: CLUSTER_NAME

    def __call__(self, check: AccessCheck, request: Request[Any]) -> DeniedAnswer | None:
        if check.allows(self.operation, self.resource_type, self.name(request)):
            return None
        return _answer(request, DENIED[self.resource_type])


@frozen
class Items:
    """Each item of the request needs this right on the resource that it names, or this item is denied.

    `field` of the request has the items, `result` of the answer the outcomes.
    """

    operation: Operation
    resource_type: ResourceType
    field: str = "partitions"
    result: str = "partitions"
    name: Callable[[Any], str] = lambda item: item.topic
    also: Operation | None = None
    """An operation on the cluster that allows all items."""
    text: str | None = None
    """The text of the error, if it is not Kafka's usual one."""

    def __call__(self, check: AccessCheck, request: Request[Any]) -> DeniedAnswer | AllowedPart | None:
        items: Sequence[Any] = getattr(request, self.field)
        if self.also is not None and check.allows_cluster(self.also, log=False):
            return None
        name_of = self.name
        decided: dict[str, bool] = {}
        for item in items:
            name = name_of(item)
            if name not in decided:
                decided[name] = check.allows(self.operation, self.resource_type, name)
        if all(decided.values()):
            return None
        code = DENIED[self.resource_type]
        error = denied(code) if self.text is None else ApiError(code, self.text)
        return split(request, self.field, self.result, [decided[name_of(item)] for item in items], error)


def split(
    request: Any, field: str, result: str, allowed: Sequence[bool], error: ApiError
) -> DeniedAnswer | AllowedPart:
    """Deny items of a request; the outcomes are in the order of the request where the handler answers each item."""
    items = getattr(request, field)
    rest = [item for item, is_allowed in zip(items, allowed, strict=True) if is_allowed]
    refused = evolve(
        request, **{field: [item for item, is_allowed in zip(items, allowed, strict=True) if not is_allowed]}
    )
    answer = refused.failed(error)
    if not rest:
        return DeniedAnswer(answer)
    outcomes = list(getattr(answer, result))
    rest_count = sum(allowed)  # the closure must not keep the items: records are in the connection's memory

    def complete(handled: Any) -> Any:
        answered = list(getattr(handled, result))
        if len(answered) != rest_count or len(outcomes) != len(allowed) - rest_count:
            return evolve(handled, **{result: [*answered, *outcomes]})
        handled_next, denied_next = iter(answered), iter(outcomes)
        merged = [next(handled_next) if is_allowed else next(denied_next) for is_allowed in allowed]
        return evolve(handled, **{result: merged})

    return AllowedPart(evolve(request, **{field: rest}), complete)


# --- produce, fetch, offsets


def _produce_transactional(check: AccessCheck, request: Produce) -> DeniedAnswer | None:
    for part in request.partitions:
        records = part.records
        if len(records) > _ATTRIBUTES_POSITION and records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL:
            break
    else:
        return None
    identifier = request.transactional_id
    if identifier is not None and check.allows(WRITE, TRANSACTIONAL_ID, identifier):
        return None
    return _answer(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _fetch(check: AccessCheck, request: Fetch) -> DeniedAnswer | AllowedPart | None:
    if request.replica_id >= 0:
        if check.allows_cluster(CLUSTER_ACTION):
            return None
        return _answer(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    decided: dict[tuple[str, bytes], bool] = {}
    for part in request.partitions:
        key = (part.topic, part.topic_id)
        if key not in decided:
            name = part.topic or check.topics.topic_name(part.topic_id)
            decided[key] = not name or check.allows(READ, TOPIC, name)  # the handler answers an unknown id
    if all(decided.values()):
        return None
    allowed = [decided[part.topic, part.topic_id] for part in request.partitions]
    return split(request, "partitions", "partitions", allowed, denied(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


def _replica_claim(check: AccessCheck, request: ListOffsets | OffsetForLeaderEpoch) -> DeniedAnswer | None:
    if request.replica_id < 0 or check.allows_cluster(CLUSTER_ACTION):
        return None
    return _answer(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


# --- metadata


def _metadata(check: AccessCheck, request: Metadata) -> AllowedPart:
    """Deny topics by name and id, leave out others where all are asked for, and set the authorized operations."""
    refused: list[TopicMetadata] = []
    names: list[str] | None = None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if request.topics is not None:
        names = []
        for name in dict.fromkeys(request.topics):
            if check.allows(DESCRIBE, TOPIC, name) and _may_create(check, request, name):
                names.append(name)
            else:
                refused.append(TopicMetadata(name=name, error=code))
    ids = []
    for topic_id in request.topic_ids:
        name = check.topics.topic_name(topic_id)
        if not name or check.allows(DESCRIBE, TOPIC, name):
            ids.append(topic_id)
        else:
            refused.append(TopicMetadata(name=None, topic_id=topic_id, error=code))
    asks_for_all = request.topics is None and not request.topic_ids
    if names is None and not asks_for_all:
        names = []  # None would ask for all topics where no id is left
    rest = request if not refused else evolve(request, topics=names, topic_ids=ids)

    def complete(result: MetadataResult) -> MetadataResult:
        return _shown(check, request, result, refused, asks_for_all=asks_for_all)

    return AllowedPart(rest, complete)


def _may_create(check: AccessCheck, request: Metadata, name: str) -> bool:
    if not request.allow_auto_topic_creation or not check.topics.creates_topic(name):
        return True
    return check.allows_cluster(CREATE, log=False) or check.allows(CREATE, TOPIC, name)


def _shown(
    check: AccessCheck,
    request: Metadata,
    result: MetadataResult,
    refused: Sequence[TopicMetadata],
    *,
    asks_for_all: bool,
) -> MetadataResult:
    topics: Sequence[TopicMetadata] = result.topics
    if asks_for_all:
        seen = [each for each in topics if check.allows(DESCRIBE, TOPIC, each.name or "", log=False)]
        topics = topics if len(seen) == len(topics) else seen
    if request.include_topic_authorized_operations:
        topics = [_with_operations(check, each) for each in topics]
    if refused:
        topics = [*topics, *refused]
    operations = NO_AUTHORIZED_OPERATIONS
    if request.include_cluster_authorized_operations:
        operations = check.authorization.cluster_operations(check.caller)
    if topics is result.topics and operations == result.authorized_operations:
        return result
    return evolve(result, topics=topics, authorized_operations=operations, encoded=None)


def _describe_topic_partitions(check: AccessCheck, request: DescribeTopicPartitions) -> AllowedPart:
    """Let the handler deny topics by name, and leave out others where all are asked for: the next page begins at a
    topic that the caller may see."""
    is_named = request.topics is not None
    rest = evolve(request, is_visible=lambda name: check.allows(DESCRIBE, TOPIC, name, log=is_named))

    def complete(result: DescribeTopicPartitionsResult) -> DescribeTopicPartitionsResult:
        topics = [
            each
            if each.error is not ErrorCode.NONE or each.name is None
            else evolve(each, authorized_operations=check.authorization.operations(check.caller, TOPIC, each.name))
            for each in result.topics
        ]
        return evolve(result, topics=topics)

    return AllowedPart(rest, complete)


def _with_operations(check: AccessCheck, topic: TopicMetadata) -> TopicMetadata:
    if topic.error is not ErrorCode.NONE or topic.name is None:
        return topic
    operations = check.authorization.operations(check.caller, TOPIC, topic.name)
    if operations == topic.authorized_operations:
        return topic
    return evolve(topic, authorized_operations=operations, encoded=None)


def _describe_cluster(check: AccessCheck, request: DescribeCluster) -> AllowedPart | None:
    if not request.include_authorized_operations:
        return None

    def complete(result: DescribeClusterResult) -> DescribeClusterResult:
        if result.error is not ErrorCode.NONE:
            return result
        return evolve(result, authorized_operations=check.authorization.cluster_operations(check.caller))

    return AllowedPart(request, complete)


# --- topics


def _configs_of_new_topics(check: AccessCheck, request: CreateTopics) -> AllowedPart:
    """Hide the configs of created topics from those who may not describe them."""

    def complete(result: CreateTopicsResult) -> CreateTopicsResult:
        topics = [
            each
            if each.configs is None or check.allows(DESCRIBE_CONFIGS, TOPIC, each.name, log=False)
            else evolve(each, configs=(), partitions=-1, replication_factor=-1, configs_error=DENIED[TOPIC])
            for each in result.topics
        ]
        return evolve(result, topics=topics)

    return AllowedPart(request, complete)


def _delete_topics(check: AccessCheck, request: DeleteTopics) -> DeniedAnswer | AllowedPart | None:
    """Deny by name and by id; an id whose topic the caller may not describe is answered without the name."""
    if check.allows_cluster(DELETE, log=False):
        return None
    code, text = ErrorCode.TOPIC_AUTHORIZATION_FAILED, _TEXTS[ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    refused: list[DeletedTopic] = []
    names, ids = [], []
    for name in request.names:
        if check.allows(DELETE, TOPIC, name):
            names.append(name)
        else:
            refused.append(DeletedTopic(name=name, error=code, error_message=text))
    for topic_id in request.topic_ids:
        name = check.topics.topic_name(topic_id)
        if not name:  # the handler could find a topic that is new to this broker: no one has checked that one
            refused.append(DeletedTopic(name=None, topic_id=topic_id, error=ErrorCode.UNKNOWN_TOPIC_ID))
        elif check.allows(DELETE, TOPIC, name):
            ids.append(topic_id)
        else:
            shown = name if check.allows(DESCRIBE, TOPIC, name, log=False) else None
            refused.append(DeletedTopic(name=shown, topic_id=topic_id, error=code, error_message=text))
    if not refused:
        return None
    return AllowedPart(
        evolve(request, names=names, topic_ids=ids), lambda result: evolve(result, topics=[*result.topics, *refused])
    )


# --- configs


def _config_resource(resource: ConfigResource) -> tuple[ResourceType, str]:
    """Return the resource whose configs these are; all but those of topics and groups belong to the cluster."""
    if resource.kind == ResourceKind.TOPIC:
        return TOPIC, resource.name
    if resource.kind == ResourceKind.GROUP:
        return GROUP, resource.name
    return CLUSTER, CLUSTER_NAME


@frozen
class Configs:
    """Each config resource needs this right."""

    operation: Operation

    def __call__(self, check: AccessCheck, request: Any) -> DeniedAnswer | AllowedPart | None:
        items = request.resources
        wanted = [item if isinstance(item, ConfigResource) else item.resource for item in items]
        allowed = [check.allows(self.operation, *_config_resource(resource)) for resource in wanted]
        if all(allowed):
            return None
        refused = []
        for item, resource, is_allowed in zip(items, wanted, allowed, strict=True):
            if not is_allowed:
                error = denied(DENIED[_config_resource(resource)[0]])
                refused += evolve(request, resources=[item]).failed(error).resources
        changes: dict[str, Any] = {
            "resources": [item for item, is_allowed in zip(items, allowed, strict=True) if is_allowed]
        }
        if isinstance(request, IncrementalAlterConfigs):
            is_denied = {each for each, is_allowed in zip(wanted, allowed, strict=True) if not is_allowed}
            changes["alterations"] = [each for each in request.alterations if each.resource not in is_denied]

        def complete(result: Any) -> Any:
            return evolve(result, resources=[*result.resources, *refused])

        return AllowedPart(evolve(request, **changes), complete)


# --- groups


def _find_coordinator(check: AccessCheck, request: FindCoordinator) -> DeniedAnswer | AllowedPart | None:
    needs = {
        GROUP_COORDINATOR: (DESCRIBE, GROUP),
        TRANSACTION_COORDINATOR: (DESCRIBE, TRANSACTIONAL_ID),
    }
    if request.key_type not in needs:
        return Whole(CLUSTER_ACTION, CLUSTER)(check, request)
    operation, resource_type = needs[request.key_type]
    return Items(operation, resource_type, "keys", "coordinators", lambda key: key)(check, request)


def _subscribed_topics(
    check: AccessCheck, request: ConsumerGroupHeartbeat | ShareGroupHeartbeat
) -> DeniedAnswer | None:
    """Deny the request of a member that may not describe each topic that it names."""
    names = request.subscribed_topic_names or ()
    if all(check.allows(DESCRIBE, TOPIC, name) for name in names):
        return None
    return _answer(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _described_topics(check: AccessCheck, request: ConsumerGroupDescribe) -> AllowedPart:
    """Hide the members of a group that has partitions of a topic that the caller may not describe."""
    is_seen = _SeenTopics(check)

    def shown(group: ConsumerGroupDescription) -> ConsumerGroupDescription:
        assignments = (part for member in group.members for part in (member.assignment, member.target_assignment))
        if all(is_seen(each.topic_name) for assignment in assignments for each in assignment):
            return group
        error = denied(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return ConsumerGroupDescription(group_id=group.group_id, error=error.code, error_message=_HIDDEN_TOPIC)

    def complete(result: ConsumerGroupDescribeResult) -> ConsumerGroupDescribeResult:
        return evolve(result, groups=[shown(each) for each in result.groups])

    return AllowedPart(request, complete)


_HIDDEN_TOPIC = "The described group uses topics that the client is not authorized to describe."


def _describe_groups(
    check: AccessCheck, request: DescribeGroups | ConsumerGroupDescribe | ShareGroupDescribe
) -> AllowedPart | None:
    """Set the authorized operations of groups."""
    if not request.include_authorized_operations:
        return None

    def complete(result: Any) -> Any:
        groups = [
            each
            if each.error is not ErrorCode.NONE
            else evolve(each, authorized_operations=check.authorization.operations(check.caller, GROUP, each.group_id))
            for each in result.groups
        ]
        return evolve(result, groups=groups)

    return AllowedPart(request, complete)


def _described_share_topics(check: AccessCheck, request: ShareGroupDescribe) -> AllowedPart:
    """Hide the members of a share group that has partitions of a topic that the caller may not describe."""
    is_seen = _SeenTopics(check)

    def shown(group: ShareGroupDescription) -> ShareGroupDescription:
        if all(is_seen(each.topic_name) for member in group.members for each in member.assignment):
            return group
        error = denied(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return ShareGroupDescription(group_id=group.group_id, error=error.code, error_message=_HIDDEN_TOPIC)

    def complete(result: ShareGroupDescribeResult) -> ShareGroupDescribeResult:
        return evolve(result, groups=[shown(each) for each in result.groups])

    return AllowedPart(request, complete)


def _share_group_offsets(check: AccessCheck, request: DescribeShareGroupOffsets) -> AllowedPart:
    """Deny topics that are named, and leave others out where all are asked for."""
    error = denied(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    is_seen = _SeenTopics(check)
    refused: dict[str, list[ShareTopicOffsets]] = {}
    groups = []
    for group in request.groups:
        topics = group.topics
        if topics is not None:
            refused[group.group_id] = [
                ShareTopicOffsets(
                    topic=each.topic,
                    partitions=[
                        SharePartitionOffset(number, error=error.code, error_message=error.message)
                        for number in each.partitions
                    ],
                )
                for each in topics
                if not is_seen(each.topic)
            ]
            topics = [each for each in topics if is_seen(each.topic)]
        groups.append(evolve(group, topics=topics))

    def complete(result: DescribeShareGroupOffsetsResult) -> DescribeShareGroupOffsetsResult:
        shown = [
            group
            if group.error is not ErrorCode.NONE
            else evolve(
                group,
                topics=[*(each for each in group.topics if is_seen(each.topic)), *refused.get(group.group_id, ())],
            )
            for group in result.groups
        ]
        return evolve(result, groups=shown)

    return AllowedPart(evolve(request, groups=groups), complete)


class _SeenTopics:
    """Decides once for each topic whether the caller may describe it."""

    def __init__(self, check: AccessCheck) -> None:
        self._check = check
        self._decided: dict[str, bool] = {}

    def __call__(self, topic: str) -> bool:
        if topic not in self._decided:
            self._decided[topic] = self._check.allows(DESCRIBE, TOPIC, topic, log=False)
        return self._decided[topic]


def _alter_share_offsets(check: AccessCheck, request: AlterShareGroupOffsets) -> AllowedPart | None:
    """Deny topics that the caller may not read."""
    allowed = {name: check.allows(READ, TOPIC, name) for name in {each.topic for each in request.partitions}}
    if all(allowed.values()):
        return None
    error = denied(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    refused: dict[str, list[ShareStartOutcome]] = {}
    for each in request.partitions:
        if not allowed[each.topic]:
            refused.setdefault(each.topic, []).append(ShareStartOutcome(each.partition, error.code, error.message))
    topics = [AlteredShareTopic(topic=name, partitions=outcomes) for name, outcomes in refused.items()]
    return AllowedPart(
        evolve(request, partitions=[each for each in request.partitions if allowed[each.topic]]),
        lambda result: evolve(result, topics=[*result.topics, *topics]),
    )


def _delete_share_offsets(check: AccessCheck, request: DeleteShareGroupOffsets) -> AllowedPart | None:
    """Deny topics that the caller may not read."""
    allowed = {name: check.allows(READ, TOPIC, name) for name in request.topics}
    if all(allowed.values()):
        return None
    error = denied(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topics = [
        DeletedShareTopic(topic=name, error=error.code, error_message=error.message)
        for name, is_allowed in allowed.items()
        if not is_allowed
    ]
    return AllowedPart(
        evolve(request, topics=[name for name in request.topics if allowed[name]]),
        lambda result: evolve(result, topics=[*result.topics, *topics]),
    )


def _list_groups(check: AccessCheck, request: ListGroups) -> AllowedPart | None:
    if check.allows_cluster(DESCRIBE, log=False):
        return None

    def complete(result: ListGroupsResult) -> ListGroupsResult:
        seen = [each for each in result.groups if check.allows(DESCRIBE, GROUP, each.group_id, log=False)]
        return evolve(result, groups=seen)

    return AllowedPart(request, complete)


def _offset_fetch(check: AccessCheck, request: OffsetFetch) -> AllowedPart | None:
    """Deny topics that are named, and leave others out where all are asked for."""
    refused: list[list[FetchedOffset]] = []
    groups = []
    for group in request.groups:
        if group.partitions is None:
            groups.append(group)
            refused.append([])
            continue
        decided = {name: check.allows(DESCRIBE, TOPIC, name) for name in {part.topic for part in group.partitions}}
        refused.append(
            [
                FetchedOffset(
                    part.topic,
                    part.partition,
                    error=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    topic_id=group.topic_ids.get(part.topic, bytes(16)),
                )
                for part in group.partitions
                if not decided[part.topic]
            ]
        )
        groups.append(
            evolve(group, partitions=[part for part in group.partitions if decided[part.topic]])
            if refused[-1]
            else group
        )
    if not any(refused) and all(group.partitions is not None for group in groups):
        return None

    def complete(result: OffsetFetchResult) -> OffsetFetchResult:
        completed = []
        for group, asked, extra in zip(result.groups, groups, refused, strict=True):
            parts: Sequence[FetchedOffset] = group.partitions
            if asked.partitions is None:
                parts = [part for part in parts if check.allows(DESCRIBE, TOPIC, part.topic, log=False)]
            completed.append(evolve(group, partitions=[*parts, *extra]))
        return evolve(result, groups=completed)

    return AllowedPart(evolve(request, groups=groups), complete)


# --- producers and transactions


def _init_producer_id(check: AccessCheck, request: InitProducerId) -> DeniedAnswer | None:
    if request.transactional_id is not None:
        return Whole(WRITE, TRANSACTIONAL_ID, lambda each: each.transactional_id)(check, request)
    if check.allows_cluster(Operation.IDEMPOTENT_WRITE, log=False):
        return None
    if check.authorization.allows_some(check.caller, WRITE, TOPIC, request=check.request):
        return None
    return _answer(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _add_partitions(check: AccessCheck, request: AddPartitionsToTxn) -> DeniedAnswer | None:
    if request.verify_only or request.supports_epoch_bump:
        if check.allows_cluster(CLUSTER_ACTION):
            return None
        return DeniedAnswer(AddPartitionsToTxnResult(partitions=(), error=DENIED[CLUSTER]))
    if not check.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return _answer(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    decided = {name: check.allows(WRITE, TOPIC, name) for name in {topic for topic, _ in request.partitions}}
    if all(decided.values()):
        return None
    result = request.answer(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return DeniedAnswer(
        evolve(
            result,
            partitions=[
                each if decided[each.topic] else evolve(each, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                for each in result.partitions
            ],
        )
    )


def _write_markers(check: AccessCheck, request: WriteTxnMarkers) -> DeniedAnswer | None:
    if check.allows_cluster(ALTER, log=False):
        return None
    return Whole(CLUSTER_ACTION, CLUSTER)(check, request)


def _describe_producers(check: AccessCheck, request: DescribeProducers) -> DeniedAnswer | AllowedPart | None:
    denied_topics = {name: numbers for name, numbers in request.topics.items() if not check.allows(READ, TOPIC, name)}
    if not denied_topics:
        return None
    refused = evolve(request, topics=denied_topics).failed(denied(ErrorCode.TOPIC_AUTHORIZATION_FAILED)).partitions
    rest = {name: numbers for name, numbers in request.topics.items() if name not in denied_topics}
    return AllowedPart(
        evolve(request, topics=rest), lambda result: evolve(result, partitions=[*result.partitions, *refused])
    )


def _describe_transactions(check: AccessCheck, request: DescribeTransactions) -> AllowedPart:
    """Leave out the topics that the caller may not describe."""

    def complete(result: DescribeTransactionsResult) -> DescribeTransactionsResult:
        rows = [
            evolve(
                each,
                topics={
                    name: numbers
                    for name, numbers in each.topics.items()
                    if check.allows(DESCRIBE, TOPIC, name, log=False)
                },
            )
            for each in result.transactions
        ]
        return evolve(result, transactions=rows)

    return AllowedPart(request, complete)


def _list_transactions(check: AccessCheck, request: ListTransactions) -> AllowedPart:
    def complete(result: ListTransactionsResult) -> ListTransactionsResult:
        seen = [
            each
            for each in result.transactions
            if check.allows(DESCRIBE, TRANSACTIONAL_ID, each.transactional_id, log=False)
        ]
        return evolve(result, transactions=seen)

    return AllowedPart(request, complete)


# --- delegation tokens


def _describe_tokens(check: AccessCheck, request: DescribeDelegationToken) -> AllowedPart:
    principal = check.caller.principal

    def is_seen(token: DelegationToken) -> bool:
        if principal in (token.owner, token.requester, *token.renewers):
            return True
        return check.allows(DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, log=False) or check.allows(
            Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), log=False
        )

    def complete(result: DescribeDelegationTokenResult) -> DescribeDelegationTokenResult:
        return evolve(result, tokens=[token for token in result.tokens if is_seen(token)])

    return AllowedPart(request, complete)


# --- the classic generation, which has no error for this


def denied_classic_produce(request: ClassicProduce, text: str) -> ClassicProduceResult:
    """Return the result of a produce of which nothing is allowed."""
    return ClassicProduceResult(partitions=[_denied_classic(part, text) for part in request.partitions])


def _denied_classic(part: ClassicProducePartition, text: str) -> ClassicProduceResultPartition:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ClassicProduceResultPartition(part.topic, part.partition, code, error_message=text)


def _classic_produce(check: AccessCheck, request: ClassicProduce) -> DeniedAnswer | AllowedPart | None:
    allowed = [check.allows(WRITE, TOPIC, part.topic) for part in request.partitions]
    text = _TEXTS[ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    return _classic(request, allowed, ClassicProduceResult, lambda part: _denied_classic(part, text))


def _classic_fetch(check: AccessCheck, request: ClassicFetch) -> DeniedAnswer | AllowedPart | None:
    allowed = [check.allows(READ, TOPIC, part.topic) for part in request.partitions]
    failed = ClassicFetchResultPartition(ErrorCode.UNKNOWN_SERVER_ERROR)
    return _classic(request, allowed, ClassicFetchResult, lambda _part: failed)


def _classic(
    request: Any, allowed: Sequence[bool], result_type: Callable[..., Any], failed: Callable[[Any], Any]
) -> DeniedAnswer | AllowedPart | None:
    if all(allowed):
        return None
    rest = [part for part, is_allowed in zip(request.partitions, allowed, strict=True) if is_allowed]
    parts = zip(request.partitions, allowed, strict=True)
    failures = [None if is_allowed else failed(part) for part, is_allowed in parts]

    def complete(result: Any) -> Any:
        handled = iter(result.partitions)
        rows = [next(handled, None) if failure is None else failure for failure in failures]
        return evolve(result, partitions=[row for row in rows if row is not None])

    if not rest:
        return DeniedAnswer(complete(result_type(partitions=())))
    return AllowedPart(evolve(request, partitions=rest), complete)


def _classic_offsets(check: AccessCheck, request: ClassicOffsets) -> DeniedAnswer | None:
    if check.allows(DESCRIBE, TOPIC, request.topic):
        return None
    return DeniedAnswer(ClassicOffsetsResult(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))


# --- the table


def _group(operation: Operation) -> Whole:
    return Whole(operation, GROUP, lambda request: request.group_id)


def _transaction(operation: Operation) -> Whole:
    return Whole(operation, TRANSACTIONAL_ID, lambda request: request.transactional_id)


def _cluster(operation: Operation) -> Whole:
    return Whole(operation, CLUSTER)


def _either_cluster_action(step: Step) -> Step:
    """CLUSTER_ACTION allows all that `step` would check."""

    def checked(check: AccessCheck, request: Any) -> DeniedAnswer | AllowedPart | None:
        return None if check.allows_cluster(CLUSTER_ACTION, log=False) else step(check, request)

    return checked


_item: Callable[[Any], str] = lambda item: item  # noqa: E731
_item_name: Callable[[Any], str] = lambda item: item.name  # noqa: E731

STEPS: Mapping[type[Request[Any]], Sequence[Step]] = {
    Produce: (_produce_transactional, Items(WRITE, TOPIC)),
    Fetch: (_fetch,),
    ListOffsets: (_replica_claim, Items(DESCRIBE, TOPIC)),
    Metadata: (_metadata,),
    DescribeTopicPartitions: (_describe_topic_partitions,),
    OffsetCommit: (_group(READ), Items(READ, TOPIC)),
    OffsetFetch: (
        Items(DESCRIBE, GROUP, "groups", "groups", lambda group: group.group_id),
        _offset_fetch,
    ),
    FindCoordinator: (_find_coordinator,),
    JoinGroup: (_group(READ),),
    Heartbeat: (_group(READ),),
    LeaveGroup: (_group(READ),),
    SyncGroup: (_group(READ),),
    DescribeGroups: (Items(DESCRIBE, GROUP, "group_ids", "groups", _item), _describe_groups),
    ConsumerGroupHeartbeat: (_group(READ), _subscribed_topics),
    ConsumerGroupDescribe: (
        Items(DESCRIBE, GROUP, "group_ids", "groups", _item),
        _described_topics,
        _describe_groups,
    ),
    ListGroups: (_list_groups,),
    CreateTopics: (
        Items(CREATE, TOPIC, "topics", "topics", _item_name, also=CREATE, text="Authorization failed."),
        _configs_of_new_topics,
    ),
    DeleteTopics: (_delete_topics,),
    DeleteRecords: (Items(DELETE, TOPIC),),
    InitProducerId: (_init_producer_id,),
    OffsetForLeaderEpoch: (_replica_claim, _either_cluster_action(Items(DESCRIBE, TOPIC))),
    AddPartitionsToTxn: (_add_partitions,),
    AddOffsetsToTxn: (_transaction(WRITE), _group(READ)),
    EndTxn: (_transaction(WRITE),),
    WriteTxnMarkers: (_write_markers,),
    TxnOffsetCommit: (_transaction(WRITE), _group(READ), Items(READ, TOPIC)),
    DescribeAcls: (_cluster(DESCRIBE),),
    CreateAcls: (_cluster(ALTER),),
    DeleteAcls: (_cluster(ALTER),),
    DescribeConfigs: (Configs(DESCRIBE_CONFIGS),),
    AlterConfigs: (Configs(ALTER_CONFIGS),),
    IncrementalAlterConfigs: (Configs(ALTER_CONFIGS),),
    DescribeLogDirs: (_cluster(DESCRIBE),),
    UnregisterBroker: (_cluster(ALTER),),
    DescribeQuorum: (_cluster(DESCRIBE),),
    ListConfigResources: (_cluster(DESCRIBE_CONFIGS),),
    DescribeFeatures: (),
    GetTelemetrySubscriptions: (),
    PushTelemetry: (),
    UpdateFeatures: (_cluster(ALTER),),
    DescribeConnections: (_cluster(DESCRIBE),),
    MirrorRecords: (_cluster(CLUSTER_ACTION),),
    DescribeSharePartitions: (_group(DESCRIBE),),
    CreatePartitions: (Items(ALTER, TOPIC, "topics", "topics"),),
    CreateDelegationToken: (),  # `TokenService` asks for CREATE_TOKENS after its other checks
    RenewDelegationToken: (),
    ExpireDelegationToken: (),
    DescribeDelegationToken: (_describe_tokens,),
    DeleteGroups: (Items(DELETE, GROUP, "group_ids", "groups", _item),),
    ElectLeaders: (_cluster(ALTER),),
    AlterPartitionReassignments: (_cluster(ALTER),),
    ListPartitionReassignments: (_cluster(DESCRIBE),),
    OffsetDelete: (_group(DELETE), Items(READ, TOPIC)),
    DescribeClientQuotas: (_cluster(DESCRIBE_CONFIGS),),
    AlterClientQuotas: (_cluster(ALTER_CONFIGS),),
    DescribeUserScramCredentials: (_cluster(DESCRIBE),),
    AlterUserScramCredentials: (_cluster(ALTER),),
    DescribeCluster: (_describe_cluster,),
    DescribeProducers: (_describe_producers,),
    DescribeTransactions: (
        Items(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids", "transactions", _item),
        _describe_transactions,
    ),
    ListTransactions: (_list_transactions,),
    ShareGroupHeartbeat: (_group(READ), _subscribed_topics),
    ShareGroupDescribe: (
        Items(DESCRIBE, GROUP, "group_ids", "groups", _item),
        _described_share_topics,
        _describe_groups,
    ),
    DescribeShareGroupOffsets: (
        Items(DESCRIBE, GROUP, "groups", "groups", lambda group: group.group_id),
        _share_group_offsets,
    ),
    AlterShareGroupOffsets: (_group(READ), _alter_share_offsets),
    DeleteShareGroupOffsets: (_group(DELETE), _delete_share_offsets),
    ShareFetch: (_group(READ),),  # `ShareFetchService` asks for READ of the topics, also of those in the session
    ShareAcknowledge: (_group(READ),),
    InitializeShareGroupState: (_cluster(CLUSTER_ACTION),),
    ReadShareGroupState: (_cluster(CLUSTER_ACTION),),
    WriteShareGroupState: (_cluster(CLUSTER_ACTION),),
    DeleteShareGroupState: (_cluster(CLUSTER_ACTION),),
    ReadShareGroupStateSummary: (_cluster(CLUSTER_ACTION),),
    ClassicProduce: (_classic_produce,),
    ClassicFetch: (_classic_fetch,),
    ClassicOffsets: (_classic_offsets,),
}
"""The rights that each API needs (facts A7). A request that is not here needs CLUSTER_ACTION."""


def _produced_before(authorization: Authorization, request: Produce, caller: Caller) -> bool:
    """Return True if the caller was allowed to write all of these topics since the last change of the ACLs."""
    principal, seen = caller.principal, authorization.seen
    kind, user, host = principal.kind, principal.name, caller.host
    for part in request.partitions:
        records = part.records
        if len(records) > _ATTRIBUTES_POSITION and records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL:
            return False
        if (kind, user, host, WRITE, TOPIC, part.topic) not in seen:
            return False
    return True


def _fetched_before(authorization: Authorization, request: Fetch, caller: Caller) -> bool:
    """Return True if the caller was allowed to read all of these topics since the last change of the ACLs."""
    if request.replica_id >= 0:
        return False
    principal, seen = caller.principal, authorization.seen
    kind, user, host = principal.kind, principal.name, caller.host
    return all((kind, user, host, READ, TOPIC, part.topic) in seen for part in request.partitions)


_ALLOWED_BEFORE: Mapping[type[Request[Any]], Callable[[Authorization, Any, Caller], bool]] = {
    Produce: _produced_before,
    Fetch: _fetched_before,
}
"""The requests that come most: one look for what was allowed a moment ago takes a quarter of the time of their steps.
False: their steps decide."""
_UNKNOWN: Sequence[Step] = (_cluster(CLUSTER_ACTION),)


def authorize(
    authorization: Authorization,
    topics: Topics,
    request: Request[Any],
    caller: Caller,
    handle: Callable[[Any, Caller, Any], None],
    reply: Reply[Any],
) -> None:
    """Pass the allowed part of a request to its handler, and reply with the whole answer."""
    kind = type(request)
    quick = _ALLOWED_BEFORE.get(kind)
    if caller.origin is _BROKER or (quick is not None and quick(authorization, request, caller)):
        handle(request, caller, reply)
    else:
        _authorize_in_steps(authorization, topics, request, caller, handle, reply)


def _authorize_in_steps(
    authorization: Authorization,
    topics: Topics,
    request: Request[Any],
    caller: Caller,
    handle: Callable[[Any, Caller, Any], None],
    reply: Reply[Any],
) -> None:
    kind = type(request)
    check = AccessCheck(authorization, topics, caller, kind.__name__)
    steps: Iterable[Step] = STEPS.get(kind, _UNKNOWN)
    completing: list[Callable[[Any], Any]] = []
    allowed: Any = request
    for step in steps:
        verdict = step(check, allowed)
        if verdict is None:
            continue
        if isinstance(verdict, DeniedAnswer):
            reply(_completed(verdict.result, completing))
            return
        allowed = verdict.request
        completing.append(verdict.complete)
    if not completing:
        handle(allowed, caller, reply)
        return

    # A request that waits must not keep the records of a produce, which are in the connection's memory.
    retained = None if kind is Produce else allowed

    def replied(result: Any) -> None:
        if isinstance(result, ApiError) and retained is not None:
            result = retained.failed(result)
        reply(result if isinstance(result, BarnabasError) else _completed(result, completing))

    handle(allowed, caller, replied)


def _completed(result: Any, completing: Sequence[Callable[[Any], Any]]) -> Any:
    for complete in reversed(completing):
        result = complete(result)
    return result
