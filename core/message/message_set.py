"""A sequence of record batches: bytes, or a region of a file."""

from collections.abc import Callable, Iterator, Sequence

from ...ports.errors import ApiError
from ...ports.storage import Region, size_of
from ...ports.transport import Piece
from ...ports.types import Buffer
from .batch_header import HEADER_SIZE, BatchHeader, parse_header, verify_crc
from .batch_reader import BatchMessages, batch_size, decode_messages
from .codec import DECOMPRESSED_BYTES_MAX, NO_CODECS, Codecs
from .corrupt_record import is_damage
from .message import Message


class MessageSet:
    """A lazy iterator over messages, which decodes one batch at a time.

    A truncated batch at the end is left out; `valid_bytes` is its position. Iterating returns the messages from
    `from_offset` on, without control records. Iterating may raise `ApiError`: CORRUPT_MESSAGE, INVALID_RECORD
    (not magic 2), MESSAGE_TOO_LARGE (a batch decompresses to more than `max_bytes`), UNSUPPORTED_COMPRESSION_TYPE.
    """

    __slots__ = (
        "_batches",
        "_end",
        "check_crc",
        "codecs",
        "from_offset",
        "leader_epoch",
        "max_bytes",
        "on_damage",
        "partition",
        "records",
        "topic",
    )

    def __init__(
        self,
        records: Buffer | Region,
        codecs: Codecs = NO_CODECS,
        *,
        topic: str = "",
        partition: int = -1,
        from_offset: int = 0,
        max_bytes: int = DECOMPRESSED_BYTES_MAX,
        check_crc: bool = True,
        batches: Sequence[tuple[int, BatchHeader]] | None = None,
        next_offset: int | None = None,
    ) -> None:
        """`batches`, (position, header) of the valid batches, and `next_offset` are given if the records were validated
        before."""
        self.records = records
        self.topic = topic
        self.partition = partition
        self.from_offset = from_offset
        self.max_bytes = max_bytes
        self.check_crc = check_crc
        self.leader_epoch = -1
        """Leader epoch of the current batch of an iteration."""
        self.codecs = codecs
        self._batches = batches
        self._end: tuple[int, int] | None = None if next_offset is None else (size_of(records), next_offset)
        self.on_damage: Callable[[BatchHeader, ApiError], object] | None = None
        """Called for each batch whose records cannot be read; iterating then skips the batch instead of raising."""

    @property
    def size(self) -> int:
        """Size in bytes, with a truncated last batch."""
        return size_of(self.records)

    def batches(self) -> Iterator[BatchHeader]:
        """Return the headers of the complete batches, without opening a record or checking a CRC."""
        return (header for _, header in self.positioned_batches())

    def positioned_batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position in the set, header) of the complete batches."""
        if self._batches is not None:
            yield from self._batches
            return
        position, size, next_offset = 0, self.size, self.from_offset
        while position + HEADER_SIZE <= size:
            head = self._read(position, HEADER_SIZE)
            if len(head) < HEADER_SIZE:
                break
            batch_end = position + batch_size(head, 0)
            if batch_end > size:
                break
            header = parse_header(head)
            yield position, header
            position, next_offset = batch_end, max(next_offset, header.next_offset)
        self._end = (position, next_offset)

    def __iter__(self) -> Iterator[Message]:
        for run in self.runs():
            yield from run.iterate(iter(run.offsets))

    def runs(self) -> Iterator[BatchMessages]:
        """Yield the messages of each batch. Raises the errors of iterating."""
        for position, header in self.positioned_batches():
            if header.control or header.next_offset <= self.from_offset:
                if self.check_crc and self._batches is None:
                    self._verify_header(position, header)
                continue
            self.leader_epoch = header.leader_epoch
            run = self._decode(position, header)
            if run is not None:
                yield run

    @property
    def valid_bytes(self) -> int:
        """Size of the complete batches."""
        return self._whole()[0]

    @property
    def next_offset(self) -> int:
        """The offset after the last complete batch; `from_offset` without one."""
        return self._whole()[1]

    def write_to(self, write: Callable[[Piece], object]) -> int:
        """Pass the bytes or the region to `write` in one call; return the size."""
        write(self.records)
        return self.size

    def _whole(self) -> tuple[int, int]:
        if self._end is None:
            for _ in self.positioned_batches():
                pass
        return self._end or (0, self.from_offset)

    def _decode(self, position: int, header: BatchHeader) -> BatchMessages | None:
        try:
            return decode_messages(
                self._read(position, header.size),
                self.codecs,
                topic=self.topic,
                partition=self.partition,
                from_offset=self.from_offset,
                max_bytes=self.max_bytes,
                check_crc=self.check_crc,
                header=None if self._batches is None else header,
            )
        except ApiError as error:
            if self.on_damage is None or not is_damage(error):
                raise
            self.on_damage(header, error)
            return None

    def _verify_header(self, position: int, header: BatchHeader) -> None:
        """Verify the header of a batch whose records are not returned: damage may have made it a control batch, or
        one that ends before. Kafka's consumer checks it, too."""
        try:
            verify_crc(self._read(position, header.size), header)
        except ApiError as error:
            if self.on_damage is None:
                raise
            self.on_damage(header, error)

    def _read(self, position: int, size: int) -> Buffer:
        records = self.records
        if isinstance(records, bytes | bytearray):
            return memoryview(records)[position : position + size]
        return records[position : position + size] if isinstance(records, memoryview) else records.read(position, size)
