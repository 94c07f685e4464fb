"""One data folder of a broker: its checkpoints and the logs in it (facts B3)."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from attrs import evolve

from ....ports.scheduler import Outcome, Scheduler
from ....ports.storage import LogDir, StorageError, StorageFull, StorageReadOnly
from ....ports.types import TopicPartition
from ...cluster.topics import LifeNote
from ..checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED,
    HIGH_WATERMARK,
    LOG_START,
    NEW_PARTITIONS,
    RECOVERY_POINT,
    SEGMENTS,
    SealedSegment,
    format_offsets,
    format_segments,
    join_segments,
    read_offsets,
    read_segments,
    read_topic_ids,
)
from ..formats.registry import holds_classic_segments
from ..log_format import LogSegment
from ..names import ETCD_FOLDER, classic_folder_partition, folder_partition, folder_state, parse_deleted_folder
from ..partition_log.unified_log import UnifiedLog
from ..recovery import data_loss
from .broker_epoch_file import BrokerEpochs, read_broker_epochs, write_broker_epochs

REMOVE_AGAIN_MS = 60_000.0
"""Pause before a folder that could not be removed is tried again, the default of Kafka's file.delete.delay.ms."""


class DataFolder:
    """The state of one data folder. Owner thread only."""

    def __init__(self, log_dir: LogDir, report: Callable[[str], None]) -> None:
        self.log_dir = log_dir
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.failure: StorageError | None = None
        """The error for which the folder is out of use."""
        self.clean = False
        """True after a clean shutdown."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """High watermarks of the last checkpoint before the start."""
        self.broker_epochs = BrokerEpochs()
        """The broker epochs in which the folder was in use."""
        self.report = report
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._has_reported = False
        self._writing: dict[str, list[tuple[Callable[[], Mapping[str, bytes]], Callable[[], None]]]] = {}
        """Files being written, with the callers that wait for another write."""
        self.new_topic_ids: dict[TopicPartition, bytes] = {}
        """The topic ids of partitions whose partition.metadata may not be durable."""
        self.present: set[TopicPartition] = set()
        """The partitions that had a folder here at the start."""
        self.cleaned_to: dict[TopicPartition, int] = {}
        """First dirty offset of each compacted log."""
        self._has_cleaned = False
        self.in_replacement: set[TopicPartition] = set()
        """Logs whose segments are about to be replaced: the checkpoint leaves them out."""
        self._sealed: dict[TopicPartition, list[SealedSegment]] = {}
        self._sealed_lines: dict[TopicPartition, tuple[tuple[LogSegment, ...], list[str]]] = {}
        self._finished = False
        self.incomplete = False
        """True if a log could not be opened: the next start must not treat it as cleanly closed."""
        self.has_obsolete_lines = False
        """True if a checkpoint has lines of partitions that were forgotten since it was read."""

    def load_checkpoints(self) -> tuple[list[TopicPartition], list[str]]:
        """Read the checkpoints and delete the clean-shutdown marker; return (partitions here, folders to be removed).

        Raises `StorageError`.
        """
        root = self.log_dir.root
        self.clean = CLEAN_SHUTDOWN in root.files()
        self._recovery_points = read_offsets(root, RECOVERY_POINT, self.report)
        self._log_starts = read_offsets(root, LOG_START, self.report)
        self.high_watermarks = read_offsets(root, HIGH_WATERMARK, self.report)
        self.cleaned_to = read_offsets(root, CLEANED, self.report)
        self._has_cleaned = bool(self.cleaned_to)
        self._sealed = read_segments(root, self.report)
        if self.clean:
            root.delete(CLEAN_SHUTDOWN)
            root.flush()
        partitions, removable = [], []
        for name in self.log_dir.folders():
            state, partition = folder_state(name), self._partition_of(name)
            if state == "delete":
                removable.append(name)
                deleted = parse_deleted_folder(name)
                if deleted is not None and not self.clean:
                    self.forget(deleted)  # checkpoints may have it, and another one of its name may follow
            elif name == ETCD_FOLDER:
                continue
            elif state is not None or partition is None:
                self.report(f"{self.log_dir.path}/{name} is not a partition folder and is ignored")
            else:
                partitions.append(partition)
        self.present = set(partitions)
        known = read_topic_ids(root, self.report)
        self.new_topic_ids = {partition: known[partition] for partition in partitions if partition in known}
        self.broker_epochs = read_broker_epochs(self.log_dir, is_new=not partitions)
        return partitions, removable

    def note_life(self, note: LifeNote, folder_count: int) -> None:
        """Record a new broker epoch with this number of data folders, or its outcome; durable on return. Any thread.

        Raises `StorageError`.
        """
        is_new = note.broker_epoch != self.broker_epochs.latest
        lives = self.broker_epochs.with_epoch(note.broker_epoch, folder_count) if is_new else self.broker_epochs
        self._write_lives(evolve(lives, seen=note.seen))

    def note_distrusted(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Record the partitions that are not trusted yet, None: all; durable on return. Any thread.

        Raises `StorageError`.
        """
        self._write_lives(evolve(self.broker_epochs, distrusted=partitions))

    def _write_lives(self, lives: BrokerEpochs) -> None:
        if lives != self.broker_epochs:
            write_broker_epochs(self.log_dir, lives)
            self.broker_epochs = lives

    def _partition_of(self, name: str) -> TopicPartition | None:
        found = folder_partition(name)
        if found is not None:
            return found
        found = classic_folder_partition(name)
        return found if found is not None and holds_classic_segments(self.log_dir.folder(name).files()) else None

    def forget(self, partition: TopicPartition) -> None:
        """Drop the checkpoint entries of a deleted partition, which do not apply to another one of its name."""
        offsets = (self._recovery_points, self._log_starts, self.high_watermarks, self.cleaned_to)
        self.has_obsolete_lines |= any(partition in noted for noted in (*offsets, self._sealed))
        for noted in (*offsets, self._sealed, self._sealed_lines, self.new_topic_ids):
            noted.pop(partition, None)

    def write_loaded_checkpoints(self) -> None:
        """Write the checkpoints after a start has opened the logs, without lines of partitions that were forgotten.

        Otherwise, after a kill, another partition of that name would begin with the old recovery point and high
        watermark. Lines of partitions whose folder is missing stay: their logs count as lost until they have a
        partition.metadata that says so. Raises `StorageError`.
        """
        missing = {key: point for key, point in self._recovery_points.items() if key not in self.present}
        self.write({**self.checkpoint_contents(missing), HIGH_WATERMARK: format_offsets(self.high_watermarks)})
        self.has_obsolete_lines = False

    def write_checkpoints_later(
        self,
        scheduler: Scheduler,
        high_watermarks: Callable[[], Mapping[str, bytes]],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Write all checkpoints in the background, those of high watermarks (the content of which that returns) last,
        and call `then`, unless the folder is closed meanwhile, which writes them, too."""

        def write_high_watermarks() -> None:
            if not self._finished:
                self.write_files_later(scheduler, HIGH_WATERMARK, high_watermarks, then)

        self.write_files_later(scheduler, "offsets", self.checkpoint_contents, write_high_watermarks)

    def remove_later(
        self, scheduler: Scheduler, name: str, high_watermarks: Callable[[], Mapping[str, bytes]] | None
    ) -> None:
        """Remove a sub-folder in the background, once the checkpoints no longer have its partition.

        Until then the folder shows the next start that they are out of date. `high_watermarks` returns the content of
        that checkpoint; None: no checkpoint has the partition. A failed removal is tried again: a running flush may
        have created a file in a folder that was being emptied.
        """

        def remove() -> None:
            self.log_dir.delete_folder(name)
            self.log_dir.root.flush()

        def done(outcome: Outcome[None]) -> None:
            if outcome.error is not None and not self._finished:
                seconds = REMOVE_AGAIN_MS / 1000
                text = f"{self.log_dir.path}/{name} could not be removed; retrying in {seconds:.0f} s"
                self.report(f"{text}: {outcome.error}")
                scheduler.call_later(REMOVE_AGAIN_MS, begin)

        def begin() -> None:
            if not self._finished:
                scheduler.offload(remove, done)

        if high_watermarks is None:
            begin()
            return
        self.write_checkpoints_later(scheduler, high_watermarks, begin)

    def recovery_point(self, partition: TopicPartition) -> int:
        return self._recovery_points.get(partition, 0)

    def log_start(self, partition: TopicPartition) -> int:
        return self._log_starts.get(partition, 0)

    def sealed(self, partition: TopicPartition) -> Collection[SealedSegment]:
        return self._sealed.get(partition, ())

    def report_losses(self, log: UnifiedLog) -> bool:
        """Compare an opened log with the checkpoints; return True if durable data is lost. Raises `StorageError`."""
        partition, lost = log.topic_partition, log.is_end_lost
        known = self._sealed.pop(partition, ())
        for line in data_loss.lost_segment_lines(partition, known, log.segments, in_order=self.clean):
            self.report(line)
            lost = True
        visible = self.high_watermarks.get(partition, 0)
        if log.log_end_offset < visible and not self.clean:
            self.report(data_loss.lost_visible_line(partition, log.log_end_offset, visible))
        return lost

    def is_checkpointed(self, partition: TopicPartition) -> bool:
        """Return True if a checkpoint before the start has the partition: it had a log here."""
        return partition in self._recovery_points or partition in self.high_watermarks

    def missing(self) -> Mapping[TopicPartition, int]:
        """Return the recovery points of partitions that a clean shutdown left here and whose folder is missing."""
        points = self._recovery_points if self.clean else {}
        return {partition: point for partition, point in points.items() if point and partition not in self.present}

    def checkpoint_contents(self, missing: Mapping[TopicPartition, int] = MappingProxyType({})) -> dict[str, bytes]:
        """Return the current content of the offset checkpoints by file name; any thread may write it. `missing`: the
        recovery points of partitions without a folder.

        The log start offsets come first: a recovery point may equal a log start below which nothing was flushed, and
        would look like a loss without it.
        """
        starts = {
            partition: log.log_start_offset
            for partition, log in self.logs.items()
            if log.log_start_offset != log.segments[0].base_offset
        }
        vouched = [partition for partition in self.logs if partition not in self.in_replacement]
        logs, known = self.logs, self.cleaned_to
        cleaned = {key: min(end, log.replacer.truncated_to) for key, log in logs.items() if (end := known.get(key))}
        self._has_cleaned = self._has_cleaned or bool(self.cleaned_to)
        points = {**missing, **{partition: log.recovery_point for partition, log in self.logs.items()}}
        return {
            LOG_START: format_offsets(starts),
            RECOVERY_POINT: format_offsets(points),
            **({CLEANED: format_offsets(cleaned)} if self._has_cleaned else {}),
            SEGMENTS: join_segments(line for partition in vouched for line in self._lines_of(partition)),
        }

    def _lines_of(self, partition: TopicPartition) -> list[str]:
        """Return the lines of the durable sealed segments; cached until a roll, since there may be very many."""
        log = self.logs[partition]
        segments = log.segments
        known = self._sealed_lines.get(partition)
        if known is None or known[0] is not segments:
            sealed = [SealedSegment(one.base_offset, other.base_offset, one.size) for one, other in pairwise(segments)]
            known = self._sealed_lines[partition] = segments, format_segments(partition, sealed)
        durable = bisect_right(segments, log.recovery_point, key=lambda segment: segment.base_offset) - 1
        return known[1][: max(0, durable)]

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write small files of the data folder. Callable from any thread. Raises `StorageError`."""
        self.log_dir.root.write_all_small(contents)

    def write_files_later(
        self,
        scheduler: Scheduler,
        what: str,
        contents: Callable[[], Mapping[str, bytes]],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Offload the writing of small files, unless the previous ones (of the same `what`) are being written.

        With `then` they are written in any case, after those; `then` is called at the end, also after a failure.
        """
        waiting = self._writing.get(what)
        if waiting is not None or self.failure is not None:
            if waiting is not None and then is not None:
                waiting.append((contents, then))
            elif then is not None:
                scheduler.call_soon(then)
            return
        self._write_later(scheduler, what, contents, [] if then is None else [then])

    def _write_later(
        self,
        scheduler: Scheduler,
        what: str,
        contents: Callable[[], Mapping[str, bytes]],
        callbacks: Sequence[Callable[[], None]],
    ) -> None:
        self._writing[what] = []
        texts = contents()

        def done(outcome: Outcome[None]) -> None:
            waiting = self._writing.pop(what)
            self.checked("writing checkpoints", outcome.error)
            if waiting:
                self._write_later(scheduler, what, waiting[-1][0], [then for _, then in waiting])
            for then in callbacks:
                then()

        scheduler.offload(lambda: self.write(texts), done)

    def checked(self, what: str, error: BaseException | None) -> None:
        """Handle the outcome of an operation on the folder: report a failure once, until an operation succeeds."""
        if error is None:
            self._has_reported = False
        elif not self._has_reported:
            self._has_reported = True
            self.report(f"{self.log_dir.path}: {what} failed: {error}")

    def fail(self, error: StorageError) -> None:
        """Take the folder out of use after a disk error: its logs refuse appends, new logs go to other folders."""
        if isinstance(error, StorageFull | StorageReadOnly) or self.failure is not None:
            return
        self.failure = error
        self.report(f"{self.log_dir.path} is offline until a restart: {error}")
        for log in self.logs.values():
            log.fail(error)

    def close(self, now_ms: int, also: Mapping[str, bytes]) -> None:
        """Close the logs, one after the other, and then the folder (see `finish`)."""
        for partition, log in self.logs.items():
            error: BaseException | None = None
            try:
                log.close(now_ms)
            except StorageError as failure:
                error = failure
            self.closed(partition, error)
        self.finish(also)

    def closed(self, partition: TopicPartition, error: BaseException | None) -> None:
        """Handle the outcome of closing a log. After a failure the marker is not written, and the next start
        recovers."""
        if error is not None:
            self.incomplete = True
            self.report(f"{self.log_dir.path}: closing {partition} failed: {error}")

    def finish(self, also: Mapping[str, bytes]) -> None:
        """Write the state for the next start (and `also`) after the logs were closed, last the clean-shutdown marker,
        and release the folder. Failures are reported. Any thread, when the folder has no other user."""
        self._finished = True
        try:
            if self.failure is None and not self.incomplete:
                self.write({**self.checkpoint_contents(), **also})
                if not self.new_topic_ids:
                    self.log_dir.root.delete(NEW_PARTITIONS)
                self.log_dir.root.write_small(CLEAN_SHUTDOWN, b"")
        except StorageError as error:
            self.report(f"{self.log_dir.path}: the next start must recover its logs: {error}")
        self.logs.clear()
        self.log_dir.close()


def report_missing_folders(folders: Collection[DataFolder]) -> bool:
    """Report the partitions that have no folder in any data folder, unless one cannot be read; return True if there
    are any."""
    if any(folder.failure is not None for folder in folders):
        return False
    found = False
    for folder in folders:
        for partition, point in folder.missing().items():
            if not any(partition in other.present for other in folders):
                folder.report(data_loss.missing_folder_line(folder.log_dir.path, partition, point))
                found = True
    return found
