"""The replication quota of throttled replicas that are not in sync (facts D9, KIP-73)."""

from collections.abc import Callable

from ....ports.clock import Clock
from ...cluster.topics import ReplicaId
from ...log.config import LogConfig
from .partition import Partition

UNTHROTTLED = 2**63 - 1
"""The rate without a limit."""
_BURST_S = 1.0
"""The seconds of the rate that may pass at once after a pause."""
LOOK_AGAIN_MS = 1000.0
ALL = "*"


def leader_throttled_replicas(config: LogConfig) -> frozenset[str]:
    """Return the throttled replicas of the leader side."""
    return config.leader_replication_throttled_replicas


def follower_throttled_replicas(config: LogConfig) -> frozenset[str]:
    """Return the throttled replicas of the follower side."""
    return config.follower_replication_throttled_replicas


class ReplicationQuotaManager:
    """Limits the bytes of throttled replicas in one direction; the caller counts no in-sync replica. Owner thread only.

    rate:  returns the present limit in bytes per second.
    named: returns the throttled replicas of a topic: `PARTITION:BROKER`, or `*` for all.
    """

    def __init__(
        self,
        own: Callable[[], ReplicaId],
        clock: Clock,
        rate: Callable[[], int],
        named: Callable[[LogConfig], frozenset[str]],
    ) -> None:
        self._own = own
        self._clock = clock
        self._rate = rate
        self._named = named
        self._left = 0.0
        self._counted_ms = float("-inf")

    @property
    def is_limited(self) -> bool:
        """True if there is a limit."""
        return self._rate() < UNTHROTTLED

    def covers(self, partition: Partition) -> bool:
        """Return True if this partition is throttled."""
        named = self._named(partition.log.config)
        if not named or self._rate() >= UNTHROTTLED:
            return False
        return ALL in named or f"{partition.topic_partition.partition}:{self._own().broker_id}" in named

    def holds(self, partition: Partition) -> bool:
        """Return True if nothing may be copied for this partition now."""
        named = self._named(partition.log.config)  # almost always empty, and asked for in every fetch
        return bool(named) and self.covers(partition) and self._refilled() <= 0

    def spend(self, partition: Partition, size: int) -> None:
        """Count bytes that were copied."""
        if size and self.covers(partition):
            self._left = self._refilled() - size

    def wait_ms(self) -> float:
        """Return the time until more may be copied, or until the rate should be read again."""
        rate, left = self._rate(), self._refilled()
        if left > 0:
            return 0.0
        return min(LOOK_AGAIN_MS, (1 - left) * 1000.0 / rate) if rate > 0 else LOOK_AGAIN_MS

    def _refilled(self) -> float:
        now_ms, rate = self._clock.monotonic_ms(), self._rate()
        passed_s = min(_BURST_S, (now_ms - self._counted_ms) / 1000.0)
        self._counted_ms = now_ms
        self._left = min(self._left + rate * passed_s, rate * _BURST_S)
        return self._left
