"""A reconciliation for the terminal, for programs, and as a self-contained HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..app.cli.tables import Section
from ..ports.report import counted
from .reconcile import Reconciliation, TierFigures, Which, WindowFigures
from .words import delay_text, moment_text, share_text

_COLUMNS = (
    *("topic", "window", "state", "tier", "count", "complete", "lost", "doubled", "unexpected", "pending"),
    "unconfirmed",
    "delay",
    "p99",
)
_NAMED_MAX = 100
_PAGE_FAULTS_MAX = 500
_TEMPLATE = Path(__file__).with_name("page.html.j2")
_ALONE = "only one tier has counted"
KINDS = {"lost": "lost before", "doubled": "doubled before", "unexpected": "unexpected in"}


def headline(found: Reconciliation) -> str:
    """Return the summary line."""
    windows = found.windows
    if not windows:
        return "nothing has been counted yet"
    states = {state: sum(window.state == state for window in windows) for state in ("complete", "open", "wrong")}
    parts = [f"{count} {state}" for state, count in states.items() if count]
    faults = [f"{found.messages(kind)} {kind}" for kind in KINDS if found.messages(kind)]
    verdict = "all tiers agree"
    if faults:
        verdict = f"the tiers do not agree, messages: {', '.join(faults)}"
    elif len(found.uncompared) == len({window.topic for window in windows}):
        verdict = f"nothing can be compared yet, {_ALONE}"
    return f"{verdict}; windows: {', '.join(parts)}"


def uncompared_text(found: Reconciliation) -> str:
    """Return the line for topics that cannot be compared."""
    return f"not compared, {_ALONE} it: {', '.join(f'{topic} ({tier})' for topic, tier in found.uncompared.items())}"


def unclosed_text(found: Reconciliation) -> str:
    live = counted(len(found.unclosed), "producer lives", "producers live")
    return f"{live}, or ended without reporting the last counts"


def faults(found: Reconciliation) -> list[tuple[str, WindowFigures, TierFigures, Which]]:
    """Return the faults: kind, window, tier, messages."""
    return [
        (kind, window, tier, which)
        for window in found.windows
        for tier in window.tiers
        for kind in KINDS
        for which in getattr(tier, kind)
    ]


def sections(found: Reconciliation) -> list[Section]:
    rows = [_row(window, tier) for window in found.windows for tier in window.tiers]
    made = [Section(headline(found), _COLUMNS, rows, alarm=not found.agrees)]
    wrong = faults(found)
    if wrong:
        lines = [
            (f"{KINDS[kind]} {tier.tier}", window.topic, moment_text(window.start_ms), which)
            for kind, window, tier, which in wrong[:_NAMED_MAX]
        ]
        more = f" (the first {_NAMED_MAX} of {len(wrong)} ranges; --json has all)" if len(wrong) > _NAMED_MAX else ""
        made.append(Section(f"which messages{more}", ("what", "topic", "window", "instance and numbers"), lines))
    if found.uncompared:
        made.append(Section(uncompared_text(found)))
    if found.unclosed:
        some = ", ".join(found.unclosed[:10]) + (", ..." if len(found.unclosed) > 10 else "")
        made.append(Section(f"{unclosed_text(found)}: {some}"))
    return made


def _row(window: WindowFigures, tier: TierFigures) -> tuple[object, ...]:
    return (
        window.topic,
        moment_text(window.start_ms),
        window.state,
        tier.tier,
        tier.count,
        share_text(tier.completeness),
        *(sum(which.messages for which in getattr(tier, kind)) for kind in KINDS),
        tier.pending,
        tier.unconfirmed,
        delay_text(tier.delay_median_ms),
        delay_text(tier.delay_p99_ms),
    )


def as_tree(found: Reconciliation) -> dict[str, Any]:
    """Return the JSON object; times in ms."""
    return {
        "agrees": found.agrees,
        "lost": found.messages("lost"),
        "doubled": found.messages("doubled"),
        "unexpected": found.messages("unexpected"),
        "uncompared": dict(found.uncompared),
        "unclosed": list(found.unclosed),
        "windows": [
            {
                "topic": window.topic,
                "start": window.start_ms,
                "width": window.width_ms,
                "state": window.state,
                "tiers": [_tier_tree(tier) for tier in window.tiers],
            }
            for window in found.windows
        ],
    }


def _tier_tree(tier: TierFigures) -> dict[str, Any]:
    tree: dict[str, Any] = {"tier": tier.tier, "after": tier.after, "count": tier.count, "unstamped": tier.unstamped}
    tree |= {"expected": tier.expected, "arrived": tier.arrived, "completeness": tier.completeness}
    for kind in KINDS:
        tree[kind] = [
            {"instance": which.instance, "first": which.first, "last": which.last, "copies": which.copies}
            for which in getattr(tier, kind)
        ]
    tree |= {"pending": tier.pending, "unconfirmed": tier.unconfirmed}
    return tree | {"delay_median_ms": tier.delay_median_ms, "delay_p99_ms": tier.delay_p99_ms}


def render(found: Reconciliation, made_ms: int) -> str:
    """Return the page. All text from the audit topic is escaped."""
    from ..app.pages import render_page

    topics: dict[str, list[WindowFigures]] = {}
    for window in found.windows:
        topics.setdefault(window.topic, []).append(window)
    return render_page(
        _TEMPLATE,
        {"moment": moment_text, "delay": delay_text, "share": share_text},
        found=found,
        headline=headline(found),
        unclosed=unclosed_text(found),
        uncompared=uncompared_text(found),
        topics={topic: _page_topic(windows) for topic, windows in topics.items()},
        kinds=KINDS,
        faults=faults(found)[:_PAGE_FAULTS_MAX],
        faults_count=len(faults(found)),
        made=moment_text(made_ms - made_ms % 1000),
    )


def write_page(found: Reconciliation, file: Path, made_ms: int) -> None:
    """Write the file; it has the complete old page or the new one at any time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.tmp")
    draft.write_text(render(found, made_ms), encoding="utf-8")
    draft.replace(file)


def _page_topic(windows: Sequence[WindowFigures]) -> dict[str, Any]:
    tiers = list(dict.fromkeys(tier.tier for window in windows for tier in window.tiers))
    most = max((tier.count for window in windows for tier in window.tiers), default=0)
    rows = [(window, {tier.tier: tier for tier in window.tiers}) for window in reversed(windows)]
    return {"tiers": tiers, "rows": rows, "most": most or 1}
