"""Zig-zag varints: 0→0, -1→1, 1→2, ... in groups of 7 bits, lowest first; a set high bit means that more follow."""

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError

SMALL_LIMIT = 8192
_HIGH_MAX = SMALL_LIMIT >> 6
_pairs = bytearray(2 * 64 * (_HIGH_MAX - 1))  # of 64 to 8191, for a third of the time that one by one takes
_pairs[::2] = bytes(range(0x80, 0x100, 2)) * (_HIGH_MAX - 1)
_pairs[1::2] = b"".join([bytes((high,)) * 64 for high in range(1, _HIGH_MAX)])
_PAIRS = bytes(_pairs)
SMALL: list[bytes] = [bytes((n << 1,)) for n in range(64)] + [_PAIRS[at : at + 2] for at in range(0, len(_PAIRS), 2)]
"""The encodings of 0 to 8191, which take one or two bytes. A negative index would return another number."""

INT_BYTES_MAX = 5
LONG_BYTES_MAX = 10


def encode_varint(number: int) -> bytes:
    """Encode a 64-bit signed integer."""
    rest = number << 1 if number >= 0 else (~number << 1) | 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_raw(data: bytes, position: int, bytes_max: int = INT_BYTES_MAX) -> tuple[int, int]:
    """Read a varint: return (unsigned zig-zag number, position after it).

    Raises `IndexError` at the end of `data`, and `ApiError` CORRUPT_MESSAGE for more than `bytes_max` bytes (5 for a
    32-bit number, 10 for a 64-bit number) or a number out of range.
    """
    raw = shift = 0
    for _ in range(bytes_max):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a varint of more than {bytes_max} bytes")
    if raw >> (32 if bytes_max == INT_BYTES_MAX else 64):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a varint out of range")
    return raw, position


def undo_zigzag(raw: int) -> int:
    return raw >> 1 ^ -(raw & 1)


COMPILED = not hasattr(undo_zigzag, "__code__")
"""True if the modules that setup.py lists are compiled: plain loops are their fastest way then."""
