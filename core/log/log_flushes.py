"""How a log becomes durable: what is to be flushed, done elsewhere, and what a failure means."""

from ...ports.storage import Folder, StorageError
from ...ports.words import Offset, TopicPartition
from .checkpoints import format_epochs
from .config import LogConfig
from .durability import Durability
from .flushing import FlushWork
from .leader_epochs import LeaderEpochs
from .producer_state_files import ProducerLedger
from .segment_list import SegmentList


class LogFlushes:
    """The durable half of a `Log`, over what the other half keeps. Owner thread only."""

    topic_partition: TopicPartition
    epochs: LeaderEpochs
    _segments: SegmentList
    _end: Offset
    _config: LogConfig
    _durable: Durability
    _ledger: ProducerLedger
    _folder: Folder

    @property
    def recovery_point(self) -> Offset:
        """Everything below is durable."""
        return self._durable.recovery_point

    @property
    def failure(self) -> StorageError | None:
        """Why nothing more is appended: what was written may not have become durable. Reading goes on."""
        return self._durable.failure

    def _closed_to_records(self) -> StorageError:
        return StorageError(f"{self.topic_partition} takes no more records until a restart: {self._durable.failure}")

    def fail(self, error: StorageError) -> None:
        """Refuse appends until the log is opened again and recovered."""
        self._durable.failure = error

    def flush_due(self, now_ms: int) -> bool:
        """True if `flush.messages` or `flush.ms` asks for a flush now."""
        return self._durable.due(self._end, self._config, now_ms)

    @property
    def flushing(self) -> bool:
        return self._durable.under_way

    def begin_flush(self, now_ms: int = 0, *, sealed_only: bool = False) -> FlushWork | None:
        """What must be done to make everything up to now durable (`sealed_only`: all but the active segment).

        None when there is nothing to do, or a flush is under way already. Follow with `end_flush`, also on failure.
        """
        active = self._segments.active
        target = active.base_offset if sealed_only else self._end
        if not self._durable.may_begin(target):
            return None
        try:
            work = self._flush_work(target, now_ms, self._durable.at_roll if sealed_only else self._durable.appended)
        except StorageError:
            return None  # no room for what belongs to the records; the roll tells if it goes on
        self._durable.under_way = True
        return work

    def _flush_work(self, target: Offset, now_ms: int, messages: int) -> FlushWork:
        files = self._segments.to_flush(self._durable.recovery_point, target, self._end)
        epochs = format_epochs(self.epochs.entries) if self.epochs.changed else None
        self.epochs.changed = False
        return FlushWork(
            target=target,
            files=files,
            folder=self._folder,
            new_names=self._durable.take_new_names(),
            epochs=epochs,
            truncations=self._durable.truncations,
            began_ms=now_ms,
            appended_messages=messages,
            snapshots=self._ledger.take_pending(),
        )

    def end_flush(self, work: FlushWork, error: StorageError | None = None) -> None:
        """The work is done, or has failed: if on a segment's file, records may be lost and the log takes no more."""
        self._durable.under_way = False
        if error is not None:
            self._flush_failed(work, error)
            if not work.files_flushed:
                return
        if not self._durable.done(work, self._end):
            self._ledger.drop_written(work.snapshots)

    def _flush_failed(self, work: FlushWork, error: StorageError) -> None:
        self.epochs.changed = True
        if not work.files_flushed:
            self.fail(error)

    def flush(self, now_ms: int = 0) -> None:
        """Flush here and now, blocking. Raises `StorageError`."""
        work = self._flush_work(self._end, now_ms, self._durable.appended)
        try:
            work()
        except StorageError as error:
            self._flush_failed(work, error)
            raise
        self._durable.done(work, self._end)

    def names_are_durable(self) -> None:
        """The folder was flushed since its last file came."""
        self._durable.new_names = False
