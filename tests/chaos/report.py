"""A run as JSON, and as a page to read."""

import html
import json
from collections import Counter
from pathlib import Path
from typing import Any

from attrs import asdict
from chaos.checker import KINDS
from chaos.history import ACKNOWLEDGED, to_fields
from chaos.run import Outcome

WIDTH, HEIGHT, TOP = 1000, 160, 20
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd}"
    ".bad{color:#b00020;font-weight:600}.good{color:#1b7f3b}svg{width:100%;background:#fafafa}code{font-size:13px}"
)


def write(outcome: Outcome, folder: Path) -> Path:
    """Writes report.json, history.json and report.html; returns the last one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(fields_of(outcome), indent=1) + "\n")
    (folder / "history.json").write_text(json.dumps(to_fields(outcome.history)))
    page = folder / "report.html"
    page.write_text(_page(outcome), encoding="utf-8")
    return page


def fields_of(outcome: Outcome) -> dict[str, Any]:
    """Return the verdict, with its causes."""
    return {
        "clean": outcome.verdict.clean,
        "anomalies": dict(outcome.verdict.counts),
        "examples": dict(outcome.verdict.examples),
        "plan": asdict(outcome.plan),
        "figures": outcome.figures,
        "replaced": [each._asdict() for each in outcome.history.replaced],
        "not_replaced": outcome.history.not_replaced,
        "faults": [asdict(fault) for fault in outcome.history.faults],
    }


def add_to_total(outcome: Outcome, total: Path) -> None:
    """Add a run to the running total: by coordination service, and apart with transactions."""
    known = json.loads(total.read_text(encoding="utf-8")) if total.exists() else {}
    name = f"{outcome.plan.over}{', transactions' if outcome.plan.transactions else ''}"
    run = {
        "runs": 1,
        "runs with anomalies": int(not outcome.verdict.clean),
        "seconds": round(outcome.plan.seconds),
        "faults": len(outcome.history.faults),
        "readers replaced": len(outcome.history.replaced),
        "acknowledged": outcome.figures["acknowledged"],
    }
    before = known.get(name, {})
    known[name] = {figure: before.get(figure, 0) + value for figure, value in run.items()}
    total.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n", encoding="utf-8")


def _page(outcome: Outcome) -> str:
    plan, verdict = outcome.plan, outcome.verdict
    total = sum(verdict.counts.values())
    said = '<p class="good">Nothing was wrong.</p>' if verdict.clean else f'<p class="bad">{total} anomalies.</p>'
    kinds = "".join(_kind_row(kind, what, verdict.counts.get(kind, 0)) for kind, what in KINDS.items())
    examples = "".join(
        f"<h3>{kind}</h3><ul>{''.join(f'<li><code>{html.escape(text)}</code></li>' for text in texts)}</ul>"
        for kind, texts in verdict.examples.items()
    )
    figures = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{value}</td></tr>" for name, value in outcome.figures.items()
    )
    faults = "".join(
        f"<tr><td>{fault.begun_s:.1f}</td><td>{fault.ended_s:.1f}</td><td>{fault.name}</td>"
        f"<td>{html.escape(fault.about)}</td></tr>"
        for fault in outcome.history.faults
    )
    replaced = "".join(
        f"<li>{html.escape(each.client)} at {each.at_s:.1f} s: {html.escape(each.why)}"
        f"<details><summary>stacks</summary><pre>{html.escape(each.stacks)}</pre></details></li>"
        for each in outcome.history.replaced
    )
    not_replaced = "".join(f"<li>{html.escape(reason)}</li>" for reason in outcome.history.not_replaced)
    title = f"{plan.brokers} brokers over {plan.over}, {plan.seconds:g} s of faults, seed {plan.seed}"
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>{said}"
        f"<h2>Messages acknowledged in each second, and faults</h2>{_timeline(outcome)}"
        f"<h2>What was looked for</h2><table>{kinds}</table>{examples}"
        f"<h2>Readers replaced (client stood still)</h2><ul>{replaced or '<li>none</li>'}{not_replaced}</ul>"
        f"<h2>Figures</h2><table>{figures}</table>"
        f"<h2>Faults</h2><table><tr><th>from, s</th><th>to, s</th><th>what</th><th>about</th></tr>{faults}</table>\n"
    )


def _kind_row(kind: str, what: str, count: int) -> str:
    return f"<tr><td>{kind}</td><td class={'bad' if count else 'good'}>{count}</td><td>{html.escape(what)}</td></tr>"


def _timeline(outcome: Outcome) -> str:
    history = outcome.history
    rates = Counter(int(send.done_s) for send in history.sends if send.outcome == ACKNOWLEDGED)
    end = max([*rates, *(int(fault.ended_s) for fault in history.faults)], default=0) + 1
    most = max(rates.values(), default=1)
    step = WIDTH / end
    bars = "".join(
        f'<rect x="{second * step:.1f}" y="{TOP + HEIGHT * (1 - count / most):.1f}" width="{step * 0.9:.1f}" '
        f'height="{HEIGHT * count / most:.1f}" fill="#6a9fd8"><title>{second} s: {count}</title></rect>'
        for second, count in sorted(rates.items())
    )
    bands = "".join(
        f'<rect x="{fault.begun_s * step:.1f}" y="0" width="{max(2.0, (fault.ended_s - fault.begun_s) * step):.1f}" '
        f'height="{TOP + HEIGHT}" fill="#b00020" opacity="0.18">'
        f"<title>{fault.name}: {html.escape(fault.about)}</title></rect>"
        for fault in history.faults
    )
    return f'<svg viewBox="0 0 {WIDTH} {TOP + HEIGHT}" preserveAspectRatio="none">{bars}{bands}</svg>'
