"""A member of a share group by plain requests, to whichever broker leads; and the state that a coordinator has."""

import time
from collections.abc import Sequence
from typing import Any

from support.api_connection import ApiConnection
from support.waiting import PATIENCE_S

from barnabas.core.share.persister import SharePartitionKey
from barnabas.ports.broker_api.configs import ConfigAlteration, ConfigResource, IncrementalAlterConfigs, ResourceKind
from barnabas.ports.broker_api.groups import SHARE_COORDINATOR, FindCoordinator
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.share_groups import (
    AcknowledgementBatch,
    AcknowledgeType,
    ShareAcknowledge,
    ShareAcknowledgePartition,
    ShareFetch,
    ShareFetchPartition,
)
from barnabas.ports.broker_api.share_state import (
    InitializePartition,
    InitializeShareGroupState,
    ReadPartition,
    ReadShareGroupState,
)
from barnabas.ports.error_codes import ErrorCode as E

RETRIED = frozenset(
    {
        E.NOT_COORDINATOR,
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.NOT_LEADER_OR_FOLLOWER,
        E.LEADER_NOT_AVAILABLE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.SHARE_SESSION_NOT_FOUND,
        E.FENCED_LEADER_EPOCH,
    }
)
_LOST = (OSError, EOFError, TimeoutError)


class RawShareMember:
    """The member m of a group, which reads one partition of a topic. Each `fetch` begins a session if there is none."""

    def __init__(self, bootstrap: str, topic: str, *, group: str = "g", member: str = "m", partition: int = 0) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.member = member
        self.partition = partition
        self.topic_id = self._any(Metadata(topics=[topic])).topics[0].topic_id
        self.session: ApiConnection | None = None
        self.epoch = 0
        self.leader = -1

    def key(self) -> str:
        return str(SharePartitionKey(self.group, self.topic_id, self.partition))

    # --- the coordinator

    def coordinator(self) -> int:
        """Return its node; -1 while there is none."""
        (found,) = self._any(FindCoordinator(keys=[self.key()], key_type=SHARE_COORDINATOR)).coordinators
        node: int = found.node_id
        return node

    def initialize(self, start: int = 0) -> None:
        entry = InitializePartition(self.topic_id, self.partition, 1, start)
        outcome = self._ask_coordinator(InitializeShareGroupState(group_id=self.group, partitions=[entry]))
        assert outcome.error is E.NONE, outcome

    def configure(self, name: str, value: str) -> None:
        """Set a setting of the group."""
        resource = ConfigResource(kind=ResourceKind.GROUP, name=self.group)
        change = ConfigAlteration(resource=resource, name=name, value=value)
        result = self._any(IncrementalAlterConfigs(resources=[resource], alterations=[change]))
        assert result.resources[0].error is E.NONE, result

    def state(self) -> tuple[int, list[tuple[int, int, int, int]]]:
        """Return the start offset and the batches, as they are stored."""
        entry = ReadPartition(self.topic_id, self.partition)
        outcome = self._ask_coordinator(ReadShareGroupState(group_id=self.group, partitions=[entry]))
        assert outcome.error is E.NONE, outcome
        batches = [
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in outcome.state_batches
        ]
        return outcome.start_offset, batches

    def _ask_coordinator(self, request: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            outcome = None
            try:
                (found,) = self._any(FindCoordinator(keys=[self.key()], key_type=SHARE_COORDINATOR)).coordinators
                if found.error is E.NONE:
                    with ApiConnection(f"{found.host}:{found.port}") as connection:
                        (outcome,) = connection.ask(request).partitions
            except _LOST:
                pass
            if outcome is not None and outcome.error not in RETRIED:
                return outcome
            assert time.monotonic() < deadline, outcome
            time.sleep(0.02)

    # --- the leader

    def fetch(self, max_wait_ms: int = 200, max_records: int = 500) -> list[tuple[int, int, int]]:
        """Return the ranges that the member acquires now: first and last offset, delivery count."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection = self._connected()
                request = ShareFetch(
                    group_id=self.group,
                    member_id=self.member,
                    share_session_epoch=self.epoch,
                    max_wait_ms=max_wait_ms,
                    min_bytes=1,
                    max_bytes=1 << 20,
                    max_records=max_records,
                    batch_size=max_records,
                    partitions=[ShareFetchPartition(self.topic_id, self.partition)] if not self.epoch else [],
                )
                result = connection.ask(request)
                errors = [result.error, *(each.error for each in result.partitions)]
                if not any(errors):
                    self.epoch += 1
                    return [
                        (each.first_offset, each.last_offset, each.delivery_count)
                        for part in result.partitions
                        for each in part.acquired_records
                    ]
                assert set(errors) <= RETRIED | {E.NONE}, errors
            except _LOST:
                pass
            self.leave()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def acknowledge(self, *batches: tuple[int, int, bytes]) -> E:
        """Acknowledge batches at the leader of the session, which is not looked up again.

        A leader that names no other one was disconnected for a moment, as on a busy machine: the request is repeated.
        """
        assert self.session is not None
        rows = [AcknowledgementBatch(*each) for each in batches]
        entry = ShareAcknowledgePartition(self.topic_id, self.partition, rows)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            request = ShareAcknowledge(
                group_id=self.group,
                member_id=self.member,
                share_session_epoch=self.epoch,
                partitions=[entry],
                is_renew_ack=any(AcknowledgeType.RENEW in types for _, _, types in batches),
            )
            result = self.session.ask(request)
            if result.error is not E.NONE:
                error: E = result.error
                return error
            self.epoch += 1
            outcome = result.partitions[0]
            error = outcome.error
            is_passing = error is E.NOT_LEADER_OR_FOLLOWER and outcome.current_leader is None
            if not is_passing or time.monotonic() > deadline:
                return error
            time.sleep(0.02)

    def leave(self) -> None:
        """Close the connection, and with it the session."""
        if self.session is not None:
            self.session.socket.close()
        self.session, self.epoch = None, 0

    def _connected(self) -> ApiConnection:
        if self.session is None:
            found = self._any(Metadata(topics=[self.topic]))
            nodes = {node.node_id: f"{node.host}:{node.port}" for node in found.brokers}
            self.leader = found.topics[0].partitions[self.partition].leader
            if self.leader not in nodes:
                raise ConnectionError("there is no leader now")
            self.session = ApiConnection(nodes[self.leader])
        return self.session

    def _any(self, request: Any) -> Any:
        """Return the answer of the first broker that gives one."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for address in self.bootstrap.split(","):
                try:
                    with ApiConnection(address) as connection:
                        return connection.ask(request)
                except _LOST:
                    continue
            assert time.monotonic() < deadline
            time.sleep(0.02)


def offsets(ranges: Sequence[tuple[int, int, int]]) -> dict[int, int]:
    """Return the delivery count of each offset."""
    return {offset: count for first, last, count in ranges for offset in range(first, last + 1)}


def acquire_all(member: RawShareMember, count: int = 0) -> dict[int, int]:
    """Return the delivery counts of all available records, at least `count`: a new leader delivers none until its
    followers have raised the high watermark."""
    got: dict[int, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while (more := offsets(member.fetch())) or len(got) < count:
        assert time.monotonic() < deadline, got
        got |= more
    return got
