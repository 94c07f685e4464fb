"""Flushes of a log: the work for another thread, and the handling of its failure."""

from ....ports.storage import StorageError
from ....ports.types import Offset
from ..checkpoints import format_epochs
from .durability import FlushWork
from .log_state import LogState


class LogFlushes:
    """Begins and completes the flushes of one log. Owner thread only."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def due(self, now_ms: int) -> bool:
        """Return True if `flush.messages` or `flush.ms` requires a flush now."""
        state = self._state
        return state.durable.due(state.end, state.config, now_ms)

    @property
    def under_way(self) -> bool:
        return self._state.durable.under_way

    def begin_flush(self, now_ms: int = 0, *, sealed_only: bool = False) -> FlushWork | None:
        """Return the work that makes the log durable up to now (`sealed_only`: without the active segment).

        None if there is nothing to flush or a flush is in progress. Call `end_flush` afterwards, also on failure.
        """
        state = self._state
        durable, active = state.durable, state.segments.active
        target = active.base_offset if sealed_only else state.end
        if not durable.may_begin(target):
            return None
        try:
            work = self._work(target, now_ms, durable.at_roll if sealed_only else durable.appended)
        except StorageError:
            return None  # no disk space for the small files; the roll reports a lasting error
        durable.under_way = True
        return work

    def _work(self, target: Offset, now_ms: int, messages: int) -> FlushWork:
        state = self._state
        durable, epochs = state.durable, state.epochs
        files = state.segments.to_flush(durable.recovery_point, target, state.end)
        changed_epochs = format_epochs(epochs.entries) if epochs.changed else None
        epochs.changed = False
        return FlushWork(
            target=target,
            files=files,
            folder=state.folder,
            new_names=durable.take_new_names(),
            epochs=changed_epochs,
            truncations=durable.truncations,
            began_ms=now_ms,
            appended_messages=messages,
            snapshots=state.producers.take_pending_snapshots(),
        )

    def end_flush(self, work: FlushWork, error: StorageError | None = None) -> None:
        """Complete the work. After a failure on a segment file, records may be lost and the log refuses appends."""
        state = self._state
        state.durable.under_way = False
        if error is not None:
            self._failed(work, error)
            if not work.files_flushed:
                return
        if not state.durable.done(work, state.end):
            state.producers.delete_written_snapshots(work.snapshots)

    def _failed(self, work: FlushWork, error: StorageError) -> None:
        self._state.epochs.changed = True
        if not work.files_flushed:
            self._state.durable.failure = error

    def now(self, now_ms: int = 0) -> None:
        """Flush in this call, blocking. Raises `StorageError`."""
        state = self._state
        work = self._work(state.end, now_ms, state.durable.appended)
        try:
            work()
        except StorageError as error:
            self._failed(work, error)
            raise
        state.durable.done(work, state.end)
