"""Lists in pages, and in an order that the reader chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

RowT = TypeVar("RowT")
ROWS = 50
"""The rows of a page."""


class PageOfRows(Generic[RowT]):
    """One page of a list; pages begin with 1."""

    def __init__(self, found: Sequence[RowT], number: int, length: int = ROWS) -> None:
        self.count = len(found)
        self.pages = max(1, -(-len(found) // length))
        self.number = min(number, self.pages)
        first = (self.number - 1) * length
        self.rows = found[first : first + length]
        self.first = first + 1 if self.rows else 0
        self.last = first + len(self.rows)


def sort_by(rows: Sequence[RowT], wanted: str, sorts: Mapping[str, Callable[[RowT], Any]]) -> tuple[list[RowT], str]:
    """Return the rows by a key of `sorts`, descending with a minus before it, and the order in use.

    Rows whose key is None come last. An unknown order is the first of `sorts`.
    """
    name, descending = wanted.removeprefix("-"), wanted.startswith("-")
    if name not in sorts:
        name, descending = next(iter(sorts)), False
    key = sorts[name]
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    known.sort(key=key, reverse=descending)
    return [*known, *unknown], f"-{name}" if descending else name
