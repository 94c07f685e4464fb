"""Transactions in a cleaning: aborted data and markers without data are dropped (Kafka: CleanedTransactionMetadata)."""

from collections.abc import Sequence

from ...message.batch_header import BatchHeader
from ...message.control_records import EndTransactionMarker
from ..segment.transaction_index import AbortedTxn


class CleanedTransactions:
    """Tracks the transactions of every batch, in order, from offset `start` on."""

    def __init__(self, aborted: Sequence[AbortedTxn], start: int) -> None:
        there = [each for each in aborted if each.last_offset >= start]
        self._coming = sorted(there, key=lambda each: each.first_offset, reverse=True)
        self.retained_aborted: list[AbortedTxn] = []
        """Ended aborted transactions with batches, for the index of the new segment."""
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """Producers in an aborted transaction, with True if it has a batch."""
        self._committed: set[int] = set()
        """Producers in another transaction that has a batch."""

    def aborts(self, header: BatchHeader) -> bool:
        """Return True if a data batch belongs to an aborted transaction."""
        self._reach(header)
        if not header.transactional:
            return False
        known = self._aborted.get(header.producer_id)
        if known is not None:
            self._aborted[header.producer_id] = known[0], True
            return True
        self._committed.add(header.producer_id)
        return False

    def is_marker_empty(self, header: BatchHeader, marker: EndTransactionMarker | None) -> bool:
        """Return True if the transaction that this marker ends has no batch left."""
        self._reach(header)
        producer = header.producer_id
        if marker is None:
            return False
        if not marker.committed:
            entry, there = self._aborted.pop(producer, (None, False))
            if entry is not None and there:
                self.retained_aborted.append(entry)
            return not there
        there = producer in self._committed
        self._committed.discard(producer)
        return not there

    def _reach(self, header: BatchHeader) -> None:
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            entry = self._coming.pop()
            self._aborted[entry.producer_id] = entry, False
