"""`barnabas log stats`: statistics of the logs in a folder, by segment, partition and topic."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....ports.errors import ConfigError
from ....ports.report import counted
from ....ports.values import frozen
from ..options import AsJson, print_json, print_table, progress

if TYPE_CHECKING:
    from ....core.logtools.stats.log_stats import LogStats
    from ....ports.storage import Folder

Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Partition folders, or a broker's data folder.")]
_GRAINS = ("topic", "partition", "segment")
_COLUMNS = ("bytes", "batches", "messages", "bytes/message", "codecs", "keys", "from", "to", "messages/s", "bytes/s")


# The page of `barnabas log stats --html`: one file without external resources, light or dark as the system is.
#
# It looks like the page of `barnabas report`, which needs Spark's dependencies; this one needs the base install only.

_STYLE = """
:root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --ink: #1c2330; --soft: #667085; --rule: #e4e7ec;
  --s0: #3563e9; --s1: #f0a43a; --s2: #2e9e6b; --s3: #a05bd6; --s4: #8a94a6; --bad: #d64545; }
@media (prefers-color-scheme: dark) { :root { --bg: #12151b; --card: #1b2029; --ink: #e6e9ef; --soft: #98a2b3;
  --rule: #2c3340; --s0: #7b9cff; --s1: #ffc069; --s2: #58c795; --s3: #c592f0; --s4: #98a2b3; --bad: #ff7b7b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 28px; margin: 0; } h2 { font-size: 22px; margin: 40px 0 14px; overflow-wrap: anywhere; }
h3 { font-size: 15px; margin: 0 0 10px; } .soft { color: var(--soft); }
.cards { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.card, .panel { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 14px 18px; }
.panel { margin-top: 14px; min-width: 0; overflow-x: auto; }
.card b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; } .card.bad b { color: var(--bad); }
.two { display: grid; gap: 14px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
svg { display: block; width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--soft); }
svg rect { fill: var(--s0); } svg line { stroke: var(--rule); }
.strip { display: flex; height: 26px; border-radius: 8px; overflow: hidden; margin: 6px 0 12px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
table { width: 100%; border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th { text-align: right; color: var(--soft); font-weight: 500; } td { text-align: right; padding: 3px 0 3px 12px; }
td:first-child, th:first-child { text-align: left; padding-left: 0; } tr + tr { border-top: 1px solid var(--rule); }
"""
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 200, 68, 10, 24
_SEGMENTS_MAX = 500
"""Maximum number of rows of a table; the largest are shown."""
_UNITS = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))


@frozen(kw_only=True)
class SegmentRow:
    """The statistics of one segment."""

    topic: str
    partition: int
    segment: str
    figures: "LogStats"


@frozen(kw_only=True)
class Gathered:
    """The statistics by segment, partition and topic; a topic's row has the partition -1."""

    segments: list[SegmentRow]
    partitions: list[SegmentRow]
    topics: list[SegmentRow]


def gather(rows: Iterable[SegmentRow]) -> Gathered:
    """Group the rows. Segments give up the memory of counting, since there may be very many."""
    from ....core.logtools.stats.log_stats import LogStats

    found = Gathered(segments=[], partitions=[], topics=[])
    groups: dict[tuple[str, int], LogStats] = {}
    for row in rows:
        for key, together in (((row.topic, row.partition), found.partitions), ((row.topic, -1), found.topics)):
            if key not in groups:
                groups[key] = LogStats()
                together.append(SegmentRow(topic=row.topic, partition=key[1], segment="", figures=groups[key]))
            groups[key].merge(row.figures)
        row.figures.end()
        found.segments.append(row)
    return found


def codecs_in_words(figures: "LogStats") -> str:
    """Format the codecs by messages, like `lz4 80%, none 20%`."""
    total = figures.codecs.total()
    return ",".join(f"{name}:{100 * count // total}%" for name, count in figures.codecs.most_common() if count)


def moment(timestamp_ms: int) -> str:
    """Format a timestamp in UTC, to the second."""
    from datetime import UTC, datetime

    if timestamp_ms < 0:
        return "-"
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms}ms"


def fields(row: SegmentRow) -> dict[str, object]:
    """Return the JSON object of a row."""
    figures = row.figures
    row_fields: dict[str, object] = {"topic": row.topic}
    if row.partition >= 0:
        row_fields["partition"] = row.partition
    if row.segment:
        row_fields["segment"] = row.segment
    row_fields |= {
        "segments": figures.segments,
        "bytes": figures.bytes,
        "batches": figures.batches,
        "messages": figures.messages,
        "markers": figures.markers,
        "transactional_messages": figures.transactional,
        "damaged_bytes": figures.damaged_bytes,
        "codecs": {
            name: {"messages": count, "bytes": figures.codec_bytes[name]} for name, count in figures.codecs.items()
        },
        "first_timestamp": figures.first_ms,
        "last_timestamp": figures.last_ms,
        "messages_per_second": figures.per_second(figures.messages),
        "bytes_per_second": figures.per_second(figures.bytes),
    }
    if figures.opened:
        row_fields |= {
            "keys": {
                "distinct": figures.keys.estimate(),
                "exact": figures.keys.is_exact,
                "messages_without": figures.without_key,
            },
            "messages_without_value": figures.without_value,
            "content_bytes": figures.content_bytes,
            "largest_message": figures.largest,
            "message_sizes": {f"{lowest(bits)}-{2**bits - 1}": count for bits, count in sorted(figures.sizes.items())},
        }
    return row_fields


def lowest(bits: int) -> int:
    """Return the smallest number with this number of bits."""
    return 1 << bits - 1 if bits else 0


def page(gathered: Gathered) -> str:
    """Return the whole page. All text from the logs is escaped."""
    from ....core.logtools.stats.log_stats import LogStats

    topics, total = gathered.topics, LogStats()
    for topic in topics:
        total.merge(topic.figures)
    made = f"made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by Barnabas · all times in UTC"
    body = [f'<h1>Logs</h1><p class="soft">{made}</p>', _cards(total, len(topics))]
    if topics:
        sizes = [(row.topic, row.figures.bytes) for row in sorted(topics, key=lambda row: -row.figures.bytes)]
        body.append(_panel("Bytes by topic", _bars(sizes[:40], "B")))
    for topic in topics:
        body.append(_section(topic, [row for row in gathered.segments if row.topic == topic.topic]))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Logs · Barnabas</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{_STYLE}</style></head>'
    )
    return f"{head}<body><main>{''.join(body)}</main></body></html>\n"


def _cards(figures: "LogStats", topics: int | None = None) -> str:
    shown: list[tuple[str, str, bool]] = [] if topics is None else [(f"{topics:,}", "topics", False)]
    shown += [
        (f"{figures.segments:,}", "segments", False),
        (short(figures.bytes, "B"), "in segments", False),
        (f"{figures.messages:,}", "messages", False),
    ]
    if figures.opened:
        about = "" if figures.keys.is_exact else "about "
        shown.append((f"{about}{short(figures.keys.estimate())}", "different keys", False))
        shown.append((short(figures.largest, "B"), "the largest message", False))
    rate = figures.per_second(figures.messages)
    if rate is not None:
        shown.append((f"{short(rate)}/s", "messages, by their timestamps", False))
    if figures.damaged_bytes:
        shown.append((short(figures.damaged_bytes, "B"), "damaged", True))
    cells = (f'<div class="card{" bad" * bad}"><b>{value}</b><span>{text}</span></div>' for value, text, bad in shown)
    return f'<div class="cards">{"".join(cells)}</div>'


def _section(topic: SegmentRow, rows: Sequence[SegmentRow]) -> str:
    figures = topic.figures
    parts = [f"<section><h2>{escape(topic.topic)}</h2>", _cards(figures)]
    series = figures.rates.series()
    if len(series) > 1:
        seconds = figures.rates.width_ms / 1000
        each = [(moment(start), messages / seconds) for start, messages, _ in series]
        parts.append(_panel("Messages per second", _columns(each, "/s")))
        each = [(moment(start), size / seconds) for start, _, size in series]
        parts.append(_panel("Bytes per second", _columns(each, "B/s")))
    left = _panel("Codecs, by bytes", _strip(figures.codec_bytes.most_common()))
    sizes = [(_span(bits), count) for bits, count in sorted(figures.sizes.items())]
    right = _panel("Size of messages (key and value, bytes)", _bars(sizes)) if sizes else ""
    parts.append(f'<div class="two">{left}{right}</div>')
    parts.append(_table(rows))
    return "".join([*parts, "</section>"])


def _span(bits: int) -> str:
    return f"{short(lowest(bits))} to {short(2**bits - 1)}" if bits > 1 else str(lowest(bits))


def _panel(title: str, content: str) -> str:
    return f'<div class="panel"><h3>{escape(title)}</h3>{content}</div>'


def _table(rows: Sequence[SegmentRow]) -> str:
    shown = sorted(rows, key=lambda row: -row.figures.bytes)[:_SEGMENTS_MAX]
    shown.sort(key=lambda row: (row.partition, row.segment))
    lines = []
    for row in shown:
        figures = row.figures
        keys = short(figures.keys.estimate()) if figures.opened else "-"
        cells = [
            f"{row.partition} / {row.segment}",
            short(figures.bytes, "B"),
            f"{figures.messages:,}",
            keys,
            codecs_in_words(figures).replace(",", ", ") or "-",
            moment(figures.first_ms),
            moment(figures.last_ms),
        ]
        lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    heads = ("partition / segment", "size", "messages", "keys", "codecs", "from", "to")
    head = "".join(f"<th>{each}</th>" for each in heads)
    more = f"; the {_SEGMENTS_MAX} largest of {len(rows)}" if len(rows) > _SEGMENTS_MAX else ""
    return _panel(f"Segments{more}", f"<table><tr>{head}</tr>{''.join(lines)}</table>")


def _strip(shares: Sequence[tuple[str, int]]) -> str:
    parts, legend = [], []
    total = sum(count for _, count in shares) or 1
    for number, (name, count) in enumerate(shares):
        colour = f"background: var(--s{min(number, 4)})"
        label = f"{escape(name)}: {short(count, 'B')} ({100 * count / total:.1f} %)"
        parts.append(f'<div style="flex: {count}; {colour}" title="{label}"></div>')
        legend.append(f'<span><i style="{colour}"></i>{label}</span>')
    return f'<div class="strip">{"".join(parts)}</div><div class="legend">{"".join(legend)}</div>'


def _columns(values: Sequence[tuple[str, float]], unit: str) -> str:
    """Draw vertical bars over time."""
    top = max(value for _, value in values) or 1.0
    step = (_WIDTH - _LEFT) / len(values)
    height = _HEIGHT - _TOP - _BOTTOM
    parts = [_rule(_TOP, short(top, unit)), _rule(_TOP + height / 2, short(top / 2, unit)), _rule(_TOP + height, "0")]
    for number, (name, value) in enumerate(values):
        tall = height * value / top
        selection = f'x="{_LEFT + number * step:.1f}" y="{_TOP + height - tall:.1f}"'
        size = f'width="{max(step - 1, 0.6):.1f}" height="{tall:.1f}"'
        parts.append(f"<rect {selection} {size}><title>{escape(name)}: {short(value, unit)}</title></rect>")
    ends = ((values[0][0], _LEFT, "start"), (values[-1][0], _WIDTH, "end"))
    for name, x, anchor in ends:
        parts.append(f'<text x="{x}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{escape(name)}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _rule(y: float, text: str) -> str:
    line = f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
    return f'{line}<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{text}</text>'


def _bars(values: Iterable[tuple[str, int]], unit: str = "") -> str:
    """Draw horizontal bars with their names."""
    rows = list(values)
    most = max((count for _, count in rows), default=0) or 1
    parts = []
    for number, (name, count) in enumerate(rows):
        y = number * 24
        parts.append(f'<text x="190" y="{y + 16}" text-anchor="end">{escape(name[:28])}</text>')
        parts.append(f'<rect x="200" y="{y + 3}" width="{640 * count / most:.1f}" height="18" rx="4"/>')
        parts.append(f'<text x="{208 + 640 * count / most:.1f}" y="{y + 16}">{short(count, unit)}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {24 * len(rows)}" role="img">{"".join(parts)}</svg>'


def short(number: float, unit: str = "") -> str:
    """Format a number: `1234567` → `1.23 M`, with the unit."""
    for letter, size in _UNITS:
        if number >= size:
            return f"{number / size:.3g} {letter}{unit}"
    return f"{number:.3g} {unit}".strip() if number != int(number) else f"{int(number)} {unit}".strip()


def stats(
    paths: Folders,
    by: Annotated[str, typer.Option("--by", metavar="GRAIN", help="A row for each topic, partition or segment.")] = (
        "topic"
    ),
    headers_only: Annotated[
        bool, typer.Option("--headers-only", help="Open no batch: faster, without keys and sizes of messages.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write a page with charts.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print bytes, rates, keys, codecs and sizes of messages, of a running or stopped broker. Nothing is changed.

    The number of different keys is exact up to 1,024, then off by 2 % or so. Rates are by the messages' timestamps.
    """
    if by not in _GRAINS:
        raise ConfigError(f"--by {by}: give one of {', '.join(_GRAINS)}")
    gathered = gather(_segments(paths, records=not headers_only))
    if html is not None:
        html.write_text(page(gathered), encoding="utf-8")
    rows = {"topic": gathered.topics, "partition": gathered.partitions, "segment": gathered.segments}[by]
    if as_json:
        print_json([fields(row) for row in rows])
    else:
        _show(rows, by)
        if html is not None:
            typer.echo(f"the page is {html}", err=True)


def _segments(paths: Sequence[Path], *, records: bool) -> Iterator[SegmentRow]:
    from ....core.log.names import classic_folder_partition, folder_partition, folder_state
    from ...compose.log_files import open_selection, select_log_dirs

    for selection in select_log_dirs(paths):
        with open_selection(selection, to_write=False) as log_dir, progress("reading", None) as advance:
            for number, name in enumerate(log_dir.folders()):
                partition = folder_partition(name) or classic_folder_partition(name)
                wanted = name in selection.partitions if selection.partitions else partition is not None
                if not wanted or folder_state(name) is not None:
                    continue
                advance(number, label=name)
                topic, index = partition if partition is not None else (name, 0)
                for segment, figures in _figures_of(log_dir.folder(name), records=records):
                    yield SegmentRow(topic=topic, partition=index, segment=segment, figures=figures)


def _figures_of(folder: "Folder", *, records: bool) -> Iterator[tuple[str, "LogStats"]]:
    from ....core.log.names import CLASSIC_SEGMENT_FILE, LOG_SUFFIX, SEGMENT_FILE
    from ....core.logtools.stats.log_stats import batch_figures, classic_figures
    from ....plugins.builtin.codecs import builtin_codecs
    from ....ports.storage import FileMissing

    codecs = builtin_codecs()
    for name, info in sorted(folder.files().items()):
        found, classic = SEGMENT_FILE.fullmatch(name), CLASSIC_SEGMENT_FILE.fullmatch(name)
        is_segment = found is not None and found["kind"] == LOG_SUFFIX and not found["state"]
        if not is_segment and (classic is None or classic["state"]):
            continue
        try:
            file = folder.open(name, create=False)
        except FileMissing:
            continue  # retention has deleted it
        try:
            if is_segment:
                yield name, batch_figures(file, int(name[:20]), codecs, records=records)
            else:
                yield name, classic_figures(file, info.modified_ms, codecs, records=records)
        finally:
            file.close()


# --- output


def _show(rows: Sequence[SegmentRow], by: str) -> None:
    if not rows:
        typer.echo("there are no segments", err=True)
        return
    names = {"topic": ("topic",), "partition": ("topic", "partition"), "segment": ("topic", "partition", "segment")}[by]
    print_table((*names, *_COLUMNS), ([*(getattr(row, name) for name in names), *_cells(row.figures)] for row in rows))
    damaged = sum(row.figures.damaged_bytes for row in rows)
    if damaged:
        typer.echo(
            f"{counted(damaged, 'byte is', 'bytes are')} damaged and not counted; see 'barnabas log verify'",
            err=True,
        )


def _cells(figures: "LogStats") -> list[object]:
    about = "" if figures.keys.is_exact else "~"
    return [
        figures.bytes,
        figures.batches,
        figures.messages,
        round(figures.bytes / figures.messages) if figures.messages else "-",
        codecs_in_words(figures) or "-",
        f"{about}{figures.keys.estimate()}" if figures.opened else "-",
        moment(figures.first_ms),
        moment(figures.last_ms),
        _rate(figures.per_second(figures.messages)),
        _rate(figures.per_second(figures.bytes)),
    ]


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
