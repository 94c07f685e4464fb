"""Transactions: the requests to their transaction coordinator (facts C6)."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from ....core.cluster.topic_store import read_live_topics
from ....core.cluster.topics import Topic
from ....core.coordinator.log import CoordinatorLog
from ....core.coordinator.log_loader import LogLoader
from ....core.coordinator.table import partition_of
from ....core.coordinator.transaction.config import TransactionConfig
from ....core.coordinator.transaction.coordinator import TransactionCoordinator
from ....core.coordinator.transaction.loading import TransactionLoading
from ....core.coordinator.transaction.markers import MarkerSender, PartitionLookup, WriteHere
from ....core.coordinator.transaction.verifier import TransactionVerifier
from ....ports.broker_api.envelope import Caller, Reply, Request
from ....ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    DescribeTransactions,
    EndTxn,
    ListTransactions,
)
from ....ports.error_codes import ErrorCode
from ....ports.metrics import Metrics
from ....ports.report import in_room
from ....ports.scheduler import Outcome
from ....ports.types import TopicPartition
from ...config import BrokerConfig
from ..state.broker_state import BrokerState
from .internal_topic_creation import InternalTopics
from .internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from .led_partitions import follow_leaders
from .producer_id_manager import ProducerIds

_WRITE_TIMEOUT_MS = 5000.0


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
        report = in_room(state.report, "core.coordinator")
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
        )
        self.verifier = TransactionVerifier(
            own_id=state.node_id,
            coordinator=self.coordinator,
            coordinator_of=self._coordinator_of,
            submit=state.ask,
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
