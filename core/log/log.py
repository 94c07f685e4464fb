"""The log of one partition: an append-only sequence of batches in segments (facts B2, B3, B6).

The segments are an immutable tuple that is replaced as a whole, so that readers never wait. Nothing here blocks but
reads and writes of the page cache; what makes durable is `begin_flush`, whose work runs elsewhere.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from attrs import evolve

from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.storage import Folder, StorageError
from ...ports.words import Offset, TopicPartition
from ..message.batch_header import BatchHeader, parse_header
from ..message.codec import Codecs
from ..message.markers import Marker, encode_marker, read_marker
from . import losses
from .admission import LOG_APPEND_TIME
from .checkpoints import Noted, Sealed, read_epochs
from .config import LONG_MAX, LogConfig
from .durability import Durability
from .format import Admitted, LogSegment
from .formats import log_format
from .leader_epochs import LeaderEpochs
from .log_flushes import LogFlushes
from .log_reads import LogReads
from .log_swaps import LogSwaps
from .log_transactions import LogTransactions
from .names import DELETED_SUFFIX
from .origin import AppendOrigin
from .producer_state_files import ProducerLedger
from .recovered import Recovered
from .replicated import Replicated, whole_batches
from .results import Appended, LogSlice, TimestampOffset
from .retention import DeletionPolicy, removable
from .rolling import fitting
from .segment import INT_MAX, Segment
from .segment_list import SegmentList

__all__ = ["Appended", "Log", "LogSlice", "TimestampOffset"]


class Log(LogReads, LogTransactions, LogFlushes, LogSwaps):
    """Made by `Log.open`. Owner thread only; `FlushWork`, regions and removed segments may go to other threads."""

    def __init__(
        self,
        folder: Folder,
        topic_partition: TopicPartition,
        config: LogConfig,
        codecs: Codecs,
        deletion_policy: DeletionPolicy,
        report: Callable[[str], None],
        entropy: Entropy | None,
    ) -> None:
        self.topic_partition = topic_partition
        self.epochs = LeaderEpochs()
        self._ledger = ProducerLedger(folder, report)
        self.closed = False
        self.lost_end = False
        """True if it ended below its recovery point when it was opened: durable messages are gone."""
        self._may_end_early = False
        self.rolled: Callable[[Log], None] | None = None
        """Called after a new segment was begun: a good time to flush the sealed ones."""
        self._folder = folder
        self._config = config
        self.format_name = config.message_format
        """Of the entries; it stays what it is, whatever the configuration says later."""
        self._format = log_format(config.message_format)
        self._codecs = codecs
        self.policy = deletion_policy
        self.policy_name = config.deletion_policy
        """Of the policy in use, so that the owner can bring another one when the configuration changes."""
        self._report = report
        self._entropy = entropy
        self._durable = Durability()
        self._start = self._end = Offset(0)
        self._segments: SegmentList
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
        sealed: Collection[Sealed] = (),
        may_end_early: bool = False,
        report: Callable[[str], None] = lambda _: None,
        entropy: Entropy | None = None,
    ) -> "Log":
        """Open what is in the folder, or begin a log there.

        With `recover` (no orderly stop before) all from `recovery_point` on is checked, and cut at the first bad batch.
        `sealed` segments are known to follow each other; `entropy` draws the roll jitter. A log that ends below its
        recovery point goes on there, or with `may_end_early` where it ends: other replicas have the rest. Raises
        `StorageError`.
        """
        log = cls(folder, topic_partition, config, codecs, deletion_policy, report, entropy)
        log.epochs = LeaderEpochs(read_epochs(folder, report))
        log._may_end_early = may_end_early
        log._load(now_ms, Noted(Offset(recovery_point), Offset(log_start_offset), sealed), recover=recover)
        return log

    def _load(self, now_ms: int, noted: Noted, *, recover: bool) -> None:
        recovery_point, log_start_offset, _ = noted
        recovery = Recovered(self.epochs, self._ledger, now_ms)
        loaded = self._format.load(
            self._folder,
            self._config,
            now_ms=now_ms,
            report=self._report,
            recover=recover,
            noted=noted,
            recovery=recovery,
        )
        self._durable.flushed_at(now_ms)
        if not loaded.segments:
            self._start_anew(max(Offset(0), log_start_offset), now_ms)
            if recovery_point > self._end:
                self._ends_below(recovery_point, now_ms)
            return
        self._segments = SegmentList(loaded.segments)
        self._end = loaded.end
        self._start = max(loaded.segments[0].base_offset, log_start_offset)
        if self._start > loaded.end:
            self._report(f"{self.topic_partition}: ends at {loaded.end}, before its start {self._start}; begun anew")
            self._begin_anew(self._start, now_ms)
            return
        self._durable.opened(loaded.recovery_point, self._end, in_order=not recover)
        if loaded.end < recovery_point:
            self._ends_below(recovery_point, now_ms)
        self._ledger.load(self._segments.items, self._end, now_ms)
        if recovery.lacks_epochs(self._start) and self._format.keeps_epochs:
            self._read_epochs()
        self.epochs.truncate_from_start(self._start)
        self.epochs.truncate_from_end(self._end)  # last: of an epoch that begins where the log ends nothing is here

    def _read_epochs(self) -> None:
        """The checkpoint of the epochs is lost, or knows of a later start than the log has: the batches know them."""
        for segment in self._segments.items:
            for _, header in segment.batches():
                self.epochs.found(header.leader_epoch, header.base_offset)

    def _ends_below(self, recovery_point: Offset, now_ms: int) -> None:
        ends = self._format.flushed_only or self._may_end_early
        self.lost_end = True
        self._report(losses.end_lost(self.topic_partition, self._end, recovery_point, goes_on=not ends))
        if ends:
            return
        kept = losses.without_empty_end(self._segments.items)
        self._segments = SegmentList((*kept, self._new_segment(recovery_point, now_ms)))
        self._start, self._end = max(self._start, self._segments.bases[0]), recovery_point
        self._durable.opened(recovery_point, recovery_point, in_order=False)

    # --- what it is

    @property
    def config(self) -> LogConfig:
        return self._config

    def update_config(self, config: LogConfig, deletion_policy: DeletionPolicy | None = None) -> None:
        """Go by another configuration, in the format that the log has; without a policy the present one stays."""
        if config.message_format != self.format_name:
            config = evolve(config, message_format=self.format_name)
        before, self._config = self._config, config
        if (config.segment_jitter_ms, config.roll_ms) != (before.segment_jitter_ms, before.roll_ms):
            self._jitter_ms = self._draw_jitter()
        if deletion_policy is not None:
            self.policy, self.policy_name = deletion_policy, config.deletion_policy
        for segment in self._segments.items:
            segment.index_interval_bytes = config.index_interval_bytes

    @property
    def log_start_offset(self) -> Offset:
        return self._start

    @property
    def log_end_offset(self) -> Offset:
        return self._end

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments.items)

    # --- append

    def append(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        allows_zstd: bool = True,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> Appended:
        """Append a client's record batch at the log end; offset and leader epoch are set in `records`, in place.

        Visible to `read` on return (a classic set when it is flushed), durable after a flush. What an idempotent
        producer sends again is not appended again: the answer is the first one. Raises `ApiError` for what a client may
        not append (`admit`, `ProducerStates.check`), `StorageError` when it cannot be written: the log is as it was.
        """
        if self._durable.failure is not None:
            raise self._closed_to_records()
        entry = self._format.admit(
            records, self._config, self._codecs, now_ms=now_ms, allows_zstd=allows_zstd, origin=origin
        )
        header = entry.header
        if header is not None and header.producer_id >= 0:
            known = self._ledger.states.check(header, origin)
            if known is not None:
                append_time = known.timestamp if entry.log_append_time_ms >= 0 else -1
                return Appended(Offset(known.base_offset), Offset(known.last_offset), append_time, self._start)
        return self._append(entry, leader_epoch, now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended:
        """End the transaction that a producer is in, as its coordinator says; where it is in none nobody sees it.

        Raises `ApiError` INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED for what has come too late,
        `StorageError` when it cannot be written: the log is as it was.
        """
        if self._durable.failure is not None:
            raise self._closed_to_records()
        self._ledger.states.check_marker(producer_id, producer_epoch, coordinator_epoch)
        marker = Marker(committed, coordinator_epoch)
        is_append_time = self._config.message_timestamp_type == LOG_APPEND_TIME
        batch = encode_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            now_ms=now_ms,
            log_append_time=is_append_time,
        )
        entry = Admitted(batch, 1, 1, now_ms if is_append_time else -1, parse_header(batch))
        return self._append(entry, leader_epoch, now_ms, marker)

    def _append(self, entry: Admitted, leader_epoch: int, now_ms: int, marker: Marker | None = None) -> Appended:
        ready, span, messages, append_time, header = entry
        base = self._end
        last = Offset(base + span - 1)
        if last >= LONG_MAX:
            raise ApiError(ErrorCode.INVALID_RECORD, f"the offsets of {self.topic_partition} have come to their end")
        if span:
            segment = self._segments.active
            if segment.must_roll(entry, last, self._config, jitter_ms=self._jitter_ms, now_ms=now_ms):
                segment = self._roll(now_ms, base)
            self._format.stamp(ready, base, leader_epoch)
            segment.append(entry, base_offset=base, now_ms=now_ms)
            if leader_epoch != self.epochs.latest and self._format.keeps_epochs:
                self.epochs.assign(leader_epoch, base)
            if header is not None and header.producer_id >= 0:
                self._ledger.appended(segment, header, base, marker, now_ms)
                self._durable.new_names |= marker is not None  # .txnindex may have come
            self._end = Offset(last + 1)
            self._durable.appended += messages
        return Appended(base, last, append_time, self._start, messages)

    def append_replicated(self, records: memoryview, *, now_ms: int) -> Replicated:
        """Append what a leader sent: whole batches, offsets and leader epochs kept. One cut at the end is left out.

        Nothing is refused for what a client did: control batches, transactions and sequences are as the leader took
        them. Raises `ApiError` CORRUPT_MESSAGE when the first batch does not fit the log (see `whole_batches`),
        `StorageError` when it cannot be written: segments before the one that failed keep theirs.
        """
        if self._durable.failure is not None:
            raise self._closed_to_records()
        start, size, messages = self._start, 0, 0
        headers = whole_batches(records, self._end, self.epochs.latest, empty=start == self._end)
        if headers and headers[0].base_offset < start:
            self.truncate_fully_and_start_at(headers[0].base_offset, now_ms)
        while headers:
            segment, count = self._room(headers, now_ms)
            run, headers = headers[:count], headers[count:]
            bytes_of_run = sum([header.size for header in run])
            segment.append_run(records[size : size + bytes_of_run], run, now_ms=now_ms)
            for header in run:
                if header.leader_epoch != self.epochs.latest:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    marker = self._marker_in(records[size:], header) if header.control else None
                    self._ledger.appended(segment, header, header.base_offset, marker, now_ms)
                    self._durable.new_names |= marker is not None
                messages += header.count
                self._durable.appended += header.count
                size += header.size
            self._end = run[-1].next_offset
            self._move_start(start)
        return Replicated(size, messages, self._end)

    def _marker_in(self, batch: memoryview, header: BatchHeader) -> Marker | None:
        try:
            return read_marker(batch, header)
        except ApiError as error:
            self._report(f"{self.topic_partition}: {error.message}; what it ended counts as open")
            return None

    def _room(self, headers: Sequence[BatchHeader], now_ms: int) -> tuple[Segment, int]:
        """The segment that the batches go to, and how many of them. Raises `StorageError`."""
        segment = self._segments.active
        assert isinstance(segment, Segment)
        count = fitting(segment, headers, self._config, jitter_ms=self._jitter_ms, now_ms=now_ms)
        base = headers[0].base_offset
        if count and headers[0].last_offset - segment.base_offset <= INT_MAX:
            return segment, count
        segment = self._roll(now_ms, base)
        assert isinstance(segment, Segment)
        return segment, fitting(segment, headers, self._config, jitter_ms=self._jitter_ms, now_ms=now_ms)

    def _roll(self, now_ms: int, base: Offset) -> LogSegment:
        """Seal the active segment and begin one at `base`. Raises `StorageError`; then nothing has changed."""
        kept = self._segments.items
        if kept[-1].size or base == self._end:
            kept[-1].seal()
        else:
            kept = kept[:-1]  # nothing is in it, and the next offset is too far from its base
        if self._format.flushed_only:
            self.flush(now_ms)  # before the next file has a name: recovery opens the newest segment alone (facts A4)
        segment = self._new_segment(base, now_ms)
        if self._format.keeps_producers:
            self._ledger.take(base)
        dropped = self._segments.items[len(kept) :]
        self._segments = SegmentList((*kept, segment))
        for empty in dropped:
            empty.delete()
        self._jitter_ms = self._draw_jitter()
        self._durable.at_roll = self._durable.appended
        if self.rolled is not None:
            self.rolled(self)
        return segment

    def _new_segment(self, base_offset: Offset, now_ms: int) -> LogSegment:
        self._durable.new_names = True
        return self._format.begin_segment(self._folder, base_offset, self._config, now_ms=now_ms, report=self._report)

    def _draw_jitter(self) -> int:
        bound = min(self._config.segment_jitter_ms, self._config.roll_ms)
        return self._entropy.below(bound) if bound > 0 and self._entropy is not None else 0

    # --- retention and truncation

    def retain(self, now_ms: int, high_watermark: int) -> list[LogSegment]:
        """Take the segments away that the log need not keep: their files are renamed to *.deleted, and returned.

        Whole segments only, oldest first, below the high watermark (facts B3). The owner calls `delete` of
        each after `file_delete_delay_ms`, on any thread. None while segments are exchanged. Raises `StorageError`.
        """
        if self.swapping:
            return []
        infos = self._segments.infos(self._end)
        bounds = (min(self._start, high_watermark), high_watermark)
        count, empty_one_too = removable(self.policy, infos, bounds, now_ms, self._config, self._report)
        if empty_one_too:
            self._segments.active.modified_ms = now_ms  # it is kept, as if just begun (facts A4)
        if not count:
            return []
        if count == len(infos):
            self._roll(now_ms, self._end)
        return self._take_away(count)

    def _take_away(self, count: int) -> list[LogSegment]:
        removed: list[LogSegment] = []
        try:
            for segment in self._segments.items[:count]:
                segment.rename(DELETED_SUFFIX)
                removed.append(segment)
        finally:
            if removed:
                self._segments = SegmentList(self._segments.items[len(removed) :])
                self._move_start(self._segments.bases[0])
                self._ledger.drop_below(self._segments.bases[0])
                for segment in removed:
                    segment.close()
        return removed

    def advance_start(self, offset: int) -> None:
        """Records below `offset` are no longer served; their segments go at the next `retain`.

        Raises `ApiError` OFFSET_OUT_OF_RANGE above the readable end; a lower one than the present start does nothing.
        """
        if offset > (end := self.readable_end):
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} ends at {end}, before {offset}")
        self._move_start(Offset(offset))

    def _move_start(self, offset: Offset) -> None:
        if offset > self._start:
            self._start = offset
            self.epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int, now_ms: int = 0) -> None:
        """Drop everything from `offset` on; a batch that reaches over it goes as a whole.

        Below the log start the log begins anew at `offset`. Raises `StorageError`; the log is then out of use.
        """
        if offset >= self._end:
            return
        offset = Offset(offset)
        self._durable.truncated(offset)
        try:
            self.note_cut(offset)
            self._truncate(offset, now_ms)
        except StorageError as error:
            self.fail(error)
            raise

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Drop everything; the next batch may have `offset`. Raises `StorageError`; the log is then out of use."""
        offset = Offset(offset)
        self._durable.truncated(offset)
        try:
            self.note_cut(offset)
            self._begin_anew(offset, now_ms)
        except StorageError as error:
            self.fail(error)
            raise

    def _truncate(self, offset: Offset, now_ms: int) -> None:
        items, bases = self._segments.items, self._segments.bases
        if offset < self._start or offset < bases[0]:
            self._begin_anew(offset, now_ms)
            return
        keep = max(1, bisect_left(bases, offset))  # a segment that begins at the offset goes as a whole
        for segment in reversed(items[keep:]):
            segment.delete()
        self._folder.flush()  # else one may come back behind the cut
        self._segments = SegmentList(items[:keep])
        end = self._segments.active.cut(offset)
        if end < self._start:
            self._begin_anew(self._start, now_ms)
            return
        self._end = end
        self._durable.lower(end)
        self.epochs.truncate_from_end(end)
        self._ledger.load(self._segments.items, end, now_ms)

    def _begin_anew(self, offset: Offset, now_ms: int) -> None:
        for segment in reversed(self._segments.items):
            segment.delete()
        self._start_anew(offset, now_ms)
        self._folder.flush()  # else the old ones may come back

    def _start_anew(self, offset: Offset, now_ms: int) -> None:
        self._ledger.begin_anew()
        self._segments = SegmentList((self._new_segment(offset, now_ms),))
        self._start = self._end = offset
        self._durable.begun_anew(offset)
        self.epochs.clear()

    # --- the end

    def close(self, now_ms: int = 0) -> None:
        """Write the indexes, make everything durable, release the files. Twice is harmless. Raises `StorageError`."""
        if self.closed:
            return
        try:
            if self._durable.failure is None:
                self._segments.active.write_indexes()
            if self._durable.failure is None and (self.epochs.changed or not self._durable.is_as_found):
                if self._format.keeps_producers:
                    self._ledger.take_at_stop(self._end, self._segments.bases[0])
                self.flush(now_ms)
                for file in self._segments.active.side_files():
                    if file.size:
                        file.flush()
        finally:
            self.abandon()
        if self._durable.failure is not None:
            raise self._durable.failure

    def abandon(self) -> None:
        """Release the files without making anything durable: the log is deleted, or its disk has failed."""
        self.closed = True
        for segment in self._segments.items:
            segment.close()
