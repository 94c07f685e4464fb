"""A member of a consumer group that does nothing: enough for those who look at groups from outside."""

from collections.abc import Sequence

from barnabas.app.clients.admin.admin import Admin
from barnabas.core.client.calls import CoordinatorOf
from barnabas.core.client.group.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.ports.broker_api.groups import (
    GroupProtocol,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition


class IdleMember:
    """The only member of its group: it subscribes to the topics of what it gives itself, in one generation."""

    def __init__(
        self, admin: Admin, group_id: str, assignment: Sequence[tuple[str, int]], *, instance: str | None = None
    ) -> None:
        """Returns when the group is stable."""
        self._shell = admin._shell
        self.group_id = group_id
        topic_partitions = [TopicPartition(*tp) for tp in assignment]
        topics = sorted({tp.topic for tp in topic_partitions})
        joining = JoinGroup(
            group_id=group_id,
            session_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[GroupProtocol("range", encode_subscription(Subscription(topics=topics)))],
            group_instance_id=instance,
        )
        joined = self._shell.ask(joining, CoordinatorOf(group_id))
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            again = JoinGroup(
                group_id=group_id,
                session_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=joining.protocols,
                member_id=joined.member_id,
            )
            joined = self._shell.ask(again, CoordinatorOf(group_id))
        assert joined.error is ErrorCode.NONE, joined
        self.member_id = joined.member_id
        given = encode_assignment(Assignment(partitions=topic_partitions))
        synchronized = self._shell.ask(
            SyncGroup(
                group_id=group_id,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                group_instance_id=instance,
                assignments=[MemberAssignment(self.member_id, given)],
            ),
            CoordinatorOf(group_id),
        )
        assert synchronized.error is ErrorCode.NONE, synchronized

    def leave(self) -> None:
        leaving = [LeavingMember(member_id=self.member_id)]
        result = self._shell.ask(LeaveGroup(group_id=self.group_id, members=leaving), CoordinatorOf(self.group_id))
        assert result.error is ErrorCode.NONE, result
