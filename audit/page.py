"""A reconciliation as one self-contained HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..app.pages import render_page
from .reconcile import Reconciliation, WindowFigures
from .view import KINDS, faults, headline, unclosed_text, uncompared_text
from .words import delay_text, moment_text, share_text

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_NAMED_MAX = 500


def render(found: Reconciliation, made_ms: int) -> str:
    """The page as text. Everything that comes from the audit topic is escaped."""
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
        topics={topic: _topic(windows) for topic, windows in topics.items()},
        kinds=KINDS,
        faults=faults(found)[:_NAMED_MAX],
        faults_count=len(faults(found)),
        made=moment_text(made_ms - made_ms % 1000),
    )


def write_page(found: Reconciliation, file: Path, made_ms: int) -> None:
    """The file holds the old page or the new one, whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.tmp")
    draft.write_text(render(found, made_ms), encoding="utf-8")
    draft.replace(file)


def _topic(windows: Sequence[WindowFigures]) -> dict[str, Any]:
    tiers = list(dict.fromkeys(tier.tier for window in windows for tier in window.tiers))
    most = max((tier.count for window in windows for tier in window.tiers), default=0)
    rows = [(window, {tier.tier: tier for tier in window.tiers}) for window in reversed(windows)]
    return {"tiers": tiers, "rows": rows, "most": most or 1}
