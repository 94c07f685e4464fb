"""Compares each tier with the one before it: what was lost or doubled on the way, message by message.

When is a message that is not there lost, and when only late? A tier says up to when it has counted everything that was
in its source (its reach). What the tier before had counted by then, it must have counted too, whatever the windows'
ages. So nothing is lost because a table is loaded once a day, and what is lost shows before its window has passed.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field

from ..ports.values import frozen
from . import ranges
from .delays import quantile
from .ledger import Ledger, Passed
from .ranges import Level, Range
from .reports import PRODUCER

GRACE_MS = 10_000
"""By so much at most the servers' clocks differ."""


@frozen(kw_only=True)
class Which:
    """Some messages of one instance: numbers from `first` to `last`."""

    instance: str
    first: int
    last: int
    copies: int = 1
    """How many each: of doubled ones, those that are too many."""

    @property
    def messages(self) -> int:
        return (self.last - self.first + 1) * self.copies

    def __str__(self) -> str:
        numbers = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.instance} {numbers}" + (f" x{self.copies}" if self.copies > 1 else "")


@frozen(kw_only=True)
class TierFigures:
    """What a tier made of a window. Delays in ms from a message's time to when it was counted; None = no messages."""

    tier: str
    after: str
    """The tier that it was compared with; "" = the first."""
    count: int
    unstamped: int
    expected: int
    """Messages, each once, that the tier before has counted."""
    arrived: int
    """Those of them that are here."""
    lost: Sequence[Which] = ()
    doubled: Sequence[Which] = ()
    unexpected: Sequence[Which] = ()
    """Here, though they cannot have passed the tier before."""
    pending: int = 0
    """Not here, or here first: too early to say."""
    unconfirmed: int = 0
    """Here, while their producer does not know it, or had no time to tell: it was killed, or got no answer."""
    delay_median_ms: int | None = None
    delay_p99_ms: int | None = None

    @property
    def agrees(self) -> bool:
        return not (self.lost or self.doubled or self.unexpected)

    @property
    def completeness(self) -> float | None:
        """The share of the messages that were to be expected; None where none were."""
        return self.arrived / self.expected if self.expected else None


@frozen(kw_only=True)
class WindowFigures:
    """One topic in one window."""

    topic: str
    start_ms: int
    width_ms: int
    state: str
    """complete, open (something may still come) or wrong."""
    tiers: Sequence[TierFigures]


@frozen(kw_only=True)
class Reconciliation:
    """What the tiers agree on, and what not."""

    windows: Sequence[WindowFigures]
    unclosed: Sequence[str]
    """Instances that have not told that they ended: they live, or were killed."""

    @property
    def agrees(self) -> bool:
        """False if messages were lost or doubled."""
        return all(window.state != "wrong" for window in self.windows)

    @property
    def uncompared(self) -> Mapping[str, str]:
        """Topic → its tiers, of topics that no tier can be compared in: there is none before it that has counted."""
        compared = {window.topic for window in self.windows if any(tier.after for tier in window.tiers)}
        alone = {window.topic: window.tiers for window in self.windows if window.topic not in compared}
        return {topic: ", ".join(tier.tier for tier in tiers) for topic, tiers in alone.items()}

    def messages(self, kind: str) -> int:
        """How many messages are `lost`, `doubled` or `unexpected`, over all windows and tiers."""
        return sum(each.messages for w in self.windows for tier in w.tiers for each in getattr(tier, kind))


def reconcile(
    ledger: Ledger, *, now_ms: int, topics: Iterable[str] = (), since_ms: int = 0, grace_ms: int = GRACE_MS
) -> Reconciliation:
    """Compare all tiers. Raises `ConfigError` for windows that cannot be compared."""
    windows = [
        _window(ledger, topic, start_ms, tiers, now_ms, grace_ms)
        for (topic, start_ms), tiers in ledger.windows(topics=topics, since_ms=since_ms).items()
    ]
    unclosed = sorted(name for name, state in ledger.instances.items() if not state.closed)
    return Reconciliation(windows=windows, unclosed=unclosed)


def _window(
    ledger: Ledger, topic: str, start_ms: int, passed: dict[str, Passed], now_ms: int, grace_ms: int
) -> WindowFigures:
    known = ledger.tiers(topic)
    before = {tier: _before(tier, known, ledger.after) for tier in known}
    order = sorted(known, key=lambda tier: (_depth(tier, before), tier))
    figures = []
    over_ms = start_ms + ledger.width_ms + grace_ms
    is_open = now_ms < over_ms
    for tier in order:
        compared = _Comparison(ledger, topic, tier, before[tier], now_ms=now_ms, grace_ms=grace_ms)
        made = compared.of(passed.get(tier, Passed()), passed.get(before[tier], Passed()))
        is_open |= bool(made.pending) or (bool(before[tier]) and ledger.upto_ms(tier, topic) < over_ms)
        figures.append(made)
    wrong = not all(tier.agrees for tier in figures)
    state = "wrong" if wrong else "open" if is_open else "complete"
    return WindowFigures(topic=topic, start_ms=start_ms, width_ms=ledger.width_ms, state=state, tiers=figures)


def _before(tier: str, known: Sequence[str], after: dict[str, str]) -> str:
    """The nearest tier before this one that has seen the topic; "" = none."""
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
    """One tier with the one before it, in one topic."""

    def __init__(self, ledger: Ledger, topic: str, tier: str, before: str, *, now_ms: int, grace_ms: int) -> None:
        self._ledger = ledger
        self._tier = tier
        self._before = before
        self._from_producer = before == PRODUCER
        self._due_from_ms = ledger.since_ms(tier, topic) + grace_ms if ledger.since_ms(tier, topic) else -1
        self._due_to_ms = ledger.upto_ms(tier, topic) - grace_ms
        known_ms = now_ms if before in ledger.writers else ledger.upto_ms(before, topic)
        self._known_to_ms = known_ms - grace_ms
        """What was counted here until then, the tier before has counted too."""

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
        """What is here without an acknowledgement that its producer has told of."""
        state = self._ledger.instances.get(instance)
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
