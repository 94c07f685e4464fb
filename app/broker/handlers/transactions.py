"""Producers and transactions: the requests to transaction coordinators, InitProducerId, DescribeProducers and
WriteTxnMarkers (facts B2, C6).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve

from ....core.client.driver import Submit
from ....core.cluster.features import TRANSACTION_VERSION
from ....core.cluster.topic_store import read_live_topics
from ....core.cluster.topics import Topic
from ....core.coordinator.log import CoordinatorLog
from ....core.coordinator.log_loader import LogLoader
from ....core.coordinator.table import partition_of
from ....core.coordinator.transaction.config import TransactionConfig
from ....core.coordinator.transaction.coordinator import TransactionCoordinator
from ....core.coordinator.transaction.loading import TransactionLoading
from ....core.coordinator.transaction.markers import MarkerSender, PartitionLookup, WriteHere
from ....core.traffic.steps import Steps
from ....ports.broker_api.envelope import Caller, Origin, Reply, Request
from ....ports.broker_api.groups import PartitionOutcome
from ....ports.broker_api.producers import (
    ActiveProducer,
    DescribedPartition,
    DescribeProducers,
    DescribeProducersResult,
    InitProducerId,
    InitProducerIdResult,
)
from ....ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    DescribeTransactions,
    EndTxn,
    ListTransactions,
    TransactionSupportedOperation,
    TxnMarker,
    WriteTxnMarkers,
    WriteTxnMarkersResult,
    WrittenTxnMarker,
)
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, broker_failed
from ....ports.metrics import Counter, Metrics
from ....ports.report import to_logger
from ....ports.scheduler import Outcome, Scheduler
from ....ports.types import TopicPartition
from ...config import BrokerConfig
from ..state.broker_state import BrokerState
from .internal_topic_creation import InternalTopics
from .internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from .led_partitions import follow_leaders
from .producer_id_manager import ProducerIds

_WRITE_TIMEOUT_MS = 5000.0


# Verification by a leader, at the coordinator, that a partition belongs to the transaction written there (KIP-890).

_Transaction = tuple[str, int, int, bool]
"""Transactional id, producer id and epoch; whether partitions are added to it."""
_Callback = Callable[[ErrorCode], None]
_BROKER = Caller(origin=Origin.BROKER)


_ADD_BACKOFF_MS, _ADD_PATIENCE_MS = 20.0, 500.0
"""While the transaction before is being ended, leaders ask for this time; then the producer does."""


class TransactionVerifier:
    """Verifications of one transaction in one turn of the owner thread share a request, and so do the partitions that
    this broker adds for producers of version 2 (Kafka: AddPartitionsToTxnManager). Owner thread only.

    own_id:         this broker; its `coordinator` is called directly.
    coordinator_of: the broker that coordinates a transactional id, -1 while there is none.
    submit:         sends a request to another broker, as `Links.submit` does; None: there is no other.
    is_on:          False: nothing is verified; partitions are added all the same.
    failures:       counts partitions that did not belong to the transaction.
    """

    def __init__(
        self,
        *,
        own_id: int,
        coordinator: TransactionCoordinator,
        coordinator_of: Callable[[str], int],
        submit: Submit | None,
        clock: Clock,
        scheduler: Scheduler,
        is_on: Callable[[], bool],
        failures: Counter,
    ) -> None:
        self._own_id = own_id
        self._coordinator = coordinator
        self._coordinator_of = coordinator_of
        self._submit = submit
        self._clock = clock
        self._scheduler = scheduler
        self._is_on = is_on
        self._failures = failures
        self._waiting: dict[_Transaction, dict[TopicPartition, list[_Callback]]] = {}
        self._is_due = False

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: TopicPartition,
        operation: TransactionSupportedOperation,
        callback: _Callback,
    ) -> None:
        """Call the callback with NONE, the coordinator's error, or COORDINATOR_NOT_AVAILABLE if it cannot be asked; at
        once or later."""
        adds = operation is TransactionSupportedOperation.ADD_PARTITION
        if not adds and not self._is_on():
            callback(ErrorCode.NONE)
            return
        transaction = transactional_id, producer_id, epoch, adds
        node = self._coordinator_of(transactional_id)
        if node == self._own_id and not adds:
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

    def _ask(
        self,
        node: int,
        transaction: _Transaction,
        partitions: dict[TopicPartition, list[_Callback]],
        began_ms: float | None = None,
    ) -> None:
        adds = transaction[-1]
        asked_ms = self._clock.monotonic_ms() if began_ms is None else began_ms
        request = AddPartitionsToTxn(
            transactional_id=transaction[0],
            producer_id=transaction[1],
            producer_epoch=transaction[2],
            partitions=tuple(partitions),
            verify_only=not adds,
            supports_epoch_bump=adds,
        )

        def answered(result: Any) -> None:
            codes, missing = {}, ErrorCode.COORDINATOR_NOT_AVAILABLE
            if isinstance(result, AddPartitionsToTxnResult):
                # As Kafka: what the coordinator refuses this broker is no error of the client.
                missing = missing if result.error is ErrorCode.NONE else ErrorCode.INVALID_TXN_STATE
                codes = {TopicPartition(each.topic, each.partition): each.error for each in result.partitions}
            is_busy = adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if is_busy and self._clock.monotonic_ms() - asked_ms + _ADD_BACKOFF_MS < _ADD_PATIENCE_MS:
                self._scheduler.call_later(
                    _ADD_BACKOFF_MS,
                    lambda: self._ask(self._coordinator_of(transaction[0]), transaction, partitions, asked_ms),
                )
                return
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


class TransactionService:
    """Coordinates the transactional ids whose partition of `__transaction_state` this broker leads.

    It loads and unloads the partitions as `GroupService` does. Owner thread only.
    """

    def __init__(
        self, state: BrokerState, internal: InternalTopics, ids: ProducerIds, write_markers: WriteHere
    ) -> None:
        static = state.settings.static
        self._state = state
        self._internal = internal
        self._log = CoordinatorLog(
            TRANSACTIONS_TOPIC,
            state.replicas,
            clock=state.clock,
            scheduler=state.scheduler,
            timeout_ms=_WRITE_TIMEOUT_MS,
            failed=state.failed,
        )
        report = to_logger(state.report, "core.coordinator")
        self._markers = MarkerSender(
            own_id=state.node_id,
            leader_of=self._leader_of,
            look_up=self._look_up,
            write_here=write_markers,
            submit=state.ask,
            clock=state.clock,
            scheduler=state.scheduler,
            report=report,
        )
        self.coordinator = TransactionCoordinator(
            config=_transaction_config(static),
            partition_count=static.transaction_state_log_num_partitions,
            clock=state.clock,
            scheduler=state.scheduler,
            append=self._log.append,
            markers=self._markers,
            fresh_id=ids.generate_producer_id,
            refusal=self._refusal,
            offsets_partition=self._offsets_partition,
            leads=state.replicas.leading(TRANSACTIONS_TOPIC),
            steps=state.steps,
            report=report,
            transaction_version=lambda: state.image.features.level(TRANSACTION_VERSION),
        )
        self.verifier = TransactionVerifier(
            own_id=state.node_id,
            coordinator=self.coordinator,
            coordinator_of=self._coordinator_of,
            submit=state.ask,
            clock=state.clock,
            scheduler=state.scheduler,
            is_on=lambda: state.settings.verifies_transactions,
            failures=state.metrics.counter(
                "kafka_server_addpartitionstotxnmanager_verificationfailures_total",
                "Partitions that did not belong to the transaction that was written there.",
            ),
        )
        """Verifies, for the leaders of this broker, that written partitions are in the transaction."""
        self._loader = LogLoader(
            state.replicas,
            self._begin_load,
            self.coordinator.loaded,
            codecs=state.logs.codecs,
            clock=state.clock,
            scheduler=state.scheduler,
            slice_bytes=static.transaction_state_log_load_buffer_size,
            report=state.report,
            failed=state.failed,
        )
        self._is_closed = False
        follow_leaders(state, TRANSACTIONS_TOPIC, self.coordinator, self._loader, self._log)
        _show(state.metrics, self.coordinator, self._markers, self._loader)

    @property
    def handlers(self) -> Mapping[type[Request[Any]], Callable[[Any, Caller, Any], None]]:
        """The handler of each request type; `ProducerService` passes on InitProducerId."""
        coordinator = self.coordinator
        return {
            AddPartitionsToTxn: coordinator.add_partitions,
            AddOffsetsToTxn: self._add_offsets,
            EndTxn: coordinator.end,
            DescribeTransactions: coordinator.describe,
            ListTransactions: coordinator.list_transactions,
        }

    # --- life

    def start(self) -> None:
        """Start the coordinator, after the topics of an earlier start are open."""
        self.coordinator.start()

    def close(self) -> None:
        """Write accepted changes, and answer waiting requests with NOT_COORDINATOR. Twice is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loader.close()
        self._log.flush()
        self.coordinator.close()
        self._log.close()

    # --- requests

    def _add_offsets(self, request: AddOffsetsToTxn, caller: Caller, reply: Reply[AddOffsetsToTxnResult]) -> None:
        """Create the offsets topic first: clients look for the group coordinator only after this request."""
        self._internal.make(OFFSETS_TOPIC, lambda _: self.coordinator.add_offsets(request, caller, reply))

    # --- what the coordinator asks

    def _refusal(self, partition: TopicPartition) -> ErrorCode:
        """Return the error of a partition that cannot be in a transaction."""
        state, (name, number) = self._state, partition
        if state.classic.has(name) or state.classic.is_created_classic(name):
            return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        topic = state.image.topics.get(name)
        exists = topic is not None and number in topic.partitions
        return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _leader_of(self, partition: TopicPartition) -> int | None:
        exists = self._refusal(partition) is ErrorCode.NONE
        return self._state.image.state(partition).leader if exists else None

    def _look_up(self, partitions: Collection[TopicPartition], looked: Callable[[PartitionLookup], None]) -> None:
        """Compare the image with the tree, and pass on the deleted and the unknown partitions.

        Topics of the classic generation have no transactions: their partitions count as deleted.
        """
        state = self._state
        classic = {each for each in partitions if state.classic.has(each.topic)}
        names = sorted({each.topic for each in partitions})

        def on_read(outcome: Outcome[dict[str, Topic | None]]) -> None:
            if outcome.error is not None:
                text = "looking for the topics of transactions whose markers are to be written failed"
                state.report(f"{text}; it is tried again: {outcome.error}")
                looked(PartitionLookup(deleted=classic, is_answered=False))
                return
            topics, image = outcome.get(), state.image
            there = {name: topic.partitions if topic else () for name, topic in topics.items()}
            deleted = {each for each in partitions if each.topic in there and each.partition not in there[each.topic]}
            known = {
                name
                for name, topic in topics.items()
                if topic is not None and name in image.topics and image.topics[name].topic_id == topic.topic_id
            }
            unknown = {each for each in partitions if each.topic not in known}
            looked(PartitionLookup(deleted=deleted | classic, not_known_here=unknown - deleted - classic))

        state.scheduler.offload(lambda: read_live_topics(state.registry.coordination, names), on_read)

    def _coordinator_of(self, transactional_id: str) -> int:
        topic = self._state.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return -1
        key = TopicPartition(TRANSACTIONS_TOPIC, partition_of(transactional_id, len(topic.partitions)))
        return self._state.image.state(key).leader

    def _offsets_partition(self, group_id: str) -> TopicPartition | None:
        topic = self._state.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else TopicPartition(OFFSETS_TOPIC, partition_of(group_id, len(topic.partitions)))

    # --- partitions come and go

    def _begin_load(self, number: int) -> TransactionLoading:
        partition = self._state.replicas.partitions[TRANSACTIONS_TOPIC, number]
        return self.coordinator.begin_load(number, partition.leader_epoch)


def _transaction_config(static: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=static.transaction_max_timeout_ms,
        abort_check_interval_ms=static.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        id_expiration_ms=static.transactional_id_expiration_ms,
        expiry_check_interval_ms=static.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def _show(
    metrics: Metrics, coordinator: TransactionCoordinator, markers: MarkerSender, loader: LogLoader[TransactionLoading]
) -> None:
    """Register the gauges by Kafka's names."""
    metrics.gauge(
        "kafka_server_transaction_coordinator_metrics_partition_load_time_max",
        "Milliseconds that the slowest partition took to load.",
        lambda: loader.longest_ms,
    )
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
    metrics.gauge(
        f"{prefix}_unknowndestinationqueuesize",
        "Transactions with partitions that have no leader now.",
        lambda: markers.without_leader,
    )
    metrics.gauge(
        f"{prefix}_logappendretryqueuesize",
        "Transactions that have ended, and wait for that to be written.",
        lambda: coordinator.retrying,
    )


TIMEOUT_MS = 30_000
"""The wait for the in-sync replicas; then a coordinator retries."""
_AT_ONCE = 64
"""The number of markers that are written before other work has its turn."""


class MarkerService:
    """Writes markers for coordinators, and for operators who end hanging transactions."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._markers = state.replicas.markers

    def write(self, request: WriteTxnMarkers, caller: Caller, reply: Reply[WriteTxnMarkersResult]) -> None:
        """Write the markers; the reply comes when all in-sync replicas have all of them."""
        portions = list(_portions(request.markers))
        if len(portions) == 1:  # as of small transactions: there is nothing to take turns with

            def on_all_written(some: Sequence[WrittenTxnMarker]) -> None:
                reply(WriteTxnMarkersResult(markers=_joined(request.markers, [some])))

            self._markers.write(portions[0], on_all_written, TIMEOUT_MS)
            return
        written: list[Sequence[WrittenTxnMarker]] = [()] * len(portions)
        left = len(portions) + 1

        def on_written(number: int, some: Sequence[WrittenTxnMarker]) -> None:
            written[number] = some
            finish()

        def finish() -> None:
            nonlocal left
            left -= 1
            if not left:
                reply(WriteTxnMarkersResult(markers=_joined(request.markers, written)))

        def portion_by_portion() -> Steps[None]:
            for number, portion in enumerate(portions):
                self._markers.write(portion, partial(on_written, number), TIMEOUT_MS)
                yield None

        def begun(outcome: Outcome[None]) -> None:
            nonlocal left
            if outcome.error is None:
                finish()
                return
            left = 0  # the reply with the error is the only one
            self._state.failed("writing markers of transactions", outcome.error)
            reply(broker_failed())

        self._state.steps.run(portion_by_portion(), begun, caller.connection or None)


def _portions(markers: Sequence[TxnMarker]) -> Sequence[list[TxnMarker]]:
    """Return the markers, each with some of its partitions, in portions that are quick to write."""
    portions: list[list[TxnMarker]] = []
    room = 0
    for marker in markers:
        partitions = marker.partitions
        while partitions:
            if not room:
                portions.append([])
                room = _AT_ONCE
            some, partitions = partitions[:room], partitions[room:]
            portions[-1].append(marker if len(some) == len(marker.partitions) else evolve(marker, partitions=some))
            room -= len(some)
    return portions


def _joined(markers: Sequence[TxnMarker], written: Sequence[Sequence[WrittenTxnMarker]]) -> list[WrittenTxnMarker]:
    """Return the outcomes of the portions by marker."""
    outcomes = (outcome for some in written for each in some for outcome in each.partitions)
    joined = []
    for marker in markers:
        mine: list[PartitionOutcome] = [next(outcomes) for _ in marker.partitions]
        joined.append(WrittenTxnMarker(producer_id=marker.producer_id, partitions=mine))
    return joined


EPOCH_MAX = 2**15 - 1
_PRODUCERS_PER_STEP = 64


class ProducerService:
    """Assigns producer ids and epochs; describes the producers of a partition. Owner thread only.

    `transactional` answers InitProducerId of producers with a transactional id.
    """

    def __init__(
        self,
        state: BrokerState,
        ids: ProducerIds,
        transactional: Callable[[InitProducerId, Caller, Reply[InitProducerIdResult]], None],
    ) -> None:
        self._state = state
        self._ids = ids
        self._transactional = transactional

    def init(self, request: InitProducerId, caller: Caller, reply: Reply[InitProducerIdResult]) -> None:
        if request.transactional_id is not None:
            self._transactional(request, caller, reply)
            return
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            reply(InitProducerIdResult(error=ErrorCode.INVALID_REQUEST))
            return

        def answer(there_are: bool) -> None:
            # Kafka's error while it has no ids: clients retry.
            none = InitProducerIdResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            reply(self._identity(request) if there_are else none)

        self._ids.when_some(answer)

    def _identity(self, request: InitProducerId) -> InitProducerIdResult:
        """Return the next epoch of an assigned id (KIP-360), else an unused id. One must be left."""
        epoch = request.producer_epoch + 1
        if self._ids.are_given_out(request.producer_id) and epoch < EPOCH_MAX:
            return InitProducerIdResult(producer_id=request.producer_id, producer_epoch=epoch)
        return InitProducerIdResult(producer_id=self._ids.next(), producer_epoch=0)

    def describe(self, request: DescribeProducers, caller: Caller, reply: Reply[DescribeProducersResult]) -> None:
        """Describe the producers; a partition that is named twice is described once."""

        def all_of_them() -> Steps[DescribeProducersResult]:
            described = []
            for topic, numbers in request.topics.items():
                for number in dict.fromkeys(numbers):
                    described.append((yield from self._described(topic, number)))
                    yield None
            return DescribeProducersResult(partitions=described)

        self._state.answer_in_steps("DescribeProducers", all_of_them(), caller, reply)

    def _described(self, topic: str, number: int) -> Steps[DescribedPartition]:
        """Describe the producers of a replica, leader or not, as in Kafka: so that a missing producer can be found."""
        try:
            partition = self._state.replicas.held(topic, number)
        except ApiError as error:
            return DescribedPartition(topic=topic, partition=number, error=error.code, error_message=error.message)
        producers = []
        for count, (producer_id, producer) in enumerate(tuple(partition.log.producers.producers.items()), 1):
            producers.append(
                ActiveProducer(
                    producer_id=producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp_ms=producer.seen_ms,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.txn_first_offset,
                )
            )
            if not count % _PRODUCERS_PER_STEP:
                yield None
        return DescribedPartition(topic=topic, partition=number, producers=producers)
