"""The durable state of share partitions as leaders and group coordinators use it (Kafka's `Persister`)."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import NamedTuple, Protocol

from attrs import evolve

from ...ports.broker_api.share_state import (
    DeleteShareGroupState,
    DeleteShareGroupStateResult,
    InitializePartition,
    InitializeShareGroupState,
    InitializeShareGroupStateResult,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateResult,
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResult,
    ReadStatePartition,
    StateOutcome,
    StateSummary,
    WritePartition,
    WriteShareGroupState,
    WriteShareGroupStateResult,
)
from .share_group_offset import ShareGroupOffset, check_initialize, check_read, check_write, initialized


class SharePartitionKey(NamedTuple):
    """A partition of a topic in a share group."""

    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """Return the key of the share coordinator: the topic id is 22 characters of base64 (`Uuid.toString`)."""
        topic = urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        return f"{self.group_id}:{topic}:{self.partition}"


class Persister(Protocol):
    """Stores the state of share partitions. Owner thread only.

    Every method calls back exactly once, on the owner thread, at once or later, with one outcome for each partition of
    the request, in its order; none raises. Errors that may pass (no coordinator, a time-out) were retried for a bounded
    time before they are reported: then a write may have happened or not. A leader sends the writes of one share
    partition one after the other.
    """

    def initialize_state(
        self, request: InitializeShareGroupState, callback: Callable[[InitializeShareGroupStateResult], None]
    ) -> None:
        """Create or replace the state of partitions; called by the group coordinator."""
        ...

    def read_state(self, request: ReadShareGroupState, callback: Callable[[ReadShareGroupStateResult], None]) -> None:
        """Read the state of partitions, and fence earlier leaders; called by the leader of the partitions."""
        ...

    def write_state(
        self, request: WriteShareGroupState, callback: Callable[[WriteShareGroupStateResult], None]
    ) -> None:
        """Store changes; called by the leader of the partitions. With NONE they are durable."""
        ...

    def delete_state(
        self, request: DeleteShareGroupState, callback: Callable[[DeleteShareGroupStateResult], None]
    ) -> None:
        """Delete the state of partitions; called by the group coordinator."""
        ...

    def read_state_summary(
        self,
        request: ReadShareGroupStateSummary,
        callback: Callable[[ReadShareGroupStateSummaryResult], None],
    ) -> None:
        """Read the start offsets of partitions; called by the group coordinator."""
        ...


class MemoryPersister:
    """A persister with the rules of the share coordinator, in memory: for tests, and for one process."""

    def __init__(self) -> None:
        self.offsets: dict[SharePartitionKey, ShareGroupOffset] = {}

    def initialize_state(
        self, request: InitializeShareGroupState, callback: Callable[[InitializeShareGroupStateResult], None]
    ) -> None:
        """Create or replace the state of partitions."""
        outcomes = [self._initialize(request.group_id, each) for each in request.partitions]
        callback(InitializeShareGroupStateResult(partitions=outcomes))

    def _initialize(self, group_id: str, request: InitializePartition) -> StateOutcome:
        key = SharePartitionKey(group_id, request.topic_id, request.partition)
        refusal = check_initialize(self.offsets.get(key), request)
        if refusal is not None:
            return StateOutcome(request.topic_id, request.partition, *refusal)
        self.offsets[key] = initialized(request)
        return StateOutcome(request.topic_id, request.partition)

    def read_state(self, request: ReadShareGroupState, callback: Callable[[ReadShareGroupStateResult], None]) -> None:
        """Read the state of partitions, and fence earlier leaders."""
        outcomes = [self._read(request.group_id, each) for each in request.partitions]
        callback(ReadShareGroupStateResult(partitions=outcomes))

    def _read(self, group_id: str, request: ReadPartition) -> ReadStatePartition:
        key = SharePartitionKey(group_id, request.topic_id, request.partition)
        current = self.offsets.get(key)
        refusal = check_read(current, request.leader_epoch)
        if refusal is not None or current is None:
            return ReadStatePartition(request.topic_id, request.partition, *(refusal or ()))
        self.offsets[key] = evolve(current, leader_epoch=max(current.leader_epoch, request.leader_epoch))
        return ReadStatePartition(
            request.topic_id,
            request.partition,
            state_epoch=current.state_epoch,
            start_offset=current.start_offset,
            state_batches=current.state_batches,
        )

    def write_state(
        self, request: WriteShareGroupState, callback: Callable[[WriteShareGroupStateResult], None]
    ) -> None:
        """Store changes of partitions."""
        outcomes = [self._write(request.group_id, each) for each in request.partitions]
        callback(WriteShareGroupStateResult(partitions=outcomes))

    def _write(self, group_id: str, request: WritePartition) -> StateOutcome:
        key = SharePartitionKey(group_id, request.topic_id, request.partition)
        current = self.offsets.get(key)
        refusal = check_write(current, request)
        if refusal is not None or current is None:
            return StateOutcome(request.topic_id, request.partition, *(refusal or ()))
        self.offsets[key] = current.written(request)
        return StateOutcome(request.topic_id, request.partition)

    def delete_state(
        self, request: DeleteShareGroupState, callback: Callable[[DeleteShareGroupStateResult], None]
    ) -> None:
        """Delete the state of partitions."""
        for each in request.partitions:
            self.offsets.pop(SharePartitionKey(request.group_id, each.topic_id, each.partition), None)
        outcomes = [StateOutcome(each.topic_id, each.partition) for each in request.partitions]
        callback(DeleteShareGroupStateResult(partitions=outcomes))

    def read_state_summary(
        self,
        request: ReadShareGroupStateSummary,
        callback: Callable[[ReadShareGroupStateSummaryResult], None],
    ) -> None:
        """Read the start offsets of partitions."""
        outcomes = [self._summary(request.group_id, each) for each in request.partitions]
        callback(ReadShareGroupStateSummaryResult(partitions=outcomes))

    def _summary(self, group_id: str, request: ReadPartition) -> StateSummary:
        return summary_of(request, self.offsets.get(SharePartitionKey(group_id, request.topic_id, request.partition)))


def summary_of(request: ReadPartition, current: ShareGroupOffset | None) -> StateSummary:
    """Return the start of a share partition; one without state has the defaults."""
    if current is None:
        return StateSummary(request.topic_id, request.partition)
    return StateSummary(
        request.topic_id,
        request.partition,
        state_epoch=current.state_epoch,
        leader_epoch=max(0, current.leader_epoch),
        start_offset=current.start_offset,
        delivery_complete_count=current.delivery_complete_count,
    )
