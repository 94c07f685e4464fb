"""The audit finds the messages that were dropped and duplicated between tiers, exactly."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit.ranges import compact, total
from barnabas.audit.reconcile import GRACE_MS, Reconciliation, TierFigures, Which, reconcile
from barnabas.audit.reports import CountReport, InstanceReport, ReachReport, Report, Reporter, TopicReach
from barnabas.audit.totals import AuditTotals
from barnabas.ports.errors import ConfigError

CHAIN = ("producer", "broker", "mirror", "broker-b", "table")
WIDTH, EARLY, LATE = 1000, 5000, 5000 + 10 * GRACE_MS
Made = tuple[str, int, int]
"""InstanceReport, window, sequence."""


def origin(tier: str, number: int = 0, time_ms: int = EARLY, by: str = "") -> Reporter:
    after = "" if tier == "producer" else CHAIN[CHAIN.index(tier) - 1]
    return Reporter(tier=tier, after=after, by=by or tier, number=number, time_ms=time_ms)


def counts(
    tier: str, passed: Mapping[Made, int], *, time_ms: int = EARLY, first: int = 0, failed: bool = False
) -> list[Report]:
    """Return one report for each window and instance."""
    cells: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for (instance, window, number), copies in passed.items():
        cells.setdefault((instance, window), []).extend([(number, number)] * copies)
    return [
        CountReport(
            origin=origin(tier, first + index, time_ms, by=instance if tier == "producer" else ""),
            topic="t",
            window_ms=window * WIDTH,
            width_ms=WIDTH,
            instance=instance,
            count=total(numbers),
            ranges=compact(numbers),
            delays={5: total(numbers)},
            failed=failed,
        )
        for index, ((instance, window), numbers) in enumerate(sorted(cells.items()))
    ]


def reached(tier: str, upto_ms: int = LATE, **known: int) -> Report:
    topic = TopicReach(partitions=known.get("partitions", 1), upto_ms={0: upto_ms}, since_ms=known.get("since_ms", 0))
    return ReachReport(origin=origin(tier, 10_000), topics={"t": topic})


def closed(*instances: str) -> list[Report]:
    return [InstanceReport(origin=origin("producer", 10_000, by=name), closed=True) for name in instances]


def judged(reports: Sequence[Report], now_ms: int = LATE) -> Reconciliation:
    totals = AuditTotals()
    for report in reports:
        totals.add(report)
    return reconcile(totals, now_ms=now_ms)


def spelled(found: Sequence[Which]) -> Counter[tuple[str, int]]:
    return Counter({(w.instance, n): w.copies for w in found for n in range(w.first, w.last + 1)})


def tier_of(found: Reconciliation, name: str) -> TierFigures:
    (window,) = found.windows
    return next(tier for tier in window.tiers if tier.tier == name)


made = st.sets(st.tuples(st.sampled_from(["web-1", "web-2"]), st.integers(0, 2), st.integers(0, 30)), min_size=1).map(
    lambda found: {(name, window, 100 * window + number) for name, window, number in found}
)


@given(made, st.data())
def test_any_drops_and_doubles_between_tiers_are_found_exactly(messages: set[Made], data: st.DataObject) -> None:
    passed = [dict.fromkeys(messages, 1)]
    lost, doubled = {}, {}
    for tier in CHAIN[1:]:
        there = sorted(passed[-1])
        dropped = data.draw(st.sets(st.sampled_from(there))) if there else set()
        remaining = {each: copies for each, copies in passed[-1].items() if each not in dropped}
        more = data.draw(st.dictionaries(st.sampled_from(sorted(remaining)), st.integers(1, 3))) if remaining else {}
        lost[tier], doubled[tier] = dropped, more
        passed.append({each: copies + more.get(each, 0) for each, copies in remaining.items()})
    reports = [report for tier, here in zip(CHAIN, passed, strict=True) for report in counts(tier, here)]
    reports += [*map(reached, CHAIN[1:]), *closed("web-1", "web-2")]
    found = judged(data.draw(st.permutations(reports + data.draw(st.lists(st.sampled_from(reports))))))
    for tier in CHAIN[1:]:
        of_tier = [figures for window in found.windows for figures in window.tiers if figures.tier == tier]
        assert sum((spelled(f.lost) for f in of_tier), Counter()) == Counter((i, n) for i, _, n in lost[tier])
        extra = {(i, n): copies for (i, _, n), copies in doubled[tier].items()}
        assert sum((spelled(f.doubled) for f in of_tier), Counter()) == extra
        assert not any(f.unexpected or f.pending or f.unconfirmed for f in of_tier)
    assert found.agrees == (not any(lost.values()) and not any(doubled.values()))
    assert not found.unclosed


ONE = {("web-1", 0, n): 1 for n in range(10)}


def test_nothing_is_lost_that_a_tier_has_not_come_to() -> None:
    some = dict.fromkeys(list(ONE)[:6], 1)
    reports = [*counts("producer", ONE, time_ms=50_000), *counts("broker", some)]
    for reach in ([], [reached("broker", 50_000 + GRACE_MS)], [reached("broker", LATE, partitions=2)]):
        found = judged(reports + reach)
        assert (found.windows[0].state, tier_of(found, "broker").pending) == ("open", 4)
        assert found.agrees
    found = judged([*reports, reached("broker", 50_001 + GRACE_MS)])
    assert tier_of(found, "broker").lost == [Which(instance="web-1", first=6, last=9)]
    assert tier_of(found, "broker").completeness == 0.6
    assert not found.agrees


def test_unreported_messages_of_a_killed_producer_are_unconfirmed_not_wrong() -> None:
    reports = [*counts("producer", dict.fromkeys(list(ONE)[:4], 1)), *counts("broker", ONE), reached("broker")]
    found = judged(reports)
    assert found.agrees
    assert found.unclosed == ["web-1"]
    assert tier_of(found, "broker").unconfirmed == 6
    found = judged([*reports, *closed("web-1")])
    assert spelled(tier_of(found, "broker").unexpected) == {("web-1", n): 1 for n in range(4, 10)}
    assert not found.agrees


def test_failed_sends_may_or_may_not_have_arrived() -> None:
    acknowledged, failed = dict.fromkeys(list(ONE)[:4], 1), dict.fromkeys(list(ONE)[4:], 1)
    observed = [*counts("producer", acknowledged), *counts("producer", failed, first=50, failed=True), *closed("web-1")]
    found = judged([*observed, *counts("broker", dict.fromkeys(list(ONE)[:7], 1)), reached("broker")])
    assert found.agrees
    assert tier_of(found, "broker").unconfirmed == 3
    assert found.windows[0].state == "complete"


def test_a_tier_that_is_ahead_of_the_one_before_is_waited_for() -> None:
    copies = {**ONE, ("web-1", 0, 3): 2}
    reports = [*counts("broker", dict.fromkeys(list(ONE)[:5], 1)), *counts("mirror", copies), reached("mirror")]
    found = judged(reports)
    assert found.agrees
    assert tier_of(found, "mirror").pending == 6
    found = judged([*reports, reached("broker")])
    assert spelled(tier_of(found, "mirror").unexpected) == {("web-1", n): 1 for n in range(5, 10)}
    assert spelled(tier_of(found, "mirror").doubled) == {("web-1", 3): 1}


def test_unaudited_tiers_are_skipped() -> None:
    less = dict.fromkeys(list(ONE)[1:], 1)
    found = judged([*counts("producer", ONE), *counts("table", less), reached("table")])
    table = tier_of(found, "table")
    assert (table.after, [str(which) for which in table.lost]) == ("producer", ["web-1 0"])


def test_messages_before_the_start_of_a_tier_are_not_lost() -> None:
    found = judged([*counts("producer", ONE), reached("broker", since_ms=EARLY)])
    assert found.agrees
    assert tier_of(found, "broker").completeness is None
    assert not judged([*counts("producer", ONE), reached("broker", since_ms=0)]).agrees


def test_copies_in_the_first_tier_are_seen_without_another() -> None:
    found = judged(counts("broker", {**ONE, ("web-1", 0, 2): 3}))
    assert [str(which) for which in tier_of(found, "broker").doubled] == ["web-1 2 x2"]


def test_a_window_is_complete_when_all_have_come_past_its_end() -> None:
    reports = [*counts("producer", ONE), *counts("broker", ONE), *closed("web-1")]
    end = WIDTH + GRACE_MS
    assert judged([*reports, reached("broker", end)], now_ms=end).windows[0].state == "complete"
    assert judged([*reports, reached("broker", end)], now_ms=end - 1).windows[0].state == "open"
    assert judged([*reports, reached("broker", end - 1)], now_ms=end).windows[0].state == "open"


def test_windows_of_several_lengths_are_added_up_or_refused() -> None:
    fine = counts("producer", {("web-1", 0, 0): 1, ("web-1", 1, 101): 1, ("web-1", 2, 202): 1})
    coarse = [
        evolve(report, width_ms=2 * WIDTH, window_ms=report.window_ms - report.window_ms % (2 * WIDTH))
        for report in counts("broker", {("web-1", 0, 0): 1, ("web-1", 1, 101): 1, ("web-1", 2, 202): 1})
        if isinstance(report, CountReport)
    ]
    found = judged([*fine, *coarse, reached("broker"), *closed("web-1")])
    assert [(w.start_ms, w.state, w.tiers[1].arrived) for w in found.windows] == [
        (0, "complete", 2),
        (2000, "complete", 1),
    ]
    with pytest.raises(ConfigError, match="windows of"):
        judged([*fine, *(evolve(report, width_ms=1500, origin=origin("mirror")) for report in coarse)])


def test_delays_and_unstamped_messages_are_reported() -> None:
    plain = CountReport(origin=origin("broker", 77), topic="t", window_ms=0, width_ms=WIDTH, count=3)
    found = judged([*counts("broker", ONE), plain])
    broker = tier_of(found, "broker")
    assert (broker.count, broker.unstamped, broker.delay_median_ms, broker.delay_p99_ms) == (13, 3, 5, 5)


def test_a_tier_that_counts_as_it_writes_need_not_be_waited_for() -> None:
    copies = {**ONE, ("web-1", 0, 3): 2}
    table = counts("broker-b", {**copies, ("web-1", 0, 77): 1})
    for writes, found_doubled in ((False, []), (True, ["web-1 3"])):
        mirror = [evolve(each, origin=evolve(each.origin, writes=writes)) for each in counts("mirror", ONE)]
        found = tier_of(judged([*mirror, *table]), "broker-b")
        assert [str(which) for which in found.doubled] == found_doubled
        assert found.pending == (0 if writes else 2)
        assert len(found.unexpected) == int(writes)
