"""The descriptions of consumer groups that `Admin` returns."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field

from ....core.client.group.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from ....ports.broker_api.groups import GroupDescription, GroupMember
from ....ports.types import TopicPartition
from ....ports.values import frozen

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
    """

    committed: int | None
    end: int | None
    member: MemberDetails | None = None
    metadata: str = ""

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
