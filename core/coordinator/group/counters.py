"""What a coordinator counts, for dashboards."""

from attrs import field

from ....ports.metrics import Counter
from ....ports.values import frozen


class _Uncounted:
    def add(self, amount: float = 1.0) -> None:
        """Nobody wants to know."""


@frozen(kw_only=True)
class GroupCounters:
    """Each is told as it happens; what is left out is not counted."""

    commits: Counter = field(factory=_Uncounted)
    """Positions that were committed."""
    expirations: Counter = field(factory=_Uncounted)
    """Positions that were old enough to be forgotten."""
    deletions: Counter = field(factory=_Uncounted)
    """Positions that somebody asked to forget, or whose partition is no more."""
    rebalances: Counter = field(factory=_Uncounted)
    """Generations that all members have joined."""
