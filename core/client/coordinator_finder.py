"""Lookup of the coordinator of a group or a transactional id, and of the way to reach it."""

from typing import Any

from ...ports.broker_api.groups import GROUP_COORDINATOR, FindCoordinator, FindCoordinatorResult
from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.transport import AuthenticationError
from .cluster_view import COORDINATORS, ClusterView
from .effects import NEVER, Poll, Send, backoff_ms
from .errors import silent

COORDINATOR_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
"""The answers of a broker that is not the coordinator, or not now; the client then looks it up again."""


def is_gone(error: BarnabasError) -> bool:
    """Return True for an error of `COORDINATOR_MOVED`, and for a connection that failed before the answer."""
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
        self.coordinator: int | None = None
        """The node of the coordinator, if that is known."""
        self._needed = False
        self._in_flight = False
        self._asked = 0
        self._failures = 0
        self._not_before_ms = -NEVER
        self.last_error: BarnabasError | None = None
        """The error of the last lookup; None after a success."""
        self._refusal: BarnabasError | None = None

    @property
    def _what(self) -> str:
        return f"{'group' if self._key_type == GROUP_COORDINATOR else 'transactional id'} {self._key}"

    @property
    def failure_reason(self) -> BarnabasError | None:
        """The reason for a wait without success: the last error, or else the broker that was asked and is silent."""
        asked = self.coordinator if self.coordinator is not None else self._asked if self._in_flight else None
        if self.last_error is not None or asked is None:
            return self.last_error or self._view.failure_reason
        return silent(self._view.address(asked))

    def node(self) -> int | None:
        """Return `coordinator`; if it is None, request a lookup."""
        self._needed = self.coordinator is None
        return self.coordinator

    def side_node(self) -> int | None:
        """Return a node that reaches the coordinator over another connection, so that a request need not wait there."""
        if self.coordinator is None:
            return None
        broker = self.coordinator - COORDINATORS
        return self.coordinator if self._view.address(broker) is None else broker

    def reset_backoff(self) -> None:
        """Reset the back-off, because the coordinator has executed a request."""
        self._failures = 0

    def mark_coordinator_unknown(self, error: BarnabasError, now_ms: float) -> None:
        """Look the coordinator up again after a pause: it is unreachable, or says that it is not the coordinator."""
        if self.coordinator is not None:
            self.coordinator = None
            if self._failures:  # the broker that named it may lag
                self._view.try_another()
            self._pause(error, now_ms)

    def take_refusal(self) -> BarnabasError | None:
        """Return the error that makes further lookups useless, if there is one, and clear it."""
        refusal, self._refusal = self._refusal, None
        return refusal

    def poll(self, now_ms: float) -> Poll:
        if not self._needed or self._in_flight or self.coordinator is not None:
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
                self.coordinator = self._view.coordinator(found.node_id, (found.host, found.port))
                self.last_error = None
                self._needed = False
                return
            text = found.error_message or f"the coordinator of {self._what}"
            error: BarnabasError = ApiError(found.error, text)
        elif isinstance(result, BarnabasError):
            error = result
        else:
            error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker returned no coordinator")
        self._view.try_another()
        if isinstance(error, AuthenticationError) or (isinstance(error, ApiError) and not error.retriable):
            self._refusal = error
        self._pause(error, now_ms)

    def _pause(self, error: BarnabasError, now_ms: float) -> None:
        self.last_error = error
        self._failures += 1
        self._not_before_ms = now_ms + backoff_ms(self._failures, *self._backoff, self._entropy.fraction())
