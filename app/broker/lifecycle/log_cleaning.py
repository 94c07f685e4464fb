"""The broker's log cleaner and its metrics, by Kafka's names."""

from collections.abc import Callable

from ....core.log.compaction.log_cleaner import LogCleaner
from ....core.log.manager.data_folder import DataFolder
from ....ports.metrics import Metrics
from ....ports.report import Report
from ....ports.types import Offset, TopicPartition
from ..service import BrokerService
from ..state.broker_state import BrokerState

_CLEANER, _MANAGER = "kafka_log_logcleaner", "kafka_log_logcleanermanager"


def begin_cleaning(state: BrokerState, api: BrokerService, report: Report) -> LogCleaner:
    """Start the log cleaner; it gives way to requests."""

    def decided_to(key: TopicPartition) -> Offset | None:
        partition = state.replicas.partitions.get(key)
        return None if partition is None else Offset(partition.last_stable_offset)

    cleaner = LogCleaner(
        state.logs.homes,
        settings=lambda: state.settings.cleaner,
        decided_to=decided_to,
        clock=state.clock,
        scheduler=state.scheduler,
        codecs=state.logs.codecs,
        entropy=state.entropy,
        report=report,
        served=lambda: api.requests,
    )
    _show(cleaner, state.metrics, state.clock.monotonic_ms)
    for folder in state.logs.folders:
        _show_uncleanable(cleaner, state.metrics, folder)
    cleaner.start()
    return cleaner


def _show(cleaner: LogCleaner, metrics: Metrics, now_ms: Callable[[], float]) -> None:
    figures = cleaner.figures
    for name, text, read in (
        (f"{_CLEANER}_cleaner_recopy_percent", "Of the last cleaning.", lambda: 100.0 * figures.recopied),
        (f"{_CLEANER}_max_buffer_utilization_percent", "Of its offset map.", lambda: 100.0 * figures.map_utilization),
        (f"{_CLEANER}_max_clean_time_secs", "How long the last cleaning took.", lambda: figures.took_ms / 1000.0),
        (
            f"{_CLEANER}_max_compaction_delay_secs",
            "How long a message has been older than max.compaction.lag.ms and not compacted.",
            lambda: figures.overdue_ms / 1000.0,
        ),
        (f"{_CLEANER}_read_bytes", "Bytes that were compacted, since the start.", lambda: float(figures.bytes_read)),
        (f"{_CLEANER}_deduplicated_bytes", "Bytes that went, since the start.", lambda: float(figures.bytes_removed)),
        (f"{_MANAGER}_max_dirty_percent", "Of the dirtiest log.", lambda: 100.0 * figures.dirtiest),
        (
            f"{_MANAGER}_time_since_last_run_ms",
            "Since the logs were looked at for what is to be compacted.",
            lambda: now_ms() - figures.looked_ms,
        ),
    ):
        metrics.gauge(name, text, read)


def _show_uncleanable(cleaner: LogCleaner, metrics: Metrics, folder: DataFolder) -> None:
    labels = {"logDirectory": folder.log_dir.path}
    for name, text, read in (
        (
            f"{_MANAGER}_uncleanable_partitions_count",
            "Logs that are left as they are until a restart: see the log of the broker.",
            lambda: float(len(cleaner.uncleanable_in(folder))),
        ),
        (
            f"{_MANAGER}_uncleanable_bytes",
            "Bytes in these logs.",
            lambda: float(sum(log.size_bytes for log in cleaner.uncleanable_in(folder))),
        ),
    ):
        metrics.gauge(name, text, read, **labels)
