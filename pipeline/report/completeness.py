"""Audit of a table's topics for the report: whether every message that was produced is in every tier."""

import time
from collections.abc import Sequence

from attrs import frozen

from ...audit.reading import AuditReader
from ...audit.reconcile import Reconciliation, reconcile
from ...audit.words import share_text


@frozen(kw_only=True)
class TopicAudit:
    """Over all windows of the audit."""

    windows: int
    agreeing: int
    expected: int
    """Messages that the tiers were to have, each tier and message once."""
    arrived: int
    lost: int
    doubled: int
    pending: int

    @property
    def sound(self) -> bool:
        return not self.lost and not self.doubled

    @property
    def share(self) -> str:
        """The share of arrived messages among those that were to be expected by now."""
        due = self.expected - self.pending
        return share_text(self.arrived / due if due > 0 else None)


def audited(bootstraps: Sequence[str], topics: Sequence[str]) -> dict[str, TopicAudit]:
    """Return the audits of those topics that have been counted. Raises what reading the audit topic raises."""
    reader = AuditReader(bootstraps)
    try:
        reader.read()
        found = reconcile(reader.totals, now_ms=time.time_ns() // 1_000_000, topics=topics)
    finally:
        reader.close()
    return by_topic(found)


def by_topic(found: Reconciliation) -> dict[str, TopicAudit]:
    """Return a reconciliation, summed up."""
    result = {}
    for topic in dict.fromkeys(window.topic for window in found.windows):
        windows = [window for window in found.windows if window.topic == topic]
        tiers = [tier for window in windows for tier in window.tiers if tier.after]
        result[topic] = TopicAudit(
            windows=len(windows),
            agreeing=sum(window.state == "complete" for window in windows),
            expected=sum(tier.expected for tier in tiers),
            arrived=sum(tier.arrived for tier in tiers),
            lost=sum(which.messages for tier in tiers for which in tier.lost),
            doubled=sum(which.messages for tier in tiers for which in tier.doubled),
            pending=sum(tier.pending for tier in tiers),
        )
    return result
