"""The batches of a segment that is to be cleaned, each whole in memory and checked."""

from collections.abc import Iterator

from ....ports.errors import ApiError
from ...message.batch_header import HEADER_SIZE, BatchHeader, crc_valid, parse_header
from .order import CannotClean, Source

ChunkBatches = list[tuple[int, BatchHeader]]
"""(position in the bytes read, header)."""


def chunks_of(source: Source, chunk_bytes: int) -> Iterator[tuple[bytes, ChunkBatches]]:
    """The whole batches of a segment, about `chunk_bytes` at a time, a larger batch by itself.

    Offsets may leave gaps. Raises `CannotClean` for damage: to go on would give it a new checksum, or lose what is
    behind it; `StorageError`.
    """
    region, position, size = source.records, 0, source.records.size
    expected, wanted = source.base_offset, max(chunk_bytes, HEADER_SIZE)
    while position < size:
        data = region.read(position, min(wanted, size - position))
        batches: ChunkBatches = []
        at = 0
        try:
            while at + HEADER_SIZE <= len(data):
                header = parse_header(data, at)
                if at + header.size > len(data):
                    break
                _check(data, at, header, expected, source.next_offset)
                batches.append((at, header))
                at += header.size
                expected = header.next_offset
        except (ApiError, ValueError) as error:
            raise CannotClean(f"the batch at position {position + at} is damaged: {error}") from error
        if batches:
            yield data, batches
            position += at
            wanted = max(chunk_bytes, HEADER_SIZE)
        else:
            wanted = header.size if len(data) >= HEADER_SIZE else HEADER_SIZE
            if wanted > size - position:
                raise CannotClean(f"the batch at position {position} is cut")


def _check(data: bytes, at: int, header: BatchHeader, expected: int, end: int) -> None:
    if header.base_offset < expected or header.next_offset > end or header.count > header.last_offset_delta + 1:
        claim = f"{header.count} records at offsets {header.base_offset} to {header.last_offset}"
        raise ValueError(f"{claim}, where {expected} to {end - 1} are expected")
    if not crc_valid(data, header, at):
        raise ValueError("the CRC-32C does not match the content")
