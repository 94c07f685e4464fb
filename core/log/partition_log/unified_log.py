"""The log of one partition: an append-only sequence of batches in segments (facts B2, B3, B6).

The segments are an immutable tuple that is replaced as a whole, so that readers never wait. Nothing here blocks except
reads and writes of the page cache; `flushes` makes records durable on other threads.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from attrs import evolve

from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ClosedError
from ....ports.storage import Folder, StorageError
from ....ports.types import Offset, Position, TopicPartition
from ...message.batch_header import HEADER_SIZE, BatchHeader, is_crc_valid, parse_header
from ...message.codec import DECOMPRESSED_BYTES_MAX, Codecs
from ...message.control_records import EndTransactionMarker, encode_marker, read_marker
from ...traffic.steps import Steps, complete
from ..append_origin import AppendOrigin
from ..check_budget import CheckBudget
from ..checkpoints import LEADER_EPOCHS, LogCheckpoint, SealedSegment, format_epochs, read_epochs
from ..config import LONG_MAX, LogConfig
from ..formats.validation import LOG_APPEND_TIME, ValidationTakesLong
from ..leader_epoch_cache import LeaderEpochCache
from ..log_format import LogSegment, ValidatedBatch
from ..names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from ..producers.producer_state import ProducerStates
from ..producers.producer_state_manager import check_snapshot
from ..retention import DeletionPolicy, local_retention_config, removable
from ..segment.offset_index import CorruptIndex
from ..segment.segment import INT_MAX, Segment, count_fitting
from ..segment.segment_list import FoundRecord, SegmentList
from ..segment.transaction_index import AbortedTxn
from .durability import FlushWork
from .loading import load, start_new
from .log_state import LogState
from .replacement import SegmentReplacer
from .results import EMPTY_SLICE, AppendResult, LogSlice, ReplicatedAppendResult, TimestampOffset

__all__ = ["AppendResult", "UnifiedLog", "LogSlice", "TimestampOffset"]

_RELOADED_AT_ONCE = 1 << 20
"""Bytes in which the owner thread may read producers at once."""
_new = tuple.__new__  # once in every fetch, for half of what the named tuple's own takes


# Offsets by timestamp, for ListOffsets and the classic OffsetRequest (facts A4, B3).


class TimestampLookup:
    """Finds offsets by timestamp. Owner thread only."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def offsets_before(self, time_ms: int, max_offsets: int, now_ms: int) -> list[Offset]:
        """Return base offsets, newest first, from the newest segment modified at `time_ms` or before on (facts A4).

        LATEST (-1) begins with the readable end, EARLIEST (-2) gives the oldest alone.
        """
        state = self._state
        found = state.segments.offsets_before(time_ms, state.start, state.readable_end, now_ms)
        return found[: max(0, max_offsets)]

    def find_first_at(self, timestamp: int) -> Steps[TimestampOffset | None]:
        """Find the first record at `timestamp` (ms) or later; None without one.

        In steps: batches are unpacked on a worker. Raises `StorageError`, `ApiError` CORRUPT_MESSAGE.
        """
        state = self._state
        return self._looking(lambda segments: segments.find_first_at(timestamp, state.start, state.end, state.codecs))

    def find_max_timestamp(self) -> Steps[TimestampOffset | None]:
        """Find the first record with the largest timestamp; None if no record has a timestamp."""
        state = self._state
        return self._looking(lambda segments: segments.find_max_timestamp(state.start, state.end, state.codecs))

    def _looking(self, find: Callable[[SegmentList], Steps[FoundRecord | None]]) -> Steps[TimestampOffset | None]:
        """Run `find` on the segments, and again if one of them was removed meanwhile."""
        state = self._state
        while True:
            present = state.segments
            try:
                found = yield from find(present)
            except (StorageError, ClosedError):
                if state.closed:
                    text = f"{state.topic_partition} was closed meanwhile"
                    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text) from None
                if set(present.items) <= set(state.segments.items):
                    raise
                continue
            if found is None:
                return None
            return TimestampOffset(found.timestamp, found.offset, state.epochs.epoch_at(found.offset))


# Flushes of a log: the work for another thread, and the handling of its failure.


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
        durable.under_way, durable.truncated_to = True, LONG_MAX
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
        durable, producers = self._state.durable, self._state.producers
        durable.under_way = False
        if error is not None:
            self._failed(work, error)
            producers.note_unwritten(work.snapshots)
            if not work.files_flushed:
                return
        if not durable.done(work, self._state.end):
            producers.delete_written_snapshots(work.snapshots, durable.truncated_to)
        elif error is None:
            producers.note_written(work.snapshots)

    def begin_snapshot(self, offset: Offset, content: bytes) -> FlushWork:
        """Return the work that makes the records below `offset` durable, then the snapshot of the producers there.

        A flush may be under way. Call `end_snapshot` afterwards, also on failure. Raises `StorageError`.
        """
        state = self._state
        return FlushWork(
            target=offset,
            files=state.segments.to_flush(state.durable.recovery_point, offset, state.end),
            folder=state.folder,
            new_names=True,
            epochs=None,
            truncations=state.durable.truncations,
            began_ms=0,
            appended_messages=0,
            snapshots={segment_file(offset, SNAPSHOT_SUFFIX): content},
        )

    def end_snapshot(self, work: FlushWork, error: StorageError | None = None) -> None:
        """Complete the work of `begin_snapshot`; see `end_flush` for a failure on a segment file."""
        state = self._state
        if error is not None and not work.files_flushed:
            state.durable.failure = error
        elif not state.durable.done(work, state.end):
            state.producers.delete_written_snapshots(work.snapshots)
        elif error is None:
            state.producers.note_secured(work.target)
        else:
            (content,) = work.snapshots.values()
            state.producers.keep_snapshot(work.target, content)

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
            state.producers.note_unwritten(work.snapshots)
            raise
        state.durable.done(work, state.end)
        state.producers.note_written(work.snapshots)


# The first unstable offset and the aborted transactions of a log, for read_committed readers (KIP-98).


class LogTransactions:
    """Answers read_committed fetches. Owner thread only."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def first_unstable_offset(self, high_watermark: int) -> Offset | None:
        """Return the first offset of a transaction that is open, or whose marker is not below the high watermark."""
        opened = self._state.producers.states.open
        first = opened.first_unstable(high_watermark) if opened.may_hold_back else None
        return None if first is None else Offset(first)

    @property
    def undecided_from(self) -> Offset | None:
        """Return the first offset of a transaction whose marker damage may hide; None without one.

        A later marker of its producer may belong to another transaction.
        """
        state = self._state
        first = state.producers.undecided_from
        return Offset(first) if first >= 0 and state.producers.hidden_at(state.start) else None

    @property
    def first_undecided_on_disk(self) -> int | None:
        """Return the first offset of a transaction that is open, or whose marker is not durable, or may be hidden."""
        state, hidden = self._state, self.undecided_from
        first = state.producers.states.open.first_not_durable(state.durable.recovery_point)
        return first if hidden is None else hidden if first is None else min(first, hidden)

    def aborted(self, from_offset: int, upto: int) -> Sequence[AbortedTxn]:
        """Return the aborted transactions with records in [from_offset, upto), ordered by their markers.

        Raises `StorageError`.
        """
        if not self._state.segments.may_have_aborted(from_offset):
            return ()
        return self._aborted(from_offset, upto)

    def aborted_in(self, from_offset: int, found: LogSlice) -> Sequence[AbortedTxn]:
        """Return the aborted transactions of a read slice, bounded by the offset index. Raises `StorageError`."""
        state = self._state
        if not state.segments.may_have_aborted(from_offset):
            return ()
        end_position = Position(found.position + found.size)
        upto = state.segments.end_of_slice(found.segment_base_offset, end_position, state.end)
        return self._aborted(from_offset, upto)

    def _aborted(self, from_offset: int, upto: int) -> Sequence[AbortedTxn]:
        state = self._state
        try:
            return state.segments.aborted(from_offset, upto)
        except CorruptIndex:
            self._rebuild_damaged()
        return state.segments.aborted(from_offset, upto)

    def rebuild_marked_indexes(self) -> None:
        """Rebuild the transaction indexes that loading marked as corrupt. Raises `StorageError`."""
        if any(segment.aborted.is_marked_corrupt for segment in self._segments()):
            self._rebuild_damaged()

    def _segments(self) -> list[Segment]:
        return [segment for segment in self._state.segments.items if isinstance(segment, Segment)]

    def _rebuild_damaged(self) -> None:
        """Rebuild all corrupt transaction indexes: this is rare, and one is seldom alone."""
        state, segments = self._state, self._segments()
        wrong: list[Segment] = []
        for segment in segments:
            try:
                segment.aborted.check()
            except CorruptIndex as error:
                state.report(f"{state.folder.name}/{segment.aborted.name} is corrupt and is rebuilt: {error}")
                wrong.append(segment)
        state.producers.rebuild_transaction_indexes(segments, wrong, state.end)


class UnifiedLog:
    """The log of a partition, opened by `UnifiedLog.open` (Kafka: UnifiedLog).

    Owner thread only; `FlushWork`, regions and removed segments may go to other threads. Other functions are in the
    parts: `times`, `transactions`, `flushes`, `replacer`.
    """

    def __init__(self, state: LogState, deletion_policy: DeletionPolicy, entropy: Entropy | None) -> None:
        self._state = state
        self.topic_partition = state.topic_partition
        self.epochs = state.epochs
        self.times = TimestampLookup(state)
        self.transactions = LogTransactions(state)
        self.flushes = LogFlushes(state)
        self.replacer = SegmentReplacer(state)
        self.is_end_lost = False
        """True if the log ended below its recovery point when it was opened: durable messages are lost."""
        self.rolled: Callable[[UnifiedLog], None] | None = None
        """Called after a roll, to flush the inactive segments."""
        self.format_name = state.config.message_format
        """Message format of the log, which never changes."""
        self.policy = deletion_policy
        self.policy_name = state.config.deletion_policy
        """Name of the policy in use, for the owner to compare with the configuration."""
        self._entropy = entropy
        self._jitter_ms = self._draw_jitter()

    @classmethod
    def open(
        cls,
        folder: Folder,
        *,
        topic_partition: TopicPartition,
        config: LogConfig,
        now_ms: int,
        recover: bool,
        codecs: Codecs,
        deletion_policy: DeletionPolicy,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        sealed: Collection[SealedSegment] = (),
        may_end_early: bool = False,
        report: Callable[[str], None] = lambda _: None,
        entropy: Entropy | None = None,
    ) -> "UnifiedLog":
        """Open the log in the folder, or create one there.

        With `recover` (after an unclean shutdown), all batches from `recovery_point` on are checked, and the log is
        truncated at the first corrupt one.
        `sealed` segments are known to follow each other; `entropy` draws the roll jitter. A log that ends below its
        recovery point continues at it, or with `may_end_early` at its end: other replicas have the rest. Raises
        `StorageError`.
        """
        epochs = LeaderEpochCache(read_epochs(folder, report))
        state = LogState(folder, topic_partition, config, codecs, epochs, report)
        log = cls(state, deletion_policy, entropy)
        noted = LogCheckpoint(Offset(recovery_point), Offset(log_start_offset), sealed)
        log.is_end_lost = load(state, noted, now_ms=now_ms, recover=recover, may_end_early=may_end_early)
        log.transactions.rebuild_marked_indexes()  # now: the next start would not notice that they are corrupt
        return log

    @classmethod
    def create(
        cls,
        folder: Folder,
        *,
        topic_partition: TopicPartition,
        config: LogConfig,
        now_ms: int,
        codecs: Codecs,
        deletion_policy: DeletionPolicy,
        report: Callable[[str], None] = lambda _: None,
        entropy: Entropy | None = None,
    ) -> "UnifiedLog":
        """Create a log at offset 0 in a folder that has no files; see `open`. Raises `StorageError`."""
        state = LogState(folder, topic_partition, config, codecs, LeaderEpochCache([]), report)
        log = cls(state, deletion_policy, entropy)
        start_new(state, now_ms=now_ms)
        return log

    # --- properties

    @property
    def config(self) -> LogConfig:
        return self._state.config

    def update_config(self, config: LogConfig, deletion_policy: DeletionPolicy | None = None) -> None:
        """Apply another configuration, except for the message format; without a policy the current one stays."""
        if config.message_format != self.format_name:
            config = evolve(config, message_format=self.format_name)
        before, self._state.config = self._state.config, config
        if (config.segment_jitter_ms, config.roll_ms) != (before.segment_jitter_ms, before.roll_ms):
            self._jitter_ms = self._draw_jitter()
        if deletion_policy is not None:
            self.policy, self.policy_name = deletion_policy, config.deletion_policy
        for segment in self._state.segments.items:
            segment.index_interval_bytes = config.index_interval_bytes

    @property
    def log_start_offset(self) -> Offset:
        return self._state.start

    @property
    def local_log_start_offset(self) -> Offset:
        """Return the first offset that is not in remote storage only."""
        return self._state.local_start

    @property
    def remote_end(self) -> Offset:
        """Return the end of what remote storage is known to have, for local retention."""
        return self._state.remote_end

    @remote_end.setter
    def remote_end(self, offset: Offset) -> None:
        self._state.remote_end = offset

    @property
    def log_end_offset(self) -> Offset:
        return self._state.end

    @property
    def readable_end(self) -> Offset:
        """Return the exclusive end for readers: the log end offset, in a classic log the recovery point."""
        return self._state.readable_end

    @property
    def recovery_point(self) -> Offset:
        """Return the offset below which all records are durable."""
        return self._state.durable.recovery_point

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """Return all segments, oldest first; the last one is active."""
        return self._state.segments.items

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._state.segments.items)

    @property
    def producers(self) -> ProducerStates:
        """Return the state of producers with an id; empty for a classic log."""
        return self._state.producers.states

    @property
    def hidden_producers_at(self) -> tuple[int, ...]:
        """Return the offsets of damage that hides batches of producers, until its repair. A snapshot would hide them
        for ever."""
        state = self._state
        return state.producers.hidden_at(state.start)

    @property
    def folder(self) -> Folder:
        """Return the folder of the partition. Only the owner thread may touch log files in it."""
        return self._state.folder

    @property
    def closed(self) -> bool:
        return self._state.closed

    @property
    def failure(self) -> StorageError | None:
        """Return the error of a failed flush; the log then refuses appends, since written records may not be durable.
        Reads work."""
        return self._state.durable.failure

    def fail(self, error: StorageError) -> None:
        """Refuse appends until the log is opened again and recovered."""
        self._state.durable.failure = error

    def _closed_to_records(self) -> StorageError:
        return StorageError(f"{self.topic_partition} accepts no appends until a restart: {self.failure}")

    # --- append

    def append(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        allows_zstd: bool = True,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        admitted: ValidatedBatch | None = None,
        bounded: bool = False,
        budget: CheckBudget | None = None,
    ) -> AppendResult:
        """Append a client's record batch at the log end; offset and leader epoch are set in `records`, in place.

        `admitted` is the result of `validate_in_steps` for these records. `bounded` limits the time: a batch that needs
        more raises `ValidationTakesLong`, and nothing has changed. `budget` is that of the sender, for checks.

        Visible to `read` on return (a classic set when it is flushed), durable after a flush. A duplicate batch of an
        idempotent producer is not appended again and gets the first result. Raises `ApiError` for what a client may not
        append (`validate`, `ProducerStates.check`), `StorageError` for a failed write: the log is unchanged then.
        """
        state = self._state
        if state.durable.failure is not None:
            raise self._closed_to_records()
        if admitted is not None:
            entry = admitted
        else:
            try:
                entry = state.format.validate(
                    records,
                    state.config,
                    state.codecs,
                    now_ms=now_ms,
                    allows_zstd=allows_zstd,
                    origin=origin,
                    budget=budget,
                )
            except ValidationTakesLong:
                if bounded:
                    raise
                steps = self.validate_in_steps(records, clock_ms=lambda: now_ms, allows_zstd=allows_zstd, origin=origin)
                entry = complete(steps)
        header = entry.header
        if header is not None and header.producer_id >= 0:
            known = state.producers.states.check(header, origin)
            if known is not None:
                append_time = known.timestamp if entry.log_append_time_ms >= 0 else -1
                return AppendResult(Offset(known.base_offset), Offset(known.last_offset), append_time, state.start)
        return self._append(entry, leader_epoch, now_ms)

    def validate_in_steps(
        self,
        records: memoryview,
        *,
        clock_ms: Callable[[], int],
        allows_zstd: bool,
        origin: AppendOrigin,
        unpacked_max: int = DECOMPRESSED_BYTES_MAX,
        whole: bool = False,
    ) -> Steps[ValidatedBatch]:
        """Validate the batch and apply the settings of the topic, in bounded pieces, before `append` gets the result.

        Raises as `validate_batch_in_steps`.
        """
        state = self._state
        return state.format.validate_in_steps(
            records,
            state.config,
            state.codecs,
            clock_ms=clock_ms,
            allows_zstd=allows_zstd,
            origin=origin,
            unpacked_max=unpacked_max,
            whole=whole,
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        *,
        leader_epoch: int,
        now_ms: int,
        bumps_epoch: bool = False,
    ) -> AppendResult:
        """Append the marker that ends the transaction of a producer; without one it has no effect on readers.
        `bumps_epoch`: the transaction has version 2.

        Raises `ApiError` INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for a stale marker,
        `StorageError` for a failed write: the log is unchanged then.
        """
        state = self._state
        if state.durable.failure is not None:
            raise self._closed_to_records()
        states = state.producers.states
        states.check_marker(producer_id, producer_epoch, coordinator_epoch, bumps_epoch=bumps_epoch)
        marker = EndTransactionMarker(committed, coordinator_epoch)
        is_append_time = state.config.message_timestamp_type == LOG_APPEND_TIME
        batch = encode_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            now_ms=now_ms,
            log_append_time=is_append_time,
        )
        entry = ValidatedBatch(batch, 1, 1, now_ms if is_append_time else -1, parse_header(batch))
        return self._append(entry, leader_epoch, now_ms, marker)

    def _append(
        self, entry: ValidatedBatch, leader_epoch: int, now_ms: int, marker: EndTransactionMarker | None = None
    ) -> AppendResult:
        ready, span, messages, append_time, header = entry
        state = self._state
        base = state.end
        last = Offset(base + span - 1)
        if last >= LONG_MAX:
            raise ApiError(ErrorCode.INVALID_RECORD, f"offset overflow in {self.topic_partition}")
        if span:
            segment = state.segments.active
            if segment.should_roll(entry, last, state.config, jitter_ms=self._jitter_ms, now_ms=now_ms):
                segment = self._roll(now_ms, base)
            state.format.stamp(ready, base, leader_epoch)
            segment.append(entry, base_offset=base, now_ms=now_ms)
            if leader_epoch != state.epochs.latest and state.format.has_leader_epochs:
                state.epochs.assign(leader_epoch, base)
            if header is not None and header.producer_id >= 0:
                state.producers.appended(segment, header, base, marker, now_ms)
                state.durable.new_names |= marker is not None  # .txnindex may be new
            state.end = Offset(last + 1)
            state.durable.appended += messages
        return AppendResult(base, last, append_time, state.start, messages)

    def append_replicated(self, records: memoryview, *, now_ms: int) -> ReplicatedAppendResult:
        """Append complete batches from the leader with their offsets and leader epochs; a truncated last one is left
        out.

        Producer checks are skipped: the leader has made them for control batches, transactions and sequences. Raises
        `ApiError` CORRUPT_MESSAGE when the first batch does not fit the log (see `whole_batches`), `StorageError` for a
        failed write: earlier segments keep their batches.
        """
        state = self._state
        durable, epochs = state.durable, state.epochs
        if durable.failure is not None:
            raise self._closed_to_records()
        start, size, messages = state.start, 0, 0
        headers = whole_batches(records, state.end, epochs.latest, empty=state.local_start == state.end)
        if headers and headers[0].base_offset < start:
            self.truncate_fully_and_start_at(headers[0].base_offset, now_ms)
        while headers:
            segment, count = self._room(headers, now_ms)
            run, headers = headers[:count], headers[count:]
            bytes_of_run = sum([header.size for header in run])
            segment.append_run(records[size : size + bytes_of_run], run, now_ms=now_ms)
            for header in run:
                if header.leader_epoch != epochs.latest:
                    epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    marker = self._marker_in(records[size:], header) if header.control else None
                    state.producers.appended(segment, header, header.base_offset, marker, now_ms)
                    durable.new_names |= marker is not None
                messages += header.count
                durable.appended += header.count
                size += header.size
            state.end = run[-1].next_offset
            state.advance_log_start(start)
        return ReplicatedAppendResult(size, messages, state.end)

    def _marker_in(self, batch: memoryview, header: BatchHeader) -> EndTransactionMarker | None:
        try:
            return read_marker(batch, header)
        except ApiError as error:
            self._state.report(f"{self.topic_partition}: {error.message}; its transaction stays open")
            return None

    def _room(self, headers: Sequence[BatchHeader], now_ms: int) -> tuple[Segment, int]:
        """Return the segment for the next batches, and how many fit in it. Raises `StorageError`."""
        config, segment = self._state.config, self._state.segments.active
        assert isinstance(segment, Segment)
        count = count_fitting(segment, headers, config, jitter_ms=self._jitter_ms, now_ms=now_ms)
        base = headers[0].base_offset
        if count and headers[0].last_offset - segment.base_offset <= INT_MAX:
            return segment, count
        segment = self._roll(now_ms, base)
        assert isinstance(segment, Segment)
        return segment, count_fitting(segment, headers, config, jitter_ms=self._jitter_ms, now_ms=now_ms)

    def roll(self, now_ms: int) -> None:
        """Roll a new active segment unless the current one is empty. Raises `StorageError`."""
        if self._state.segments.active.size:
            self._roll(now_ms, self._state.end)

    def _roll(self, now_ms: int, base: Offset) -> LogSegment:
        """Seal the active segment and begin one at `base`. Raises `StorageError`; then nothing has changed."""
        state = self._state
        items = state.segments.items
        if items[-1].size or base == state.end:
            items[-1].seal()
        else:
            items = items[:-1]  # nothing is in it, and the next offset is too far from its base
        if state.format.reads_flushed_only:
            self.flushes.now(now_ms)  # before the next file has a name: recovery opens the newest alone (facts A4)
        segment = state.create_segment(base, now_ms)
        if state.format.has_producers and not self.hidden_producers_at:
            state.producers.take_snapshot(base)
        dropped = state.segments.items[len(items) :]
        state.segments = SegmentList((*items, segment))
        for empty in dropped:
            empty.delete()
        self._jitter_ms = self._draw_jitter()
        state.durable.at_roll = state.durable.appended
        if self.rolled is not None:
            self.rolled(self)
        return segment

    def _draw_jitter(self) -> int:
        bound = min(self.config.segment_jitter_ms, self.config.roll_ms)
        return self._entropy.below(bound) if bound > 0 and self._entropy is not None else 0

    # --- read

    def read(self, offset: int, *, max_bytes: int, limit: int, whole_first_batch: bool = True) -> LogSlice:
        """Read batches of one segment from the one with `offset` on, below `limit` (exclusive; complete batches).

        About `max_bytes`: the last batch may be truncated there. The first is complete even if larger, or without
        `whole_first_batch` left out. Empty at and above the limit. A classic log returns bytes from exactly `offset`
        on, at most `max_bytes`, regardless of message boundaries. Raises `ApiError` OFFSET_OUT_OF_RANGE, or
        CORRUPT_MESSAGE where the log is damaged; `StorageError`.
        """
        state = self._state
        start, end = state.local_start, state.readable_end
        if not start <= offset <= end:
            if state.start <= offset < start:
                text = f"{self.topic_partition} has offsets below {start} in remote storage only"
                raise ApiError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, text)
            start = state.start
            text = f"offset {offset} is out of range for {self.topic_partition}: it has offsets {start} to {end}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        segments = state.segments
        place = segments.find(Offset(offset), Offset(limit) if limit < end else end, state.end)
        if place is None:
            return EMPTY_SLICE
        number, position, first_batch_size, end_position = place
        left = end_position - position
        size = left if left < max_bytes else max_bytes
        if size < first_batch_size:
            if not whole_first_batch:
                return EMPTY_SLICE
            size = first_batch_size
        segment = segments.items[number]
        return _new(LogSlice, (segment.region(position, size), segment.base_offset, position))

    def available_bytes(self, offset: int, limit: int, max_bytes: int) -> int:
        """Return the bytes readable from `offset` up to `limit`, at most `max_bytes`; 0 outside the log."""
        state = self._state
        if offset < state.start:
            return 0
        limit = min(limit, state.readable_end)
        return state.segments.available_bytes(Offset(offset), Offset(limit), state.end, max_bytes)

    # --- retention and truncation

    def retain(self, now_ms: int, high_watermark: int, *, awaits_producers: bool = False) -> Steps[list[LogSegment]]:
        """Remove the segments that retention deletes: rename their files to *.deleted and return them.

        Whole segments only, oldest first, below the high watermark (facts B3). The owner calls `delete` of
        each after `file_delete_delay_ms`, on any thread. None while segments are replaced. In steps: a worker makes
        the producers durable first. Raises `StorageError`.

        awaits_producers: local retention leaves what follows damage that hides producers: a repair may bring them back.
        """
        state = self._state
        count = self._count_removable(now_ms, high_watermark, awaits_producers=awaits_producers)
        if count == len(state.segments.items):
            try:
                self._roll(now_ms, state.end)
            except StorageError:
                count -= 1  # no space for another segment: that of the others makes some
                if not count:
                    raise
        if not count:
            return []
        base, truncations = state.segments.bases[count], state.durable.truncations
        if (yield from self._secure_producers(base, now_ms)):
            return self._remove_segments(count)
        # The log may have changed meanwhile.
        if state.closed or truncations != state.durable.truncations or state.durable.failure is not None:
            return []
        count = bisect_left(state.segments.bases, base)
        if (
            base not in state.segments.bases
            or self._count_removable(now_ms, high_watermark, awaits_producers=awaits_producers) < count
        ):
            return []
        return self._remove_segments(count)

    def _count_removable(self, now_ms: int, high_watermark: int, *, awaits_producers: bool) -> int:
        if self.replacer.under_way:
            return 0
        state = self._state
        infos = state.segments.infos(state.end)
        deletable_to, config = high_watermark, state.config
        if config.copies:
            deletable_to, config = min(high_watermark, state.remote_end), local_retention_config(config)
            if awaits_producers and (hidden := self.hidden_producers_at):
                # Without the segment there is no repair, and with a snapshot that lacks them no later start would know.
                deletable_to = min(deletable_to, hidden[0])
        bounds = (min(state.start, high_watermark), deletable_to)
        count, empty_one_too = removable(self.policy, infos, bounds, now_ms, config, state.report)
        if empty_one_too:
            state.segments.active.modified_ms = now_ms  # it stays, as if created now (facts A4)
        return count

    def _secure_producers(self, base: Offset, now_ms: int) -> Steps[bool]:
        """Make the producers at `base` durable before the segments below are removed: after a crash the log would not
        know those whose records are all in them. Return True if that took no time. Raises `StorageError`."""
        state, producers = self._state, self._state.producers
        if not producers.states.producers or producers.is_durable(base):
            return True
        if state.durable.failure is not None:
            return False
        content = producers.content_at(base)
        work = None
        try:
            if content is None:
                content = yield self.snapshot_at(base, now_ms)
            if not state.closed:
                work = self.flushes.begin_snapshot(base, content)
                yield work
                self.flushes.end_snapshot(work)
        except (StorageError, ClosedError) as error:
            if state.closed:
                return False
            if work is not None and isinstance(error, StorageError):
                self.flushes.end_snapshot(work, error)
            if state.durable.failure is not None:
                raise
            # A full disk needs the space of the segments more than the snapshot.
            state.report(f"{self.topic_partition}: cannot write the producers at offset {base}: {error}")
        return False

    def _remove_segments(self, count: int) -> list[LogSegment]:
        state = self._state
        removed: list[LogSegment] = []
        try:
            for segment in state.segments.items[:count]:
                segment.rename(DELETED_SUFFIX)
                removed.append(segment)
        finally:
            if removed:
                state.segments = SegmentList(state.segments.items[len(removed) :])
                state.set_local_start()
                state.producers.delete_snapshots_before(state.segments.bases[0])
                for segment in removed:
                    segment.close()
        return removed

    def advance_log_start(self, offset: int) -> None:
        """Raise the log start offset; `retain` deletes the segments below it.

        Raises `ApiError` OFFSET_OUT_OF_RANGE above the readable end; an offset below the current start has no effect.
        """
        if offset > (end := self.readable_end):
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} ends at {end}, below {offset}")
        self._state.advance_log_start(Offset(offset))

    def truncate_to(self, offset: int, now_ms: int = 0) -> None:
        """Truncate the log to `offset`; a batch that contains it is dropped as a whole.

        Below the log start the log restarts empty at `offset`. Raises `StorageError`; the log is then out of use.
        """
        if offset >= self._state.end:
            return
        offset = Offset(offset)
        self._state.durable.truncated(offset)
        self._state.remote_end = min(self._state.remote_end, offset)  # remote storage has other records there
        try:
            self.replacer.note_truncation(offset)
            self._truncate(offset, now_ms)
        except StorageError as error:
            self.fail(error)
            raise

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Delete all records and continue at `offset`. Raises `StorageError`; the log then refuses appends."""
        offset = Offset(offset)
        self._state.durable.truncated(offset)
        self._state.remote_end = min(self._state.remote_end, offset)
        try:
            self.replacer.note_truncation(offset)
            self._state.truncate_fully_to(offset, now_ms)
        except StorageError as error:
            self.fail(error)
            raise

    def reload_producers(self, now_ms: int) -> Steps[None]:
        """Read the producers again after the repair of a segment, if damage has hidden some.

        In steps: a worker reads closed segments, so that the owner reads no more than what is appended meanwhile.
        Raises `StorageError`.
        """
        state = self._state
        while self.hidden_producers_at:
            self.roll(now_ms)
            active, truncations = state.segments.active, state.durable.truncations
            closed = [each for each in state.segments.items[:-1] if isinstance(each, Segment)]
            if not closed:
                return
            try:
                read = yield state.producers.begin_reload(closed, active.base_offset, now_ms)
            except (StorageError, ClosedError):
                if state.closed:
                    return
                if set(closed) <= set(state.segments.items):
                    raise
                continue  # retention has removed a segment
            if state.closed:
                return
            if truncations != state.durable.truncations:
                continue  # the truncation has read the producers
            rest = sum([each.size for each in state.segments.items if each.base_offset >= read.end])
            if rest <= _RELOADED_AT_ONCE:
                state.producers.end_reload(read, state.segments.items, state.end, now_ms)
                return

    def snapshot_at(self, offset: int, now_ms: int) -> Callable[[], bytes]:
        """Return work that reads the producers at the end of a closed segment, as a snapshot file has them.

        Any thread may call the work. It raises `StorageError`.
        """
        state = self._state
        closed = [each for each in state.segments.items if isinstance(each, Segment) and each.base_offset < offset]
        return state.producers.snapshot_at(closed, Offset(offset), now_ms)

    @property
    def lacks_producer_state(self) -> bool:
        """True if a restart of the log in the middle (`restart_at`) was not completed."""
        state = self._state
        first = state.segments.bases[0]
        return state.start < first == state.end and not state.producers.has_snapshot(first)

    def restart_at(
        self, offset: int, *, log_start: int, epochs: Sequence[tuple[int, int]], snapshot: bytes, now_ms: int
    ) -> None:
        """Delete all segments and continue at `offset`, with what remote storage has of the log below.

        `epochs` and `snapshot`: the leader epochs and the producers at `offset`. Durable on return. Raises
        `StorageError`; the log then refuses appends. Raises `ValueError` for a corrupt snapshot; nothing has changed.
        """
        state, at = self._state, Offset(offset)
        check_snapshot(snapshot)
        self.truncate_fully_and_start_at(at, now_ms)
        try:
            state.producers.restart_from(at, snapshot, now_ms)
            state.folder.write_small(LEADER_EPOCHS, format_epochs(epochs))
        except StorageError as error:
            self.fail(error)
            raise
        state.epochs.replace(epochs)
        state.start = Offset(min(log_start, at))
        state.epochs.truncate_from_start(state.start)

    def _truncate(self, offset: Offset, now_ms: int) -> None:
        state = self._state
        items, bases = state.segments.items, state.segments.bases
        if offset < state.start or offset < bases[0]:
            state.truncate_fully_to(offset, now_ms)
            return
        keep = max(1, bisect_left(bases, offset))  # a segment that begins at the offset goes as a whole
        for segment in reversed(items[keep:]):
            segment.delete()
        state.folder.flush()  # else one may reappear behind the new end
        state.segments = SegmentList(items[:keep])
        end = state.segments.active.cut(offset)
        if end < state.start:
            state.truncate_fully_to(state.start, now_ms)
            return
        state.end = end
        state.durable.lower(end)
        state.epochs.truncate_from_end(end)
        state.producers.load(state.segments.items, end, now_ms)

    # --- close

    def close(self, now_ms: int = 0) -> None:
        """Write the indexes, flush the log, close the files. A second call has no effect. Raises `StorageError`."""
        state = self._state
        if state.closed:
            return
        durable, active = state.durable, state.segments.active
        try:
            if durable.failure is None:
                active.write_indexes()
            if durable.failure is None and (state.epochs.changed or not durable.is_as_found):
                if state.format.has_producers and not self.hidden_producers_at:
                    state.producers.take_shutdown_snapshot(state.end, state.segments.bases[0])
                self.flushes.now(now_ms)
                for file in active.index_files():
                    if file.size:
                        file.flush()
        finally:
            self.abandon()
        if durable.failure is not None:
            raise durable.failure

    def abandon(self) -> None:
        """Close the files without a flush: the log is deleted, or its disk has failed."""
        self._state.closed = True
        for segment in self._state.segments.items:
            segment.close()


def whole_batches(records: memoryview, end: Offset, latest_epoch: int, *, empty: bool) -> list[BatchHeader]:
    """Return the headers of the complete batches up to the first that a log with end `end` cannot append.

    An `empty` log accepts a first batch that begins below its end: records were deleted up to the middle of it. An
    incomplete batch at the end of `records` is left out. Offsets may leave gaps (compaction), but neither they nor the
    leader epochs decrease. Raises `ApiError` CORRUPT_MESSAGE when the log cannot append the first batch.
    """
    headers: list[BatchHeader] = []
    position, size = 0, len(records)
    while position + HEADER_SIZE <= size:
        try:
            header = parse_header(records, position)
            if position + header.size > size:
                break
            if empty and not headers and header.base_offset < end < header.next_offset:
                end = header.base_offset
            _check(records, position, header, end, latest_epoch)
        except ApiError as error:
            if headers:
                break  # the next fetch begins with it
            text = f"batch from the leader at offset {end}: {error.message}"
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, text) from error
        headers.append(header)
        position += header.size
        end, latest_epoch = header.next_offset, header.leader_epoch
    return headers


def _check(records: memoryview, position: int, header: BatchHeader, end: Offset, latest_epoch: int) -> None:
    if not is_crc_valid(records, header, position):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the CRC-32C of the batch does not match its content")
    if header.base_offset < end:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch with base offset {header.base_offset}")
    if header.leader_epoch < latest_epoch:
        text = f"a batch of leader epoch {header.leader_epoch} after one of epoch {latest_epoch}"
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, text)
