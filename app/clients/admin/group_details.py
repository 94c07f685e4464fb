"""The descriptions of groups that `Admin` returns, of all types of groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import field

from ....core.client.group.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from ....ports.broker_api.consumer_groups import (
    ConsumerGroupDescription,
    ConsumerGroupMember,
    DescribedTopicPartitions,
)
from ....ports.broker_api.groups import GroupDescription, GroupMember
from ....ports.broker_api.share_groups import ShareGroupDescription, ShareGroupMember
from ....ports.types import TopicPartition
from ....ports.values import frozen

DEAD = "Dead"
"""The state of a group that does not exist."""
CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
"""The types of groups, as Kafka names them."""
_MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER}


def _size(data: bytes) -> str:
    return f"<{len(data)} bytes>"


@frozen(kw_only=True)
class MemberDetails:
    """One member. `topics` and `assignment` of a member of a classic group are decoded from its bytes; empty where
    those are not a consumer's.

    Of members of consumer and share groups: `member_epoch`, `rack_id`; of consumer groups also `topic_pattern`, and
    `target_assignment`, which the member will have. `protocol` is "classic" or "consumer", the one that the member
    speaks, and "share"; empty where it is not known.
    """

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None = None
    topics: Sequence[str] = ()
    assignment: Sequence[TopicPartition] = ()
    metadata_bytes: bytes = field(default=b"", repr=_size)
    assignment_bytes: bytes = field(default=b"", repr=_size)
    member_epoch: int | None = None
    rack_id: str | None = None
    topic_pattern: str | None = None
    target_assignment: Sequence[TopicPartition] | None = None
    protocol: str = ""

    @property
    def name(self) -> str:
        """A short name for people: member id, instance id and host."""
        instance = f" ({self.group_instance_id})" if self.group_instance_id else ""
        return f"{self.member_id}{instance} at {self.client_host.lstrip('/') or '?'}"


@frozen(kw_only=True)
class GroupDetails:
    """One group. `protocol` is the name of its assignor, "" of a classic group unless it is stable.

    `type` is "classic", "consumer" or "share". The group epoch counts changes of members, subscriptions and topics; the
    assignment is for `assignment_epoch`. Classic groups have neither.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: Sequence[MemberDetails]
    type: str = CLASSIC
    group_epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def exists(self) -> bool:
        return self.state != DEAD


@frozen(kw_only=True)
class GroupLag:
    """The lag of a group in one partition.

    `committed` is None without a committed offset, `end` if the partition does not exist, `member` if none reads it.
    `unread_since_ms`: the timestamp of the oldest unread message; None unless requested, and if it is unknown.

    For a share group `committed` is the start offset, below which all messages are done with, `members` are all that
    read the partition, and `unfinished` are the messages from there on that are neither acknowledged nor given up; None
    where the coordinator does not know it.
    """

    committed: int | None
    end: int | None
    member: MemberDetails | None = None
    metadata: str = ""
    unread_since_ms: int | None = None
    members: Sequence[MemberDetails] = ()
    unfinished: int | None = None

    @property
    def lag(self) -> int | None:
        """The number of messages between committed offset and end, about: offsets may have gaps. None: not known."""
        if self.unfinished is not None:
            return self.unfinished
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


@frozen(kw_only=True)
class ShareStartOffset:
    """The start offset of a share group in a partition: all messages below it are done with.

    `lag`: the messages from there on that are neither acknowledged nor given up; None: not known.
    """

    offset: int
    leader_epoch: int
    lag: int | None = None


def classic_details(group: GroupDescription) -> GroupDetails:
    """Describe a group of the classic protocol."""
    reads_like_consumers = group.protocol_type == PROTOCOL_TYPE
    return GroupDetails(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        members=[_classic_member(member, decode=reads_like_consumers) for member in group.members],
    )


def consumer_details(group: ConsumerGroupDescription) -> GroupDetails:
    """Describe a consumer group (KIP-848)."""
    return GroupDetails(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        protocol=group.assignor_name,
        members=[_consumer_member(member) for member in group.members],
        type=CONSUMER,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def share_details(group: ShareGroupDescription) -> GroupDetails:
    """Describe a share group (KIP-932)."""
    return GroupDetails(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=SHARE,
        protocol=group.assignor_name,
        members=[_share_member(member) for member in group.members],
        type=SHARE,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def _classic_member(member: GroupMember, *, decode: bool) -> MemberDetails:
    return MemberDetails(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        group_instance_id=member.group_instance_id,
        topics=_topics(member.metadata) if decode else (),
        assignment=_assignment(member.assignment) if decode else (),
        metadata_bytes=member.metadata,
        assignment_bytes=member.assignment,
        protocol=CLASSIC,
    )


def _consumer_member(member: ConsumerGroupMember) -> MemberDetails:
    return MemberDetails(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        group_instance_id=member.instance_id,
        topics=tuple(member.subscribed_topic_names),
        assignment=_partitions(member.assignment),
        member_epoch=member.member_epoch,
        rack_id=member.rack_id,
        topic_pattern=member.subscribed_topic_regex or None,
        target_assignment=_partitions(member.target_assignment),
        protocol=_MEMBER_TYPES.get(member.member_type, ""),
    )


def _share_member(member: ShareGroupMember) -> MemberDetails:
    return MemberDetails(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(member.subscribed_topic_names),
        assignment=_partitions(member.assignment),
        member_epoch=member.member_epoch,
        rack_id=member.rack_id,
        protocol=SHARE,
    )


def _partitions(topics: Iterable[DescribedTopicPartitions]) -> Sequence[TopicPartition]:
    return sorted(TopicPartition(each.topic_name, number) for each in topics for number in each.partitions)


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
