"""Single requests of a client: each is sent to the right broker, and retried while that may help."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

from attrs import field

from ...ports.broker_api.envelope import Request
from ...ports.broker_api.groups import GROUP_COORDINATOR, Coordinator, FindCoordinator, FindCoordinatorResult
from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.transport import AuthenticationError, TransportError
from ...ports.types import TopicPartition
from ...ports.values import define, frozen
from .arguments import as_topic_partition
from .cluster_view import ClusterView
from .effects import NEVER, Poll, Send, backoff_ms
from .errors import ClientTimeout, no_partition, silent, topic_error

ItemT = TypeVar("ItemT")
CallCallback = Callable[[Any], None]
COORDINATORS_MAX = 10_000
"""The number of groups and transactional ids whose coordinators are cached; the oldest entry leaves first."""


class Target(Enum):
    """A broker by its role. Other destinations are a broker id, or the coordinator of a group or transactional id."""

    ANY = "any"
    CONTROLLER = "controller"


@frozen
class CoordinatorOf:
    """The broker that coordinates a group, or (TRANSACTION_COORDINATOR) a transactional id."""

    key: str
    key_type: int = GROUP_COORDINATOR


Destination = Target | CoordinatorOf | int


@define(eq=False, kw_only=True)
class NodeCall:
    """One request to one broker."""

    request: Request[Any]
    target: Destination
    done: CallCallback
    """Takes the result, or the `BarnabasError` for which there is none."""
    deadline_ms: float
    retriable: Callable[[Any], ErrorCode] = lambda _result: ErrorCode.NONE
    """The error in a result for which the whole request is worth another try."""
    retries_max: int = 1_000_000
    failures: int = 0
    not_before_ms: float = -NEVER
    in_flight: bool = False
    asked: int = 0
    """The node that was asked last."""
    last: Any = None


@define(eq=False, kw_only=True)
class LeaderCall(Generic[ItemT]):
    """One request about several partitions; each item is sent to the leader of its partition."""

    items: Sequence[ItemT]
    partition_of: Callable[[ItemT], TopicPartition]
    build: Callable[[Sequence[ItemT]], Request[Any]]
    outcomes: Callable[[Any], Sequence[tuple[ErrorCode, Any]]]
    """Result → per item, in the order of the request, its error and its answer."""
    done: Callable[[Mapping[int, Any]], None]
    """Takes index of the item → its answer, or its `BarnabasError`."""
    deadline_ms: float
    retries_max: int = 1_000_000
    failures: int = 0
    not_before_ms: float = -NEVER
    in_flight: int = 0
    known: int = 0
    """The number of metadata updates when the call began; later ones may have added partitions."""
    waiting: set[int] = field(init=False)
    answers: dict[int, Any] = field(factory=dict)
    last: dict[int, BarnabasError] = field(factory=dict)
    asked: dict[int, int] = field(factory=dict)
    """Index of the item → the node that was asked and has not answered."""

    def __attrs_post_init__(self) -> None:
        self.waiting = set(range(len(self.items)))


class Calls:
    """The calls of a client that are under way."""

    def __init__(self, view: ClusterView, entropy: Entropy, *, retry_backoff_ms: float, retry_backoff_max_ms: float):
        self._view = view
        self._entropy = entropy
        self._backoff = (retry_backoff_ms, retry_backoff_max_ms)
        self._calls: dict[Hashable, NodeCall | LeaderCall[Any]] = {}
        self._coordinators: dict[CoordinatorOf, int] = {}

    def add(self, call: "NodeCall | LeaderCall[Any]") -> None:
        """Begin a call; its `done` is called once, when it is answered or its deadline has passed.

        Raises `TypeError` or `ValueError` for a topic, partition, group or transactional id that no request can carry.
        """
        if isinstance(call, LeaderCall):
            partitions = [as_topic_partition(call.partition_of(item)) for item in call.items]
            self._view.add_topics({tp.topic for tp in partitions})
            call.known = self._view.updates
        elif isinstance(call.target, CoordinatorOf) and not isinstance(call.target.key, str):
            raise TypeError(f"name: expected str, got {type(call.target.key).__name__} ({call.target.key!r:.80})")
        self._calls[id(call)] = call

    def fail_all(self, error: BarnabasError) -> None:
        """Finish every call with this error, because the client closes. Items that have an answer keep it."""
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            if isinstance(call, NodeCall):
                call.done(error)
            else:
                call.done({index: call.answers.get(index, error) for index in range(len(call.items))})

    def poll(self, now_ms: float) -> Poll:
        sends: list[Send] = []
        wake = NEVER
        for call in list(self._calls.values()):
            if now_ms >= call.deadline_ms:
                self._give_up(call)
                continue
            wake = min(wake, call.deadline_ms)
            if now_ms < call.not_before_ms:
                wake = min(wake, call.not_before_ms)
                continue
            try:
                sends += self._sends(call)
            except Exception as error:  # noqa: BLE001  # what a user gave cannot be asked; who asked gets the error
                self._refuse(call, error)
                continue
            if isinstance(call, LeaderCall) and not call.in_flight and call.waiting:
                wake = min(wake, now_ms + self._backoff[0])
        return Poll(sends, wake)

    def _sends(self, call: "NodeCall | LeaderCall[Any]") -> list[Send]:
        return self._send_to_node(call) if isinstance(call, NodeCall) else self._send_to_leaders(call)

    def _refuse(self, call: "NodeCall | LeaderCall[Any]", error: Exception) -> None:
        what = type(call.request).__name__ if isinstance(call, NodeCall) else "the request"
        refusal = ApiError(ErrorCode.INVALID_REQUEST, f"{what} cannot be made: {error!r}")
        refusal.__cause__ = error
        if isinstance(call, NodeCall):
            self._finish(call, refusal)
        else:
            self._finish(call, dict.fromkeys(range(len(call.items)), refusal))

    def _finish(self, call: "NodeCall | LeaderCall[Any]", answer: Any) -> None:
        if self._calls.pop(id(call), None) is not None:
            call.done(answer)

    def _give_up(self, call: "NodeCall | LeaderCall[Any]") -> None:
        if isinstance(call, NodeCall):
            if call.last is not None and not isinstance(call.last, BarnabasError):
                self._finish(call, call.last)  # a result with an error for each item
            else:
                why = call.last or (self._silent(call.asked) if call.in_flight else self._view.failure_reason)
                self._finish(call, _given_up(call, type(call.request).__name__, why))
            return
        answers = dict(call.answers)
        for index in range(len(call.items)):
            if index not in answers:
                answers[index] = _given_up(call, str(call.partition_of(call.items[index])), self._why(call, index))
        self._finish(call, answers)

    def _why(self, call: LeaderCall[Any], index: int) -> BarnabasError | None:
        topic = call.partition_of(call.items[index]).topic
        error = self._view.topic_errors.get(topic)
        if error is not None:
            return topic_error(error, topic)
        if index in call.last:
            return call.last[index]
        return self._silent(call.asked[index]) if index in call.asked else self._view.failure_reason

    def _silent(self, node: int) -> BarnabasError | None:
        return silent(self._view.address(node))

    def _later(self, call: "NodeCall | LeaderCall[Any]", now_ms: float) -> None:
        call.failures += 1
        if call.failures > call.retries_max:
            call.deadline_ms = now_ms
        call.not_before_ms = now_ms + backoff_ms(call.failures, *self._backoff, self._entropy.fraction())

    def _send_to_node(self, call: NodeCall) -> list[Send]:
        if call.in_flight:
            return []
        node = self._node(call.target)
        if node is None and isinstance(call.target, CoordinatorOf):
            return [self._find_coordinator(call, call.target)]
        if node is None:
            if isinstance(call.target, int) and call.failures:
                self._finish(call, TransportError(f"broker {call.target} has left the cluster"))
            self._view.request_refresh()
            return []
        call.in_flight, call.asked = True, node

        def answered(result: Any, now_ms: float) -> None:
            call.in_flight = False
            call.last = result
            if isinstance(result, BarnabasError):
                self._failed(call, result, now_ms)
                return
            error = call.retriable(result)
            if error.retriable:
                self._moved(call.target)
                self._later(call, now_ms)
            else:
                self._finish(call, result)

        return [Send(node, call.request, answered)]

    def _node(self, target: Destination) -> int | None:
        """Return the node of a destination, or None while it is not known or not in the cluster."""
        node: Destination | None = target
        if isinstance(target, CoordinatorOf):
            node = self._coordinators.get(target)  # it may have left the cluster since
        elif target is Target.ANY:
            node = self._view.any_node()
        elif target is Target.CONTROLLER:
            node = self._view.controller_node()
        return node if isinstance(node, int) and self._view.address(node) is not None else None

    def _find_coordinator(self, call: NodeCall, target: CoordinatorOf) -> Send:
        call.in_flight, call.asked = True, self._view.any_node()

        def answered(result: Any, now_ms: float) -> None:
            call.in_flight = False
            if not isinstance(result, FindCoordinatorResult):
                call.last = result
                self._failed(call, result, now_ms)
                return
            nothing = Coordinator(key=target.key, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            found = next(iter(result.coordinators), nothing)
            if found.error is ErrorCode.NONE:
                if len(self._coordinators) >= COORDINATORS_MAX:
                    del self._coordinators[next(iter(self._coordinators))]
                self._coordinators[target] = self._view.coordinator(found.node_id, (found.host, found.port))
                return
            text = found.error_message or f"who coordinates {target.key}"
            call.last = ApiError(found.error, text)
            self._failed(call, call.last, now_ms)

        request = FindCoordinator(keys=[target.key], key_type=target.key_type)
        return Send(call.asked, request, answered)

    def _failed(self, call: NodeCall, error: BarnabasError, now_ms: float) -> None:
        """Handle a request without a result: retry unless the error is not retriable."""
        if not _is_retriable(error):
            self._finish(call, error)
            return
        if call.target is Target.ANY or (
            isinstance(call.target, CoordinatorOf) and call.target not in self._coordinators
        ):
            self._view.try_another()
        self._moved(call.target)
        self._later(call, now_ms)

    def _moved(self, target: Destination) -> None:
        """Drop the cached coordinator and refresh the metadata, because another broker may have the role by now."""
        if isinstance(target, CoordinatorOf):
            self._coordinators.pop(target, None)
        self._view.request_refresh()

    def _send_to_leaders(self, call: LeaderCall[Any]) -> list[Send]:
        if call.in_flight:
            return []
        groups: dict[int, list[int]] = {}
        for index in sorted(call.waiting):
            topic, partition = call.partition_of(call.items[index])
            node = self._view.leader(topic, partition)
            error = self._refusal(topic, partition, call.known) or self._view.authentication_error
            if node is not None:
                groups.setdefault(node, []).append(index)
            elif error is not None:
                call.answers[index] = error
                call.waiting.discard(index)
            else:
                self._view.request_refresh()
        if not call.waiting:
            self._finish(call, call.answers)
            return []
        return [self._leader_send(call, node, indexes) for node, indexes in groups.items()]

    def _refusal(self, topic: str, partition: int, known: int) -> ApiError | None:
        """Return the error if, by the metadata, the partition can never have a leader; None otherwise."""
        error = self._view.topic_errors.get(topic)
        if error is not None and not error.retriable:
            return topic_error(error, topic)
        view = self._view.topic(topic)
        news = self._view.updates > known
        if news and view is not None and error is None and not 0 <= partition < len(view.leaders):
            return no_partition(topic, len(view.leaders), partition)
        return None

    def _leader_send(self, call: LeaderCall[Any], node: int, indexes: list[int]) -> Send:
        call.in_flight += 1
        call.asked.update(dict.fromkeys(indexes, node))

        def answered(result: Any, now_ms: float) -> None:
            call.in_flight -= 1
            for index in indexes:
                call.asked.pop(index, None)
            again = False
            if isinstance(result, BarnabasError):
                again = _is_retriable(result)
                outcomes: Sequence[tuple[ErrorCode, Any]] = [(ErrorCode.NONE, result)] * len(indexes)
            else:
                outcomes = call.outcomes(result)
                if not outcomes:  # a fetch of a client that is beyond its quota; the link waits before the next one
                    outcomes = [(ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)] * len(indexes)
            for index, (error, answer) in zip(indexes, outcomes, strict=True):
                failure = answer if isinstance(answer, BarnabasError) else None
                if error is not ErrorCode.NONE:
                    failure = ApiError(error, str(call.partition_of(call.items[index])))
                if failure is not None and (again or error.retriable):
                    call.last[index] = failure
                    continue
                call.answers[index] = answer if failure is None else failure
                call.waiting.discard(index)
            if not call.waiting:
                self._finish(call, call.answers)
            elif call.in_flight == 0:
                self._view.request_refresh()
                self._later(call, now_ms)

        return Send(node, call.build([call.items[i] for i in indexes]), answered)


def _is_retriable(error: BarnabasError) -> bool:
    """Return False for a refusal that another attempt does not change."""
    return error.retriable if isinstance(error, ApiError) else not isinstance(error, AuthenticationError)


def _given_up(call: "NodeCall | LeaderCall[Any]", what: str, why: BarnabasError | None) -> BarnabasError:
    if isinstance(why, ApiError) or (why is not None and call.failures > call.retries_max):
        return why
    return ClientTimeout(f"{what}: no answer in time" + (f"; last: {why}" if why is not None else ""))
