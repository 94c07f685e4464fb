"""`Admin`: consumer groups, their members and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import field

from ....core.client.calls import CoordinatorOf
from ....core.client.errors import no_partition
from ....core.client.group.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from ....ports.broker_api.envelope import Request, ResultT
from ....ports.broker_api.groups import (
    Coordinator,
    DeleteGroups,
    DeleteGroupsResult,
    DescribeGroups,
    DescribeGroupsResult,
    FetchedOffset,
    GroupDescription,
    GroupMember,
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
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ConfigError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from .asker import AdminRequests, Place, check, passing
from .consumer_lag import GroupSummary, LagReader
from .topics import TopicAdmin

# The descriptions of consumer groups that `Admin` returns.

DEAD = "Dead"
"""The state of a group that does not exist."""


def _size(data: bytes) -> str:
    return f"<{len(data)} bytes>"


@frozen(kw_only=True)
class MemberDetails:
    """One member. `topics` and `assignment` are decoded from its bytes; empty where those are not a consumer's."""

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None = None
    topics: Sequence[str] = ()
    assignment: Sequence[TopicPartition] = ()
    metadata_bytes: bytes = field(default=b"", repr=_size)
    assignment_bytes: bytes = field(default=b"", repr=_size)

    @property
    def name(self) -> str:
        """A short name for people: member id, instance id and host."""
        instance = f" ({self.group_instance_id})" if self.group_instance_id else ""
        return f"{self.member_id}{instance} at {self.client_host.lstrip('/') or '?'}"


@frozen(kw_only=True)
class GroupDetails:
    """One group. `protocol` is the name of its assignor, "" unless it is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: Sequence[MemberDetails]

    @property
    def exists(self) -> bool:
        return self.state != DEAD


@frozen(kw_only=True)
class GroupLag:
    """The lag of a group in one partition.

    `committed` is None without a committed offset, `end` if the partition does not exist, `member` if none reads it.
    `unread_since_ms`: the timestamp of the oldest unread message; None unless requested, and if it is unknown.
    """

    committed: int | None
    end: int | None
    member: MemberDetails | None = None
    metadata: str = ""
    unread_since_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """The number of messages between committed offset and end, about: offsets may have gaps. None: not known."""
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


def details_of(group: GroupDescription) -> GroupDetails:
    reads_like_consumers = group.protocol_type == PROTOCOL_TYPE
    return GroupDetails(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        members=[_member(member, decode=reads_like_consumers) for member in group.members],
    )


def _member(member: GroupMember, *, decode: bool) -> MemberDetails:
    return MemberDetails(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        group_instance_id=member.group_instance_id,
        topics=_topics(member.metadata) if decode else (),
        assignment=_assignment(member.assignment) if decode else (),
        metadata_bytes=member.metadata,
        assignment_bytes=member.assignment,
    )


def _topics(metadata: bytes) -> Sequence[str]:
    """Return the topics of a subscription; none if it cannot be decoded, for its format belongs to the members."""
    try:
        return tuple(decode_subscription(metadata).topics) if metadata else ()
    except ValueError:
        return ()


def _assignment(assignment: bytes) -> Sequence[TopicPartition]:
    try:
        return tuple(decode_assignment(assignment).partitions)
    except ValueError:
        return ()


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
    places: Sequence[TopicPartition],
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

    def target(place: TopicPartition) -> int:
        if wanted.timestamp_ms is not None:
            found = at_time[place]
            return found if found >= 0 else end[place]
        if wanted.offset is not None:
            return wanted.offset
        if place not in committed:
            raise ConfigError(f"the group has no position in {place} to move from; reset it to earliest or latest")
        return committed[place] + (wanted.shift or 0)

    return [
        OffsetChange(
            topic=place.topic,
            partition=place.partition,
            before=committed.get(place),
            after=min(max(target(place), first[place]), end[place]),
            log_start_offset=first[place],
            log_end_offset=end[place],
        )
        for place in places
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
        """Return state and members of groups, in the order of the ids. A group that does not exist is "Dead".

        Raises `ApiError`.
        """

        def describe(group_id: str) -> GroupDetails:
            def errors(result: DescribeGroupsResult) -> Iterable[ErrorCode]:
                return [group.error for group in result.groups]

            result = self._ask_coordinator(group_id, DescribeGroups(group_ids=[group_id]), errors)
            group = result.groups[0]
            if group.error is not ErrorCode.GROUP_ID_NOT_FOUND:  # from version 6 on, with state Dead
                check(group.error, group.error_message, f"group {group_id}")
            return details_of(group)

        return [describe(group_id) for group_id in group_ids]

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
        self, group_id: str, places: Iterable[Place] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return the committed offsets of a group, of these partitions or of all; those without an offset are left out.

        With `require_stable` the call waits for pending transactions that would change them. Raises the first
        `ApiError`. A group that does not exist has no offsets.
        """
        wanted = None if places is None else [TopicPartition(*place) for place in places]
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
        """Return the lag of a group in every partition with a committed offset or a member that reads it.

        With `times` also the timestamps of the oldest unread messages, where the caller may read the topics. Raises
        `ApiError`.
        """
        committed = self.group_offsets(group_id)
        (details,) = self.describe_groups([group_id])
        readers = {place: member for member in details.members for place in member.assignment}
        places = sorted({*committed, *readers})
        there = self._existing({place.topic for place in places})
        ends = self._topics.list_offsets({place: "latest" for place in places if place in there})
        unread = {
            (place, each.offset) for place, each in committed.items() if each.offset < ends.get(place, each.offset)
        }
        since = self._lags.timestamps(unread) if times else {}
        return {
            place: GroupLag(
                committed=committed[place].offset if place in committed else None,
                end=ends.get(place),
                member=readers.get(place),
                metadata=(committed[place].metadata or "") if place in committed else "",
                unread_since_ms=since.get((place, committed[place].offset)) if place in committed else None,
            )
            for place in places
        }

    def alter_group_offsets(self, group_id: str, offsets: Mapping[Place, int]) -> None:
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
        topics: Sequence[str | Place] | None = None,
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
        committed = {place: found.offset for place, found in self.group_offsets(group_id).items()}
        places = self._places(group_id, topics, committed)
        at_time = {}
        if wanted.timestamp_ms is not None:
            at_time = self._topics.list_offsets(dict.fromkeys(places, wanted.timestamp_ms))
        changes = planned(
            wanted,
            places,
            committed=committed,
            first=self._topics.list_offsets(dict.fromkeys(places, "earliest")),
            end=self._topics.list_offsets(dict.fromkeys(places, "latest")),
            at_time=at_time,
        )
        if not dry_run:
            self.alter_group_offsets(group_id, {change.place: change.after for change in changes})
        return changes

    def delete_group_offsets(self, group_id: str, topics: Sequence[str | Place]) -> list[TopicPartition]:
        """Delete the committed offsets of a group in topics, or in (topic, partition); return those partitions.

        Raises the first `ApiError` (GROUP_SUBSCRIBED_TO_TOPIC while a member reads it).
        """
        committed = self.group_offsets(group_id)
        named = {TopicPartition(*item) for item in topics if not isinstance(item, str)}
        whole = {item for item in topics if isinstance(item, str)}
        places = [place for place in committed if place.topic in whole or place in named]

        def errors(result: OffsetDeleteResult) -> Iterable[ErrorCode]:
            return [result.error]

        if not places:
            return []
        result = self._ask_coordinator(group_id, OffsetDelete(group_id=group_id, partitions=places), errors)
        check(result.error, None, f"group {group_id}")
        for outcome in result.partitions:
            text = f"group {group_id} has members that read {outcome.topic}; stop them first"
            subscribed = outcome.error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            check(outcome.error, text if subscribed else None, f"{outcome.topic}-{outcome.partition}")
        return places

    # --- what they share

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
        names = set(topics)
        described = [topic for topic in self._topics.describe_topics() if topic.name in names]
        return {TopicPartition(topic.name or "", p.partition) for topic in described for p in topic.partitions}

    def _places(
        self, group_id: str, topics: Sequence[str | Place] | None, committed: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        if topics is None:
            there = self._existing({place.topic for place in committed})
            places = [place for place in committed if place in there]
            if not places:
                raise ConfigError(f"group {group_id} has committed nothing; name the topics to set offsets for")
            return places
        named = [TopicPartition(*item) for item in topics if not isinstance(item, str)]
        whole = [item for item in topics if isinstance(item, str)]
        described = self._topics.describe_topics([*dict.fromkeys([*whole, *(place.topic for place in named)])])
        counts = {topic.name: len(topic.partitions) for topic in described}
        for place in named:
            if not 0 <= place.partition < counts[place.topic]:
                raise no_partition(place.topic, counts[place.topic], place.partition)
        every = [TopicPartition(name, number) for name in whole for number in range(counts[name])]
        return sorted({*named, *every})
