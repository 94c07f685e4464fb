"""The scrubber of closed segments, the repair of damaged ones, and their metrics."""

from collections.abc import Callable

from ....core.log.compaction.log_cleaner import LogCleaner
from ....core.log.partition_log.unified_log import UnifiedLog
from ....core.log.scrubbing.scrubber import LogScrubber
from ....core.replica.segment_repairs import SegmentRepairs
from ....ports.report import Report
from ....ports.storage import StorageError
from ....ports.types import TopicPartition
from ..service import BrokerService
from ..state.broker_state import BrokerState

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
