"""Damage in a segment of batches: which offsets it costs, and where intact batches follow.

Base offset, length, leader epoch and magic of a batch are not covered by its checksum (facts B1). So a batch is
suspicious when its offsets do not follow the previous one; then its CRC, that of the previous batch and the next header
decide which of them is corrupt. A gap of a compaction passes this check.
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
"""Above all offsets."""
_FIRST = Offset(0)
_MAGIC = bytes([MAGIC])
_OFFSET_AND_LENGTH = Struct(">qi")
_DELTA = Struct(">i")
_DELTA_AT = 23
"""Position of lastOffsetDelta in a batch."""
_CRC_BYTES_MAX = 1 << 28
"""Maximum number of bytes that one search reads again to verify checksums of possible batches."""

_JUMP_MAX = 1 << 16
_OFFSETS_PER_BYTE = 16


@frozen(kw_only=True)
class Gap:
    """Bytes [position, end) of a segment that have no readable batch, and the offsets lost with them."""

    position: Position
    end: Position
    first_offset: Offset
    next_offset: Offset
    """Exclusive; equal to `first_offset` for mere garbage between two batches."""
    reason: str
    intact_behind: bool = True
    """False if nothing intact follows in the segment; `next_offset` is then the expected end of the segment."""

    @property
    def lost(self) -> str:
        """Describe the lost offsets."""
        if self.next_offset <= self.first_offset:
            return "no offset is missing"
        if self.next_offset == LONG_MAX:
            return f"the offsets from {self.first_offset} on cannot be read"
        return f"the offsets {self.first_offset} to {self.next_offset - 1} cannot be read"

    def __str__(self) -> str:
        candidate = f" from position {self.position} to {self.end}" if self.end else ""
        return f"damaged{candidate}: {self.reason}; {self.lost}"


class OffsetsDamaged(ApiError):
    """CORRUPT_MESSAGE for an offset in a gap; `next_offset` is readable again."""

    def __init__(self, where: str, gap: Gap) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{where} is {gap}; seek to {gap.next_offset} to continue after it")
        self.next_offset = gap.next_offset


class SegmentBytes:
    """A segment in memory, as the input of `walk`."""

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
    """Yield each batch of [position, end) in order, and each gap between them.

    expected:     the offset of the first batch; None if any is accepted.
    below:        upper bound of all offsets of the segment.
    bridge_below: from this offset on, damage raises `BadBatch` instead of a gap.
    likely_end:   the expected end offset, if known: it decides whether the base offset of the last batch is corrupt.
    """
    held: tuple[Position, BatchHeader] | None = None
    while True:
        try:
            for candidate in scan_batches(source, position, end, check_crc=check_crc):
                header = candidate[1]
                if expected is not None and (header.base_offset != expected or header.next_offset > below):
                    corruption = _why_corrupt(source, held, candidate, end, expected, below, likely_end)
                    if corruption is not None:
                        raise BadBatch(candidate[0], corruption)
                if held is not None:
                    yield held
                held, expected = candidate, header.next_offset
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


def _why_corrupt(
    source: Readable,
    before: tuple[Position, BatchHeader] | None,
    candidate: tuple[Position, BatchHeader],
    end: Position,
    expected: Offset,
    below: Offset,
    likely_end: int,
) -> str | None:
    """Return why a batch is corrupt that begins at an unexpected offset or reaches too far; None if it is accepted."""
    position, header = candidate
    base = header.base_offset
    if base < expected:
        return f"base offset {base}, expected at least {expected}"
    if header.next_offset > below:
        return f"offsets up to {header.last_offset}, but the segment ends at {below}"
    if before is not None and not crc_matches(source, *before):
        return "the batch before it is not what it was"
    if not crc_matches(source, position, header):
        return "the CRC-32C does not match the content"
    jumped = f"base offset {base}, expected {expected}"
    behind = Position(position + header.size)
    if behind >= end:
        return jumped if expected + header.last_offset_delta + 1 == likely_end else None
    try:
        follower = parse_header(source.read(behind, HEADER_SIZE))
    except ApiError:
        return None  # the previous batch is corrupt
    return jumped if expected < follower.base_offset < header.next_offset else None


def _behind(
    source: Readable, start: Position, end: Position, from_offset: Offset, below: Offset
) -> tuple[Position, BatchHeader] | None:
    """Return the first intact batch after the damage at `start`."""
    # Mostly the length is intact: then the content of the corrupt batch, with batches inside it, is skipped. The length
    # is believed if the next offset agrees with the corrupt batch; else it may reach over an intact one.
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
    """Return the first complete batch in [start, end) with offsets in [from_offset, below) and the right CRC."""
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
                candidate = Position(start + at)
                continues = crc_matches(source, candidate, header) and _is_plausible(
                    source, candidate, header, end, from_offset, passed=candidate - damaged_from
                )
                if continues:
                    return candidate, header
            at = piece.find(_MAGIC, at + MAGIC_AT + 1) - MAGIC_AT
        start = Position(start + last + 1)
    return None


def _is_plausible(
    source: Readable, candidate: Position, header: BatchHeader, end: Position, from_offset: Offset, *, passed: int
) -> bool:
    """Return False if the base offset of an intact batch after damage is corrupt.

    It is if the next batch has lower offsets; without a next one, if it is further away than the damaged bytes allow;
    or if it implies that the `passed` bytes, which have room for a batch, had none, while the next batch implies a gap.
    """
    behind = Position(candidate + header.size)
    if behind + HEADER_SIZE > end:
        return header.base_offset - from_offset <= max(_JUMP_MAX, candidate * _OFFSETS_PER_BYTE)
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
