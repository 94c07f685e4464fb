"""Looking at the segment files of a classic log without opening it: `barnabas log dump`."""

from collections.abc import Iterator

from ...ports.errors import ApiError
from ...ports.values import frozen
from ...ports.words import Buffer
from ..message.classic.entry import CODEC_MASK, LENGTH, MESSAGE_BYTES_MIN, read_header
from ..message.crc32 import crc32


@frozen(kw_only=True)
class ClassicFinding:
    """A message at `position` of a segment, or what is wrong there; both for one whose content is damaged."""

    position: int
    size: int = 0
    """With the length before it; 0 where no whole message is."""
    magic: int = -1
    codec_id: int = -1
    payload_bytes: int = -1
    crc_valid: bool = False
    problem: str | None = None


def examine_classic_segment(content: Buffer) -> Iterator[ClassicFinding]:
    """The outer messages of a segment file one after the other; ends at the first place where none can be found.

    Shallow, as recovery (facts A4): length, magic, CRC-32; what is in compressed messages is not opened.
    """
    position, total = 0, len(content)
    while position < total:
        finding = _message(content, position, total)
        yield finding
        if not finding.size:
            return
        position += finding.size


def _message(content: Buffer, position: int, total: int) -> ClassicFinding:
    if position + LENGTH.size > total:
        return ClassicFinding(position=position, problem=f"the end is cut: {total - position} bytes of a length")
    length = LENGTH.unpack_from(content, position)[0]
    size = LENGTH.size + length
    if length < MESSAGE_BYTES_MIN:
        return ClassicFinding(position=position, problem=f"no message begins here: it claims {length} bytes")
    if position + size > total:
        cut = f"the message is cut: {size} bytes, of which {total - position} are there"
        return ClassicFinding(position=position, problem=cut)
    try:
        payload_start, codec_id, crc = read_header(content, position, length)
    except ApiError as error:
        return ClassicFinding(position=position, problem=f"no message begins here: {error.message}")
    end = position + size
    crc_valid = crc32(content[payload_start:end]) == crc
    problem = "the CRC-32 does not match the content" if not crc_valid else None
    if problem is None and codec_id == CODEC_MASK:
        problem = f"codec {codec_id} is none"
    return ClassicFinding(
        position=position,
        size=size,
        magic=content[position + LENGTH.size],
        codec_id=codec_id,
        payload_bytes=end - payload_start,
        crc_valid=crc_valid,
        problem=problem,
    )
