"""The records of an internal topic that nobody can read: left out, counted and told."""

from collections import Counter

from ...ports.report import counted

_EXAMPLES_MAX = 3
_REASONS_MAX = 100


class SkippedRecords:
    """How often a record was left out, by the reason; its length is the number of reasons, which is bounded."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, why: str) -> None:
        """One more."""
        self._counts[why if len(self._counts) < _REASONS_MAX else "other reasons"] += 1

    def report(self, where: str) -> str | None:
        """One line about what was left out of the partition `where`; None when nothing was."""
        if not self._counts:
            return None
        examples = "; ".join(f"{count} x {why}" for why, count in self._counts.most_common(_EXAMPLES_MAX))
        left_out = counted(self._counts.total(), "record was left out", "records were left out")
        return f"{where}: {left_out} ({examples})"
