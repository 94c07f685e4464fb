"""A cluster that knows transactions, as far as a producer sees of them: one coordinator of ids, one of groups."""

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from support.plain_cluster import PlainCluster

from barnabas.core.cluster.features import TRANSACTION_VERSION
from barnabas.core.message.batch_header import BatchHeader, parse_header
from barnabas.core.message.message_set import MessageSet
from barnabas.ports.broker_api.features import (
    DescribeFeatures,
    DescribeFeaturesResult,
    FeatureMetadata,
    FinalizedVersionRange,
)
from barnabas.ports.broker_api.groups import (
    TRANSACTION_COORDINATOR,
    Coordinator,
    FindCoordinator,
    FindCoordinatorResult,
    PartitionOutcome,
)
from barnabas.ports.broker_api.produce import Produce, ProduceResultPartition
from barnabas.ports.broker_api.producers import InitProducerId, InitProducerIdResult
from barnabas.ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    EndTxn,
    EndTxnResult,
    TransactionSupportedOperation,
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition


@define
class Txn:
    """The coordinator's state of one transactional id."""

    producer_id: int
    epoch: int = -1
    ended: bool | None = None
    """The outcome of its last transaction, in this epoch."""
    partitions: set[TopicPartition] = field(factory=set)
    groups: set[str] = field(factory=set)
    pending: dict[tuple[str, TopicPartition], int] = field(factory=dict)
    appended: list[tuple[TopicPartition, bytes]] = field(factory=list)

    @property
    def ongoing(self) -> bool:
        return bool(self.partitions or self.groups)


class TransactionalCluster(PlainCluster):
    """Checks epochs, sequences, and that partitions were added before batches come; commits at once."""

    def __init__(self, brokers: int = 1, **topics: int) -> None:
        super().__init__(brokers, **topics)
        self.coordinator = brokers
        """The broker that coordinates transactional ids; groups are broker 1's."""
        self.ids: dict[str, Txn] = {}
        self.committed: list[bytes] = []
        """The values of transactions that were committed, in the order of their commits."""
        self.aborted: list[bytes] = []
        self.positions: dict[tuple[str, TopicPartition], int] = {}
        self.ended: list[bool] = []
        """The outcomes of transactions: True for a commit."""
        self._adds = False
        self.level = 0
        """That of transaction.version."""
        self._last: dict[tuple[TopicPartition, int, int], BatchHeader] = {}

    def answer(self, broker: int, request: Any) -> Any:
        known: dict[type[Any], Any] = {
            FindCoordinator: self._find,
            AddPartitionsToTxn: self._add_partitions,
            AddOffsetsToTxn: self._add_offsets,
            EndTxn: self._end,
            TxnOffsetCommit: self._commit_offsets,
            DescribeFeatures: self._features,
        }
        if isinstance(request, InitProducerId) and request.transactional_id is not None:
            known[InitProducerId] = self._init
        if isinstance(request, Produce):
            self._adds = request.supported_operation is TransactionSupportedOperation.ADD_PARTITION
        made = known.get(type(request))
        if made is None:
            return super().answer(broker, request)
        broker = broker % 2**32 if broker > 0 else 1
        self.requests.append((broker, request))
        for script in self.scripts:
            result = script(broker, request)
            if result is not None:
                return result
        return made(broker, request)

    def _find(self, _: int, request: FindCoordinator) -> FindCoordinatorResult:
        node = self.coordinator if request.key_type == TRANSACTION_COORDINATOR else 1
        return FindCoordinatorResult(
            coordinators=[Coordinator(key=key, node_id=node, host=f"broker-{node}", port=9092) for key in request.keys]
        )

    def _features(self, _broker: int, _request: DescribeFeatures) -> DescribeFeaturesResult:
        finalized = {TRANSACTION_VERSION: FinalizedVersionRange(self.level, self.level)} if self.level else {}
        return DescribeFeaturesResult(features=FeatureMetadata(finalized=finalized, finalized_epoch=1))

    def _init(self, broker: int, request: InitProducerId) -> InitProducerIdResult:
        if broker != self.coordinator:
            return InitProducerIdResult(error=ErrorCode.NOT_COORDINATOR)
        assert request.transactional_id is not None
        txn = self.ids.setdefault(request.transactional_id, Txn(1000 + len(self.ids)))
        if request.producer_id >= 0 and (request.producer_id, request.producer_epoch) != (txn.producer_id, txn.epoch):
            return InitProducerIdResult(error=ErrorCode.PRODUCER_FENCED)
        self._finish(txn, committed=False)
        txn.epoch += 1
        txn.ended = None
        return InitProducerIdResult(producer_id=txn.producer_id, producer_epoch=txn.epoch)

    def _refused(self, broker: int, request: Any) -> ErrorCode:
        if broker != self.coordinator:
            return ErrorCode.NOT_COORDINATOR
        txn = self.ids[request.transactional_id]
        if (request.producer_id, request.producer_epoch) != (txn.producer_id, txn.epoch):
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def _add_partitions(self, broker: int, request: AddPartitionsToTxn) -> AddPartitionsToTxnResult:
        error = self._refused(broker, request)
        if not error:
            self.ids[request.transactional_id].partitions |= set(request.partitions)
        return AddPartitionsToTxnResult(partitions=outcomes(request.partitions, error))

    def _add_offsets(self, broker: int, request: AddOffsetsToTxn) -> AddOffsetsToTxnResult:
        error = self._refused(broker, request)
        if not error:
            self.ids[request.transactional_id].groups.add(request.group_id)
        return AddOffsetsToTxnResult(error=error)

    def _commit_offsets(self, broker: int, request: TxnOffsetCommit) -> TxnOffsetCommitResult:
        topic_partitions = [TopicPartition(each.topic, each.partition) for each in request.partitions]
        txn = self.ids[request.transactional_id]
        if broker != 1:
            return TxnOffsetCommitResult(partitions=outcomes(topic_partitions, ErrorCode.NOT_COORDINATOR))
        if (request.producer_id, request.producer_epoch) != (txn.producer_id, txn.epoch):
            return TxnOffsetCommitResult(partitions=outcomes(topic_partitions, ErrorCode.INVALID_PRODUCER_EPOCH))
        if request.supported_operation is TransactionSupportedOperation.ADD_PARTITION:
            txn.groups.add(request.group_id)
        assert request.group_id in txn.groups
        for each in request.partitions:
            txn.pending[request.group_id, TopicPartition(each.topic, each.partition)] = each.offset
        return TxnOffsetCommitResult(partitions=outcomes(topic_partitions))

    def _end(self, broker: int, request: EndTxn) -> EndTxnResult:
        error = self._refused(broker, request)
        txn = self.ids[request.transactional_id]
        if request.supports_epoch_bump:
            return self._end_with_epoch_bump(txn, request, error)
        if not error and not txn.ongoing and txn.ended is not request.committed:
            error = ErrorCode.INVALID_TXN_STATE
        if not error:
            self._finish(txn, committed=request.committed)
        return EndTxnResult(error=error)

    def _end_with_epoch_bump(self, txn: Txn, request: EndTxn, error: ErrorCode) -> EndTxnResult:
        is_repeated = (request.producer_id, request.producer_epoch + 1) == (txn.producer_id, txn.epoch)
        if is_repeated and not txn.ongoing and txn.ended is not None:
            error = ErrorCode.NONE if txn.ended is request.committed else ErrorCode.INVALID_TXN_STATE
        elif not error and request.committed and not txn.ongoing:
            error = ErrorCode.INVALID_TXN_STATE
        elif not error:
            self._finish(txn, committed=request.committed)
            txn.ended, txn.epoch = request.committed, txn.epoch + 1
        if error:
            return EndTxnResult(error=error)
        return EndTxnResult(producer_id=txn.producer_id, producer_epoch=txn.epoch)

    def _finish(self, txn: Txn, *, committed: bool) -> None:
        if not txn.ongoing:
            return
        (self.committed if committed else self.aborted).extend(value for _, value in txn.appended)
        if committed:
            self.positions |= txn.pending
        self.ended.append(committed)
        txn.ended = committed
        txn.partitions.clear()
        txn.groups.clear()
        txn.pending.clear()
        txn.appended.clear()

    def _produce(self, broker: int, asked: Any) -> ProduceResultPartition:
        tp = TopicPartition(asked.topic, asked.partition)
        header = parse_header(asked.records)
        txn = next((t for t in self.ids.values() if t.producer_id == header.producer_id), None)
        if txn is None:
            return super()._produce(broker, asked)
        assert header.transactional
        key = (tp, header.producer_id, header.producer_epoch)
        if header.producer_epoch != txn.epoch:
            return ProduceResultPartition(*tp, ErrorCode.INVALID_PRODUCER_EPOCH)
        if self._adds:
            txn.partitions.add(tp)
        if tp not in txn.partitions:
            return ProduceResultPartition(*tp, ErrorCode.INVALID_TXN_STATE)
        last = self._last.get(key)
        if last is not None and last.base_sequence == header.base_sequence and last.count == header.count:
            return ProduceResultPartition(*tp, base_offset=0)  # it is there already
        if header.base_sequence != (0 if last is None else last.base_sequence + last.count):
            return ProduceResultPartition(*tp, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        done = super()._produce(broker, asked)
        if not done.error:
            values = [message.value or b"" for message in MessageSet(bytes(asked.records))]
            self._last[key] = header
            txn.appended += [(tp, value) for value in values]
        return done


def outcomes(partitions: Sequence[TopicPartition], error: ErrorCode = ErrorCode.NONE) -> list[PartitionOutcome]:
    return [PartitionOutcome(*tp, error) for tp in partitions]
