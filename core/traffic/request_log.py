"""Log lines and time metrics of single requests: of slow ones, or of each one."""

from collections.abc import Callable
from math import inf
from typing import Any

from ...ports.broker_api.envelope import Caller, Request
from ...ports.broker_api.fetch import Fetch
from ...ports.broker_api.groups import JoinGroup, SyncGroup
from ...ports.metrics import Histogram
from ...ports.report import Line, Report, debug, warning
from ...ports.values import frozen


@frozen(kw_only=True)
class CompletedRequest:
    """A request with its response."""

    api: str
    version: int
    caller: Caller
    size_bytes: int


class RequestLog:
    """Reports slow requests. Owner thread only.

    A request that took more than `slow_ms`, without the wait that its client asked for, is reported to `slow`; None
    disables this. `each` gets a debug line for each request.
    """

    def __init__(
        self,
        *,
        slow: Report,
        each: Report | None,
        slow_ms: float | None,
        now_ms: Callable[[], float],
        times_of: Callable[[str], Histogram] | None = None,
    ) -> None:
        """`times_of` returns the histogram (ms) for the name of an API; None: times are not recorded."""
        self.now_ms = now_ms
        self._times_of = times_of
        self.unobserved: list[tuple[str, float]] | None = None if times_of is None else []
        """API and time of requests for `observe_times`: adding to the list costs a tenth of an observation."""
        self._slow = slow
        self._each = each
        self._slow_ms = inf if slow_ms is None else slow_ms
        self.threshold_ms = -inf if each is not None else self._slow_ms
        """Requests that took no longer need no call of `on_response`."""

    def observe_times(self) -> None:
        """Record the collected times in the histograms. Call it periodically."""
        if self.unobserved and self._times_of is not None:
            noted, self.unobserved = self.unobserved, []
            for api, took_ms in noted:
                self._times_of(api).observe(took_ms)

    def on_handled(self, took_ms: float, seen: Callable[[], CompletedRequest]) -> None:
        """Report a request that kept the owner thread busy and whose response is pending."""
        if took_ms > self._slow_ms:
            self._slow(_line(seen(), took_ms, warning, "kept the broker busy for"))

    def on_response(self, took_ms: float, patience_ms: float, seen: Callable[[], CompletedRequest]) -> None:
        """Report a completed request."""
        if took_ms - patience_ms > self._slow_ms:
            self._slow(_line(seen(), took_ms, warning, "was slow:"))
        if self._each is not None:
            self._each(_line(seen(), took_ms, debug, "took"))


def client_wait_ms(request: Request[Any]) -> float:
    """Return how long the client allows a request to wait."""
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
