"""A transactional producer's state machine (KIP-98, 360, 447; facts C6, Transactions).

One request at a time goes to the coordinator of the transactional id: InitProducerId for an id and epoch, which fences
earlier producers; AddPartitionsToTxn before the first batch to a partition; AddOffsetsToTxn before positions of a group
go to that group's coordinator (TxnOffsetCommit); EndTxn once the outcome of every batch is known. After a failed batch
the transaction can only be aborted; if the sequence numbers are in doubt, the producer continues in the next epoch
(InitProducerId with its id and epoch).

In version 2 (KIP-890), where the cluster has finalized it, leaders and coordinators of groups add to the transaction
themselves: there is neither AddPartitionsToTxn nor AddOffsetsToTxn. Each EndTxn gives the next epoch, so nothing that
is late can belong to another transaction. The coordinator is asked for the features before InitProducerId, and then
between transactions from time to time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....ports.broker_api.envelope import Request
from ....ports.broker_api.features import DescribeFeatures, DescribeFeaturesResult
from ....ports.broker_api.groups import TRANSACTION_COORDINATOR, OffsetCommitPartition
from ....ports.broker_api.producers import InitProducerId, InitProducerIdResult
from ....ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    EndTxnResult,
    TransactionSupportedOperation,
    TxnOffsetCommit,
)
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import define, frozen
from ...cluster.features import TRANSACTION_VERSION
from ..cluster_view import ClusterView
from ..coordinator_finder import CoordinatorFinder
from ..effects import NEVER, Poll, Send, backoff_ms
from ..errors import AbortNeeded, CommitFailed, ProducerFenced, TransactionAborted, TransactionError, silent
from ..group.events import CommitResultCallback, CommittedOffset, GroupMetadata
from .producer_batch import ProducerBatch
from .sequence_numbers import Refusal, SequenceNumbers
from .transaction_states import FOLLOWS, Reaction, TxnState, reaction_to, reaction_to_batch, the_worst


@frozen(kw_only=True)
class TransactionRequests:
    """The requests of the producer of a transactional id in one epoch; -1 before it has one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_version_2: bool = False

    def identify(self, timeout_ms: int) -> InitProducerId:
        return InitProducerId(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> AddPartitionsToTxn:
        return AddPartitionsToTxn(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            partitions=partitions,
        )

    def add_group(self, group_id: str) -> AddOffsetsToTxn:
        return AddOffsetsToTxn(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )

    def commit_positions(
        self, group: GroupMetadata, positions: Mapping[TopicPartition, CommittedOffset]
    ) -> TxnOffsetCommit:
        return TxnOffsetCommit(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            partitions=[
                OffsetCommitPartition(*tp, at.offset, at.leader_epoch, at.metadata) for tp, at in positions.items()
            ],
            supported_operation=_operation_of(is_version_2=self.is_version_2),
        )

    def end(self, *, committed: bool) -> EndTxn:
        return EndTxn(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
            supports_epoch_bump=self.is_version_2,
        )


def _operation_of(*, is_version_2: bool) -> TransactionSupportedOperation:
    operations = TransactionSupportedOperation
    return operations.ADD_PARTITION if is_version_2 else operations.GENERIC_ERROR_SUPPORTED


def codes_of(result: Any) -> list[ErrorCode]:
    """Return the errors in a response to any of these requests: one, or one of each partition."""
    return [part.error for part in result.partitions] if hasattr(result, "partitions") else [result.error]


_BUSY_BACKOFF_MS = 2.0
"""The first back-off after CONCURRENT_TRANSACTIONS: the markers of the last transaction are written soon."""
_ENDED = (TxnState.READY, TxnState.ABORT_NEEDED, TxnState.FATAL)
_FEATURES_AGE_MS = 10_000.0
"""The greatest age of features, beyond which they are asked for again before the next transaction."""
_VERSION_2 = 2
"""The level of the feature transaction.version from which on the producer uses version 2."""


@frozen(kw_only=True)
class TransactionSettings:
    """Times in ms."""

    transactional_id: str
    timeout_ms: int = 60_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    metadata_max_age_ms: float = 300_000


@frozen(kw_only=True)
class PreparedTransaction:
    """The state with which another producer, of another process too, continues: with `begun`, in a transaction that is
    to be committed or aborted; without, between transactions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    begun: bool


@define(eq=False)
class _GroupOffsets:
    """Positions of a group that are to be sent."""

    group: GroupMetadata
    positions: Mapping[TopicPartition, CommittedOffset]
    done: CommitResultCallback


@frozen
class _Step:
    """A request, the finder of its coordinator, and the action after a success."""

    request: Request[Any]
    finder: CoordinatorFinder
    done: Callable[[Any], None]


class TransactionManager:
    """Implements `SequenceAssigner`. Users call it under the shell's lock, and read `state` for the progress."""

    def __init__(
        self,
        view: ClusterView,
        entropy: Entropy,
        settings: TransactionSettings,
        *,
        unsettled: Callable[[], int],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`unsettled` returns the number of messages without a known outcome; `changed` follows a change of `state`."""
        self._view = view
        self._entropy = entropy
        self._settings = settings
        self._unsettled = unsettled
        self._changed = changed
        self._backoff = (settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._features_age_ms = min(_FEATURES_AGE_MS, settings.metadata_max_age_ms)
        self._finder = CoordinatorFinder(
            view, entropy, settings.transactional_id, self._backoff, key_type=TRANSACTION_COORDINATOR
        )
        self._groups: dict[str, CoordinatorFinder] = {}
        self.state = TxnState.UNINITIALIZED
        self.error: BarnabasError | None = None
        """The reason why the transaction has to be aborted, or (FATAL) why the producer is unusable."""
        self.last_error: BarnabasError | None = None
        """The last error of the present step; None once it has succeeded."""
        self.producer_id = -1
        self.epoch = -1
        self._sequences = SequenceNumbers()
        self._next_epoch = False
        self._ending: TxnState | None = None
        """COMMITTING or ABORTING, until the caller has taken the outcome."""
        self._begun = False
        """True while the coordinator knows of the transaction, or may know of it."""
        self._is_version_2 = False
        """The version of the present transaction, if `_knows_version`."""
        self._knows_version = False
        self._level = 0
        self._level_ms = self._now_ms = -NEVER
        self._resumed = False
        """True if another producer began it."""
        self._resumes = False
        """True if the producer continues for another one. It uses version 1, in which a prepared transaction has one
        identity, however often and by which process it is ended."""
        self._added: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}
        self._added_groups: set[str] = set()
        self._positions: list[_GroupOffsets] = []
        self._in_flight = False
        self._doubtful: _Step | None = None
        """A request that adds to the transaction and was not answered: it may have begun the transaction."""
        self._unanswered_commit: _Step | None = None
        """A TxnOffsetCommit that was not answered: it may still be on its way to the group's coordinator."""
        self._late_commit = False
        """True if an abort had an unanswered TxnOffsetCommit; in the next epoch that one joins no transaction."""
        self._failures = 0
        self._not_before_ms = -NEVER

    # --- what users ask for

    def initialize(self) -> None:
        """Get an id and an epoch; then READY, or FATAL. Raises the error of a FATAL one."""
        self._check_usable()
        if self.state is TxnState.UNINITIALIZED:
            self._go(TxnState.INITIALIZING)

    def begin_transaction(self) -> None:
        """READY → IN_TRANSACTION. Raises `TransactionError`, and the error of a FATAL one."""
        self._check_usable()
        if self._ending is not None:
            word = "commit" if self._ending is TxnState.COMMITTING else "abort"
            raise TransactionError(
                f"the outcome of the last transaction has not been retrieved: call {word}_transaction() again"
            )
        if self.state is not TxnState.READY:
            hint = "; transactions do not nest" if self.state is TxnState.IN_TRANSACTION else ""
            raise TransactionError(f"no transaction can begin: the producer is {self.state.value}{hint}")
        self._go(TxnState.IN_TRANSACTION)
        self._is_version_2, self._knows_version = False, self._resumes

    def commit(self) -> None:
        """IN_TRANSACTION → COMMITTING, unless requested before. Raises like `begin_transaction`, and `AbortNeeded`."""
        self._check_usable()
        if self._ending is TxnState.COMMITTING:
            return
        if self.state is TxnState.ABORT_NEEDED:
            raise self._abort_needed()
        self._check_open("be committed")
        self._ending = TxnState.COMMITTING
        self._go(TxnState.COMMITTING)

    def abort(self) -> None:
        """IN_TRANSACTION or ABORT_NEEDED → ABORTING, unless requested before. Raises like `begin_transaction`."""
        self._check_usable()
        if self._ending is TxnState.ABORTING:
            return
        if self.state is TxnState.COMMITTING:
            raise TransactionError("the commit is under way, and may succeed: call commit_transaction() again")
        if self.state is not TxnState.ABORT_NEEDED:
            self._check_open("be aborted")
        self._ending = TxnState.ABORTING
        self._go(TxnState.ABORTING)
        self._wanted.clear()
        self._drop_positions(TransactionAborted("the transaction was aborted before the positions were committed"))

    def hand_over(self) -> None:
        """READY → PREPARED, or IN_TRANSACTION → PREPARING: deliver all messages; another producer ends the transaction.

        Raises like `commit`.
        """
        self._check_usable()
        if self.state is TxnState.READY:
            self._go(TxnState.PREPARED)
        elif self.state is TxnState.ABORT_NEEDED:
            raise self._abort_needed()
        elif self.state not in (TxnState.PREPARING, TxnState.PREPARED):
            self._check_open("be prepared")
            self._go(TxnState.PREPARING)

    @property
    def prepared(self) -> PreparedTransaction:
        """The prepared transaction; the state must be PREPARED."""
        assert self.state is TxnState.PREPARED, self.state
        return PreparedTransaction(
            transactional_id=self._settings.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            begun=self._begun,
        )

    def resume(self, prepared: PreparedTransaction) -> None:
        """UNINITIALIZED → IN_TRANSACTION, or READY if none was begun. Raises `TransactionError`.

        In a begun transaction no further messages can be sent: the sequence numbers of its batches are not known.
        """
        if self.state is not TxnState.UNINITIALIZED:
            raise TransactionError(f"nothing can be resumed: the producer is {self.state.value}")
        if prepared.transactional_id != self._settings.transactional_id:
            raise TransactionError(f"this producer has another transactional id than {prepared.transactional_id}")
        self.producer_id, self.epoch = prepared.producer_id, prepared.producer_epoch
        self._begun = self._resumed = prepared.begun
        self._resumes = self._knows_version = True
        self._go(TxnState.IN_TRANSACTION if prepared.begun else TxnState.READY)

    @property
    def ended(self) -> bool:
        """True when the outcome of `commit` or `abort` is known."""
        return self.state in _ENDED

    def take_outcome(self) -> None:
        """Take the outcome of `commit` or `abort`, when `ended`. Raises `AbortNeeded`, or the fatal error."""
        self._ending = None
        if self.state is TxnState.ABORT_NEEDED:
            raise self._abort_needed()
        self._check_usable()

    def check_sending(self, *, late: bool = False, positions: bool = False) -> None:
        """Raise unless messages can be sent now. `late`: they were accepted earlier in this transaction; `positions`:
        the check is for positions, not for messages."""
        if self._resumed and not positions:
            raise TransactionError("no messages can be sent in a transaction that was resumed: commit or abort it")
        if self.state is TxnState.IN_TRANSACTION or (late and self.state in (TxnState.COMMITTING, TxnState.PREPARING)):
            return
        self._check_usable()
        if self.state is TxnState.ABORT_NEEDED:
            raise self._abort_needed()
        raise TransactionError(f"nothing can be sent: the producer is {self.state.value}; see producer.transaction()")

    def send_positions(
        self, group: GroupMetadata, positions: Mapping[TopicPartition, CommittedOffset], done: CommitResultCallback
    ) -> None:
        """Commit these positions of the group with the transaction; `done` is called once.

        Raises like `begin_transaction`.
        """
        self.check_sending(positions=True)
        self.check_positions(self._view, positions)
        if group.group_id not in self._groups:
            self._groups[group.group_id] = CoordinatorFinder(self._view, self._entropy, group.group_id, self._backoff)
        self._positions.append(_GroupOffsets(group, positions, done))

    def check_positions(self, view: ClusterView, positions: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Raise `CommitFailed` for a position in a topic that, by this view, was deleted and created again.

        The transaction can then only be aborted. TxnOffsetCommit knows topics by name alone: the coordinator would take
        the position for one in the new topic. The position is not left out either, since the request fences a member
        whose partitions others have had since.
        """
        for tp, at in positions.items():
            error = view.stale(tp, at.topic_id)
            if error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_ID:  # of others the coordinator knows more
                failure = CommitFailed(error.code, error.message)
                self._need_abort(failure)
                raise failure

    @property
    def is_open(self) -> bool:
        """True while there is a transaction that can be aborted."""
        return self.state in (TxnState.IN_TRANSACTION, TxnState.ABORT_NEEDED)

    @property
    def failure_reason(self) -> BarnabasError | None:
        """The obstacle of the present step, for a caller whose wait timed out; None: it is not known."""
        return self._finder.failure_reason if self._finder.coordinator is None else self.last_error

    # --- what the sender asks

    def prepare(self) -> bool:
        return self.producer_id >= 0 and self.state is not TxnState.FATAL

    @property
    def supported_operation(self) -> TransactionSupportedOperation:
        return _operation_of(is_version_2=self._is_version_2)

    def admits(self, tp: TopicPartition) -> bool:
        if tp in self._added:
            return True
        if self.state in (TxnState.IN_TRANSACTION, TxnState.COMMITTING, TxnState.PREPARING):
            if self._knows_version and self._is_version_2:
                self._added.add(tp)
                return True
            self._wanted[tp] = None
        return False

    def number(self, batch: ProducerBatch) -> None:
        self._begun = self._begun or self._is_version_2  # the leader will add the partition
        if batch.base_sequence < 0:
            self._sequences.number(batch, self.producer_id, self.epoch)

    def release_numbers(self, batch: ProducerBatch) -> None:
        self._sequences.release_numbers(batch)

    def give_up(self, batch: ProducerBatch) -> None:
        if batch.base_sequence >= 0:
            self._next_epoch = True

    def lost_count(self, batch: ProducerBatch) -> bool:  # noqa: ARG002  # numbers change for all, after an abort
        self._next_epoch = True
        return False

    def failed(self, error: BarnabasError) -> None:
        """Require an abort, or stop for good, because messages have failed with this error."""
        reaction = reaction_to_batch(error.code) if isinstance(error, ApiError) else Reaction.ABORT
        if reaction is Reaction.ABORT:
            self._need_abort(error)
        else:
            self._fatal(self._fenced(error) if reaction is Reaction.FENCED else error)

    def take_refusal(self) -> Refusal | None:
        if self.state is TxnState.FATAL and self.error is not None:
            return Refusal(self.error)
        if self.state is TxnState.ABORT_NEEDED:
            return Refusal(
                TransactionAborted(f"not sent, since the transaction has to be aborted: {self.error}"), False
            )
        if self.state is TxnState.ABORTING:
            return Refusal(TransactionAborted("the transaction was aborted before the message was sent"), False)
        return None

    def poll(self, now_ms: float) -> Poll:
        sends: list[Send] = []
        wake, self._now_ms = NEVER, now_ms
        asked_for_partitions = bool(self._wanted)
        step = None if self._in_flight else self._next_step()
        if step is not None and now_ms < self._not_before_ms:
            wake = self._not_before_ms
        elif step is not None:
            node = step.finder.node()
            if node is not None:
                sends.append(self._send(step, node))
        if asked_for_partitions and not self._wanted:
            wake = now_ms  # the sender may send: it asked before the version was chosen
        for finder in (self._finder, *self._groups.values()):
            looking = finder.poll(now_ms)
            sends += looking.sends
            wake = min(wake, looking.wake_ms)
            refusal = finder.take_refusal()
            if refusal is not None:
                self._no_coordinator(finder, refusal)
        return Poll(sends, wake)

    # --- inside: what comes next

    def _next_step(self) -> _Step | None:
        if self.state is TxnState.INITIALIZING:
            return self._identify() if self._level_ms > -NEVER else self._ask_features()
        if self.state is TxnState.ABORTING:
            doubtful = None if self._is_version_2 else self._doubtful or self._unanswered_commit
            return doubtful or (None if self._unsettled() else self._end(committed=False))
        if self.state not in (TxnState.IN_TRANSACTION, TxnState.COMMITTING, TxnState.PREPARING):
            return None
        if not self._knows_version and (self._wanted or self._positions):
            if self._now_ms - self._level_ms >= self._features_age_ms:
                return self._ask_features()
            self._choose_version()
        if self._wanted:
            return self._add_partitions(list(self._wanted))
        if self._positions:
            first = self._positions[0]
            known = self._is_version_2 or first.group.group_id in self._added_groups
            return self._commit_positions(first) if known else self._add_group(first.group.group_id)
        if self.state is TxnState.COMMITTING and not self._unsettled():
            return self._end(committed=True)
        if self.state is TxnState.PREPARING and not self._unsettled():
            self._go(TxnState.PREPARED)
        return None

    @property
    def _asker(self) -> TransactionRequests:
        name = self._settings.transactional_id
        return TransactionRequests(
            transactional_id=name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            is_version_2=self._is_version_2,
        )

    def _ask_features(self) -> _Step:
        """Ask the coordinator for the version of the transaction. Brokers that do not know features have version 1."""

        def done(result: DescribeFeaturesResult) -> None:
            self._level, self._level_ms = result.features.level(TRANSACTION_VERSION), self._now_ms
            if self.state is not TxnState.INITIALIZING:
                self._choose_version()

        return _Step(DescribeFeatures(), self._finder, done)

    def _choose_version(self) -> None:
        self._is_version_2, self._knows_version = self._level >= _VERSION_2, True
        if self._is_version_2:
            self._wanted.clear()

    def _identify(self) -> _Step:
        def done(result: InitProducerIdResult) -> None:
            self.producer_id, self.epoch = result.producer_id, result.producer_epoch
            self._next_epoch = self._late_commit = False
            self._over()

        return _Step(self._asker.identify(self._settings.timeout_ms), self._finder, done)

    def _add_partitions(self, partitions: Sequence[TopicPartition]) -> _Step:
        def done(_: Any) -> None:
            self._begun = True
            self._added.update(partitions)
            for tp in partitions:
                self._wanted.pop(tp, None)

        return _Step(self._asker.add_partitions(partitions), self._finder, done)

    def _add_group(self, group_id: str) -> _Step:
        def done(_: Any) -> None:
            self._begun = True
            self._added_groups.add(group_id)

        return _Step(self._asker.add_group(group_id), self._finder, done)

    def _commit_positions(self, asked: _GroupOffsets) -> _Step:
        def done(_: Any) -> None:
            if asked in self._positions:  # no abort has failed it meanwhile
                self._positions.remove(asked)
                asked.done(None)

        request = self._asker.commit_positions(asked.group, asked.positions)
        return _Step(request, self._groups[asked.group.group_id], done)

    def _end(self, *, committed: bool) -> _Step | None:
        if not self._begun:
            if not committed and (self._next_epoch or self._late_commit):
                return self._identify()
            self._over()
            return None

        def done(result: EndTxnResult) -> None:
            self._begun = False
            if result.producer_id >= 0:
                self.producer_id, self.epoch = result.producer_id, result.producer_epoch
                self._next_epoch = self._late_commit = False
            if committed or not (self._next_epoch or self._late_commit):
                self._over()

        return _Step(self._asker.end(committed=committed), self._finder, done)

    def _over(self) -> None:
        self._resumed = False
        self._added.clear()
        self._added_groups.clear()
        self._wanted.clear()
        self._unanswered_commit = None
        self.error = None
        self._go(TxnState.READY)

    # --- inside: answers

    def _send(self, step: _Step, node: int) -> Send:
        if isinstance(step.request, TxnOffsetCommit) and self._is_version_2:
            self._begun = True  # its coordinator will add the offsets
        self._in_flight, self.last_error = True, silent(self._view.address(node))

        def answered(result: Any, now_ms: float) -> None:
            self._in_flight, self.last_error = False, None
            if self.state is not TxnState.FATAL:
                self._answered(step, result, now_ms)

        return Send(node, step.request, answered)

    def _answered(self, step: _Step, result: Any, now_ms: float) -> None:
        if isinstance(result, BarnabasError) and not isinstance(result, ApiError):
            if isinstance(step.request, AddPartitionsToTxn | AddOffsetsToTxn):
                self._doubtful = step
            elif isinstance(step.request, TxnOffsetCommit):
                self._unanswered_commit = step
            step.finder.mark_coordinator_unknown(result, now_ms)
            self._pause(result, now_ms)
            return
        self._doubtful = None
        if isinstance(step.request, TxnOffsetCommit) and self._unanswered_commit is not None:
            self._unanswered_commit = None
            self._late_commit = self._late_commit or self.state is TxnState.ABORTING
        if isinstance(step.request, DescribeFeatures) and isinstance(result, ApiError):
            result = step.request.failed(result)
        code = result.code if isinstance(result, ApiError) else the_worst(step.request, codes_of(result))
        error = result if isinstance(result, ApiError) else ApiError(code, self._what(step))
        is_too_old = isinstance(step.request, InitProducerId) and code is ErrorCode.UNSUPPORTED_VERSION
        if is_too_old and self._late_commit and not self._next_epoch:
            self._late_commit = False  # brokers before Kafka 2.5 give no next epoch: it was to be a precaution
            return
        is_asking = isinstance(step.request, DescribeFeatures)
        reaction = Reaction.DONE if is_asking else reaction_to(step.request, code)
        if reaction is Reaction.DONE:
            self._failures, self._not_before_ms = 0, -NEVER
            step.finder.reset_backoff()
            step.done(result)
            return
        if reaction is Reaction.ELSEWHERE:
            step.finder.mark_coordinator_unknown(error, now_ms)
        if reaction in (Reaction.ELSEWHERE, Reaction.AGAIN):
            self._pause(error, now_ms)
        elif reaction is Reaction.ABORT:
            refused = isinstance(step.request, TxnOffsetCommit)
            self._need_abort(CommitFailed(error.code, error.message) if refused else error)
        else:
            self._fatal(self._fenced(error) if reaction is Reaction.FENCED else error)

    def _what(self, step: _Step) -> str:
        name = self._settings.transactional_id
        if isinstance(step.request, TxnOffsetCommit):
            return f"the positions of group {step.request.group_id}, in a transaction of {name}"
        return f"{type(step.request).__name__} of transactional id {name}"

    def _no_coordinator(self, finder: CoordinatorFinder, refusal: BarnabasError) -> None:
        (self._fatal if finder is self._finder else self._need_abort)(refusal)

    def _pause(self, error: BarnabasError, now_ms: float) -> None:
        self.last_error = error
        self._failures += 1
        busy = isinstance(error, ApiError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS
        if not busy:
            self._view.request_refresh()  # a topic of the transaction may have been deleted
        first_ms, most_ms = (min(_BUSY_BACKOFF_MS, self._backoff[0]), self._backoff[0]) if busy else self._backoff
        self._not_before_ms = now_ms + backoff_ms(self._failures, first_ms, most_ms, self._entropy.fraction())

    # --- inside: states

    def _go(self, state: TxnState) -> None:
        assert state in FOLLOWS[self.state], f"{self.state.name} → {state.name}"
        self.state = state
        self._failures, self._not_before_ms = 0, -NEVER
        self._changed()

    def _need_abort(self, error: BarnabasError) -> None:
        if self.state in (TxnState.IN_TRANSACTION, TxnState.COMMITTING, TxnState.PREPARING):
            self.error = error
            self._wanted.clear()
            self._go(TxnState.ABORT_NEEDED)
            self._drop_positions(error)

    def _fatal(self, error: BarnabasError) -> None:
        if self.state is not TxnState.FATAL:
            self.error = error
            self._go(TxnState.FATAL)
            self._drop_positions(error)

    def _drop_positions(self, error: BarnabasError) -> None:
        dropped, self._positions = self._positions, []
        for each in dropped:
            each.done(error)

    def _fenced(self, error: BarnabasError) -> ProducerFenced:
        why = error.message if isinstance(error, ApiError) else str(error)
        return ProducerFenced(
            ErrorCode.PRODUCER_FENCED,
            f"transactional id {self._settings.transactional_id} has another producer by now, or the transaction took "
            f"longer than transaction.timeout.ms ({self._settings.timeout_ms}); close this producer ({why})",
        )

    def _check_usable(self) -> None:
        if self.state is TxnState.FATAL and self.error is not None:
            raise self.error

    def _check_open(self, what: str) -> None:
        if self.state is not TxnState.IN_TRANSACTION:
            raise TransactionError(f"there is no transaction to {what}: the producer is {self.state.value}")

    def _abort_needed(self) -> AbortNeeded:
        made = AbortNeeded(f"the transaction has to be aborted: {self.error}")
        made.__cause__ = self.error
        return made
