"""Automatic topic creation by Metadata requests: a bounded number of topics, while the requests wait."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ....core.cluster.topics import INTERNAL_TOPICS, Topic, check_topic_name
from ....ports.broker_api.topics import NewTopic
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.report import counted
from ....ports.scheduler import Timer
from ....ports.storage import StorageError
from ..state.broker_state import BrokerState
from .topic_creation import TOPICS_AT_A_TIME
from .topics import TopicService

PATIENCE_MS = 1000.0
"""The time that a response waits for its topics. Clients repeat the request for those that are not created by then."""
REPORT_MS = 60_000.0

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

    def make(self, names: Sequence[str], callback: Callable[[Errors], None]) -> None:
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
            f"clients have named {counted(self._deferred, 'missing topic')} too many to make at once "
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

        def made(result: Sequence[Topic | BarnabasError] | BarnabasError) -> None:
            results = [result] * len(some) if isinstance(result, BarnabasError) else result
            self._under_way.difference_update(some)
            errors = {name: self._error(name, each) for name, each in zip(some, results, strict=True)}
            self._state.scheduler.call_soon(self._create_next)  # other changes have their turn
            self._note(errors)

        self._state.changes.submit("Metadata", change, made)

    def _error(self, name: str, made: Topic | BarnabasError) -> ErrorCode:
        state = self._state
        if isinstance(made, Topic) or name in state.image.topics or state.classic.has(name):
            return ErrorCode.NONE  # also what was created meanwhile, or left by an earlier attempt
        if isinstance(made, ApiError):  # a refused topic does not exist for this client until an operator acts
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if made.code is ErrorCode.POLICY_VIOLATION else made.code
        if isinstance(made, StorageError):
            state.failed(f"creating topic {name}", made)
            return ErrorCode.KAFKA_STORAGE_ERROR
        state.changes.complain(f"creating topic {name}", made)
        return ErrorCode.LEADER_NOT_AVAILABLE

    # --- those who wait

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
