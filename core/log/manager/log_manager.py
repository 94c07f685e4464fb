"""All logs of a broker: where they lie, their recovery, and what is done for them in the background (facts B3)."""

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
from ..checkpoints import HIGH_WATERMARK, format_offsets
from ..config import LONG_MAX, LogConfig
from ..names import DELETE_FOLDER_SUFFIX, STRAY_FOLDER_SUFFIX, transient_folder_name
from ..partition_log.unified_log import UnifiedLog
from ..retention import DeletionPolicy
from .creation import LogCreation, LogOpening
from .data_folder import DataFolder, report_missing_folders
from .folder_ownership import FolderOwnership
from .retention_task import RetentionTask

RETENTION_CHECK_MS = 300_000
FLUSH_CHECK_MS = 1_000
CHECKPOINT_MS = 60_000
HIGH_WATERMARK_CHECKPOINT_MS = 5_000
PRODUCER_EXPIRATION_MS = 86_400_000
PRODUCER_CHECK_MS = 600_000


class LogManager:
    """Owner thread only. `load` first, then `start`; `stop` or `close` ends it.

    `high_watermark_of` (settable) tells below which offset of a partition segments may be deleted, None where it is
    not known; without it that is the readable end.
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
    ) -> None:
        """`config_for` gives the configuration of a topic, `topic_id_of` the id of the topic that a partition is of,
        None where there is no such partition: folders of others are not opened then. Producers silent for
        `producer_expiration_ms` are forgotten. `may_end_early`: see `UnifiedLog.open`. `flush_took` receives the
        duration of each flush in ms. Raises `ConfigError` without any folder."""
        if not dirs:
            raise ConfigError("log.dirs names no folder")
        self.dirs = tuple(dirs)
        self.high_watermark_of: Callable[[TopicPartition], int | None] | None = None
        self._when_flushed: list[Callable[[UnifiedLog], None]] = []
        self._clock = clock
        self._scheduler = scheduler
        self._config_for = config_for
        self._codecs = codecs
        self._policy_for = policy_for
        self._report = report
        self._entropy = entropy
        self._may_end_early, self._has_losses = may_end_early, False
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
            self.homes,
            clock=clock,
            scheduler=scheduler,
            policy_for=policy_for,
            report=report,
            closed=lambda: self._closed,
        )
        self._flush_took = flush_took
        self._unopened: dict[TopicPartition, DataFolder] = {}
        self._ownership = FolderOwnership(scheduler, topic_id_of, report, deleted_ids)
        self._under_way = 0
        """Flushes and creations that run on other threads."""
        self._when_idle: Callable[[], None] | None = None
        self._timers: dict[int, Timer] = {}
        self._deleted = 0
        self._closed = False

    # --- finding

    def get(self, partition: TopicPartition) -> UnifiedLog | None:
        home = self.homes.get(partition)
        return home.logs.get(partition) if home is not None else None

    def is_unopened(self, partition: TopicPartition) -> bool:
        """True if there is a log that could not be opened; `create` tries again."""
        return partition in self._unopened

    def orphans_of(self, topic: str) -> list[str]:
        """Return the folders of partitions of this name that belong to no known topic (see `FolderOwnership`)."""
        return self._ownership.orphans_of(topic)

    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """All logs that are open."""
        return {partition: log for folder in self.folders for partition, log in folder.logs.items()}

    @property
    def codecs(self) -> Codecs:
        """What the logs are compressed with."""
        return self._codecs

    def dir_of(self, partition: TopicPartition) -> LogDir:
        """The data folder of a log that is open."""
        return self.homes[partition].log_dir

    def failure_of(self, log_dir: LogDir) -> StorageError | None:
        """Why a data folder is out of use."""
        return next(folder.failure for folder in self.folders if folder.log_dir is log_dir)

    def high_watermark(self, partition: TopicPartition) -> int:
        """As of the last checkpoint before the start, 0 when unknown."""
        home = self.homes.get(partition)
        return home.high_watermarks.get(partition, 0) if home is not None else 0

    @property
    def had_clean_shutdown(self) -> bool:
        """True if the broker before has closed every log, and all of them could be opened and have what they had."""
        in_order = all(folder.clean and folder.failure is None for folder in self.folders)
        return in_order and not self._unopened and not self._has_losses

    # --- the lives of the broker

    def note_life(self, note: LifeNote) -> None:
        """Note in all data folders that a life of the broker begins, or what came of it; durable on return. Any thread.

        Raises `StorageError` when no folder can be written.
        """
        self._note(lambda folder: folder.note_life(note, len(self.folders)))

    def note_distrusted(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Note in all data folders which partitions are left to be distrusted (None: all), as `note_life` does it."""
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
        """False if the log of a partition certainly lacks something that this broker had in that life.

        Its folder is newer, or a copy from before; or it was begun since in place of a missing one; or it ended below
        the recovery point or the high watermark when it was opened.
        """
        home = self.homes.get(partition)
        if home is None:
            return False
        incomplete_until = self._ownership.incomplete_until.get(partition)
        return home.broker_epochs.includes(epoch) and (incomplete_until is None or epoch > incomplete_until)

    # --- start

    def load(self) -> None:
        """Open every log that is there; recover those that no orderly stop has closed.

        A folder or log that cannot be read is reported and left out; the others work. Raises `StorageError` when not
        one data folder can be used.
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
            if folder.broker_epochs.latest < latest:  # it was away since: what was to be distrusted then is settled
                folder.broker_epochs = evolve(folder.broker_epochs, distrusted=frozenset())

    def _load(self, folder: DataFolder) -> None:
        partitions, removable = folder.begin()
        if not folder.clean and partitions:
            self._report(f"{folder.log_dir.path}: no orderly stop before; checking {counted(len(partitions), 'log')}")
        for partition in partitions:
            if partition in self.homes:
                other = self.homes[partition].log_dir.path
                self._report(f"{folder.log_dir.path}: {partition} is in {other} as well; this one is left alone")
                continue
            try:
                if self._ownership.may_open(folder, partition, self._unique):
                    log = self._adopt(self._opening(folder, partition, recover=not folder.clean))
                    lost = folder.report_losses(log)
                    self._has_losses |= lost
                    if lost or log.log_end_offset < folder.high_watermarks.get(partition, 0):
                        self._ownership.note_incomplete_log(folder, partition)
                    if not log.log_end_offset:
                        self._ownership.note_empty_log(folder, partition)
            except StorageError as error:
                self._unopened[partition] = folder
                folder.incomplete = True
                self._report(f"{folder.log_dir.path}: {partition} cannot be opened: {error}")
        if not folder.clean and (partitions or removable):
            folder.write(folder.checkpoint_contents())
        if not folder.clean and partitions:
            self._report(info(f"{folder.log_dir.path}: {counted(len(folder.logs), 'log is', 'logs are')} checked"))
        for home, name in (*((folder, name) for name in removable), *self._ownership.removable):
            home.remove_later(self._scheduler, name, after_checkpoints=False)
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
        )

    def _adopt(self, opening: LogOpening, log: UnifiedLog | None = None) -> UnifiedLog:
        """Take over a log, opened here and now unless it has been. Raises `StorageError`."""
        log = log or opening.open()
        log.producers.expire(self._clock.now_ms() - self._producer_expiration_ms)
        log.rolled = self._rolled
        opening.home.logs[opening.partition] = log
        self.homes[opening.partition] = opening.home
        self._unopened.pop(opening.partition, None)
        return log

    def start(self) -> None:
        """Begin with the periodic work."""
        self._ownership.write_missing_metadata(lambda partition: partition in self.homes and not self._closed)
        for number in range(len(self._periods)):
            self._repeat(number)

    def _repeat(self, number: int) -> None:
        period_ms, work = self._periods[number]

        def run() -> None:
            self._repeat(number)
            work()

        self._timers[number] = self._scheduler.call_later(period_ms, run)

    # --- partitions come and go

    def create(self, partition: TopicPartition, *, is_new: bool = True) -> UnifiedLog:
        """Begin a log here and now, in the data folder with the fewest. An existing one is returned.

        With `is_new` off it is refused while a data folder is out of use, since the log may lie there. Raises
        `StorageError`.
        """
        existing = self.get(partition)
        if existing is not None:
            return existing
        was_there = partition in self._unopened
        folder = self._place_for(partition, {}, is_new=is_new)
        opening = self._opening(folder, partition, recover=True)  # nothing to recover, unless it was there
        if not is_new and not was_there:  # its folder is missing, wherever it was
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
        """Return True if a log that is missing was not there in the life before either: the broker was killed before it
        had opened the log of a new topic.

        A folder is durable before its log is used, so one that the checkpoints of the only data folder do not name was
        never made. With several data folders it may have been in one that is gone.
        """
        only = self.folders[0]
        return len(self.folders) == only.broker_epochs.folder_count == 1 and not only.is_checkpointed(partition)

    def begin_create(self, partitions: Mapping[TopicPartition, bytes | None]) -> LogCreation:
        """The same for several new partitions (with the ids of their topics): what is to be done on another thread.

        Follow with `complete_create`, also on failure. What can be refused here is among its errors already.
        """
        if self._closed:
            raise ClosedError("the logs are being closed")
        openings: list[tuple[LogOpening, bytes | None]] = []
        errors: dict[TopicPartition, BarnabasError] = {}
        planned: dict[int, int] = {}
        for partition, topic_id in partitions.items():
            try:
                folder = self._place_for(partition, planned, is_new=True)
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
        """Take over the logs that were begun; returns why the others were not."""
        for opening, _ in creation.openings:
            log = creation.logs.get(opening.partition)
            if log is not None:
                self._adopt(opening, log)
            opening.home.checked(f"beginning {opening.partition}", creation.errors.get(opening.partition))
        self._ended()
        return creation.errors

    def _place_for(self, partition: TopicPartition, planned: Mapping[int, int], *, is_new: bool) -> DataFolder:
        """`planned`: how many logs come to a folder besides those it has. Raises `StorageError`."""
        broken = self._unopened.get(partition)
        if broken is not None:
            return broken
        failed = next((folder for folder in self.folders if folder.failure is not None), None)
        if failed is not None and not is_new:
            raise StorageError(f"{partition} may be in {failed.log_dir.path}, which is out of use: {failed.failure}")
        if is_new:
            for folder in self.folders:
                folder.forget(partition)
        usable = [folder for folder in self.folders if folder.failure is None]
        if not usable:
            raise StorageError(f"no data folder can be used: {self.folders[0].failure}")
        return min(usable, key=lambda folder: len(folder.logs) + planned.get(id(folder), 0))

    def _ended(self) -> None:
        self._under_way -= 1
        told = self._when_idle
        if not self._under_way and told is not None:
            self._when_idle = None
            told()

    def delete(self, partition: TopicPartition) -> None:
        """Close a log and remove it: renamed at once, its files go in the background. Unknown ones are no error.

        Raises `StorageError` when the folder cannot be renamed; the log is then closed all the same.
        """
        moved = self._take_away(partition, DELETE_FOLDER_SUFFIX)
        if moved is not None:
            home, name = moved
            home.remove_later(self._scheduler, name)

    def rename_to_stray(self, partition: TopicPartition) -> None:
        """Close a log that belongs to no topic, and rename its folder to *-stray, for a person to look at.

        Raises as `delete` does.
        """
        moved = self._take_away(partition, STRAY_FOLDER_SUFFIX)
        if moved is not None:
            folder, name = moved
            self._report(f"{folder.log_dir.path}/{partition} belongs to no topic of this cluster; renamed to {name}")

    def _take_away(self, partition: TopicPartition, suffix: str) -> tuple[DataFolder, str] | None:
        """Close the log and rename its folder; returns where it is now. None for an unknown partition."""
        folder = self.homes.pop(partition, None) or self._unopened.pop(partition, None)
        self._ownership.incomplete_until.pop(partition, None)
        if folder is None:
            return None
        log = folder.logs.pop(partition, None)
        if log is not None:
            log.abandon()
        folder.forget(partition)
        name = transient_folder_name(partition, self._unique(), suffix)
        folder.log_dir.rename_folder(str(partition), name)
        return folder, name

    def _unique(self) -> str:
        if self._entropy is not None:
            return self._entropy.token(16).hex()
        self._deleted += 1
        return f"{self._clock.now_ms():016x}{self._deleted:016x}"

    # --- flush

    def add_flush_listener(self, told: Callable[[UnifiedLog], None]) -> None:
        """Have this told of each flush of a log that is over: its recovery point has moved, or it has a `failure`.
        Several may listen."""
        self._when_flushed.append(told)

    def flush_if_due(self, log: UnifiedLog, now_ms: int) -> bool:
        """True if `flush.messages` or `flush.ms` asks for a flush of the log; it is then under way, or follows the
        one that is. `add_flush_listener` tells when the recovery point has moved."""
        if not log.flushes.due(now_ms):
            return False
        self.flush(log)
        return True

    def flush(self, log: UnifiedLog, *, sealed_only: bool = False) -> None:
        """Make a log durable in the background; nothing to do, or a flush under way, is no error."""
        if log.closed or self._closed:
            return
        work = log.flushes.begin(self._clock.now_ms(), sealed_only=sealed_only)
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
            log.flushes.end(work, error)
            if home is not None:
                home.checked(f"flushing {log.topic_partition}", error)
                if log.failure is not None and isinstance(error, StorageError):
                    home.fail(error)
            for told in self._when_flushed:
                told(log)
            if error is None:
                if log.recovery_point < log.segments[-1].base_offset:
                    self.flush(log, sealed_only=True)  # it rolled meanwhile
                self.flush_if_due(log, self._clock.now_ms())

        self._scheduler.offload(work, done)

    def _rolled(self, log: UnifiedLog) -> None:
        self.flush(log, sealed_only=True)

    def _flush_by_time(self) -> None:
        """By `flush.messages`, too: a flush that could not begin, for lack of room, is tried again."""
        now_ms = self._clock.now_ms()
        for log in self.logs().values():
            if log.config.flush_ms != LONG_MAX or log.config.flush_messages != LONG_MAX:
                self.flush_if_due(log, now_ms)

    # --- what goes with time

    def retain(self) -> None:
        """Let every log drop the old segments it need not keep."""
        self._retaining.retain(self.high_watermark_of)

    def expire_producers(self) -> None:
        """Let every log forget the idempotent producers that have been silent for long."""
        before_ms = self._clock.now_ms() - self._producer_expiration_ms
        for log in self.logs().values():
            log.producers.expire(before_ms)

    # --- checkpoints

    def checkpoint(self) -> None:
        """Write the offsets of every data folder, in the background."""
        for folder in self.folders:
            folder.write_files_later(self._scheduler, "offsets", folder.checkpoint_contents)

    def checkpoint_of(self, log: UnifiedLog, then: Callable[[], None]) -> None:
        """Make durable that a log was cut: write the checkpoints of its data folder, which say more than is true now,
        then flush the segment that was cut. Else a power cut could bring back what was there, below a high watermark
        that counts what came after. `then` is called at the end, also after a failure; not when the log is no more."""
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
                    home.checked(f"flushing {log.topic_partition}, which was cut,", error)
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
        """The high-watermark checkpoint of a folder; none when the broker does not tell."""
        ask = self.high_watermark_of
        if ask is None:
            return {}
        known = {partition: mark for partition in folder.logs if (mark := ask(partition)) is not None}
        return {HIGH_WATERMARK: format_offsets(known)}

    # --- end

    def stop(self, done: Callable[[], None]) -> None:
        """Stop in order: everything durable, checkpoints and markers written, locks given back; then call `done`.

        The logs are closed by the workers, side by side. Nobody may use them from now on. Failures are reported, and
        the folder in question is recovered at the next start.
        """
        if self._closed:
            done()
            return
        self._end_periods()
        if self._under_way:
            self._when_idle = lambda: self._close_all(done)  # what they find must be known before
        else:
            self._close_all(done)

    def _close_all(self, done: Callable[[], None]) -> None:
        def closed() -> None:
            self.homes.clear()
            done()

        close_all(self._scheduler, self.folders, self._clock.now_ms(), self._high_watermarks, closed)

    def close(self) -> None:
        """The same here and now, one log after the other, for a broker that could not start. Twice is harmless."""
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
        _Closing(scheduler, folder, now_ms, partial(also, folder), closed).begin()


class _Closing:
    """Closes the logs of a data folder on the workers, then the folder. Owner thread only; `done` is called once.

    Nobody else may use the logs meanwhile. `also` gives further small files, asked for once all logs are closed.
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

    def begin(self) -> None:
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
