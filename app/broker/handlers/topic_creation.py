"""The progress of one CreateTopics request: a few topics at a time, within the timeout of the request."""

from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol

from ....core.cluster.layout import states_nodes
from ....core.cluster.topic_planning import PARTITIONS_PER_REQUEST_MAX
from ....core.cluster.topics import Topic
from ....core.security.quotas.request_quotas import ControllerMutationQuota
from ....ports.broker_api.envelope import Reply
from ....ports.broker_api.topics import CreatedTopic, CreateTopics, CreateTopicsResult, NewTopic
from ....ports.coordination import CHANGES_MAX
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.scheduler import Timer
from ....ports.storage import StorageError
from ..state.broker_state import BrokerState
from ..state.changes import as_api_error

TOPICS_AT_A_TIME = 13
"""The number of topics that one change creates: their nodes (topic, configs, states) fit into one commit.

The limit of a commit is `CHANGES_MAX`. Other changes have their turn between two of these changes.
"""
COMMITS_AT_A_TIME = 5
"""The number of commits of a larger request, side by side, before other changes have their turn: what brokers do about
the first of its topics would else delay the answer by more than its own commits."""

MadeTopics = Sequence[Topic | BarnabasError]


class CreatesTopics(Protocol):
    """See `TopicService`."""

    def create_some(
        self, news: Sequence[NewTopic], *, validate_only: bool = False, quota: ControllerMutationQuota | None = None
    ) -> Awaitable[MadeTopics]: ...

    def store_some(
        self, portions: Sequence[Sequence[NewTopic]], quota: ControllerMutationQuota | None = None
    ) -> Awaitable[Sequence[MadeTopics]]: ...

    def open_stored(self, topics: Sequence[Topic]) -> Awaitable[None]: ...


class Creating:
    """Answers when all topics are created, or at the timeout of the request. Owner thread only.

    Topics that are not created by then are answered with REQUEST_TIMED_OUT, and created all the same (facts C6).

    A request with more topics than one change creates is answered when the coordination tree has all of them, as Kafka
    does when its metadata log has them; their logs follow. A smaller one is answered when the logs here exist: that
    takes little longer, and spares clients the retries until then.
    """

    def __init__(
        self,
        state: BrokerState,
        request: CreateTopics,
        topics: CreatesTopics,
        reply: Reply[CreateTopicsResult],
        quota: ControllerMutationQuota | None = None,
    ) -> None:
        self._quota = quota
        self._state = state
        self._request = request
        self._topics = topics
        self._reply = reply
        self._opens_later = False
        self._unopened: list[Topic] = []
        """The topics in the tree whose logs are not created yet."""
        self._outcomes: dict[str, CreatedTopic] = {}
        self._waiting: list[NewTopic] = []
        self._timer: Timer | None = None
        self._answered = False

    def start(self) -> None:
        request = self._request
        self._waiting = self._acceptable()
        self._opens_later = len(self._waiting) > TOPICS_AT_A_TIME and not request.validate_only
        self._create_next()
        if self._answered or request.validate_only:
            return
        if request.timeout_ms <= 0:
            self._answer()
        else:
            self._timer = self._state.scheduler.call_later(request.timeout_ms, self._answer)

    def _acceptable(self) -> list[NewTopic]:
        """Return the topics that may be created; the others have their result."""
        twice = named_twice(new.name for new in self._request.topics)
        accepted: list[NewTopic] = []
        partitions = 0
        for new in self._request.topics:
            if new.name in self._outcomes:
                continue
            self._outcomes[new.name] = _failed(new.name, ApiError(ErrorCode.REQUEST_TIMED_OUT, _TOO_LATE))
            partitions += self._partitions_of(new)
            if new.name in twice:
                text = f"topic {new.name[:260]!r} is named twice in the request"
                self._outcomes[new.name] = _failed(new.name, ApiError(ErrorCode.INVALID_REQUEST, text))
            elif accepted and partitions > PARTITIONS_PER_REQUEST_MAX:
                text = f"one request makes at most {PARTITIONS_PER_REQUEST_MAX} partitions; ask for the others later"
                self._outcomes[new.name] = _failed(new.name, ApiError(ErrorCode.POLICY_VIOLATION, text))
            else:
                accepted.append(new)
        return accepted

    def _partitions_of(self, new: NewTopic) -> int:
        if new.assignments is not None:
            return len(new.assignments)
        return self._state.settings.static.num_partitions if new.partitions == -1 else max(0, new.partitions)

    def _create_next(self) -> None:
        portions = self._next_portions()
        if not portions:
            self._answer()
            return

        async def change() -> None:
            validate_only = self._request.validate_only
            if self._opens_later:
                made = await self._topics.store_some(portions, self._quota)
            else:
                made = [await self._topics.create_some(portions[0], validate_only=validate_only, quota=self._quota)]
            for portion, of_portion in zip(portions, made, strict=True):
                self._note(portion, of_portion)
            portions.clear()

        def changed(error: BarnabasError | None) -> None:
            if error is not None:
                for portion in portions:
                    self._note(portion, [error] * len(portion))
            if self._waiting:
                self._state.scheduler.call_soon(self._create_next)  # other changes have their turn
            else:
                self._answer()
                self._open_next()

        self._state.changes.submit("CreateTopics", change, changed)

    def _note(self, news: Sequence[NewTopic], made: MadeTopics) -> None:
        for new, each in zip(news, made, strict=True):
            self._outcomes[new.name] = self._outcome(new, each)
            if self._opens_later and isinstance(each, Topic):
                self._unopened.append(each)

    def _next_portions(self) -> list[list[NewTopic]]:
        """Take the next topics, by commits."""
        portions: list[list[NewTopic]] = []
        while self._waiting and len(portions) < (COMMITS_AT_A_TIME if self._opens_later else 1):
            count = self._fit_one_commit() if self._opens_later else TOPICS_AT_A_TIME
            portions.append(self._waiting[:count])
            del self._waiting[:count]
        return portions

    def _fit_one_commit(self) -> int:
        """Return how many of the next topics one commit takes; if it refuses them, each is stored alone."""
        nodes = 0
        for number, new in enumerate(self._waiting):
            nodes += 1 + bool(new.configs)
            nodes += 0 if self._state.is_alone else len(states_nodes(max(1, self._partitions_of(new))))
            if nodes > CHANGES_MAX and number:
                return number
        return len(self._waiting)

    def _open_next(self) -> None:
        """Create the logs of the next few topics, which are in the tree."""
        some = self._unopened[:TOPICS_AT_A_TIME]
        del self._unopened[:TOPICS_AT_A_TIME]
        if not some:
            return

        async def change() -> None:
            await self._topics.open_stored(some)

        def opened(_: BarnabasError | None) -> None:  # a failure is reported by then
            self._state.scheduler.call_soon(self._open_next)  # other changes have their turn

        self._state.changes.submit("creating the logs of new topics", change, opened)

    def _outcome(self, new: NewTopic, made: Topic | BarnabasError) -> CreatedTopic:
        if isinstance(made, BarnabasError):
            return _failed(new.name, refusal(self._state, made))
        return CreatedTopic(
            name=made.name,
            topic_id=bytes(16) if self._request.validate_only else made.topic_id,
            partitions=len(made.partitions),
            replication_factor=made.replication_factor,
            configs=self._state.settings.topic_entries(made.configs, made.name),
        )

    def _answer(self) -> None:
        if not self._answered:
            self._answered = True
            if self._timer is not None:
                self._timer.cancel()
            throttle_ms = 0 if self._quota is None else self._quota.throttle_ms()
            self._reply(CreateTopicsResult(topics=list(self._outcomes.values()), throttle_ms=throttle_ms))


_TOO_LATE = "the topic is not made yet; it will be, unless something is wrong with it"


def _failed(name: str, error: ApiError) -> CreatedTopic:
    return CreatedTopic(name=name, error=error.code, error_message=error.message or None)


def refusal(state: BrokerState, error: BarnabasError) -> ApiError:
    """Return the error for a client whose topic could not be changed; report the details for the operator."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StorageError):
        state.failed("a change of topics", error)
        text = "the logs of the topic cannot be made or removed; see the broker's log"  # with the paths in it
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, text)
    state.changes.report_failure("a change of topics", error)
    return as_api_error(error)


def named_twice(names: Iterable[str]) -> set[str]:
    return {name for name, times in Counter(names).items() if times > 1}
