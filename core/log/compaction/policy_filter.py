"""Passes of deletion policies that decide on single messages: their schedule and their filter."""

from ....ports.types import Buffer
from ...message.batch_header import BatchHeader
from ...message.batch_reader import decode_batch
from ...message.compacted_batch import retain_records
from ..partition_log.unified_log import UnifiedLog
from ..retention import LOOK_AGAIN_MS, RecordPolicy, record_policy
from .batch_filter import BatchFilter
from .cleaning_job import CannotClean, CleaningJob
from .offset_map import OffsetMapBuilder, unpack_records


class PolicySchedule:
    """The last pass over each log; the first one is due at once. Owner thread only."""

    def __init__(self) -> None:
        self._next_ms: dict[UnifiedLog, float] = {}

    def due(self, log: UnifiedLog, now_ms: float) -> RecordPolicy | None:
        """Return the policy whose pass over this log is due. `now_ms`: monotonic."""
        policy = record_policy(log.policy) if "delete" in log.config.cleanup_policy else None
        return None if policy is None or now_ms < self._next_ms.get(log, now_ms) else policy

    def begun(self, log: UnifiedLog, policy: RecordPolicy, now_ms: float) -> None:
        self._next_ms = {each: next_ms for each, next_ms in self._next_ms.items() if not each.closed}
        self._next_ms[log] = now_ms + getattr(policy, "look_again_ms", LOOK_AGAIN_MS)


class PolicyFilter(BatchFilter):
    """Filters batches by a deletion policy. Data of aborted transactions is dropped, as in a compaction."""

    def __init__(self, order: CleaningJob, survivors: OffsetMapBuilder, policy: RecordPolicy) -> None:
        super().__init__(order, survivors)
        self._policy = policy

    def _records(self, data: bytes, at: int, header: BatchHeader) -> Buffer | None:
        if self.transactions.aborts(header) or not header.count:
            return None
        keep = self._asked(data, at, header)
        left = sum(keep)
        self.messages_retained += left
        if not left:
            return None
        if left == header.count:
            return data[at : at + header.size]
        codecs = self._order.codecs
        body, begin, records = unpack_records(data, at, header, codecs)
        codec = codecs.by_id(header.codec_id) if header.codec_id else None
        return retain_records(header, body, begin, records, keep, codec=codec)

    def _asked(self, data: bytes, at: int, header: BatchHeader) -> list[int]:
        order, keeps = self._order, self._policy.keeps
        topic, number = order.partition
        batch = memoryview(data)[at : at + header.size]
        messages = decode_batch(batch, order.codecs, topic=topic, partition=number, check_crc=False, header=header)
        try:
            return [1 if keeps(message, now_ms=order.now_ms) else 0 for message in messages]
        except Exception as error:
            text = f"the deletion policy {order.config.deletion_policy!r} failed: {type(error).__name__}: {error}"
            raise CannotClean(text) from error
