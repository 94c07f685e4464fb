"""Messages of topics whose partitions are not known yet; `send` need not wait for metadata."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.values import frozen
from ..cluster_view import ClusterView
from ..effects import NEVER, Poll
from .batch import EncodedMessage


@frozen
class Parked:
    """One message that waits; `token` is whoever waits for its outcome."""

    message: EncodedMessage
    partition: int | None
    size: int
    token: object


class Parking:
    """Keeps messages in order, per topic, until the topic is known or has failed. Takes `lock` by itself in `poll`."""

    def __init__(
        self,
        view: ClusterView,
        *,
        limit_ms: float,
        lock: AbstractContextManager[object],
        route: Callable[[str, Parked], None],
        failed: Callable[[Sequence[Parked], BarnabasError], None],
    ) -> None:
        """`route` is called with the lock held, once the topic is known, and may raise; `failed` without the lock."""
        self._view = view
        self._limit_ms = limit_ms
        self._lock = lock
        self._route = route
        self._failed = failed
        self._topics: dict[str, tuple[float, list[Parked]]] = {}

    def __contains__(self, topic: object) -> bool:
        """True while messages of that topic wait: later ones must wait behind them."""
        return topic in self._topics

    def put(self, topic: str, parked: Parked, now_ms: float) -> None:
        """Let a message wait. With the lock held."""
        if topic not in self._topics:
            self._topics[topic] = (now_ms + self._limit_ms, [])
            self._view.want([topic])
            if self._view.topic(topic) is None:
                self._view.request_refresh()
        self._topics[topic][1].append(parked)

    def waiting(self) -> list[Parked]:
        """Everything that waits. With the lock held."""
        return [parked for _, group in self._topics.values() for parked in group]

    def poll(self, now_ms: float) -> Poll:
        failures: list[tuple[list[Parked], BarnabasError]] = []
        wake = NEVER
        with self._lock:
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
        with self._lock:
            groups, self._topics = list(self._topics.values()), {}
        for _, group in groups:
            self._failed(group, error)

    def _route_all(self, topic: str, group: Sequence[Parked]) -> list[tuple[list[Parked], BarnabasError]]:
        failures = []
        for parked in group:
            try:
                self._route(topic, parked)
            except BarnabasError as error:
                failures.append(([parked], error))
        return failures

    def _give_up(self, topic: str) -> None:
        del self._topics[topic]
        self._view.forget(topic)

    def _late(self, topic: str, error: ErrorCode | None) -> BarnabasError:
        if error is not None:
            return ApiError(error, f"topic {topic} was not there within {self._limit_ms:g} ms")
        why = f"; last: {self._view.last_error}" if self._view.last_error is not None else ""
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no metadata of topic {topic} within {self._limit_ms:g} ms{why}")
