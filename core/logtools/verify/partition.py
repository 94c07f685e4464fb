"""The folder of a partition with batches: everything in it that is not as it should be (facts B3)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ....ports.storage import FileInfo, FileMissing, Folder
from ....ports.types import Offset, Position, TopicPartition
from ....ports.values import frozen
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
from ...log.segment.segment import Segment
from .findings import Finding, Fix, Loss
from .fixes import BeginAt, FinishCleaning, Mend, Reindex, RemoveFiles, SetAside, Several, Write, opened_segment
from .index_checks import OffsetIndexCheck, TimeIndexCheck
from .overlay_folder import OverlayFolder
from .segment_scan import Excision, SegmentScan
from .state_checks import EpochCheck, ProducerCheck, TransactionCheck

CheckT = TypeVar("CheckT", OffsetIndexCheck, TimeIndexCheck)

MISSING = ".missing"
_EPOCH_AT = 12
_SEGMENT_KINDS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
_AT_START = "the next start makes it anew"
_MADE_ANEW = "it is made anew from the batches"
_CUT_OUT = "it is cut out, and kept in a file *.aside"
_WRITES = "a broker is writing here: this may be a moment between two writes"


@frozen(kw_only=True)
class Known:
    """What is known of a partition from outside of its folder."""

    partition: TopicPartition
    recovery_point: int | None = None
    """None: nobody noted it."""
    log_start: int = 0
    high_watermark: int = 0
    cleaned_to: int = 0
    """Compacted below; offsets may be missing there."""
    sealed: Collection[SealedSegment] = ()
    in_order: bool = True
    """False: no orderly stop before; the next start checks all from the recovery point on."""
    alone: bool = True
    """False: other brokers may have what is lost here."""
    in_use: bool = False
    bare: bool = False
    """The folder alone, with no data folder around it: perhaps copied while a broker was writing."""

    def is_redone(self, next_offset: int, *, newest: bool) -> bool:
        """True if the next start goes through the segment that ends there in any case."""
        beyond = self.recovery_point is None or next_offset > self.recovery_point or newest
        return beyond and (not self.in_order or (self.bare and newest))


class BatchPartition:
    """Checks one folder; nothing in it is changed. Raises `StorageError`."""

    def __init__(self, folder: Folder, known: Known) -> None:
        self.findings: list[Finding] = []
        self.segments = self.batches = self.messages = 0
        self.start = self.end = 0
        """From the first offset to the one after the last."""
        self.sealed: list[SealedSegment] = []
        self.durable_to = 0
        """Up to there the recovery point must go, so that a start does not cut off what is intact."""
        self._folder = folder
        self._known = known
        self._files: Mapping[str, FileInfo] = folder.files()
        self._kept: Sequence[Segment] = ()
        self._snapshot_offsets: Sequence[int] = ()
        self._mended: set[int] = set()
        """Segments that are to be written anew: positions in them will change."""
        self._epochs = EpochCheck(self._noted_epochs())
        self._producers = ProducerCheck({}, 0)
        self._transactions = TransactionCheck()

    def check(self) -> None:
        pretended = self._leftovers()
        segments = self._kept = self._own_segments(pretended)
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
            if not self._segment(pretended, segment, following):
                self._behind_the_cut([other.base_offset for other in segments[number + 1 :]])
                break
        self._check_end(segments[-1].size if segments else None)
        self._check_producers()
        self._check_epochs()

    def _add(self, kind: str, name: str, text: str, remedy: str = "", fix: Fix | None = None, **more: object) -> None:
        where = f"{self._folder.name}/{name}" if name else self._folder.name
        self.findings.append(Finding(kind=kind, file=where, text=text, remedy=remedy, fix=fix, **more))  # type: ignore[arg-type]  # position, loss

    # --- which files are the log's

    def _leftovers(self) -> OverlayFolder:
        """The folder as a start would leave it before it opens a segment."""
        pretended = OverlayFolder(self._folder)
        lines: list[str] = []
        StaleFiles(pretended, lines.append).clear()
        after = pretended.files()
        for name in self._files:
            base, kind, state = parsed(name)
            if QUARANTINE_SUFFIX in name:
                self._add("aside", name, "was set aside", "look at it, and delete it when nothing in it is wanted")
            elif (kind, state) == (LOG_SUFFIX, SWAP_SUFFIX):
                taken = segment_file(base, LOG_SUFFIX) in after and name not in after and f"{name}.aside" not in after
                text = (
                    "is what a finished cleaning was to put in place" if taken else "is a damaged result of a cleaning"
                )
                self._add("swap", name, text, "the cleaning is brought to its end, as a start does", FinishCleaning())
            elif state in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX) or name.endswith(".tmp"):
                self._add("leftover", name, "was left by a change that was interrupted", "the next start removes it")
            elif base >= LONG_MAX:
                self._add("segment-foreign", name, "begins beyond all offsets", "it is set aside", SetAside((name,)))
            elif kind and not state and name not in after:
                fix = RemoveFiles((name,))
                self._add("index-orphan", name, "belongs to no segment", "it is deleted", fix)
            elif not kind and name not in (LEADER_EPOCHS, PARTITION_METADATA):
                self._add("unknown-file", name, "is no file of a log", "it is left alone")
        return pretended

    def _own_segments(self, pretended: OverlayFolder) -> list[Segment]:
        files = pretended.files()
        known = self._known
        bases = sorted(base for base, kind, state in map(parsed, files) if kind == LOG_SUFFIX and not state)
        opened = [opened_segment(pretended, base, files[segment_file(base, LOG_SUFFIX)]) for base in bases]
        at_least = max((known.high_watermark, *(sealed.next_base for sealed in known.sealed)))
        stopped_at = known.recovery_point if known.in_order and (known.recovery_point or 0) >= at_least else None
        lines: list[str] = []
        kept = quarantine_stray_segments(
            pretended,
            opened,
            known.sealed,
            stopped_at=Offset(stopped_at) if stopped_at else None,
            report=lines.append,
        )
        for segment in opened:
            if segment not in kept:
                why = next((line for line in lines if segment.names[0] in line), "belongs to no log here")
                why = why.partition(f"{segment.names[0]} ")[2].partition(";")[0] or why
                fix = SetAside(tuple(segment.names))
                self._add("segment-foreign", segment.names[0], why, "it is set aside", fix)
        return kept

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
            text = f"the offsets {sealed.base_offset} to {sealed.next_base - 1} are missing with their segment"
            name = segment_file(sealed.base_offset, LOG_SUFFIX)
            self._add("segment-missing", name, text, "it is noted as lost", self._mark(loss), loss=loss)

    def _is_explained(self, first_offset: int) -> bool:
        return segment_file(first_offset, MISSING + QUARANTINE_SUFFIX) in self._files

    def _mark(self, loss: Loss) -> Fix:
        text = f"The offsets from {loss.first_offset} to {loss.next_offset - 1} were lost, and found so by a repair.\n"
        return Write(segment_file(loss.first_offset, MISSING + QUARANTINE_SUFFIX), text.encode())

    # --- one segment

    def _segment(self, pretended: OverlayFolder, segment: Segment, following: int | None) -> bool:
        """False if the log is to be cut here."""
        known, name = self._known, segment.names[0]
        likely_end = following if following is not None else known.recovery_point or -1
        scan = SegmentScan(
            segment.file, segment.size, segment.base_offset, following, likely_end, partial(self._belongs, segment)
        )
        index = self._index(pretended, segment, INDEX_SUFFIX, OffsetIndexCheck)
        times = self._index(pretended, segment, TIME_INDEX_SUFFIX, TimeIndexCheck)
        told = 0
        for position, header in scan.batches():
            while told < len(scan.cuts):
                self._pass_over(scan.cuts[told], index, times)
                told += 1
            if index is not None:
                index.batch(position, header)
            if times is not None:
                times.batch(position, header)
            self._epochs.batch(segment.base_offset, position, header)
            self._producers.batch(header)
            self._transactions.batch(segment.file, position, header)
        for cut in scan.cuts[told:]:
            self._pass_over(cut, index, times)
        if scan.has_holes or (following is not None and scan.end < following):
            self._hole()
        self.batches += scan.batch_count
        self.messages += scan.message_count
        end = scan.end if following is None else following
        goes_on = self._tell_damage(name, scan, following)
        if not (scan.cuts or scan.patches):  # else they are made anew in any case
            self._check_indexes(segment, index, times, self._known.is_redone(end, newest=following is None))
        self._check_aborted(segment, self._known.is_redone(end, newest=following is None))
        if following is not None and goes_on and not self._goes_on_behind(scan, following):
            self.end = scan.cuts[-1].first_offset if _is_cut_at_end(scan) else scan.end
            return False
        if following is not None and goes_on:
            self.sealed.append(SealedSegment(segment.base_offset, Offset(following), segment.size))
            self._check_hole(segment, scan, Offset(following))
        self.end = end if goes_on else scan.cuts[0].first_offset
        return goes_on

    def _belongs(self, own: Segment, offset: int, crc: int) -> bool:
        """True if another segment is the place of a batch of that offset, and it is there or nothing is."""
        before = [segment for segment in self._kept if segment.base_offset <= offset]
        if not before or before[-1] in (own, self._kept[-1]):
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

    def _tell_damage(self, name: str, scan: SegmentScan, following: int | None) -> bool:
        known = self._known
        point = known.recovery_point or 0
        for cut in scan.cuts:
            if not known.alone and not known.in_order and cut.first_offset >= point and following is not None:
                cut_off = Several((Mend(name, ((cut.position, scan.size),)), Reindex(scan.base_offset)))
                loss = Loss(first_offset=cut.first_offset, next_offset=-1, bytes=scan.size - cut.position)
                remedy = "the log is cut here, as a start does: the leader has the rest"
                self._add("batch-damaged", name, _told(cut), remedy, cut_off, position=cut.position, loss=loss)
                return False
        mend = Mend(
            name,
            tuple((cut.position, cut.end) for cut in scan.cuts),
            tuple((patch.position, patch.content) for patch in scan.patches),
        )
        fix = Several((mend, Reindex(scan.base_offset)))
        if scan.cuts or scan.patches:
            self._mended.add(scan.base_offset)
        for cut in scan.cuts:
            at_end = cut.end == scan.size
            loss = Loss(
                first_offset=cut.first_offset,
                next_offset=cut.next_offset,
                messages=cut.messages,
                bytes=cut.end - cut.position,
            )
            whole = Several((*fix.fixes, self._mark(loss))) if at_end and following is not None else fix
            if at_end and following is None:
                text = _told(cut) if not known.in_use else f"{_told(cut)}; {_WRITES}"
                given = None if known.in_use else whole
                self._add("end-torn", name, text, _CUT_OUT, given, position=cut.position, loss=loss)
            else:
                self._add("batch-damaged", name, _told(cut), _CUT_OUT, whole, position=cut.position, loss=loss)
        for patch in scan.patches:
            offsets = f"the offsets {patch.first_offset} to {patch.next_offset - 1}"
            text = f"{patch.reason}; {offsets} cannot be read, but their content is intact"
            self._add("batch-header", name, text, "its header is restored", fix, position=patch.position)
        return True

    def _goes_on_behind(self, scan: SegmentScan, following: int) -> bool:
        """False where a start cuts the log: at a hole that may be what never reached the disk. Of a broker that is
        alone what follows is kept, by a recovery point behind the hole."""
        known = self._known
        end = scan.cuts[-1].first_offset if _is_cut_at_end(scan) else scan.end
        unknown = known.in_order or known.in_use or end < (known.recovery_point or 0)
        if end >= following or unknown or following <= max(self._snapshot_offsets, default=0):
            return True
        self.durable_to = following
        return known.alone

    def _check_hole(self, segment: Segment, scan: SegmentScan, following: int) -> None:
        """Between the end of a segment and the beginning of the next."""
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
        text = f"ends at offset {end}: the offsets {end} to {following - 1} are missing"
        self._add("offsets-missing", segment.names[0], text, "it is noted as lost", self._mark(loss), loss=loss)

    # --- indexes

    def _index(
        self, pretended: OverlayFolder, segment: Segment, suffix: str, made: Callable[[bytes, int], CheckT]
    ) -> CheckT | None:
        try:
            content = pretended.read_small(segment_file(segment.base_offset, suffix))
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
        fix = None if redone else Reindex(segment.base_offset)
        found = (
            (INDEX_SUFFIX, "index", "is missing" if index is None else index.end(segment.size)),
            (TIME_INDEX_SUFFIX, "timeindex", "is missing" if times is None else times.end()),
        )
        for suffix, kind, problem in found:
            if problem is not None:
                name = segment_file(segment.base_offset, suffix)
                what = f"{kind}-missing" if problem == "is missing" else f"{kind}-damaged"
                self._add(what, name, problem, _AT_START if redone else _MADE_ANEW, fix)

    def _check_aborted(self, segment: Segment, redone: bool) -> None:
        name = segment_file(segment.base_offset, ABORTED_SUFFIX)
        content = self._folder.read_small(name) if name in self._files else None
        problem, right = self._transactions.end_segment(content)
        if problem is None or self._known.in_use:
            return
        fix = None if redone else Write(name, right) if right else RemoveFiles((name,))
        self._add("txnindex-damaged", name, problem, _AT_START if redone else _MADE_ANEW, fix)

    def _hole(self) -> None:
        self._producers.hole()
        self._transactions.hole()

    def _behind_the_cut(self, bases: list[int]) -> None:
        for base in bases:
            names = tuple(segment_file(base, side) for side in _SEGMENT_KINDS)
            text = f"comes after offset {self.end}, where the log is cut"
            self._add("segment-foreign", names[0], text, "it is set aside", SetAside(names))

    # --- the end

    def _check_end(self, last_size: int | None) -> None:
        known = self._known
        if known.in_use:
            return
        empty = (segment_file(self.end, LOG_SUFFIX),) if last_size == 0 else ()
        durable = known.recovery_point or 0
        if self.end < durable and known.alone:
            # What stood in a batch that is cut off there has been told.
            told = max((each.loss.next_offset for each in self.findings if each.loss is not None), default=0)
            first, loss = max(self.end, told), None
            if first < durable:
                loss = Loss(first_offset=first, next_offset=durable, messages=durable - first)
            text = f"the offsets {self.end} to {durable - 1} are missing, and were durable once"
            whole = Loss(first_offset=self.end, next_offset=durable)
            fix = Several((BeginAt(durable, empty=empty), self._mark(whole)))
            self._add("end-lost", "", text, f"the log goes on at {durable}", fix, loss=loss)
            self.end = durable
        elif self.end < known.log_start:
            text = f"the log ends at {self.end}, before its start {known.log_start}"
            whole = Loss(first_offset=self.end, next_offset=known.log_start)
            fix = Several((BeginAt(known.log_start, empty=empty), self._mark(whole)))
            self._add("end-lost", "", text, "it goes on at its start", fix)
            self.end = known.log_start

    # --- what lies beside the segments

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
        remedy = "it is set aside: what producers wrote is read from the batches"
        self._add("snapshot-damaged", name, text, remedy, SetAside((name,)))

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
            text = f"the batch of offset {run.first_offset} has the leader epoch {run.epoch}, and should have {epoch}"
            if run.segment in self._mended:
                self._add(
                    "batch-header", name, text, "it is mended once the damage beside it is", position=run.position
                )
                continue
            right = epoch.to_bytes(4, "big", signed=True)
            fix = Several((Mend(name, patches=((run.position + _EPOCH_AT, right),)), Reindex(run.segment)))
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
        self._add("epochs-damaged", LEADER_EPOCHS, text, _AT_START if redone else _MADE_ANEW, rewritten)


def _told(cut: Excision) -> str:
    if cut.next_offset < 0:
        return f"{cut.reason}; the offsets from {cut.first_offset} on cannot be read"
    if cut.next_offset > cut.first_offset:
        return f"{cut.reason}; the offsets {cut.first_offset} to {cut.next_offset - 1} cannot be read"
    return f"{cut.reason}; no offset is missing"


def _is_cut_at_end(scan: SegmentScan) -> bool:
    return bool(scan.cuts) and scan.cuts[-1].end == scan.size
