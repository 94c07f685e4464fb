"""A classic message set: bytes, or a region of a file."""

from collections.abc import Callable, Iterator
from itertools import chain

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.storage import Region, size_of
from ....ports.transport import Piece
from ....ports.types import Buffer
from ..codec import DECOMPRESSED_BYTES_MAX, NO_CODECS, Codecs
from ..corrupt_record import CorruptRecord, is_damage
from ..message import Message
from .entry import LENGTH
from .reader import SetDecoder, ShallowMessage, shallow_messages


class ClassicMessageSet:
    """A lazy iterator over messages, which reads all bytes at the first use and decodes some messages at a time.

    Iterating opens compressed wrappers; `decode_set` documents the offsets. It raises `ApiError`: `error`
    if the broker returned one; INVALID_FETCH_SIZE when the first message is larger than what was fetched;
    `CorruptRecord` at the first bad message, after those before it; UNSUPPORTED_COMPRESSION_TYPE; MESSAGE_TOO_LARGE
    for one wrapper of more than `max_bytes`.
    """

    __slots__ = (
        "_codecs",
        "_data",
        "_valid_bytes",
        "check_crc",
        "error",
        "from_offset",
        "max_bytes",
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
        error: ErrorCode = ErrorCode.NONE,
        max_bytes: int = DECOMPRESSED_BYTES_MAX,
        check_crc: bool = True,
    ) -> None:
        self.records = records
        self.topic = topic
        self.partition = partition
        self.from_offset = from_offset
        self.error = error
        self.max_bytes = max_bytes
        self.check_crc = check_crc
        self._codecs = codecs
        self._data: Buffer | None = None
        self._valid_bytes = -1

    @property
    def size(self) -> int:
        """Size in bytes, with a truncated message at the end."""
        return size_of(self.records)

    @property
    def valid_bytes(self) -> int:
        """Size of the complete outer messages; no CRC is checked."""
        if self._valid_bytes < 0:
            self._valid_bytes = _whole_bytes(self._read())
        return self._valid_bytes

    @property
    def next_offset(self) -> int:
        """The offset after the last complete outer message, also after wrappers without messages."""
        return self.from_offset + self.valid_bytes

    def __iter__(self) -> Iterator[Message]:
        return chain.from_iterable(self.runs())

    def runs(self) -> Iterator[list[Message]]:
        """Yield the messages in decoded runs. Raises the errors of iterating."""
        self._raise_error()
        return self._runs(SetDecoder(self._codecs, self.topic, self.partition, self.max_bytes, self.check_crc))

    def shallow(self) -> Iterator[ShallowMessage]:
        """Yield the outer messages without opening wrappers. Raises the errors of iterating."""
        self._raise_error()
        return shallow_messages(
            self._read(),
            topic=self.topic,
            partition=self.partition,
            from_offset=self.from_offset,
            check_crc=self.check_crc,
        )

    def write_to(self, write: Callable[[Piece], object]) -> int:
        """Pass the bytes or the region to `write` in one call; return the size."""
        write(self.records)
        return self.size

    def _runs(self, decoder: SetDecoder) -> Iterator[list[Message]]:
        at = self.from_offset
        try:
            for run in decoder.runs(bytes(self._read()), at):
                yield run
                at = run[-1].offset
        except ApiError as error:
            if is_damage(error):
                raise CorruptRecord(self.topic, self.partition, at, error.message) from error
            raise

    def _raise_error(self) -> None:
        if self.error is not ErrorCode.NONE:
            raise ApiError(self.error, f"{self.topic}-{self.partition} at offset {self.from_offset}")

    def _read(self) -> Buffer:
        if self._data is None:
            records = self.records
            self._data = records if isinstance(records, bytes | bytearray | memoryview) else records.read()
        return self._data


def _whole_bytes(data: Buffer) -> int:
    position, last = 0, len(data) - LENGTH.size
    unpack = LENGTH.unpack_from
    while position <= last:
        length = unpack(data, position)[0]
        end = position + 4 + length
        if length < 0 or end > len(data):
            break
        position = end
    return position
