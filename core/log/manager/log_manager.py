"""All logs of a broker: their data folders, recovery, and background work (facts B3; Kafka: LogManager)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from attrs import evolve

from ....ports.clock import Clock
from ....ports.entropy import Entropy
from ....ports.errors import BarnabasError, ClosedError, ConfigError
from ....ports.report import counted, info
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.storage import LogDir, StorageError
from ....ports.types import TopicPartition
from ...cluster.topics import LifeNote
from ...message.codec import Codecs
from ...traffic.steps import StepRunner, Steps
from ..checkpoints import HIGH_WATERMARK, format_offsets
from ..config import LONG_MAX, LogConfig
from ..log_format import LogSegment
from ..names import DELETE_FOLDER_SUFFIX, STRAY_FOLDER_SUFFIX, transient_folder_name
from ..partition_log.unified_log import UnifiedLog
from ..retention import DeletionPolicy
from . import log_lines
from .creation import LogCreation, LogOpening
from .data_folder import DataFolder, report_missing_folders
from .folder_ownership import FolderOwnership, OrphanFolder

RETENTION_CHECK_MS = 300_000
FLUSH_CHECK_MS = 1_000
CHECKPOINT_MS = 60_000
HIGH_WATERMARK_CHECKPOINT_MS = 5_000
PRODUCER_EXPIRATION_MS = 86_400_000
PRODUCER_CHECK_MS = 600_000


# The periodic retention of all logs, and the delayed removal of old segments (facts B3).


class RetentionTask:
    """Looks at one log after the other, in short steps, since a broker may have thousands. Owner thread only.

    `closed` returns True after a stop. `on_begin` and `on_end` are called for each pass over a data folder: the files
    of its logs are in use meanwhile.
    """

    def __init__(
        self,
        folders: Sequence[DataFolder],
        *,
        clock: Clock,
        scheduler: Scheduler,
        policy_for: Callable[[LogConfig, TopicPartition], DeletionPolicy],
        report: Callable[[str], None],
        closed: Callable[[], bool],
        on_begin: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._folders = {home: StepRunner(scheduler, clock, self._failed) for home in folders}
        """With runners of their own, since a disk may hang."""
        self._clock = clock
        self._scheduler = scheduler
        self._policy_for = policy_for
        self._report = report
        self._closed = closed
        self._on_begin = on_begin
        self._on_end = on_end
        self._running: set[DataFolder] = set()

    def retain(
        self,
        high_watermark_of: Callable[[TopicPartition], int | None] | None,
        awaits_producers: Callable[[TopicPartition], bool],
    ) -> None:
        """Delete the old segments of every log, below its high watermark where that is known; no folder has two passes
        at a time. `awaits_producers`: see `LogManager`."""
        for home, runner in self._folders.items():
            if home in self._running:
                continue
            self._running.add(home)
            self._on_begin()
            runner.run(self._pass(home, high_watermark_of, awaits_producers), partial(self._passed, home))

    def _passed(self, home: DataFolder, outcome: Outcome[None]) -> None:
        self._running.discard(home)
        try:
            if outcome.error is not None:
                self._failed(outcome.error)
        finally:
            self._on_end()

    def _failed(self, error: BaseException) -> None:
        self._report(f"retention failed: {error!r}")

    def _pass(
        self,
        home: DataFolder,
        high_watermark_of: Callable[[TopicPartition], int | None] | None,
        awaits_producers: Callable[[TopicPartition], bool],
    ) -> Steps[None]:
        gone: dict[TopicPartition, Sequence[LogSegment]] = {}
        for partition in list(home.logs):
            log = home.logs.get(partition)
            if self._closed():
                break
            if log is None:
                continue
            known = high_watermark_of(partition) if high_watermark_of is not None else None
            try:
                if log.policy_name != log.config.deletion_policy:
                    log.update_config(log.config, self._policy_for(log.config, partition))
                limit = known if known is not None else log.readable_end
                awaits = bool(log.hidden_producers_at) and awaits_producers(partition)
                removed = yield from log.retain(self._clock.now_ms(), limit, awaits_producers=awaits)
            except (StorageError, ConfigError) as error:
                home.checked(f"retention of {partition}", error)
                if log.failure is not None and isinstance(error, StorageError):
                    home.fail(error)
                continue
            if removed:
                gone[partition] = removed
                self._delete_later(home, partition, removed, log.config.file_delete_delay_ms)
            yield None
        for line in log_lines.retention(gone):
            self._report(line)

    def _delete_later(
        self, home: DataFolder, partition: TopicPartition, removed: Sequence[LogSegment], delay_ms: int
    ) -> None:
        def delete() -> None:
            for segment in removed:
                segment.delete()

        def done(outcome: Outcome[None]) -> None:
            if outcome.error is not None and partition in home.logs:
                self._report(f"{partition}: old segments could not be removed: {outcome.error}")

        def due() -> None:
            if not self._closed():  # the next start removes what remains
                self._scheduler.offload(delete, done)

        self._scheduler.call_later(delay_ms, due)


class LogManager:
    """Owner thread only. `load` first, then `start`; `stop` or `close` ends it.

    `high_watermark_of` (settable) returns the offset below which retention may delete segments of a partition, None if
    it is unknown; without it that is the readable end. `awaits_producers` (settable) returns True while damage hides
    producers of a partition, and a repair may bring them back.
    """

    def __init__(
        self,
        dirs: Sequence[LogDir],
        *,
        clock: Clock,
        scheduler: Scheduler,
        config_for: Callable[[str], LogConfig],
        codecs: Codecs,
        policy_for: Callable[[LogConfig, TopicPartition], DeletionPolicy],
        report: Callable[[str], None],
        entropy: Entropy | None = None,
        topic_id_of: Callable[[TopicPartition], bytes | None] | None = None,
        may_end_early: bool = False,
        deleted_ids: Collection[bytes] = (),
        retention_check_ms: int = RETENTION_CHECK_MS,
        flush_check_ms: int = FLUSH_CHECK_MS,
        checkpoint_ms: int = CHECKPOINT_MS,
        high_watermark_checkpoint_ms: int = HIGH_WATERMARK_CHECKPOINT_MS,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        producer_check_ms: int = PRODUCER_CHECK_MS,
        flush_took: Callable[[float], None] | None = None,
        is_cordoned: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        """`config_for` returns the configuration of a topic, `topic_id_of` the topic id of a partition, None for an
        unknown partition, whose folder is not opened then. `is_cordoned` returns True for the path of a data folder
        that gets no new logs. Producers idle for `producer_expiration_ms` expire. `may_end_early`: see
        `UnifiedLog.open`. `flush_took` receives the duration of each flush in ms. Raises `ConfigError` without any
        folder."""
        if not dirs:
            raise ConfigError("log.dirs names no folder")
        self.dirs = tuple(dirs)
        self.high_watermark_of: Callable[[TopicPartition], int | None] | None = None
        self.awaits_producers: Callable[[TopicPartition], bool] = lambda _: False
        self._when_flushed: list[Callable[[UnifiedLog], None]] = []
        self._clock = clock
        self._scheduler = scheduler
        self._config_for = config_for
        self._codecs = codecs
        self._policy_for = policy_for
        self._report = report
        self._is_cordoned = is_cordoned
        self._entropy = entropy
        self._may_end_early, self._has_losses = may_end_early, False
        self._has_noted_life = False
        """True once this run has noted a broker epoch of its own."""
        self._producer_expiration_ms = producer_expiration_ms
        self._periods = (
            (retention_check_ms, self.retain),
            (flush_check_ms, self._flush_by_time),
            (checkpoint_ms, self.checkpoint),
            (high_watermark_checkpoint_ms, self._checkpoint_high_watermarks),
            (producer_check_ms, self.expire_producers),
        )
        self.folders = [DataFolder(log_dir, report) for log_dir in dirs]
        self.homes: dict[TopicPartition, DataFolder] = {}
        self._retaining = RetentionTask(
            self.folders,
            clock=clock,
            scheduler=scheduler,
            policy_for=policy_for,
            report=report,
            closed=lambda: self._closed,
            on_begin=self._began,
            on_end=self._ended,
        )
        self._flush_took = flush_took
        self._unopened: dict[TopicPartition, DataFolder] = {}
        self._unrenamed: dict[TopicPartition, tuple[DataFolder, str | None]] = {}
        """Closed logs whose folders could not be renamed. Those with a cause are stray, the others deleted."""
        self._ownership = FolderOwnership(scheduler, topic_id_of, report, deleted_ids)
        self._under_way = 0
        """Number of flushes, creations and passes of retention that are not complete."""
        self._when_idle: Callable[[], None] | None = None
        self._timers: dict[int, Timer] = {}
        self._deleted = 0
        self._closed = False

    # --- lookup

    def get(self, partition: TopicPartition) -> UnifiedLog | None:
        home = self.homes.get(partition)
        return home.logs.get(partition) if home is not None else None

    def is_unopened(self, partition: TopicPartition) -> bool:
        """Return True if there is a log that could not be opened; `create` tries again."""
        return partition in self._unopened

    def orphans_of(self, topic: str) -> list[str]:
        """Return the folders of partitions of this name that belong to no known topic (see `FolderOwnership`)."""
        return self._ownership.orphans_of(topic)

    @property
    def orphans(self) -> Mapping[TopicPartition, OrphanFolder]:
        """Return the folders of partitions that were unknown at the start."""
        return self._ownership.orphans

    def is_labelled(self, partition: TopicPartition) -> bool:
        """Return True if the folder of an open log had a readable partition.metadata when the log was opened."""
        return partition in self.homes and partition not in self._ownership.unlabelled

    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """Return all open logs."""
        return {partition: log for folder in self.folders for partition, log in folder.logs.items()}

    @property
    def codecs(self) -> Codecs:
        """Return the compression codecs of the logs."""
        return self._codecs

    def dir_of(self, partition: TopicPartition) -> LogDir:
        """Return the data folder of an open log."""
        return self.homes[partition].log_dir

    def failure_of(self, log_dir: LogDir) -> StorageError | None:
        """Return the error for which a data folder is out of use, or None."""
        return next(folder.failure for folder in self.folders if folder.log_dir is log_dir)

    def high_watermark(self, partition: TopicPartition) -> int:
        """Return the high watermark of the last checkpoint before the start, 0 when unknown."""
        home = self.homes.get(partition)
        return home.high_watermarks.get(partition, 0) if home is not None else 0

    @property
    def had_clean_shutdown(self) -> bool:
        """Return True if the previous broker closed every log, and all of them were opened without a loss."""
        in_order = all(folder.clean and folder.failure is None for folder in self.folders)
        return in_order and not self._unopened and not self._has_losses

    # --- broker epochs

    def note_life(self, note: LifeNote) -> None:
        """Record a new broker epoch, or its outcome, in all data folders; durable on return. Any thread.

        Raises `StorageError` when no folder can be written.
        """
        self._note(lambda folder: folder.note_life(note, len(self.folders)))
        self._has_noted_life = True

    def note_distrusted(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Record in all data folders which partitions are not trusted yet (None: all); see `note_life`."""
        self._note(lambda folder: folder.note_distrusted(partitions))

    def _note(self, note: Callable[[DataFolder], None]) -> None:
        errors: list[StorageError] = []
        for folder in self.folders:
            try:
                note(folder)
            except StorageError as error:
                errors.append(error)
        if len(errors) == len(self.folders):
            raise errors[0]

    def has_complete_log(self, partition: TopicPartition, epoch: int) -> bool:
        """Return False if the log of a partition certainly lacks something that this broker had in that epoch.

        Its folder is newer, or an older copy; or it replaced a missing one since then; or it ended below the recovery
        point or the high watermark when it was opened, or was damaged where no snapshot of the producers reaches.
        """
        home = self.homes.get(partition)
        if home is None:
            return False
        incomplete_until = self._ownership.incomplete_until.get(partition)
        return home.broker_epochs.includes(epoch) and (incomplete_until is None or epoch > incomplete_until)

    # --- start

    def load(self) -> None:
        """Open every log; recover those without a clean shutdown.

        A folder or log that cannot be read is reported and left out; the others work. Raises `StorageError` when no
        data folder can be used.
        """
        for folder in self.folders:
            try:
                self._load(folder)
            except StorageError as error:
                folder.failure = error
                self._report(f"{folder.log_dir.path} cannot be used: {error}")
        if all(folder.failure is not None for folder in self.folders):
            raise StorageError(f"no data folder can be used: {self.folders[0].failure}")
        self._has_losses |= report_missing_folders(self.folders)
        latest = max(folder.broker_epochs.latest for folder in self.folders)
        for folder in self.folders:
            if folder.broker_epochs.latest < latest:  # it was out of use since: its distrusted partitions are obsolete
                folder.broker_epochs = evolve(folder.broker_epochs, distrusted=frozenset())

    def _load(self, folder: DataFolder) -> None:
        partitions, removable = folder.load_checkpoints()
        if not folder.clean and partitions:
            self._report(f"{folder.log_dir.path}: no clean shutdown; recovering {counted(len(partitions), 'log')}")
        for partition in partitions:
            if partition in self.homes:
                other = self.homes[partition].log_dir.path
                self._report(f"{folder.log_dir.path}: {partition} is in {other} as well; this one is ignored")
                continue
            try:
                if self._ownership.may_open(folder, partition, self._unique):
                    log = self._adopt(self._opening(folder, partition, recover=not folder.clean))
                    lost = folder.report_losses(log)
                    self._has_losses |= lost
                    is_short = log.log_end_offset < folder.high_watermarks.get(partition, 0)
                    if lost or is_short or log.hidden_producers_at:
                        self._ownership.note_incomplete_log(folder, partition)
                    if not log.log_end_offset:
                        self._ownership.note_empty_log(folder, partition)
            except StorageError as error:
                self._unopened[partition] = folder
                folder.incomplete = True
                self._report(f"{folder.log_dir.path}: {partition} cannot be opened: {error}")
        if folder.has_obsolete_lines or (not folder.clean and (partitions or removable)):
            folder.write_loaded_checkpoints()
        if not folder.clean and partitions:
            self._report(info(f"{folder.log_dir.path}: {counted(len(folder.logs), 'log is', 'logs are')} recovered"))
        for home, name in (*((folder, name) for name in removable), *self._ownership.removable):
            home.remove_later(self._scheduler, name, None)
        self._ownership.removable.clear()

    def _opening(self, folder: DataFolder, partition: TopicPartition, *, recover: bool) -> LogOpening:
        config = self._config_for(partition.topic)
        return LogOpening(
            home=folder,
            partition=partition,
            config=config,
            policy=self._policy_for(config, partition),
            codecs=self._codecs,
            entropy=self._entropy,
            report=self._report,
            now_ms=self._clock.now_ms(),
            recover=recover,
            recovery_point=folder.recovery_point(partition),
            log_start=folder.log_start(partition),
            sealed=folder.sealed(partition),
            may_end_early=self._may_end_early,
            is_retried=partition in self._unopened,
        )

    def _adopt(self, opening: LogOpening, log: UnifiedLog | None = None) -> UnifiedLog:
        """Add a log, and open it now unless it is open. Raises `StorageError`."""
        log = log or opening.open()
        log.producers.expire(self._clock.now_ms() - self._producer_expiration_ms)
        log.rolled = self._rolled
        opening.home.logs[opening.partition] = log
        self.homes[opening.partition] = opening.home
        self._unopened.pop(opening.partition, None)
        return log

    def start(self) -> None:
        """Start the periodic work."""
        self._ownership.write_unflushed_metadata()
        self._ownership.write_missing_metadata(self._is_in_use)
        for number in range(len(self._periods)):
            self._repeat(number)

    def _is_in_use(self, partition: TopicPartition) -> bool:
        return partition in self.homes and not self._closed

    def _repeat(self, number: int) -> None:
        period_ms, work = self._periods[number]

        def run() -> None:
            self._repeat(number)
            work()

        self._timers[number] = self._scheduler.call_later(period_ms, run)

    # --- creation and deletion

    def create(self, partition: TopicPartition, *, is_new: bool = True) -> UnifiedLog:
        """Create a log now, in the data folder with the fewest that is not cordoned. An existing one is returned.

        Without `is_new` it is refused while a data folder is out of use, which may contain the log. Raises
        `StorageError`.
        """
        existing = self.get(partition)
        if existing is not None:
            return existing
        was_there = partition in self._unopened
        folder = self._place_for(partition, {}, is_new=is_new)
        opening = self._opening(folder, partition, recover=True)  # recovers nothing unless the folder exists
        if not is_new and not was_there:  # its folder is missing
            opening = evolve(opening, recovery_point=max(each.recovery_point(partition) for each in self.folders))
        log = self._adopt(opening)
        if not was_there:
            latest = max(each.broker_epochs.latest for each in self.folders)
            was_lost = not is_new and latest >= 0 and not self._was_never_made(partition)
            self._ownership.note_created_log(folder, partition, latest if was_lost else None)
            root = folder.log_dir.root
            self._scheduler.offload(root.flush, lambda outcome: folder.checked("flushing the folder", outcome.error))
        return log

    def _was_never_made(self, partition: TopicPartition) -> bool:
        """Return True if a missing log did not exist in the previous broker epoch either: the broker was killed before
        it opened the log of a new topic.

        A folder is durable before its log is used, so one that is in no checkpoint was never created, unless it was in
        a data folder that is missing, or replaced: those in use together have the same broker epochs.
        """
        first = self.folders[0].broker_epochs
        return first.folder_count == len(self.folders) and all(
            (each.broker_epochs.epochs, each.broker_epochs.folder_count) == (first.epochs, first.folder_count)
            and each.failure is None
            and not each.is_checkpointed(partition)
            for each in self.folders
        )

    def begin_create(
        self, partitions: Mapping[TopicPartition, bytes | None], *, not_new: Collection[TopicPartition] = ()
    ) -> LogCreation:
        """Prepare the creation of several partitions (with their topic ids), which runs on another thread.

        Those that are `not_new` may have had a log here: they are refused while a data folder is out of use, which may
        contain it. Follow with `complete_create`, also on failure. Partitions refused here are among its errors
        already.
        """
        if self._closed:
            raise ClosedError("the logs are being closed")
        openings: list[tuple[LogOpening, bytes | None]] = []
        errors: dict[TopicPartition, BarnabasError] = {}
        planned: dict[int, int] = {}
        for partition, topic_id in partitions.items():
            try:
                folder = self._place_for(partition, planned, is_new=partition not in not_new)
                openings.append((self._opening(folder, partition, recover=True), topic_id))
            except StorageError as error:
                errors[partition] = error
                continue
            planned[id(folder)] = planned.get(id(folder), 0) + 1
        creation = LogCreation(openings)
        creation.errors.update(errors)
        self._under_way += 1
        return creation

    def complete_create(self, creation: LogCreation) -> Mapping[TopicPartition, BarnabasError]:
        """Add the created logs; return the errors of the others."""
        for opening, _ in creation.openings:
            log = creation.logs.get(opening.partition)
            if log is not None:
                self._adopt(opening, log)
            else:
                opening.home.new_topic_ids.pop(opening.partition, None)
            opening.home.checked(f"creating {opening.partition}", creation.errors.get(opening.partition))
        created = [
            (opening.home, opening.partition) for opening, _ in creation.openings if opening.partition in creation.logs
        ]
        self._ownership.note_created_logs(created, self._is_in_use)
        self._ended()
        return creation.errors

    def _place_for(self, partition: TopicPartition, planned: Mapping[int, int], *, is_new: bool) -> DataFolder:
        """`planned`: number of planned logs by folder, in addition to its logs. Raises `StorageError`."""
        if partition in self._unrenamed:  # of an earlier topic of this name, whose messages are not those of this one
            cause = self._unrenamed[partition][1]
            self.delete(partition) if cause is None else self.rename_to_stray(partition, cause)
        broken = self._unopened.get(partition)
        if broken is not None:
            return broken
        failed = next((folder for folder in self.folders if folder.failure is not None), None)
        if failed is not None and not is_new:
            raise StorageError(
                f"{partition} may be in the offline log directory {failed.log_dir.path}: {failed.failure}"
            )
        if is_new:
            for folder in self.folders:
                folder.forget(partition)
        usable = [folder for folder in self.folders if folder.failure is None]
        if not usable:
            raise StorageError(f"no data folder can be used: {self.folders[0].failure}")
        # One may have been cordoned after the broker got the replica: then any folder is better than none.
        open_ones = [folder for folder in usable if not self._is_cordoned(folder.log_dir.path)]
        return min(open_ones or usable, key=lambda folder: len(folder.logs) + planned.get(id(folder), 0))

    def _began(self) -> None:
        self._under_way += 1

    def _ended(self) -> None:
        self._under_way -= 1
        callback = self._when_idle
        if not self._under_way and callback is not None:
            self._when_idle = None
            callback()

    def delete(self, partition: TopicPartition) -> None:
        """Close a log and delete it: the folder is renamed now, files are removed later. Unknown ones are no error.

        Raises `StorageError` when the folder cannot be renamed; the log is closed nevertheless.
        """
        moved = self._detach_log(partition, DELETE_FOLDER_SUFFIX)
        if moved is not None:
            home, name = moved
            home.remove_later(self._scheduler, name, partial(self._high_watermarks, home))

    def flush_folder_names(self) -> None:
        """Make durable which logs were deleted: their folders would be back after a power cut. Any thread.

        Raises `StorageError`; folders that are out of use are left out.
        """
        for folder in self.folders:
            if folder.failure is None:
                folder.log_dir.root.flush()

    def rename_to_stray(self, partition: TopicPartition, cause: str) -> None:
        """Close the log of a stray replica and rename its folder to *-stray, which stays until an administrator deletes
        it. `cause`: why it is stray. Unknown ones are no error.

        Raises as `delete` does.
        """
        self._report_stray(partition, self._detach_log(partition, STRAY_FOLDER_SUFFIX, cause), cause)

    def rename_orphan_to_stray(self, partition: TopicPartition, cause: str) -> None:
        """Rename a folder of `orphans` as `rename_to_stray` does. Raises `StorageError`; it is an orphan still then."""
        self._report_stray(partition, self._ownership.rename_orphan(partition, self._unique()), cause)

    def _report_stray(self, partition: TopicPartition, moved: tuple[DataFolder, str] | None, cause: str) -> None:
        if moved is not None:
            folder, name = moved
            folder.write_checkpoints_later(self._scheduler, partial(self._high_watermarks, folder))
            path = folder.log_dir.path
            self._report(
                f"found stray log dir {path}/{partition}: {cause}; marked stray and renamed to {path}/{name}, which"
                " can be deleted when nothing in it is needed"
            )

    def _detach_log(
        self, partition: TopicPartition, suffix: str, cause: str | None = None
    ) -> tuple[DataFolder, str] | None:
        """Close the log and rename its folder; return the new place. None for an unknown partition."""
        unrenamed, _ = self._unrenamed.get(partition, (None, None))
        folder = self.homes.pop(partition, None) or self._unopened.pop(partition, None) or unrenamed
        self._ownership.forget(partition)
        if folder is None:
            return None
        log = folder.logs.pop(partition, None)
        if log is not None:
            log.abandon()
        folder.forget(partition)
        name = transient_folder_name(partition, self._unique(), suffix)
        self._unrenamed[partition] = folder, cause
        folder.log_dir.rename_folder(str(partition), name)
        del self._unrenamed[partition]
        return folder, name

    def _unique(self) -> str:
        if self._entropy is not None:
            return self._entropy.token(16).hex()
        self._deleted += 1
        return f"{self._clock.now_ms():016x}{self._deleted:016x}"

    # --- flush

    def add_flush_listener(self, on_flushed: Callable[[UnifiedLog], None]) -> None:
        """Call `on_flushed` after each flush of a log: its recovery point has moved, or it has a `failure`."""
        self._when_flushed.append(on_flushed)

    def flush_if_due(self, log: UnifiedLog, now_ms: int) -> bool:
        """Return True if `flush.messages` or `flush.ms` requires a flush of the log; it is then in progress, or follows
        the one that is. `add_flush_listener` reports the new recovery point."""
        if not log.flushes.due(now_ms):
            return False
        self.flush(log)
        return True

    def flush(self, log: UnifiedLog, *, sealed_only: bool = False) -> None:
        """Make a log durable in the background; does nothing without unflushed records or while a flush is running."""
        if log.closed or self._closed:
            return
        work = log.flushes.begin_flush(self._clock.now_ms(), sealed_only=sealed_only)
        if work is None:
            return
        self._under_way += 1
        home = self.homes.get(log.topic_partition)
        began_ms = self._clock.monotonic_ms()

        def done(outcome: Outcome[None]) -> None:
            if self._flush_took is not None:
                self._flush_took(self._clock.monotonic_ms() - began_ms)
            try:
                flushed(outcome)
            finally:
                self._ended()

        def flushed(outcome: Outcome[None]) -> None:
            error = outcome.error
            if log.closed:
                return
            if error is not None and not isinstance(error, StorageError):
                error = StorageError(f"flushing {log.topic_partition} failed: {error!r}")
            log.flushes.end_flush(work, error)
            if home is not None:
                home.checked(f"flushing {log.topic_partition}", error)
                if log.failure is not None and isinstance(error, StorageError):
                    home.fail(error)
            for on_flushed in self._when_flushed:
                on_flushed(log)
            if error is None:
                if log.recovery_point < log.segments[-1].base_offset:
                    self.flush(log, sealed_only=True)  # it rolled meanwhile
                self.flush_if_due(log, self._clock.now_ms())

        self._scheduler.offload(work, done)

    def _rolled(self, log: UnifiedLog) -> None:
        self.flush(log, sealed_only=True)

    def _flush_by_time(self) -> None:
        """Flush the logs that are due, by `flush.messages` too: a flush without disk space is tried again."""
        now_ms = self._clock.now_ms()
        for log in self.logs().values():
            if log.config.flush_ms != LONG_MAX or log.config.flush_messages != LONG_MAX:
                self.flush_if_due(log, now_ms)

    # --- periodic work

    def retain(self) -> None:
        """Delete the old segments of every log."""
        self._retaining.retain(self.high_watermark_of, self.awaits_producers)

    def expire_producers(self) -> None:
        """Expire the idle idempotent producers of every log."""
        before_ms = self._clock.now_ms() - self._producer_expiration_ms
        for log in self.logs().values():
            log.producers.expire(before_ms)

    # --- checkpoints

    def checkpoint(self) -> None:
        """Write the offsets of every data folder, in the background."""
        for folder in self.folders:
            folder.write_files_later(self._scheduler, "offsets", folder.checkpoint_contents)

    def checkpoint_of(self, log: UnifiedLog, then: Callable[[], None]) -> None:
        """Make the truncation of a log durable: write the checkpoints of its data folder, then flush the truncated
        segment.

        Otherwise a power cut could restore truncated records below a high watermark that counts later ones. `then` is
        called at the end, also after a failure; not if the log is deleted.
        """
        home = self.homes.get(log.topic_partition)
        if home is None or self._closed:
            return
        contents = lambda: {**home.checkpoint_contents(), **self._high_watermarks(home)}  # noqa: E731

        def noted() -> None:
            if self._closed or log.closed:
                return
            self._under_way += 1
            self._scheduler.offload(log.segments[-1].file.flush, flushed)

        def flushed(outcome: Outcome[None]) -> None:
            error = outcome.error
            try:
                if isinstance(error, StorageError) and not log.closed:
                    log.fail(error)
                    home.checked(f"flushing {log.topic_partition}, which was truncated,", error)
                    home.fail(error)
                then()
            finally:
                self._ended()

        home.write_files_later(self._scheduler, "offsets", contents, noted)

    def _checkpoint_high_watermarks(self) -> None:
        for folder in self.folders:
            if self.high_watermark_of is not None:
                folder.write_files_later(self._scheduler, HIGH_WATERMARK, partial(self._high_watermarks, folder))

    def _high_watermarks(self, folder: DataFolder) -> dict[str, bytes]:
        """Return the high-watermark checkpoint of a folder; nothing while the broker does not know them."""
        ask = self.high_watermark_of
        if ask is None:
            return {}
        known = {partition: mark for partition in folder.logs if (mark := ask(partition)) is not None}
        return {HIGH_WATERMARK: format_offsets(known)}

    # --- shutdown

    def stop(self, done: Callable[[], None]) -> None:
        """Shut down cleanly: flush all logs, write checkpoints and markers, release the folders; then call `done`.

        Workers close the logs concurrently, which must not be used any longer. Failures are reported, and the next
        start recovers the folder in question.
        """
        if self._closed:
            done()
            return
        self._end_periods()
        if self._under_way:
            self._when_idle = lambda: self._close_all(done)  # their outcome must be known first
        else:
            self._close_all(done)

    def _close_all(self, done: Callable[[], None]) -> None:
        def closed() -> None:
            self.homes.clear()
            done()

        close_all(self._scheduler, self.folders, self._clock.now_ms(), self._high_watermarks, closed)

    def close(self) -> None:
        """Close all logs now, one after the other, for a broker that could not start. A second call has no effect."""
        if self._closed:
            return
        self._end_periods()
        now_ms = self._clock.now_ms()
        for folder in self.folders:
            folder.close(now_ms, self._high_watermarks(folder))
        self.homes.clear()

    def _end_periods(self) -> None:
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        if self._may_end_early and not self._has_noted_life and not self.had_clean_shutdown:
            # The noted broker epoch is of an earlier run, which lost data: this orderly end must not count for it.
            for folder in self.folders:
                folder.incomplete = True


def close_all(
    scheduler: Scheduler,
    folders: Sequence[DataFolder],
    now_ms: int,
    also: Callable[[DataFolder], Mapping[str, bytes]],
    done: Callable[[], None],
) -> None:
    """Close all data folders with their logs; `done` is called when the last one is closed. See `_Closing`."""
    left = len(folders)

    def closed() -> None:
        nonlocal left
        left -= 1
        if not left:
            done()

    for folder in folders:
        _Closing(scheduler, folder, now_ms, partial(also, folder), closed).start()


class _Closing:
    """Closes the logs of a data folder on the workers, then the folder. Owner thread only; `done` is called once.

    The logs must have no other user. `also` returns further small files, called once after all logs are closed.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        folder: DataFolder,
        now_ms: int,
        also: Callable[[], Mapping[str, bytes]],
        done: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._folder = folder
        self._now_ms = now_ms
        self._also = also
        self._done = done
        self._open = len(folder.logs)

    def start(self) -> None:
        if not self._open:
            self._finish()
        for key, log in self._folder.logs.items():
            self._scheduler.offload(partial(log.close, self._now_ms), partial(self._closed, key))

    def _closed(self, partition: TopicPartition, outcome: Outcome[None]) -> None:
        self._folder.closed(partition, outcome.error)
        self._open -= 1
        if not self._open:
            self._finish()

    def _finish(self) -> None:
        also = self._also()

        def finished(outcome: Outcome[None]) -> None:
            try:
                outcome.get()
            finally:
                self._done()

        self._scheduler.offload(lambda: self._folder.finish(also), finished)
