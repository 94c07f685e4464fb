"""The check of a partition folder with batches: every defect in it (facts B3)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import TypeVar

from ....ports.storage import File, FileInfo, FileMissing, Folder
from ....ports.types import Buffer, Offset, Position, TopicPartition
from ....ports.values import frozen
from ...log.batch_scan import SCAN_CHUNK_BYTES, BatchIterator, crc_matches
from ...log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, SealedSegment, format_epochs, parse_epochs
from ...log.config import LONG_MAX
from ...log.names import (
    ABORTED_SUFFIX,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    QUARANTINE_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from ...log.producers.producer_state import ProducerStates
from ...log.producers.snapshot import decode_snapshot
from ...log.recovery.stale_files import StaleFiles, parsed
from ...log.recovery.stray_segments import quarantine_stray_segments
from ...log.segment.damage import Gap, walk
from ...log.segment.segment import INT_MAX, Segment
from ...message.batch_header import CRC_COVERS_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader
from .findings import Finding, Fix, Loss
from .fixes import (
    RENAMED,
    BeginAt,
    FinishCleaning,
    FixSequence,
    Quarantine,
    RebuildIndexes,
    RemoveFiles,
    RewriteSegment,
    Write,
    opened_segment,
)
from .overlay_folder import OverlayFolder
from .state_checks import EpochCheck, ProducerCheck, TransactionCheck

# Checks of the indexes of a segment against its batches (facts B3).

_NO_TIMESTAMP = -1
_SPARSE_BYTES = 4096 + 2 * 1_048_588
"""Maximum distance of two entries, with the defaults of Kafka."""


class _IndexCheck(ABC):
    _entry: Struct

    def __init__(self, content: Buffer, base_offset: int) -> None:
        self.problem: str | None = None
        self._content = content
        self._base = base_offset
        self._count = len(content) // self._entry.size
        self._next = 0
        if len(content) % self._entry.size:
            self.problem = f"{len(content)} bytes are no multiple of {self._entry.size}"
        elif not self._in_order():
            self._next = self._count

    def _in_order(self) -> bool:
        before: tuple[int, int] | None = None
        for number, entry in enumerate(self._entry.iter_unpack(self._content)):
            one: tuple[int, int] = (entry[0], entry[1])
            if before is not None and not self._follows(one, before):
                self.problem = f"entry {number}, {one}, is not above the previous one, {before}"
                return False
            before = one
        return True

    @abstractmethod
    def _follows(self, one: tuple[int, int], before: tuple[int, int]) -> bool: ...

    def _at(self, number: int) -> tuple[int, int]:
        one, other = self._entry.unpack_from(self._content, number * self._entry.size)
        return one, other


class OffsetIndexCheck(_IndexCheck):
    """Checks an offset index. `problem` is the first one; call `end` last."""

    _entry = Struct(">ii")

    def __init__(self, content: Buffer, base_offset: int) -> None:
        super().__init__(content, base_offset)
        self._widest = self._last = 0

    def _follows(self, one: tuple[int, int], before: tuple[int, int]) -> bool:
        return one[0] > before[0] and one[1] > before[1]

    def batch(self, position: int, header: BatchHeader) -> None:
        while self._next < self._count and self.problem is None:
            delta, place = self._at(self._next)
            if place > position:
                return
            offset = self._base + delta
            if place < position:
                self.problem = f"the entry for offset {offset} points to position {place}, where no batch begins"
            elif not header.base_offset <= offset <= header.last_offset:
                self.problem = f"the entry for offset {offset} points to the batch at {header.base_offset}"
                self.problem += str(header.last_offset)
            self._took(place)

    def _took(self, place: int) -> None:
        self._widest, self._last = max(self._widest, place - self._last), place
        self._next += 1

    def cut(self, position: int, end: int) -> None:
        """Exclude the entries for these bytes; call it before the next batch."""
        while self._next < self._count and self._at(self._next)[1] < end:
            if self._at(self._next)[1] < position:
                break
            self._took(self._at(self._next)[1])

    def end(self, size: int) -> str | None:
        """Check the end of the index; `size` is that of the segment."""
        if self.problem is None and self._next < self._count:
            delta, place = self._at(self._next)
            self.problem = f"the entry for offset {self._base + delta} points to position {place}, outside the segment"
        if self.problem is None and size - self._last > max(_SPARSE_BYTES, 2 * self._widest):
            self.problem = f"entries are missing: the last one points to position {self._last} of {size}"
        return self.problem


class TimeIndexCheck(_IndexCheck):
    """Checks a time index. `problem` is the first one; call `end` last."""

    _entry = Struct(">qi")

    def __init__(self, content: Buffer, base_offset: int) -> None:
        super().__init__(content, base_offset)
        self._largest = _NO_TIMESTAMP

    def _follows(self, one: tuple[int, int], before: tuple[int, int]) -> bool:
        return one[0] >= before[0] and one[1] >= before[1]

    def batch(self, _position: int, header: BatchHeader) -> None:
        self._largest = max(self._largest, header.max_timestamp)
        while self._next < self._count and self.problem is None:
            timestamp, delta = self._at(self._next)
            offset = self._base + delta
            if offset > header.last_offset:
                return
            self._next += 1
            if offset < header.base_offset:
                self.problem = f"the entry for time {timestamp} has offset {offset}, which is in no batch"
            elif timestamp != header.max_timestamp:
                self.problem = f"the entry for time {timestamp} has offset {offset}, whose batch has "
                self.problem += f"{header.max_timestamp}"

    def pass_over(self, first_offset: int, next_offset: int) -> None:
        """Exclude the entries for these offsets; call it before the next batch."""
        while self._next < self._count and first_offset <= self._base + self._at(self._next)[1] < next_offset:
            self._next += 1

    def end(self) -> str | None:
        if self.problem is not None:
            return self.problem
        if self._next < self._count:
            timestamp, delta = self._at(self._next)
            return f"the entry for time {timestamp} has offset {self._base + delta}, outside the segment"
        last = self._at(self._count - 1)[0] if self._count else _NO_TIMESTAMP
        if last < self._largest:
            return f"it ends with time {last}, but a batch has {self._largest}"
        return None


CheckT = TypeVar("CheckT", OffsetIndexCheck, TimeIndexCheck)

MISSING = ".missing"
_EPOCH_AT = 12
_SEGMENT_KINDS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
_AT_START = "the next start rebuilds it"
_REBUILT = "it is rebuilt from the batches"
_CUT_OUT = "it is moved to a file *.aside"
_WRITES = "a broker is writing here: it may be incomplete for a moment"


@frozen(kw_only=True)
class PartitionContext:
    """The facts about a partition from outside its folder."""

    partition: TopicPartition
    recovery_point: int | None = None
    """None: unknown."""
    log_start: int = 0
    high_watermark: int = 0
    cleaned_to: int = 0
    """First dirty offset; offsets below may be missing."""
    sealed: Collection[SealedSegment] = ()
    in_order: bool = True
    """False without a clean shutdown: the next start checks everything above the recovery point."""
    alone: bool = True
    """False: other brokers may have lost records."""
    in_use: bool = False
    bare: bool = False
    """True for a folder without its data folder, perhaps a copy made while a broker was writing."""

    def is_redone(self, next_offset: int, *, newest: bool) -> bool:
        """Return True if the next start scans the segment that ends there in any case."""
        beyond = self.recovery_point is None or next_offset > self.recovery_point or newest
        return beyond and (not self.in_order or (self.bare and newest))


# One pass over a segment of batches: which are intact, which can be restored, and which must be cut out.
#
# Base offset, length, leader epoch and magic of a batch are not covered by its CRC (facts B1). If the content is
# intact and the neighbours leave only one possibility, these are restored, and nothing is lost.

_OUTSIDE_CRC = 17


@frozen
class Excision:
    """Bytes [position, end) without a batch of this log."""

    position: int
    end: int
    first_offset: int
    next_offset: int
    """Exclusive; -1 if the end of the loss is unknown."""
    messages: int | None
    reason: str


@frozen
class Patch:
    """The correct bytes at `position`."""

    position: int
    content: bytes
    first_offset: int
    next_offset: int
    reason: str


class SegmentScan:
    """Iterate `batches` once; the other attributes are valid afterwards."""

    def __init__(
        self,
        file: File,
        size: int,
        base_offset: Offset,
        next_base: int | None,
        likely_end: int,
        belongs: Callable[[int, int], bool] = lambda _offset, _crc: False,
    ) -> None:
        """`next_base`: base offset of the next segment; `likely_end`: see `walk`. `belongs` returns whether a batch
        with this offset and CRC is missing in another segment, or is there too."""
        self.file, self.size, self.base_offset = file, size, base_offset
        self.end = base_offset
        """The offset after the last batch."""
        self.batch_count = self.message_count = 0
        self.has_holes = False
        """True if offsets are missing between intact batches, as after a compaction."""
        self.cuts: list[Excision] = []
        self.patches: list[Patch] = []
        self._next_base = next_base
        self._below = Offset(min(base_offset + INT_MAX + 1, LONG_MAX if next_base is None else next_base))
        self._likely_end = likely_end
        self._belongs = belongs

    def batches(self) -> BatchIterator:
        """Yield the good batches, restored ones included. Raises `StorageError`."""
        items = walk(
            self.file,
            Position(0),
            Position(self.size),
            expected=self.base_offset,
            below=self._below,
            check_crc=True,
            likely_end=self._likely_end,
        )
        after_damage = False
        for item in items:
            if isinstance(item, Gap):
                for place in self._restored(item):
                    self._count(place[1])
                    yield place
                self.end = max(self.end, item.next_offset if item.intact_behind else self.end)
                after_damage = True
            else:
                self.has_holes = self.has_holes or (item[1].base_offset > self.end and not after_damage)
                after_damage = False
                self._count(item[1])
                yield item

    def _count(self, header: BatchHeader) -> None:
        self.end = header.next_offset
        self.batch_count += 1
        self.message_count += header.count

    def _restored(self, gap: Gap) -> Iterator[tuple[Position, BatchHeader]]:
        position, expected = gap.position, gap.first_offset
        following: int = gap.next_offset
        if not gap.intact_behind:
            following = self._likely_end if self._next_base is None else self._next_base
        while position < gap.end:
            header = self._restore(position, gap.end, expected, following)
            if header is None:
                break
            outside = HEADER.pack(*header)[:_OUTSIDE_CRC]
            if self.file.read(position, _OUTSIDE_CRC) != outside:
                self.patches.append(Patch(position, outside, header.base_offset, header.next_offset, gap.reason))
            yield position, header
            position, expected = Position(position + header.size), header.next_offset
        if position < gap.end:
            self.cuts.append(self._cut(gap, position, expected))

    def _restore(self, position: Position, end: int, expected: Offset, following: int) -> BatchHeader | None:
        """Return the batch with its only possible base offset, length and magic; None if that is uncertain."""
        head = self.file.read(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE or position + HEADER_SIZE > end:
            return None
        found = BatchHeader._make(HEADER.unpack(head))
        sizes = dict.fromkeys(size for size in (found.size, end - position) if HEADER_SIZE <= size <= end - position)
        whole = (found._replace(batch_length=size - LENGTH_OVERHEAD, magic=MAGIC) for size in sizes)
        header = next((one for one in whole if crc_matches(self.file, position, one)), None)
        if header is None or header.last_offset_delta < 0 or header.count < 0:
            return None
        claimed, last = header.base_offset, header.last_offset_delta
        if expected + last + 1 == following or (following < 0 and (claimed ^ expected).bit_count() == 1):
            base = expected
        elif expected <= claimed:
            base = claimed
        else:
            return None
        if base + last >= self._below or (following >= 0 and base + last >= following):
            return None
        if base != claimed and (self._stands_at(claimed, header.crc) or self._belongs(claimed, header.crc)):
            return None
        return header._replace(base_offset=Offset(base))

    def _stands_at(self, offset: int, crc: int) -> bool:
        """Return True if the segment has this batch at its offset: the found one is a copy."""
        for item in walk(self.file, Position(0), Position(self.size), expected=self.base_offset, below=self._below):
            if not isinstance(item, Gap) and item[1].base_offset == offset:
                return item[1].crc == crc
        return False

    def _cut(self, gap: Gap, position: int, expected: int) -> Excision:
        if gap.intact_behind:
            lost = max(0, gap.next_offset - expected)
            return Excision(position, gap.end, expected, max(expected, gap.next_offset), lost, gap.reason)
        if self._next_base is not None:
            lost = max(0, self._next_base - expected)
            return Excision(position, gap.end, expected, expected + lost, lost, gap.reason)
        next_offset, messages = self._claimed(position, gap.end, expected)
        if next_offset < 0 and self._likely_end > expected:
            next_offset, messages = self._likely_end, self._likely_end - expected
        return Excision(position, gap.end, expected, next_offset, messages, gap.reason)

    def _claimed(self, position: int, end: int, expected: int) -> tuple[int, int | None]:
        """Return (next offset, messages) by the headers of damaged batches, as far as they follow each other."""
        first, messages = expected, 0
        while position + HEADER_SIZE <= end:
            header = BatchHeader._make(HEADER.unpack(self.file.read(position, HEADER_SIZE)))
            plausible = header.magic == MAGIC and header.batch_length >= CRC_COVERS_FROM
            if not plausible or header.base_offset != expected or not 0 < header.count <= header.last_offset_delta + 1:
                break
            expected, messages, position = header.next_offset, messages + header.count, position + header.size
        if expected == first and not self._has_content(position, end):
            return first, 0
        return (expected, messages) if expected > first else (-1, None)

    def _has_content(self, position: int, end: int) -> bool:
        """Return False if there are only zeros."""
        pieces = range(position, end, SCAN_CHUNK_BYTES)
        return any(self.file.read(at, min(SCAN_CHUNK_BYTES, end - at)).strip(b"\0") for at in pieces)


class BatchPartition:
    """Checks one folder without changes. Raises `StorageError`."""

    def __init__(self, folder: Folder, known: PartitionContext) -> None:
        self.findings: list[Finding] = []
        self.segments = self.batches = self.messages = 0
        self.start = self.end = 0
        """The first offset, and the one after the last."""
        self.sealed: list[SealedSegment] = []
        self.durable_to = 0
        """The recovery point must be at least this, so that a start does not truncate intact batches."""
        self._folder = folder
        self._known = known
        self._files: Mapping[str, FileInfo] = folder.files()
        self._members: Sequence[Segment] = ()
        self._snapshot_offsets: Sequence[int] = ()
        self._rewritten: set[int] = set()
        """Segments that a repair will rewrite: positions in them will change."""
        self._epochs = EpochCheck(self._noted_epochs())
        self._producers = ProducerCheck({}, 0)
        self._transactions = TransactionCheck()

    def check(self) -> None:
        overlay = self._without_stale_files()
        segments = self._members = self._own_segments(overlay)
        self.segments = len(segments)
        if segments:
            self.start = segments[0].base_offset
        snapshots = self._snapshots()
        self._snapshot_offsets = list(snapshots)
        self._producers = ProducerCheck(snapshots, self.start)
        if self._known.cleaned_to:
            self._hole()
        self._missing_segments([segment.base_offset for segment in segments])
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            if not self._segment(overlay, segment, following):
                self._behind_the_cut([other.base_offset for other in segments[number + 1 :]])
                break
        self._check_end(segments[-1].size if segments else None)
        self._check_producers()
        self._check_epochs()

    def _add(self, kind: str, name: str, text: str, remedy: str = "", fix: Fix | None = None, **more: object) -> None:
        where = f"{self._folder.name}/{name}" if name else self._folder.name
        self.findings.append(Finding(kind=kind, file=where, text=text, remedy=remedy, fix=fix, **more))  # type: ignore[arg-type]  # position, loss

    # --- the files of the log

    def _without_stale_files(self) -> OverlayFolder:
        """Return the folder as a start would leave it before it opens a segment."""
        overlay = OverlayFolder(self._folder)
        lines: list[str] = []
        StaleFiles(overlay, lines.append).clear()
        after = overlay.files()
        for name in self._files:
            base, kind, state = parsed(name)
            if QUARANTINE_SUFFIX in name:
                self._add("aside", name, "is quarantined", "inspect it, and delete it when it is not needed")
            elif (kind, state) == (LOG_SUFFIX, SWAP_SUFFIX):
                taken = segment_file(base, LOG_SUFFIX) in after and name not in after and f"{name}.aside" not in after
                text = "is the result of a completed cleaning" if taken else "is the corrupt result of a cleaning"
                self._add("swap", name, text, "the cleaning is completed, as by a start", FinishCleaning())
            elif state in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX) or name.endswith(".tmp"):
                self._add("leftover", name, "remains of an interrupted change", "the next start removes it")
            elif base >= LONG_MAX:
                self._add("segment-foreign", name, "begins beyond all offsets", RENAMED, Quarantine((name,)))
            elif kind and not state and name not in after:
                fix = RemoveFiles((name,))
                self._add("index-orphan", name, "belongs to no segment", "it is deleted", fix)
            elif not kind and name not in (LEADER_EPOCHS, PARTITION_METADATA):
                self._add("unknown-file", name, "is not a file of a log", "it is ignored")
        return overlay

    def _own_segments(self, overlay: OverlayFolder) -> list[Segment]:
        files = overlay.files()
        known = self._known
        bases = sorted(base for base, kind, state in map(parsed, files) if kind == LOG_SUFFIX and not state)
        opened = [opened_segment(overlay, base, files[segment_file(base, LOG_SUFFIX)]) for base in bases]
        at_least = max((known.high_watermark, *(sealed.next_base for sealed in known.sealed)))
        stopped_at = known.recovery_point if known.in_order and (known.recovery_point or 0) >= at_least else None
        lines: list[str] = []
        members = quarantine_stray_segments(
            overlay,
            opened,
            known.sealed,
            stopped_at=Offset(stopped_at) if stopped_at else None,
            report=lines.append,
        )
        for segment in opened:
            if segment not in members:
                why = next((line for line in lines if segment.names[0] in line), "belongs to no log here")
                why = why.partition(f"{segment.names[0]} ")[2].partition(";")[0] or why
                fix = Quarantine(tuple(segment.names))
                self._add("segment-foreign", segment.names[0], why, RENAMED, fix)
        return members

    def _missing_segments(self, bases: list[int]) -> None:
        known = self._known
        for sealed in known.sealed:
            deleted = not known.in_order and (not bases or sealed.base_offset < bases[0])
            if sealed.base_offset in bases or deleted or known.in_use or sealed.next_base <= known.cleaned_to:
                continue
            if self._is_explained(sealed.base_offset):
                continue
            count = sealed.next_base - sealed.base_offset
            loss = Loss(
                first_offset=sealed.base_offset, next_offset=sealed.next_base, messages=count, bytes=sealed.size
            )
            text = f"offsets {sealed.base_offset} to {sealed.next_base - 1} are missing with their segment"
            name = segment_file(sealed.base_offset, LOG_SUFFIX)
            self._add("segment-missing", name, text, "it is noted as lost", self._mark(loss), loss=loss)

    def _is_explained(self, first_offset: int) -> bool:
        return segment_file(first_offset, MISSING + QUARANTINE_SUFFIX) in self._files

    def _mark(self, loss: Loss) -> Fix:
        text = f"Offsets {loss.first_offset} to {loss.next_offset - 1} are lost, as found by a repair.\n"
        return Write(segment_file(loss.first_offset, MISSING + QUARANTINE_SUFFIX), text.encode())

    # --- one segment

    def _segment(self, overlay: OverlayFolder, segment: Segment, following: int | None) -> bool:
        """Check a segment; return False if the log ends here."""
        known, name = self._known, segment.names[0]
        likely_end = following if following is not None else known.recovery_point or -1
        scan = SegmentScan(
            segment.file, segment.size, segment.base_offset, following, likely_end, partial(self._belongs, segment)
        )
        index = self._index(overlay, segment, INDEX_SUFFIX, OffsetIndexCheck)
        times = self._index(overlay, segment, TIME_INDEX_SUFFIX, TimeIndexCheck)
        passed = 0
        for position, header in scan.batches():
            while passed < len(scan.cuts):
                self._pass_over(scan.cuts[passed], index, times)
                passed += 1
            if index is not None:
                index.batch(position, header)
            if times is not None:
                times.batch(position, header)
            self._epochs.batch(segment.base_offset, position, header)
            self._producers.batch(header)
            self._transactions.batch(segment.file, position, header)
        for cut in scan.cuts[passed:]:
            self._pass_over(cut, index, times)
        if scan.has_holes or (following is not None and scan.end < following):
            self._hole()
        self.batches += scan.batch_count
        self.messages += scan.message_count
        end = scan.end if following is None else following
        continues = self._add_damage(name, scan, following)
        if not (scan.cuts or scan.patches):  # else they are rebuilt in any case
            self._check_indexes(segment, index, times, self._known.is_redone(end, newest=following is None))
        self._check_aborted(segment, self._known.is_redone(end, newest=following is None))
        if following is not None and continues and not self._continues_behind(scan, following):
            self.end = scan.cuts[-1].first_offset if _is_cut_at_end(scan) else scan.end
            return False
        if following is not None and continues:
            self.sealed.append(SealedSegment(segment.base_offset, Offset(following), segment.size))
            self._check_hole(segment, scan, Offset(following))
        self.end = end if continues else scan.cuts[0].first_offset
        return continues

    def _belongs(self, own: Segment, offset: int, crc: int) -> bool:
        """Return True if another segment covers the offset of the batch, and has the batch or nothing there."""
        before = [segment for segment in self._members if segment.base_offset <= offset]
        if not before or before[-1] in (own, self._members[-1]):
            return False
        place = before[-1]
        for item in walk(place.file, Position(0), Position(place.size), expected=place.base_offset):
            if not isinstance(item, Gap) and item[1].base_offset <= offset < item[1].next_offset:
                return item[1].crc == crc
        return True

    def _pass_over(self, cut: Excision, index: OffsetIndexCheck | None, times: TimeIndexCheck | None) -> None:
        self._hole()
        if index is not None:
            index.cut(cut.position, cut.end)
        if times is not None:
            times.pass_over(cut.first_offset, cut.next_offset if cut.next_offset >= 0 else LONG_MAX)

    def _add_damage(self, name: str, scan: SegmentScan, following: int | None) -> bool:
        known = self._known
        point = known.recovery_point or 0
        for cut in scan.cuts:
            if not known.alone and not known.in_order and cut.first_offset >= point and following is not None:
                cut_off = FixSequence(
                    (RewriteSegment(name, ((cut.position, scan.size),)), RebuildIndexes(scan.base_offset))
                )
                loss = Loss(first_offset=cut.first_offset, next_offset=-1, bytes=scan.size - cut.position)
                remedy = "the log is cut here, as a start does: the leader has the rest"
                self._add("batch-damaged", name, _describe(cut), remedy, cut_off, position=cut.position, loss=loss)
                return False
        rewrite = RewriteSegment(
            name,
            tuple((cut.position, cut.end) for cut in scan.cuts),
            tuple((patch.position, patch.content) for patch in scan.patches),
        )
        fix = FixSequence((rewrite, RebuildIndexes(scan.base_offset)))
        if scan.cuts or scan.patches:
            self._rewritten.add(scan.base_offset)
        for cut in scan.cuts:
            at_end = cut.end == scan.size
            loss = Loss(
                first_offset=cut.first_offset,
                next_offset=cut.next_offset,
                messages=cut.messages,
                bytes=cut.end - cut.position,
            )
            whole = FixSequence((*fix.fixes, self._mark(loss))) if at_end and following is not None else fix
            if at_end and following is None:
                text = _describe(cut) if not known.in_use else f"{_describe(cut)}; {_WRITES}"
                given = None if known.in_use else whole
                self._add("end-torn", name, text, _CUT_OUT, given, position=cut.position, loss=loss)
            else:
                self._add("batch-damaged", name, _describe(cut), _CUT_OUT, whole, position=cut.position, loss=loss)
        for patch in scan.patches:
            offsets = f"offsets {patch.first_offset} to {patch.next_offset - 1}"
            text = f"{patch.reason}; {offsets} cannot be read, but their content is intact"
            self._add("batch-header", name, text, "its header is restored", fix, position=patch.position)
        return True

    def _continues_behind(self, scan: SegmentScan, following: int) -> bool:
        """Return False if a start truncates the log at a gap, whose records may never have been written. Without other
        replicas a repair retains the following segments, by a recovery point behind the gap."""
        known = self._known
        end = scan.cuts[-1].first_offset if _is_cut_at_end(scan) else scan.end
        unknown = known.in_order or known.in_use or end < (known.recovery_point or 0)
        if end >= following or unknown or following <= max(self._snapshot_offsets, default=0):
            return True
        self.durable_to = following
        return known.alone

    def _check_hole(self, segment: Segment, scan: SegmentScan, following: int) -> None:
        """Check for missing offsets between the end of a segment and the beginning of the next."""
        end, known = scan.end, self._known
        if end >= following or _is_cut_at_end(scan):
            return
        if end < known.cleaned_to or self._is_explained(end):
            return
        sizes = [sealed.size for sealed in known.sealed if sealed.base_offset == segment.base_offset]
        if (sizes and sizes[0] <= segment.size) or (not sizes and scan.has_holes):
            return
        missing = sizes[0] - segment.size if sizes else 0
        loss = Loss(first_offset=end, next_offset=following, messages=following - end, bytes=missing)
        text = f"ends at offset {end}: offsets {end} to {following - 1} are missing"
        self._add("offsets-missing", segment.names[0], text, "it is recorded as lost", self._mark(loss), loss=loss)

    # --- indexes

    def _index(
        self, overlay: OverlayFolder, segment: Segment, suffix: str, made: Callable[[bytes, int], CheckT]
    ) -> CheckT | None:
        try:
            content = overlay.read_small(segment_file(segment.base_offset, suffix))
        except FileMissing:
            return None
        return made(content, segment.base_offset)

    def _check_indexes(
        self,
        segment: Segment,
        index: OffsetIndexCheck | None,
        times: TimeIndexCheck | None,
        redone: bool,
    ) -> None:
        if not segment.size:
            return
        fix = None if redone else RebuildIndexes(segment.base_offset)
        found = (
            (INDEX_SUFFIX, "index", "is missing" if index is None else index.end(segment.size)),
            (TIME_INDEX_SUFFIX, "timeindex", "is missing" if times is None else times.end()),
        )
        for suffix, kind, problem in found:
            if problem is not None:
                name = segment_file(segment.base_offset, suffix)
                what = f"{kind}-missing" if problem == "is missing" else f"{kind}-damaged"
                self._add(what, name, problem, _AT_START if redone else _REBUILT, fix)

    def _check_aborted(self, segment: Segment, redone: bool) -> None:
        name = segment_file(segment.base_offset, ABORTED_SUFFIX)
        content = self._folder.read_small(name) if name in self._files else None
        problem, right = self._transactions.end_segment(content)
        if problem is None or self._known.in_use:
            return
        fix = None if redone else Write(name, right) if right else RemoveFiles((name,))
        self._add("txnindex-damaged", name, problem, _AT_START if redone else _REBUILT, fix)

    def _hole(self) -> None:
        self._producers.hole()
        self._transactions.hole()

    def _behind_the_cut(self, bases: list[int]) -> None:
        for base in bases:
            names = tuple(segment_file(base, side) for side in _SEGMENT_KINDS)
            text = f"begins above offset {self.end}, where the log is truncated"
            self._add("segment-foreign", names[0], text, RENAMED, Quarantine(names))

    # --- the end

    def _check_end(self, last_size: int | None) -> None:
        known = self._known
        if known.in_use:
            return
        empty = (segment_file(self.end, LOG_SUFFIX),) if last_size == 0 else ()
        durable = known.recovery_point or 0
        if self.end < durable and known.alone:
            # The loss of a batch that is cut out there is already reported.
            reported = max((each.loss.next_offset for each in self.findings if each.loss is not None), default=0)
            first, loss = max(self.end, reported), None
            if first < durable:
                loss = Loss(first_offset=first, next_offset=durable, messages=durable - first)
            text = f"offsets {self.end} to {durable - 1} are missing, and were durable"
            whole = Loss(first_offset=self.end, next_offset=durable)
            fix = FixSequence((BeginAt(durable, empty=empty), self._mark(whole)))
            self._add("end-lost", "", text, f"the log continues at {durable}", fix, loss=loss)
            self.end = durable
        elif self.end < known.log_start:
            text = f"the log end offset {self.end} is below the log start offset {known.log_start}"
            whole = Loss(first_offset=self.end, next_offset=known.log_start)
            fix = FixSequence((BeginAt(known.log_start, empty=empty), self._mark(whole)))
            self._add("end-lost", "", text, "the log continues at its start offset", fix)
            self.end = known.log_start

    # --- snapshots and epochs

    def _snapshots(self) -> Mapping[int, ProducerStates]:
        found: dict[int, ProducerStates] = {}
        for name in self._files:
            base, kind, state = parsed(name)
            if kind != SNAPSHOT_SUFFIX or state:
                continue
            try:
                found[base] = decode_snapshot(self._folder.read_small(name), now_ms=LONG_MAX)
            except ValueError as error:
                self._snapshot_problem(base, str(error))
        return found

    def _snapshot_problem(self, offset: int, text: str) -> None:
        name = segment_file(offset, SNAPSHOT_SUFFIX)
        remedy = "it is renamed to *.aside; the producers are read from the batches"
        self._add("snapshot-damaged", name, text, remedy, Quarantine((name,)))

    def _check_producers(self) -> None:
        if self._known.in_use:
            return
        self._producers.end(self.end)
        for offset, text in self._producers.problems.items():
            self._snapshot_problem(offset, text)

    def _noted_epochs(self) -> list[tuple[int, int]] | None:
        try:
            return parse_epochs(self._folder.read_small(LEADER_EPOCHS))
        except (FileMissing, ValueError):
            return None

    def _check_epochs(self) -> None:
        known = self._known
        for run, epoch in self._epochs.wrong_batches():
            name = segment_file(run.segment, LOG_SUFFIX)
            text = f"the batch at offset {run.first_offset} has leader epoch {run.epoch}, expected {epoch}"
            if run.segment in self._rewritten:
                self._add(
                    "batch-header",
                    name,
                    text,
                    "it is repaired after the other damage of this segment",
                    position=run.position,
                )
                continue
            right = epoch.to_bytes(4, "big", signed=True)
            fix = FixSequence(
                (RewriteSegment(name, patches=((run.position + _EPOCH_AT, right),)), RebuildIndexes(run.segment))
            )
            self._add("batch-header", name, text, "its header is restored", fix, position=run.position)
        wanted = self._epochs.rebuilt(self.end)
        noted = self._epochs.noted
        if (wanted == (noted or []) and (noted is not None or LEADER_EPOCHS not in self._files)) or known.in_use:
            return
        if noted is not None:
            text = "does not agree with the batches"
        elif LEADER_EPOCHS in self._files:
            text = "cannot be read: it is garbage"
        elif not known.in_order or known.bare:
            return  # it is written with the first flush
        else:
            text = "is missing"
        redone = noted is not None and (not known.in_order or known.bare) and wanted[: len(noted)] == noted
        rewritten = None if redone else Write(LEADER_EPOCHS, format_epochs(wanted), keep_old=True)
        self._add("epochs-damaged", LEADER_EPOCHS, text, _AT_START if redone else _REBUILT, rewritten)


def _describe(cut: Excision) -> str:
    if cut.next_offset < 0:
        return f"{cut.reason}; offsets from {cut.first_offset} on cannot be read"
    if cut.next_offset > cut.first_offset:
        return f"{cut.reason}; offsets {cut.first_offset} to {cut.next_offset - 1} cannot be read"
    return f"{cut.reason}; no offset is missing"


def _is_cut_at_end(scan: SegmentScan) -> bool:
    return bool(scan.cuts) and scan.cuts[-1].end == scan.size
