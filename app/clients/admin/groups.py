"""`Admin`: groups of all types, their members, and the offsets of consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ....core.client.calls import CoordinatorOf
from ....core.client.errors import no_partition
from ....ports.broker_api.consumer_groups import ConsumerGroupDescribe, ConsumerGroupDescribeResult
from ....ports.broker_api.envelope import Request, ResultT
from ....ports.broker_api.groups import (
    Coordinator,
    DeleteGroups,
    DeleteGroupsResult,
    DescribeGroups,
    DescribeGroupsResult,
    FetchedOffset,
    ListedGroup,
    ListGroups,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
)
from ....ports.broker_api.metadata import Metadata, MetadataResult
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.broker_api.share_group_offsets import (
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResult,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResult,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResult,
    ShareGroupOffsetsQuery,
    ShareGroupTopic,
    SharePartitionStart,
)
from ....ports.broker_api.share_groups import ShareGroupDescribe, ShareGroupDescribeResult
from ....ports.broker_api.share_partitions import DescribeSharePartitions, SharePartitionDescription
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ConfigError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from .asker import AdminRequests, TopicPartitionLike, TopicPartitionLikeT, check, passing
from .consumer_lag import GroupSummary, LagReader
from .group_details import (
    DEAD,
    SHARE,
    GroupDetails,
    GroupLag,
    MemberDetails,
    ShareStartOffset,
    classic_details,
    consumer_details,
    share_details,
)
from .topics import TopicAdmin

_OTHER_TYPE = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""The errors for a group that does not exist or is of another type, and of a broker without such groups."""


def _first(group_id: str, ways: Sequence[Callable[[str], GroupDetails | None]]) -> GroupDetails:
    """Return the first answer of the ways to describe a group, or that of a group that does not exist."""
    found = next(filter(None, (describe(group_id) for describe in ways)), None)
    return found or GroupDetails(group_id=group_id, state=DEAD, protocol_type="", protocol="", members=[])


_POSITIONS = {"earliest": EARLIEST, "latest": LATEST}


@frozen(kw_only=True)
class OffsetChange:
    """The committed offset of a group in one partition, before (None: none) and after a reset, and the log's range."""

    topic: str
    partition: int
    before: int | None
    after: int
    log_start_offset: int
    log_end_offset: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def lag(self) -> int:
        """The number of messages left to read after the reset, about."""
        return self.log_end_offset - self.after


@frozen(kw_only=True)
class ResetTo:
    """The target of a reset, exactly one of: a time (ms, EARLIEST or LATEST), an offset, a shift."""

    timestamp_ms: int | None = None
    offset: int | None = None
    shift: int | None = None

    @classmethod
    def of(
        cls,
        *,
        to: str | None = None,
        timestamp_ms: int | None = None,
        offset: int | None = None,
        shift: int | None = None,
    ) -> ResetTo:
        """Make the target. Raises `ConfigError` unless exactly one argument is given, and is valid."""
        given = [value for value in (to, timestamp_ms, offset, shift) if value is not None]
        if len(given) != 1:
            raise ConfigError("say where to reset to: exactly one of to, timestamp_ms, offset and shift")
        if to is not None and to not in _POSITIONS:
            raise ConfigError(f"to={to!r}: give earliest or latest, or timestamp_ms, offset or shift")
        if timestamp_ms is not None and timestamp_ms < 0:
            raise ConfigError(f"timestamp_ms={timestamp_ms}: give milliseconds since 1970")
        if offset is not None and offset < 0:
            raise ConfigError(f"offset={offset}: offsets begin at 0")
        return cls(timestamp_ms=_POSITIONS[to] if to is not None else timestamp_ms, offset=offset, shift=shift)


def planned(
    wanted: ResetTo,
    partitions: Sequence[TopicPartition],
    *,
    committed: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int],
) -> list[OffsetChange]:
    """Return the change of each partition, limited to the log's range.

    `at_time`: the offsets of a wanted time, -1 = no message is that late. Raises `ConfigError` for a shift without a
    committed offset.
    """

    def target(tp: TopicPartition) -> int:
        if wanted.timestamp_ms is not None:
            found = at_time[tp]
            return found if found >= 0 else end[tp]
        if wanted.offset is not None:
            return wanted.offset
        if tp not in committed:
            raise ConfigError(f"the group has no committed offset in {tp} to shift; reset it to earliest or latest")
        return committed[tp] + (wanted.shift or 0)

    return [
        OffsetChange(
            topic=tp.topic,
            partition=tp.partition,
            before=committed.get(tp),
            after=min(max(target(tp), first[tp]), end[tp]),
            log_start_offset=first[tp],
            log_end_offset=end[tp],
        )
        for tp in partitions
    ]


class GroupAdmin:
    """Lists, describes and deletes groups; returns, changes and removes their committed offsets."""

    def __init__(self, asker: AdminRequests, topics: TopicAdmin) -> None:
        self._asker = asker
        self._topics = topics
        self._lags = LagReader(asker)

    # --- groups

    def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """Return the groups of all brokers, sorted by name; `states` ("Stable", "Empty", ...) and `types` filter them.

        Filters need brokers of Kafka 2.6 (states) and 3.8 (types) or later; UNSUPPORTED_VERSION otherwise. Raises
        `ApiError`.
        """
        found = {group.group_id: group for groups in self._listed(states, types).values() for group in groups}
        return [found[name] for name in sorted(found)]

    def list_group_lags(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), times: bool = True
    ) -> list[GroupSummary]:
        """Return the groups with their members and their lag in all partitions together, sorted by name.

        times:  read also the timestamp of the oldest unread message, where the caller may read the topics

        The requests are few: two for each 100 groups of a broker, one to each leader for the ends, and for timestamps
        one to each leader for 256 partitions with unread messages, at most 40 times. `states` and `types`
        are those of `list_groups`. Raises `ApiError`.
        """
        return self._lags.summarize(self._listed(states, types), times=times)

    def _listed(self, states: Sequence[str], types: Sequence[str]) -> dict[int, Sequence[ListedGroup]]:
        """Return the groups of each broker."""
        found: dict[int, Sequence[ListedGroup]] = {}
        for node, result in self._asker.ask_brokers(ListGroups(states=states, types=types)):
            check(result.error, None, f"the groups of broker {node}")
            found[node] = result.groups
        return found

    def coordinator(self, group_id: str) -> Coordinator:
        """Return the broker that coordinates a group. Raises `ApiError`."""
        return self._asker.coordinator(CoordinatorOf(group_id), f"group {group_id}")

    def describe_groups(self, group_ids: Sequence[str]) -> list[GroupDetails]:
        """Return state and members of groups of all types, in the order of the ids. A group that does not exist is
        "Dead".

        Raises `ApiError`.
        """
        ways = (self._describe_classic, self._describe_consumer, self._describe_share)
        return [_first(group_id, ways) for group_id in group_ids]

    def describe_consumer_groups(self, group_ids: Sequence[str]) -> list[GroupDetails]:
        """Return state and members of consumer groups, also of those that use the classic protocol. A group that does
        not exist, or is of another type, is "Dead".

        Raises `ApiError`.
        """
        return [_first(group_id, (self._describe_consumer, self._describe_classic)) for group_id in group_ids]

    def describe_share_groups(self, group_ids: Sequence[str]) -> list[GroupDetails]:
        """Return state and members of share groups. A group that does not exist, or is of another type, is "Dead".

        Raises `ApiError`.
        """
        return [_first(group_id, (self._describe_share,)) for group_id in group_ids]

    def _describe_classic(self, group_id: str) -> GroupDetails | None:
        """Return a group; None: it does not exist, or is of another type."""

        def errors(result: DescribeGroupsResult) -> Iterable[ErrorCode]:
            return [group.error for group in result.groups]

        group = self._ask_coordinator(group_id, DescribeGroups(group_ids=[group_id]), errors).groups[0]
        if group.error is ErrorCode.GROUP_ID_NOT_FOUND:  # from version 6 on, with state Dead
            return None
        check(group.error, group.error_message, f"group {group_id}")
        return None if group.state == DEAD else classic_details(group)

    def _describe_consumer(self, group_id: str) -> GroupDetails | None:
        def errors(result: ConsumerGroupDescribeResult) -> Iterable[ErrorCode]:
            return [group.error for group in result.groups]

        result = self._ask_if_offered(group_id, ConsumerGroupDescribe(group_ids=[group_id]), errors)
        group = None if result is None else result.groups[0]
        if group is None or group.error in _OTHER_TYPE:
            return None
        check(group.error, group.error_message, f"group {group_id}")
        return consumer_details(group)

    def _describe_share(self, group_id: str) -> GroupDetails | None:
        def errors(result: ShareGroupDescribeResult) -> Iterable[ErrorCode]:
            return [group.error for group in result.groups]

        result = self._ask_if_offered(group_id, ShareGroupDescribe(group_ids=[group_id]), errors)
        group = None if result is None else result.groups[0]
        if group is None or group.error in _OTHER_TYPE:
            return None
        check(group.error, group.error_message, f"group {group_id}")
        return share_details(group)

    def _ask_if_offered(
        self, group_id: str, request: Request[ResultT], errors: Callable[[ResultT], Iterable[ErrorCode]]
    ) -> ResultT | None:
        """Ask the coordinator; None: it does not know such requests."""
        try:
            return self._ask_coordinator(group_id, request, errors)
        except ApiError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return None
            raise

    def describe_group(self, group_id: str) -> GroupDetails:
        """Return state and members of one group; it is "Dead" if it does not exist. Raises `ApiError`."""
        return self.describe_groups([group_id])[0]

    def delete_group(self, group_id: str) -> None:
        """Delete one group with all its offsets. Raises `ApiError` (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND)."""
        self.delete_groups([group_id])

    def delete_groups(self, group_ids: Sequence[str]) -> None:
        """Delete groups with all their offsets. Raises the first `ApiError` (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND)."""

        def errors(result: DeleteGroupsResult) -> Iterable[ErrorCode]:
            return [group.error for group in result.groups]

        outcomes = [
            (group_id, self._ask_coordinator(group_id, DeleteGroups(group_ids=[group_id]), errors).groups[0].error)
            for group_id in group_ids
        ]
        for group_id, error in outcomes:
            if error is ErrorCode.NON_EMPTY_GROUP:
                raise self._has_members(self.describe_groups([group_id])[0])
            check(error, None, f"group {group_id}")

    # --- their offsets

    def group_offsets(
        self, group_id: str, places: Iterable[TopicPartitionLike] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the committed offsets of a group, of these partitions or of all; those without an offset are left out.

        With `require_stable` the call waits for pending transactions that would change them. Raises the first
        `ApiError`. A group that does not exist has no offsets.
        """
        wanted = None if places is None else [TopicPartition(*tp) for tp in places]
        asked = OffsetFetchGroup(group_id=group_id, partitions=wanted)
        request = OffsetFetch(groups=[asked], require_stable=require_stable)

        def errors(result: OffsetFetchResult) -> Iterable[ErrorCode]:
            return [result.groups[0].error, *(found.error for found in result.groups[0].partitions)]

        group = self._ask_coordinator(group_id, request, errors).groups[0]
        check(group.error, None, f"group {group_id}")
        for found in group.partitions:
            check(found.error, None, f"{found.topic}-{found.partition} of group {group_id}")
        return {
            TopicPartition(found.topic, found.partition): found
            for found in sorted(group.partitions, key=lambda found: (found.topic, found.partition))
            if found.offset >= 0
        }

    def group_lag(self, group_id: str, *, times: bool = False) -> dict[TopicPartition, GroupLag]:
        """Return the lag of a group, of any type, in every partition with a committed offset or a member that reads it.

        With `times` also the timestamps of the oldest unread messages, where the caller may read the topics. Raises
        `ApiError`.
        """
        (details,) = self.describe_groups([group_id])
        of_share = self.share_group_offsets(group_id) if details.type == SHARE else None
        fetched = self.group_offsets(group_id) if of_share is None else {}
        committed = {tp: each.offset for tp, each in (fetched if of_share is None else of_share).items()}
        readers: dict[TopicPartition, list[MemberDetails]] = {}
        for member in details.members:
            for tp in member.assignment:
                readers.setdefault(tp, []).append(member)
        partitions = sorted({*committed, *readers})
        there = self._existing({tp.topic for tp in partitions})
        ends = self._topics.list_offsets({tp: "latest" for tp in partitions if tp in there})
        unread = {(tp, offset) for tp, offset in committed.items() if offset < ends.get(tp, offset)}
        since = self._lags.timestamps(unread) if times else {}
        return {
            tp: GroupLag(
                committed=committed.get(tp),
                end=ends.get(tp),
                member=readers[tp][0] if tp in readers else None,
                members=readers.get(tp, ()),
                metadata=(fetched[tp].metadata or "") if tp in fetched else "",
                unread_since_ms=since.get((tp, committed[tp])) if tp in committed else None,
                unfinished=of_share[tp].lag if of_share is not None and tp in of_share else None,
            )
            for tp in partitions
        }

    # --- the start offsets of share groups

    def share_group_offsets(
        self, group_id: str, places: Iterable[TopicPartitionLike] | None = None
    ) -> dict[TopicPartition, ShareStartOffset]:
        """Return the start offsets of a share group, of these partitions or of all that it reads; those that are not
        known yet are left out.

        Raises the first `ApiError`.
        """
        topics = None
        if places is not None:
            by_topic: dict[str, list[int]] = {}
            for topic, partition in places:
                by_topic.setdefault(topic, []).append(partition)
            topics = [ShareGroupTopic(topic, numbers) for topic, numbers in by_topic.items()]
        request = DescribeShareGroupOffsets(groups=[ShareGroupOffsetsQuery(group_id=group_id, topics=topics)])

        def errors(result: DescribeShareGroupOffsetsResult) -> Iterable[ErrorCode]:
            partitions = (each for topic in result.groups[0].topics for each in topic.partitions)
            return [result.groups[0].error, *(each.error for each in partitions)]

        group = self._ask_coordinator(group_id, request, errors).groups[0]
        check(group.error, group.error_message, f"group {group_id}")
        found: dict[TopicPartition, ShareStartOffset] = {}
        for topic_offsets in group.topics:
            for each in topic_offsets.partitions:
                tp = TopicPartition(topic_offsets.topic, each.partition)
                check(each.error, each.error_message, f"{tp} of group {group_id}")
                if each.start_offset >= 0:
                    lag = each.lag if each.lag >= 0 else None
                    found[tp] = ShareStartOffset(offset=each.start_offset, leader_epoch=each.leader_epoch, lag=lag)
        return {tp: found[tp] for tp in sorted(found)}

    def describe_share_partitions(self, group_id: str) -> dict[TopicPartition, SharePartitionDescription]:
        """Return what a share group has in flight: per partition the messages that members have, those that wait for
        another delivery, how often they were delivered, and those that were given up.

        Only the leaders know this, and only brokers of Barnabas say it. A partition that no member has fetched from
        since its leader was elected is left out. Raises `ApiError` (UNSUPPORTED_VERSION at brokers of Kafka).
        """
        found: dict[TopicPartition, SharePartitionDescription] = {}
        try:
            for node, result in self._asker.ask_brokers(DescribeSharePartitions(group_id=group_id)):
                check(result.error, result.error_message, f"broker {node}")
                found.update({TopicPartition(each.topic, each.partition): each for each in result.partitions})
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            text = "the brokers do not describe messages in flight: they are of Kafka, or of an older Barnabas"
            raise ApiError(error.code, text) from error
        return {tp: found[tp] for tp in sorted(found)}

    def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartitionLikeT, int]) -> None:
        """Set start offsets of a share group without members; what it has delivered in these partitions is forgotten.

        Raises the first `ApiError`: NON_EMPTY_GROUP names the members.
        """
        starts = [SharePartitionStart(tp[0], tp[1], offset) for tp, offset in offsets.items()]

        def errors(result: AlterShareGroupOffsetsResult) -> Iterable[ErrorCode]:
            return [result.error, *(each.error for topic in result.topics for each in topic.partitions)]

        request = AlterShareGroupOffsets(group_id=group_id, partitions=starts)
        result = self._ask_coordinator(group_id, request, errors)
        if result.error is ErrorCode.NON_EMPTY_GROUP:
            self._check_empty(group_id)
        check(result.error, result.error_message, f"group {group_id}")
        for topic in result.topics:
            for each in topic.partitions:
                check(each.error, each.error_message, f"{topic.topic}-{each.partition} of group {group_id}")

    def reset_share_group_offsets(
        self,
        group_id: str,
        *,
        to: str | None = None,
        timestamp_ms: int | None = None,
        offset: int | None = None,
        shift: int | None = None,
        topics: Sequence[str | TopicPartitionLike] | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Reset the start offsets of a share group without members, and return the changes; with `dry_run` only compute
        them.

        to:            "earliest" or "latest"
        timestamp_ms:  the first message that is not older (ms since 1970), or the end
        offset:        this offset
        shift:         this number of offsets after the start offset, or before it if negative
        topics:        topics or (topic, partition); None = the partitions with a start offset

        New offsets stay within the log. Raises `ApiError` (NON_EMPTY_GROUP names the members), `ConfigError`.
        """
        wanted = ResetTo.of(to=to, timestamp_ms=timestamp_ms, offset=offset, shift=shift)
        self._check_empty(group_id)
        starts = {tp: found.offset for tp, found in self.share_group_offsets(group_id).items()}
        changes = self._planned(group_id, wanted, topics, starts)
        if not dry_run:
            self.alter_share_group_offsets(group_id, {change.place: change.after for change in changes})
        return changes

    def delete_share_group_offsets(self, group_id: str, topics: Sequence[str]) -> None:
        """Forget the offsets of a share group without members in topics: it then begins there as a new group does.

        Raises the first `ApiError`: NON_EMPTY_GROUP names the members.
        """

        def errors(result: DeleteShareGroupOffsetsResult) -> Iterable[ErrorCode]:
            return [result.error, *(topic.error for topic in result.topics)]

        request = DeleteShareGroupOffsets(group_id=group_id, topics=topics)
        result = self._ask_coordinator(group_id, request, errors)
        if result.error is ErrorCode.NON_EMPTY_GROUP:
            self._check_empty(group_id)
        check(result.error, result.error_message, f"group {group_id}")
        for topic in result.topics:
            check(topic.error, topic.error_message, f"{topic.topic} of group {group_id}")

    # --- committed offsets that change

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartitionLike, int]) -> None:
        """Commit offsets for a group without members; a group that does not exist is created.

        Raises the first `ApiError`: NON_EMPTY_GROUP names the members.
        """
        partitions = [OffsetCommitPartition(p[0], p[1], offset) for p, offset in offsets.items()]

        def errors(result: OffsetCommitResult) -> Iterable[ErrorCode]:
            return [partition.error for partition in result.partitions]

        result = self._ask_coordinator(group_id, OffsetCommit(group_id=group_id, partitions=partitions), errors)
        for outcome in result.partitions:
            if outcome.error is ErrorCode.UNKNOWN_MEMBER_ID:  # only members commit to a group that has some
                self._check_empty(group_id)
            check(outcome.error, None, f"{outcome.topic}-{outcome.partition} of group {group_id}")

    def reset_group_offsets(
        self,
        group_id: str,
        *,
        to: str | None = None,
        timestamp_ms: int | None = None,
        offset: int | None = None,
        shift: int | None = None,
        topics: Sequence[str | TopicPartitionLike] | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Reset the offsets of a group without members, and return the changes; with `dry_run` only compute them.

        to:            "earliest" or "latest"
        timestamp_ms:  the first message that is not older (ms since 1970), or the end
        offset:        this offset
        shift:         this number of offsets after the committed one, or before it if negative
        topics:        topics or (topic, partition); None = the partitions with a committed offset

        New offsets stay within the log. Raises `ApiError` (NON_EMPTY_GROUP names the members), `ConfigError`.
        """
        wanted = ResetTo.of(to=to, timestamp_ms=timestamp_ms, offset=offset, shift=shift)
        self._check_empty(group_id)
        committed = {tp: found.offset for tp, found in self.group_offsets(group_id).items()}
        changes = self._planned(group_id, wanted, topics, committed)
        if not dry_run:
            self.alter_group_offsets(group_id, {change.place: change.after for change in changes})
        return changes

    def delete_group_offsets(self, group_id: str, topics: Sequence[str | TopicPartitionLike]) -> list[TopicPartition]:
        """Delete the committed offsets of a group in topics, or in (topic, partition); return those partitions.

        Raises the first `ApiError` (GROUP_SUBSCRIBED_TO_TOPIC while a member reads it).
        """
        committed = self.group_offsets(group_id)
        named = {TopicPartition(*item) for item in topics if not isinstance(item, str)}
        whole = {item for item in topics if isinstance(item, str)}
        topic_partitions = [tp for tp in committed if tp.topic in whole or tp in named]

        def errors(result: OffsetDeleteResult) -> Iterable[ErrorCode]:
            return [result.error]

        if not topic_partitions:
            return []
        result = self._ask_coordinator(group_id, OffsetDelete(group_id=group_id, partitions=topic_partitions), errors)
        check(result.error, None, f"group {group_id}")
        for outcome in result.partitions:
            text = f"group {group_id} has members that read {outcome.topic}; stop them first"
            subscribed = outcome.error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            check(outcome.error, text if subscribed else None, f"{outcome.topic}-{outcome.partition}")
        return topic_partitions

    # --- what they share

    def _planned(
        self,
        group_id: str,
        wanted: ResetTo,
        topics: Sequence[str | TopicPartitionLike] | None,
        committed: Mapping[TopicPartition, int],
    ) -> list[OffsetChange]:
        partitions = self._partitions(group_id, topics, committed)
        at_time = {}
        if wanted.timestamp_ms is not None:
            at_time = self._topics.list_offsets(dict.fromkeys(partitions, wanted.timestamp_ms))
        return planned(
            wanted,
            partitions,
            committed=committed,
            first=self._topics.list_offsets(dict.fromkeys(partitions, "earliest")),
            end=self._topics.list_offsets(dict.fromkeys(partitions, "latest")),
            at_time=at_time,
        )

    def _ask_coordinator(
        self, group_id: str, request: Request[ResultT], errors: Callable[[ResultT], Iterable[ErrorCode]]
    ) -> ResultT:
        return self._asker.shell.ask(request, CoordinatorOf(group_id), retriable=passing(errors))

    def _check_empty(self, group_id: str) -> None:
        (details,) = self.describe_groups([group_id])
        if details.members:
            raise self._has_members(details)

    @staticmethod
    def _has_members(details: GroupDetails) -> ApiError:
        names = ", ".join(member.name for member in details.members[:5])
        more = f" and {len(details.members) - 5} more" if len(details.members) > 5 else ""
        text = f"group {details.group_id} has members, stop them first: {names}{more}"
        return ApiError(ErrorCode.NON_EMPTY_GROUP, text)

    def _existing(self, topics: Iterable[str]) -> set[TopicPartition]:
        """Return the partitions of those topics that exist (still)."""
        request = Metadata(topics=sorted(set(topics)), allow_auto_topic_creation=False)
        result: MetadataResult = self._asker.shell.ask(request)
        return {TopicPartition(topic.name or "", p.partition) for topic in result.topics for p in topic.partitions}

    def _partitions(
        self, group_id: str, topics: Sequence[str | TopicPartitionLike] | None, committed: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        if topics is None:
            there = self._existing({tp.topic for tp in committed})
            partitions = [tp for tp in committed if tp in there]
            if not partitions:
                raise ConfigError(f"group {group_id} has committed nothing; name the topics to set offsets for")
            return partitions
        named = [TopicPartition(*item) for item in topics if not isinstance(item, str)]
        whole = [item for item in topics if isinstance(item, str)]
        described = self._topics.describe_topics([*dict.fromkeys([*whole, *(tp.topic for tp in named)])])
        counts = {topic.name: len(topic.partitions) for topic in described}
        for tp in named:
            if not 0 <= tp.partition < counts[tp.topic]:
                raise no_partition(tp.topic, counts[tp.topic], tp.partition)
        every = [TopicPartition(name, number) for name in whole for number in range(counts[name])]
        return sorted({*named, *every})
