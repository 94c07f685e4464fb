"""OffsetCommit, OffsetFetch, OffsetDelete, and what happens to positions in the course of time (facts C6)."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ....ports.broker_api.envelope import Reply
from ....ports.broker_api.groups import (
    FetchedGroup,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
    PartitionOutcome,
)
from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.error_codes import ErrorCode
from ....ports.types import TopicPartition
from ...traffic.steps import Steps
from ..log import Record
from ..record_fields import STRING_BYTES_MAX
from .entry import GroupEntry
from .group import CommitPartitionValidator
from .records import LONG_MAX, StoredOffset, encode_offset, encode_offset_key
from .shard import GroupShard, commit_error
from .states import GroupState
from .subscription import CONSUMER_PROTOCOL

_POSITIONS_PER_STEP = 64

TopicIdOf = Callable[[TopicPartition], bytes | None]
"""The id of the topic that has this partition; None if the cluster does not have the partition."""


class Positions:
    """The positions of all groups. Owner thread only."""

    def __init__(self, shard: GroupShard, topic_id_of: TopicIdOf) -> None:
        self._shard = shard
        self._runtime = shard.runtime
        self._topic_id_of = topic_id_of

    def commit(self, request: OffsetCommit, reply: Reply[OffsetCommitResult]) -> None:
        runtime = self._runtime
        error = self._shard.table.check_key(request.group_id, may_be_empty=True)
        entry = self._shard.table.get(request.group_id)
        if error is ErrorCode.NONE and entry is None:
            if request.generation_id < 0:
                entry = self._shard.create(request.group_id)
            else:
                error = (
                    ErrorCode.GROUP_ID_NOT_FOUND if request.knows_group_id_not_found else ErrorCode.ILLEGAL_GENERATION
                )
        if error is ErrorCode.NONE and entry is not None:
            error = entry.group.check_commit(request, self._shard.now_ms)
        if error is not ErrorCode.NONE or entry is None:
            runtime.respond(reply, _all_failed(request, error))
            return
        self._commit(entry, request, reply)

    def fetch(self, request: OffsetFetch) -> Steps[OffsetFetchResult]:
        """In steps; a group that is named twice is answered once."""
        groups = []
        for group in {group.group_id: group for group in request.groups}.values():
            groups.append((yield from self._fetch(group, require_stable=request.require_stable)))
            yield None
        return OffsetFetchResult(groups=groups)

    def delete(self, request: OffsetDelete, reply: Reply[OffsetDeleteResult]) -> None:
        runtime = self._runtime
        error = self._shard.table.check_key(request.group_id)
        entry = self._shard.table.get(request.group_id)
        if error is ErrorCode.NONE and entry is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif entry is not None and entry.group.member_count and entry.group.protocol_type != CONSUMER_PROTOCOL:
            error = error or ErrorCode.NON_EMPTY_GROUP
        if error is not ErrorCode.NONE or entry is None:
            runtime.respond(reply, OffsetDeleteResult(error=error))
            return
        topics = entry.group.subscribed_topics()
        outcomes = [PartitionOutcome(*each, self._undeletable(each, topics)) for each in request.partitions]
        wanted = [TopicPartition(each.topic, each.partition) for each in outcomes if each.error is ErrorCode.NONE]

        def done(error: ErrorCode) -> None:
            # A position that was to go and did not comes back with the next coordinator.
            runtime.report_failed_write(f"removed positions of group {request.group_id}", entry.partition, error)
            runtime.respond(reply, OffsetDeleteResult(error=commit_error(error), partitions=outcomes))

        self.forget(entry, wanted, done)

    def forget(
        self,
        entry: GroupEntry,
        partitions: Iterable[TopicPartition],
        done: Callable[[ErrorCode], None],
        topic_id: bytes | None = None,
    ) -> None:
        """Drop positions here and now, and then from the log; see `GroupOffsets.forget`."""
        gone = entry.offsets.forget(partitions, topic_id)
        self._shard.counters.deletions.add(len(gone))
        self._runtime.write(entry.partition, tombstones(entry, gone), done)
        self._runtime.on_event(entry)

    def forget_partitions(
        self, topic_id: bytes, partitions: Collection[TopicPartition], stored_in: int | None = None
    ) -> None:
        """Forget the positions in deleted partitions of a topic, in all groups or in those that one partition of
        `__consumer_offsets` stores (`stored_in`). Positions of another topic of the same name stay."""
        deleted = frozenset(partitions)
        for entry in list(self._shard.table):
            if stored_in in (None, entry.partition) and entry.offsets.touch(deleted):
                self.forget(entry, deleted, self._noted(entry), topic_id)

    def drop_from_log(self, partition: int, stale: Mapping[str, Collection[TopicPartition]]) -> None:
        """Write tombstones for offsets that were read from the log and belong to deleted topics, by group."""
        runtime = self._runtime
        for group_id, partitions in stale.items():
            records: list[Record] = [(encode_offset_key(group_id, *each), None) for each in partitions]
            self._shard.counters.deletions.add(len(records))
            what = f"removed positions of group {group_id}"
            runtime.write(partition, records, partial(runtime.report_failed_write, what, partition))

    def expire(self, entries: Sequence[GroupEntry]) -> None:
        """Forget what is old enough, and groups that have neither members nor positions."""
        runtime = self._runtime
        now_ms, retention_ms = runtime.clock.now_ms(), self._shard.config.offsets_retention_ms
        for entry in entries:
            group = entry.group
            if group.state is GroupState.DEAD:
                continue
            gone = entry.offsets.expired(
                now_ms=now_ms,
                retention_ms=retention_ms,
                state=group.state,
                state_since_ms=entry.state_since_ms,
                is_simple=group.protocol_type is None,
                topics=group.subscribed_topics() if group.member_count else None,
            )
            entry.offsets.forget(gone)
            self._shard.counters.expirations.add(len(gone))
            records = tombstones(entry, gone)
            if entry.is_over:
                records += entry.group.tombstones()
                self._shard.remove(entry, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            runtime.write(entry.partition, records, self._noted(entry))

    # --- within

    def accept(
        self,
        group_id: str,
        partitions: Iterable[OffsetCommitPartition],
        expire_ms: int = -1,
        validate: CommitPartitionValidator | None = None,
    ) -> "AcceptedPositions":
        """Check the positions of a request; returns the valid ones, their records and the outcomes."""
        now_ms = self._runtime.clock.now_ms()
        positions: dict[TopicPartition, StoredOffset] = {}
        records: dict[TopicPartition, Record] = {}
        outcomes: list[PartitionOutcome] = []
        for each in partitions:
            partition = TopicPartition(each.topic, each.partition)
            error = self._unacceptable(partition, each)
            if error is ErrorCode.NONE:
                topic_id = self._topic_id_of(partition) or NO_TOPIC_ID
                if validate is not None:
                    error = validate(topic_id, partition.partition)
            if error is ErrorCode.NONE:
                position = StoredOffset(
                    each.offset, each.leader_epoch, each.metadata or "", now_ms, expire_ms, topic_id
                )
                positions[partition] = position
                records[partition] = (encode_offset_key(group_id, *partition), encode_offset(position))
            outcomes.append(PartitionOutcome(each.topic, each.partition, error))
        return AcceptedPositions(positions, records, outcomes)

    def _commit(self, entry: GroupEntry, request: OffsetCommit, reply: Reply[OffsetCommitResult]) -> None:
        runtime = self._runtime
        expire_ms = -1
        if request.retention_ms >= 0:
            expire_ms = min(runtime.clock.now_ms() + request.retention_ms, LONG_MAX)
        validate = entry.group.commit_validator(request.member_id, request.generation_id)
        accepted = self.accept(request.group_id, request.partitions, expire_ms, validate)
        commit = entry.offsets.prepare_commit(accepted.positions)

        def done(error: ErrorCode) -> None:
            entry.offsets.finish(commit, stored=error is ErrorCode.NONE)
            if error is ErrorCode.NONE:
                self._shard.counters.commits.add(len(accepted.positions))
            runtime.on_event(entry)
            runtime.respond(reply, OffsetCommitResult(partitions=accepted.build_outcomes(commit_error(error))))

        runtime.write(entry.partition, accepted.records.values(), done)

    def _unacceptable(self, partition: TopicPartition, position: OffsetCommitPartition) -> ErrorCode:
        if position.metadata and _too_long(position.metadata, self._shard.config.offset_metadata_max_bytes):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        topic_id = self._topic_id_of(partition)
        if topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_meant = position.topic_id in (NO_TOPIC_ID, topic_id)
        return ErrorCode.NONE if is_meant else ErrorCode.UNKNOWN_TOPIC_ID

    def _fetch(self, wanted: OffsetFetchGroup, *, require_stable: bool) -> Steps[FetchedGroup]:
        error = self._shard.table.check_key(wanted.group_id, may_be_empty=True)
        entry = self._shard.table.get(wanted.group_id)
        if error is ErrorCode.NONE and entry is not None:
            error = entry.group.check_fetch(wanted)
        if error is not ErrorCode.NONE:
            failed = [FetchedOffset(*each, error=error) for each in wanted.partitions or ()]  # for old versions
            return FetchedGroup(group_id=wanted.group_id, partitions=failed, error=error)
        if entry is None:
            nothing = [self._position(None, each, wanted, require_stable=False) for each in wanted.partitions or ()]
            return FetchedGroup(group_id=wanted.group_id, partitions=nothing)
        partitions = tuple(entry.offsets) if wanted.partitions is None else wanted.partitions
        found = []
        for number, each in enumerate(partitions, 1):
            found.append(self._position(entry, each, wanted, require_stable=require_stable))
            if not number % _POSITIONS_PER_STEP:
                yield None
        return FetchedGroup(group_id=wanted.group_id, partitions=found)

    def _position(
        self, entry: GroupEntry | None, partition: TopicPartition, wanted: OffsetFetchGroup, *, require_stable: bool
    ) -> FetchedOffset:
        meant = wanted.topic_ids.get(partition.topic)
        position = None if entry is None else entry.offsets.get(partition)
        topic_id = meant
        if topic_id is None:
            topic_id = NO_TOPIC_ID if position is None else position.topic_id
            if topic_id == NO_TOPIC_ID:
                topic_id = self._topic_id_of(partition) or NO_TOPIC_ID
        if require_stable and entry is not None and entry.offsets.is_pending(partition):
            return FetchedOffset(*partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT, topic_id=topic_id)
        if position is None or (meant is not None and not position.is_of(meant)):
            return FetchedOffset(*partition, topic_id=topic_id)
        return FetchedOffset(*partition, position.offset, position.leader_epoch, position.metadata, topic_id=topic_id)

    def _undeletable(self, partition: TopicPartition, topics: Collection[str] | None) -> ErrorCode:
        if self._topic_id_of(partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        subscribed = topics is None or partition.topic in topics
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE

    def _noted(self, entry: GroupEntry) -> Callable[[ErrorCode], None]:
        what = f"removed positions of group {entry.group.group_id}"
        return lambda error: self._runtime.report_failed_write(what, entry.partition, error)


class AcceptedPositions(NamedTuple):
    """The positions of one request that are valid, the records that store them, and the outcome of each partition."""

    positions: dict[TopicPartition, StoredOffset]
    records: dict[TopicPartition, Record]
    outcomes: list[PartitionOutcome]

    def build_outcomes(self, error: ErrorCode) -> list[PartitionOutcome]:
        """Return the outcomes after a write with this result; the error of an invalid position stays."""
        if error is ErrorCode.NONE:
            return self.outcomes
        return [
            PartitionOutcome(each.topic, each.partition, error) if each.error is ErrorCode.NONE else each
            for each in self.outcomes
        ]


def tombstones(entry: GroupEntry, partitions: Iterable[TopicPartition]) -> list[Record]:
    """Return the tombstones of the offsets that a group has committed for these partitions."""
    group_id = entry.group.group_id
    return [(encode_offset_key(group_id, *partition), None) for partition in partitions]


def _all_failed(request: OffsetCommit, error: ErrorCode) -> OffsetCommitResult:
    return OffsetCommitResult(
        partitions=[PartitionOutcome(each.topic, each.partition, error) for each in request.partitions]
    )


def _too_long(text: str, most: int) -> bool:
    """Kafka counts UTF-16 units; a record has room for 32767 bytes."""
    if 4 * len(text) <= min(most, STRING_BYTES_MAX):
        return False
    return len(text.encode("utf-16-le")) // 2 > most or len(text.encode()) > STRING_BYTES_MAX
