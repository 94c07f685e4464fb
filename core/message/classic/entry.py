"""One entry of a classic message set (facts A2): `i32 N`, then N bytes of message.

magic 0: i8 magic, u32 crc, payload; magic 1: i8 magic, i8 attributes, u32 crc, payload. The CRC-32 is of the payload.
"""

from struct import Struct

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
