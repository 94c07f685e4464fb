"""Helpers of the benchmarks of the group coordinator: group requests as bytes, and members that only send those."""

import select
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

from attrs import define
from harness import BareClient, RunningBroker

from barnabas.adapters.wire_kafka.table import BY_REQUEST
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.groups import (
    FindCoordinator,
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    MemberAssignment,
    SyncGroup,
)
from barnabas.ports.error_codes import ErrorCode

ResultT = TypeVar("ResultT")

JOIN_VERSION = 3
"""A member without an id is taken in at once, which later versions do with its second try."""
SYNC_VERSION = 3
SESSION_TIMEOUT_MS = 120_000
PROTOCOL = "range"
_ITEMS_MAX = 1_000_000
_RETRY_SECONDS = 0.05


def frame_of(request: Request[ResultT], version: int) -> bytes:
    """Return the request with the length before it; its correlation id is 1, so that equal answers are equal bytes."""
    api = BY_REQUEST[type(request)]
    writer = api.writer(version)
    writer.out += struct.pack(">hhih", api.key, version, 1, -1)
    if version >= api.flexible_from:
        writer.end()
    api.request.write(writer, version, request)
    content = b"".join(cast(Sequence[bytes], writer.pieces()))
    return struct.pack(">i", len(content)) + content


def result_of(request: Request[ResultT], version: int, answer: memoryview) -> ResultT:
    """Return the result in an answer (without its length)."""
    api = BY_REQUEST[type(request)]
    reader = api.reader(version, answer, 4, _ITEMS_MAX)
    if version >= api.flexible_from:
        reader.skip_tags()
    return cast(ResultT, api.result.read(reader, version))


def ask(client: BareClient, request: Request[ResultT], version: int) -> ResultT:
    """Send and wait for the answer."""
    return result_of(request, version, client.exchange(frame_of(request, version)))


def wait_for_coordinator(client: BareClient, group_id: str) -> None:
    """Return when the broker coordinates the group."""
    request = FindCoordinator(keys=[group_id])
    while ask(client, request, 4).coordinators[0].error is not ErrorCode.NONE:
        select.select([], [], [], _RETRY_SECONDS)


@define
class Member:
    """A member of a group on a connection that it may share with others."""

    client: BareClient
    group_id: str
    assignment: bytes = b""
    member_id: str = ""
    generation_id: int = -1

    def join_request(self, metadata: bytes) -> JoinGroup:
        return JoinGroup(
            group_id=self.group_id,
            member_id=self.member_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[GroupProtocol(PROTOCOL, metadata)],
        )

    def sync_request(self, members: "Sequence[Member]") -> SyncGroup:
        return SyncGroup(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            assignments=[MemberAssignment(each.member_id, each.assignment) for each in members],
        )

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id)


def join_all(members: Sequence[Member], metadata: bytes) -> None:
    """All join, then all get their assignments: a generation. `members` of several groups may be mixed."""
    joins = [member.join_request(metadata) for member in members]
    for member, join in zip(members, joins, strict=True):
        member.client.socket.sendall(frame_of(join, JOIN_VERSION))
    groups: dict[str, list[Member]] = {}
    leaders = set()
    for member, join in zip(members, joins, strict=True):
        joined = result_of(join, JOIN_VERSION, member.client.receive())
        if joined.error is not ErrorCode.NONE:
            raise RuntimeError(f"joining {member.group_id} failed: {joined.error.name}")
        member.member_id, member.generation_id = joined.member_id, joined.generation_id
        groups.setdefault(member.group_id, []).append(member)
        leaders.add(joined.leader)
    syncs = [member.sync_request(groups[member.group_id] if member.member_id in leaders else ()) for member in members]
    for member, sync in zip(members, syncs, strict=True):
        member.client.socket.sendall(frame_of(sync, SYNC_VERSION))
    for member, sync in zip(members, syncs, strict=True):
        synced = result_of(sync, SYNC_VERSION, member.client.receive())
        if synced.error is not ErrorCode.NONE or synced.assignment != member.assignment:
            raise RuntimeError(f"{member.group_id}: {synced.error.name}, {len(synced.assignment)} bytes assigned")


def assignment_of(topic: str, partitions: Iterable[int]) -> bytes:
    """Assignment version 0 (facts E3) of partitions of one topic."""
    numbers = list(partitions)
    name = topic.encode()
    head = struct.pack(">hih", 0, 1, len(name)) + name
    return head + struct.pack(f">i{len(numbers)}ii", len(numbers), *numbers, -1)


def subscription_to(topic: str) -> bytes:
    """Subscription version 0 (facts E3) to one topic."""
    name = topic.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)


def connect(running: RunningBroker) -> BareClient:
    client = BareClient(running.host, running.port, buffer_bytes=4096)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    return client
