"""What a broker looks at before it appends a classic message set, and after a crash (facts A3, A4)."""

from functools import partial
from typing import NamedTuple

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.words import Buffer
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
"""So many bytes are passed over in one go."""
_WRAPPER_COST = 20
"""As much as opening a short wrapper takes, in messages."""


class ValidatedSet(NamedTuple):
    """How much of a set can be appended."""

    valid_bytes: int
    """Of whole entries; what follows is a part of one."""
    messages: int
    """Those in wrappers counted, not the wrappers."""


def validate_set(
    records: Buffer, codecs: Codecs, *, max_message_bytes: int, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Steps[ValidatedSet]:
    """Check sizes and CRCs of all messages, through wrappers, which must decompress to at most `max_bytes` in all.

    It is done in bounded pieces; what is long is decompressed on a worker. `max_message_bytes` bounds the payload of an
    outer message. Raises `ApiError`: MESSAGE_TOO_LARGE; CORRUPT_MESSAGE also when the first message is not whole, or a
    wrapper ends inside one; UNSUPPORTED_COMPRESSION_TYPE.
    """
    try:
        return (yield from _check(records, Opener(codecs, max_bytes), max_message_bytes))
    except ApiError as error:
        yield from _check_sizes(records, max_message_bytes)  # facts A3: before any content
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
    """Raises `ApiError` MESSAGE_TOO_LARGE for the first outer message that is; what else is wrong ends the walk."""
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
    """What recovery finds in a piece of a segment."""

    bytes: int
    """Of whole entries with the right CRC, from the beginning of the piece on."""
    problem: str | None
    """What is wrong with the entry after them; None when the piece ends there, perhaps inside an entry."""
    needs: int
    """Bytes of the entry that the end of the piece cuts; 0 = none is cut, or its size itself is."""


def find_valid_prefix(piece: Buffer) -> ValidPrefix:
    """Walk over outer entries as recovery does (facts A4): shallow, sizes and CRCs.

    A piece that is not the end of the segment goes on at `bytes`, with at least `needs` bytes; at the end of the
    segment everything after `bytes` is to be cut off.
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
