"""TxnOffsetCommit: positions that count when the transaction of a producer commits (facts C6, KIP-447)."""

from collections.abc import Callable

from ....ports.broker_api.envelope import Reply
from ....ports.broker_api.groups import PartitionOutcome
from ....ports.broker_api.transactions import TxnOffsetCommit, TxnOffsetCommitResult
from ....ports.error_codes import ErrorCode
from .positions import Positions
from .shard import GroupShard, commit_error

_IN_THE_LOG = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Outcomes of an append whose records the marker is going to end."""

_SAID_OF_THE_TRANSACTION = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

VerifyCallback = Callable[[ErrorCode], None]
Verify = Callable[[TxnOffsetCommit, int, VerifyCallback], None]
"""Asks the transaction's coordinator if this partition of `__consumer_offsets` belongs to it (KIP-890)."""


class _Question:
    """A request that waits for the transaction's coordinator."""

    __slots__ = ("is_late",)

    def __init__(self) -> None:
        self.is_late = False
        """A marker has ended the transaction meanwhile."""


class TransactionalPositions:
    """The offset commits of transactional producers, from the request to the marker. Owner thread only.

    The first commit of a transaction is verified: a late one, after the marker, would wait for the next transaction of
    its producer, or for ever.
    """

    def __init__(self, shard: GroupShard, positions: Positions, verify: Verify | None) -> None:
        self._shard = shard
        self._runtime = shard.runtime
        self._positions = positions
        self._verify = verify
        self._asking: dict[tuple[int, int], list[_Question]] = {}
        """By partition of `__consumer_offsets` and producer."""

    def commit(self, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult]) -> None:
        """Commit the positions; the reply comes when the in-sync replicas have them."""
        error = self._refusal(request)
        if error is not ErrorCode.NONE:
            self._refuse(request, reply, error)
        elif self._verify is None or self._is_open(request):
            self._write(request, reply)
        else:
            self._ask(self._verify, request, reply)

    def ended(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """End the producer's transaction: the in-sync replicas of this partition of `__consumer_offsets` have the
        marker."""
        runtime = self._runtime
        for question in self._asking.get((partition, producer_id), ()):
            question.is_late = True
        for group_id in self._shard.transactions.end(partition, producer_id):
            entry = self._shard.table.get(group_id)
            if entry is not None:
                self._shard.counters.commits.add(entry.offsets.end(producer_id, committed=committed))
                runtime.on_event(entry)

    def _refusal(self, request: TxnOffsetCommit) -> ErrorCode:
        table = self._shard.table
        error = table.check_key(request.group_id)
        if error is not ErrorCode.NONE:
            return error
        if request.producer_id < 0 or request.producer_epoch < 0:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        entry = table.get(request.group_id)
        if entry is None:
            return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        return entry.group.check_transactional_commit(request)

    def _refuse(self, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult], error: ErrorCode) -> None:
        failed = [PartitionOutcome(each.topic, each.partition, error) for each in request.partitions]
        self._runtime.respond(reply, TxnOffsetCommitResult(partitions=failed))

    def _is_open(self, request: TxnOffsetCommit) -> bool:
        table = self._shard.table
        return self._shard.transactions.is_open(table.partition_of(request.group_id), request.producer_id)

    def _ask(self, verify: Verify, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult]) -> None:
        partition, question = self._shard.table.partition_of(request.group_id), _Question()
        key = partition, request.producer_id
        self._asking.setdefault(key, []).append(question)

        def on_verified(error: ErrorCode) -> None:
            self._asking[key].remove(question)
            if not self._asking[key]:
                del self._asking[key]
            if error is ErrorCode.NONE:
                error = ErrorCode.INVALID_TXN_STATE if question.is_late else self._refusal(request)
            else:
                error = _verification_error(error)
            if error is ErrorCode.NONE:
                self._write(request, reply)
            else:
                self._refuse(request, reply, error)

        verify(request, partition, on_verified)

    def _write(self, request: TxnOffsetCommit, reply: Reply[TxnOffsetCommitResult]) -> None:
        runtime, producer_id = self._runtime, request.producer_id
        accepted = self._positions.accept(request.group_id, request.partitions)
        if not accepted.positions:
            runtime.respond(reply, TxnOffsetCommitResult(partitions=accepted.outcomes))
            return
        entry = self._shard.table.get(request.group_id) or self._shard.create(request.group_id)
        # `ended` is called when a marker is replicated, which may be before `done` is called for this write.
        self._shard.transactions.add(entry.partition, producer_id, request.group_id)
        commit = entry.offsets.prepare_commit(accepted.positions, producer_id)

        def done(error: ErrorCode) -> None:
            if error in _IN_THE_LOG:
                entry.offsets.written(commit)
            else:
                entry.offsets.finish(commit, stored=False)
                if self._shard.table.get(request.group_id) is entry and not entry.offsets.is_open(producer_id):
                    self._shard.transactions.discard(entry.partition, producer_id, request.group_id)
            runtime.on_event(entry)
            runtime.respond(reply, TxnOffsetCommitResult(partitions=accepted.build_outcomes(commit_error(error))))

        runtime.write(entry.partition, accepted.records.values(), done, (producer_id, request.producer_epoch))


def _verification_error(error: ErrorCode) -> ErrorCode:
    """Return the client's error for a failed verification; temporary errors become one that the client retries."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error if error in _SAID_OF_THE_TRANSACTION else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
