"""Zig-zag varints (facts B1) at many positions at once; `core.message.varint` reads single ones."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

INT_BYTES_MAX = 5
LONG_BYTES_MAX = 9
"""One byte less than in the format: such numbers fit into a signed number before zig-zag is undone."""


class OddError(Exception):
    """Raised for data that only the record-by-record reader can judge."""


def read_varints(data: Bytes, at: Numbers, bytes_max: int = INT_BYTES_MAX) -> tuple[Numbers, Numbers]:
    """Return (the numbers at these positions before zig-zag is undone, the positions after them).

    A position beyond `data` reads its last byte: check the result. Raises `OddError` for more than `bytes_max` bytes,
    or more than 32 bits where that is 5.
    """
    byte = data.take(at, mode="clip")
    raw, behind = byte.astype(np.int64), at + 1
    rows = np.flatnonzero(byte > 0x7F)
    shift = 7
    while rows.size:
        if shift == 7 * bytes_max:
            raise OddError
        if rows.size == raw.size:  # as lengths of values of one size do: without the picking
            byte = data.take(behind, mode="clip")
            raw = raw & ((1 << shift) - 1) | byte.astype(np.int64) << shift
            behind += 1
        else:
            byte = data.take(behind[rows], mode="clip")
            raw[rows] = raw[rows] & ((1 << shift) - 1) | byte.astype(np.int64) << shift
            behind[rows] += 1
        rows = rows[byte > 0x7F]
        shift += 7
    if bytes_max == INT_BYTES_MAX and shift == 7 * bytes_max and raw.max() >> 32:
        raise OddError
    return raw, behind


def undo_zigzags(raw: Numbers) -> Numbers:
    """Return the signed numbers."""
    return raw >> 1 ^ -(raw & 1)


def zigzags(numbers: Numbers) -> Numbers:
    """Return the numbers in zig-zag form; numbers beyond 62 bits do not fit."""
    return numbers << 1 ^ numbers >> 63


def write_varints(columns: list[Numbers]) -> tuple[Bytes, Numbers]:
    """Return (all bytes, bytes per row) of rows of non-negative numbers (in zig-zag form) as consecutive varints."""
    count = len(columns[0])
    widths = [max(1, -(-int(column.max()).bit_length() // 7)) for column in columns]
    block = np.empty((count, sum(widths)), dtype=np.uint8)
    there = np.ones(block.shape, dtype=np.bool_)
    place = 0
    for column, width in zip(columns, widths, strict=True):
        rest = column
        for number in range(width):
            more = rest > 0x7F
            block[:, place] = rest & 0x7F | more << 7
            if number + 1 < width:
                rest = rest >> 7
                there[:, place + 1] = more if number == 0 else more & there[:, place]
            place += 1
    return (block.reshape(-1), np.full(count, place)) if there.all() else (block[there], there.sum(axis=1))


def varint_sizes(numbers: Numbers) -> Numbers:
    """Return the number of bytes of each as a varint."""
    sizes = np.ones(len(numbers), dtype=np.int64)
    limit = 0x7F
    most = int(numbers.max()) if len(numbers) else 0
    while most > limit:
        sizes += numbers > limit
        limit = limit << 7 | 0x7F
    return sizes
