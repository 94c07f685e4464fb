"""The output of the audit for people and for programs."""

import json

import pytest
from attrs import evolve

from barnabas.audit import view, words
from barnabas.audit.reconcile import Reconciliation, TierFigures, Which, WindowFigures
from barnabas.audit.view import render

LOST = Which(instance="web-1/<a>", first=3, last=5)
PRODUCER = TierFigures(tier="producer", after="", count=10, unstamped=0, expected=0, arrived=0)
BROKER = TierFigures(
    tier="broker",
    after="producer",
    count=8,
    unstamped=1,
    expected=10,
    arrived=7,
    lost=[LOST],
    doubled=[Which(instance="web-1/<a>", first=7, last=7, copies=2)],
    pending=4,
    delay_median_ms=870,
    delay_p99_ms=125_000,
)
WRONG = WindowFigures(topic="views", start_ms=0, width_ms=600_000, state="wrong", tiers=[PRODUCER, BROKER])
FINE = WindowFigures(topic="views", start_ms=600_000, width_ms=600_000, state="open", tiers=[PRODUCER])
GOOD = evolve(WRONG, state="open", tiers=[PRODUCER, evolve(BROKER, lost=[], doubled=[])])


def test_the_terminal_shows_which_messages_are_wrong() -> None:
    overview, which, unclosed = view.sections(Reconciliation(windows=[WRONG, FINE], unclosed=["web-2/b"]))
    assert overview.title == "the tiers do not agree, messages: 3 lost, 2 doubled; windows: 1 open, 1 wrong"
    assert overview.alarm
    rows = [[str(cell) for cell in row] for row in overview.rows]
    assert rows[1] == [
        *("views", "1970-01-01 00:00", "wrong", "broker", "8", "70.00 %", "3", "2", "0", "4", "0", "870 ms", "2.1 min")
    ]
    assert [str(row[-1]) for row in which.rows] == ["web-1/<a> 3-5", "web-1/<a> 7 x2"]
    assert unclosed.title == "1 producer lives, or ended without reporting the last counts: web-2/b"


def test_the_headline_of_nothing_and_of_all_well() -> None:
    assert view.headline(Reconciliation(windows=[], unclosed=[])) == "nothing has been counted yet"
    assert view.headline(Reconciliation(windows=[GOOD, FINE], unclosed=[])) == "all tiers agree; windows: 2 open"


def test_one_tier_alone_is_not_compared() -> None:
    alone = evolve(FINE, topic="orders")
    said = view.headline(Reconciliation(windows=[alone], unclosed=[]))
    assert said == "nothing can be compared yet, only one tier has counted; windows: 1 open"
    both = Reconciliation(windows=[GOOD, FINE, alone], unclosed=[])
    overview, uncompared = view.sections(both)
    assert overview.title == "all tiers agree; windows: 3 open"
    assert uncompared.title == "not compared, only one tier has counted it: orders (producer)"
    assert uncompared.title in render(both, 0)
    assert view.as_tree(both)["uncompared"] == {"orders": "producer"}
    assert view.sections(Reconciliation(windows=[WRONG], unclosed=[]))[0].title.startswith("the tiers do not agree")


def test_the_page_shows_the_same_and_escapes() -> None:
    page = render(Reconciliation(windows=[WRONG, FINE], unclosed=["x"]), 90_000)
    assert "web-1/&lt;a&gt; 3-5" in page
    assert "<a>" not in page
    for text in (
        "70.00 % of producer",
        "3 lost",
        "2 doubled",
        "4 pending",
        "1 without a stamp",
        "p99 2.1 min",
        "00:01:30",
    ):
        assert text in page


def test_programs_get_numbers() -> None:
    tree = json.loads(json.dumps(view.as_tree(Reconciliation(windows=[WRONG], unclosed=[]))))
    assert (tree["agrees"], tree["lost"], tree["doubled"]) == (False, 3, 2)
    assert tree["windows"][0]["tiers"][1]["lost"] == [{"instance": "web-1/<a>", "first": 3, "last": 5, "copies": 1}]


@pytest.mark.parametrize(
    ("delay_ms", "expected"), [(None, "-"), (0, "0 ms"), (4_200, "4.2 s"), (186_000, "3.1 min"), (9_000_000, "2.5 h")]
)
def test_delays_are_shown_with_units(delay_ms: int | None, expected: str) -> None:
    assert words.delay_text(delay_ms) == expected


@pytest.mark.parametrize(("share", "expected"), [(None, "-"), (1, "100 %"), (0.99999, "99.99 %"), (0.5, "50.00 %")])
def test_shares_are_shown_as_percentages(share: float | None, expected: str) -> None:
    assert words.share_text(share) == expected
