"""The second pass of a cleaning: the filter of each batch (Kafka: RecordFilter)."""

from ....ports.types import Buffer
from ...message.batch_header import DELETE_HORIZON_BIT, BatchHeader
from ...message.compacted_batch import make_empty_batch, retain_records
from ...message.record_scan import ScannedRecords
from ..producers.producer_state import NO_OFFSET
from .cleaned_transactions import CleanedTransactions
from .cleaning_job import CleaningJob
from .offset_map import HAS_NULLS, LATEST, OffsetMapBuilder, read_marker_at, unpack_records


class BatchFilter:
    """Filters every batch of a log, in order, from the first segment on."""

    def __init__(self, order: CleaningJob, survivors: OffsetMapBuilder) -> None:
        self._order = order
        self._survivors = survivors
        self.transactions = CleanedTransactions(order.aborted, order.sources[0].base_offset)
        self._horizon_ms = order.now_ms + order.config.delete_retention_ms
        self.messages_read = self.messages_retained = 0

    def keep(self, data: bytes, at: int, header: BatchHeader) -> Buffer | None:
        """Return the batch itself, a batch with the retained records or without records, or None to drop it.

        Raises `CannotClean`.
        """
        self.messages_read += header.count
        retained = self._marker(data, at, header) if header.control else self._records(data, at, header)
        return make_empty_batch(header) if retained is None and self._is_last_of_producer(header) else retained

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last, epoch = self._order.last_of_producers.get(header.producer_id, (NO_OFFSET, NO_OFFSET))
        if last == NO_OFFSET:
            return header.control and header.producer_epoch == epoch
        return header.last_offset == last

    def _marker(self, data: bytes, at: int, header: BatchHeader) -> Buffer | None:
        itself = data[at : at + header.size]
        if not self.transactions.is_marker_empty(header, read_marker_at(data, at, header)):
            return itself
        if header.attributes & DELETE_HORIZON_BIT:
            return None if self._order.now_ms >= header.base_timestamp else itself
        body, begin, records = unpack_records(data, at, header, self._order.codecs)
        return retain_records(header, body, begin, records, [1], codec=None, horizon_ms=self._horizon_ms)

    def _records(self, data: bytes, at: int, header: BatchHeader) -> Buffer | None:
        if self.transactions.aborts(header) or not header.count:
            return None
        if header.base_offset >= self._survivors.end:
            return self._all(data, at, header)
        marks = self._survivors.marks_of(header)
        if marks is not None:
            alive = marks.count(LATEST) + marks.count(LATEST | HAS_NULLS)
            if not alive:
                return None
            if alive == header.count and not marks[0] & HAS_NULLS:
                return self._all(data, at, header)
        body, begin, records = unpack_records(data, at, header, self._order.codecs)
        keep = self._latest(header, records) if marks is None else [marks[d] & LATEST for d in records.offset_deltas]
        nulls = self._retains_tombstones(header, records, keep)
        left = sum(keep)
        self.messages_retained += left
        horizon = self._horizon_ms if nulls and not header.attributes & DELETE_HORIZON_BIT else None
        if not left:
            return None
        if left == header.count and horizon is None:
            return data[at : at + header.size]
        codec = self._order.codecs.by_id(header.codec_id) if header.codec_id else None
        return retain_records(header, body, begin, records, keep, codec=codec, horizon_ms=horizon)

    def _all(self, data: bytes, at: int, header: BatchHeader) -> bytes:
        self.messages_retained += header.count
        return data[at : at + header.size]

    def _latest(self, header: BatchHeader, records: ScannedRecords) -> list[int]:
        """Return 1 for each record that is the last of its key, else 0; records without a key are dropped."""
        keyed = [key is not None for key in records.keys]
        latest = iter(self._survivors.map.latest(key for key in records.keys if key is not None))
        base = header.base_offset
        offsets = zip(keyed, records.offset_deltas, strict=True)
        return [int(has_key and base + delta >= next(latest)) for has_key, delta in offsets]

    def _retains_tombstones(self, header: BatchHeader, records: ScannedRecords, keep: list[int]) -> bool:
        """Return True if tombstones are retained; expired ones are dropped."""
        expired = header.attributes & DELETE_HORIZON_BIT and self._order.now_ms >= header.base_timestamp
        found = False
        for number in records.nulls:
            if keep[number]:
                found = not expired
                keep[number] = found
        return found
