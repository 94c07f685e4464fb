"""Batches that come before their partition: producers may hear of a new topic before its leader has made the log."""

from ....ports.broker_api.produce import ProducePartition
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ...message.batch_header import BatchHeader, parse_header
from ..partition.partition import Partition

PATIENCE_MS = 30_000
"""What was refused longer ago is not on its way any more."""
BATCHES_MAX = 1_000
"""Beyond, all are forgotten: then a producer may begin with what was sent behind one of them, as without this."""


class EarlyBatches:
    """Remembers the first batch of each producer that was refused in partitions that are not here. When one comes, that
    is where its producer begins, and not with what it has sent behind it. Owner thread only."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, int], dict[int, tuple[BatchHeader, int]]] = {}
        self._count = 0

    def note(self, entry: ProducePartition, now_ms: int) -> None:
        """It was refused."""
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
        """The partition is here now."""
        refused = self._by_place.pop(partition.topic_partition, {})
        self._count -= len(refused)
        for header, since_ms in refused.values():
            if now_ms - since_ms <= PATIENCE_MS:
                partition.log.producers.reject_batch_retriable(header, ErrorCode.NOT_LEADER_OR_FOLLOWER)
