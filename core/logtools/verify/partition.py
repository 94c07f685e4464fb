"""The check of a partition folder with batches: every defect in it (facts B3)."""

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
from .index_checks import OffsetIndexCheck, TimeIndexCheck
from .overlay_folder import OverlayFolder
from .segment_scan import Excision, SegmentScan
from .state_checks import EpochCheck, ProducerCheck, TransactionCheck

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
                    "batch-header", name, text, "it is mended once the damage beside it is", position=run.position
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
