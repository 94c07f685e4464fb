"""Damage in a segment of batches: what it costs, and where intact batches go on behind it.

Base offset, length, leader epoch and magic of a batch are under no checksum (facts B1). So a batch is doubted when its
offsets do not go on where the one before ends, and then its CRC, that of the one before and the header behind it tell
which of them is damaged. A hole that compaction has left passes this.
"""

from collections.abc import Iterator
from struct import Struct

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import Buffer, Offset, Position
from ....ports.values import frozen
from ...message.batch_header import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAGIC_AT, BatchHeader, parse_header
from ..batch_scan import SCAN_CHUNK_BYTES, BadBatch, Readable, crc_matches, scan_batches
from ..config import LONG_MAX

NO_BOUND = Offset(LONG_MAX)
"""Below it are all offsets."""
_FIRST = Offset(0)
_MAGIC = bytes([MAGIC])
_OFFSET_AND_LENGTH = Struct(">qi")
_DELTA = Struct(">i")
_DELTA_AT = 23
"""Of lastOffsetDelta."""
_CRC_BYTES_MAX = 1 << 28
"""How much one search reads again for checksums of what looks like a batch."""

_JUMP_MAX = 1 << 16
_OFFSETS_PER_BYTE = 16


@frozen(kw_only=True)
class Gap:
    """Bytes [position, end) of a segment hold no batch that can be read, and with them the offsets are gone."""

    position: Position
    end: Position
    first_offset: Offset
    next_offset: Offset
    """Exclusive. The same as `first_offset` where nothing but garbage was found between two batches."""
    reason: str
    intact_behind: bool = True
    """False where nothing intact follows in the segment; `next_offset` is then where the segment should end."""

    @property
    def lost(self) -> str:
        """The offsets that it costs, in words."""
        if self.next_offset <= self.first_offset:
            return "no offset is missing"
        if self.next_offset == LONG_MAX:
            return f"the offsets from {self.first_offset} on cannot be read"
        return f"the offsets {self.first_offset} to {self.next_offset - 1} cannot be read"

    def __str__(self) -> str:
        place = f" from position {self.position} to {self.end}" if self.end else ""
        return f"damaged{place}: {self.reason}; {self.lost}"


class OffsetsDamaged(ApiError):
    """CORRUPT_MESSAGE for an offset in a gap. Reading can go on at `next_offset`."""

    def __init__(self, where: str, gap: Gap) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{where} is {gap}; seek to {gap.next_offset} to go on behind it")
        self.next_offset = gap.next_offset


class SegmentBytes:
    """A segment in memory, to be walked over."""

    def __init__(self, content: Buffer) -> None:
        self._content = content

    def read(self, position: Position, size: int, /) -> bytes:
        return bytes(self._content[position : position + size])


def walk(
    source: Readable,
    position: Position,
    end: Position,
    *,
    expected: Offset | None,
    below: Offset = NO_BOUND,
    check_crc: bool = False,
    bridge_below: Offset = NO_BOUND,
    likely_end: int = -1,
) -> Iterator[tuple[Position, BatchHeader] | Gap]:
    """Each batch of [position, end) in order, and each gap between them.

    expected:     the offset of the first batch; None: whatever it says is believed.
    below:        no offset of the segment reaches it.
    bridge_below: from this offset on, damage is no gap but raises `BadBatch`.
    likely_end:   where the offsets should end, if known: tells whether the last batch lies about its own.
    """
    held: tuple[Position, BatchHeader] | None = None
    while True:
        try:
            for place in scan_batches(source, position, end, check_crc=check_crc):
                header = place[1]
                if expected is not None and (header.base_offset != expected or header.next_offset > below):
                    doubt = _doubt(source, held, place, end, expected, below, likely_end)
                    if doubt is not None:
                        raise BadBatch(place[0], doubt)
                if held is not None:
                    yield held
                held, expected = place, header.next_offset
            if held is not None:
                yield held
            return
        except BadBatch as error:
            start, reason = error.position, error.reason
        if held is not None and not check_crc and not crc_matches(source, *held):
            start, expected = held[0], held[1].base_offset
            reason = "the length or the content of a batch is not what it was"
        elif held is not None:
            yield held
        held = None
        first = expected if expected is not None else Offset(0)
        if first >= bridge_below:
            raise BadBatch(start, reason)
        found = _behind(source, start, end, first, below)
        if found is None:
            yield Gap(
                position=start, end=end, first_offset=first, next_offset=below, reason=reason, intact_behind=False
            )
            return
        position, expected = found[0], found[1].base_offset
        yield Gap(position=start, end=position, first_offset=first, next_offset=expected, reason=reason)


def _doubt(
    source: Readable,
    before: tuple[Position, BatchHeader] | None,
    place: tuple[Position, BatchHeader],
    end: Position,
    expected: Offset,
    below: Offset,
    likely_end: int,
) -> str | None:
    """Why a batch that does not begin at the expected offset, or reaches too far, is not believed; None: it is."""
    position, header = place
    base = header.base_offset
    if base < expected:
        return f"base offset {base}, at least {expected} is expected"
    if header.next_offset > below:
        return f"offsets up to {header.last_offset}, but the segment ends at {below}"
    if before is not None and not crc_matches(source, *before):
        return "the batch before it is not what it was"
    if not crc_matches(source, position, header):
        return "the CRC-32C does not match the content"
    jumped = f"base offset {base} where {expected} is expected"
    behind = Position(position + header.size)
    if behind >= end:
        return jumped if expected + header.last_offset_delta + 1 == likely_end else None
    try:
        follower = parse_header(source.read(behind, HEADER_SIZE))
    except ApiError:
        return None  # the damage is there
    return jumped if expected < follower.base_offset < header.next_offset else None


def _behind(
    source: Readable, start: Position, end: Position, from_offset: Offset, below: Offset
) -> tuple[Position, BatchHeader] | None:
    """The first intact batch behind the damage at `start`."""
    # Mostly the length can still be believed: what the damaged batch contains is then passed over, batches among it.
    # It is, where the offset behind it agrees with the damaged batch; else the length may reach over an intact one.
    head = source.read(start, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")
    base, length = _OFFSET_AND_LENGTH.unpack_from(head)
    (delta,) = _DELTA.unpack_from(head, _DELTA_AT)
    position = Position(start + LENGTH_OVERHEAD + max(length, 0))
    header = _batch_at(source.read(position, HEADER_SIZE), 0, end - position, from_offset, below)
    agrees = header is not None and header.base_offset in (base + delta + 1, from_offset + delta + 1)
    if header is not None and agrees and crc_matches(source, position, header):
        return position, header
    return find_intact_batch(source, Position(start + 1), end, from_offset=from_offset, below=below)


def find_intact_batch(
    source: Readable, start: Position, end: Position, *, from_offset: Offset = _FIRST, below: Offset = NO_BOUND
) -> tuple[Position, BatchHeader] | None:
    """The first place in [start, end) with a whole batch of offsets in [from_offset, below) and the right CRC."""
    left = _CRC_BYTES_MAX
    damaged_from = start
    while start + HEADER_SIZE <= end:
        piece = source.read(start, min(SCAN_CHUNK_BYTES, end - start))
        last = len(piece) - HEADER_SIZE
        if last < 0:
            break
        at = piece.find(_MAGIC, MAGIC_AT) - MAGIC_AT
        while 0 <= at <= last:
            header = _batch_at(piece, at, end - start - at, from_offset, below)
            if header is not None:
                left -= header.size
                if left < 0:
                    return None
                place = Position(start + at)
                goes_on = crc_matches(source, place, header) and _goes_on(
                    source, place, header, end, from_offset, passed=place - damaged_from
                )
                if goes_on:
                    return place, header
            at = piece.find(_MAGIC, at + MAGIC_AT + 1) - MAGIC_AT
        start = Position(start + last + 1)
    return None


def _goes_on(
    source: Readable, place: Position, header: BatchHeader, end: Position, from_offset: Offset, *, passed: int
) -> bool:
    """False if an intact batch behind damage lies about its offset: the next one goes back behind it, or, where there
    is none, it is further away than what was damaged can have taken; or it says that the `passed` bytes, in which a
    batch has room, held none, and the next one says that offsets are missing."""
    behind = Position(place + header.size)
    if behind + HEADER_SIZE > end:
        return header.base_offset - from_offset <= max(_JUMP_MAX, place * _OFFSETS_PER_BYTE)
    try:
        follower = parse_header(source.read(behind, HEADER_SIZE)).base_offset
    except ApiError:
        return True
    if header.base_offset == from_offset and passed >= HEADER_SIZE:
        return follower == header.next_offset
    return follower >= header.next_offset


def _batch_at(piece: bytes, at: int, available: int, from_offset: Offset, below: Offset) -> BatchHeader | None:
    if not from_offset <= int.from_bytes(piece[at : at + 8], "big", signed=True) < below:
        return None
    try:
        header = parse_header(piece, at)
    except ApiError:
        return None
    fits = header.size <= available and header.next_offset <= below and header.count <= header.last_offset_delta + 1
    return header if fits else None
