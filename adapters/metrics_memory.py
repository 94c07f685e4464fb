"""Metrics that a test can read, and that a broker without a dashboard can afford."""

import threading
from collections.abc import Callable, Iterable, Sequence

_Labels = tuple[tuple[str, str], ...]


class _MemoryCounter:
    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        if amount < 0:
            raise ValueError("a counter only grows")
        with self._lock:
            self.value += amount


class _MemoryHistogram:
    def __init__(self) -> None:
        self.values: list[float] = []

    def observe(self, value: float) -> None:
        self.values.append(value)


class _MemoryGauge:
    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read


class MemoryMetrics:
    """Fulfils `Metrics`; `value`, `observed` and `names` read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: dict[tuple[str, _Labels], _MemoryCounter | _MemoryHistogram | _MemoryGauge] = {}
        self._shapes: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._tables: dict[str, tuple[tuple[str, ...], Callable[[], Iterable[tuple[Sequence[str], float]]]]] = {}
        self.descriptions: dict[str, str] = {}

    def counter(self, name: str, description: str, **labels: str) -> _MemoryCounter:
        """Return the counter of this name and these labels. Raises `ValueError` unless the name ends in `_total`."""
        if not name.endswith("_total"):
            raise ValueError(f"the name of a counter ends in _total, unlike {name!r}")
        with self._lock:
            key = self._key("counter", name, description, labels)
            metric = self._metrics.setdefault(key, _MemoryCounter(threading.Lock()))
        assert isinstance(metric, _MemoryCounter)
        return metric

    def histogram(self, name: str, description: str, **labels: str) -> _MemoryHistogram:
        """Return the histogram of this name and these labels."""
        with self._lock:
            metric = self._metrics.setdefault(self._key("histogram", name, description, labels), _MemoryHistogram())
        assert isinstance(metric, _MemoryHistogram)
        return metric

    def gauge(self, name: str, description: str, read: Callable[[], float], **labels: str) -> None:
        """Register a number that is read when asked for."""
        with self._lock:
            self._metrics[self._key("gauge", name, description, labels)] = _MemoryGauge(read)

    def gauges(
        self,
        name: str,
        description: str,
        label_names: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], float]]],
    ) -> None:
        """Register numbers that are read, with their labels, when asked for."""
        with self._lock:
            self._key("gauges", name, description, dict.fromkeys(label_names, ""))
            self._tables[name] = (tuple(label_names), read)

    def forget(self, **labels: str) -> None:
        """Drop every metric that carries all these labels."""
        gone = set(labels.items())
        with self._lock:
            self._metrics = {key: metric for key, metric in self._metrics.items() if not gone <= set(key[1])}

    def value(self, name: str, **labels: str) -> float | None:
        """Return the present value of a counter or gauge, the count of a histogram; None when there is no such
        metric."""
        if name in self._tables:
            label_names, read = self._tables[name]
            found = {_sorted(dict(zip(label_names, each, strict=True))): number for each, number in read()}
            return found.get(_sorted(labels))
        metric = self._metrics.get((name, _sorted(labels)))
        if isinstance(metric, _MemoryHistogram):
            return float(len(metric.values))
        if isinstance(metric, _MemoryGauge):
            return float(metric.read())
        return None if metric is None else metric.value

    def observed(self, name: str, **labels: str) -> list[float]:
        """Return the observations of a histogram, in order; empty if it does not exist."""
        metric = self._metrics.get((name, _sorted(labels)))
        return list(metric.values) if isinstance(metric, _MemoryHistogram) else []

    def names(self) -> set[str]:
        """Return the names of all metrics that exist."""
        return {name for name, _ in self._metrics} | set(self._tables)

    def _key(self, kind: str, name: str, description: str, labels: dict[str, str]) -> tuple[str, _Labels]:
        shape = (kind, tuple(sorted(labels)))
        known = self._shapes.setdefault(name, shape)
        if known != shape:
            raise ValueError(f"{name} is a {known[0]} with the labels {known[1]}, not a {kind} with {shape[1]}")
        self.descriptions.setdefault(name, description)
        return name, _sorted(labels)


def _sorted(labels: dict[str, str]) -> _Labels:
    return tuple(sorted(labels.items()))
