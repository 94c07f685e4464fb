"""The groups that have positions in the open transaction of a producer: one marker ends it for all of them."""


class TransactingGroups:
    """The groups by partition of `__consumer_offsets`, since a marker belongs to one, and by producer. Owner thread
    only."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[int, dict[str, None]]] = {}

    def add(self, partition: int, producer_id: int, group_id: str) -> None:
        self._groups.setdefault(partition, {}).setdefault(producer_id, {})[group_id] = None

    def is_open(self, partition: int, producer_id: int) -> bool:
        """True if a group has positions in the producer's transaction."""
        return producer_id in self._groups.get(partition, {})

    def discard(self, partition: int, producer_id: int, group_id: str) -> None:
        """Remove a group that has no positions left in the transaction."""
        producers = self._groups.get(partition, {})
        groups = producers.get(producer_id, {})
        groups.pop(group_id, None)
        if not groups:
            producers.pop(producer_id, None)

    def end(self, partition: int, producer_id: int) -> list[str]:
        """The transaction has ended; returns the groups that had positions in it (some may be gone by now)."""
        return list(self._groups.get(partition, {}).pop(producer_id, ()))

    def drop(self, partition: int) -> None:
        """Forget a partition that another broker leads."""
        self._groups.pop(partition, None)
