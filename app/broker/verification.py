"""A leader asks the coordinator whether a partition belongs to the transaction that is written there (KIP-890)."""

from collections.abc import Callable
from typing import Any

from ...core.coordinator.placement import partition_of
from ...ports.broker_api import AddPartitionsToTxn, AddPartitionsToTxnResult, Caller, Origin
from ...ports.error_codes import ErrorCode
from ...ports.words import TopicPartition
from .internal_topics import TRANSACTIONS_TOPIC
from .state import BrokerState
from .transactions import TransactionService

_Transaction = tuple[str, int, int]
_Told = Callable[[ErrorCode], None]
_BROKER = Caller(origin=Origin.BROKER)


class TransactionVerifier:
    """What is asked about one transaction in one turn of the owner thread goes together. Owner thread only."""

    def __init__(self, state: BrokerState, transactions: TransactionService) -> None:
        self._state = state
        self._transactions = transactions
        self._waiting: dict[_Transaction, dict[TopicPartition, list[_Told]]] = {}
        self._is_due = False
        self._failures = state.metrics.counter(
            "kafka_server_addpartitionstotxnmanager_verificationfailures_total",
            "Partitions that did not belong to the transaction that was written there.",
        )

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition, told: _Told
    ) -> None:
        """Tell `told` NONE, or what the coordinator says, or why it cannot be asked; at once or later."""
        if not self._state.settings.verifies_transactions:
            told(ErrorCode.NONE)
            return
        transaction = transactional_id, producer_id, epoch
        leader = self._coordinator_of(transactional_id)
        if leader == self._state.node_id:
            self._ask(leader, transaction, {partition: [told]})
            return
        self._waiting.setdefault(transaction, {}).setdefault(partition, []).append(told)
        if not self._is_due:
            self._is_due = True
            self._state.scheduler.call_soon(self._ask_others)

    def _coordinator_of(self, transactional_id: str) -> int:
        topic = self._state.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return -1
        key = TopicPartition(TRANSACTIONS_TOPIC, partition_of(transactional_id, len(topic.partitions)))
        return self._state.image.state(key).leader

    def _ask_others(self) -> None:
        self._is_due = False
        waiting, self._waiting = self._waiting, {}
        for transaction, partitions in waiting.items():
            self._ask(self._coordinator_of(transaction[0]), transaction, partitions)

    def _ask(self, leader: int, transaction: _Transaction, partitions: dict[TopicPartition, list[_Told]]) -> None:
        request = AddPartitionsToTxn(
            transactional_id=transaction[0],
            producer_id=transaction[1],
            producer_epoch=transaction[2],
            partitions=tuple(partitions),
            verify_only=True,
        )

        def answered(result: Any) -> None:
            codes = {}
            if isinstance(result, AddPartitionsToTxnResult):
                codes = {TopicPartition(each.topic, each.partition): each.error for each in result.partitions}
            for partition, waiting in partitions.items():
                error = codes.get(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                if error is not ErrorCode.NONE:
                    self._failures.add()
                for told in waiting:
                    told(error)

        if leader == self._state.node_id:
            self._transactions.coordinator.add_partitions(request, _BROKER, answered)
        elif leader < 0 or self._state.ask is None:
            answered(None)
        else:
            self._state.ask(leader, request, answered)
