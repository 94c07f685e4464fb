"""Unreadable records of an internal topic: they are left out, counted and reported."""

from collections import Counter

from ...ports.report import counted

_EXAMPLES_MAX = 3
_REASONS_MAX = 100


class SkippedRecords:
    """Counts of the records that were left out, by reason; the length is the number of reasons, which is bounded."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, why: str) -> None:
        """Count one more record."""
        self._counts[why if len(self._counts) < _REASONS_MAX else "other reasons"] += 1

    def report(self, where: str) -> str | None:
        """Return one line about the records left out of the partition `where`; None when there are none."""
        if not self._counts:
            return None
        examples = "; ".join(f"{count} x {why}" for why, count in self._counts.most_common(_EXAMPLES_MAX))
        left_out = counted(self._counts.total(), "record was left out", "records were left out")
        return f"{where}: {left_out} ({examples})"
