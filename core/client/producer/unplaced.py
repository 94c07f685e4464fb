"""Messages of topics whose partitions are not known yet; `send` need not wait for metadata."""

from collections.abc import Callable, Sequence

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.values import frozen
from ..cluster_view import ClusterView
from ..effects import NEVER, Poll
from .batch import EncodedMessage


@frozen
class UnplacedMessage:
    """One message that waits; `token` is whoever waits for its outcome."""

    message: EncodedMessage
    partition: int | None
    size: int
    token: object


_Failure = tuple[list[UnplacedMessage], BarnabasError]


class UnplacedMessages:
    """Keeps messages in order, per topic, until the topic is known or has failed."""

    def __init__(
        self,
        view: ClusterView,
        *,
        limit_ms: float,
        route: Callable[[str, UnplacedMessage], None],
        failed: Callable[[Sequence[UnplacedMessage], BarnabasError], None],
    ) -> None:
        """`route` is called once the topic is known, and may raise; `failed` gets what will not be sent, and why."""
        self._view = view
        self._limit_ms = limit_ms
        self._route = route
        self._failed = failed
        self._topics: dict[str, tuple[float, list[UnplacedMessage]]] = {}

    def __contains__(self, topic: object) -> bool:
        """True while messages of that topic wait: later ones must wait behind them."""
        return topic in self._topics

    def put(self, topic: str, message: UnplacedMessage, now_ms: float) -> None:
        """Let a message wait."""
        if topic not in self._topics:
            self._topics[topic] = (now_ms + self._limit_ms, [])
            self._view.want([topic])
            if self._view.topic(topic) is None:
                self._view.request_refresh()
        self._topics[topic][1].append(message)

    def waiting(self) -> list[UnplacedMessage]:
        """Everything that waits."""
        return [message for _, group in self._topics.values() for message in group]

    def poll(self, now_ms: float) -> Poll:
        failures: list[_Failure] = []
        wake = NEVER
        for topic, (deadline_ms, group) in list(self._topics.items()):
            error = self._view.topic_errors.get(topic)
            if self._view.topic(topic) is not None:
                del self._topics[topic]
                failures += self._route_all(topic, group)
            elif error is not None and not error.retriable:
                failures.append((group, ApiError(error, f"topic {topic}")))
                self._give_up(topic)
            elif now_ms >= deadline_ms:
                failures.append((group, self._late(topic, error)))
                self._give_up(topic)
            else:
                wake = min(wake, deadline_ms)
        for group, failure in failures:
            self._failed(group, failure)
        return Poll([], wake)

    def fail_all(self, error: BarnabasError) -> None:
        """The producer closes."""
        groups, self._topics = list(self._topics.values()), {}
        for _, group in groups:
            self._failed(group, error)

    def _route_all(
        self, topic: str, group: Sequence[UnplacedMessage]
    ) -> list[tuple[list[UnplacedMessage], BarnabasError]]:
        failures = []
        for message in group:
            try:
                self._route(topic, message)
            except BarnabasError as error:
                failures.append(([message], error))
        return failures

    def _give_up(self, topic: str) -> None:
        del self._topics[topic]
        self._view.forget(topic)

    def _late(self, topic: str, error: ErrorCode | None) -> BarnabasError:
        if error is not None:
            return ApiError(error, f"topic {topic} was not there within {self._limit_ms:g} ms")
        text = f"no metadata of topic {topic} within {self._limit_ms:g} ms{self._view.why}"
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, text)
