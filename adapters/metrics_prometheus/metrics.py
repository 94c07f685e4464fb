"""Metrics that `prometheus_client` writes out.

The library is loaded when metrics are collected for the first time, not at the start. What is counted until then, and
on the way of every request, are the plain numbers of `values`. `merge_metrics` makes one text of those of several
workers.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


_HELP = b"# HELP "
_TYPE = b"# TYPE "


def merge_metrics(texts: Mapping[str, bytes], label: str) -> bytes:
    """Return the metrics of all texts in the text format of Prometheus, each family once.

    `texts`: value of the label → metrics.
    """
    heads: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for value, text in texts.items():
        pair = f'{label}="{value}"'.encode()
        family, known = b"", set(heads)
        for line in text.splitlines():
            if line.startswith((_HELP, _TYPE)):
                family = line[len(_HELP) :].partition(b" ")[0]
                if family not in known:
                    heads.setdefault(family, []).append(line)
            elif line and not line.startswith(b"#"):
                samples.setdefault(family, []).append(_labelled(line, pair))
    lines = [line for family, found in samples.items() for line in (*heads.get(family, ()), *found)]
    return b"\n".join(lines) + b"\n" if lines else b""


def _labelled(sample: bytes, pair: bytes) -> bytes:
    name_end = sample.find(b" ")
    brace = sample.find(b"{", 0, name_end)
    if brace < 0:
        return b"%b{%b}%b" % (sample[:name_end], pair, sample[name_end:])
    comma = b"" if sample[brace + 1 : brace + 2] == b"}" else b","
    return b"%b{%b%b%b" % (sample[:brace], pair, comma, sample[brace + 1 :])


T = TypeVar("T")


# Counters and histograms between two collections: plain numbers, quick to change from any thread.

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BYTES = tuple(float(64 << (2 * step)) for step in range(11))  # 64 B to 64 MiB
_NUMBERS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0, 10_000.0, 100_000.0)


def bounds_for(name: str) -> Sequence[float]:
    """Return the upper bounds of a histogram's buckets, by the unit at the end of its name."""
    if name.endswith("_seconds"):
        return _SECONDS
    if name.endswith(("_ms", "timems")):
        return tuple(bound * 1000.0 for bound in _SECONDS)
    if name.endswith("_bytes"):
        return _BYTES
    return _NUMBERS


class CounterValue:
    """Fulfils `Counter`."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self._lock = Lock()
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        """Grow by `amount`; raises `ValueError` when it is negative."""
        if amount < 0:
            raise ValueError("a counter only grows")
        with self._lock:
            self.value += amount


class HistogramValue:
    """Fulfils `Histogram`."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._lock = Lock()
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count `value` in its bucket."""
        index = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[index] += 1
            self._sum += value

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Return (upper bound, number of values up to it) for each bucket, and the sum of all values."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        bounds = [*(str(bound) for bound in self._bounds), "+Inf"]
        return [(bound, float(count)) for bound, count in zip(bounds, accumulate(counts), strict=True)], total


class GaugesValue:
    """Numbers that are read when they are collected, with their labels."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], Iterable[tuple[Sequence[str], float]]]) -> None:
        self.read = read


class GaugeValue:
    """A number that is read when it is collected."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read


_Value = CounterValue | HistogramValue | GaugeValue | GaugesValue


class _Family:
    """All metrics of one name."""

    def __init__(self, kind: type[_Value], name: str, description: str, label_names: tuple[str, ...]) -> None:
        self.kind = kind
        self.name = name
        self.description = description
        self.label_names = label_names
        self.children: dict[tuple[str, ...], _Value] = {}

    def labels_of(self, labels: dict[str, str]) -> tuple[str, ...]:
        return tuple(labels[name] for name in self.label_names)


class PrometheusMetrics:
    """Fulfils `Metrics`. Ask for a counter once and keep it: its labels are resolved then.

    Use `render` for an endpoint of our own, or give a registry of `prometheus_client` to appear in the pages of a
    process that has one.
    """

    content_type = "text/plain; version=0.0.4; charset=utf-8"
    """The content type of `render`."""

    def __init__(
        self, registry: "CollectorRegistry | None" = None, report: Callable[[str], None] | None = None
    ) -> None:
        """`report` gets a line when a gauge cannot be read, once for each name."""
        self._lock = Lock()
        self._families: dict[str, _Family] = {}
        self._registry = registry
        self._report = report or (lambda _line: None)
        self._reported: set[str] = set()
        if registry is not None:
            registry.register(self)

    # --- Metrics

    def counter(self, name: str, description: str, **labels: str) -> CounterValue:
        """Return the counter of this name and these labels. Raises `ValueError` unless the name ends in `_total`."""
        if not name.endswith("_total"):
            raise ValueError(f"the name of a counter ends in _total, unlike {name!r}")
        value = self._child(CounterValue, name, description, labels, CounterValue)
        assert isinstance(value, CounterValue)
        return value

    def histogram(self, name: str, description: str, **labels: str) -> HistogramValue:
        """Return the histogram of this name and these labels; the unit at the end of the name chooses its buckets."""
        value = self._child(HistogramValue, name, description, labels, lambda: HistogramValue(bounds_for(name)))
        assert isinstance(value, HistogramValue)
        return value

    def gauge(self, name: str, description: str, read: Callable[[], float], **labels: str) -> None:
        """Register a number that is read when the metrics are collected."""
        value = self._child(GaugeValue, name, description, labels, lambda: GaugeValue(read))
        assert isinstance(value, GaugeValue)
        value.read = read

    def gauges(
        self,
        name: str,
        description: str,
        label_names: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], float]]],
    ) -> None:
        """Register numbers that are read, with their labels, when the metrics are collected."""
        with self._lock:
            family = self._families.get(name)
            if family is not None and (family.kind is not GaugesValue or family.label_names != tuple(label_names)):
                raise ValueError(f"{name} is a {family.kind.__name__} with the labels {family.label_names}")
            family = self._families[name] = _Family(GaugesValue, name, description, tuple(label_names))
            family.children[()] = GaugesValue(read)

    def forget(self, **labels: str) -> None:
        """Drop every metric that carries all these labels."""
        with self._lock:
            for family in self._families.values():
                if family.kind is not GaugesValue and labels.keys() <= set(family.label_names):
                    where = [(family.label_names.index(name), value) for name, value in labels.items()]
                    family.children = {
                        key: child
                        for key, child in family.children.items()
                        if any(key[index] != value for index, value in where)
                    }

    def _child(
        self, kind: type[_Value], name: str, description: str, labels: dict[str, str], make: Callable[[], _Value]
    ) -> _Value:
        label_names = tuple(sorted(labels))
        with self._lock:
            family = self._families.get(name)
            if family is None:
                family = self._families[name] = _Family(kind, name, description, label_names)
            if family.kind is not kind or family.label_names != label_names:
                raise ValueError(
                    f"{name} is a {family.kind.__name__} with the labels {family.label_names}, "
                    f"not a {kind.__name__} with {label_names}"
                )
            key = family.labels_of(labels)
            child = family.children.get(key)
            if child is None:
                child = family.children[key] = make()
            return child

    # --- collecting

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus. Reads the gauges: call it on the thread that owns
        them."""
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(self)
            ProcessCollector(registry=self._registry)
        return generate_latest(self._registry)

    def describe(self) -> "list[Metric]":
        """Return nothing in advance: `prometheus_client` asks when we register."""
        return []

    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics as `prometheus_client` wants them."""
        with self._lock:
            families = [(family, list(family.children.items())) for family in self._families.values()]
        for family, children in families:
            if children:
                yield self._collected(family, children)

    def _collected(self, family: _Family, children: list[tuple[tuple[str, ...], _Value]]) -> "Metric":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        names = family.label_names
        if family.kind is CounterValue:
            counters = CounterMetricFamily(family.name, family.description, labels=names)
            for labels, child in children:
                assert isinstance(child, CounterValue)
                counters.add_metric(labels, child.value)
            return counters
        if family.kind is HistogramValue:
            histograms = HistogramMetricFamily(family.name, family.description, labels=names)
            for labels, child in children:
                assert isinstance(child, HistogramValue)
                buckets, total = child.buckets()
                histograms.add_metric(labels, buckets, total)
            return histograms
        gauges = GaugeMetricFamily(family.name, family.description, labels=names)
        for labels, child in children:
            if isinstance(child, GaugesValue):
                rows: list[tuple[Sequence[str], float]] = self._read(family.name, partial(_rows, child), [])
                for found, number in rows:
                    gauges.add_metric(found, number)
            else:
                assert isinstance(child, GaugeValue)
                gauges.add_metric(labels, self._read(family.name, child.read, math.nan))
        return gauges

    def _read(self, name: str, read: Callable[[], T], instead: T) -> T:
        try:
            return read()
        except Exception as error:  # noqa: BLE001  # reported; one bad gauge does not hide the others
            if name not in self._reported:
                self._reported.add(name)
                self._report(f"the gauge {name} cannot be read: {type(error).__name__}: {error}")
            return instead


def _rows(gauges: GaugesValue) -> list[tuple[Sequence[str], float]]:
    return list(gauges.read())
