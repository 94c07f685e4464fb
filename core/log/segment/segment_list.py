"""The segments of a log as an immutable value, which a change replaces as a whole (Kafka: LogSegments)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.storage import File, Region
from ....ports.types import Offset, Position
from ...message.batch_header import HEADER_SIZE, BatchHeader, parse_header, records_of, verify_crc
from ...message.codec import DECOMPRESSED_BYTES_MAX, Codecs
from ...message.varint import LONG_BYTES_MAX, read_raw, undo_zigzag
from ...traffic.steps import Steps
from ..log_format import LogSegment
from ..retention import SegmentInfo
from .damage import Gap, OffsetsDamaged
from .offset_index import CorruptIndex
from .segment import NO_TIMESTAMP, Segment
from .transaction_index import AbortedTxn

_BEGINNING = Position(0)
_new = tuple.__new__  # as in `log`
_HEADERS_PER_STEP = 64
_SMALL_BYTES = 65_536
"""A batch up to this size that is not compressed is opened without a worker."""


class ReadStart(NamedTuple):
    """The start of a read: a batch in a segment, and the end position of the readable part."""

    number: int
    position: Position
    first_batch_size: int
    end_position: Position


class FoundRecord(NamedTuple):
    timestamp: int
    offset: Offset


class SegmentList:
    """Segments by base offset, oldest first. `end` arguments are the log end offset. Errors as of `Segment.locate`."""

    __slots__ = ("_aborting", "active", "bases", "items")

    def __init__(self, segments: Iterable[LogSegment]) -> None:
        """`segments` has at least one segment and is sorted."""
        self.items = tuple(segments)
        self.bases = tuple(segment.base_offset for segment in self.items)
        self.active = self.items[-1]
        self._aborting: tuple[Segment, ...] | None = None

    def next_offset(self, index: int, end: Offset) -> Offset:
        """Return the exclusive end offset of the segment with this index."""
        return self.bases[index + 1] if index + 1 < len(self.bases) else end

    def to_flush(self, recovery_point: Offset, target: Offset, end: Offset) -> list[File]:
        """Return the files to flush to make the records in [recovery_point, target) durable.

        Raises `StorageError`.
        """
        files: list[File] = []
        for number, segment in enumerate(self.items):
            sealed = segment is not self.active
            if sealed and self.next_offset(number, end) <= recovery_point:
                continue
            if segment.base_offset < target or target == end:  # an empty one may have been truncated
                files.append(segment.file)
                if sealed:
                    files += segment.index_files()
                elif isinstance(segment, Segment):  # loading would not notice missing entries
                    segment.aborted.write()
                    files += segment.aborted.index_files()
        return files

    def find(self, offset: Offset, limit: Offset, end: Offset) -> ReadStart | None:
        """Find the first batch that ends above `offset`, readable up to `limit`; None without one.

        Raises `OffsetsDamaged` if batches above `offset` are expected, but all are damaged.
        """
        if offset >= limit or offset >= end:
            return None
        bases, items = self.bases, self.items
        last = len(items) - 1
        first = last if offset >= bases[last] else bisect_right(bases, offset) - 1
        for index in range(first if first > 0 else 0, last + 1):
            segment = items[index]
            found = segment.locate(offset) if segment.size else None
            if found is None:
                continue  # a gap at the end of the segment
            position, size = found
            end_position = segment.find_damage_after(position)
            if limit < (end if index == last else bases[index + 1]):
                beyond = segment.locate_intact(limit)
                if beyond is not None:
                    end_position = min(end_position, beyond[0])
            if end_position <= position:
                return None
            return _new(ReadStart, (index, position, size, end_position))
        lost = Gap(
            position=_BEGINNING,
            end=_BEGINNING,
            first_offset=offset,
            next_offset=end,
            reason="nothing was found of them",
        )
        raise OffsetsDamaged(items[-1].names[0], lost)

    def available_bytes(self, offset: Offset, limit: Offset, end: Offset, max_bytes: int) -> int:
        """Return the size of the batches from `offset` up to `limit`, at most `max_bytes`; raises if `offset` is
        damaged."""
        total = 0
        while total < max_bytes:
            try:
                place = self.find(offset, limit, end)
            except ApiError:
                if not total:
                    raise
                break
            if place is None:
                break
            total += place.end_position - place.position
            offset = self.next_offset(place.number, end)
        return min(total, max_bytes)

    # --- transactions

    def may_have_aborted(self, from_offset: int) -> bool:
        """Return False if the segments know, without reading their indexes, that no aborted transaction has its marker
        at that offset or above."""
        aborting = self._aborting
        if aborting is None:  # sealed segments do not change
            aborting = self._aborting = tuple(
                each for each in self.items[:-1] if isinstance(each, Segment) and each.aborted
            )
        active = self.active
        if isinstance(active, Segment) and active.aborted:
            return True
        return bool(aborting) and self._follows(aborting[-1]) > from_offset

    def _follows(self, segment: Segment) -> int:
        return self.bases[self.items.index(segment) + 1]

    def aborted(self, from_offset: int, upto: int) -> list[AbortedTxn]:
        """Return the aborted transactions (see `LogTransactions.aborted`). Raises `CorruptIndex`, `StorageError`."""
        found: list[AbortedTxn] = []
        first = max(0, bisect_right(self.bases, from_offset) - 1)
        for segment in self.items[first:]:
            if isinstance(segment, Segment) and segment.aborted:
                some, is_complete = segment.aborted.between(from_offset, upto)
                found += some
                if is_complete:
                    break
        return found

    def end_of_slice(self, base: Offset, end_position: Position, end: Offset) -> Offset:
        """Return an upper bound of the offsets before that position of the segment at `base`, by its index."""
        number = bisect_left(self.bases, base)
        segment = self.items[number]
        try:
            entry = segment.index.after(1, end_position) if isinstance(segment, Segment) else None
        except CorruptIndex:
            entry = None
        return self.next_offset(number, end) if entry is None else Offset(base + entry[0] + 1)

    def offsets_before(self, time_ms: int, start: Offset, end: Offset, now_ms: int) -> list[Offset]:
        """Return base offsets for `TimestampLookup.offsets_before`, newest first (facts A4 getOffsetsBefore)."""
        entries = [(segment.base_offset, segment.modified_ms) for segment in self.items if segment.base_offset <= end]
        if end > entries[-1][0]:
            entries.append((end, now_ms))
        if time_ms == LATEST:
            count = len(entries)
        elif time_ms == EARLIEST:
            count = 1
        else:
            count = next((n for n in range(len(entries), 0, -1) if entries[n - 1][1] <= time_ms), 0)
        return list(dict.fromkeys(max(offset, start) for offset, _ in reversed(entries[:count])))

    def find_first_at(self, timestamp: int, start: Offset, end: Offset, codecs: Codecs) -> Steps[FoundRecord | None]:
        """Find the first record at or above offset `start` with a timestamp of at least `timestamp`, in steps.

        Batches are opened on a worker, since decompression may take long. A segment that is deleted meanwhile raises
        `StorageError`.
        """
        for index, segment in enumerate(self.items):
            if self.next_offset(index, end) <= start or not segment.size or segment.largest_timestamp < timestamp:
                continue
            for number, (position, header) in enumerate(segment.batches_since(timestamp), 1):
                if header.max_timestamp >= timestamp and header.last_offset >= start:
                    batch = segment.region(position, header.size)
                    found = yield from _first_in_batch(batch, timestamp, start, codecs)
                    if found is not None:
                        return found
                    yield None
                elif not number % _HEADERS_PER_STEP:
                    yield None
        return None

    def find_max_timestamp(self, start: Offset, end: Offset, codecs: Codecs) -> Steps[FoundRecord | None]:
        """Find the first record, from offset `start` on, with the largest timestamp; None when no record has one."""
        largest, chosen = NO_TIMESTAMP, None
        for segment in self.items:
            if segment.size and segment.largest_timestamp > largest:
                largest, chosen = segment.largest_timestamp, segment
        if chosen is None:
            return None
        batch = chosen.largest_timestamp_batch()
        found: FoundRecord | None = None
        if batch is not None:
            found = yield from _first_in_batch(chosen.region(*batch), largest, start, codecs)
        # The header may have a larger timestamp than its records, and the record may be below the start.
        return found if found is not None else (yield from self._first_at_largest_by_records(start, end, codecs))

    def _first_at_largest_by_records(self, start: Offset, end: Offset, codecs: Codecs) -> Steps[FoundRecord | None]:
        best: FoundRecord | None = None
        while True:
            timestamp = best.timestamp + 1 if best is not None else 0
            found = yield from self.find_first_at(timestamp, start, end, codecs)
            if found is None:
                return best
            best = found
            yield None

    def infos(self, end: Offset) -> list[SegmentInfo]:
        """Return the description of the segments for a deletion policy."""
        infos = []
        for index, segment in enumerate(self.items):
            largest = segment.largest_timestamp
            infos.append(
                SegmentInfo(
                    base_offset=segment.base_offset,
                    next_offset=self.next_offset(index, end),
                    size_bytes=segment.size,
                    # 0 means none: librdkafka's header has it.
                    largest_timestamp_ms=largest if largest > 0 else segment.modified_ms,
                    active=segment is self.active,
                )
            )
        return infos


def _first_in_batch(batch: Region, timestamp: int, start: Offset, codecs: Codecs) -> Steps[FoundRecord | None]:
    search = partial(_first_record, batch, timestamp, start, codecs)
    if batch.size <= _SMALL_BYTES and not parse_header(batch.read(0, HEADER_SIZE)).codec_id:
        return search()
    found: FoundRecord | None = yield search
    return found


# Search of a batch for a timestamp; reads only timestamps and offsets and copies nothing.


def find_first_record(batch: bytes, timestamp: int, codecs: Codecs, *, from_offset: int = 0) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record from `from_offset` on at `timestamp` or later, or None.

    Call it on a worker: decompression may be long and releases the interpreter lock. Raises the `ApiError` of
    `decode_batch` if the records before the result are corrupt.
    """
    header = parse_header(batch)
    verify_crc(batch, header)
    if not header.count:
        return None
    if not header.codec_id:
        return _first(batch, HEADER_SIZE, header.size, header, timestamp, from_offset)
    records = codecs.by_id(header.codec_id).decompress(records_of(batch, header), DECOMPRESSED_BYTES_MAX)
    return _first(records, 0, len(records), header, timestamp, from_offset)


def _first(
    records: bytes, position: int, end: int, header: BatchHeader, timestamp: int, from_offset: int
) -> tuple[int, int] | None:
    for _ in range(header.count):
        try:
            length, position = read_raw(records, position)
            raw_time, after = read_raw(records, position + 1, LONG_BYTES_MAX)  # after the attributes
            raw_offset, after = read_raw(records, after)
        except IndexError:
            raise _corrupt(header, "ends early") from None
        delta = undo_zigzag(raw_offset)
        position += undo_zigzag(length)
        if not after <= position <= end or not 0 <= delta <= header.last_offset_delta:
            raise _corrupt(header, f"has a record of {undo_zigzag(length)} bytes at offset delta {delta}")
        time = header.max_timestamp if header.log_append_time else header.base_timestamp + undo_zigzag(raw_time)
        if time >= timestamp and header.base_offset + delta >= from_offset:
            return time, header.base_offset + delta
    return None


def _corrupt(header: BatchHeader, what: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} {what}")


def _first_record(batch: Region, timestamp: int, start: Offset, codecs: Codecs) -> FoundRecord | None:
    found = find_first_record(batch.read(), timestamp, codecs, from_offset=start)
    return None if found is None else FoundRecord(found[0], Offset(found[1]))
