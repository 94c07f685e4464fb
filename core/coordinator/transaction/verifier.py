"""Verification by a leader, at the coordinator, that a partition belongs to the transaction written there (KIP-890)."""

from collections.abc import Callable
from typing import Any

from ....ports.broker_api.envelope import Caller, Origin
from ....ports.broker_api.transactions import AddPartitionsToTxn, AddPartitionsToTxnResult
from ....ports.error_codes import ErrorCode
from ....ports.metrics import Counter
from ....ports.scheduler import Scheduler
from ....ports.types import TopicPartition
from ...client.driver import Submit
from .coordinator import TransactionCoordinator

_Transaction = tuple[str, int, int]
_Callback = Callable[[ErrorCode], None]
_BROKER = Caller(origin=Origin.BROKER)


class TransactionVerifier:
    """Verifications of one transaction in one turn of the owner thread share a request. Owner thread only.

    own_id:         this broker; its `coordinator` is called directly.
    coordinator_of: the broker that coordinates a transactional id, -1 while there is none.
    submit:         sends a request to another broker, as `Links.submit` does; None: there is no other.
    is_on:          False: nothing is verified.
    failures:       counts partitions that did not belong to the transaction.
    """

    def __init__(
        self,
        *,
        own_id: int,
        coordinator: TransactionCoordinator,
        coordinator_of: Callable[[str], int],
        submit: Submit | None,
        scheduler: Scheduler,
        is_on: Callable[[], bool],
        failures: Counter,
    ) -> None:
        self._own_id = own_id
        self._coordinator = coordinator
        self._coordinator_of = coordinator_of
        self._submit = submit
        self._scheduler = scheduler
        self._is_on = is_on
        self._failures = failures
        self._waiting: dict[_Transaction, dict[TopicPartition, list[_Callback]]] = {}
        self._is_due = False

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition, callback: _Callback
    ) -> None:
        """Call the callback with NONE, the coordinator's error, or COORDINATOR_NOT_AVAILABLE if it cannot be asked; at
        once or later."""
        if not self._is_on():
            callback(ErrorCode.NONE)
            return
        transaction = transactional_id, producer_id, epoch
        node = self._coordinator_of(transactional_id)
        if node == self._own_id:
            self._ask(node, transaction, {partition: [callback]})
            return
        self._waiting.setdefault(transaction, {}).setdefault(partition, []).append(callback)
        if not self._is_due:
            self._is_due = True
            self._scheduler.call_soon(self._ask_others)

    def _ask_others(self) -> None:
        self._is_due = False
        waiting, self._waiting = self._waiting, {}
        for transaction, partitions in waiting.items():
            self._ask(self._coordinator_of(transaction[0]), transaction, partitions)

    def _ask(self, node: int, transaction: _Transaction, partitions: dict[TopicPartition, list[_Callback]]) -> None:
        request = AddPartitionsToTxn(
            transactional_id=transaction[0],
            producer_id=transaction[1],
            producer_epoch=transaction[2],
            partitions=tuple(partitions),
            verify_only=True,
        )

        def answered(result: Any) -> None:
            codes, missing = {}, ErrorCode.COORDINATOR_NOT_AVAILABLE
            if isinstance(result, AddPartitionsToTxnResult):
                # As Kafka: what the coordinator refuses this broker is no error of the client.
                missing = missing if result.error is ErrorCode.NONE else ErrorCode.INVALID_TXN_STATE
                codes = {TopicPartition(each.topic, each.partition): each.error for each in result.partitions}
            for partition, waiting in partitions.items():
                error = codes.get(partition, missing)
                if error is not ErrorCode.NONE:
                    self._failures.add()
                for callback in waiting:
                    callback(error)

        if node == self._own_id:
            self._coordinator.add_partitions(request, _BROKER, answered)
        elif node < 0 or self._submit is None:
            answered(None)
        else:
            self._submit(node, request, answered)
