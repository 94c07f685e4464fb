"""The broker's log cleaner and its scrubber of closed segments, with their metrics."""

from collections.abc import Callable

from ....core.log.compaction.log_cleaner import LogCleaner
from ....core.log.manager.data_folder import DataFolder
from ....core.log.partition_log.unified_log import UnifiedLog
from ....core.log.scrubbing.scrubber import LogScrubber
from ....core.replica.segment_repairs import SegmentRepairs
from ....ports.metrics import Metrics
from ....ports.report import Report
from ....ports.storage import StorageError
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


# The scrubber of closed segments, the repair of damaged ones, and their metrics.

_SCRUBBER = "kafka_log_logscrubber"


class LogScrubbing:
    """Finds damaged segments of this broker's replicas, and repairs them from other replicas. Owner thread only."""

    def __init__(self, state: BrokerState, api: BrokerService, cleaner: LogCleaner | None, report: Report) -> None:
        def hold(key: TopicPartition) -> bool:
            return cleaner is None or cleaner.hold(key)

        def release(log: UnifiedLog, repaired: bool) -> None:
            if cleaner is not None:
                cleaner.release(log, repaired=repaired)

        def again(log: UnifiedLog, offset: int) -> None:
            self.scrubber.check_soon(log, offset)

        def failed(log: UnifiedLog, error: StorageError) -> None:
            state.replicas.storage_failed(log.topic_partition, error)

        self.repairs = SegmentRepairs(
            state.replicas,
            submit=state.ask,
            is_alive=lambda broker_id: broker_id in state.image.brokers,
            home_of=state.logs.homes.get,
            clock=state.clock,
            scheduler=state.scheduler,
            report=report,
            hold=hold,
            release=release,
            again=again,
        )
        self.scrubber = LogScrubber(
            state.logs.homes,
            settings=lambda: state.settings.scrub,
            clock=state.clock,
            scheduler=state.scheduler,
            served=lambda: api.requests,
            on_damage=self.repairs.on_damage,
            failed=failed,
        )
        state.replicas.add_suspicion_listener(self.scrubber.suspect)
        scrub, repair = self.scrubber.figures, self.repairs.figures
        for name, text, read in (
            ("read_bytes", "Bytes of closed segments that were compared with their checksums.", lambda: scrub.bytes),
            ("segments_checked", "Closed segments that were compared with their checksums.", lambda: scrub.segments),
            ("damaged_segments", "Closed segments that were found damaged.", lambda: scrub.damaged),
            (
                "repaired_segments",
                "Damaged segments that were made again.",
                lambda: repair.repaired,
            ),
            (
                "failed_repairs",
                "Repairs that failed: see the log of the broker.",
                lambda: repair.failed,
            ),
        ):
            state.metrics.gauge(f"{_SCRUBBER}_{name}", text, read)
        self.scrubber.start()

    def stop(self, done: Callable[[], None]) -> None:
        """Stop, and call `done` when no worker is active; the logs stay open."""
        self.scrubber.stop(lambda: self.repairs.stop(done))
