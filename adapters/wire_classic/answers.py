"""The answers as bytes (facts A1): of Fetch, MultiFetch and Offsets. Produce and MultiProduce have none.

An answer can be read only with its request at hand: it repeats neither topics nor offsets.
"""

from itertools import chain
from struct import Struct

from ...ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsetsResult,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed
from ...ports.storage import size_of
from ...ports.transport import Piece
from .fields import BLOCK_HEAD, FRAME_BYTES_MAX, I16, I32, error_number, error_of

_OFFSETS_HEAD = Struct(">hi")


def write_fetch(request: ClassicFetch, result: ClassicFetchResult, *, multi: bool) -> list[Piece]:
    """Return the frame of an answer; regions stay regions. Raises one of `ENCODE_ERRORS`."""
    parts = result.partitions
    if len(parts) != len(request.partitions):
        raise ValueError(f"{len(parts)} partitions are answered, {len(request.partitions)} were asked for")
    if multi:
        pieces: list[Piece] = [I16.pack(0)]
        for part in parts:
            pieces.append(BLOCK_HEAD.pack(I16.size + size_of(part.records), error_number(part.error)))
            pieces.append(part.records)
    else:
        pieces = [I16.pack(error_number(parts[0].error)), parts[0].records]
    size = sum(map(size_of, pieces))
    if size > FRAME_BYTES_MAX:
        raise ValueError(f"it has {size} bytes, more than one frame carries; fetch less at once")
    return pieces


def write_offsets(result: ClassicOffsetsResult) -> list[Piece]:
    """Return the frame of an answer without an error. Raises one of `ENCODE_ERRORS`."""
    count = len(result.offsets)
    return [_OFFSETS_HEAD.pack(0, count) + Struct(f">{count}q").pack(*result.offsets)]


def read_fetch(request: ClassicFetch, content: memoryview) -> ClassicFetchResult:
    """Return the answer to a Fetch (one partition) or MultiFetch; each message set is copied out of the frame once.

    Raises `Malformed`, or one of `DECODE_ERRORS`.
    """
    (number,) = I16.unpack_from(content)
    if len(request.partitions) == 1:
        return ClassicFetchResult(partitions=(ClassicFetchResultPartition(error_of(number), bytes(content[2:])),))
    if number:  # no broker is known to do so; there are no blocks to rely on then
        refused = ClassicFetchResultPartition(error_of(number))
        return ClassicFetchResult(partitions=[refused] * len(request.partitions))
    parts, position = [], I16.size
    for _ in request.partitions:
        size, number = BLOCK_HEAD.unpack_from(content, position)
        start = position + BLOCK_HEAD.size
        position += I32.size + size
        if size < I16.size or position > len(content):
            raise Malformed(f"a block of {size} bytes exceeds the remaining {len(content) - start + I16.size}")
        parts.append(ClassicFetchResultPartition(error_of(number), bytes(content[start:position])))
    if position != len(content):
        raise Malformed(f"{len(content) - position} bytes follow the last of {len(parts)} blocks")
    return ClassicFetchResult(partitions=parts)


def read_offsets(content: memoryview) -> ClassicOffsetsResult:
    """Raises `Malformed`, or one of `DECODE_ERRORS`."""
    (number,) = I16.unpack_from(content)
    if number:
        return ClassicOffsetsResult(error=error_of(number))
    (count,) = I32.unpack_from(content, I16.size)
    left = len(content) - _OFFSETS_HEAD.size
    if count < 0 or 8 * count != left:
        raise Malformed(f"{count} offsets are claimed in {left} bytes")
    offsets = tuple(chain.from_iterable(Struct(">q").iter_unpack(content[_OFFSETS_HEAD.size :])))
    return ClassicOffsetsResult(offsets=offsets, error=ErrorCode.NONE)
