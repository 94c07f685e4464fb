"""The results as one HTML page: the paper's two figures, and tables. Inline SVG, no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

from ....ports.report import counted

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 320, 84, 16, 24, 44
_COLOURS = ("#2266aa", "#cc5522", "#338833", "#885599", "#888800")
_TICKS = 5
_LOGARITHMIC = 20.0
"""The ratio of the highest to the lowest median rate from which the axis is logarithmic."""
_PAPER: Mapping[str, Sequence[tuple[str, float]]] = {
    "produce": (("the paper, batches of 50", 400_000), ("the paper, single messages", 50_000)),
    "fetch": (("the paper", 22_000),),
}
"""The averages of Kreps, Narkhede and Rao (2011, section 5) with messages of 200 bytes, on the machines of then."""
_TITLES = {
    "produce": "Producer: messages per second over the megabytes sent",
    "fetch": "Consumer: messages per second over the megabytes read",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --faint: #ccc }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --paper: #181818; --faint: #444 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 800px;
  margin: 2em auto; padding: 0 1em }
svg { width: 100%; height: auto } svg text { fill: var(--ink); font-size: 12px }
.grid { stroke: var(--faint) } .paper { stroke: var(--ink); stroke-dasharray: 4 4; opacity: .6 }
table { border-collapse: collapse; width: 100% } th, td { text-align: right; padding: .2em .6em }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left }
tr { border-bottom: 1px solid var(--faint) }
"""


def page(result: Mapping[str, Any]) -> str:
    """Return the page of what `barnabas bench ... --json` prints."""
    rows = result["results"]
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>barnabas bench</title><style>{_STYLE}</style>"]
    parts.append(f"<h1>barnabas bench</h1><p>{escape(_described(result))}</p>")
    for work, title in _TITLES.items():
        curves = {row["side"]: row["curve"] for row in rows if row["work"] == work and row.get("curve")}
        if curves:
            parts.append(f"<h2>{escape(title)}</h2>{_chart(curves, _PAPER[work] if result['size'] == 200 else ())}")
    parts.append(_results_table(rows))
    if result["ratios"]:
        parts.append("<h2>Ratios, round by round</h2>")
        parts.append(
            _table(
                ("work", "beside", "figure", "ratio", "rounds"),
                [
                    (each["work"], each["beside"], each["figure"], f"{each['median']:.3g}", _range(each))
                    for each in result["ratios"]
                ],
            )
        )
    parts += [f"<p>{escape(sentence)}</p>" for sentence in result["skipped"]]
    return "\n".join(parts)


def _described(result: Mapping[str, Any]) -> str:
    text = f"{result['messages']:,} messages of {result['size']} bytes a round, "
    text += f"{counted(result['rounds'], 'round')} in turns, "
    text += f"{counted(result['partitions'], 'partition')}, {counted(result['connections'], 'connection')}, "
    text += f"acks={result['acks']}, "
    return text + f"compression {result['compression']}; {result['machine']}. Medians, and the range of the rounds."


def _results_table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    units = {"messages_per_s": "/s", "p50_ms": "ms p50", "p99_ms": "ms p99", "late_p99_ms": "ms sent late p99"}
    for row in rows:
        cpu = str(row.get("cpu_us_per_message", ""))
        for key, unit in units.items():
            if key in row:
                median = f"{row[key]['median']:,} {unit}"
                if key == "messages_per_s" and "mb_per_s" in row:
                    median += f", {row['mb_per_s']['median']:,} MB/s"
                lines.append((row["work"], row["side"], median, _range(row[key]), cpu))
                cpu = ""
    return "<h2>Results</h2>" + _table(("work", "side", "median", "rounds", "CPU µs of the server"), lines)


def _range(spread: Mapping[str, float]) -> str:
    return f"{spread['min']:,} to {spread['max']:,}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    return f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>{body}</table>"


def axis(rates: Sequence[float], medians: Sequence[float]) -> tuple[bool, list[float]]:
    """Return whether the axis of the rates is logarithmic, and its ticks: round numbers from below to above all."""
    low, high = max(1.0, min(rates)), max(1.0, *rates)
    if max(medians) > _LOGARITHMIC * max(1.0, min(medians)):
        return True, [10.0**power for power in range(floor(log10(low)), ceil(log10(high)) + 1)]
    rough = high / _TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return False, [step * number for number in range(ceil(high / step) + 1)]


def _chart(curves: Mapping[str, Sequence[Sequence[float]]], levels: Sequence[tuple[str, float]]) -> str:
    right = max(point[0] for curve in curves.values() for point in curve)
    rates = [point[1] for curve in curves.values() for point in curve] + [rate for _, rate in levels]
    middle = [sorted(point[1] for point in curve)[len(curve) // 2] for curve in curves.values()]
    logarithmic, ticks = axis(rates, middle)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(value: float) -> float:
        return round(_LEFT + wide * value / right, 1)

    def y(value: float) -> float:
        bottom, top = ticks[0], ticks[-1]
        if logarithmic:
            return round(_TOP + high * (1 - log10(max(value, bottom) / bottom) / log10(top / bottom)), 1)
        return round(_TOP + high * (1 - value / top), 1)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 20 * len(curves)}" role="img">']
    for rate in ticks:
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y(rate)}" y2="{y(rate)}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(rate) + 4}" text-anchor="end">{rate:,.0f}</text>')
    for tick in range(_TICKS + 1):
        megabytes = right * tick / _TICKS
        parts.append(f'<text x="{x(megabytes)}" y="{_TOP + high + 18}" text-anchor="middle">{megabytes:,.3g}</text>')
    parts.append(f'<text x="{_LEFT + wide / 2}" y="{_TOP + high + 38}" text-anchor="middle">MB</text>')
    if logarithmic:
        parts.append(f'<text x="{_LEFT}" y="{_TOP + high + 38}">logarithmic rates</text>')
    for name, rate in levels:
        parts.append(f'<line class="paper" x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y(rate)}" y2="{y(rate)}"/>')
        parts.append(f'<text x="{_LEFT + wide}" y="{y(rate) - 4}" text-anchor="end">{escape(name)}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{x(megabytes)},{y(rate)}" for megabytes, rate in curve)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
        line = _HEIGHT + 20 * number
        parts.append(f'<rect x="{_LEFT}" y="{line}" width="14" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + 20}" y="{line + 10}">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])
