"""One pass over a segment of classic messages: what is intact, and where the damage is.

Offsets are positions, so that nothing can be taken out of a segment: what is damaged is replaced by messages of the
same length that hold nothing, see `filler`.
"""

import zlib
from struct import Struct

from ....ports.errors import ApiError
from ....ports.storage import File
from ....ports.values import frozen
from ....ports.words import Position
from ...message.classic.check import good_prefix
from ...message.classic.entry import (
    CODEC_MASK,
    LENGTH,
    MAGIC_1,
    OVERHEAD_BYTES,
    Opener,
    next_inner_entry,
    read_header,
)
from ...message.codec import DECOMPRESSED_BYTES_MAX, NO_CODECS, Codecs
from ...message.crc32 import crc32
from ..batch_scan import SCAN_CHUNK_BYTES

_GZIP_ID = 1
_GZIP_HEAD = bytes.fromhex("1f8b0810 00000000 00ff")
"""Deflate, with a comment: it is what fills."""
_GZIP_TAIL = b"\0" + zlib.compress(b"", 9, -15) + bytes(8)
"""The end of the comment, no content, its CRC and length."""
FILLER_MIN = OVERHEAD_BYTES + len(_GZIP_HEAD) + len(_GZIP_TAIL)
"""The smallest filler, in bytes."""
FILLER_MAX = 64 * 1024
"""Consumers must be able to fetch one."""
_SEARCH_BYTES_MAX = 1 << 28
"""How much one search reads again for checksums of what looks like a message."""
_MAGIC_AT = Struct(">i").size


@frozen
class ClassicDamage:
    """Bytes [position, end) of a segment hold no whole message: at `end` the next one begins, or the segment ends."""

    position: int
    end: int
    reason: str
    messages: int | None = None
    """None where nobody knows."""


@frozen
class ClassicPatch:
    """What the byte or bytes at `position` should be: they stand outside the CRC, and the content is what it was."""

    position: int
    content: bytes
    message_at: int
    reason: str


class ClassicScan:
    """Call `run` once."""

    def __init__(self, file: File, size: int, codecs: Codecs = NO_CODECS) -> None:
        """Without codecs wrappers are not opened."""
        self.file, self.size = file, size
        self.messages = 0
        """Outer ones: a wrapper counts as one."""
        self.damages: list[ClassicDamage] = []
        self.patches: list[ClassicPatch] = []
        self._codecs = codecs

    def run(self) -> None:
        """Raises `StorageError`."""
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
        """The length or the magic that makes a message of the bytes up to there."""
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
        """(where the damage begins, what it is), or the end and None."""
        while position < self.size:
            piece = self.file.read(Position(position), min(SCAN_CHUNK_BYTES, self.size - position))
            good, problem, needs = good_prefix(piece)
            self._look(position, piece[:good])
            position += good
            if problem is not None:
                return position, problem
            if good:
                continue
            left = self.size - position
            if not 0 < needs <= left:
                return position, f"the message is cut: {left} bytes of it are there"
            if not self._begins_at(position):
                return position, "the CRC is wrong"
            self.messages += 1
            position += needs
        return position, None

    def _behind(self, position: int) -> tuple[int, int | None]:
        """(where the next whole message begins behind the damage or the segment ends, how many messages that costs)."""
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
                # Short ones are too easily found where none are.
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
        """True if a whole message with the right CRC is there."""
        head = self.file.read(Position(position), OVERHEAD_BYTES)
        if len(head) < OVERHEAD_BYTES:
            return False
        size = LENGTH.size + LENGTH.unpack_from(head)[0]
        return OVERHEAD_BYTES < size <= self.size - position and _is_good(self.file, position, size, head)

    def _look(self, position: int, piece: bytes) -> None:
        """Count the messages of a piece, and look whether wrappers are such: what says so is under no CRC."""
        at = 0
        while at < len(piece):
            end = at + LENGTH.size + LENGTH.unpack_from(piece, at)[0]
            self.messages += 1
            codec_id = piece[at + _MAGIC_AT + 1] & CODEC_MASK if piece[at + _MAGIC_AT] else 0
            unknown = codec_id == CODEC_MASK
            if unknown or (
                codec_id and codec_id in self._codecs and not self._opens(piece[at + MAGIC_1.size : end], codec_id)
            ):
                reason = f"a message that is not compressed says that it is, with codec {codec_id}"
                place = position + at
                self.patches.append(ClassicPatch(place + _MAGIC_AT + 1, b"\0", place, reason))
            at = end

    def _opens(self, payload: bytes, codec_id: int) -> bool:
        try:
            inner = Opener(self._codecs, DECOMPRESSED_BYTES_MAX).open(payload, codec_id, 1)
            return next_inner_entry(inner, 0) is not None or not inner
        except ApiError:
            return False


def _is_good(file: File, position: int, size: int, head: bytes) -> bool:
    """True if the bytes there are a message with this beginning, by its CRC; read piece by piece."""
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
    """The sizes of messages that together fill so many bytes; None where they are too few."""
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
    """A message of so many bytes that holds no message: a wrapper whose content, when decompressed, is empty."""
    payload = _GZIP_HEAD + b" " * (size - FILLER_MIN) + _GZIP_TAIL
    length = MAGIC_1.size - LENGTH.size + len(payload)
    return MAGIC_1.pack(length, 1, _GZIP_ID, crc32(payload)) + payload
