"""Sequences of messages as ranges, both ends included. A number in several ranges has as many copies."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Range = tuple[int, int]
Level = tuple[int, int, int]
"""(first, last, copies)."""


class Discrepancy(NamedTuple):
    """The difference of two multisets of numbers, `below` compared with `above`."""

    missing: list[Range]
    """Numbers above, and not below."""
    extra: list[Range]
    """Numbers below, and not above; each once."""
    doubled: list[Level]
    """Numbers with more copies below than above, and more than one: the excess copies."""


def levels(ranges: Iterable[Range]) -> Iterator[Level]:
    """Yield the ranges with the same number of copies: in order, not overlapping, none with 0 copies."""
    edges: dict[int, int] = {}
    for first, last in ranges:
        edges[first] = edges.get(first, 0) + 1
        edges[last + 1] = edges.get(last + 1, 0) - 1
    start, copies = 0, 0
    for at in sorted(edges):
        change = edges[at]
        if not change:
            continue
        if copies:
            yield start, at - 1, copies
        start, copies = at, copies + change


def compact(ranges: Iterable[Range]) -> list[Range]:
    """Return the same multiset in few ranges: all numbers, then the second copies, and so on."""
    layers: list[list[Range]] = []
    for first, last, copies in levels(ranges):
        while len(layers) < copies:
            layers.append([])
        for layer in layers[:copies]:
            if layer and layer[-1][1] == first - 1:
                layer[-1] = (layer[-1][0], last)
            else:
                layer.append((first, last))
    return [each for layer in layers for each in layer]


def difference(above: Iterable[Range], below: Iterable[Range]) -> Discrepancy:
    found = Discrepancy([], [], [])
    for first, last, copies_above, copies_below in _side_by_side(list(levels(above)), list(levels(below))):
        if not copies_below:
            _add(found.missing, first, last)
            continue
        if not copies_above:
            _add(found.extra, first, last)
        too_many = copies_below - max(1, copies_above)
        if too_many > 0:
            found.doubled.append((first, last, too_many))
    return found


def without(ranges: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """Return the numbers of `ranges`, each once, that are not in `taken`."""
    return difference(ranges, taken).missing


def total(ranges: Iterable[Range]) -> int:
    """Return the number of messages, copies included."""
    return sum(last - first + 1 for first, last in ranges)


def distinct(ranges: Iterable[Range]) -> int:
    """Return the number of messages, each counted once."""
    return sum(last - first + 1 for first, last, _ in levels(ranges))


def _add(ranges: list[Range], first: int, last: int) -> None:
    if ranges and ranges[-1][1] == first - 1:
        ranges[-1] = (ranges[-1][0], last)
    else:
        ranges.append((first, last))


def _side_by_side(above: Sequence[Level], below: Sequence[Level]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (first, last, copies above, copies below) in order, where there are any."""
    edges: dict[int, list[int]] = {}
    for side, multitude in enumerate((above, below)):
        for first, last, copies in multitude:
            edges.setdefault(first, [0, 0])[side] += copies
            edges.setdefault(last + 1, [0, 0])[side] -= copies
    start, copies_above, copies_below = 0, 0, 0
    for at in sorted(edges):
        if copies_above or copies_below:
            yield start, at - 1, copies_above, copies_below
        start, copies_above, copies_below = at, copies_above + edges[at][0], copies_below + edges[at][1]
