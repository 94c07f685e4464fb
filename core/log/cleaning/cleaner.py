"""Compacts logs in the background: the dirtiest first, a little at a time (facts B5)."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import evolve

from ....ports.clock import Clock
from ....ports.entropy import Entropy
from ....ports.report import error as failure
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.storage import StorageError
from ....ports.words import Offset, TopicPartition
from ...message.codec import Codecs
from ..data_folder import DataFolder
from ..format import LogSegment
from ..formats import BATCHES
from ..log import Log
from ..retention import RecordPolicy
from . import telling
from .choice import Dirt, look_at
from .cleaning import Cleaning
from .figures import CleanerFigures
from .order import CleanerSettings
from .pace import CleaningPace
from .passes import PolicyPasses
from .placing import order_for
from .run import CleaningRun, Ended

DecidedTo = Callable[[TopicPartition], "Offset | None"]


class LogCleaner:
    """Owner thread only. `start` begins, `stop` ends it.

    homes:      where each log lies.
    decided_to: the offset from which on messages of a partition may still turn out not to count; None: nobody knows,
                and the log is left alone.
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
        """`served` counts what others have asked for: a cleaning gives way to them."""
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
        self._uncleanable: set[Log] = set()
        self._passes = PolicyPasses()
        self.figures = CleanerFigures(clock.monotonic_ms())
        self._timer: Timer | None = None
        self._stopped: Callable[[], None] | None = None
        self._closed = False

    def start(self) -> None:
        """Look at the logs, now and then."""
        self._wait()

    def stop(self, done: Callable[[], None]) -> None:
        """Give up what is under way, and call `done` when no worker is at it any more; the logs stay open."""
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
        """Begin to clean the dirtiest logs, as many as may be cleaned side by side."""
        self._wait()
        threads = self._settings().threads
        dirt = sorted(filter(lambda each: each.due, self._dirt()), key=lambda each: each.ratio, reverse=True)
        for each in dirt:
            if len(self._running) < threads:
                self._begin(each)
        for each, policy in self._passes_due():
            if len(self._running) < threads and each.log.topic_partition not in self._running:
                self._passes.begun(each.log, policy, self._clock.monotonic_ms())
                self._begin(each, policy)

    def _idle(self) -> Iterator[tuple[Log, DataFolder, Offset]]:
        """The logs that could be cleaned, with what is decided in them."""
        for partition, home in list(self._homes.items()):
            log = home.logs.get(partition)
            if log is None or log.format_name != BATCHES or partition in self._running or partition in self._held:
                continue
            if log in self._uncleanable or log.failure is not None or len(log.segments) == 1:
                continue
            decided_to = self._decided_to(partition)
            if decided_to is not None:
                yield log, home, decided_to

    def _passes_due(self) -> list[tuple[Dirt, RecordPolicy]]:
        """Everything that is sealed and decided, where a deletion policy is to look at each message."""
        found = []
        for log, _, decided_to in self._idle():
            policy = self._passes.due(log, self._clock.monotonic_ms())
            if policy is not None:
                dirt = self._look_at(log, log.log_start_offset, decided_to)
                if dirt is not None and dirt.upto > log.log_start_offset:
                    found.append((evolve(dirt, first_dirty=dirt.upto), policy))
        return found

    def _look_at(self, log: Log, cleaned_to: Offset, decided_to: Offset) -> Dirt | None:
        try:
            return look_at(log, cleaned_to, decided_to, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # told; the others go on
            self._failed(log, error)
            return None

    def _dirt(self) -> list[Dirt]:
        found = []
        for log, home, decided_to in self._idle():
            if log.config.compacted:
                cleaned_to = Offset(min(home.cleaned_to.get(log.topic_partition, 0), log.swaps.cut_to))
                dirt = self._look_at(log, cleaned_to, decided_to)
                if dirt is not None:
                    found.append(dirt)
        self.figures.looked(found, self._clock.monotonic_ms())
        return found

    def hold(self, partition: TopicPartition) -> bool:
        """Leave this log alone until `release`; False while it is being cleaned."""
        if partition in self._running:
            return False
        self._held.add(partition)
        return True

    def release(self, log: Log, *, repaired: bool) -> None:
        """Clean this log again; `repaired`: also if its damage has kept it from being cleaned."""
        self._held.discard(log.topic_partition)
        if repaired:
            self._uncleanable.discard(log)

    def uncleanable_in(self, home: DataFolder) -> list[Log]:
        """The logs of a data folder that are left as they are."""
        return [log for log in home.logs.values() if log in self._uncleanable]

    def _begin(self, dirt: Dirt, policy: RecordPolicy | None = None) -> None:
        partition = dirt.log.topic_partition
        home = self._homes[partition]
        try:
            order = order_for(
                dirt,
                self._settings(),
                now_ms=self._clock.now_ms(),
                codecs=self._codecs,
                secret=self._entropy.token(32),
                policy=policy,
            )
        except StorageError as error:
            self._failed(dirt.log, error)
            return
        cleaning = Cleaning(order)
        run = CleaningRun(
            dirt.log,
            cleaning,
            home=home,
            scheduler=self._scheduler,
            clock=self._clock,
            pace=CleaningPace(self._clock, self._rate, self._served),
            replaced=lambda segments: self._delete_later(dirt.log, segments),
            ended=lambda run, ended: self._ended(run, cleaning, ended),
        )
        self._running[partition] = run
        run.begin()

    def _rate(self) -> float:
        """Of one cleaning."""
        settings = self._settings()
        return settings.io_max_bytes_per_second / max(1, settings.threads)

    def _ended(self, run: CleaningRun, cleaning: Cleaning, ended: Ended) -> None:
        log = run.log
        del self._running[log.topic_partition]
        policy = None if cleaning.order.policy is None else cleaning.order.config.deletion_policy
        if ended.error is not None and policy is None:
            self._failed(log, ended.error)
        elif ended.error is not None:
            text = f"deletion.policy={policy} could not look at all messages of {log.topic_partition}: {ended.error}"
            self._report(failure(text, partition=str(log.topic_partition)))
        elif ended.stats is not None and (policy is None or ended.stats.messages_kept < ended.stats.messages_read):
            self._report(telling.cleaned(log.topic_partition, ended.stats, ended.took_ms, policy))
        if ended.stats is not None and policy is None:
            self.figures.cleaned(ended.stats, ended.took_ms)
        if self._closed:
            if self._stopped is not None and not self._running:
                self._stopped()
        elif ended.stats is not None:
            self._scheduler.call_soon(self._look)  # there may be more

    def _failed(self, log: Log, error: BaseException) -> None:
        """The log is left alone until a restart."""
        if log.closed:
            return
        self._uncleanable = {each for each in self._uncleanable if not each.closed} | {log}
        text = f"{log.topic_partition} cannot be compacted and is left as it is until a restart: {error}"
        self._report(failure(text, partition=str(log.topic_partition)))

    def _delete_later(self, log: Log, replaced: Sequence[LogSegment]) -> None:
        def delete() -> None:
            for segment in replaced:
                segment.delete()

        def done(outcome: Outcome[None]) -> None:
            if outcome.error is not None and not log.closed:
                self._report(f"{log.topic_partition}: compacted segments could not be removed: {outcome.error}")

        def due() -> None:
            if not self._closed and not log.closed:  # what is left over goes at the next start
                self._scheduler.offload(delete, done)

        self._scheduler.call_later(log.config.file_delete_delay_ms, due)
