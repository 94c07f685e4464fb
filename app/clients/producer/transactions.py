"""A producer's transactions: the user's thread makes requests of the state machine, and waits for the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....core.client.errors import ClientTimeout, ProducerFenced, TransactionAborted, TransactionError
from ....core.client.group.events import CommittedOffset, GroupMetadata
from ....core.client.producer.transaction_manager import PreparedTransaction, TransactionManager
from ....core.client.producer.transaction_states import TxnState
from ....ports.errors import BarnabasError, ConfigError
from ....ports.types import TopicPartition
from ..consumer.positions import offsets_to_commit
from ..shared.blocking_shell import logger
from .record_appender import RecordAppender

if TYPE_CHECKING:
    from ..consumer.consumer import Consumer

FlushHooks = Callable[[float | None], None]


class ProducerTransactions:
    """The transactions of a producer; `Producer` documents the methods of its own. Timeouts are in seconds."""

    def __init__(
        self,
        appender: RecordAppender,
        machine: TransactionManager,
        flush_hooks: FlushHooks,
        ended: Callable[[BarnabasError | None], None],
    ) -> None:
        """Make them over the producer's parts.

        flush_hooks: makes the event handler handle all its waiting messages; called with the lock held.
        ended:       called without the lock after a transaction ends: with None for a commit, or the error.
        """
        self.machine = machine
        self._appender = appender
        self._shell = appender.shell
        self._flush_hooks = flush_hooks
        self._ended = ended

    def initialize(self, timeout: float | None) -> None:
        with self._shell.lock:
            self._appender.check_open()
            self._initialize(timeout)

    def begin_transaction(self, timeout: float | None) -> None:
        with self._shell.lock:
            self._appender.check_open()
            self._initialize(timeout)
            self.machine.begin_transaction()

    def commit(self, timeout: float | None) -> None:
        accumulator = self._appender.accumulator
        with self._shell.lock:
            accumulator.hurry += 1
            try:
                if self.machine.state is TxnState.IN_TRANSACTION:
                    self._flush_hooks(timeout)
                self.machine.commit()
                self._appender.end_runs()
                self._wait(lambda: self.machine.ended, "the commit", timeout)
            finally:
                accumulator.hurry -= 1
            self.machine.take_outcome()
        self._ended(None)

    def prepare(self, timeout: float | None) -> PreparedTransaction:
        accumulator, machine = self._appender.accumulator, self.machine
        settled = (TxnState.PREPARED, TxnState.ABORT_NEEDED, TxnState.FATAL)
        with self._shell.lock:
            accumulator.hurry += 1
            try:
                if machine.state is TxnState.IN_TRANSACTION:
                    self._flush_hooks(timeout)
                machine.hand_over()
                self._appender.end_runs()
                self._wait(lambda: machine.state in settled, "preparing the transaction", timeout)
            finally:
                accumulator.hurry -= 1
            machine.hand_over()
            return machine.prepared

    def resume(self, prepared: PreparedTransaction) -> None:
        with self._shell.lock:
            self._appender.check_open()
            self.machine.resume(prepared)

    def abort(self, timeout: float | None) -> None:
        with self._shell.lock:
            self.machine.abort()
            self._appender.end_runs()
            self._appender.unplaced.fail_all(
                TransactionAborted("the transaction was aborted before the message was sent")
            )
            self._flush_hooks(timeout)
            self._wait(lambda: self.machine.ended, "the abort", timeout)
            self.machine.take_outcome()
        self._ended(TransactionAborted("the transaction was aborted"))

    def send_offsets(self, what: Any, group: Any, timeout: float | None) -> None:
        metadata, positions, consumer = _positions_of(what, group)
        answers: list[BarnabasError | None] = []
        with self._shell.lock:
            self._appender.check_open()
            self.machine.check_sending(positions=True)
            if not positions:
                return
            if consumer is not None:
                self.machine.check_positions(consumer._shell.view, positions)
            self.machine.send_positions(metadata, positions, self._shell.putter(answers))
            self._wait(lambda: bool(answers), f"the positions of group {metadata.group_id}", timeout)
        if answers[0] is not None:
            raise answers[0]

    def leave(self, failure: BaseException | None, timeout: float | None) -> None:
        """End the block of a transaction: commit it, or abort it after an exception (`failure`).

        Raises the error of a failed commit; raises `ProducerFenced` in place of a failure that it explains. A
        transaction that the user has ended already stays as it is.
        """
        if failure is None:
            if self.machine.state is TxnState.READY:
                return
            try:
                self.commit(timeout)
            except TransactionError as error:
                self._abort_after(error, timeout)
                raise
            return
        self._abort_after(failure, timeout)

    def end(self, timeout: float | None) -> None:
        """End the transaction of a producer that closes: abort an open one, wait for a commit or abort in progress."""
        with self._shell.lock:
            state = self.machine.state
        try:
            if self.machine.is_open:
                self.abort(timeout)
            elif state is TxnState.COMMITTING:
                self.commit(timeout)
            elif state is TxnState.ABORTING:
                self.abort(timeout)
        except BarnabasError as error:
            logger.warning("closed while a transaction was being ended, which the coordinator does in time: %s", error)

    def _abort_after(self, failure: BaseException, timeout: float | None) -> None:
        if not self.machine.is_open:
            return
        try:
            self.abort(timeout)
        except BarnabasError as error:
            if isinstance(failure, BarnabasError) and isinstance(error, ProducerFenced):
                raise error from failure
            failure.add_note(f"the transaction could not be aborted either: {error}")

    # --- with the lock held

    def _initialize(self, timeout: float | None) -> None:
        machine = self.machine
        machine.initialize()
        starting = (TxnState.UNINITIALIZED, TxnState.INITIALIZING)
        self._wait(lambda: machine.state not in starting, "init_transactions", timeout)
        if machine.state is TxnState.FATAL and machine.error is not None:
            raise machine.error

    def _wait(self, true: Callable[[], bool], what: str, timeout: float | None) -> None:
        limit = self._appender.settings.default_api_timeout_ms / 1000 if timeout is None else timeout
        self._shell.wake()
        if not self._shell.wait(true, limit):
            last = self.machine.failure_reason
            why = f"; last: {last}" if last is not None else ""
            raise ClientTimeout(f"{what}: not done within {limit:g} s; call again to continue waiting{why}")


def _positions_of(
    what: Any, group: Any
) -> tuple[GroupMetadata, Mapping[TopicPartition, CommittedOffset], Consumer | None]:
    """Return the group, the offsets, and the consumer if it is known.

    Raises `ConfigError` for arguments that no transaction can commit.
    """
    from ..consumer.consumer import Consumer

    consumer = what if isinstance(what, Consumer) else group if isinstance(group, Consumer) else None
    own: Mapping[TopicPartition, CommittedOffset] = {}
    if consumer is not None:
        if consumer.settings.enable_auto_commit:
            raise ConfigError(
                "send_offsets: the consumer commits automatically; create it with enable_auto_commit=False"
            )
        own = consumer._offsets_of(None, consumer._in_group("send_offsets()"))
    positions = own if what is consumer else offsets_to_commit(what, own)
    if isinstance(group, GroupMetadata):
        return group, positions, consumer
    if isinstance(group, str) and group:
        return GroupMetadata(group_id=group), positions, consumer
    if consumer is not None and (group is None or group is consumer):
        return consumer.group_metadata, positions, consumer
    raise ConfigError("send_offsets: name the group, or give its Consumer or consumer.group_metadata")
