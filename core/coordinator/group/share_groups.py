"""The requests to share groups (KIP-932): 76, 77 and 90 to 92, as `GroupCoordinator` passes them on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from attrs import evolve

from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.broker_api.operations import GROUP_OPERATIONS
from ....ports.broker_api.share_group_offsets import (
    UNKNOWN_LAG,
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResult,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResult,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResult,
    ShareGroupOffsets,
    ShareGroupOffsetsQuery,
    SharePartitionOffset,
    ShareTopicOffsets,
)
from ....ports.broker_api.share_groups import (
    ShareGroupDescribe,
    ShareGroupDescribeResult,
    ShareGroupDescription,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
)
from ....ports.broker_api.share_state import (
    NO_START_OFFSET,
    ReadPartition,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResult,
    StateSummary,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ...share.persister import Persister
from ...traffic.steps import Steps
from .entry import GroupEntry
from .shard import GroupShard
from .share_group import JOIN_GROUP_MEMBER_EPOCH, ShareGroup, SharePlace, invalid_share_heartbeat

FindEnds = Callable[[Sequence[TopicPartition], Callable[[Mapping[TopicPartition, int]], None]], None]
"""Calls back with the ends of partitions, as far as they can be had."""


class ShareGroups:
    """The share groups among the groups of a shard. Owner thread only.

    `find_ends` finds the ends of partitions, for the lag.
    """

    def __init__(self, shard: GroupShard, persister: Persister, find_ends: FindEnds) -> None:
        self._shard = shard
        self._runtime = shard.runtime
        self._table = shard.table
        self._persister = persister
        self._find_ends = find_ends

    # --- members

    def heartbeat(self, request: ShareGroupHeartbeat, caller: Caller, reply: Reply[ShareGroupHeartbeatResult]) -> None:
        try:
            error = invalid_share_heartbeat(request)
            if error is not None:
                raise error
            entry, group = self._joined(request)
        except ApiError as refused:
            self._runtime.respond(reply, request.failed(refused))
            return
        wall_ms = self._runtime.clock.now_ms()
        self._runtime.apply(entry, group.heartbeat(request, caller, reply, self._shard.now_ms, wall_ms))

    def _joined(self, request: ShareGroupHeartbeat) -> tuple[GroupEntry, ShareGroup]:
        """Return the group of a heartbeat, a new one for the first member. Raises `ApiError`."""
        group_id, is_join = request.group_id, request.member_epoch == JOIN_GROUP_MEMBER_EPOCH
        if not is_join or self._table.get(group_id) is not None or self._table.check_key(group_id):
            entry, group = self._find(group_id)
        else:
            group = ShareGroup(group_id, self._shard.context)
            entry = self._shard.create(group_id, group)
        if request.member_id not in group.members and self._runtime.size_bytes >= self._shard.config.members_max_bytes:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker has too many members")
        return entry, group

    def _find(self, group_id: str) -> tuple[GroupEntry, ShareGroup]:
        """Return a share group. Raises `ApiError`."""
        error = self._table.check_key(group_id)
        if error is not ErrorCode.NONE:
            raise ApiError(error, f"The group {group_id} cannot be served here and now.")
        entry = self._table.get(group_id)
        if entry is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(entry.group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return entry, entry.group

    # --- descriptions

    def describe(self, request: ShareGroupDescribe, caller: Caller, reply: Reply[ShareGroupDescribeResult]) -> None:
        self._runtime.respond_in_steps(self._describe(request), caller, reply)

    def _describe(self, request: ShareGroupDescribe) -> Steps[ShareGroupDescribeResult]:
        groups = []
        for group_id in dict.fromkeys(request.group_ids):
            groups.append(self._described(group_id, with_operations=request.include_authorized_operations))
            yield None
        return ShareGroupDescribeResult(groups=groups)

    def _described(self, group_id: str, *, with_operations: bool) -> ShareGroupDescription:
        try:
            described = self._find(group_id)[1].describe()
        except ApiError as error:
            return ShareGroupDescription(group_id=group_id, error=error.code, error_message=error.message)
        return evolve(described, authorized_operations=GROUP_OPERATIONS) if with_operations else described

    # --- start offsets

    def describe_offsets(
        self, request: DescribeShareGroupOffsets, _caller: Caller, reply: Reply[DescribeShareGroupOffsetsResult]
    ) -> None:
        """Answer when the share coordinators have answered for each group."""
        found: dict[int, ShareGroupOffsets] = {}

        def done(number: int, offsets: ShareGroupOffsets) -> None:
            found[number] = offsets
            if len(found) == len(request.groups):
                groups = [found[each] for each in range(len(request.groups))]
                self._runtime.respond(reply, DescribeShareGroupOffsetsResult(groups=groups))

        if not request.groups:
            self._runtime.respond(reply, DescribeShareGroupOffsetsResult(groups=()))
        for number, query in enumerate(request.groups):
            self._describe_offsets(query, partial(done, number))

    def _describe_offsets(self, query: ShareGroupOffsetsQuery, done: Callable[[ShareGroupOffsets], None]) -> None:
        if query.topics is not None and not query.topics:  # Kafka does not look for the group either
            done(ShareGroupOffsets(group_id=query.group_id))
            return
        try:
            _, group = self._find(query.group_id)
        except ApiError as error:
            done(ShareGroupOffsets(group_id=query.group_id, error=error.code, error_message=error.message))
            return
        wanted = self._wanted(group, query)
        known = [
            (topic_id, number)
            for topic_id, numbers in wanted.values()
            for number in numbers
            if number in group.initialized.get(topic_id, ())
        ]

        def read(result: ReadShareGroupStateSummaryResult) -> None:
            summaries = {(each.topic_id, each.partition): each for each in result.partitions}
            names = {topic_id: name for name, (topic_id, _) in wanted.items()}
            topic_partitions = [
                TopicPartition(names[each.topic_id], each.partition)
                for each in result.partitions
                if each.start_offset != NO_START_OFFSET
            ]
            self._find_ends(topic_partitions, lambda ends: done(_offsets(query.group_id, wanted, summaries, ends)))

        if not known:
            done(_offsets(query.group_id, wanted, {}, {}))
            return
        partitions = [ReadPartition(*tp) for tp in known]
        self._persister.read_state_summary(
            ReadShareGroupStateSummary(group_id=query.group_id, partitions=partitions), read
        )

    def _wanted(self, group: ShareGroup, query: ShareGroupOffsetsQuery) -> dict[str, tuple[bytes, Sequence[int]]]:
        """Return the id and the partitions of each topic of a query; an unknown topic has no id."""
        if query.topics is None:
            return {
                group.topic_name(topic_id): (topic_id, sorted(numbers))
                for topic_id, numbers in sorted(group.initialized.items())
            }
        topics = self._shard.context.topics
        return {each.topic: (topics.topic_id(each.topic) or NO_TOPIC_ID, each.partitions) for each in query.topics}

    def alter_offsets(
        self, request: AlterShareGroupOffsets, _caller: Caller, reply: Reply[AlterShareGroupOffsetsResult]
    ) -> None:
        try:
            entry, group = self._find(request.group_id)
        except ApiError as error:
            self._runtime.respond(reply, request.failed(error))
            return
        self._runtime.apply(entry, group.alter_offsets(request, reply))

    def delete_offsets(
        self, request: DeleteShareGroupOffsets, _caller: Caller, reply: Reply[DeleteShareGroupOffsetsResult]
    ) -> None:
        try:
            entry, group = self._find(request.group_id)
        except ApiError as error:
            self._runtime.respond(reply, request.failed(error))
            return
        self._runtime.apply(entry, group.delete_offsets(request, reply))


def forget_topics(entries: Iterable[GroupEntry], topic_id: bytes, shard: GroupShard) -> None:
    """Take a deleted topic out of the share groups among these."""
    for entry in entries:
        if isinstance(entry.group, ShareGroup):
            effects = entry.group.forget_topics([topic_id])
            if effects:
                shard.runtime.apply(entry, effects)


def _offsets(
    group_id: str,
    wanted: Mapping[str, tuple[bytes, Sequence[int]]],
    summaries: Mapping[SharePlace, StateSummary],
    ends: Mapping[TopicPartition, int],
) -> ShareGroupOffsets:
    topics = []
    for name, (topic_id, numbers) in wanted.items():
        partitions = []
        for number in numbers:
            summary = summaries.get((topic_id, number))
            if topic_id == NO_TOPIC_ID:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                text = "This server does not host this topic-partition."
                partitions.append(SharePartitionOffset(number, error=error, error_message=text))
            elif summary is None:
                partitions.append(SharePartitionOffset(number))
            else:
                lag = _lag(summary, ends.get(TopicPartition(name, number)))
                offset = SharePartitionOffset(
                    number, summary.start_offset, summary.leader_epoch, lag, summary.error, summary.error_message
                )
                partitions.append(offset)
        topics.append(ShareTopicOffsets(topic=name, topic_id=topic_id, partitions=partitions))
    return ShareGroupOffsets(group_id=group_id, topics=topics)


def _lag(summary: StateSummary, end: int | None) -> int:
    """Return the records above the start offset that are neither acknowledged nor archived; -1 = not known."""
    if end is None or summary.start_offset == NO_START_OFFSET:
        return UNKNOWN_LAG
    return max(0, end - summary.start_offset - max(0, summary.delivery_complete_count))
