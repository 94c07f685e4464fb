"""Which broker coordinates a group, or a transactional id, and how to reach it."""

from typing import Any

from ...ports.broker_api.groups import GROUP_COORDINATOR, FindCoordinator, FindCoordinatorResult
from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from .cluster_view import COORDINATORS, ClusterView
from .effects import NEVER, Poll, Send, backoff_ms
from .errors import silent

COORDINATOR_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
"""What a broker answers that does not coordinate it (any more): ask again which one does."""


def is_gone(error: BarnabasError) -> bool:
    """True for an answer of `COORDINATOR_MOVED`, and where there was none because the connection failed."""
    return error.code in COORDINATOR_MOVED if isinstance(error, ApiError) else True


class CoordinatorFinder:
    """Looks for the coordinator when someone asks for it and it is not known."""

    def __init__(
        self,
        view: ClusterView,
        entropy: Entropy,
        key: str,
        backoff: tuple[float, float],
        *,
        key_type: int = GROUP_COORDINATOR,
    ) -> None:
        """`key`: the group, or (TRANSACTION_COORDINATOR) the transactional id. `backoff`: at first and at most, ms."""
        self._view = view
        self._entropy = entropy
        self._key = key
        self._key_type = key_type
        self._backoff = backoff
        self.known: int | None = None
        """Where to send requests about it, if that is known."""
        self._needed = False
        self._in_flight = False
        self._asked = 0
        self._failures = 0
        self._not_before_ms = -NEVER
        self.last_error: BarnabasError | None = None
        """Why it is not known; None when it is."""
        self._refusal: BarnabasError | None = None

    @property
    def _what(self) -> str:
        return f"{'group' if self._key_type == GROUP_COORDINATOR else 'transactional id'} {self._key}"

    @property
    def trouble(self) -> BarnabasError | None:
        """For who has waited in vain: the last error, or who is asked and says nothing."""
        asked = self.known if self.known is not None else self._asked if self._in_flight else None
        if self.last_error is not None or asked is None:
            return self.last_error or self._view.trouble
        return silent(self._view.address(asked))

    def node(self) -> int | None:
        """`known`; from now on it is looked for if it is not."""
        self._needed = self.known is None
        return self.known

    def side_node(self) -> int | None:
        """The coordinator over another connection, for what must not wait for answers that are due there."""
        if self.known is None:
            return None
        broker = self.known - COORDINATORS
        return self.known if self._view.address(broker) is None else broker

    def worked(self) -> None:
        """The coordinator has done what it was asked."""
        self._failures = 0

    def lost(self, error: BarnabasError, now_ms: float) -> None:
        """The coordinator cannot be reached, or says that it is not the one; look again, after a pause."""
        if self.known is not None:
            self.known = None
            if self._failures:  # who told of it may be behind
                self._view.try_another()
            self._pause(error, now_ms)

    def take_refusal(self) -> BarnabasError | None:
        """Why looking further is no use; told once, before looking again."""
        refusal, self._refusal = self._refusal, None
        return refusal

    def poll(self, now_ms: float) -> Poll:
        if not self._needed or self._in_flight or self.known is not None:
            return Poll([], NEVER)
        if now_ms < self._not_before_ms:
            return Poll([], self._not_before_ms)
        self._in_flight = True
        request = FindCoordinator(keys=[self._key], key_type=self._key_type)
        self._asked = self._view.any_node()
        return Poll([Send(self._asked, request, self._answered)], NEVER)

    def _answered(self, result: Any, now_ms: float) -> None:
        self._in_flight = False
        if isinstance(result, FindCoordinatorResult) and result.coordinators:
            found = result.coordinators[0]
            if found.error is ErrorCode.NONE:
                self.known = self._view.coordinator(found.node_id, (found.host, found.port))
                self.last_error = None
                self._needed = False
                return
            text = found.error_message or f"the coordinator of {self._what}"
            error: BarnabasError = ApiError(found.error, text)
        elif isinstance(result, BarnabasError):
            error = result
        else:
            error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker told no coordinator")
        self._view.try_another()
        if isinstance(error, ApiError) and not error.retriable:
            self._refusal = error
        self._pause(error, now_ms)

    def _pause(self, error: BarnabasError, now_ms: float) -> None:
        self.last_error = error
        self._failures += 1
        self._not_before_ms = now_ms + backoff_ms(self._failures, *self._backoff, self._entropy.fraction())
