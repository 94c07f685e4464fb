"""Adds up what the tiers have reported."""

from collections.abc import Iterable
from typing import NamedTuple

from attrs import define, field

from ..ports.errors import ConfigError
from .delays import added
from .ranges import Range
from .reports import PRODUCER, CountReport, InstanceReport, ReachReport, Report, Reporter


class Reported(NamedTuple):
    """Numbers of messages, and when they were reported (ms)."""

    first: int
    last: int
    time_ms: int


@define
class Passed:
    """What passed one tier of one topic and window."""

    count: int = 0
    unstamped: int = 0
    of_instance: dict[str, list[Reported]] = field(factory=dict)
    failed: dict[str, list[Range]] = field(factory=dict)
    """Of producers: what is not known to have arrived."""
    delays: dict[int, int] = field(factory=dict)


@define
class _Extent:
    """How far one tier is in one topic."""

    partitions: int = 0
    upto_ms: dict[int, int] = field(factory=dict)
    since_ms: int = 0


@define
class InstanceState:
    """What is known of one instance of a producer."""

    told_ms: int = 0
    """When it was heard of last."""
    closed: bool = False


Window = tuple[str, int]
"""Topic, beginning in ms."""


class Ledger:
    """All reports, each counted once. Windows of different lengths are added up to the longest, `width_ms`."""

    def __init__(self) -> None:
        self._seen: dict[str, set[int]] = {}
        self._counts: list[CountReport] = []
        self._extents: dict[tuple[str, str], _Extent] = {}
        self.after: dict[str, str] = {}
        """Tier → the tier before it."""
        self.writers: set[str] = set()
        """Tiers that count what they write as they write it."""
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
                self._hear_of(origin, closed=False)
        elif isinstance(report, ReachReport):
            self._reached(origin.tier, report)
        elif isinstance(report, InstanceReport):
            self._hear_of(origin, closed=report.closed)

    @property
    def width_ms(self) -> int:
        """The length of a window. Raises `ConfigError` when those of the tiers do not fit each other."""
        widths = sorted({report.width_ms for report in self._counts})
        longest = widths[-1] if widths else 1
        bad = [width for width in widths if longest % width]
        if bad:
            seconds = " and ".join(f"{width / 1000:g} s" for width in (*bad, longest))
            raise ConfigError(f"tiers count in windows of {seconds}; give them one length, or multiples (--window)")
        return longest

    def windows(self, *, topics: Iterable[str] = (), since_ms: int = 0) -> dict[Window, dict[str, Passed]]:
        """Window → tier → what passed. `topics`: only these, if there are any. Raises as `width_ms`."""
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
        """Those that something is known of."""
        return sorted({report.topic for report in self._counts} | {topic for _, topic in self._extents})

    def tiers(self, topic: str) -> list[str]:
        """Those that have something to do with the topic."""
        counted = {report.origin.tier for report in self._counts if report.topic == topic}
        return sorted(counted | {tier for tier, of in self._extents if of == topic})

    def upto_ms(self, tier: str, topic: str) -> int:
        """Everything that was in the tier's source at this time is counted; -1 = not known."""
        extent = self._extents.get((tier, topic))
        if extent is None or len(extent.upto_ms) < extent.partitions or not extent.upto_ms:
            return -1
        return min(extent.upto_ms.values())

    def since_ms(self, tier: str, topic: str) -> int:
        """What was in the source before is not vouched for."""
        extent = self._extents.get((tier, topic))
        return 0 if extent is None else extent.since_ms

    def _reached(self, tier: str, report: ReachReport) -> None:
        for topic, reach in report.topics.items():
            extent = self._extents.setdefault((tier, topic), _Extent())
            extent.partitions = max(extent.partitions, reach.partitions)
            extent.since_ms = max(extent.since_ms, reach.since_ms)
            for partition, time_ms in reach.upto_ms.items():
                extent.upto_ms[partition] = max(time_ms, extent.upto_ms.get(partition, 0))

    def _hear_of(self, origin: Reporter, *, closed: bool) -> None:
        state = self.instances.setdefault(origin.by, InstanceState())
        state.told_ms = max(state.told_ms, origin.time_ms)
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
