"""Which offset is the last of each key: a table of 24 bytes per key, whatever the keys are (facts B5).

A slot holds 16 bytes that stand for the key, and its offset. They come from a keyed hash whose key is random: two keys
that meet would cost the older one's message, and nobody can make keys that do.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from struct import Struct

SLOT_BYTES = 24
_PENDING_MAX = 20_000
"""So many keys gather before they go to the table: what is written again and again is hashed once for all of them."""
_HALVES = Struct("=QQ")
_PIECE_SLOTS = 1 << 16


class OffsetMap:
    """Open addressing in one array. `secret`: up to 64 random bytes."""

    __slots__ = ("_count", "_limit", "_pending", "_start", "_table")

    def __init__(self, limit: int, secret: bytes, *, load_factor: float = 0.9) -> None:
        """`limit`: how many keys it takes, at least 1; the table is larger by the load factor."""
        from hashlib import blake2b  # with the first map: OpenSSL comes with it, 3.5 MB

        slots = max(int(limit / load_factor) + 1, limit + 1)
        self._table = array("Q", bytes(SLOT_BYTES)) * slots
        self._limit = limit
        self._count = 0
        self._pending: dict[bytes, int] = {}
        self._start = blake2b(digest_size=_HALVES.size, key=secret)

    def __len__(self) -> int:
        """How many keys it knows."""
        self._flush()
        return self._count

    def add(self, keys: Sequence[bytes], offsets: Iterable[int]) -> bool:
        """Note these offsets, which are higher than all before; of a key that comes twice the last. False, and nothing
        is noted, where there is no room for all of them."""
        pending = self._pending
        if self._count + len(pending) + len(keys) > self._limit and not self._has_room(keys):
            return False
        pending.update(zip(keys, offsets, strict=False))
        if len(pending) > _PENDING_MAX:
            self._flush()
        return True

    def _has_room(self, keys: Sequence[bytes]) -> bool:
        self._flush()
        new = dict.fromkeys(keys)
        room = self._limit - self._count
        return len(new) <= room or self.latest(new).count(-1) <= room

    def latest(self, keys: Iterable[bytes]) -> list[int]:
        """The last offset of each of these keys, -1 where none was noted."""
        self._flush()
        table, start, halves, end = self._table, self._start, _HALVES.unpack, len(self._table)
        slots = end // 3
        found: list[int] = []
        add = found.append
        for key in keys:
            hashed = start.copy()
            hashed.update(key)
            first, second = halves(hashed.digest())
            place = first % slots * 3
            while noted := table[place + 2]:
                if table[place] == first and table[place + 1] == second:
                    break
                place += 3
                if place == end:
                    place = 0
            add(noted - 1)
        return found

    def _flush(self) -> None:
        if not self._pending:
            return
        table, start, halves, end = self._table, self._start, _HALVES.unpack, len(self._table)
        slots = end // 3
        for key, offset in self._pending.items():
            hashed = start.copy()
            hashed.update(key)
            first, second = halves(hashed.digest())
            place = first % slots * 3
            while table[place + 2]:
                if table[place] == first and table[place + 1] == second:
                    break
                place += 3
                if place == end:
                    place = 0
            else:
                self._count += 1
                table[place] = first
                table[place + 1] = second
            table[place + 2] = offset + 1  # 0: an empty slot
        self._pending.clear()

    def offsets(self) -> Iterator[int]:
        """All that are noted, in no order."""
        self._flush()
        step = _PIECE_SLOTS * 3
        pieces = (self._table[at + 2 : at + step : 3] for at in range(0, len(self._table), step))
        return (noted - 1 for noted in chain.from_iterable(pieces) if noted)
