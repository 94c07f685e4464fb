"""Loading of a log from its folder, with recovery, or the start of a new log."""

from collections.abc import Sequence

from ....ports.types import Offset, Position
from ...message.batch_header import BatchHeader
from ..checkpoints import LogCheckpoint
from ..config import LONG_MAX
from ..leader_epoch_cache import LeaderEpochCache
from ..log_format import LogSegment
from ..producers.producer_state_manager import ProducerStateManager
from ..recovery import data_loss
from ..segment.segment import Segment
from ..segment.segment_list import SegmentList
from .log_state import LogState


class RecoveryState:
    """Rebuilds leader epochs and producer state from recovered batches; implements `RecoveryListener`."""

    def __init__(self, epochs: LeaderEpochCache, ledger: ProducerStateManager, now_ms: int) -> None:
        self._epochs = epochs
        self._ledger = ledger
        self._now_ms = now_ms
        self._epochs_known_from = epochs.entries[0][1] if epochs.entries else LONG_MAX
        self._recovers = False

    def lacks_epochs(self, start: int) -> bool:
        """Return True if the leader-epoch checkpoint is missing, or after a crash begins above the log start."""
        lost = self._epochs_known_from == LONG_MAX
        return self._epochs_known_from > start and (lost or self._recovers)

    def begin_recovery(self, earlier: Sequence[LogSegment], offset: Offset) -> None:
        self._recovers = True
        self._ledger.begin_recovery(
            [segment for segment in earlier if isinstance(segment, Segment)], offset, self._now_ms
        )

    def found(self, segment: LogSegment, position: Position, header: BatchHeader) -> None:
        assert isinstance(segment, Segment)
        self._epochs_known_from = min(self._epochs_known_from, header.base_offset)
        self._epochs.found(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self._ledger.recovered(segment, position, header, self._now_ms)


def load(state: LogState, noted: LogCheckpoint, *, now_ms: int, recover: bool, may_end_early: bool) -> bool:
    """Load the log (see `UnifiedLog.open`); return True if it ended below its recovery point. Raises `StorageError`."""
    recovery = RecoveryState(state.epochs, state.producers, now_ms)
    loaded = state.format.load(
        state.folder,
        state.config,
        now_ms=now_ms,
        report=state.report,
        recover=recover,
        noted=noted,
        recovery=recovery,
    )
    state.durable.note_flush_time(now_ms)
    if not loaded.segments:
        state.start_empty_at(max(Offset(0), noted.log_start), now_ms)
        return _lost_end(state, noted.recovery_point, now_ms, may_end_early=may_end_early)
    state.segments = SegmentList(loaded.segments)
    state.end = loaded.end
    first = loaded.segments[0].base_offset
    state.start = noted.log_start if state.config.tiered else max(first, noted.log_start)
    state.local_start = max(first, state.start)
    if state.start > loaded.end:
        text = f"log end offset {loaded.end} is below the log start offset {state.start}"
        state.report(f"{state.topic_partition}: {text}; the log is truncated fully and starts at {state.start}")
        state.truncate_fully_to(state.start, now_ms)
        return False
    state.durable.opened(loaded.recovery_point, state.end, in_order=not recover)
    lost_end = _lost_end(state, noted.recovery_point, now_ms, may_end_early=may_end_early)
    state.producers.load(state.segments.items, state.end, now_ms)
    if recovery.lacks_epochs(state.start) and state.format.has_leader_epochs:
        _read_epochs(state)
    state.epochs.truncate_from_start(state.start)
    state.epochs.truncate_from_end(state.end)  # last: an epoch that begins at the log end has no records
    return lost_end


def start_new(state: LogState, *, now_ms: int) -> None:
    """Start a log at offset 0 in a folder without files. Raises `StorageError`."""
    state.durable.note_flush_time(now_ms)
    state.segments = SegmentList((state.create_segment(Offset(0), now_ms),))
    state.start = state.end = state.local_start = Offset(0)
    state.durable.reset_to(Offset(0))


def _read_epochs(state: LogState) -> None:
    """Rebuild the leader epochs from the batches."""
    for segment in state.segments.items:
        for _, header in segment.batches():
            state.epochs.found(header.leader_epoch, header.base_offset)


def _lost_end(state: LogState, recovery_point: Offset, now_ms: int, *, may_end_early: bool) -> bool:
    """Report a log that ends below its recovery point; unless it may end there, continue at the recovery point."""
    if state.end >= recovery_point:
        return False
    ends = state.format.reads_flushed_only or may_end_early
    state.report(data_loss.lost_end_line(state.topic_partition, state.end, recovery_point, continues=not ends))
    if not ends:
        remaining = data_loss.drop_empty_end(state.segments.items)
        state.segments = SegmentList((*remaining, state.create_segment(recovery_point, now_ms)))
        state.end = recovery_point
        state.set_local_start()
        state.durable.opened(recovery_point, recovery_point, in_order=False)
    return True
