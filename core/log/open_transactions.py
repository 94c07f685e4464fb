"""Which transactions of a partition are under way, and so below which offset all is decided (facts B2)."""

from collections import OrderedDict, deque

_ENDED_MAX = 1024
"""So many transactions that have ended are known one by one while their markers are on the way to the replicas."""


class _Ended:
    """Transactions whose markers are on their way: to the replicas, or to the disk."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: deque[tuple[int, int]] = deque()
        """(offset of a marker, smallest first offset of those that end there or later), both ascending."""

    def add(self, first_offset: int, marker_offset: int) -> None:
        ended = self._ended
        while ended and ended[-1][1] >= first_offset:
            ended.pop()
        ended.append((marker_offset, first_offset))
        if len(ended) > _ENDED_MAX:
            self._merge()

    def first(self, arrived: int) -> int | None:
        """Where the first of them begins; markers below `arrived` are there, and it does not go back."""
        ended = self._ended
        while ended and ended[0][0] < arrived:
            ended.popleft()
        return ended[0][1] if ended else None

    def clear(self) -> None:
        self._ended.clear()

    def _merge(self) -> None:
        """Take the older half for one, which ends where the last of it does: too cautious, never too bold."""
        ended = self._ended
        first_offset, marker = ended[0][1], 0
        for _ in range(_ENDED_MAX // 2):
            marker = ended.popleft()[0]
        ended.appendleft((marker, first_offset))


class OpenTransactions:
    """By the offset of the first batch of each, which is also the order in which they come. Owner thread only."""

    __slots__ = ("_not_durable", "_not_replicated", "_open", "may_hold_back")

    def __init__(self) -> None:
        self._open: OrderedDict[int, int] = OrderedDict()
        self._not_replicated = _Ended()
        self._not_durable = _Ended()
        self.may_hold_back = False
        """False: `first_unstable` is None. So it is in nearly every fetch, which need not ask then."""

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._open)

    @property
    def first_offset(self) -> int | None:
        """Where the oldest one that is under way begins; None when there is none."""
        return next(iter(self._open)) if self._open else None

    @property
    def oldest(self) -> int | None:
        """The producer of that one."""
        return next(iter(self._open.values())) if self._open else None

    def begun(self, first_offset: int, producer_id: int) -> None:
        """A producer's transaction begins; those that began before it are known already."""
        self._open[first_offset] = producer_id
        self.may_hold_back = True

    def ended(self, first_offset: int, marker_offset: int) -> None:
        """The transaction that began at `first_offset` has ended; the markers come in their order."""
        self._open.pop(first_offset, None)
        self.may_hold_back = True
        self._not_replicated.add(first_offset, marker_offset)
        self._not_durable.add(first_offset, marker_offset)

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first offset of a transaction that is under way, or whose marker not all replicas have yet.

        The high watermark does not go back but with `clear`.
        """
        first = self._first(self._not_replicated.first(high_watermark))
        self.may_hold_back = first is not None
        return first

    def first_not_durable(self, recovery_point: int) -> int | None:
        """The first offset of a transaction that is under way, or whose marker a power cut may take away.

        The recovery point does not go back but with `clear`.
        """
        return self._first(self._not_durable.first(recovery_point))

    def _first(self, ended: int | None) -> int | None:
        if not self._open:
            return ended
        first = next(iter(self._open))
        return first if ended is None else min(first, ended)

    def clear(self) -> None:
        self.may_hold_back = False
        self._open.clear()
        self._not_replicated.clear()
        self._not_durable.clear()
