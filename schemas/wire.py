"""The wire format of a message with a schema: a zero byte, the schema id in four bytes, then the encoded value.

Protobuf has message indexes in between. The format is Confluent's, so that their clients can read it.
"""

import struct
from collections.abc import Sequence

from ..ports.errors import Malformed

HEADER_BYTES = 5
_MAGIC = 0
_HEADER = struct.Struct(">BI")
_INDEXES_MAX = 64
"""Maximum nesting of message types; corrupt data may have any number."""
_VARINT_BITS_MAX = 35


class NotFramed(Malformed):
    """The value does not begin with a schema id."""


def frame(schema_id: int, payload: bytes) -> bytes:
    """Return the message of an encoded value."""
    return _HEADER.pack(_MAGIC, schema_id) + payload


def unframe(data: bytes) -> int:
    """Return the schema id; the value begins at `HEADER_BYTES`. Raises `NotFramed`."""
    if len(data) < HEADER_BYTES or data[0] != _MAGIC:
        begins = bytes(data[:HEADER_BYTES]).hex() or "nothing"
        raise NotFramed(f"no schema's id: expected 00 and four bytes of an id, got {begins}")
    return int(_HEADER.unpack_from(data)[1])


def message_indexes(indexes: Sequence[int]) -> bytes:
    """Encode the indexes of a protobuf message type as zigzag varints; the first type is a single zero."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def read_message_indexes(data: bytes, start: int = HEADER_BYTES) -> tuple[tuple[int, ...], int]:
    """Return the indexes at `start`, and the position of the message. Raises `NotFramed`."""
    count, position = _read_varint(data, start)
    if count > _INDEXES_MAX:
        raise NotFramed(f"the protobuf message claims a type nested {count} deep")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        indexes.append(index)
    return tuple(indexes) or (0,), position


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift < _VARINT_BITS_MAX:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number & 1:
                raise NotFramed("the protobuf message has a negative index of its type")
            return number >> 1, position
        shift += 7
    raise NotFramed("the protobuf message ends within the indexes of its type")
