"""Bounds of a query: those of its arguments, and those of the statement for offsets, partitions and times."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from .statement import Condition


@frozen(kw_only=True)
class Window:
    """The part of each topic that a query may see. Times in ms since 1970."""

    since_ms: int | None = None
    until_ms: int | None = None
    """The upper bound: up to the first message of that time or later, in each partition."""
    last: int | None = None
    """The number of the newest messages of a topic: no partition needs to be read further back than that."""


@frozen(kw_only=True)
class TopicLimits:
    """The part of one topic that the statement asks for. `partitions` None: all; offsets: start ≤ offset < end."""

    partitions: frozenset[int] | None = None
    start: int = 0
    end: int | None = None
    since_ms: int | None = None


@frozen(kw_only=True)
class Bounds:
    """Offsets of a partition: start ≤ offset < end."""

    start: int
    end: int


def limits_of(conditions: Iterable[tuple[Condition, Sequence[Any]]]) -> TopicLimits:
    """Return the limits of conditions with the values of their constants: whole numbers, or aware datetimes; None:
    unknown.

    A topic's times need not be in order, so there is an offset where what is late enough begins, but none where what is
    early enough ends: an upper bound of `timestamp` sorts out rows, it does not shorten the read.
    """
    partitions: frozenset[int] | None = None
    start, end, since = 0, None, None
    for condition, values in conditions:
        if None in values or not values:
            continue
        least, kind = min(values), condition.comparison
        if condition.column == "timestamp":
            if kind in ("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO", "COMPARE_EQUAL", "COMPARE_IN"):
                since = max(since or 0, int(least.timestamp() * 1000 // 1))
        elif condition.column == "offset":
            low, high = _range(kind, values)
            start = max(start, low)
            end = high if end is None else end if high is None else min(end, high)
        elif kind in ("COMPARE_EQUAL", "COMPARE_IN"):
            partitions = frozenset(values) if partitions is None else partitions & frozenset(values)
    return TopicLimits(partitions=partitions, start=start, end=end, since_ms=since)


def _range(kind: str, values: Sequence[int]) -> tuple[int, int | None]:
    low, high = min(values), max(values)
    return {
        "COMPARE_GREATERTHAN": (low + 1, None),
        "COMPARE_GREATERTHANOREQUALTO": (low, None),
        "COMPARE_LESSTHAN": (0, low),
        "COMPARE_LESSTHANOREQUALTO": (0, low + 1),
    }.get(kind, (low, high + 1))


def bounded(there: Mapping[int, Bounds], limits: TopicLimits, window: Window) -> dict[int, Bounds]:
    """Return the bounds to read per partition, within those that exist, and without empty ones."""
    found = {}
    for partition, bounds in there.items():
        if limits.partitions is not None and partition not in limits.partitions:
            continue
        start = max(bounds.start, limits.start, 0 if window.last is None else bounds.end - window.last)
        end = bounds.end if limits.end is None else min(bounds.end, limits.end)
        if start < end:
            found[partition] = Bounds(start=start, end=end)
    return found
