"""A persister without a share coordinator."""

from collections.abc import Callable

from attrs import evolve

from barnabas.core.share.persister import SharePartitionKey, summary_of
from barnabas.core.share.share_group_offset import (
    ShareGroupOffset,
    check_initialize,
    check_read,
    check_write,
    initialized,
)
from barnabas.ports.broker_api.share_state import (
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
