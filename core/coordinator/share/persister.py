"""The persister of a broker: sends requests for the states of share partitions to their share coordinators (Kafka's
`DefaultStatePersister`).
"""

from collections.abc import Callable, Sequence
from typing import Any

from ....ports.broker_api.envelope import Caller, Origin, Request
from ....ports.broker_api.share_state import (
    DeleteShareGroupState,
    DeleteShareGroupStateResult,
    InitializeShareGroupState,
    InitializeShareGroupStateResult,
    ReadShareGroupState,
    ReadShareGroupStateResult,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResult,
    WriteShareGroupState,
    WriteShareGroupStateResult,
)
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.scheduler import Scheduler
from ...client.driver import Submit
from ...share.persister import SharePartitionKey

_BROKER = Caller(origin=Origin.BROKER)
_RETRY_MS, _RETRY_MS_MAX = 20.0, 1_000.0
_GIVE_UP_MS = 15_000.0
"""Errors that may pass are retried for this time, less than the 30 s for which clients wait for an answer."""
_AT_ONCE = 4
"""The most requests in flight to another broker; what comes meanwhile shares the next ones."""
_PARTITIONS_MAX = 2_000
"""The most share partitions in one request."""
_PASSING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

StateRequests = (
    InitializeShareGroupState
    | ReadShareGroupState
    | WriteShareGroupState
    | DeleteShareGroupState
    | ReadShareGroupStateSummary
)
Handle = Callable[[Request[Any], Caller, Callable[[Any], None]], None]


class _Item:
    """One share partition of a request: `done` is called once, with its outcome."""

    __slots__ = ("deadline_ms", "done", "group_id", "item", "key", "kind", "tries")

    def __init__(
        self, kind: type[StateRequests], group_id: str, item: Any, done: Callable[[Any], None], deadline_ms: float
    ) -> None:
        self.kind = kind
        self.group_id = group_id
        self.item = item
        self.key = str(SharePartitionKey(group_id, item.topic_id, item.partition))
        self.done = done
        self.deadline_ms = deadline_ms
        self.tries = 0

    def fail(self, error: ApiError) -> None:
        """Pass on the outcome of a request that has failed."""
        self.done(_request(self.kind, self.group_id, [self.item]).failed(error).partitions[0])


def _request(kind: type[StateRequests], group_id: str, partitions: Sequence[Any]) -> StateRequests:
    return kind(group_id=group_id, partitions=partitions)


class DefaultStatePersister:
    """Implements `Persister` over the share coordinators of a cluster. Owner thread only.

    own_id:         this broker, whose coordinator is called directly (`handle_here`).
    coordinator_of: returns the broker that coordinates a share partition, by its key; -1 while there is none.
    create_topic:   creates `__share_group_state` if it does not exist, and calls back.
    has_partition:  returns whether this broker knows a partition of a topic, by the id of the topic.
    submit:         sends a request to another broker, as `Links.submit` does; None: there is no other.
    """

    def __init__(
        self,
        *,
        own_id: int,
        coordinator_of: Callable[[str], int],
        create_topic: Callable[[Callable[[str], None]], None],
        has_partition: Callable[[bytes, int], bool],
        handle_here: Handle,
        submit: Submit | None,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._own_id = own_id
        self._coordinator_of = coordinator_of
        self._create_topic = create_topic
        self._has_partition = has_partition
        self._handle_here = handle_here
        self._submit = submit
        self._clock = clock
        self._scheduler = scheduler
        self._queues: dict[int, list[_Item]] = {}
        self._in_flight: dict[int, int] = {}
        self._is_due = self._is_creating = self._is_closed = False

    def close(self) -> None:
        """Send no further requests; those that wait fail with NOT_COORDINATOR."""
        self._is_closed = True
        queues, self._queues = self._queues, {}
        for items in queues.values():
            for each in items:
                each.fail(_closed())

    def initialize_state(
        self, request: InitializeShareGroupState, callback: Callable[[InitializeShareGroupStateResult], None]
    ) -> None:
        """Create or replace the state of partitions."""
        self._ask(request, lambda some: callback(InitializeShareGroupStateResult(partitions=some)))

    def read_state(self, request: ReadShareGroupState, callback: Callable[[ReadShareGroupStateResult], None]) -> None:
        """Read the state of partitions, and fence earlier leaders."""
        self._ask(request, lambda some: callback(ReadShareGroupStateResult(partitions=some)))

    def write_state(
        self, request: WriteShareGroupState, callback: Callable[[WriteShareGroupStateResult], None]
    ) -> None:
        """Store changes of partitions."""
        self._ask(request, lambda some: callback(WriteShareGroupStateResult(partitions=some)))

    def delete_state(
        self, request: DeleteShareGroupState, callback: Callable[[DeleteShareGroupStateResult], None]
    ) -> None:
        """Delete the state of partitions."""
        self._ask(request, lambda some: callback(DeleteShareGroupStateResult(partitions=some)))

    def read_state_summary(
        self,
        request: ReadShareGroupStateSummary,
        callback: Callable[[ReadShareGroupStateSummaryResult], None],
    ) -> None:
        """Read the start offsets of partitions."""
        self._ask(request, lambda some: callback(ReadShareGroupStateSummaryResult(partitions=some)))

    # --- within

    def _ask(self, request: StateRequests, callback: Callable[[list[Any]], None]) -> None:
        """Ask for each share partition of the request, and pass on the outcomes when there are all of them."""
        outcomes: list[Any] = [None] * len(request.partitions)
        left = len(outcomes)
        if not left:
            callback([])

        def one(position: int, outcome: Any) -> None:
            nonlocal left
            outcomes[position] = outcome
            left -= 1
            if not left:
                callback(outcomes)

        deadline_ms = self._clock.monotonic_ms() + _GIVE_UP_MS
        for position, item in enumerate(request.partitions):

            def done(outcome: Any, position: int = position) -> None:
                one(position, outcome)

            self._route(_Item(type(request), request.group_id, item, done, deadline_ms))

    def _route(self, item: _Item) -> None:
        """Queue a share partition for its coordinator, or try again later if there is none."""
        if self._is_closed:
            item.fail(_closed())
            return
        node = self._coordinator_of(item.key)
        if node < 0 or (node != self._own_id and self._submit is None):
            self._create()
            self._retry(item, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no share coordinator now."))
            return
        self._queues.setdefault(node, []).append(item)
        if not self._is_due:
            self._is_due = True
            self._scheduler.call_soon(self._flush)

    def _create(self) -> None:
        if not self._is_creating:
            self._is_creating = True
            self._create_topic(self._on_created)

    def _on_created(self, _why_not: str) -> None:
        self._is_creating = False

    def _retry(self, item: _Item, error: ApiError) -> None:
        delay_ms = min(_RETRY_MS_MAX, _RETRY_MS * 2**item.tries)
        item.tries += 1
        if self._clock.monotonic_ms() + delay_ms > item.deadline_ms:
            item.fail(error)
        else:
            self._scheduler.call_later(delay_ms, lambda: self._route(item))

    def _flush(self) -> None:
        self._is_due = False
        for node in list(self._queues):
            self._send_to(node)

    def _send_to(self, node: int) -> None:
        while node in self._queues and (node == self._own_id or self._in_flight.get(node, 0) < _AT_ONCE):
            queue = self._queues.pop(node)
            first = queue[0]
            batch: list[_Item] = []
            rest: list[_Item] = []
            for each in queue:
                fits = each.kind is first.kind and each.group_id == first.group_id and len(batch) < _PARTITIONS_MAX
                (batch if fits else rest).append(each)
            if rest:
                self._queues[node] = rest
            self._send(node, batch)

    def _send(self, node: int, batch: list[_Item]) -> None:
        first = batch[0]
        request = _request(first.kind, first.group_id, [each.item for each in batch])
        self._in_flight[node] = self._in_flight.get(node, 0) + 1

        def answered(result: Any) -> None:
            self._in_flight[node] -= 1
            outcomes = getattr(result, "partitions", ())
            if isinstance(result, Exception) or len(outcomes) != len(batch):
                for each in batch:
                    self._failed(each, result)
            else:
                self._answered(batch, outcomes)
            self._send_to(node)

        if node != self._own_id and self._submit is not None:
            self._submit(node, request, answered)
        else:
            self._handle_here(request, _BROKER, answered)

    def _failed(self, item: _Item, result: Any) -> None:
        """Try again if the coordinator was not reached; an error of the whole request is the outcome."""
        if isinstance(result, ApiError) and result.code not in _PASSING:
            item.fail(result)
        else:
            self._retry(item, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(result)))

    def _answered(self, batch: Sequence[_Item], outcomes: Sequence[Any]) -> None:
        by_place = {(each.topic_id, each.partition): each for each in outcomes}
        for item in batch:
            place = item.item.topic_id, item.item.partition
            outcome = by_place.get(place)
            if outcome is None:
                self._failed(item, "the share coordinator has not answered for the share partition")
            elif outcome.error in _PASSING or (
                outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._has_partition(*place)
            ):
                self._retry(item, ApiError(outcome.error, outcome.error_message or ""))
            else:
                item.done(outcome)


def _closed() -> ApiError:
    return ApiError(ErrorCode.NOT_COORDINATOR, "The broker is about to stop.")
