"""The fixed fields of the classic protocol, its strings and its error codes, for both ends (facts A1)."""

from struct import Struct
from struct import error as StructError

from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed

PRODUCE, FETCH, MULTI_FETCH, MULTI_PRODUCE, OFFSETS = range(5)
NAMES = ("Produce", "Fetch", "MultiFetch", "MultiProduce", "Offsets")

I16 = Struct(">h")
I32 = Struct(">i")
TWO_I16 = Struct(">hh")
PRODUCE_TAIL = Struct(">ii")
"""The fields after the topic: partition, bytes of the message set."""
FETCH_TAIL = Struct(">iqi")
"""The fields after the topic: partition, offset, largest size. In Offsets: partition, time, largest number."""
BLOCK_HEAD = Struct(">ih")
"""The fields before each message set of a MultiFetch answer: bytes that follow, error code."""

PRODUCE_BYTES_MIN = I16.size + PRODUCE_TAIL.size
FETCH_BYTES_MIN = I16.size + FETCH_TAIL.size
FRAME_BYTES_MAX = 0x7FFF_FFFF

_WIRE_CODES = frozenset(range(-1, 5))
_TEXT_SHOWN = 300


DECODE_ERRORS = (StructError, ValueError)
"""The plain operations raise these on bytes that end early or are not UTF-8; they mean the same as `Malformed`."""

ENCODE_ERRORS = (StructError, ValueError, TypeError, OverflowError)
"""The plain operations raise these on a value that the protocol cannot carry."""


def pack_text(text: str) -> bytes:
    """Return a string with its length before it: of its UTF-8 bytes. Kafka 0.7 counted characters, so only ASCII
    worked."""
    content = text.encode()
    return I16.pack(len(content)) + content


def unpack_text(content: memoryview, position: int) -> tuple[str, int]:
    """Return a string, and where it ends; null is refused, since no field may be it."""
    (size,) = I16.unpack_from(content, position)
    start = position + 2
    end = start + size
    if size < 0 or end > len(content):
        raise Malformed(f"a string of {size} bytes is claimed at {position}, {len(content) - start} are there")
    return str(content[start:end], "utf-8"), end


def unpack_count(content: memoryview, position: int, bytes_each: int) -> int:
    """Return the i16 before the parts of a multi-request, each of which has at least `bytes_each` bytes."""
    (count,) = I16.unpack_from(content, position)
    left = len(content) - position - I16.size
    if count < 0 or count * bytes_each > left:
        raise Malformed(f"{count} parts are claimed in {left} bytes")
    return int(count)


def error_number(error: ErrorCode) -> int:
    """Return the code on the wire: -1 (unknown) for all that Kafka 0.7 did not have."""
    return int(error) if error in _WIRE_CODES else -1


def error_of(number: int) -> ErrorCode:
    """Return the error that a code on the wire means."""
    return ErrorCode(number) if number in _WIRE_CODES else ErrorCode.UNKNOWN_SERVER_ERROR


def one_line(text: object) -> str:
    """Fit for a log: names come from the network, and may hold anything."""
    shown = str(text)
    if len(shown) > _TEXT_SHOWN:
        shown = f"{shown[:_TEXT_SHOWN]}..."
    return shown if shown.isprintable() else repr(shown)[1:-1]
