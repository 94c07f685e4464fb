"""TxnOffsetCommit: positions that count when the transaction of a producer commits (facts C6, KIP-447)."""

from ....ports.broker_api import PartitionOutcome, Reply, TxnOffsetCommit, TxnOffsetCommitResult
from ....ports.error_codes import ErrorCode
from .positions import Positions
from .runtime import GroupRuntime, commit_error

_IN_THE_LOG = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Outcomes of an append whose records the marker is going to end."""


class TransactionalPositions:
    """What producers commit for groups, from the request to the marker. Owner thread only."""

    def __init__(self, runtime: GroupRuntime, positions: Positions) -> None:
        self._runtime = runtime
        self._positions = positions

    def commit(self, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult]) -> None:
        """Answered when the in-sync replicas have it."""
        error = self._refusal(request)
        if error is not ErrorCode.NONE:
            failed = [PartitionOutcome(each.topic, each.partition, error) for each in request.partitions]
            self._runtime.answer(reply, TxnOffsetCommitResult(partitions=failed))
        else:
            self._write(request, reply)

    def ended(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """The in-sync replicas of this partition of `__consumer_offsets` have the marker."""
        runtime = self._runtime
        for group_id in runtime.table.transactions.end(partition, producer_id):
            entry = runtime.table.get(group_id)
            if entry is not None:
                runtime.counters.commits.add(entry.offsets.end(producer_id, committed=committed))
                runtime.settle(entry)

    def _refusal(self, request: TxnOffsetCommit) -> ErrorCode:
        table = self._runtime.table
        error = table.refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return error
        if request.producer_id < 0 or request.producer_epoch < 0:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        entry = table.get(request.group_id)
        if entry is None:
            return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        return entry.group.check_transactional_commit(request)

    def _write(self, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult]) -> None:
        runtime, producer_id = self._runtime, request.producer_id
        accepted = self._positions.accept(request.group_id, request.partitions)
        if not accepted.positions:
            runtime.answer(reply, TxnOffsetCommitResult(partitions=accepted.outcomes))
            return
        entry = runtime.table.get(request.group_id) or runtime.create(request.group_id)
        # A marker is told when it is replicated, which may be before what is told of this write.
        runtime.table.transactions.add(entry.partition, producer_id, request.group_id)
        commit = entry.offsets.begin(accepted.positions, producer_id)

        def done(error: ErrorCode) -> None:
            if error in _IN_THE_LOG:
                entry.offsets.written(commit)
            else:
                entry.offsets.finish(commit, stored=False)
                if runtime.table.get(request.group_id) is entry and not entry.offsets.is_open(producer_id):
                    runtime.table.transactions.discard(entry.partition, producer_id, request.group_id)
            runtime.settle(entry)
            runtime.answer(reply, TxnOffsetCommitResult(partitions=accepted.told(commit_error(error))))

        runtime.write(entry.partition, accepted.records.values(), done, (producer_id, request.producer_epoch))
