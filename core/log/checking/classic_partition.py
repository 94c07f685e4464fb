"""The folder of a partition of the classic generation: everything in it that is not as it should be (facts A4)."""

from collections.abc import Sequence

from ....ports.storage import File, Folder
from ....ports.values import frozen
from ....ports.words import Offset
from ...message.codec import Codecs
from ..checkpoints import PARTITION_METADATA, Sealed
from ..classic_format import classic_segments, segments_in_chain
from ..classic_segment import ClassicSegment
from ..config import LONG_MAX
from ..names import ASIDE_SUFFIX, CLASSIC_SEGMENT_FILE
from .classic_scan import FILLER_MIN, ClassicDamage, ClassicScan, filler, filler_message
from .findings import Finding, Fix, Loss
from .fixes import SetAside, keep_range
from .partition import Known
from .pretended import PretendedFolder, copy_range

_TEMPORARY = ".tmp"
_FILLED = "it is kept in a file *.aside, and messages that hold nothing take its place, so that offsets stay"
_CUT = "it is cut off, and kept in a file *.aside"


@frozen
class FillClassic:
    """Write a segment anew: with fillers for `ranges`, cut at `end`, and filled from there up to `fill_to`."""

    name: str
    ranges: tuple[tuple[int, int], ...]
    end: int
    fill_to: int
    patches: tuple[tuple[int, bytes], ...] = ()

    def __call__(self, folder: Folder) -> None:
        source = folder.open(self.name, create=False)
        for start, end in (*self.ranges, (self.end, source.size)):
            keep_range(folder, source, start, end)
        made = folder.open(self.name + _TEMPORARY)
        made.truncate(0)
        done = 0
        changes = [(start, end, b"") for start, end in self.ranges]
        for start, end, right in sorted([*changes, *((at, at + len(one), one) for at, one in self.patches)]):
            copy_range(source, done, start, made)
            made.append(right)
            _fill(made, end - start - len(right))
            done = end
        copy_range(source, done, self.end, made)
        _fill(made, self.fill_to - self.end)
        made.flush()
        made.close()
        source.close()
        folder.rename(self.name + _TEMPORARY, self.name)
        folder.flush()


def _fill(target: File, size: int) -> None:
    for each in filler(size) or ():
        target.append(filler_message(each))


class ClassicPartition:
    """Checks one folder; nothing in it is changed. Raises `StorageError`."""

    def __init__(self, folder: Folder, known: Known, codecs: Codecs) -> None:
        self.findings: list[Finding] = []
        self.segments = self.batches = self.messages = 0
        self.start = self.end = self.durable_to = 0
        self.sealed: list[Sealed] = []
        self._folder, self._known = folder, known
        self._files = folder.files()
        self._codecs = codecs

    def check(self) -> None:
        self._other_files()
        segments = self._own_segments()
        self.segments = len(segments)
        for number, segment in enumerate(segments):
            if not number:
                self.start = segment.base_offset
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            self._segment(segment, following)

    def _add(self, kind: str, name: str, text: str, remedy: str = "", fix: Fix | None = None, **more: object) -> None:
        where = f"{self._folder.name}/{name}"
        self.findings.append(Finding(kind=kind, file=where, text=text, remedy=remedy, fix=fix, **more))  # type: ignore[arg-type]  # position, loss

    # --- which files are the log's

    def _other_files(self) -> None:
        for name in self._files:
            found = CLASSIC_SEGMENT_FILE.fullmatch(name)
            if name == PARTITION_METADATA:
                continue
            if ASIDE_SUFFIX in name:
                self._add("aside", name, "was set aside", "look at it, and delete it when nothing in it is wanted")
            elif found is None and name.endswith(_TEMPORARY):
                self._add(
                    "leftover", name, "was left by a repair that was interrupted", "the next repair writes over it"
                )
            elif found is None:
                self._add("unknown-file", name, "is no file of a classic log", "it is left alone")
            elif found["state"]:
                self._add("leftover", name, "was left by a change that was interrupted", "the next start removes it")
            elif int(found["base"]) >= LONG_MAX:
                self._add("segment-foreign", name, "begins beyond all offsets", "it is set aside", SetAside((name,)))

    def _own_segments(self) -> Sequence[ClassicSegment]:
        pretended = PretendedFolder(self._folder)
        lines: list[str] = []
        there = classic_segments(pretended, lines.append)
        recover = not self._known.in_order
        kept = segments_in_chain(pretended, there, self._known.recovery_point or 0, recover, lines.append)
        for segment in there:
            if segment not in kept:
                name = segment.names[0]
                fix = SetAside((name,))
                self._add("segment-foreign", name, "is no part of the chain of segments", "it is set aside", fix)
        return kept

    # --- one segment

    def _segment(self, segment: ClassicSegment, following: int | None) -> None:
        scan = ClassicScan(segment.file, segment.size, self._codecs)
        scan.run()
        self.messages += scan.messages
        known, base = self._known, segment.base_offset
        inside = [damage for damage in scan.damages if damage.end < segment.size]
        at_end = scan.damages[-1] if len(inside) < len(scan.damages) else None
        end = fill_to = at_end.position if at_end is not None else segment.size
        goes_to = following
        if following is None and known.recovery_point is not None and not known.in_use:
            goes_to = max(base + end, known.recovery_point)
        if goes_to is not None and goes_to != base + end:
            if goes_to < base + end:
                end = self._boundary(scan, goes_to - base)
            if goes_to - base - end >= FILLER_MIN or goes_to == base + end:
                fill_to = goes_to - base
            elif following is not None:
                self._add("offsets-missing", segment.names[0], *_unmendable(base + end, goes_to), needs_person=True)
                return
        ranges = [damage for damage in inside if damage.end <= end]
        for damage in [damage for damage in ranges if damage.end - damage.position < FILLER_MIN]:
            text = f"{damage.reason}; {damage.end - damage.position} bytes are too few to be filled"
            remedy = "readers pass it with --skip-damaged"
            ranges.remove(damage)
            self._add("batch-damaged", segment.names[0], text, remedy, position=damage.position, needs_person=True)
        patches = [patch for patch in scan.patches if patch.position < end]
        fix = FillClassic(
            segment.names[0],
            tuple((one.position, one.end) for one in ranges),
            end,
            max(end, fill_to),
            tuple((one.position, one.content) for one in patches),
        )
        self._tell(segment, ranges, fix)
        for patch in patches:
            text = f"{patch.reason}; its content is intact"
            name, at = segment.names[0], patch.message_at
            self._add("batch-header", name, text, "its header is restored", fix, position=at)
        if at_end is not None or end != segment.size or fill_to > end:
            self._tell_end(segment, at_end, fix, following)
        self.end = base + max(end, fill_to)
        if following is not None:
            self.sealed.append(Sealed(base, Offset(following), max(end, fill_to)))

    def _boundary(self, scan: ClassicScan, position: int) -> int:
        """Where the last message ends that does so at or before a position. Raises `StorageError`."""
        part = ClassicScan(scan.file, position)
        part.run()
        return part.damages[-1].position if part.damages and part.damages[-1].end == position else position

    def _tell(self, segment: ClassicSegment, damages: Sequence[ClassicDamage], fix: Fix) -> None:
        base = segment.base_offset
        for damage in damages:
            loss = Loss(
                first_offset=base + damage.position,
                next_offset=base + damage.end,
                messages=damage.messages,
                bytes=damage.end - damage.position,
            )
            name = segment.names[0]
            self._add("batch-damaged", name, damage.reason, _FILLED, fix, position=damage.position, loss=loss)

    def _tell_end(
        self, segment: ClassicSegment, damage: ClassicDamage | None, fix: FillClassic, following: int | None
    ) -> None:
        base, name, size = segment.base_offset, segment.names[0], segment.size
        upto = base + max(fix.fill_to, size if following is None else 0)
        loss = Loss(
            first_offset=base + fix.end,
            next_offset=max(upto, base + fix.end),
            messages=damage.messages if damage is not None else None,
            bytes=size - fix.end,
        )
        remedy = _FILLED if fix.fill_to > fix.end else _CUT
        if following is None and damage is not None:
            given = None if self._known.in_use else fix
            self._add("end-torn", name, damage.reason, remedy, given, position=fix.end, loss=loss)
        elif damage is not None:
            self._add("batch-damaged", name, damage.reason, remedy, fix, position=fix.end, loss=loss)
        elif fix.end < size:
            text = f"goes on to offset {base + size}, into the segment behind it"
            self._add("segment-foreign", name, text, remedy, fix, position=fix.end, loss=loss)
        else:
            text = f"ends at offset {base + size}: the offsets up to {upto - 1} are missing"
            kind = "offsets-missing" if following is not None else "end-lost"
            self._add(kind, name, text, remedy, fix, loss=loss)


def _unmendable(end: int, goes_to: int) -> tuple[str, str]:
    return f"ends at offset {end}, and {goes_to} follows: too few bytes to be filled", "this is for a person"
