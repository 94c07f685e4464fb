"""One entry of a classic message set (facts A2): `i32 N`, then N bytes of message.

magic 0: i8 magic, u32 crc, payload; magic 1: i8 magic, i8 attributes, u32 crc, payload. The CRC-32 is of the payload.
"""

from struct import Struct
from typing import NamedTuple

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import Buffer
from ..codec import Codecs
from ..crc32 import crc32

LENGTH = Struct(">i")
MAGIC_0 = Struct(">ibI")
"""N, magic, crc."""
MAGIC_1 = Struct(">ibBI")
"""N, magic, attributes, crc."""

MESSAGE_BYTES_MIN = 5
"""The smallest valid N: a magic-0 message without payload."""
MAGIC_1_HEADER_BYTES = 6
"""Bytes of N before the payload in a magic-1 message."""
OVERHEAD_BYTES = MAGIC_1.size
"""Bytes of a magic-1 entry before its payload."""
LENGTH_MAX = 2**31 - 1
CODEC_MASK = 0x03
DEPTH_MAX = 3
"""Maximum nesting of wrappers; producers write one level."""
RUN_BYTES_MAX = 256 * 1024
"""Maximum size of a run, which bounds the messages decoded at a time."""

_KIND = Struct(">iHI")
"""`MAGIC_1` with magic and attributes as one number."""
_PLAIN = 0x0100
"""Magic 1 without a codec or an undefined bit; `read_entry` handles all others."""


class Entry(NamedTuple):
    """Positions of a complete entry in its set."""

    payload_start: int
    end: int
    codec_id: int


def corrupt(position: int, what: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"classic message at position {position}: {what}")


def read_plain_run(data: bytes, position: int, check_crc: bool) -> tuple[list[bytes], list[int]]:
    """Read consecutive plain messages (uncompressed, magic 1, complete, valid CRC): return payloads and their ends.

    Nearly all sets are such runs. `read_entry` handles the entry, or reports the fault, that ends a run.
    """
    unpack, crc_of, size = _KIND.unpack_from, crc32, len(data)
    payloads: list[bytes] = []
    ends: list[int] = []
    add_payload, add_end = payloads.append, ends.append
    last = min(size - OVERHEAD_BYTES, position + RUN_BYTES_MAX)
    while position <= last:
        length, kind, crc = unpack(data, position)
        end = position + 4 + length
        if kind != _PLAIN or length < MAGIC_1_HEADER_BYTES or end > size:
            break
        payload = data[position + OVERHEAD_BYTES : end]
        if check_crc and crc_of(payload) != crc:
            break
        add_payload(payload)
        add_end(end)
        position = end
    return payloads, ends


def skip_plain_run(
    data: Buffer, position: int, length_max: int = LENGTH_MAX, span: int = LENGTH_MAX
) -> tuple[int, int]:
    """Return (count, end) of consecutive plain messages with N of at most `length_max`, starting in the first `span`
    bytes."""
    unpack, crc_of, size = _KIND.unpack_from, crc32, len(data)
    count = 0
    start = position + OVERHEAD_BYTES
    last = min(size, start + span)
    while start <= last:
        length, kind, crc = unpack(data, start - OVERHEAD_BYTES)
        end = start + length - MAGIC_1_HEADER_BYTES
        if kind != _PLAIN or not MAGIC_1_HEADER_BYTES <= length <= length_max or end > size:
            break
        if crc_of(data[start:end]) != crc:
            break
        count += 1
        start = end + OVERHEAD_BYTES
    return count, start - OVERHEAD_BYTES


def read_header(data: Buffer, position: int, length: int) -> tuple[int, int, int]:
    """Return (payload start, codec id, CRC) of an entry with this N; its header is enough.

    Raises `ApiError` CORRUPT_MESSAGE: unknown magic, too few bytes for it.
    """
    if length < MESSAGE_BYTES_MIN:
        raise corrupt(position, f"{length} bytes are too few for a message")
    magic = data[position + LENGTH.size]
    if magic == 1 and length >= MAGIC_1_HEADER_BYTES:
        attributes, crc = MAGIC_1.unpack_from(data, position)[2:]
        return position + MAGIC_1.size, attributes & CODEC_MASK, crc
    if magic == 0:
        return position + MAGIC_0.size, 0, MAGIC_0.unpack_from(data, position)[2]
    raise corrupt(position, f"magic {magic} is not known, or too few bytes for it")


def read_entry(data: Buffer, position: int, *, check_crc: bool = True) -> Entry | None:
    """Return the entry at `position`; None at the end of the set, or for a truncated entry there.

    Raises `ApiError`: INVALID_FETCH_SIZE when not even the first entry is whole, or a size is negative;
    CORRUPT_MESSAGE: wrong CRC, unknown magic, a size that holds no message; UNSUPPORTED_COMPRESSION_TYPE: codec 3.
    """
    left = len(data) - position - LENGTH.size
    if left < 0:
        return None
    length = LENGTH.unpack_from(data, position)[0]
    if length < 0:
        raise ApiError(ErrorCode.INVALID_FETCH_SIZE, f"the message at position {position} claims {length} bytes")
    if length > left:
        if position:
            return None
        text = f"one message of {length} bytes does not fit into the {len(data)} bytes fetched; raise the fetch size"
        raise ApiError(ErrorCode.INVALID_FETCH_SIZE, text)
    end = position + LENGTH.size + length
    payload_start, codec_id, crc = read_header(data, position, length)
    if check_crc and crc32(data[payload_start:end]) != crc:
        raise corrupt(position, "the CRC is wrong")
    if codec_id == CODEC_MASK:
        text = f"the classic message at position {position} names codec 3, which is none"
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    return Entry(payload_start, end, codec_id)


def read_inner_entry(data: Buffer, position: int, *, check_crc: bool = True) -> Entry | None:
    """Return the entry at `position` of a decompressed wrapper, where an invalid size is CORRUPT_MESSAGE."""
    try:
        return read_entry(data, position, check_crc=check_crc)
    except ApiError as error:
        if error.code is not ErrorCode.INVALID_FETCH_SIZE:
            raise
        raise corrupt(position, "the size of a message in a wrapper is wrong") from error


_SHORT_MAX, _SHORT_UNPACKED_MAX = 65_536, 262_144
"""Maximum sizes of wrappers that are decompressed inline."""


class Opener:
    """Decompresses nested wrappers within one bound of bytes for all of them."""

    __slots__ = ("_codecs", "_left", "_max_bytes")

    def __init__(self, codecs: Codecs, max_bytes: int) -> None:
        self._codecs = codecs
        self._left = self._max_bytes = max_bytes

    def open_short(self, payload: Buffer, codec_id: int, depth: int) -> bytes | None:
        """Return the result of `open` if that is quick, else None: call `open` on a worker."""
        if self._left <= _SHORT_UNPACKED_MAX or depth > DEPTH_MAX:
            return self.open(payload, codec_id, depth)
        if len(payload) > _SHORT_MAX:
            return None
        try:
            inner = self._codecs.by_id(codec_id).decompress(payload, _SHORT_UNPACKED_MAX)
        except ApiError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            return None
        self._left -= len(inner)
        return inner

    def open(self, payload: Buffer, codec_id: int, depth: int) -> bytes:
        """Decompress the message set of a wrapper; an outer wrapper has `depth` 1.

        Raises `ApiError`: UNSUPPORTED_COMPRESSION_TYPE; CORRUPT_MESSAGE: damaged, or more than `DEPTH_MAX` deep;
        MESSAGE_TOO_LARGE: more than the bound.
        """
        if depth > DEPTH_MAX:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"compressed messages are nested more than {DEPTH_MAX} deep")
        codec = self._codecs.by_id(codec_id)
        try:
            inner = codec.decompress(payload, self._left)
        except ApiError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            text = f"compressed messages of more than {self._max_bytes} bytes when decompressed"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, text) from error
        self._left -= len(inner)
        return inner


_MAGIC_AT = LENGTH.size
_MAGICS = (b"\0", b"\1")


def find_next_intact_entry(data: bytes, position: int) -> int | None:
    """Return the position of the next complete and valid entry after the corrupt one at `position`, or None.

    The end that the corrupt entry claims is tried first, then every position.
    """
    if position + LENGTH.size <= len(data):
        claimed: int = position + LENGTH.size + LENGTH.unpack_from(data, position)[0]
        if position < claimed < len(data) and _is_intact(data, claimed):
            return claimed
    for at in range(position + 1, len(data) - MAGIC_0.size + 1):
        if data[at + _MAGIC_AT : at + _MAGIC_AT + 1] in _MAGICS and data[at] < 0x80 and _is_intact(data, at):
            return at
    return None


def _is_intact(data: bytes, position: int) -> bool:
    length = LENGTH.unpack_from(data, position)[0] if position + LENGTH.size <= len(data) else 0
    if not 0 < length <= len(data) - position - LENGTH.size:
        return False
    try:
        return read_entry(memoryview(data)[position : position + LENGTH.size + length], 0) is not None
    except ApiError:
        return False
