"""Group requests over a raw socket, and a member whose service must not suffer from what others do."""

import struct
from typing import Any, TypeVar

from support.kafka_frames import newest, request_frame, result_of
from support.raw import RawConnection
from support.waiting import wait_for

from barnabas.adapters.wire_kafka.table import BY_REQUEST
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.groups import (
    FindCoordinator,
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetFetch,
    OffsetFetchGroup,
    SyncGroup,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

ResultT = TypeVar("ResultT")
AT_ONCE = 3
"""The newest JoinGroup that takes in a member without an id at once."""


def framed(request: Request[Any], version: int | None = None) -> bytes:
    """Return the request in its newest version or in this one, with its length before it."""
    api = BY_REQUEST[type(request)]
    content = request_frame(api.key, newest(request) if version is None else version, 7, request)
    return struct.pack(">i", len(content)) + content


def read_result(connection: RawConnection, request: Request[ResultT], version: int | None = None) -> ResultT:
    """Return the next answer, which is to this request."""
    api = BY_REQUEST[type(request)]
    result: ResultT = result_of(api.key, newest(request) if version is None else version, connection.answer())
    return result


def ask(connection: RawConnection, request: Request[ResultT], version: int | None = None) -> ResultT:
    connection.send(framed(request, version))
    return read_result(connection, request, version)


def wait_for_groups(bootstrap: str) -> None:
    """Wait until the broker coordinates groups."""
    request = FindCoordinator(keys=["any"])
    with RawConnection(bootstrap) as connection:
        wait_for(lambda: ask(connection, request).coordinators[0].error is ErrorCode.NONE)


def joining(group: str, member: str = "", metadata: bytes = b"", **more: Any) -> JoinGroup:
    given = {
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [GroupProtocol("range", metadata)],
        **more,
    }
    return JoinGroup(group_id=group, member_id=member, **given)


class RawMember:
    """The only member of its group, with one position that it commits over and over."""

    def __init__(self, bootstrap: str, group: str, topic: str, *, metadata: bytes = b"") -> None:
        self.connection = RawConnection(bootstrap)
        self.group, self.topic = group, topic
        self.joined: JoinGroupResult = ask(self.connection, joining(group, metadata=metadata), AT_ONCE)
        assert self.joined.error is ErrorCode.NONE, self.joined
        given = [MemberAssignment(self.joined.member_id, b"mine")]
        assert ask(self.connection, SyncGroup(**self._me(), assignments=given)).assignment == b"mine"
        self._offset = 0

    def check(self) -> None:
        """It gets its service: it is a member as before, and its positions are kept."""
        assert ask(self.connection, Heartbeat(**self._me())).error is ErrorCode.NONE
        self._offset += 1
        position = OffsetCommitPartition(self.topic, 0, self._offset)
        (outcome,) = ask(self.connection, OffsetCommit(**self._me(), partitions=[position])).partitions
        assert outcome.error is ErrorCode.NONE
        wanted = OffsetFetchGroup(group_id=self.group, partitions=[TopicPartition(self.topic, 0)])
        (group,) = ask(self.connection, OffsetFetch(groups=[wanted])).groups
        assert [each.offset for each in group.partitions] == [self._offset]

    def leave(self) -> None:
        """Out of the group, and the connection closed."""
        leaving = [LeavingMember(member_id=self.joined.member_id)]
        assert ask(self.connection, LeaveGroup(group_id=self.group, members=leaving)).error is ErrorCode.NONE
        self.connection.socket.close()

    def _me(self) -> dict[str, Any]:
        joined = self.joined
        return {"group_id": self.group, "generation_id": joined.generation_id, "member_id": joined.member_id}
