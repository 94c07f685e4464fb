"""The share coordinator of a broker: the states of share partitions for other brokers (KIP-932, facts D5)."""

from collections.abc import Callable, Mapping
from typing import Any

from ....core.coordinator.log import CoordinatorLog
from ....core.coordinator.log_loader import LogLoader
from ....core.coordinator.share.coordinator import ShareCoordinator, ShareCoordinatorConfig
from ....core.coordinator.share.loading import ShareStateLoading
from ....core.coordinator.share.persister import DefaultStatePersister
from ....core.coordinator.table import partition_of
from ....ports.broker_api.envelope import Caller, Request
from ....ports.broker_api.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    WriteShareGroupState,
)
from ....ports.errors import ApiError
from ....ports.report import to_logger
from ....ports.storage import StorageError
from ....ports.types import TopicPartition
from ...config import BrokerConfig
from ..state.broker_state import BrokerState
from .internal_topic_creation import InternalTopics
from .internal_topics import SHARE_STATE_TOPIC
from .led_partitions import follow_leaders

_Handler = Callable[[Any, Caller, Any], None]


class ShareCoordinatorService:
    """Coordinates the share partitions whose partition of `__share_group_state` this broker leads.

    It loads and unloads the partitions as `GroupService` does. Owner thread only.
    """

    def __init__(self, state: BrokerState, internal: InternalTopics) -> None:
        static = state.settings.static
        self._state = state
        self._log = CoordinatorLog(
            SHARE_STATE_TOPIC,
            state.replicas,
            clock=state.clock,
            scheduler=state.scheduler,
            timeout_ms=static.share_coordinator_write_timeout_ms,
            failed=state.failed,
        )
        self.coordinator = ShareCoordinator(
            config=_share_config(static),
            partition_count=static.share_coordinator_state_topic_num_partitions,
            clock=state.clock,
            scheduler=state.scheduler,
            append=self._log.append,
            leads=state.replicas.leading(SHARE_STATE_TOPIC),
            has_partition=self._has_partition,
            log_end_offset=self._log_end_offset,
            delete_records=self._delete_records,
            steps=state.steps,
            report=to_logger(state.report, "core.coordinator"),
        )
        self._loader = LogLoader(
            state.replicas,
            self.coordinator.begin_load,
            self.coordinator.loaded,
            codecs=state.logs.codecs,
            clock=state.clock,
            scheduler=state.scheduler,
            slice_bytes=static.share_coordinator_load_buffer_size,
            report=state.report,
            failed=state.failed,
            each_record=ShareStateLoading.begin_batches,
        )
        self.persister = DefaultStatePersister(
            own_id=state.node_id,
            coordinator_of=self._coordinator_of,
            create_topic=lambda created: internal.make(SHARE_STATE_TOPIC, created),
            has_partition=self._has_partition,
            handle_here=lambda request, caller, reply: self.handlers[type(request)](request, caller, reply),
            submit=state.ask,
            clock=state.clock,
            scheduler=state.scheduler,
        )
        """The states of share partitions, for the leaders and the group coordinator of this broker."""
        coordinator = self.coordinator
        self.handlers: Mapping[type[Request[Any]], _Handler] = {
            InitializeShareGroupState: coordinator.initialize,
            ReadShareGroupState: coordinator.read,
            WriteShareGroupState: coordinator.write,
            DeleteShareGroupState: coordinator.delete,
            ReadShareGroupStateSummary: coordinator.read_summary,
        }
        """The handler of each request type."""
        self._is_closed = False
        follow_leaders(state, SHARE_STATE_TOPIC, coordinator, self._loader, self._log)
        state.metrics.gauge(
            "kafka_server_share_coordinator_metrics_partition_load_time_max",
            "Milliseconds that the slowest partition took to load.",
            lambda: self._loader.longest_ms,
        )
        state.metrics.gauge(
            "kafka_server_share_coordinator_metrics_num_share_partitions",
            "Share partitions whose state is here.",
            lambda: len(coordinator),
        )

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
        self.persister.close()
        self._log.flush()
        self.coordinator.close()
        self._log.close()

    # --- what the coordinator and the persister ask

    def _has_partition(self, topic_id: bytes, partition: int) -> bool:
        image = self._state.image
        topic = image.topics.get(image.name_of(topic_id))
        return topic is not None and partition in topic.partitions

    def _coordinator_of(self, key: str) -> int:
        topic = self._state.image.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            return -1
        tp = TopicPartition(SHARE_STATE_TOPIC, partition_of(key, len(topic.partitions)))
        return self._state.image.state(tp).leader

    def _log_end_offset(self, number: int) -> int:
        partition = self._state.replicas.partitions.get(TopicPartition(SHARE_STATE_TOPIC, number))
        return 0 if partition is None else partition.log.log_end_offset

    def _delete_records(self, number: int, offset: int) -> None:
        tp = TopicPartition(SHARE_STATE_TOPIC, number)
        partition = self._state.replicas.partitions.get(tp)
        if partition is None or not partition.log.log_start_offset < offset <= partition.high_watermark:
            return
        try:
            partition.delete_records(offset)
        except (ApiError, StorageError) as error:
            self._state.report(f"{tp}: deleting the records below offset {offset} failed: {error}")


def _share_config(static: BrokerConfig) -> ShareCoordinatorConfig:
    return ShareCoordinatorConfig(
        updates_per_snapshot=static.share_coordinator_snapshot_update_records_per_snapshot,
        cold_snapshot_interval_ms=static.share_coordinator_cold_partition_snapshot_interval_ms,
        prune_interval_ms=static.share_coordinator_state_topic_prune_interval_ms,
    )
