"""The positions of a group in each partition: those that are committed, those that are being written or wait for the
end of a transaction, and those that have expired."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ....ports.types import TopicPartition
from .records import StoredOffset
from .states import GroupState

_WITH_ASSIGNMENT = (GroupState.STABLE, GroupState.ASSIGNING, GroupState.RECONCILING)
NO_PRODUCER = -1
"""The producer of positions that belong to no transaction."""


class PendingCommit:
    """Positions that do not count yet; `GroupOffsets.finish` or `end` decides whether they will."""

    __slots__ = ("number", "positions", "producer_id")

    def __init__(self, positions: dict[TopicPartition, StoredOffset], number: int, producer_id: int) -> None:
        self.positions = positions
        self.number = number
        self.producer_id = producer_id


class GroupOffsets:
    """The positions of one group. Owner thread only.

    Of several positions for a partition the one that was begun last counts, which is the order of the log; when a
    transaction ends makes no difference to that.
    """

    __slots__ = ("_applied", "_begun", "_committed", "_open", "_pending")

    def __init__(self, committed: Mapping[TopicPartition, StoredOffset] | None = None) -> None:
        self._committed = dict(committed or {})
        self._pending: dict[TopicPartition, dict[int, PendingCommit]] = {}
        self._open: dict[int, dict[int, PendingCommit]] = {}
        """The commits of a producer's open transaction."""
        self._applied: dict[TopicPartition, int] = {}
        """The commit number of a position, while another commit is being written: the later one counts."""
        self._begun = 0

    def __len__(self) -> int:
        """Return the number of committed positions."""
        return len(self._committed)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    def items(self) -> Sequence[tuple[TopicPartition, StoredOffset]]:
        """Return the offsets that are committed now. May be called from any thread."""
        return tuple(self._committed.items())

    @property
    def is_void(self) -> bool:
        """True if nothing is committed or pending."""
        return not self._committed and not self._pending

    def get(self, partition: TopicPartition) -> StoredOffset | None:
        return self._committed.get(partition)

    def is_pending(self, partition: TopicPartition) -> bool:
        """Return True while another offset of the partition is being written, or is part of an open transaction."""
        return partition in self._pending

    def touch(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return True if a partition has a committed or pending offset. The cost grows with the smaller set."""
        keys = self._committed.keys(), self._pending.keys()
        return not all(known.isdisjoint(partitions) for known in keys)

    def prepare_commit(
        self, positions: dict[TopicPartition, StoredOffset], producer_id: int = NO_PRODUCER
    ) -> PendingCommit:
        """Note positions that are being written. They count once `finish` is called with `stored`, those of a
        producer's transaction once `end` is called with `committed`; a commit that began later wins."""
        self._begun += 1
        commit = PendingCommit(positions, self._begun, producer_id)
        for partition in positions:
            self._pending.setdefault(partition, {})[commit.number] = commit
        if producer_id != NO_PRODUCER:
            self._open.setdefault(producer_id, {})[commit.number] = commit
        return commit

    def finish(self, commit: PendingCommit, *, stored: bool) -> None:
        """End a commit; its positions count if they are stored."""
        for partition, position in commit.positions.items():
            if stored and self._applied.get(partition, 0) < commit.number:
                self._committed[partition] = position
                self._applied[partition] = commit.number
            self._no_longer_pending(partition, commit)
        if commit.producer_id != NO_PRODUCER:
            opened = self._open.get(commit.producer_id, {})
            opened.pop(commit.number, None)
            if not opened:
                self._open.pop(commit.producer_id, None)

    def written(self, commit: PendingCommit) -> None:
        """Note that a commit of an open transaction is in the log: it replaces the transaction's earlier positions of
        the same partitions."""
        mine = self._open.get(commit.producer_id, {})
        if commit.number not in mine:
            return
        for partition in commit.positions:
            for number, older in tuple(self._pending[partition].items()):
                if older.producer_id == commit.producer_id and number < commit.number:
                    del older.positions[partition]
                    self._no_longer_pending(partition, older)
                    if not older.positions:
                        del mine[number]

    def is_open(self, producer_id: int) -> bool:
        """Return True if an open transaction of this producer has offsets of the group."""
        return producer_id in self._open

    def end(self, producer_id: int, *, committed: bool) -> int:
        """End the transaction of a producer; returns the number of positions committed by that."""
        ended = tuple(self._open.get(producer_id, {}).values())
        for commit in ended:
            self.finish(commit, stored=committed)
        return sum(len(commit.positions) for commit in ended) if committed else 0

    def forget(self, partitions: Iterable[TopicPartition], topic_id: bytes | None = None) -> list[TopicPartition]:
        """Drop these positions, and what is pending for them; with a topic id only those that are not of another topic
        of this name. Returns the partitions that had some, and have none left."""
        found = []
        for partition in partitions:
            commits = tuple(self._pending.get(partition, {}).values())
            committed = self._committed.get(partition)
            if committed is not None and (topic_id is None or committed.is_of(topic_id)):
                del self._committed[partition]
            for commit in commits:
                if topic_id is None or commit.positions[partition].is_of(topic_id):
                    del commit.positions[partition]
                    self._no_longer_pending(partition, commit)
            had_some = committed is not None or commits
            if had_some and partition not in self._committed and partition not in self._pending:
                found.append(partition)
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
        """Return the partitions whose positions may be forgotten after `retention_ms` (facts C6).

        In an empty group that is every position, counted from its commit or from when the group became empty, the
        later of both; in a group with members those of topics that no member reads (`topics`; None = not known, so
        nothing), counted from the commit; in a group that never had members (`is_simple`) every position, counted from
        its commit. A position with an expiry of its own expires at that time.
        """
        if state is GroupState.EMPTY or is_simple:
            # A position that was set while the group was empty already is kept as long as any other.
            since_ms = -1 if is_simple else state_since_ms
            subscribed: Collection[str] = ()
        elif state in _WITH_ASSIGNMENT and topics is not None:
            since_ms, subscribed = -1, topics
        else:
            return []
        return [
            partition
            for partition, position in self._committed.items()
            if partition.topic not in subscribed
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
