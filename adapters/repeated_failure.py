"""A failure that comes again and again, as few lines for the log."""

from collections.abc import Callable
from time import monotonic

from ..ports.report import Report, counted, info

INTERVAL_S = 60.0


class RepeatedFailure:
    """Reports the first `first` failures, then one line per `INTERVAL_S` with the count. One thread at a time."""

    def __init__(self, report: Report, *, first: int = 1, now_s: Callable[[], float] = monotonic) -> None:
        self._report = report
        self._first = first
        self._now_s = now_s
        self._began_s = self._reported_s = 0.0
        self._count = 0

    def failed(self, text: str) -> None:
        """It has failed, once more."""
        now_s = self._now_s()
        if self._count == 0:
            self._began_s = now_s
        self._count += 1
        if self._count <= self._first:
            self._report(text)
        elif now_s - self._reported_s >= INTERVAL_S:
            self._report(f"{text} ({counted(self._count, 'failure')} in {now_s - self._began_s:.0f} s)")
        else:
            return
        self._reported_s = now_s

    def succeeded(self, text: str) -> None:
        """It works; `text` is reported if it had failed."""
        if self._count:
            seconds = self._now_s() - self._began_s
            self._report(info(f"{text}, after {seconds:.1f} s and {counted(self._count, 'failure')}"))
        self._count = 0
