"""How far a group has come in each partition: what is committed, what is being written, what may be forgotten."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from ....ports.words import TopicPartition
from .records import StoredOffset
from .states import GroupState


class PendingCommit:
    """Positions that are being written; `GroupOffsets.finish` is told how that went."""

    __slots__ = ("number", "positions")

    def __init__(self, positions: dict[TopicPartition, StoredOffset], number: int) -> None:
        self.positions = positions
        self.number = number


class GroupOffsets:
    """The positions of one group. Owner thread only."""

    __slots__ = ("_applied", "_begun", "_committed", "_pending")

    def __init__(self, committed: Mapping[TopicPartition, StoredOffset] | None = None) -> None:
        self._committed = dict(committed or {})
        self._pending: dict[TopicPartition, dict[int, PendingCommit]] = {}
        self._applied: dict[TopicPartition, int] = {}
        """Which commit a position is from, while another one is on its way: the later one counts."""
        self._begun = 0

    def __len__(self) -> int:
        """How many positions are committed."""
        return len(self._committed)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    @property
    def is_void(self) -> bool:
        """Nothing is committed, nor being written."""
        return not self._committed and not self._pending

    def get(self, partition: TopicPartition) -> StoredOffset | None:
        return self._committed.get(partition)

    def is_pending(self, partition: TopicPartition) -> bool:
        """True while another position is being written."""
        return partition in self._pending

    def touch(self, partitions: frozenset[TopicPartition]) -> bool:
        """True if one of these is committed, or being written."""
        return not (partitions.isdisjoint(self._committed) and partitions.isdisjoint(self._pending))

    def begin(self, positions: dict[TopicPartition, StoredOffset]) -> PendingCommit:
        """These are being written. They count once `finish` is told so; the commits begun later count more."""
        self._begun += 1
        commit = PendingCommit(positions, self._begun)
        for partition in positions:
            self._pending.setdefault(partition, {})[commit.number] = commit
        return commit

    def finish(self, commit: PendingCommit, *, stored: bool) -> None:
        """The write has come to an end."""
        for partition, position in commit.positions.items():
            if stored and self._applied.get(partition, 0) < commit.number:
                self._committed[partition] = position
                self._applied[partition] = commit.number
            self._no_longer_pending(partition, commit)

    def forget(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Drop these positions, and what is being written for them; returns those that there were."""
        found = []
        for partition in partitions:
            pending = self._pending.get(partition)
            if partition in self._committed or pending:
                found.append(partition)
            self._committed.pop(partition, None)
            for commit in tuple((pending or {}).values()):
                del commit.positions[partition]
                self._no_longer_pending(partition, commit)
        return found

    def forget_all(self) -> list[TopicPartition]:
        """Drop everything; returns what there was."""
        return self.forget({**self._committed, **self._pending})

    def expired(
        self,
        *,
        now_ms: int,
        retention_ms: int,
        state: GroupState,
        state_since_ms: int,
        is_simple: bool,
        topics: Collection[str] | None,
    ) -> list[TopicPartition]:
        """What may be forgotten (facts C6): of an empty group everything, so long after it became empty and after the
        commit; of a group with members the topics that no member reads (`topics`; None = not known, so nothing); of a
        group that never had members (`is_simple`) each so long after its commit. A position with an expiry of its own
        goes by that.
        """
        if state is GroupState.EMPTY or is_simple:
            # A position that was set while the group was empty already is kept as long as any other.
            since_ms = -1 if is_simple else state_since_ms
            kept: Collection[str] = ()
        elif state is GroupState.STABLE and topics is not None:
            since_ms, kept = -1, topics
        else:
            return []
        return [
            partition
            for partition, position in self._committed.items()
            if partition.topic not in kept
            and partition not in self._pending
            and now_ms >= _keep_until_ms(position, since_ms, retention_ms)
        ]

    def _no_longer_pending(self, partition: TopicPartition, commit: PendingCommit) -> None:
        pending = self._pending.get(partition, {})
        pending.pop(commit.number, None)
        if not pending:
            self._pending.pop(partition, None)
            self._applied.pop(partition, None)


def _keep_until_ms(position: StoredOffset, since_ms: int, retention_ms: int) -> int:
    if position.expire_timestamp_ms >= 0:
        return position.expire_timestamp_ms
    return max(position.commit_timestamp_ms, since_ms) + retention_ms
