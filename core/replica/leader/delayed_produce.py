"""Appends that wait for the in-sync replicas, or for a flush."""

from collections.abc import Callable, Hashable

from ....ports.types import Offset
from ..partition.partition import Partition
from ..purgatory import DelayedOperation

NONE = Offset(0)
"""No offset to wait for."""


class ProducePartitionStatus:
    """The offsets that one partition must reach: a high watermark, and a recovery point (0: none)."""

    __slots__ = ("high_watermark", "led_since", "partition", "recovery_point")

    def __init__(self, partition: Partition, high_watermark: Offset, recovery_point: Offset = NONE) -> None:
        self.partition = partition
        self.led_since = partition.led_since
        self.high_watermark = high_watermark
        self.recovery_point = recovery_point

    def reached(self) -> bool:
        """Return True if the offsets are reached, or if the leadership or the disk is lost: then the wait is over."""
        partition = self.partition
        if partition.high_watermark >= self.high_watermark and partition.log.recovery_point >= self.recovery_point:
            return True
        return self.lost() or self.failed()

    def failed(self) -> bool:
        """Return True if it was to become durable, and cannot."""
        log = self.partition.log
        return log.recovery_point < self.recovery_point and log.failure is not None

    def lost(self) -> bool:
        """Return True if this broker has not led the partition ever since the append."""
        return not self.partition.is_leader or self.partition.led_since != self.led_since


class DelayedProduce(DelayedOperation):
    """An append that is answered when the in-sync replicas have it, and after a flush where that was asked for.

    `pending` maps partitions to what they must reach; what is left in it when the operation finishes has timed out.
    """

    __slots__ = ("pending",)

    def __init__(
        self, pending: dict[Hashable, ProducePartitionStatus], finish: Callable[[], None], failed: Callable[[], None]
    ) -> None:
        super().__init__(finish, failed)
        self.pending = pending

    def check(self, key: Hashable) -> bool:
        required = self.pending.get(key)
        if required is not None and required.reached():
            del self.pending[key]
        return not self.pending
