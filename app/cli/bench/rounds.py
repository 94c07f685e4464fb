"""Rounds: every side does the same work in turns, and medians with their spread are compared round by round.

Latency is measured at a constant rate of arrivals: the time of a message counts from when it was to be sent, so that a
server that stalls delays the messages of its stall on paper too ("coordinated omission").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from threading import Lock
from typing import Any

from ....ports.errors import BarnabasError
from ....ports.values import define, frozen
from .clients import PATIENCE_S, Client, TimedClient, Workload
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
    """Return our figures beside those of each other side, as the median of the ratios of each round."""
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
