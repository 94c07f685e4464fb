"""Background compaction of logs, the dirtiest first (Kafka: LogCleaner)."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import evolve

from ....ports.clock import Clock
from ....ports.entropy import Entropy
from ....ports.report import Line, counted, info
from ....ports.report import error as failure
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.storage import StorageError
from ....ports.types import Offset, TopicPartition
from ...message.codec import Codecs
from ..formats.registry import BATCHES
from ..log_format import LogSegment
from ..manager.data_folder import DataFolder
from ..manager.log_lines import in_units
from ..partition_log.unified_log import UnifiedLog
from ..retention import RecordPolicy
from .cleaner import Cleaner, CleanerStats
from .cleaning_job import CleanerSettings
from .cleaning_run import CleaningResult, CleaningRun
from .log_to_clean import LogToClean, measure_log, plan_cleaning
from .policy_filter import PolicySchedule
from .throttler import Throttler

DecidedTo = Callable[[TopicPartition], "Offset | None"]


class LogCleaner:
    """Cleans logs in the background. Owner thread only. `start` begins, `stop` ends it.

    homes:      the data folder of each log.
    decided_to: the offset from which messages of a partition may still be truncated or aborted; None if it is unknown,
                and the log is not cleaned.
    """

    def __init__(
        self,
        homes: Mapping[TopicPartition, DataFolder],
        *,
        settings: Callable[[], CleanerSettings],
        decided_to: DecidedTo,
        clock: Clock,
        scheduler: Scheduler,
        codecs: Codecs,
        entropy: Entropy,
        report: Callable[[str], None],
        served: Callable[[], int] = lambda: 0,
    ) -> None:
        """`served` counts the requests of clients, which have priority over cleaning."""
        self._homes = homes
        self._settings = settings
        self._decided_to = decided_to
        self._clock = clock
        self._scheduler = scheduler
        self._codecs = codecs
        self._entropy = entropy
        self._report = report
        self._served = served
        self._running: dict[TopicPartition, CleaningRun] = {}
        self._held: set[TopicPartition] = set()
        self._uncleanable: set[UnifiedLog] = set()
        self._passes = PolicySchedule()
        self.figures = CleanerMetrics(clock.monotonic_ms())
        self._timer: Timer | None = None
        self._stopped: Callable[[], None] | None = None
        self._closed = False

    def start(self) -> None:
        """Begin the periodic check of the logs."""
        self._wait()

    def stop(self, done: Callable[[], None]) -> None:
        """Abort all cleanings, and call `done` when no worker runs one; the logs stay open."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            self._stopped = done
            for run in list(self._running.values()):
                run.stop()
        else:
            done()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.call_later(self._settings().backoff_ms, self._look)

    def _look(self) -> None:
        """Begin to clean the dirtiest logs, up to the number of cleaner threads."""
        self._wait()
        threads = self._settings().threads
        due = [each for each in self._measure_logs() if each.due]
        for each in sorted(due, key=lambda each: each.ratio, reverse=True):
            if len(self._running) < threads:
                self._begin(each)
        for each, policy in self._passes_due():
            if len(self._running) < threads and each.log.topic_partition not in self._running:
                self._passes.begun(each.log, policy, self._clock.monotonic_ms())
                self._begin(each, policy)

    def _idle(self) -> Iterator[tuple[UnifiedLog, DataFolder, Offset]]:
        """Yield the logs that may be cleaned, with the offset below which their messages are final."""
        for partition, home in list(self._homes.items()):
            log = home.logs.get(partition)
            if log is None or log.format_name != BATCHES or partition in self._running or partition in self._held:
                continue
            if log in self._uncleanable or log.failure is not None or len(log.segments) == 1:
                continue
            decided_to = self._decided_to(partition)
            if decided_to is not None:
                yield log, home, decided_to

    def _passes_due(self) -> list[tuple[LogToClean, RecordPolicy]]:
        """Return all sealed and final messages of logs whose deletion policy decides on single messages."""
        found = []
        for log, _, decided_to in self._idle():
            policy = self._passes.due(log, self._clock.monotonic_ms())
            if policy is not None:
                log_to_clean = self._look_at(log, log.log_start_offset, decided_to)
                if log_to_clean is not None and log_to_clean.upto > log.log_start_offset:
                    found.append((evolve(log_to_clean, first_dirty=log_to_clean.upto), policy))
        return found

    def _look_at(self, log: UnifiedLog, cleaned_to: Offset, decided_to: Offset) -> LogToClean | None:
        try:
            return measure_log(log, cleaned_to, decided_to, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # reported; cleaning continues with the other logs
            self._failed(log, error)
            return None

    def _measure_logs(self) -> list[LogToClean]:
        found = []
        for log, home, decided_to in self._idle():
            if log.config.compacted:
                cleaned_to = Offset(min(home.cleaned_to.get(log.topic_partition, 0), log.replacer.truncated_to))
                log_to_clean = self._look_at(log, cleaned_to, decided_to)
                if log_to_clean is not None:
                    found.append(log_to_clean)
        self.figures.looked(found, self._clock.monotonic_ms())
        return found

    def hold(self, partition: TopicPartition) -> bool:
        """Pause cleaning of this log until `release`; return False while it is being cleaned."""
        if partition in self._running:
            return False
        self._held.add(partition)
        return True

    def release(self, log: UnifiedLog, *, repaired: bool) -> None:
        """Resume cleaning of this log; `repaired` also clears its uncleanable mark."""
        self._held.discard(log.topic_partition)
        if repaired:
            self._uncleanable.discard(log)

    def uncleanable_in(self, home: DataFolder) -> list[UnifiedLog]:
        """Return the uncleanable logs of a data folder."""
        return [log for log in home.logs.values() if log in self._uncleanable]

    def _begin(self, log_to_clean: LogToClean, policy: RecordPolicy | None = None) -> None:
        partition = log_to_clean.log.topic_partition
        home = self._homes[partition]
        try:
            order = plan_cleaning(
                log_to_clean,
                self._settings(),
                now_ms=self._clock.now_ms(),
                codecs=self._codecs,
                secret=self._entropy.token(32),
                policy=policy,
            )
        except StorageError as error:
            self._failed(log_to_clean.log, error)
            return
        cleaning = Cleaner(order)
        run = CleaningRun(
            log_to_clean.log,
            cleaning,
            home=home,
            scheduler=self._scheduler,
            clock=self._clock,
            throttler=Throttler(self._clock, self._rate, self._served),
            replaced=lambda segments: self._delete_later(log_to_clean.log, segments),
            ended=lambda run, ended: self._ended(run, cleaning, ended),
        )
        self._running[partition] = run
        run.start()

    def _rate(self) -> float:
        """Return the rate of one cleaning in bytes per second."""
        settings = self._settings()
        return settings.io_max_bytes_per_second / max(1, settings.threads)

    def _ended(self, run: CleaningRun, cleaning: Cleaner, ended: CleaningResult) -> None:
        log = run.log
        del self._running[log.topic_partition]
        policy = None if cleaning.order.policy is None else cleaning.order.config.deletion_policy
        if ended.error is not None and policy is None:
            self._failed(log, ended.error)
        elif ended.error is not None:
            text = f"deletion.policy={policy} could not look at all messages of {log.topic_partition}: {ended.error}"
            self._report(failure(text, partition=str(log.topic_partition)))
        elif ended.stats is not None and (policy is None or ended.stats.messages_retained < ended.stats.messages_read):
            self._report(cleaned(log.topic_partition, ended.stats, ended.took_ms, policy))
        if ended.stats is not None and policy is None:
            self.figures.cleaned(ended.stats, ended.took_ms)
        if self._closed:
            if self._stopped is not None and not self._running:
                self._stopped()
        elif ended.stats is not None:
            self._scheduler.call_soon(self._look)  # there may be more

    def _failed(self, log: UnifiedLog, error: BaseException) -> None:
        """Mark the log as uncleanable until a restart, and report it."""
        if log.closed:
            return
        self._uncleanable = {each for each in self._uncleanable if not each.closed} | {log}
        text = f"{log.topic_partition} cannot be compacted and is left as it is until a restart: {error}"
        self._report(failure(text, partition=str(log.topic_partition)))

    def _delete_later(self, log: UnifiedLog, replaced: Sequence[LogSegment]) -> None:
        def delete() -> None:
            for segment in replaced:
                segment.delete()

        def done(outcome: Outcome[None]) -> None:
            if outcome.error is not None and not log.closed:
                self._report(f"{log.topic_partition}: compacted segments could not be removed: {outcome.error}")

        def due() -> None:
            if not self._closed and not log.closed:  # the next start deletes what remains
                self._scheduler.offload(delete, done)

        self._scheduler.call_later(log.config.file_delete_delay_ms, due)


class CleanerMetrics:
    """Owner thread only."""

    def __init__(self, now_ms: float) -> None:
        self.looked_ms = now_ms
        """Monotonic time of the last check of the logs."""
        self.dirtiest = 0.0
        """The dirty share of the dirtiest log, of 1, as of then."""
        self.overdue_ms = 0
        """The longest time since a message should have been compacted, as of then."""
        self.took_ms = 0.0
        """Duration of the last cleaning, which the next two describe as well."""
        self.recopied = 0.0
        """Bytes written of those read."""
        self.map_utilization = 0.0
        self.bytes_read = self.bytes_removed = 0
        """Totals of all cleanings."""

    def looked(self, logs: list[LogToClean], now_ms: float) -> None:
        self.looked_ms = now_ms
        self.dirtiest = max((each.ratio for each in logs), default=0.0)
        self.overdue_ms = max((each.overdue_ms for each in logs if each.cleanable_bytes), default=0)

    def cleaned(self, stats: CleanerStats, took_ms: float) -> None:
        self.took_ms = took_ms
        self.recopied = stats.bytes_written / stats.bytes_read if stats.bytes_read else 0.0
        self.map_utilization = stats.map_utilization
        self.bytes_read += stats.bytes_read
        self.bytes_removed += max(0, stats.bytes_read - stats.bytes_written)


def cleaned(partition: TopicPartition, stats: CleanerStats, took_ms: float, policy: str | None = None) -> Line:
    """Return the log line of a completed cleaning, or of a pass of the deletion policy `policy`."""
    gone = stats.messages_read - stats.messages_retained
    what = "is compacted" if policy is None else f"was looked at by deletion.policy={policy}"
    text = (
        f"{partition} {what} below offset {stats.next_dirty}: {gone} of {counted(stats.messages_read, 'message')} went"
    )
    text += f", {in_units(stats.bytes_read)} became {in_units(stats.bytes_written)} in {took_ms / 1000:.1f} s"
    return info(
        text,
        partition=str(partition),
        next_dirty=stats.next_dirty,
        messages_read=stats.messages_read,
        messages_kept=stats.messages_retained,
        bytes_read=stats.bytes_read,
        bytes_written=stats.bytes_written,
        took_ms=round(took_ms),
    )
