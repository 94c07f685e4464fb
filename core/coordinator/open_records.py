"""Records of transactions that have not ended, while a log is read as a table.

The value of a key is that of its last record in the log, those of aborted transactions left aside: the same that
compaction keeps. When a transaction ends does not count.
"""

from collections.abc import Iterable

from .log import Record


class OpenRecords:
    """Any thread, one at a time. False while nothing is open."""

    __slots__ = ("_holders", "_open", "_taken")

    def __init__(self) -> None:
        self._open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        """By producer, of each key the last record: its place in the order of the log, and the value."""
        self._holders: dict[bytes, set[int]] = {}
        """Which producers have an open record of a key."""
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._open)

    def take(self, producer_id: int, records: Iterable[Record]) -> None:
        """The next records of the producer's transaction."""
        mine = self._open.setdefault(producer_id, {})
        for key, value in records:
            self._taken += 1
            mine[key] = (self._taken, value)
            self._holders.setdefault(key, set()).add(producer_id)

    def overwrite(self, keys: Iterable[bytes | None]) -> None:
        """Records behind those that are open count, however the transactions end."""
        for key in keys:
            if key in self._holders:
                for producer_id in self._holders.pop(key):
                    self._drop(producer_id, key)

    def end(self, producer_id: int, *, committed: bool) -> list[Record]:
        """The records that count now."""
        ended = self._open.pop(producer_id, {})
        for key, (place, _) in ended.items():
            holders = self._holders[key]
            holders.discard(producer_id)
            if committed:
                for older in [each for each in holders if self._open[each][key][0] < place]:
                    holders.discard(older)
                    self._drop(older, key)
            if not holders:
                del self._holders[key]
        return [(key, value) for key, (_, value) in ended.items()] if committed else []

    def left(self) -> list[tuple[int, Record]]:
        """What is still open, with its producers, in the order of the log."""
        found = [
            (place, producer_id, (key, value))
            for producer_id, records in self._open.items()
            for key, (place, value) in records.items()
        ]
        return [(producer_id, record) for _, producer_id, record in sorted(found)]

    def _drop(self, producer_id: int, key: bytes) -> None:
        records = self._open[producer_id]
        del records[key]
        if not records:
            del self._open[producer_id]
