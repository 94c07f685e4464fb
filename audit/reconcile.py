"""Compares each tier with the previous one: which messages were lost or duplicated between them.

Whether a missing message is lost or late is decided by the reach of a tier: the time up to which it has counted
everything in its source. It must have counted all that the previous tier had counted by then, whatever the age of the
windows. So nothing is lost because a table is loaded once a day, and a loss shows before its window has ended.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field

from ..ports.values import frozen
from . import ranges
from .delays import quantile
from .ranges import Level, Range
from .reports import PRODUCER
from .totals import AuditTotals, Passed

GRACE_MS = 10_000
"""Maximum clock difference of the servers."""


@frozen(kw_only=True)
class Which:
    """Messages of one instance with the sequences `first` to `last`."""

    instance: str
    first: int
    last: int
    copies: int = 1
    """Number of copies; of duplicated messages, the excess ones."""

    @property
    def messages(self) -> int:
        return (self.last - self.first + 1) * self.copies

    def __str__(self) -> str:
        numbers = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.instance} {numbers}" + (f" x{self.copies}" if self.copies > 1 else "")


@frozen(kw_only=True)
class TierFigures:
    """The result of a tier in a window. Delays in ms from a message's time to its count; None = no messages."""

    tier: str
    after: str
    """The tier that it is compared with; "" for the first one."""
    count: int
    unstamped: int
    expected: int
    """Number of messages, each once, that the previous tier has counted."""
    arrived: int
    """Number of expected messages that have arrived."""
    lost: Sequence[Which] = ()
    doubled: Sequence[Which] = ()
    unexpected: Sequence[Which] = ()
    """Arrived messages that cannot have passed the previous tier."""
    pending: int = 0
    """Missing or early messages that cannot be decided yet."""
    unconfirmed: int = 0
    """Arrived messages without a report of their producer: it was killed, or got no acknowledgement."""
    delay_median_ms: int | None = None
    delay_p99_ms: int | None = None

    @property
    def agrees(self) -> bool:
        return not (self.lost or self.doubled or self.unexpected)

    @property
    def completeness(self) -> float | None:
        """Return the share of the expected messages that have arrived; None if none are expected."""
        return self.arrived / self.expected if self.expected else None


@frozen(kw_only=True)
class WindowFigures:
    """One topic in one window."""

    topic: str
    start_ms: int
    width_ms: int
    state: str
    """complete, open (messages may still arrive) or wrong."""
    tiers: Sequence[TierFigures]


@frozen(kw_only=True)
class Reconciliation:
    """The result of the comparison of all tiers."""

    windows: Sequence[WindowFigures]
    unclosed: Sequence[str]
    """Instances that have not reported their end: they run, or were killed."""

    @property
    def agrees(self) -> bool:
        """Return False if messages were lost or duplicated."""
        return all(window.state != "wrong" for window in self.windows)

    @property
    def uncompared(self) -> Mapping[str, str]:
        """Return topic → tiers, of topics in which no tier has a previous one to compare with."""
        compared = {window.topic for window in self.windows if any(tier.after for tier in window.tiers)}
        alone = {window.topic: window.tiers for window in self.windows if window.topic not in compared}
        return {topic: ", ".join(tier.tier for tier in tiers) for topic, tiers in alone.items()}

    def messages(self, kind: str) -> int:
        """Return the number of `lost`, `doubled` or `unexpected` messages, over all windows and tiers."""
        return sum(each.messages for w in self.windows for tier in w.tiers for each in getattr(tier, kind))


def reconcile(
    totals: AuditTotals, *, now_ms: int, topics: Iterable[str] = (), since_ms: int = 0, grace_ms: int = GRACE_MS
) -> Reconciliation:
    """Compare all tiers. Raises `ConfigError` for windows that cannot be compared."""
    windows = [
        _window(totals, topic, start_ms, tiers, now_ms, grace_ms)
        for (topic, start_ms), tiers in totals.windows(topics=topics, since_ms=since_ms).items()
    ]
    unclosed = sorted(name for name, state in totals.instances.items() if not state.closed)
    return Reconciliation(windows=windows, unclosed=unclosed)


def _window(
    totals: AuditTotals, topic: str, start_ms: int, passed: dict[str, Passed], now_ms: int, grace_ms: int
) -> WindowFigures:
    known = totals.tiers(topic)
    before = {tier: _before(tier, known, totals.after) for tier in known}
    order = sorted(known, key=lambda tier: (_depth(tier, before), tier))
    figures = []
    over_ms = start_ms + totals.width_ms + grace_ms
    is_open = now_ms < over_ms
    for tier in order:
        compared = _Comparison(totals, topic, tier, before[tier], now_ms=now_ms, grace_ms=grace_ms)
        made = compared.of(passed.get(tier, Passed()), passed.get(before[tier], Passed()))
        is_open |= bool(made.pending) or (bool(before[tier]) and totals.upto_ms(tier, topic) < over_ms)
        figures.append(made)
    wrong = not all(tier.agrees for tier in figures)
    state = "wrong" if wrong else "open" if is_open else "complete"
    return WindowFigures(topic=topic, start_ms=start_ms, width_ms=totals.width_ms, state=state, tiers=figures)


def _before(tier: str, known: Sequence[str], after: dict[str, str]) -> str:
    """Return the nearest previous tier that has counted the topic; "" = none."""
    seen = {tier}
    at = after.get(tier, "")
    while at and at not in seen:
        if at in known:
            return at
        seen.add(at)
        at = after.get(at, "")
    return PRODUCER if PRODUCER in known and tier != PRODUCER else ""


def _depth(tier: str, before: dict[str, str]) -> int:
    depth, at = 0, tier
    while before.get(at) and depth <= len(before):
        depth, at = depth + 1, before[at]
    return depth


@define
class _Found:
    lost: list[Which] = field(factory=list)
    doubled: list[Which] = field(factory=list)
    unexpected: list[Which] = field(factory=list)
    pending: int = 0
    unconfirmed: int = 0
    expected: int = 0
    arrived: int = 0


class _Comparison:
    """Compares one tier with the previous one, in one topic."""

    def __init__(self, totals: AuditTotals, topic: str, tier: str, before: str, *, now_ms: int, grace_ms: int) -> None:
        self._totals = totals
        self._tier = tier
        self._before = before
        self._from_producer = before == PRODUCER
        self._due_from_ms = totals.since_ms(tier, topic) + grace_ms if totals.since_ms(tier, topic) else -1
        self._due_to_ms = totals.upto_ms(tier, topic) - grace_ms
        known_ms = now_ms if before in totals.writers else totals.upto_ms(before, topic)
        self._known_to_ms = known_ms - grace_ms
        """The previous tier has counted all messages that were counted here until then."""

    def of(self, here: Passed, above: Passed) -> TierFigures:
        found = _Found()
        for instance in sorted(here.of_instance.keys() | above.of_instance.keys()):
            if self._before:
                self._compare(instance, here, above, found)
            else:
                own = [(each.first, each.last) for each in here.of_instance[instance]]
                found.doubled += _levels_named(instance, ranges.difference((), own).doubled)
        return TierFigures(
            tier=self._tier,
            after=self._before,
            count=here.count,
            unstamped=here.unstamped,
            expected=found.expected,
            arrived=found.arrived,
            lost=found.lost,
            doubled=found.doubled,
            unexpected=found.unexpected,
            pending=found.pending,
            unconfirmed=found.unconfirmed,
            delay_median_ms=quantile(here.delays, 0.5),
            delay_p99_ms=quantile(here.delays, 0.99),
        )

    def _compare(self, instance: str, here: Passed, above: Passed, found: _Found) -> None:
        mine, theirs = here.of_instance.get(instance, []), above.of_instance.get(instance, [])
        expected = [(each.first, each.last) for each in theirs if each.time_ms > self._due_from_ms]
        due = [(r.first, r.last) for r in theirs if self._due_from_ms < r.time_ms < self._due_to_ms]
        all_theirs = [(each.first, each.last) for each in theirs]
        all_mine = [(each.first, each.last) for each in mine]
        missing = ranges.without(expected, all_mine)
        lost = ranges.without(due, all_mine)
        found.expected += ranges.distinct(expected)
        found.arrived += ranges.distinct(expected) - ranges.total(missing)
        found.lost += _named(instance, lost)
        found.pending += ranges.total(missing) - ranges.total(lost)
        if self._from_producer:
            more = ranges.difference(all_theirs, all_mine)
            found.doubled += _levels_named(instance, more.doubled)
            self._unconfirmed(instance, more.extra, above, found)
            return
        known = [(each.first, each.last) for each in mine if each.time_ms < self._known_to_ms]
        more, sure = ranges.difference(all_theirs, all_mine), ranges.difference(all_theirs, known)
        found.doubled += _levels_named(instance, sure.doubled)
        found.unexpected += _named(instance, sure.extra)
        found.pending += ranges.total(more.extra) - ranges.total(sure.extra)
        found.pending += _copies(more.doubled) - _copies(sure.doubled)

    def _unconfirmed(self, instance: str, extra: list[Range], above: Passed, found: _Found) -> None:
        """Handle arrived messages without a reported acknowledgement."""
        state = self._totals.instances.get(instance)
        unexplained = ranges.without(extra, above.failed.get(instance, ()))
        if state is not None and state.closed:
            found.unexpected += _named(instance, unexplained)
            found.unconfirmed += ranges.total(extra) - ranges.total(unexplained)
        else:
            found.unconfirmed += ranges.total(extra)


def _named(instance: str, found: Iterable[Range]) -> list[Which]:
    return [Which(instance=instance, first=first, last=last) for first, last in found]


def _levels_named(instance: str, found: Iterable[Level]) -> list[Which]:
    return [Which(instance=instance, first=first, last=last, copies=copies) for first, last, copies in found]


def _copies(found: Iterable[Level]) -> int:
    return sum((last - first + 1) * copies for first, last, copies in found)
