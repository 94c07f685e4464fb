"""What the log says of single requests: the slow ones, and each one where that is asked for."""

from collections.abc import Callable
from math import inf
from typing import Any

from ...ports.broker_api import Caller, Fetch, JoinGroup, Request, SyncGroup
from ...ports.metrics import Histogram
from ...ports.report import Line, Report, debug, warning
from ...ports.values import frozen


@frozen(kw_only=True)
class CompletedRequest:
    """A request that was answered."""

    api: str
    version: int
    caller: Caller
    size_bytes: int


class RequestLog:
    """Owner thread only. `slow_ms`: a request that took longer than that, beyond what its client wants to wait, is told
    to `slow`; None: none is. `each`: one line for each request, at the level debug."""

    def __init__(
        self,
        *,
        slow: Report,
        each: Report | None,
        slow_ms: float | None,
        now_ms: Callable[[], float],
        times_of: Callable[[str], Histogram] | None = None,
    ) -> None:
        """`times_of` gives, by the name of an API, where the times of its requests are counted, ms; None: nowhere."""
        self.now_ms = now_ms
        self._times_of = times_of
        self.unobserved: list[tuple[str, float]] | None = None if times_of is None else []
        """API and time of requests that `count` has not counted yet: to note one costs a tenth of counting it."""
        self._slow = slow
        self._each = each
        self._slow_ms = inf if slow_ms is None else slow_ms
        self.threshold_ms = -inf if each is not None else self._slow_ms
        """A request that took no longer than this need not be told to `answered`."""

    def observe_times(self) -> None:
        """Count what was noted. To be called now and then."""
        if self.unobserved and self._times_of is not None:
            noted, self.unobserved = self.unobserved, []
            for api, took_ms in noted:
                self._times_of(api).observe(took_ms)

    def on_handled(self, took_ms: float, seen: Callable[[], CompletedRequest]) -> None:
        """The broker's thread was busy with a request that waits for its answer now."""
        if took_ms > self._slow_ms:
            self._slow(_line(seen(), took_ms, warning, "kept the broker busy for"))

    def on_response(self, took_ms: float, patience_ms: float, seen: Callable[[], CompletedRequest]) -> None:
        """A request has its answer."""
        if took_ms - patience_ms > self._slow_ms:
            self._slow(_line(seen(), took_ms, warning, "was slow:"))
        if self._each is not None:
            self._each(_line(seen(), took_ms, debug, "took"))


def client_wait_ms(request: Request[Any]) -> float:
    """How long a request may wait because its client wants it to."""
    if isinstance(request, Fetch):
        return request.max_wait_ms
    return inf if isinstance(request, JoinGroup | SyncGroup) else 0.0


def _line(seen: CompletedRequest, took_ms: float, level: Callable[..., Line], verb: str) -> Line:
    caller = seen.caller
    text = f"{seen.api} v{seen.version} from {caller.client_id or '-'} at {caller.host} on {caller.listener}"
    return level(
        f"{text}, {seen.size_bytes} bytes, {verb} {took_ms:.1f} ms",
        api=seen.api,
        api_version=seen.version,
        client_id=caller.client_id,
        host=caller.host,
        listener=caller.listener,
        connection=caller.connection,
        bytes=seen.size_bytes,
        took_ms=round(took_ms, 3),
    )
