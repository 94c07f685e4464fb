"""One entry of a classic message set (facts A2): `i32 N`, then N bytes of message.

magic 0: i8 magic, u32 crc, payload; magic 1: i8 magic, i8 attributes, u32 crc, payload. The CRC-32 is of the payload.
"""

from struct import Struct
from typing import NamedTuple

from ....ports.words import Buffer
from ..crc32 import crc32

LENGTH = Struct(">i")
MAGIC_0 = Struct(">ibI")
"""N, magic, crc."""
MAGIC_1 = Struct(">ibBI")
"""N, magic, attributes, crc."""

MESSAGE_BYTES_MIN = 5
"""The smallest legal N: a magic-0 message without payload."""
MAGIC_1_HEADER_BYTES = 6
"""Of N, what is not payload."""
OVERHEAD_BYTES = MAGIC_1.size
"""What a message of today takes besides its payload."""
CODEC_MASK = 0x03
DEPTH_MAX = 3
"""How deep wrappers may stand in wrappers; nobody writes more than one."""


class PlainRun(NamedTuple):
    """Uncompressed magic-1 messages one after the other, all of them whole."""

    payloads: list[Buffer]
    ends: list[int]
    wrong: int
    """The first one whose CRC is wrong, by number; -1 when none is."""


_KIND = Struct(">iHI")
"""As `MAGIC_1`, with magic and attributes as one number."""
_KIND_MASK = 0xFF00 | CODEC_MASK
_PLAIN = 0x0100


def plain_run(data: Buffer, *, check_crc: bool = True) -> PlainRun:
    """The longest such run at the beginning of `data`: what nearly all sets consist of, in few steps a message."""
    unpack, size = _KIND.unpack_from, len(data)
    ends: list[int] = []
    crcs: list[int] = []
    add_end, add_crc = ends.append, crcs.append
    position, last = 0, size - _KIND.size
    while position <= last:
        length, kind, crc = unpack(data, position)
        position += 4 + length
        if kind & _KIND_MASK != _PLAIN or length < MAGIC_1_HEADER_BYTES or position > size:
            break
        add_end(position)
        add_crc(crc)
    payloads: list[Buffer] = []
    start = OVERHEAD_BYTES
    for end in ends:
        payloads.append(data[start:end])
        start = end + OVERHEAD_BYTES
    wrong = -1
    if check_crc and (found := list(map(crc32, payloads))) != crcs:
        wrong = next(number for number, crc in enumerate(crcs) if crc != found[number])
    return PlainRun(payloads, ends, wrong)
