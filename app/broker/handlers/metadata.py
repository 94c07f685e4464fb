"""Metadata: leaders of partitions and addresses of brokers, and topics created at their first use (facts C6)."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import evolve

from ....core.cluster.image import ClusterImage, States
from ....core.cluster.topics import INTERNAL_TOPICS, NO_LEADER, PartitionState, Topic, check_topic_name
from ....core.traffic.steps import Steps
from ....ports.broker_api.cluster import BrokerNode
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.metadata import (
    DescribedTopic,
    DescribeTopicPartitions,
    DescribeTopicPartitionsResult,
    Metadata,
    MetadataResult,
    PartitionDescription,
    PartitionMetadata,
    TopicMetadata,
    TopicPartitionCursor,
)
from ....ports.broker_api.operations import CLUSTER_OPERATIONS, NO_AUTHORIZED_OPERATIONS, TOPIC_OPERATIONS
from ....ports.broker_api.topics import NewTopic
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.report import counted
from ....ports.scheduler import Timer
from ....ports.storage import StorageError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..state.broker_state import BrokerState
from .topic_creation import TOPICS_AT_A_TIME
from .topics import TopicService

# The cached metadata of topics for Metadata responses.

_WHOLE_MAX = 16
"""The maximum number of cached responses with all topics: one for each listener, kind of caller and set of options."""

WholeKey = tuple[Sequence[BrokerNode], bool, bool]


@frozen
class _View:
    """The metadata made from these values."""

    topic: Topic
    states: States
    metadata: TopicMetadata


class TopicViews:
    """Caches metadata, together with its encoded bytes: the clients of a cluster send the same requests again and
    again.

    A view is valid while the image has the same values for the topic, its states and the brokers, and the same replicas
    are here. Owner thread only.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._views: dict[tuple[str, bool], _View] = {}
        self._whole: dict[WholeKey, MetadataResult] = {}
        self._image = state.image

    def of(self, topic: Topic, *, operations: bool) -> TopicMetadata:
        """Return the metadata of one topic, with the authorized operations if requested."""
        self._look_for_changes()
        return self._of(self._image, topic, operations)

    def _of(self, image: ClusterImage, topic: Topic, operations: bool) -> TopicMetadata:
        key = (topic.name, operations)
        states = image.states_of(topic.name)
        view = self._views.get(key)
        if view is None or view.topic is not topic or view.states is not states:
            view = self._views[key] = _View(topic, states, self._build_metadata(image, topic, operations))
        return view.metadata

    def all_topics(self, *, operations: bool) -> Steps[Sequence[TopicMetadata]]:
        """Return the metadata of all topics, as of one moment, in steps."""
        self._look_for_changes()
        image, found = self._image, []
        for topic in image.topics.values():
            found.append(self._of(image, topic, operations))
            yield None
        return found

    def whole(self, key: WholeKey) -> MetadataResult | None:
        """Return the response cached under this key, or None."""
        self._look_for_changes()
        return self._whole.get(key)

    def cache_whole(self, key: WholeKey, result: MetadataResult) -> MetadataResult:
        """Cache a response that was made since the last change."""
        if len(self._whole) >= _WHOLE_MAX:
            self._whole.clear()
        whole = self._whole[key] = evolve(result, encoded={})
        return whole

    @property
    def version(self) -> object:
        """An object that is replaced at each change."""
        self._look_for_changes()
        return self._version

    _version: object = None

    def _look_for_changes(self) -> None:
        before, image, changed = self._image, self._state.image, self._state.replicas_changed
        if image is before and not changed:
            return
        self._image = image
        if image.brokers is not before.brokers:
            self._views.clear()
        elif len(self._views) > 2 * len(image.topics) + _WHOLE_MAX:  # some are of deleted topics
            self._views = {key: view for key, view in self._views.items() if key[0] in image.topics}
        for name in changed:
            self._views.pop((name, False), None)
            self._views.pop((name, True), None)
        changed.clear()
        self._whole.clear()
        self._version = object()

    def _build_metadata(self, image: ClusterImage, topic: Topic, operations: bool) -> TopicMetadata:
        view = TopicMetadata(
            name=topic.name,
            topic_id=topic.topic_id,
            internal=topic.internal,
            partitions=[self._partition(image, topic, number) for number in topic.partitions],
            encoded={},
        )
        return evolve(view, authorized_operations=TOPIC_OPERATIONS) if operations else view

    @staticmethod
    def _is_in_sync(image: ClusterImage, known: PartitionState, broker_id: int) -> bool:
        """Return False for a broker that has registered again since: it will leave the ISR, and has to catch up."""
        broker = image.brokers.get(broker_id)
        return broker is None or broker.broker_epoch == known.broker_epochs.get(broker_id)

    def _partition(self, image: ClusterImage, topic: Topic, number: int) -> PartitionMetadata:
        state = self._state
        replicas = topic.partitions[number]
        known = image.state(TopicPartition(topic.name, number))
        offline = [broker for broker in replicas if not state.has_replica(topic.name, number, broker)]
        leader = NO_LEADER if known.leader in offline else known.leader
        return PartitionMetadata(
            partition=number,
            leader=leader,
            leader_epoch=known.leader_epoch,
            replicas=replicas,
            isr=[broker for broker in known.isr if self._is_in_sync(image, known, broker)],
            offline_replicas=offline,
            error=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        )


PATIENCE_MS = 1000.0
"""The time that a response waits for its topics. Clients repeat the request for those that are not created by then."""
REPORT_MS = 60_000.0

PARTITIONS_PER_PAGE_MAX = 2000
"""`max.request.partition.size.limit`"""

Errors = Mapping[str, ErrorCode]


class _Waiting:
    """A Metadata request that waits for some topics."""

    def __init__(self, names: Iterable[str], callback: Callable[[Errors], None]) -> None:
        self.names = set(names)
        self.errors: dict[str, ErrorCode] = {}
        self.callback = callback
        self.timer: Timer | None = None


class AutoCreation:
    """Creates topics in the order of the requests, a few at a time. Owner thread only.

    `auto.create.topics.max.per.request` limits the number of topics that wait because of one request, and of all that
    wait; `auto.create.topics.max.per.second` limits the number that are begun. Topics beyond the limits are not
    created: with LEADER_NOT_AVAILABLE clients retry after a while (facts C6).
    """

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        static = state.settings.static
        self._state = state
        self._topics = topics
        self._at_once_max = static.auto_create_topics_max_per_request
        self._per_second = static.auto_create_topics_max_per_second
        self._allowed = float(self._at_once_max)
        self._counted_ms = state.clock.monotonic_ms()
        self._queue: deque[str] = deque()
        self._under_way: set[str] = set()
        """The topics in `_queue`, and those that are being created."""
        self._waiting: list[_Waiting] = []
        self._deferred = 0
        self._reported_ms: float | None = None

    def create(self, names: Sequence[str], callback: Callable[[Errors], None]) -> None:
        """Create topics that do not exist, and pass their errors to the callback.

        A topic that takes longer has LEADER_NOT_AVAILABLE.
        """
        errors: dict[str, ErrorCode] = {}
        wanted: list[str] = []
        for name in names:
            error = self._admitted(name)
            if error is ErrorCode.NONE:
                wanted.append(name)
            else:
                errors[name] = error
        self._report_deferred()
        if not wanted:
            callback(errors)
            return
        waiting = _Waiting(wanted, callback)
        waiting.errors.update(errors)
        waiting.timer = self._state.scheduler.call_later(PATIENCE_MS, lambda: self._respond(waiting))
        self._waiting.append(waiting)
        self._create_next()

    def _admitted(self, name: str) -> ErrorCode:
        """Return NONE if the creation of the topic is queued or running."""
        if name in self._under_way:
            return ErrorCode.NONE
        try:
            check_topic_name(name)
            if name not in INTERNAL_TOPICS:
                self._state.settings.check_makes_current_topics(name)
        except ApiError as error:
            return error.code
        self._refill()
        if len(self._queue) >= self._at_once_max or self._allowed < 1:
            self._deferred += 1
            return ErrorCode.LEADER_NOT_AVAILABLE
        self._allowed -= 1
        self._under_way.add(name)
        self._queue.append(name)
        return ErrorCode.NONE

    def _refill(self) -> None:
        now_ms = self._state.clock.monotonic_ms()
        gained = (now_ms - self._counted_ms) * self._per_second / 1000.0
        self._allowed = min(float(self._at_once_max), self._allowed + max(0.0, gained))
        self._counted_ms = now_ms

    def _report_deferred(self) -> None:
        now_ms = self._state.clock.monotonic_ms()
        if not self._deferred or (self._reported_ms is not None and now_ms - self._reported_ms < REPORT_MS):
            return
        self._state.report(
            f"clients requested {counted(self._deferred, 'missing topic')} beyond the limits of automatic creation "
            f"(auto.create.topics.max.per.request={self._at_once_max}, "
            f"auto.create.topics.max.per.second={self._per_second}); they get LEADER_NOT_AVAILABLE and retry"
        )
        self._deferred, self._reported_ms = 0, now_ms

    # --- in the queue of changes

    def _create_next(self) -> None:
        """Begin the next few topics, unless some are being created."""
        if not self._queue or len(self._queue) < len(self._under_way):
            return
        some = [self._queue.popleft() for _ in range(min(TOPICS_AT_A_TIME, len(self._queue)))]

        async def change() -> Sequence[Topic | BarnabasError]:
            return await self._topics.create_some([NewTopic(name=name) for name in some])

        def on_created(result: Sequence[Topic | BarnabasError] | BarnabasError) -> None:
            results = [result] * len(some) if isinstance(result, BarnabasError) else result
            self._under_way.difference_update(some)
            errors = {name: self._error(name, each) for name, each in zip(some, results, strict=True)}
            self._state.scheduler.call_soon(self._create_next)  # other changes have their turn
            self._note(errors)

        self._state.changes.submit("Metadata", change, on_created)

    def _error(self, name: str, on_created: Topic | BarnabasError) -> ErrorCode:
        state = self._state
        if isinstance(on_created, Topic) or name in state.image.topics or state.classic.has(name):
            return ErrorCode.NONE  # also what was created meanwhile, or left by an earlier attempt
        if isinstance(on_created, ApiError):  # a refused topic does not exist for this client until an operator acts
            return (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if on_created.code is ErrorCode.POLICY_VIOLATION
                else on_created.code
            )
        if isinstance(on_created, StorageError):
            state.failed(f"creating topic {name}", on_created)
            return ErrorCode.KAFKA_STORAGE_ERROR
        state.changes.report_failure(f"creating topic {name}", on_created)
        return ErrorCode.LEADER_NOT_AVAILABLE

    # --- waiting requests

    def _note(self, errors: Errors) -> None:
        for waiting in list(self._waiting):
            known = waiting.names & errors.keys()
            waiting.names -= known
            waiting.errors.update((name, errors[name]) for name in known)
            if not waiting.names:
                self._respond(waiting)

    def _respond(self, waiting: _Waiting) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._waiting.remove(waiting)
        late = dict.fromkeys(waiting.names, ErrorCode.LEADER_NOT_AVAILABLE)
        waiting.callback({**late, **waiting.errors})


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

        self._creation.create(missing, lambda errors: self._answer(request, caller, reply, errors))

    def describe(
        self, request: DescribeTopicPartitions, caller: Caller, reply: Reply[DescribeTopicPartitionsResult]
    ) -> None:
        """Describe topics in the order of their names, a page of partitions at a time (KIP-966)."""
        self._state.answer_in_steps("DescribeTopicPartitions", self._page(request), caller, reply)

    def _page(self, request: DescribeTopicPartitions) -> Steps[DescribeTopicPartitionsResult]:
        image, cursor = self._state.image, request.cursor
        asked = image.topics if request.topics is None else dict.fromkeys(request.topics)
        names = sorted(name for name in asked if cursor is None or name >= cursor.topic)
        refusal = _why_no_page(request, names)
        if refusal is not None:
            return request.failed(refusal)
        found, hidden = [], []
        left = max(1, min(request.partitions_max, PARTITIONS_PER_PAGE_MAX))
        next_cursor = None
        for name in names:
            yield None
            if not request.is_visible(name):
                if request.topics is not None:
                    hidden.append(DescribedTopic(name=name, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            if next_cursor is not None:
                continue  # later topics count only for TOPIC_AUTHORIZATION_FAILED
            first = cursor.partition if cursor is not None and cursor.topic == name else 0
            if left == 0:
                next_cursor = TopicPartitionCursor(name, first)
                continue
            described = self._describe(image, name)
            if described.error is ErrorCode.NONE:
                partitions = described.partitions[first : first + left]
                left -= len(partitions)
                if first + len(partitions) < len(described.partitions):
                    next_cursor = TopicPartitionCursor(name, first + len(partitions))
                described = evolve(described, partitions=partitions)
            elif request.topics is None:
                continue  # it was deleted in between
            found.append(described)
        return DescribeTopicPartitionsResult(topics=[*found, *hidden], next_cursor=next_cursor)

    def _describe(self, image: ClusterImage, name: str) -> DescribedTopic:
        known = self._by_name(name, {}, operations=True)
        if known.error is not ErrorCode.NONE:
            return DescribedTopic(name=name, error=known.error)
        is_stored = name in image.topics
        partitions = []
        for each in known.partitions:
            state = image.state(TopicPartition(name, each.partition)) if is_stored else None
            partitions.append(
                PartitionDescription(
                    partition=each.partition,
                    leader=each.leader,
                    leader_epoch=each.leader_epoch,
                    replicas=each.replicas,
                    isr=each.isr,
                    offline_replicas=each.offline_replicas,
                    error=each.error,
                    eligible_leader_replicas=() if state is None else state.elr,
                    last_known_elr=() if state is None else state.suspects,
                )
            )
        return DescribedTopic(
            name=name,
            topic_id=known.topic_id,
            internal=known.internal,
            partitions=partitions,
            authorized_operations=known.authorized_operations,
        )

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
        return self._views.cache_whole(key, result) if every_one and self._views.version is version else result

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


def _why_no_page(request: DescribeTopicPartitions, names: Sequence[str]) -> ApiError | None:
    cursor = request.cursor
    if cursor is None:
        return None
    if request.topics is not None and cursor.topic not in names:
        text = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic}"
        return ApiError(ErrorCode.INVALID_REQUEST, text)
    if cursor.partition < 0:
        return ApiError(ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest cursor partition must be valid")
    return None


def _why_unknown(name: str) -> ErrorCode:
    """Return the error of an unknown topic: INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
