"""Validation of classic message sets before an append, and in log recovery (facts A3, A4)."""

from functools import partial
from typing import NamedTuple

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import Buffer
from ...traffic.steps import Steps
from ..codec import DECOMPRESSED_BYTES_MAX, Codecs
from ..crc32 import crc32
from .entry import (
    LENGTH,
    LENGTH_MAX,
    MAGIC_1_HEADER_BYTES,
    MESSAGE_BYTES_MIN,
    Opener,
    corrupt,
    read_entry,
    read_header,
    read_inner_entry,
    skip_plain_run,
)

PIECE = 1_000
"""Messages between two yields: about half a millisecond."""
_SPAN_BYTES = 16_384
"""Bytes of plain messages checked in one call."""
_WRAPPER_COST = 20
"""Cost of opening a short wrapper, in messages."""


class ValidatedSet(NamedTuple):
    """The part of a message set that can be appended."""

    valid_bytes: int
    """Size of the complete entries; a truncated entry may follow."""
    messages: int
    """Number of messages, counting those in wrappers but not the wrappers."""


def validate_set(
    records: Buffer, codecs: Codecs, *, max_message_bytes: int, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Steps[ValidatedSet]:
    """Check sizes and CRCs of all messages, also in wrappers, in bounded pieces; workers decompress large wrappers.

    `max_bytes` bounds the decompressed size of all wrappers, `max_message_bytes` the payload of an outer message.
    Raises `ApiError`: MESSAGE_TOO_LARGE; CORRUPT_MESSAGE, also for a truncated first or inner message;
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    try:
        return (yield from _check(records, Opener(codecs, max_bytes), max_message_bytes))
    except ApiError as error:
        yield from _check_sizes(records, max_message_bytes)  # Kafka 0.7 checks the sizes before the content
        if error.code is ErrorCode.INVALID_FETCH_SIZE:
            raise corrupt(0, "a size is negative, or more than the set has") from error
        raise


def _check(data: Buffer, opener: Opener, max_message_bytes: int) -> Steps[ValidatedSet]:
    position = messages = 0
    left = PIECE
    while True:
        count, position = skip_plain_run(data, position, max_message_bytes + MAGIC_1_HEADER_BYTES, _SPAN_BYTES)
        messages += count
        entry = read_entry(data, position)
        if entry is None:
            return ValidatedSet(position, messages)
        size = entry.end - entry.payload_start
        if size > max_message_bytes:
            raise _too_large(position, size, max_message_bytes)
        if entry.codec_id:
            inner = yield from _count_inner(data[entry.payload_start : entry.end], entry.codec_id, opener, 1)
        else:
            inner = 1
        messages += inner
        position = entry.end
        left -= count + inner + (_WRAPPER_COST if entry.codec_id else 0)
        if left <= 0:
            yield None
            left = PIECE


def _count_inner(payload: Buffer, codec_id: int, opener: Opener, depth: int) -> Steps[int]:
    inner = opener.open_short(payload, codec_id, depth)
    if inner is None:
        inner = yield partial(opener.open, payload, codec_id, depth)
    position = messages = 0
    left = PIECE
    while True:
        count, position = skip_plain_run(inner, position, LENGTH_MAX, _SPAN_BYTES)
        messages += count
        entry = read_inner_entry(inner, position)
        if entry is None:
            break
        if entry.codec_id:
            more = yield from _count_inner(inner[entry.payload_start : entry.end], entry.codec_id, opener, depth + 1)
        else:
            more = 1
        messages += more
        position = entry.end
        left -= count + more + (_WRAPPER_COST if entry.codec_id else 0)
        if left <= 0:
            yield None
            left = PIECE
    if position < len(inner):
        raise corrupt(position, "a wrapper ends inside a message")
    return messages


def _check_sizes(data: Buffer, max_message_bytes: int) -> Steps[None]:
    """Raise `ApiError` MESSAGE_TOO_LARGE for the first oversized outer message; other faults end the check."""
    position, size, left = 0, len(data), PIECE
    while size - position >= LENGTH.size:
        length = LENGTH.unpack_from(data, position)[0]
        if not MESSAGE_BYTES_MIN <= length <= size - position - LENGTH.size:
            return
        end = position + LENGTH.size + length
        try:
            payload_start, _, _ = read_header(data, position, length)
        except ApiError:
            return
        if end - payload_start > max_message_bytes:
            raise _too_large(position, end - payload_start, max_message_bytes)
        position = end
        left -= 1
        if not left:
            yield None
            left = PIECE


def _too_large(position: int, size: int, limit: int) -> ApiError:
    text = f"the message at position {position} has {size} bytes of payload; max.message.size allows {limit}"
    return ApiError(ErrorCode.MESSAGE_TOO_LARGE, text)


class ValidPrefix(NamedTuple):
    """The valid prefix of a piece of a segment."""

    bytes: int
    """Size of the leading complete entries with a valid CRC."""
    problem: str | None
    """The fault of the next entry; None if the piece ends there, perhaps inside an entry."""
    needs: int
    """Size of the truncated entry at the end; 0 without one, or if its size field is truncated."""


def find_valid_prefix(piece: Buffer) -> ValidPrefix:
    """Check sizes and CRCs of the outer entries, as log recovery of Kafka 0.7 does.

    The next piece must begin at `bytes` and have at least `needs` bytes. At the end of the segment, the caller
    truncates after `bytes`.
    """
    position, size = 0, len(piece)
    while True:
        _, position = skip_plain_run(piece, position)
        if size - position < LENGTH.size:
            return ValidPrefix(position, None, 0)
        length = LENGTH.unpack_from(piece, position)[0]
        if length < MESSAGE_BYTES_MIN:
            return ValidPrefix(position, f"it claims {length} bytes", 0)
        end = position + LENGTH.size + length
        if end > size:
            return ValidPrefix(position, None, end - position)
        try:
            payload_start, _, crc = read_header(piece, position, length)
        except ApiError as error:
            return ValidPrefix(position, error.message, 0)
        if crc32(piece[payload_start:end]) != crc:
            return ValidPrefix(position, "the CRC is wrong", 0)
        position = end
