"""Logging of requests: slow requests, each request at debug level, and connections closed for bad requests."""

from collections.abc import Callable
from functools import partial

from ....core.traffic.log_line_limit import LogLineLimit
from ....core.traffic.request_log import RequestLog
from ....ports.clock import Clock
from ....ports.metrics import Histogram, Metrics
from ....ports.report import Level, Report, counted, to_logger
from ....ports.scheduler import Scheduler, Timer
from ...config import BrokerConfig
from ...logs import is_enabled_for

REQUESTS = "requests"
"""The logger of lines about single requests, `barnabas.requests`. Its level is read at the start."""
LINES_MAX = 20
"""The number of lines of a kind in a row, beyond which they are summarized."""


_COUNT_MS = 500.0


class Watching:
    """Creates the request logs of a broker's servers, and the reports of connections that they close."""

    def __init__(
        self, config: BrokerConfig, scheduler: Scheduler, clock: Clock, report: Report, metrics: Metrics | None
    ) -> None:
        """Create it. `metrics`: receives the times of requests; None: they are not counted."""
        self._config = config
        self._metrics = metrics
        self._counts: list[Callable[[], None]] = []
        self._timer: Timer | None = None
        self._scheduler = scheduler
        self._clock = clock
        self._report = report
        self._floods: list[LogLineLimit] = []

    def report(self, logger: str) -> Report:
        """Return the report of a server, which go to `logger`, for connections that it closes."""
        return self._flood(logger, _left_out)

    def requests(self) -> RequestLog:
        """Return the log of requests for a server."""
        slow_ms = self._config.slow_request_threshold_ms
        each = to_logger(self._report, REQUESTS) if is_enabled_for(REQUESTS, Level.DEBUG) else None
        limit = None if slow_ms < 0 else float(slow_ms)
        slow = self._flood(REQUESTS, _slow_too)
        times_of = None if self._metrics is None else partial(_times_of, self._metrics)
        now_ms = self._clock.monotonic_ms
        watch = RequestLog(slow=slow, each=each, slow_ms=limit, now_ms=now_ms, times_of=times_of)
        if times_of is not None:
            self._counts.append(watch.observe_times)
            if self._timer is None:
                self._count()
        return watch

    def _count(self) -> None:
        for count in self._counts:
            count()
        self._timer = self._scheduler.call_later(_COUNT_MS, self._count)

    def close(self) -> None:
        """Log what was counted and not logged yet."""
        if self._timer is not None:
            self._timer.cancel()
        for flood in self._floods:
            flood.close()

    def _flood(self, logger: str, summary: Callable[[int], str]) -> Report:
        flood = LogLineLimit(self._scheduler, to_logger(self._report, logger), summary, lines=LINES_MAX)
        self._floods.append(flood)
        return flood.report_line


def _times_of(metrics: Metrics, api: str) -> Histogram:
    text = "Milliseconds from the receipt of a request to its answer."
    return metrics.histogram("kafka_network_requestmetrics_totaltimems", text, request=api)


def _left_out(count: int) -> str:
    return counted(count, "more such line was left out", "more such lines were left out")


def _slow_too(count: int) -> str:
    return counted(count, "more request was slow", "more requests were slow")
