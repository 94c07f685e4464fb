"""A limit for log lines of one kind: the first lines of a period are reported, the others only counted."""

from collections.abc import Callable

from ...ports.report import Report
from ...ports.scheduler import Scheduler, Timer

PERIOD_MS = 10_000.0


class LogLineLimit:
    """Reports `lines` at once, then one `summary` of the suppressed lines per period. Owner thread only.

    A period without lines resets the limit.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        report: Report,
        summary: Callable[[int], str],
        *,
        lines: int = 1,
        period_ms: float = PERIOD_MS,
    ) -> None:
        self._scheduler = scheduler
        self._report = report
        self._summary = summary
        self._lines = lines
        self._period_ms = period_ms
        self._reported = self._counted = 0
        self._timer: Timer | None = None

    def report_line(self, line: str) -> None:
        """Report the line, or count it if the limit is reached."""
        if self._reported < self._lines:
            self._reported += 1
            self._report(line)
        else:
            self._counted += 1
        if self._timer is None:
            self._timer = self._scheduler.call_later(self._period_ms, self._period_over)

    def close(self) -> None:
        """Report the count of suppressed lines and stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._counted:
            self._report(self._summary(self._counted))
        self._reported = self._counted = 0

    def _period_over(self) -> None:
        self._timer = None
        counted, self._counted = self._counted, 0
        if counted:
            self._report(self._summary(counted))
            self._timer = self._scheduler.call_later(self._period_ms, self._period_over)
        else:
            self._reported = 0
