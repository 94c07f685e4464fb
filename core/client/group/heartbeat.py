"""Heartbeats by which the coordinator knows that the member lives, independent of its user's work."""

from collections.abc import Callable
from typing import Any

from ....ports.broker_api.groups import Heartbeat, HeartbeatResult
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ..coordinator_finder import CoordinatorFinder, is_gone
from ..effects import NEVER, Poll, Send
from .events import GroupSettings
from .generation import Generation

HeartbeatErrorCallback = Callable[[ErrorCode, float], None]
"""Takes the coordinator's error for a heartbeat of the present generation; never NONE."""


class HeartbeatRequests:
    """Sends one heartbeat at a time, every `heartbeat.interval.ms`, while it is polled."""

    def __init__(
        self,
        finder: CoordinatorFinder,
        settings: GroupSettings,
        generation: Generation,
        on_error: HeartbeatErrorCallback,
    ) -> None:
        self._finder = finder
        self._settings = settings
        self._generation = generation
        self._on_error = on_error
        self._next_ms = -NEVER
        self._since_ms = -NEVER
        self._turn = 0
        self._in_flight = False

    def start(self, now_ms: float) -> None:
        """Restart the interval, because the coordinator has just heard of the member."""
        self._turn += 1
        self._in_flight = False
        self._since_ms = now_ms
        self._next_ms = now_ms + self._settings.heartbeat_interval_ms

    def stop(self) -> None:
        """Ignore pending responses to heartbeats of the earlier membership."""
        self._turn += 1

    def poll(self, now_ms: float) -> Poll:
        silent_ms = self._since_ms + self._settings.session_timeout_ms
        if now_ms >= silent_ms:
            text = f"it has not answered for session.timeout.ms={self._settings.session_timeout_ms}"
            self._finder.mark_coordinator_unknown(ApiError(ErrorCode.REQUEST_TIMED_OUT, text), now_ms)
            self.start(now_ms)
            self._next_ms = now_ms
            silent_ms = now_ms + self._settings.session_timeout_ms
        if self._in_flight:
            return Poll([], silent_ms)
        if now_ms < self._next_ms:
            return Poll([], min(self._next_ms, silent_ms))
        node = self._finder.node()
        if node is None:
            return Poll([], silent_ms)
        self._in_flight = True
        self._next_ms = now_ms + self._settings.heartbeat_interval_ms
        now = self._generation
        request = Heartbeat(
            group_id=self._settings.group_id,
            generation_id=now.generation_id,
            member_id=now.member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        turn = self._turn
        return Poll([Send(node, request, lambda result, now: self._answered(turn, result, now))], silent_ms)

    def _answered(self, turn: int, result: Any, now_ms: float) -> None:
        if turn != self._turn:
            return
        self._in_flight = False
        error: BarnabasError | None = result if isinstance(result, BarnabasError) else None
        if isinstance(result, HeartbeatResult):
            code = result.error
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                self._since_ms = now_ms
                self._finder.reset_backoff()
            if code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return
            error = ApiError(code, "heartbeat")
        if error is None or is_gone(error):
            self._next_ms = now_ms  # as soon as the coordinator is found
            self._finder.mark_coordinator_unknown(
                error or ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no answer"), now_ms
            )
        elif isinstance(error, ApiError):
            self._on_error(error.code, now_ms)
