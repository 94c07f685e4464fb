"""The agreement of a group's members in a rebalance, and its form in responses and in the log."""

from collections.abc import Mapping

from attrs import define

from ....ports.broker_api.groups import JoinedMember, JoinGroupResult, SyncGroupResult
from .member import Member, Roster
from .records import StoredGroup
from .subscription import CONSUMER_PROTOCOL, subscribed_topics


@define(eq=False)
class Agreement:
    """The present generation. `protocol` and `leader` are None while there is none."""

    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None

    def joined(self, member: Member, roster: Roster, *, stable: bool, leader: str | None = None) -> JoinGroupResult:
        """Return the answer to a member of this generation. Only the leader, or the one named by `leader`, gets the
        list of members."""
        leader = self.leader or "" if leader is None else leader
        leads = member.member_id == leader
        protocol = self.protocol or ""
        return JoinGroupResult(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader,
            member_id=member.member_id,
            members=[
                JoinedMember(
                    member_id=each.member_id,
                    metadata=each.protocols[protocol],
                    group_instance_id=each.group_instance_id,
                )
                for each in roster
            ]
            if leads
            else (),
            skip_assignment=leads and stable,
        )

    def assigned(self, member: Member) -> SyncGroupResult:
        return SyncGroupResult(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    def stored(self, roster: Roster, assignments: Mapping[str, bytes]) -> StoredGroup:
        protocol = self.protocol or ""
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            members=[each.stored(protocol, assignments.get(each.member_id, b"")) for each in roster],
        )

    def topics_of(self, member: Member) -> frozenset[str] | None:
        """Return the topics that a member subscribes to; None where that cannot be known."""
        metadata = None if self.protocol is None else member.protocols.get(self.protocol)
        if metadata is None or self.protocol_type != CONSUMER_PROTOCOL:
            return None
        return subscribed_topics(metadata)

    def subscribed_topics(self, roster: Roster) -> frozenset[str] | None:
        """The topics of all members together; None where that cannot be known. A step per member."""
        if not len(roster):
            return frozenset()
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol is None:
            return None
        found: set[str] = set()
        for metadata in {member.protocols.get(self.protocol) for member in roster}:
            topics = None if metadata is None else subscribed_topics(metadata)
            if topics is None:
                return None
            found |= topics
        return frozenset(found)
