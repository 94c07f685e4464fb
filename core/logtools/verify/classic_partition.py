"""The check of a partition folder of the classic generation: every defect in it (facts A4)."""

import zlib
from collections.abc import Sequence
from struct import Struct

from ....ports.errors import ApiError
from ....ports.storage import File, Folder
from ....ports.types import Offset, Position
from ....ports.values import frozen
from ...log.batch_scan import SCAN_CHUNK_BYTES
from ...log.checkpoints import PARTITION_METADATA, SealedSegment
from ...log.config import LONG_MAX
from ...log.formats.classic_format import classic_segments, segments_in_chain
from ...log.formats.classic_segment import ClassicSegment
from ...log.names import CLASSIC_SEGMENT_FILE, QUARANTINE_SUFFIX
from ...message.classic.entry import CODEC_MASK, LENGTH, MAGIC_1, OVERHEAD_BYTES, Opener, read_header, read_inner_entry
from ...message.classic.validation import find_valid_prefix
from ...message.codec import DECOMPRESSED_BYTES_MAX, NO_CODECS, Codecs
from ...message.crc32 import crc32
from .findings import Finding, Fix, Loss
from .fixes import RENAMED, Quarantine, write_range_copy
from .overlay_folder import OverlayFolder, copy_range
from .partition import PartitionContext

_GZIP_ID = 1
_GZIP_HEAD = bytes.fromhex("1f8b0810 00000000 00ff")
"""A deflate header with a comment, which is the filler."""
_GZIP_TAIL = b"\0" + zlib.compress(b"", 9, -15) + bytes(8)
"""The end of the comment, no content, its CRC and length."""
FILLER_MIN = OVERHEAD_BYTES + len(_GZIP_HEAD) + len(_GZIP_TAIL)
"""The smallest filler, in bytes."""
FILLER_MAX = 64 * 1024
"""Maximum size of a filler, which consumers must be able to fetch."""
_SEARCH_BYTES_MAX = 1 << 28
"""Maximum number of bytes that one search reads again to verify checksums of possible messages."""
_MAGIC_AT = Struct(">i").size


@frozen
class ClassicDamage:
    """Bytes [position, end) of a segment without a complete message; `end` is the next message or the segment's end."""

    position: int
    end: int
    reason: str
    messages: int | None = None
    """None if the number is unknown."""


@frozen
class ClassicPatch:
    """The correct bytes at `position`, which are not covered by the CRC; the content is intact."""

    position: int
    content: bytes
    message_at: int
    reason: str


class ClassicScan:
    """Scans a segment. Call `run` once."""

    def __init__(self, file: File, size: int, codecs: Codecs = NO_CODECS) -> None:
        """Without codecs wrappers are not opened."""
        self.file, self.size = file, size
        self.messages = 0
        """Number of outer messages: a wrapper counts as one."""
        self.damages: list[ClassicDamage] = []
        self.patches: list[ClassicPatch] = []
        self._codecs = codecs

    def run(self) -> None:
        """Scan the segment. Raises `StorageError`."""
        position = 0
        while position < self.size:
            end, reason = self._good(position)
            if reason is None:
                return
            behind, messages = self._behind(end)
            patch = self._restored(end, behind, reason)
            if patch is not None:
                self.patches.append(patch)
                self.messages += 1
            else:
                self.damages.append(ClassicDamage(end, behind, reason, messages))
            position = behind

    def _restored(self, position: int, behind: int, reason: str) -> ClassicPatch | None:
        """Return the length or the magic that makes a message of the bytes up to `behind`, or None."""
        head = self.file.read(Position(position), OVERHEAD_BYTES)
        size = behind - position
        if len(head) < OVERHEAD_BYTES or size <= OVERHEAD_BYTES:
            return None
        length = LENGTH.pack(size - LENGTH.size)
        for magic in (head[_MAGIC_AT : _MAGIC_AT + 1], b"\1", b"\0"):
            start = length + magic
            if _is_good(self.file, position, size, start + head[len(start) :]):
                return ClassicPatch(position, start, position, reason) if start != head[: len(start)] else None
        return None

    def _good(self, position: int) -> tuple[int, str | None]:
        """Return (position of the damage, problem), or the end and None."""
        while position < self.size:
            piece = self.file.read(Position(position), min(SCAN_CHUNK_BYTES, self.size - position))
            good, problem, needs = find_valid_prefix(piece)
            self._check_messages(position, piece[:good])
            position += good
            if problem is not None:
                return position, problem
            if good:
                continue
            left = self.size - position
            if not 0 < needs <= left:
                return position, f"the message is truncated after {left} bytes"
            if not self._begins_at(position):
                return position, "the CRC is wrong"
            self.messages += 1
            position += needs
        return position, None

    def _behind(self, position: int) -> tuple[int, int | None]:
        """Return (position of the next complete message after the damage or the end, number of lost messages)."""
        head = self.file.read(Position(position), LENGTH.size)
        if len(head) == LENGTH.size:
            follower = position + LENGTH.size + LENGTH.unpack(head)[0]
            if position + OVERHEAD_BYTES <= follower < self.size and self._begins_at(follower):
                return follower, 1
            if follower >= self.size:
                return self._search(position + 1), 1 if follower == self.size else None
        return self._search(position + 1), None

    def _search(self, start: int) -> int:
        left = _SEARCH_BYTES_MAX
        while start < self.size and left > 0:
            piece = self.file.read(Position(start), min(SCAN_CHUNK_BYTES, self.size - start))
            for at in range(len(piece) - MAGIC_1.size + 1):
                if piece[at + _MAGIC_AT] > 1:
                    continue
                length = LENGTH.unpack_from(piece, at)[0]
                size = LENGTH.size + length
                # A short message is found too easily in random bytes.
                if not MAGIC_1.size < size <= self.size - start - at:
                    continue
                left -= size
                if self._begins_at(start + at):
                    return start + at
                if left <= 0:
                    break
            start += max(1, len(piece) - MAGIC_1.size + 1)
        return self.size

    def _begins_at(self, position: int) -> bool:
        """Return True for a complete message there with the right CRC."""
        head = self.file.read(Position(position), OVERHEAD_BYTES)
        if len(head) < OVERHEAD_BYTES:
            return False
        size = LENGTH.size + LENGTH.unpack_from(head)[0]
        return OVERHEAD_BYTES < size <= self.size - position and _is_good(self.file, position, size, head)

    def _check_messages(self, position: int, piece: bytes) -> None:
        """Count the messages of a piece, and open the wrappers: the codec is not covered by the CRC."""
        at = 0
        while at < len(piece):
            end = at + LENGTH.size + LENGTH.unpack_from(piece, at)[0]
            self.messages += 1
            codec_id = piece[at + _MAGIC_AT + 1] & CODEC_MASK if piece[at + _MAGIC_AT] else 0
            unknown = codec_id == CODEC_MASK
            if unknown or (
                codec_id and codec_id in self._codecs and not self._opens(piece[at + MAGIC_1.size : end], codec_id)
            ):
                reason = f"a message that is not compressed has codec {codec_id}"
                place = position + at
                self.patches.append(ClassicPatch(place + _MAGIC_AT + 1, b"\0", place, reason))
            at = end

    def _opens(self, payload: bytes, codec_id: int) -> bool:
        try:
            inner = Opener(self._codecs, DECOMPRESSED_BYTES_MAX).open(payload, codec_id, 1)
            return read_inner_entry(inner, 0) is not None or not inner
        except ApiError:
            return False


def _is_good(file: File, position: int, size: int, head: bytes) -> bool:
    """Return True if the bytes are a message with this header, by its CRC; read piece by piece."""
    end = position + size
    try:
        at, _, expected = read_header(head, 0, size - LENGTH.size)
    except ApiError:
        return False
    at += position
    crc = 0
    while at < end:
        piece = file.read(Position(at), min(SCAN_CHUNK_BYTES, end - at))
        if not piece:
            return False
        crc = crc32(piece, crc)
        at += len(piece)
    return crc == expected


def filler(size: int) -> list[int] | None:
    """Return the sizes of messages that together have `size` bytes; None if it is too small."""
    if size < FILLER_MIN:
        return None
    sizes = []
    while size >= FILLER_MAX + FILLER_MIN:
        sizes.append(FILLER_MAX)
        size -= FILLER_MAX
    if size > FILLER_MAX:
        sizes.append(size - FILLER_MIN)
        size = FILLER_MIN
    return [*sizes, size]


def filler_message(size: int) -> bytes:
    """Return a message of `size` bytes without content: a wrapper that decompresses to nothing."""
    payload = _GZIP_HEAD + b" " * (size - FILLER_MIN) + _GZIP_TAIL
    length = MAGIC_1.size - LENGTH.size + len(payload)
    return MAGIC_1.pack(length, 1, _GZIP_ID, crc32(payload)) + payload


_TEMPORARY = ".tmp"
_FILLED = "it is moved to a file *.aside and replaced by empty messages, so that offsets do not change"
_CUT = "it is moved to a file *.aside"


@frozen
class FillClassic:
    """Rewrite a segment: with fillers for `ranges`, truncated at `end`, and filled from there up to `fill_to`."""

    name: str
    ranges: tuple[tuple[int, int], ...]
    end: int
    fill_to: int
    patches: tuple[tuple[int, bytes], ...] = ()

    def __call__(self, folder: Folder) -> None:
        source = folder.open(self.name, create=False)
        for start, end in (*self.ranges, (self.end, source.size)):
            write_range_copy(folder, source, start, end)
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
    """Checks one folder without changes. Raises `StorageError`."""

    def __init__(self, folder: Folder, known: PartitionContext, codecs: Codecs) -> None:
        self.findings: list[Finding] = []
        self.segments = self.batches = self.messages = 0
        self.start = self.end = self.durable_to = 0
        self.sealed: list[SealedSegment] = []
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

    # --- the files of the log

    def _other_files(self) -> None:
        for name in self._files:
            found = CLASSIC_SEGMENT_FILE.fullmatch(name)
            if name == PARTITION_METADATA:
                continue
            if QUARANTINE_SUFFIX in name:
                self._add("aside", name, "is quarantined", "inspect it, and delete it when it is not needed")
            elif found is None and name.endswith(_TEMPORARY):
                self._add(
                    "leftover", name, "was left by a repair that was interrupted", "the next repair writes over it"
                )
            elif found is None:
                self._add("unknown-file", name, "is not a file of a classic log", "it is ignored")
            elif found["state"]:
                self._add("leftover", name, "remains of an interrupted change", "the next start removes it")
            elif int(found["base"]) >= LONG_MAX:
                self._add("segment-foreign", name, "begins beyond all offsets", RENAMED, Quarantine((name,)))

    def _own_segments(self) -> Sequence[ClassicSegment]:
        overlay = OverlayFolder(self._folder)
        lines: list[str] = []
        there = classic_segments(overlay, lines.append)
        recover = not self._known.in_order
        members = segments_in_chain(overlay, there, self._known.recovery_point or 0, recover, lines.append)
        for segment in there:
            if segment not in members:
                name = segment.names[0]
                fix = Quarantine((name,))
                self._add("segment-foreign", name, "does not follow the previous segment", RENAMED, fix)
        return members

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
            text = f"{damage.reason}; {damage.end - damage.position} bytes are too few for a filler"
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
        self._add_damages(segment, ranges, fix)
        for patch in patches:
            text = f"{patch.reason}; its content is intact"
            name, at = segment.names[0], patch.message_at
            self._add("batch-header", name, text, "its header is restored", fix, position=at)
        if at_end is not None or end != segment.size or fill_to > end:
            self._add_end_damage(segment, at_end, fix, following)
        self.end = base + max(end, fill_to)
        if following is not None:
            self.sealed.append(SealedSegment(base, Offset(following), max(end, fill_to)))

    def _boundary(self, scan: ClassicScan, position: int) -> int:
        """Return the end of the last message that ends at or before a position. Raises `StorageError`."""
        part = ClassicScan(scan.file, position)
        part.run()
        return part.damages[-1].position if part.damages and part.damages[-1].end == position else position

    def _add_damages(self, segment: ClassicSegment, damages: Sequence[ClassicDamage], fix: Fix) -> None:
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

    def _add_end_damage(
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
            text = f"ends at offset {base + size}, inside the next segment"
            self._add("segment-foreign", name, text, remedy, fix, position=fix.end, loss=loss)
        else:
            text = f"ends at offset {base + size}: offsets up to {upto - 1} are missing"
            kind = "offsets-missing" if following is not None else "end-lost"
            self._add(kind, name, text, remedy, fix, loss=loss)


def _unmendable(end: int, goes_to: int) -> tuple[str, str]:
    return f"ends at offset {end}, and {goes_to} follows: too few bytes for a filler", "this needs an administrator"
