"""Charts as inline SVG: no scripts, no fonts, no network; colours come from the page's style."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, floor, log, log10

from attrs import frozen

from .markup import Markup, escape

HEIGHT = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 40, 10, 24
BUCKETS_MAX = 1500
_BUCKETS_S = (60, 600, 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400, 3650 * 86400)
_BUCKET_NAMES = ("minute", "10 minutes", "hour", "day", "week", "30 days", "year", "decade")
_DAY_S = 86400
_TICKS_S = (
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(_DAY_S * days for days in (1, 2, 7, 14, 28, 56, 112, 224, 448)),
)
"""The distances of labels on an axis of time whose buckets are shorter than a day: midnight is always among them."""
_STEPS_MAX = 5
"""The most steps of a value axis."""


@frozen
class TimeSeries:
    """Values per bucket of time without holes: `starts` are seconds since 1970, one list of values per series name."""

    starts: Sequence[int]
    bucket_s: int
    values: Mapping[str, Sequence[float]]


@frozen
class _Canvas:
    """A drawing for a kind of screen. Type has one size on all of them, so each gets a drawing of its own width."""

    name: str
    width: int
    times_max: int
    bars_max: int
    """More of them become an area."""

    @property
    def plot(self) -> int:
        return self.width - _LEFT - _RIGHT

    @property
    def right(self) -> int:
        return self.width - _RIGHT


_CANVASES = (_Canvas("on-wide", 960, 10, 400), _Canvas("on-narrow", 340, 3, 120))


def bucket_for(span_s: float, count: int = 240) -> int:
    """Return the smallest bucket of time of which about `count` cover the span."""
    return next((size for size in _BUCKETS_S if span_s / size <= count), _BUCKETS_S[-1])


def per_bucket(values: Mapping[str, Mapping[int, float]], buckets_s: Sequence[int] = _BUCKETS_S[2:]) -> TimeSeries:
    """Sum values per second-since-1970 into the smallest buckets that are not too many; absent buckets are 0."""
    times = [time for series in values.values() for time in series]
    if not times:
        return TimeSeries([], buckets_s[0], {name: [] for name in values})
    least, largest = min(times), max(times)
    fitting = (size for size in buckets_s if (largest - least) // size < BUCKETS_MAX)
    size = next(fitting, max(buckets_s[-1], ceil((largest - least) / BUCKETS_MAX)))
    starts = range(least // size * size, largest // size * size + 1, size)
    summed: dict[str, list[float]] = {}
    for name, series in values.items():
        row = [0.0] * len(starts)
        for time, value in series.items():
            row[(time - starts[0]) // size] += value
        summed[name] = row
    return TimeSeries(starts, size, summed)


def bucket_name(bucket_s: int) -> str:
    """3600 → "hour"."""
    return dict(zip(_BUCKETS_S, _BUCKET_NAMES, strict=True)).get(bucket_s, f"{bucket_s} s")


def stacked(series: TimeSeries, *, unit: str = "", title: str = "") -> Markup:
    """Return the series on top of each other, as bars, or as areas when there are many."""
    if not series.starts:
        return Markup('<p class="none">nothing to show</p>')
    totals = [sum(values) for values in zip(*series.values.values(), strict=True)]
    if len(series.starts) == 1:
        values_text = ", ".join(f"{name}: {_exact(values[0], unit)}" for name, values in series.values.items())
        moment = _moment_text(series.starts[0], series.bucket_s)
        return Markup('<p class="single">all within {}: {} UTC · {}</p>').format(
            _within(series.bucket_s), moment, values_text
        )
    step = axis_step(max(totals), unit, whole=all(total == int(total) for total in totals))
    top = max(1, ceil(max(totals) / step - 1e-9)) * step
    ticks = [step * number for number in range(round(top / step) + 1)]

    def draw(canvas: _Canvas) -> list[str]:
        parts = [_frame(canvas, ticks, 0.0, top, unit), _time_axis(canvas, series)]
        below = [0.0] * len(totals)
        shape = _bars if len(totals) <= canvas.bars_max else _area
        for index, values in enumerate(series.values.values()):
            above = [b + v for b, v in zip(below, values, strict=True)]
            parts.append(shape(canvas, below, above, top, index))
            below = above
        if shape is _bars:
            parts.append(_tooltips(canvas, series, totals, unit))
        return parts

    return _drawn(draw, title)


def line(
    times: Sequence[float],
    values: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    *,
    spans: Sequence[tuple[float, float]] = (),
    marks: Sequence[float] = (),
) -> Markup:
    """Return one numeric series: a line of averages in a band from lowest to highest. `times` are seconds since 1970;
    `spans` of time are shaded, `marks` are dots at the top."""
    if not times:
        return Markup('<p class="none">nothing to show</p>')
    least, largest = min(low), max(high)
    margin = (largest - least) * 0.05 or abs(largest) * 0.05 or 1.0
    bottom = 0.0 if 0 <= least <= (largest - least) * 0.5 else least - margin
    top = largest + margin
    first, span = times[0], (times[-1] - times[0]) or 1.0
    scale = HEIGHT - _TOP - _BOTTOM
    step = axis_step(top - bottom, whole=False)
    ticks = [step * number for number in range(ceil(bottom / step - 1e-9), floor(top / step + 1e-9) + 1)]

    def draw(canvas: _Canvas) -> list[str]:
        def place(time: float) -> float:
            return _LEFT + canvas.plot * min(1.0, max(0.0, (time - first) / span))

        def path(values: Sequence[float]) -> list[str]:
            ys = [_TOP + scale * (top - value) / (top - bottom) for value in values]
            return [f"{place(time):.1f},{y:.1f}" for time, y in zip(times, ys, strict=True)]

        parts = [_frame(canvas, ticks, bottom, top, "")]
        parts += [
            f'<rect class="span" x="{place(start):.1f}" y="{_TOP}" width="{max(2.0, place(end) - place(start)):.1f}" '
            f'height="{scale}"/>'
            for start, end in spans
        ]
        parts.append(f'<polygon class="band" points="{" ".join(path(high) + path(low)[::-1])}"/>')
        parts.append(f'<polyline class="line" points="{" ".join(path(values))}"/>')
        parts += [f'<circle class="mark" cx="{place(mark):.1f}" cy="{_TOP + 6}" r="4"/>' for mark in marks]
        for x, time, anchor in ((_LEFT, times[0], "start"), (canvas.right, times[-1], "end")):
            parts.append(f'<text x="{x}" y="{HEIGHT - 6}" text-anchor="{anchor}">{_utc(time):%Y-%m-%d %H:%M:%S}</text>')
        return parts

    return _drawn(draw, "")


def axis_step(span: float, unit: str = "", *, whole: bool) -> float:
    """Return the distance of two labels of an axis: 1, 2 or 5 times a power of ten, of bytes also of 1024, so that at
    most five of them cover the span. `whole`: at least 1, for what is counted.
    """
    if span <= 0:
        return 1.0
    scale = 1024.0 ** floor(log(span, 1024)) if unit == "B" and span >= 1024 else 1.0
    least = span / scale / _STEPS_MAX
    power = 10.0 ** floor(log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999999)
    return scale * step if scale > 1 or not whole else max(1.0, step)


def span_text(series: TimeSeries) -> str:
    """Return the time that the buckets cover: "17 May 2015 10:00 to 20 May 2015 22:00 UTC"; "" without buckets."""
    if not series.starts:
        return ""
    first, last = (_moment_text(start, series.bucket_s) for start in (series.starts[0], series.starts[-1]))
    if first == last:
        return f"{first} UTC"
    day, _, hour = last.rpartition(" ")
    return f"{first} to {hour if series.bucket_s < _DAY_S and first.startswith(day) else last} UTC"


def _moment_text(seconds: float, bucket_s: int) -> str:
    moment = _utc(seconds)
    return f"{moment.day} {moment:%b %Y %H:%M}" if bucket_s < _DAY_S else f"{moment.day} {moment:%b %Y}"


def _exact(value: float, unit: str) -> str:
    return f"{value:,.0f}" if not unit and value == int(value) else compact(value, unit)


def _within(bucket_s: int) -> str:
    name = bucket_name(bucket_s)
    return name if name[0].isdigit() else f"1 {name}"


def compact(value: float, unit: str = "") -> str:
    """1234567 → "1.2 M"; bytes in powers of 1024."""
    if unit == "B":
        for name in ("B", "KiB", "MiB", "GiB", "TiB"):
            if abs(value) < 1024 or name == "TiB":
                return f"{value:.0f} {name}" if name == "B" else f"{value:.1f} {name}"
            value /= 1024
    if abs(value) >= 10_000:
        power = min(4, floor(log10(abs(value)) / 3))
        return f"{value / 1000**power:.3g} {('', 'k', 'M', 'G', 'T')[power]}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def _drawn(draw: Callable[[_Canvas], Sequence[str]], title: str) -> Markup:
    """Return one drawing for each kind of screen; the page's style shows the one that fits."""
    label = f' aria-label="{escape(title)}"' if title else ""
    drawings = []
    for each in _CANVASES:
        opening = f'<svg class="{each.name}" viewBox="0 0 {each.width} {HEIGHT}" role="img"{label}>'
        drawings.append("".join([opening, *draw(each), "</svg>"]))
    return Markup("".join(drawings))


def _frame(canvas: _Canvas, ticks: Sequence[float], bottom: float, top: float, unit: str) -> str:
    lines = []
    for value in ticks:
        y = _TOP + (HEIGHT - _TOP - _BOTTOM) * (top - value) / (top - bottom)
        text = escape(compact(value, unit).replace(".0 ", " "))
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{canvas.right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    return "".join(lines)


def _time_axis(canvas: _Canvas, series: TimeSeries) -> str:
    """Labels at even distances, each below the middle of its bar."""
    count = len(series.starts)
    marks = []
    for index in time_ticks(series, canvas.times_max):
        x = _LEFT + canvas.plot * (index + 0.5) / count
        text = _tick_text(series, series.starts[index])
        marks.append(f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{text}</text>')
    return "".join(marks)


def time_ticks(series: TimeSeries, most: int) -> list[int]:
    """Return the indexes of the buckets that get a label: at even distances, of buckets below a day at round times."""
    starts, size = series.starts, series.bucket_s
    if size >= _DAY_S:
        return [*range(0, len(starts), ceil(len(starts) / most))]
    span = starts[-1] - starts[0]
    fitting = (step for step in _TICKS_S if step % size == 0 and span // step < most)
    step = next(fitting, _TICKS_S[-1])
    return [index for index, start in enumerate(starts) if start % step == 0]


def _tick_text(series: TimeSeries, start: int) -> str:
    moment = _utc(start)
    if series.bucket_s < _DAY_S:
        return f"{moment:%H:%M}" if start % _DAY_S else f"{moment.day} {moment:%b}"
    one_year = _utc(series.starts[0]).year == _utc(series.starts[-1]).year
    return f"{moment.day} {moment:%b}" if one_year else f"{moment.day} {moment:%b %Y}"


def _y(value: float, top: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / top)


def _bars(canvas: _Canvas, below: Sequence[float], above: Sequence[float], top: float, index: int) -> str:
    width = canvas.plot / len(above)
    gap = min(2.0, width * 0.15)
    rects = [
        f'<rect x="{_LEFT + i * width + gap / 2:.2f}" y="{_y(high, top):.2f}" '
        f'width="{width - gap:.2f}" height="{_y(low, top) - _y(high, top):.2f}"/>'
        for i, (low, high) in enumerate(zip(below, above, strict=True))
        if high > low
    ]
    return f'<g class="s{index}">{"".join(rects)}</g>'


def _area(canvas: _Canvas, below: Sequence[float], above: Sequence[float], top: float, index: int) -> str:
    width = canvas.plot / len(above)
    xs = [_LEFT + (i + 0.5) * width for i in range(len(above))]
    upper = [f"{x:.1f},{_y(value, top):.1f}" for x, value in zip(xs, above, strict=True)]
    lower = [f"{x:.1f},{_y(value, top):.1f}" for x, value in zip(xs, below, strict=True)]
    return f'<g class="s{index}"><polygon points="{" ".join(upper + lower[::-1])}"/></g>'


def _tooltips(canvas: _Canvas, series: TimeSeries, totals: Sequence[float], unit: str) -> str:
    width = canvas.plot / len(totals)
    pattern = "%Y-%m-%d %H:%M" if series.bucket_s < 86400 else "%Y-%m-%d"
    spots = []
    for i, start in enumerate(series.starts):
        values_text = [f"{name}: {compact(values[i], unit)}" for name, values in series.values.items()]
        text = escape("\n".join([f"{_utc(start):{pattern}} UTC", *values_text]))
        spots.append(
            f'<rect x="{_LEFT + i * width:.2f}" y="{_TOP}" width="{width:.2f}" '
            f'height="{HEIGHT - _TOP - _BOTTOM}"><title>{text}</title></rect>'
        )
    return f'<g class="spots">{"".join(spots)}</g>'


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
