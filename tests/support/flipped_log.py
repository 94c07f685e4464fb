"""A partition as its segment files are, with bits that flip, read by the rules of a broker that trusts its headers."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from barnabas.core.message.batch_header import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, assign_offset
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.fetch import FetchResultPartition
from barnabas.ports.error_codes import ErrorCode

INDEX_EVERY = 3
"""Batches per entry of the index."""


class FlippedLog:
    """`segments`: per segment the sizes of its batches, in records; the value of a record is its offset."""

    def __init__(self, *segments: Sequence[int], start: int = 0) -> None:
        self.start = self.end = start
        self.refused = 0
        self.files: list[bytearray] = []
        self.bases: list[int] = []
        self.places: list[list[tuple[int, int, int]]] = []
        """Per segment (base offset, position, records) of its batches, as they were written."""
        for sizes in segments:
            self.bases.append(self.end)
            file, partitions = bytearray(), []
            for count in sizes:
                messages = [Message(b"%d" % n, timestamp_ms=1000 + n) for n in range(self.end, self.end + count)]
                batch = encode_batch(messages, now_ms=0)
                assign_offset(batch, self.end, 0)
                partitions.append((self.end, len(file), count))
                file += batch
                self.end += count
            self.files.append(file)
            self.places.append(partitions)

    def flip(self, segment: int, batch: int, byte: int, bit: int) -> None:
        """A bit of a batch, counted from the beginning of its header."""
        self.files[segment][self.places[segment][batch][1] + byte] ^= 1 << bit

    def leave_out(self, *offsets: int) -> None:
        """Take away the batches that begin there, as compaction does."""
        for number, places in enumerate(self.places):
            bounds = [*(position for _, position, _ in places), len(self.files[number])]
            batches, file = [], bytearray()
            for (base, _, count), (begin, end) in zip(places, pairwise(bounds), strict=True):
                if base not in offsets:
                    batches.append((base, len(file), count))
                    file += self.files[number][begin:end]
            self.files[number], self.places[number] = file, batches

    def fetch(self, offset: int, max_bytes: int) -> FetchResultPartition:
        """From one segment: what the index, and then the headers say."""
        if not self.start <= offset <= self.end:
            return FetchResultPartition("t", 0, ErrorCode.OFFSET_OUT_OF_RANGE)
        number = max(n for n, base in enumerate(self.bases) if base <= offset)
        for later in range(number, len(self.files)):
            file = self.files[later]
            try:
                found = next((at for at, size, last in self._scan(later, offset) if last >= offset), None)
            except ValueError:
                self.refused += 1
                return FetchResultPartition("t", 0, ErrorCode.CORRUPT_MESSAGE)
            if found is not None:
                size = LENGTH_OVERHEAD + HEADER.unpack_from(file, found)[1]
                records = bytes(file[found : found + max(max_bytes, size)])
                return FetchResultPartition("t", 0, ErrorCode.NONE, self.end, self.end, self.start, records)
        return FetchResultPartition("t", 0, ErrorCode.NONE, self.end, self.end, self.start)

    def _scan(self, number: int, offset: int) -> Iterator[tuple[int, int, int]]:
        file, places = self.files[number], self.places[number]
        entries = [(base, position) for base, position, _ in places[::INDEX_EVERY]]
        position = max((at for base, at in entries if base <= offset), default=0)
        while position + HEADER_SIZE <= len(file):
            base, length, *_, last_delta = HEADER.unpack_from(file, position)[:7]
            size = LENGTH_OVERHEAD + length
            if size < HEADER_SIZE or base < 0 or last_delta < 0:
                raise ValueError("the header is nonsense")
            yield position, size, base + last_delta
            position += size
