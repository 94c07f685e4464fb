"""Messages of topics whose partitions are not known yet; `send` need not wait for metadata."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.values import frozen
from ..cluster_view import ClusterView
from ..effects import NEVER, Poll
from ..errors import topic_error
from .producer_batch import EncodedMessage


@frozen
class PendingMessage:
    """One message that waits; `token` identifies the waiter for its outcome."""

    message: EncodedMessage
    partition: int | None
    size: int
    token: object


_Failure = tuple[list[PendingMessage], BarnabasError]


class PendingTopicMessages:
    """Keeps messages in order, per topic, until the topic is known or has failed."""

    def __init__(
        self,
        view: ClusterView,
        *,
        limit_ms: float,
        limit_key: str,
        route: Callable[[str, PendingMessage, float], None],
        failed: Callable[[Sequence[PendingMessage], BarnabasError], None],
    ) -> None:
        """`limit_ms`: how long each message may wait for metadata, which the setting `limit_key` says.

        `route` is called once the topic is known, with the time since when the message waits, and may raise; `failed`
        gets what will not be sent, and why.
        """
        self._view = view
        self._limit_ms = limit_ms
        self._limit_key = limit_key
        self._route = route
        self._failed = failed
        self._topics: dict[str, deque[tuple[float, PendingMessage]]] = {}
        """Topic → since when each message waits, and the message; the oldest first."""

    def __contains__(self, topic: object) -> bool:
        """Return True while messages of that topic wait: later ones must wait behind them."""
        return topic in self._topics

    def put(self, topic: str, message: PendingMessage, now_ms: float) -> None:
        """Let a message wait. Raises what `ClusterView.add_topics` raises for the name of the topic."""
        if topic not in self._topics:
            self._view.add_topics([topic])
            self._topics[topic] = deque()
            if self._view.topic(topic) is None:
                self._view.request_refresh()
        self._topics[topic].append((now_ms, message))

    def waiting(self) -> list[PendingMessage]:
        """Return all pending messages."""
        return [message for group in self._topics.values() for _, message in group]

    def poll(self, now_ms: float) -> Poll:
        failures: list[_Failure] = []
        wake = NEVER
        for topic, group in list(self._topics.items()):
            error = self._view.topic_errors.get(topic)
            if self._view.topic(topic) is not None:
                del self._topics[topic]
                failures += self._route_all(topic, group)
                continue
            if error is not None and not error.retriable:
                failures.append(([message for _, message in group], topic_error(error, topic)))
                group.clear()
            elif self._view.authentication_error is not None:
                failures.append(([message for _, message in group], self._view.authentication_error))
                group.clear()
            late: list[PendingMessage] = []
            while group and group[0][0] + self._limit_ms <= now_ms:
                late.append(group.popleft()[1])
            if late:
                failures.append((late, self._late(topic, error)))
            if group:
                wake = min(wake, group[0][0] + self._limit_ms)
            else:
                self._give_up(topic)
        for messages, failure in failures:
            self._failed(messages, failure)
        return Poll([], wake)

    def fail_all(self, error: BarnabasError) -> None:
        """Fail all waiting messages, because the producer closes."""
        groups, self._topics = list(self._topics.values()), {}
        for group in groups:
            self._failed([message for _, message in group], error)

    def _route_all(self, topic: str, group: Iterable[tuple[float, PendingMessage]]) -> list[_Failure]:
        failures: list[_Failure] = []
        for since_ms, message in group:
            try:
                self._route(topic, message, since_ms)
            except BarnabasError as error:
                failures.append(([message], error))
        return failures

    def _give_up(self, topic: str) -> None:
        del self._topics[topic]
        self._view.forget(topic)

    def _late(self, topic: str, error: ErrorCode | None) -> BarnabasError:
        limit = f"{self._limit_key} ({self._limit_ms:g} ms)"
        if error is not None:
            return ApiError(error, f"topic {topic} is not present in metadata after {limit}")
        text = f"no metadata of topic {topic} within {limit}{self._view.why}"
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, text)
