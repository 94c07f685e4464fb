"""The counters of a coordinator, for dashboards."""

from attrs import field

from ....ports.metrics import Counter
from ....ports.values import frozen


class _Uncounted:
    def add(self, amount: float = 1.0) -> None:
        """Count nothing."""


@frozen(kw_only=True)
class GroupCounters:
    """The counters of groups, increased as the events happen; an omitted one counts nothing."""

    commits: Counter = field(factory=_Uncounted)
    """Positions that were committed."""
    expirations: Counter = field(factory=_Uncounted)
    """Positions that were old enough to be forgotten."""
    deletions: Counter = field(factory=_Uncounted)
    """Positions that a client deleted, or whose partition was deleted."""
    rebalances: Counter = field(factory=_Uncounted)
    """Generations that all members have joined."""
    consumer_group_rebalances: Counter = field(factory=_Uncounted)
    """Target assignments of consumer groups (KIP-848)."""
    share_group_rebalances: Counter = field(factory=_Uncounted)
    """Assignments of share groups (KIP-932)."""
