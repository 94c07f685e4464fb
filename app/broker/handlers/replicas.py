"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments (facts C6)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from attrs import evolve

from ....core.cluster.election import asked_to_elect, awaited_claims, preferred
from ....core.cluster.image import ClusterImage
from ....core.cluster.reassignment import begin_move, cancel_move, is_moving, target_of, touched
from ....core.cluster.topics import NO_LEADER, PartitionState, Topic, is_topic_name
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.replicas import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    ElectionType,
    ElectLeaders,
    ElectLeadersResult,
    ListPartitionReassignments,
    ListPartitionReassignmentsResult,
    OngoingReassignment,
    PartitionChange,
    Reassignment,
)
from ....ports.coordination import BadVersion, CoordinationError
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError
from ....ports.report import debug
from ....ports.types import TopicPartition
from ..state.broker_state import BrokerState
from ..state.changes import as_api_error
from .topics import TopicService

_ATTEMPTS = 10
CLAIMS_WAIT_MS = 5000.0
"""The maximum time that an unclean election waits for the log end reports of live replicas."""
CLAIMS_STEP_MS = 50.0


class ReplicaService:
    """Elects leaders and reassigns replicas, on any broker: a write succeeds only if the topic is unchanged."""

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._topics = topics

    # --- leaders

    def elect(self, request: ElectLeaders, _caller: Caller, reply: Reply[ElectLeadersResult]) -> None:
        if request.election_type not in tuple(ElectionType):
            reply(ElectLeadersResult(partitions=(), error=ErrorCode.INVALID_REQUEST))
            return
        kind = ElectionType(request.election_type)

        def done(result: Sequence[PartitionChange] | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                reply(ElectLeadersResult(partitions=(), error=as_api_error(result).code))
                return
            changes = result
            if request.topics is None:
                changes = [outcome for outcome in result if outcome.error is not ErrorCode.ELECTION_NOT_NEEDED]
            reply(ElectLeadersResult(partitions=changes))

        state = self._state
        until_ms = state.clock.monotonic_ms() + min(request.timeout_ms, CLAIMS_WAIT_MS)

        async def following() -> None:
            """Learn the topics: they are changed in another queue than the states of their partitions."""
            if state.is_alone:
                return
            if request.topics is None:
                await self._topics.catch_up_with_all()
            else:
                await self._topics.catch_up([name for name in request.topics if is_topic_name(name)])

        async def electing() -> Sequence[PartitionChange]:
            asked = self._asked(request)
            if not state.is_alone:
                await state.registry.reread_brokers()
                await state.registry.reread_states(dict.fromkeys(key.topic for key in asked))
            return await self._elect(asked, kind)

        def begin(error: BarnabasError | None) -> None:
            if error is not None:
                done(error)
                return
            is_waiting = kind is ElectionType.UNCLEAN and any(self._is_unclear(key) for key in self._asked(request))
            if is_waiting and state.clock.monotonic_ms() < until_ms:
                state.scheduler.call_later(CLAIMS_STEP_MS, partial(begin, None))
            else:
                state.changes.submit("ElectLeaders", electing, done, state.leader_changes)

        state.changes.submit("ElectLeaders", state.in_time(request.timeout_ms, following), begin)

    def _asked(self, request: ElectLeaders) -> Sequence[TopicPartition]:
        """Return the partitions that a request names, or all."""
        wanted: Mapping[str, Iterable[int]] = {name: each.partitions for name, each in self._state.image.topics.items()}
        if request.topics is not None:
            wanted = request.topics
        return [TopicPartition(name, number) for name, numbers in wanted.items() for number in numbers]

    async def _elect(self, asked: Sequence[TopicPartition], kind: ElectionType) -> Sequence[PartitionChange]:
        outcomes: dict[TopicPartition, ApiError | None] = {}
        wanted: dict[str, set[int]] = {}
        for key in asked:
            outcomes[key] = self._refusal(key, kind)
            if outcomes[key] is None:
                wanted.setdefault(key.topic, set()).add(key.partition)

        elections: dict[TopicPartition, tuple[PartitionState, PartitionState]] = {}

        def decide(topic: Topic, image: ClusterImage) -> Mapping[int, PartitionState]:
            decided = {}
            for number in wanted[topic.name] & topic.partitions.keys():
                after = self._after(topic, number, image, kind)
                if after is not None:
                    decided[number] = after
                    key = TopicPartition(topic.name, number)
                    elections[key] = image.state(key), after
            return decided

        if wanted:
            changed = set(await self._state.registry.change_states(wanted, decide))
            for key in changed if kind is ElectionType.UNCLEAN else ():
                self._state.report(election_log_line(key, *elections[key]))
            for name, numbers in wanted.items():
                for key in (TopicPartition(name, number) for number in numbers):
                    if key not in changed:
                        outcomes[key] = self._refusal(key, kind) or ApiError(ErrorCode.ELECTION_NOT_NEEDED, "")
        return [_outcome(key, error) for key, error in outcomes.items()]

    def _refusal(self, key: TopicPartition, kind: ElectionType) -> ApiError | None:
        """Return the error of a partition that needs or has no election; None: it can be held."""
        try:
            state = self._state.image.state(key)
        except ApiError as unknown:
            return unknown
        topic, leader = self._state.image.topic(key.topic), state.leader
        first = topic.partitions[key.partition][0]
        leads = leader != NO_LEADER and self._state.has_replica(key.topic, key.partition, leader)
        if leads and (kind is ElectionType.UNCLEAN or leader == first):
            return ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads {key} already")
        if not self._state.is_alone and self._after(topic, key.partition, self._state.image, kind) is not None:
            return None
        if kind is ElectionType.UNCLEAN:
            return ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no broker that lives has {key}")
        text = f"broker {first}, the first replica of {key}, is down, or not in sync"
        return ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)

    def _after(self, topic: Topic, number: int, image: ClusterImage, kind: ElectionType) -> PartitionState | None:
        """Return the state after the election; None if no election is possible or needed."""
        key = TopicPartition(topic.name, number)
        known, brokers = image.state(key), image.brokers_with(key)
        replicas = known.replicas_in(topic.partitions[number])
        rules = self._state.election_rules(topic)
        if kind is ElectionType.PREFERRED:
            return preferred(known, replicas, brokers, rules)
        return asked_to_elect(known, replicas, brokers, rules)

    def _is_unclear(self, key: TopicPartition) -> bool:
        """Return True while live replicas have not reported their log end: one of them may have the longest log."""
        topic = self._state.image.topics.get(key.topic)
        if topic is None or key.partition not in topic.partitions or self._state.is_alone:
            return False
        state = self._state.image.state(key)
        replicas = state.replicas_in(topic.partitions[key.partition])
        return bool(awaited_claims(state, replicas, self._state.image.brokers_with(key)))

    # --- replicas

    def reassign(
        self,
        request: AlterPartitionReassignments,
        _caller: Caller,
        reply: Reply[AlterPartitionReassignmentsResult],
    ) -> None:
        may_grow = request.allow_replication_factor_change

        def done(result: Sequence[PartitionChange] | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                error = as_api_error(result)
                response = AlterPartitionReassignmentsResult(
                    partitions=(), error=error.code, error_message=error.message
                )
            else:
                response = AlterPartitionReassignmentsResult(partitions=result)
            reply(evolve(response, allow_replication_factor_change=may_grow))

        async def moving() -> Sequence[PartitionChange]:
            return [await self._move(wanted, may_grow=may_grow) for wanted in request.partitions]

        in_time = self._state.in_time(request.timeout_ms, moving)
        self._state.changes.submit("AlterPartitionReassignments", in_time, done)

    async def _move(self, wanted: Reassignment, *, may_grow: bool) -> PartitionChange:
        key = TopicPartition(wanted.topic, wanted.partition)
        try:
            moved = partial(self._moved, key, wanted.replicas, may_grow=may_grow)
            await self._topics.retry_if_late(key.topic, moved, with_states=True)
        except (ApiError, CoordinationError, ClosedError) as error:
            return _outcome(key, as_api_error(error))
        return _outcome(key, None)

    async def _moved(self, key: TopicPartition, target: Sequence[int] | None, *, may_grow: bool) -> None:
        state = self._state
        for _ in range(_ATTEMPTS):
            state.image.state(key)
            topic = state.image.topic(key.topic)
            states = {key.partition: touched(state.image.state(key))}
            if target is None:
                after, states = cancel_move(topic, key.partition, state.image, state.election_rules(topic))
            elif tuple(target) == topic.partitions[key.partition] and not is_moving(topic, key.partition):
                return
            else:
                _check_replication_factor(topic, key.partition, target, may_grow=may_grow)
                with state.explaining_cordoned():
                    after = begin_move(topic, key.partition, target, state.racks())
            if state.is_alone:
                text = f"the assignment of {key} moves it away from this broker, which is alone"
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
            with self._topics.reread_on_failure(key.topic):
                try:
                    await state.registry.move(after, states)
                except BadVersion:
                    await self._topics.read_again(key.topic)
                    continue
                await self._topics.apply_topic(key.topic)  # opens logs that move here, removes those that move away
            return
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"others change topic {key.topic} as often as it is tried")

    def list_moves(
        self,
        request: ListPartitionReassignments,
        _caller: Caller,
        reply: Reply[ListPartitionReassignmentsResult],
    ) -> None:
        async def following() -> ListPartitionReassignmentsResult:
            if not self._state.is_alone:
                if request.topics is None:
                    await self._topics.catch_up_with_all()
                else:
                    await self._topics.catch_up([name for name in request.topics if is_topic_name(name)])
            return self._moves(request)

        in_time = self._state.in_time(request.timeout_ms, following)
        self._state.changes.submit("ListPartitionReassignments", in_time, reply)

    def _moves(self, request: ListPartitionReassignments) -> ListPartitionReassignmentsResult:
        image, asked = self._state.image, request.topics
        names = image.topics if asked is None else [name for name in asked if name in image.topics]
        moves = [
            OngoingReassignment(
                topic=topic.name,
                partition=number,
                replicas=topic.partitions[number],
                adding=_still_wanted(topic, number),
                removing=topic.removing.get(number, ()),
            )
            for topic in (image.topics[name] for name in names)
            for number in sorted({*topic.adding, *topic.removing})
            if asked is None or number in asked[topic.name]
        ]
        return ListPartitionReassignmentsResult(partitions=moves)


def _check_replication_factor(topic: Topic, number: int, target: Sequence[int], *, may_grow: bool) -> None:
    """Raise `ApiError(INVALID_REPLICATION_FACTOR)` where a move would change it and may not (KIP-860)."""
    now = len(target_of(topic, number))
    if not may_grow and len(target) != now:
        text = f"The replication factor is changed from {now} to {len(target)}"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def _still_wanted(topic: Topic, number: int) -> tuple[int, ...]:
    """Return the replicas that are added and stay, without those of a move that was replaced."""
    target = target_of(topic, number)
    return tuple(broker for broker in topic.adding.get(number, ()) if broker in target)


def _outcome(key: TopicPartition, error: ApiError | None) -> PartitionChange:
    if error is None:
        return PartitionChange(topic=key.topic, partition=key.partition)
    return PartitionChange(
        topic=key.topic, partition=key.partition, error=error.code, error_message=error.message or None
    )


def election_log_line(key: TopicPartition, before: PartitionState, after: PartitionState) -> str:
    """Return the log line about one election. The controller reports all elections of an event together, but for an
    unclean one, which may have lost messages."""
    leader = after.leader
    if leader == NO_LEADER:
        text = f"{key} has no leader: no replica of {list(before.members)}, which have all committed records, is alive"
        return debug(text, topic=key.topic, partition=key.partition)
    if leader in before.members:
        text = f"broker {leader} leads {key}, in epoch {after.leader_epoch}"
        return debug(text, topic=key.topic, partition=key.partition, leader=leader)
    text = f"broker {leader} leads {key}, in epoch {after.leader_epoch}, by an unclean election"
    text += f": it is not one of {list(before.members)}, and committed messages that it lacks are lost"
    claims = [f"broker {each} to offset {claim.log_end}" for each, claim in sorted(before.claims.items())]
    return f"{text}; as claimed, the log reaches on {', '.join(claims)}" if claims else text
