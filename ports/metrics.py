"""Metrics for dashboards."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol


class Counter(Protocol):
    """A number that only grows."""

    def add(self, amount: float = 1.0) -> None: ...


class Histogram(Protocol):
    """A distribution of durations or sizes."""

    def observe(self, value: float) -> None: ...


class Metrics(Protocol):
    """Makes metrics. Asking again for the same name and labels gives the same one. Callable from any thread.

    Names follow Prometheus (`kafka_server_messages_in_total`); label names of one metric are always the same.
    """

    def counter(self, name: str, description: str, **labels: str) -> Counter: ...

    def histogram(self, name: str, description: str, **labels: str) -> Histogram: ...

    def gauge(self, name: str, description: str, read: Callable[[], float], **labels: str) -> None:
        """Register a number that is read on collection; replaces an earlier `read` of the same labels."""
        ...

    def gauges(
        self,
        name: str,
        description: str,
        label_names: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], float]]],
    ) -> None:
        """Register numbers whose labels, in the order of these names, are read on collection, too: for things that come
        and go. Replaces an earlier `read`."""
        ...

    def forget(self, **labels: str) -> None:
        """Drop every metric that carries all these labels (a deleted topic)."""
        ...
