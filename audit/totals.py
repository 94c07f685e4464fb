"""The totals of all reports."""

from collections.abc import Iterable
from typing import NamedTuple

from attrs import define, field

from ..ports.errors import ConfigError
from .delays import added
from .ranges import Range
from .reports import PRODUCER, CountReport, InstanceReport, ReachReport, Report, Reporter


class Reported(NamedTuple):
    """Sequences of messages, and the time of their report (ms)."""

    first: int
    last: int
    time_ms: int


@define
class Passed:
    """The messages of one topic and window that one tier has counted."""

    count: int = 0
    unstamped: int = 0
    of_instance: dict[str, list[Reported]] = field(factory=dict)
    failed: dict[str, list[Range]] = field(factory=dict)
    """Messages of a producer without an acknowledgement."""
    delays: dict[int, int] = field(factory=dict)


@define
class _TierProgress:
    """The progress of one tier in one topic."""

    partitions: int = 0
    upto_ms: dict[int, int] = field(factory=dict)
    since_ms: int = 0


@define
class InstanceState:
    """The state of one instance of a producer."""

    last_report_ms: int = 0
    """Time of its last report."""
    closed: bool = False


Window = tuple[str, int]
"""Topic, start in ms."""


class AuditTotals:
    """The sum of all reports, each counted once. Shorter windows are added up to the longest, `width_ms`."""

    def __init__(self) -> None:
        self._seen: dict[str, set[int]] = {}
        self._counts: list[CountReport] = []
        self._progress: dict[tuple[str, str], _TierProgress] = {}
        self.after: dict[str, str] = {}
        """Tier → previous tier."""
        self.writers: set[str] = set()
        """Tiers that count messages when they write them."""
        self.instances: dict[str, InstanceState] = {}

    def add(self, report: Report) -> None:
        origin = report.origin
        seen = self._seen.setdefault(origin.by, set())
        if origin.number in seen:
            return
        seen.add(origin.number)
        self.after[origin.tier] = origin.after
        if origin.writes:
            self.writers.add(origin.tier)
        if isinstance(report, CountReport):
            self._counts.append(report)
            if origin.tier == PRODUCER:
                self._update_instance(origin, closed=False)
        elif isinstance(report, ReachReport):
            self._add_reach(origin.tier, report)
        elif isinstance(report, InstanceReport):
            self._update_instance(origin, closed=report.closed)

    @property
    def width_ms(self) -> int:
        """Return the length of a window. Raises `ConfigError` when those of the tiers do not fit each other."""
        widths = sorted({report.width_ms for report in self._counts})
        longest = widths[-1] if widths else 1
        bad = [width for width in widths if longest % width]
        if bad:
            seconds = " and ".join(f"{width / 1000:g} s" for width in (*bad, longest))
            raise ConfigError(f"tiers use windows of {seconds}; use one length, or multiples (--window)")
        return longest

    def windows(self, *, topics: Iterable[str] = (), since_ms: int = 0) -> dict[Window, dict[str, Passed]]:
        """Return window → tier → counts. `topics`: only these, if any. Raises as `width_ms`."""
        wanted, width = frozenset(topics), self.width_ms
        found: dict[Window, dict[str, Passed]] = {}
        for report in self._counts:
            start = report.window_ms - report.window_ms % width
            if start < since_ms or (wanted and report.topic not in wanted):
                continue
            passed = found.setdefault((report.topic, start), {}).setdefault(report.origin.tier, Passed())
            _add(passed, report)
        return dict(sorted(found.items()))

    @property
    def topics(self) -> list[str]:
        """Return the topics with reports."""
        return sorted({report.topic for report in self._counts} | {topic for _, topic in self._progress})

    def tiers(self, topic: str) -> list[str]:
        """Return the tiers with reports of the topic."""
        counted = {report.origin.tier for report in self._counts if report.topic == topic}
        return sorted(counted | {tier for tier, of in self._progress if of == topic})

    def upto_ms(self, tier: str, topic: str) -> int:
        """Return the time up to which the tier has counted everything in its source; -1 = unknown."""
        progress = self._progress.get((tier, topic))
        if progress is None or len(progress.upto_ms) < progress.partitions or not progress.upto_ms:
            return -1
        return min(progress.upto_ms.values())

    def since_ms(self, tier: str, topic: str) -> int:
        """Return the time before which the source is not covered."""
        progress = self._progress.get((tier, topic))
        return 0 if progress is None else progress.since_ms

    def _add_reach(self, tier: str, report: ReachReport) -> None:
        for topic, reach in report.topics.items():
            progress = self._progress.setdefault((tier, topic), _TierProgress())
            progress.partitions = max(progress.partitions, reach.partitions)
            progress.since_ms = max(progress.since_ms, reach.since_ms)
            for partition, time_ms in reach.upto_ms.items():
                progress.upto_ms[partition] = max(time_ms, progress.upto_ms.get(partition, 0))

    def _update_instance(self, origin: Reporter, *, closed: bool) -> None:
        state = self.instances.setdefault(origin.by, InstanceState())
        state.last_report_ms = max(state.last_report_ms, origin.time_ms)
        state.closed |= closed


def _add(passed: Passed, report: CountReport) -> None:
    if report.failed:
        passed.failed.setdefault(report.instance, []).extend(report.ranges)
        return
    passed.count += report.count
    if not report.instance:
        passed.unstamped += report.count
        return
    numbers = passed.of_instance.setdefault(report.instance, [])
    numbers += [Reported(first, last, report.origin.time_ms) for first, last in report.ranges]
    passed.delays = added((passed.delays, report.delays))
