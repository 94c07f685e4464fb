"""What a broker looks at before it appends a classic message set, and after a crash (facts A3, A4)."""

from typing import NamedTuple

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.words import Buffer
from ..codec import DECOMPRESSED_BYTES_MAX, Codecs
from ..crc32 import crc32
from .entry import LENGTH, MESSAGE_BYTES_MIN, plain_run
from .reader import corrupt, read_header, unwrap


class CheckedSet(NamedTuple):
    """How much of a set can be appended."""

    valid_bytes: int
    """Of whole entries; what follows is a part of one."""
    messages: int
    """Those in wrappers counted, not the wrappers."""


def check_set(
    records: Buffer, codecs: Codecs, *, max_message_bytes: int, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> CheckedSet:
    """Check sizes and CRCs of all messages, through wrappers, which must decompress to at most `max_bytes` each.

    `max_message_bytes` bounds the payload of an outer message. Raises `ApiError`: MESSAGE_TOO_LARGE; CORRUPT_MESSAGE
    also when not even one message is whole; UNSUPPORTED_COMPRESSION_TYPE.
    """
    data = records if isinstance(records, memoryview) else memoryview(records)
    payloads, ends, wrong = plain_run(data)
    if payloads and max(map(len, payloads)) > max_message_bytes:
        number = next(number for number, payload in enumerate(payloads) if len(payload) > max_message_bytes)
        raise _too_large(ends[number - 1] if number else 0, len(payloads[number]), max_message_bytes)
    if wrong >= 0:
        raise corrupt(ends[wrong - 1] if wrong else 0, "the CRC is wrong")
    position, size, messages = ends[-1] if ends else 0, len(data), len(ends)
    while size - position >= LENGTH.size:
        end, count = _check_entry(data, position, codecs, max_message_bytes, max_bytes)
        if not end:
            break
        messages += count
        position = end
    if not position and size:
        raise corrupt(0, f"the set of {size} bytes holds no whole message")
    return CheckedSet(position, messages)


def _check_entry(
    data: memoryview, position: int, codecs: Codecs, max_message_bytes: int, max_bytes: int
) -> tuple[int, int]:
    """(the end of the entry, how many messages it holds); (0, 0) when it is not whole."""
    length = LENGTH.unpack_from(data, position)[0]
    end = position + LENGTH.size + length
    if length < 0:
        raise corrupt(position, f"it claims {length} bytes")
    if end > len(data):
        return 0, 0
    payload_start, codec_id, crc = read_header(data, position, length)
    if end - payload_start > max_message_bytes:
        raise _too_large(position, end - payload_start, max_message_bytes)
    payload = data[payload_start:end]
    if crc32(payload) != crc:
        raise corrupt(position, "the CRC is wrong")
    if not codec_id:
        return end, 1
    return end, len(unwrap(payload, codec_id, codecs, max_bytes=max_bytes, whole=True))


def _too_large(position: int, size: int, limit: int) -> ApiError:
    text = f"the message at position {position} has {size} bytes of payload; max.message.size allows {limit}"
    return ApiError(ErrorCode.MESSAGE_TOO_LARGE, text)


class GoodPrefix(NamedTuple):
    """What recovery finds in a piece of a segment."""

    bytes: int
    """Of whole entries with the right CRC, from the beginning of the piece on."""
    problem: str | None
    """What is wrong with the entry after them; None when the piece ends there, perhaps inside an entry."""
    needs: int
    """Bytes of the entry that the end of the piece cuts; 0 = unknown."""


def good_prefix(piece: Buffer) -> GoodPrefix:
    """Walk over outer entries as recovery does (facts A4): shallow, sizes and CRCs."""
    data = memoryview(piece)
    position, size = 0, len(data)
    while size - position >= LENGTH.size:
        length = LENGTH.unpack_from(data, position)[0]
        end = position + LENGTH.size + length
        if length < MESSAGE_BYTES_MIN:
            return GoodPrefix(position, f"it claims {length} bytes", 0)
        if end > size:
            return GoodPrefix(position, None, end - position)
        try:
            payload_start, _, crc = read_header(data, position, length)
        except ApiError as error:
            return GoodPrefix(position, error.message, 0)
        if crc32(data[payload_start:end]) != crc:
            return GoodPrefix(position, "the CRC is wrong", 0)
        position = end
    return GoodPrefix(position, None, 0)
