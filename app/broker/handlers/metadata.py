"""Metadata: leaders of partitions, and addresses of brokers (facts C6)."""

from collections.abc import Mapping, Sequence

from attrs import evolve

from ....core.cluster.topics import check_topic_name
from ....core.traffic.steps import Steps
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.metadata import Metadata, MetadataResult, PartitionMetadata, TopicMetadata
from ....ports.broker_api.operations import CLUSTER_OPERATIONS, NO_AUTHORIZED_OPERATIONS, TOPIC_OPERATIONS
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ..state.broker_state import BrokerState
from .auto_topic_creation import AutoCreation
from .topic_metadata import TopicViews
from .topics import TopicService


class MetadataService:
    """Answers Metadata; creates missing topics that a request names, where that is allowed."""

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._creation = AutoCreation(state, topics)
        self._views = TopicViews(state)

    def handle(self, request: Metadata, caller: Caller, reply: Reply[MetadataResult]) -> None:
        missing = self._to_create(request)
        if not missing:
            self._answer(request, caller, reply, {})
            return

        self._creation.make(missing, lambda errors: self._answer(request, caller, reply, errors))

    def _answer(
        self, request: Metadata, caller: Caller, reply: Reply[MetadataResult], errors: Mapping[str, ErrorCode]
    ) -> None:
        self._state.answer_in_steps("Metadata", self._result(request, caller, errors), caller, reply)

    def _to_create(self, request: Metadata) -> list[str]:
        if not request.allow_auto_topic_creation:
            return []
        return [name for name in dict.fromkeys(request.topics or ()) if self._state.creates_topic(name)]

    def _result(self, request: Metadata, caller: Caller, errors: Mapping[str, ErrorCode]) -> Steps[MetadataResult]:
        """Return the response. `errors`: the errors of topics that could not be created, or are not yet."""
        state = self._state
        nodes = tuple(state.endpoints.nodes_with_own(state.image.brokers, caller))
        asked = request.include_cluster_authorized_operations
        every_one = request.topics is None and not request.topic_ids
        key = (nodes, asked, request.include_topic_authorized_operations)
        if every_one and (cached := self._views.whole(key)) is not None:
            return cached
        version = self._views.version
        if every_one:
            topics = yield from self._views.all_topics(operations=request.include_topic_authorized_operations)
        else:
            topics = yield from self._named(request, errors)
        result = MetadataResult(
            brokers=nodes,
            cluster_id=state.cluster_id,
            controller_id=state.controller_id,
            topics=topics,
            authorized_operations=CLUSTER_OPERATIONS if asked else NO_AUTHORIZED_OPERATIONS,
        )
        return self._views.keep_whole(key, result) if every_one and self._views.version is version else result

    def _named(self, request: Metadata, errors: Mapping[str, ErrorCode]) -> Steps[Sequence[TopicMetadata]]:
        image = self._state.image
        operations = request.include_topic_authorized_operations
        answers = []
        for name in dict.fromkeys(request.topics or ()):
            answers.append(self._by_name(name, errors, operations=operations))
            yield None
        for topic_id in dict.fromkeys(request.topic_ids):
            try:
                answers.append(self._views.of(image.topic_by_id(topic_id), operations=operations))
            except ApiError as error:
                answers.append(TopicMetadata(name=None, topic_id=topic_id, error=error.code))
            yield None
        return answers

    def _by_name(self, name: str, errors: Mapping[str, ErrorCode], *, operations: bool) -> TopicMetadata:
        topic = self._state.image.topics.get(name)
        if topic is not None:
            return self._views.of(topic, operations=operations)
        if self._state.classic.has(name):
            classic = self._classic(name)
            return evolve(classic, authorized_operations=TOPIC_OPERATIONS) if operations else classic
        error = errors.get(name, ErrorCode.NONE)
        return TopicMetadata(name=name, error=error or _why_unknown(name))

    def _classic(self, name: str) -> TopicMetadata:
        """Return a classic topic that was not created explicitly, led by this broker.

        A client of the current generation then sends its request here, and gets an error that names the classic topic.
        """
        own = (self._state.node_id,)
        partitions = [
            PartitionMetadata(partition=number, leader=own[0], leader_epoch=0, replicas=own, isr=own)
            for number in range(self._state.classic.partitions(name))
        ]
        return TopicMetadata(name=name, partitions=partitions)


def _why_unknown(name: str) -> ErrorCode:
    """Return the error of an unknown topic: INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
