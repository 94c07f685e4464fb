"""Batches for partitions whose log is not open yet: producers may know a new topic before its leader has the log."""

from ....ports.broker_api.produce import ProducePartition
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ...message.batch_header import BatchHeader, parse_header
from ..partition.partition import Partition

PATIENCE_MS = 30_000
"""The age beyond which a refused batch is no longer expected again."""
BATCHES_MAX = 1_000
"""The limit, beyond which all are forgotten: a producer may then begin with a later batch than its first."""


class EarlyBatches:
    """Remembers the first batch of each producer that was refused because the partition is not open here.

    When the partition opens, its producer has to begin with that batch, not with a later one. Owner thread only.
    """

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, int], dict[int, tuple[BatchHeader, int]]] = {}
        self._count = 0

    def record_refusal(self, entry: ProducePartition, now_ms: int) -> None:
        """Record a refused batch."""
        try:
            header = parse_header(entry.records)
        except ApiError:
            return
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        if self._count >= BATCHES_MAX:
            self._by_place, self._count = {}, 0
        refused = self._by_place.setdefault((entry.topic, entry.partition), {})
        known = refused.get(header.producer_id)
        if known is None:
            self._count += 1
        elif known[0].producer_epoch == header.producer_epoch and now_ms - known[1] <= PATIENCE_MS:
            return
        refused[header.producer_id] = header, now_ms

    def opened(self, partition: Partition, now_ms: int) -> None:
        """Apply the noted batches to the producers of a partition that was opened."""
        refused = self._by_place.pop(partition.topic_partition, {})
        self._count -= len(refused)
        for header, since_ms in refused.values():
            if now_ms - since_ms <= PATIENCE_MS:
                partition.log.producers.reject_batch_retriable(header, ErrorCode.NOT_LEADER_OR_FOLLOWER)
