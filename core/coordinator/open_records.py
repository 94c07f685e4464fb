"""Records of transactions that have not ended, while a log is read as a table.

The value of a key is that of its last record in the log that belongs to no aborted transaction; compaction retains
the same record. The time at which a transaction ends makes no difference.
"""

from collections.abc import Iterable

from .log import Record


class OpenRecords:
    """The records of open transactions. Any thread, one at a time. False while nothing is open."""

    __slots__ = ("_holders", "_open", "_taken")

    def __init__(self) -> None:
        self._open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """By producer, of each key the last record: its place in the order of the log, and the value."""
        self._holders: dict[bytes, int | set[int]] = {}
        """The producer that has an open record of a key, or those, if they are several: that is rare."""
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._open)

    def add_records(self, producer_id: int, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Add the next records of the producer's transaction; records without a key are ignored."""
        mine = self._open.setdefault(producer_id, {})
        holders = self._holders
        for key, value in records:
            if key is None:
                continue
            self._taken += 1
            mine[key] = (self._taken, value)
            known = holders.setdefault(key, producer_id)
            if known != producer_id:
                holders[key] = {known, producer_id} if isinstance(known, int) else known | {producer_id}

    def overwrite(self, keys: Iterable[bytes | None]) -> None:
        """Drop the open records of these keys: later records replace them, however the transactions end."""
        holders = self._holders
        for key in keys:
            if key in holders:
                known = holders.pop(key)
                for producer_id in (known,) if isinstance(known, int) else known:
                    self._drop(producer_id, key)

    def end(self, producer_id: int, *, committed: bool) -> list[Record]:
        """End the producer's transaction; returns the records that count now."""
        ended = self._open.pop(producer_id, None)
        if ended is None:
            return []
        holders = self._holders
        for key, (place, _) in ended.items():
            known = holders[key]
            if isinstance(known, int):
                del holders[key]
            else:
                self._end_among(known - {producer_id}, key, place, committed=committed)
        return [(key, value) for key, (_, value) in ended.items()] if committed else []

    def left(self) -> list[tuple[int, Record]]:
        """Return the records that are still open, with their producer ids, in the order of the log."""
        found = [
            (place, producer_id, (key, value))
            for producer_id, records in self._open.items()
            for key, (place, value) in records.items()
        ]
        return [(producer_id, record) for _, producer_id, record in sorted(found)]

    def _end_among(self, others: set[int], key: bytes, place: int, *, committed: bool) -> None:
        """End a record whose key other producers have open, too: if committed, it replaces the open ones before it."""
        left = set(others)
        for other in others:
            if committed and self._open[other][key][0] < place:
                left.discard(other)
                self._drop(other, key)
        if left:
            self._holders[key] = left
        else:
            del self._holders[key]

    def _drop(self, producer_id: int, key: bytes) -> None:
        records = self._open[producer_id]
        del records[key]
        if not records:
            del self._open[producer_id]
