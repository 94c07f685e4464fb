"""Scans the batches of a segment file, in chunks of bounded size."""

from collections.abc import Iterator
from typing import Protocol

from ...ports.errors import ApiError, BarnabasError
from ...ports.types import Position
from ..message.batch_header import CRC_COVERS_FROM, HEADER_SIZE, BatchHeader, is_crc_valid, parse_header
from ..message.crc32c import crc32c

BatchIterator = Iterator[tuple[Position, BatchHeader]]
"""Yields (position, header) of each batch."""

SCAN_CHUNK_BYTES = 1 << 20
LOOKUP_CHUNK_BYTES = 4096 + HEADER_SIZE
"""About one index interval, so that most lookups need a single read."""


class Readable(Protocol):
    """A file or its substitute."""

    def read(self, position: Position, size: int, /) -> bytes:
        """Return up to `size` bytes from `position`, fewer at the end."""
        ...


class BadBatch(BarnabasError):
    """A complete, intact batch is missing at the position where one must begin."""

    def __init__(self, position: Position, reason: str) -> None:
        super().__init__(f"at position {position}: {reason}")
        self.position = position
        self.reason = reason


def scan_batches(
    file: Readable, position: Position, end: Position, *, chunk_bytes: int = SCAN_CHUNK_BYTES, check_crc: bool = False
) -> BatchIterator:
    """Yield (position, header) of each batch in [position, end) of the file; uses about `chunk_bytes` of memory.

    Raises `BadBatch` for an invalid header, a batch that reaches beyond `end`, or (`check_crc`) corrupt content.
    """
    chunk, chunk_at = b"", position
    # Of large batches only the headers are read from the disk.
    read_bytes = chunk_bytes if check_crc else HEADER_SIZE
    while position < end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = file.read(position, min(read_bytes, end - position)), position, 0
        try:
            header = parse_header(chunk, at)
        except ApiError as error:
            raise BadBatch(position, error.message) from error
        size = header.size
        if position + size > end:
            raise BadBatch(position, f"a batch of {size} bytes is truncated after {end - position}")
        if check_crc:
            if at + size > len(chunk) and size <= chunk_bytes:
                chunk, chunk_at, at = file.read(position, min(chunk_bytes, end - position)), position, 0
            valid = is_crc_valid(chunk, header, at) if at + size <= len(chunk) else crc_matches(file, position, header)
            if not valid:
                raise BadBatch(position, "the CRC-32C does not match the content")
        yield position, header
        position = Position(position + size)
        if not check_crc:
            read_bytes = chunk_bytes if size * 4 <= chunk_bytes else HEADER_SIZE


def crc_matches(file: Readable, position: Position, header: BatchHeader) -> bool:
    """Return True if the batch has the CRC-32C of its header; it is read piece by piece."""
    at, end, crc = Position(position + CRC_COVERS_FROM), position + header.size, 0
    while at < end:
        piece = file.read(at, min(SCAN_CHUNK_BYTES, end - at))
        if not piece:
            return False
        crc = crc32c(piece, crc)
        at = Position(at + len(piece))
    return crc == header.crc
