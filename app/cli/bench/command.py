"""`barnabas bench`: rates and latencies, with our clients or librdkafka's, alone or compared with other servers.

Every side does the same work in turns, and medians with their spread are compared round by round. Latency is measured
at a constant rate of arrivals: the time of a message counts from when it was to be sent, so that a server that stalls
delays the messages of its stall on paper too ("coordinated omission").

The results become one HTML page: the paper's two figures, and tables. It has inline SVG, no scripts and no links.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from statistics import median
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....ports.errors import BarnabasError, ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition
from ....ports.values import define, frozen
from ..command_config import connection_settings
from ..options import AsJson, open_admin, print_json, print_table, progress
from .clients import PATIENCE_S, Client, TimedClient, Workload
from .servers import MeasuredServer

if TYPE_CHECKING:
    from .clients import TimedClient, Workload
    from .servers import MeasuredServer


POINTS = 50
"""The number of points of a curve."""
_WINDOW = 10
"""The number of points that the rate at a point of a curve is taken over."""
_WARM_UP = 0.1
"""The part of a round that is sent and read before the first one."""
_MARK = 8
"""The bytes of a message that name it, where it is followed to its reader."""


@define(eq=False)
class Side:
    """A client and its server."""

    name: str
    client: Client
    server: MeasuredServer


@frozen
class Measurement:
    """One round of one side. `curve`: megabytes so far, and messages/s since the point before."""

    seconds: float
    messages: int
    cpu_seconds: float | None = None
    curve: Sequence[tuple[float, float]] = ()
    latencies_ms: Sequence[float] = ()
    lost: int = 0
    late_ms: Sequence[float] = ()
    """The delays of the client, which are a part of each latency: on a busy machine its thread waits for a core."""

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


class _Curve:
    def __init__(self, workload: Workload) -> None:
        self._workload, self._lock = workload, Lock()
        self._step = max(1, workload.messages // POINTS)
        self._done = self._at = 0
        self._time = time.perf_counter()
        self.points: list[tuple[float, float]] = []

    def passed(self, more: int) -> None:
        with self._lock:
            self._done += more
            if self._done - self._at >= self._step:
                now = time.perf_counter()
                rate = (self._done - self._at) / max(now - self._time, 1e-9)
                self.points.append((self._done * self._workload.size / 1e6, rate))
                self._at, self._time = self._done, now


def produce(side: Side, workload: Workload) -> Measurement:
    return _transfer(side, workload, side.client.send)


def fetch(side: Side, workload: Workload) -> Measurement:
    """Read what a `produce` has sent."""
    return _transfer(side, workload, side.client.receive)


def _transfer(side: Side, workload: Workload, work: Callable[[int, Callable[[int], None]], None]) -> Measurement:
    cpu = side.server.cpu_seconds()
    curve = _Curve(workload)
    started = time.perf_counter()
    work(workload.messages, curve.passed)
    seconds = time.perf_counter() - started
    return Measurement(seconds, workload.messages, _since(cpu, side.server), curve.points)


def _since(cpu: float | None, server: MeasuredServer) -> float | None:
    now = server.cpu_seconds()
    return None if cpu is None or now is None else now - cpu


def latency(side: Side, workload: Workload, rate: float, seconds: float, *, end_to_end: bool) -> Measurement:
    """Send at a constant rate. A latency is the time from when a message was to be sent until it is acknowledged, or
    until its reader has it (`end_to_end`)."""
    client = side.client
    assert isinstance(client, TimedClient)
    number = max(1, round(rate * seconds))
    intended, sent, arrived = [0.0] * number, [0.0] * number, [0.0] * number
    padding = bytes(max(0, workload.size - _MARK))

    def note(index: int) -> bool:
        arrived[index] = time.perf_counter()
        return index < number - 1

    client.start_timed()
    reader = client.follow(lambda body: note(int.from_bytes(body[:_MARK], "big"))) if end_to_end else None
    cpu = side.server.cpu_seconds()
    start = time.perf_counter() + 0.05
    for index in range(number):
        intended[index] = start + index / rate
        while (early := intended[index] - time.perf_counter()) > 0:
            client.wait(early)
        sent[index] = time.perf_counter()
        acknowledged = _nothing if end_to_end else partial(note, index)
        client.send_one(index.to_bytes(_MARK, "big") + padding, acknowledged)
    client.flush()
    if reader is not None:
        reader.join(PATIENCE_S)
    taken = time.perf_counter() - start
    latencies = sorted((there - due) * 1000 for there, due in zip(arrived, intended, strict=True) if there)
    if not latencies:
        raise BarnabasError(f"{side.name}: no message arrived within {PATIENCE_S:.0f} s")
    late = sorted((at - due) * 1000 for at, due in zip(sent, intended, strict=True))
    return Measurement(taken, number, _since(cpu, side.server), (), latencies, number - len(latencies), late)


def transactions(side: Side, number: int, messages: int) -> Measurement:
    """Run transactions; `messages` of the result counts them."""
    client = side.client
    assert isinstance(client, TimedClient)
    cpu = side.server.cpu_seconds()
    started = time.perf_counter()
    client.transactions(number, messages)
    return Measurement(time.perf_counter() - started, number, _since(cpu, side.server))


def _nothing() -> None:
    """Ignore an acknowledgement."""


Works = Mapping[str, Callable[[Side], Measurement]]
Runs = dict[tuple[str, str], list[Measurement]]
"""By work and side."""


def interleave(sides: Sequence[Side], works: Works, rounds: int, advance: Callable[[int], None]) -> Runs:
    """Let every side do every work in turns, in another order each round."""
    runs: Runs = {(work, side.name): [] for work in works for side in sides}
    for number in range(rounds):
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            for name, work in works.items():
                runs[name, side.name].append(work(side))
        advance(number + 1)
    return runs


def warm_up(sides: Sequence[Side], workload: Workload) -> None:
    for side in sides:
        messages = max(workload.partitions, round(workload.messages * _WARM_UP))
        side.client.send(messages, lambda _: None)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of ordered values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(runs: Runs, workload: Workload) -> list[dict[str, Any]]:
    """Return a row for each work and side: medians, and the range of the rounds."""
    return [_row(work, side, each, workload) for (work, side), each in runs.items()]


def _row(work: str, side: str, runs: Sequence[Measurement], workload: Workload) -> dict[str, Any]:
    row: dict[str, Any] = {"work": work, "side": side, "rounds": len(runs)}
    cpu = [run.cpu_seconds * 1e6 / run.messages for run in runs if run.cpu_seconds is not None]
    if cpu:
        row["cpu_us_per_message"] = round(median(cpu), 2)
    if runs[0].latencies_ms:
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)):
            row[f"{name}_ms"] = _spread([percentile(run.latencies_ms, share) for run in runs], 3)
        if all(run.late_ms for run in runs):
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                row[f"late_{name}_ms"] = _spread([percentile(run.late_ms, share) for run in runs], 3)
        row["lost"] = sum(run.lost for run in runs)
        return row
    row["messages_per_s"] = _spread([run.rate for run in runs], 0)
    if runs[0].curve:
        row["mb_per_s"] = _spread([run.rate * workload.size / 1e6 for run in runs], 1)
        row["curve"] = _middle([run.curve for run in runs])
    return row


def _spread(values: Sequence[float], digits: int) -> dict[str, float]:
    low, middle, high = (round(value, digits or None) for value in (min(values), median(values), max(values)))
    return {"median": middle, "min": low, "max": high}


def _middle(curves: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the curve of the medians; each has its points at the same megabytes, but for the threads of one."""
    smooth = map(_smoothed, curves)
    return [
        (round(points[0][0], 3), round(median(rate for _, rate in points))) for points in zip(*smooth, strict=False)
    ]


def _smoothed(curve: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return the rates over the last `_WINDOW` points: clients get acknowledgements and records many at a time, so that
    the rate from one point to the next is that of a batch, or of waiting for one."""
    points = []
    for index, (megabytes, _) in enumerate(curve):
        window = curve[max(0, index + 1 - _WINDOW) : index + 1]
        points.append((megabytes, len(window) / sum(1 / rate for _, rate in window)))
    return points


def ratios(runs: Runs, ours: str) -> list[dict[str, Any]]:
    """Return our figures and those of each other side, as the median of the ratios of each round."""
    found: list[dict[str, Any]] = []
    for (work, side), theirs in runs.items():
        if side == ours:
            continue
        mine = runs[work, ours]
        pairs = list(zip(mine, theirs, strict=True))
        if theirs[0].latencies_ms:
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                values = [
                    percentile(one.latencies_ms, share) / max(percentile(other.latencies_ms, share), 1e-6)
                    for one, other in pairs
                ]
                found.append({"work": work, "beside": side, "figure": f"{name} latency", **_spread(values, 3)})
        else:
            values = [one.rate / other.rate for one, other in pairs]
            found.append({"work": work, "beside": side, "figure": "rate", **_spread(values, 3)})
        used = [one.cpu_seconds / other.cpu_seconds for one, other in pairs if one.cpu_seconds and other.cpu_seconds]
        if used:
            found.append({"work": work, "beside": side, "figure": "CPU of the server", **_spread(used, 3)})
    return found


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


OURS = "Barnabas"
_TOPIC_PATIENCE_MS = 600_000
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}

bench = typer.Typer(
    help="Measure rates and latencies of a broker, alone or compared with other servers.", invoke_without_command=True
)

Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Default: a new broker in a process of its own."),
]
Messages = Annotated[int, typer.Option("--messages", "-n", min=1, help="Number of messages of a round.")]
Volume = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Bytes of a round in place of --messages, as 10MB or 10GB.")
]
Size = Annotated[int, typer.Option(min=0, help="Size of a message in bytes.")]
Partitions = Annotated[int, typer.Option(min=1, max=10_000, help="Partitions of the topic.")]
Connections = Annotated[int, typer.Option(min=1, max=1_000, help="Producers and consumers at a time.")]
Batch = Annotated[int | None, typer.Option(min=1, metavar="BYTES", help="Largest batch; default: the client's.")]
Compression = Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")]
Acks = Annotated[str, typer.Option(help="all, 1 or 0.")]
Clients = Annotated[str, typer.Option(metavar="KIND", help="own, or librdkafka (confluent-kafka), if installed.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds, in turns where there are several servers.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the results as a page.")]
Rate = Annotated[float, typer.Option(min=0.1, help="Messages per second, at constant distances.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Duration of a round.")]
Cold = Annotated[
    bool, typer.Option("--cold", help="Read from the disk: drop the new broker's files from the page cache.")
]


def register(app: typer.Typer) -> None:
    app.add_typer(bench, name="bench")


@bench.callback()
def both(
    context: typer.Context,
    bootstrap: Bootstrap = None,
    messages: Messages = 500_000,
    size: Size = 200,
    compression: Compression = "none",
    acks: Acks = "all",
    topic: Annotated[str | None, typer.Option(help="Default: a new topic, deleted afterwards.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure rates and latencies of a broker, alone or compared with other servers. Without a
    sub-command: send messages to one partition, read them back, print both rates.

    The rates are those of this machine; compare ratios of one run.
    """
    if context.invoked_subcommand is not None:
        sources = map(context.get_parameter_source, context.params)
        if any(source is not None and source.name == "COMMANDLINE" for source in sources):
            text = f"options of the measurement {context.invoked_subcommand} stand behind its name"
            raise typer.BadParameter(f"{text}: barnabas bench {context.invoked_subcommand} ...")
        return

    workload = _workload(messages, None, size, compression=compression, acks=acks)
    works: Works = {"produce": lambda side: produce(side, workload), "consume": lambda side: fetch(side, workload)}
    with _our_side(bootstrap, workload, "own", topic) as side:
        runs = _measured([side], works, 1, workload)
    found: dict[str, Any] = {"messages": messages, "bytes_each": size}
    for name in works:
        rate = runs[name, side.name][0].rate
        found[f"{name}_messages_per_s"], found[f"{name}_mb_per_s"] = round(rate), round(rate * size / 1e6, 1)
    if as_json:
        print_json(found)
        return
    for name in works:
        rate, megabytes = found[f"{name}_messages_per_s"], found[f"{name}_mb_per_s"]
        typer.echo(f"{name}  {rate:>10,} messages/s  {megabytes:>8,} MB/s")


@bench.command("produce")
def measure_produce(
    bootstrap: Bootstrap = None,
    messages: Messages = 500_000,
    volume: Volume = None,
    size: Size = 200,
    partitions: Partitions = 1,
    connections: Connections = 1,
    batch: Batch = None,
    compression: Compression = "none",
    acks: Acks = "all",
    clients: Clients = "own",
    rounds: Rounds = 3,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Measure the rate of producing, until all messages are acknowledged."""

    workload = _workload(messages, volume, size, partitions, connections, batch, compression, acks)
    _alone(bootstrap, workload, clients, rounds, {"produce": lambda side: produce(side, workload)}, as_json, html)


@bench.command("fetch")
def measure_fetch(
    bootstrap: Bootstrap = None,
    messages: Messages = 500_000,
    volume: Volume = None,
    size: Size = 200,
    partitions: Partitions = 1,
    connections: Connections = 1,
    batch: Batch = None,
    compression: Compression = "none",
    cold: Cold = False,
    clients: Clients = "own",
    rounds: Rounds = 3,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Measure the rate of reading a topic from its beginning."""

    if cold and bootstrap is not None:
        raise ConfigError("--cold needs the files of the broker: leave out --bootstrap")
    workload = _workload(messages, volume, size, partitions, connections, batch, compression, "all")

    def read(side: Side) -> Measurement:
        if cold:
            side.server.drop_cache()
        return fetch(side, workload)

    def prepare(side: Side) -> None:
        produce(side, workload)

    _alone(bootstrap, workload, clients, rounds, {"fetch": read}, as_json, html, prepare)


@bench.command("e2e")
def measure_end_to_end(
    bootstrap: Bootstrap = None,
    rate: Rate = 1_000,
    seconds: Seconds = 5,
    size: Size = 200,
    acks: Acks = "all",
    clients: Clients = "own",
    rounds: Rounds = 3,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Measure the time from when a message is to be sent until its consumer has it, at a constant rate."""
    _latency(bootstrap, rate, seconds, size, acks, clients, rounds, as_json, html, end_to_end=True)


@bench.command("latency")
def measure_latency(
    bootstrap: Bootstrap = None,
    rate: Rate = 1_000,
    seconds: Seconds = 5,
    size: Size = 200,
    acks: Acks = "all",
    clients: Clients = "own",
    rounds: Rounds = 3,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Measure the time from when a message is to be sent until it is acknowledged, at a constant rate."""
    _latency(bootstrap, rate, seconds, size, acks, clients, rounds, as_json, html, end_to_end=False)


def _latency(
    bootstrap: str | None,
    rate: float,
    seconds: float,
    size: int,
    acks: str,
    clients: str,
    rounds: int,
    as_json: bool,
    html: Path | None,
    *,
    end_to_end: bool,
) -> None:

    workload = _workload(max(1, round(rate * seconds)), None, size, acks=acks)
    name = "e2e" if end_to_end else "latency"
    works: Works = {name: lambda side: latency(side, workload, rate, seconds, end_to_end=end_to_end)}
    _alone(bootstrap, workload, clients, rounds, works, as_json, html)


@bench.command("transactions")
def measure_transactions(
    bootstrap: Bootstrap = None,
    number: Annotated[int, typer.Option(min=1, help="Transactions of a round.")] = 300,
    messages: Annotated[int, typer.Option("--messages", "-n", min=1, help="Messages of a transaction.")] = 1,
    size: Size = 200,
    clients: Clients = "own",
    rounds: Rounds = 3,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Measure transactions per second, one after the other."""

    workload = _workload(messages, None, size)
    works: Works = {"transactions": lambda side: transactions(side, number, messages)}
    _alone(bootstrap, workload, clients, rounds, works, as_json, html)


@bench.command("compare")
def compare(
    peer: Annotated[list[str], typer.Option(metavar="NAME", help="kafka, rabbitmq, nats or redis; may be repeated.")],
    bootstrap: Bootstrap = None,
    messages: Messages = 100_000,
    volume: Volume = None,
    size: Size = 200,
    partitions: Partitions = 1,
    connections: Connections = 1,
    batch: Batch = None,
    compression: Compression = "none",
    acks: Acks = "all",
    clients: Clients = "own",
    rate: Rate = 1_000,
    seconds: Seconds = 3,
    rounds: Rounds = 5,
    as_json: AsJson = False,
    html: Html = None,
) -> None:
    """Measure producing and fetching here and with other servers, in turns; latency too where they speak Kafka's
    protocol. Servers that are not installed are left out.

    All servers run at once on this machine. Kafka is the installation in KAFKA_HOME; the others are started by their
    programs, with folders of their own. Ratios are medians of the ratios of each round.
    """
    from .clients import TimedClient
    from .servers import PEERS, NotInstalledError

    if unknown := sorted(set(peer) - PEERS.keys()):
        raise ConfigError(f"--peer {unknown[0]}: known are {', '.join(PEERS)}")
    workload = _workload(messages, volume, size, partitions, connections, batch, compression, acks)
    skipped: list[str] = []
    with ExitStack() as stack:
        sides = [stack.enter_context(_our_side(bootstrap, workload, clients))]
        for name in dict.fromkeys(peer):
            try:
                sides.append(stack.enter_context(_peer_side(name, workload, clients)))
            except NotInstalledError as missing:
                skipped.append(str(missing))
                typer.echo(f"barnabas: {missing}", err=True)
        works: Works = {"produce": lambda side: produce(side, workload), "fetch": lambda side: fetch(side, workload)}
        runs = _measured(sides, works, rounds, workload)
        timed = [side for side in sides if isinstance(side.client, TimedClient)]
        if len(timed) > 1 or len(sides) == 1:
            steady: Works = {"latency": lambda side: latency(side, workload, rate, seconds, end_to_end=False)}
            runs |= _measured(timed, steady, rounds, None)
    _show(runs, workload, rounds, as_json, html, skipped)


def _workload(
    messages: int,
    volume: str | None,
    size: int,
    partitions: int = 1,
    connections: int = 1,
    batch: int | None = None,
    compression: str = "none",
    acks: str = "all",
) -> Workload:
    from .clients import Workload

    if volume is not None:
        messages = max(1, parse_volume(volume) // max(1, size))
    return Workload(
        messages=messages,
        size=size,
        partitions=partitions,
        connections=connections,
        batch_bytes=batch,
        acks=acks,
        compression=compression,
    )


def parse_volume(text: str) -> int:
    """Parse "10MB" → 10,000,000. Raises `ConfigError`."""
    number, unit = text[:-2], _UNITS.get(text[-2:].upper())
    if unit is None or not number.isdigit():
        raise ConfigError(f"--volume {text}: a number with KB, MB or GB is needed, such as 10MB")
    return int(number) * unit


def _alone(
    bootstrap: str | None,
    workload: Workload,
    clients: str,
    rounds: int,
    works: Works,
    as_json: bool,
    html: Path | None,
    prepare: Callable[[Side], None] | None = None,
) -> None:
    with _our_side(bootstrap, workload, clients) as side:
        if prepare is not None:
            prepare(side)
        warm = None if prepare is not None or not {"produce"} & works.keys() else workload
        runs = _measured([side], works, rounds, warm)
    _show(runs, workload, rounds, as_json, html, [])


def _measured(sides: Sequence[Side], works: Works, rounds: int, warm: Workload | None) -> Runs:

    if warm is not None:
        warm_up(sides, warm)
    with progress(" and ".join(works), rounds) as advance:
        return interleave(sides, works, rounds, advance)


@contextmanager
def _our_side(bootstrap: str | None, workload: Workload, clients: str, topic: str | None = None) -> Iterator[Side]:
    from .clients import KINDS
    from .servers import MeasuredServer, barnabas_server, ending_servers

    if clients not in KINDS:
        raise ConfigError(f"--clients {clients}: known are {', '.join(KINDS)}")
    with ExitStack() as stack:
        stack.enter_context(ending_servers())
        server = stack.enter_context(barnabas_server()) if bootstrap is None else MeasuredServer(bootstrap)
        yield Side(
            OURS, stack.enter_context(_of_kafka(server, workload, clients, connection_settings(), topic)), server
        )


@contextmanager
def _peer_side(name: str, workload: Workload, clients: str) -> Iterator[Side]:
    from .servers import PEERS

    said, start, client = PEERS[name]
    with ExitStack() as stack:
        server = stack.enter_context(start())
        if client is None:
            yield Side(said, stack.enter_context(_of_kafka(server, workload, clients, {})), server)
            return
        made = client(server.address, workload)
        stack.callback(made.close)
        yield Side(said, made, server)


@contextmanager
def _of_kafka(
    server: MeasuredServer, workload: Workload, clients: str, settings: Mapping[str, Any], given: str | None = None
) -> Iterator[TimedClient]:
    """Yield a client with the given topic, or with a new one, which is deleted afterwards."""
    from .clients import KINDS

    topic = given or f"bench-{time.time_ns()}"
    # A topic of 10,000 partitions takes half a minute and more on a busy machine.
    with open_admin(server.address, _TOPIC_PATIENCE_MS) as admin, ExitStack() as stack:
        if given is None:
            admin.create_topic(topic, partitions=workload.partitions)
            stack.callback(admin.delete_topics, [topic])
        client = KINDS[clients](server.address, topic, workload, settings)
        stack.callback(client.close)
        client.start = admin.list_offsets({(topic, 0): "latest"})[TopicPartition(topic, 0)]
        yield client


def _show(
    runs: Runs, workload: Workload, rounds: int, as_json: bool, html: Path | None, skipped: Sequence[str]
) -> None:

    cores = os.cpu_count() or 1
    result: dict[str, Any] = {
        "messages": workload.messages,
        "size": workload.size,
        "partitions": workload.partitions,
        "connections": workload.connections,
        "acks": workload.acks,
        "compression": workload.compression,
        "rounds": rounds,
        "machine": f"{platform.system()} {platform.machine()}, {cores} cores, Python {platform.python_version()}",
        "results": figures(runs, workload),
        "ratios": ratios(runs, OURS),
        "skipped": list(skipped),
    }
    if html is not None:
        html.write_text(page(result), encoding="utf-8")
    if as_json:
        print_json(result)
        return
    print_table(("work", "server", "median", "lowest", "highest", "cpu_us"), _lines(result["results"]))
    if result["ratios"]:
        typer.echo("")
        columns = ("work", "beside", "figure", "ratio", "lowest", "highest")
        keys = ("work", "beside", "figure", "median", "min", "max")
        print_table(columns, [[each[key] for key in keys] for each in result["ratios"]])


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    units = {"messages_per_s": "/s", "p50_ms": "ms p50", "p99_ms": "ms p99", "p999_ms": "ms p99.9", "max_ms": "ms max"}
    units |= {"late_p50_ms": "ms sent late p50", "late_p99_ms": "ms sent late p99"}
    for row in rows:
        for key, unit in units.items():
            if key in row:
                low, middle, high = (f"{row[key][name]:,}" for name in ("min", "median", "max"))
                yield row["work"], row["side"], f"{middle} {unit}", low, high, row.get("cpu_us_per_message", "-")
