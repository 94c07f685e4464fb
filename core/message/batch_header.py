"""The 61-byte header of a record batch v2, and the checks that need only the header and the CRC (facts B1, B2)."""

from struct import Struct
from typing import NamedTuple

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import Buffer, Offset
from .codec import Codecs
from .crc32c import crc32c

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
LENGTH_OVERHEAD = 12
"""Size of baseOffset and batchLength, which batchLength does not count."""
BATCH_LENGTH_MIN = HEADER_SIZE - LENGTH_OVERHEAD
MAGIC = 2
MAGIC_AT = 16
CRC_AT = 17
CRC_COVERS_FROM = 21

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""The base timestamp is the delete horizon (KIP-534); timestamp deltas are relative to it."""
ZSTD_ID = 4
NO_TIMESTAMP = -1
LONG_MAX = 2**63 - 1

_new = tuple.__new__  # `_make` takes twice as long
_LONG = Struct(">q")
_INT = Struct(">i")
_UNSIGNED = Struct(">I")
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35


class BatchHeader(NamedTuple):
    """The parsed header of a batch. It is a named tuple because the broker creates one for every batch."""

    base_offset: Offset
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # the format's word, more than tuple's method is

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return LENGTH_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 for a batch without sequence numbers. 0 follows 2^31-1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Parse the header at `pos`; the records are not needed.

    Raises `ApiError`: CORRUPT_MESSAGE when there are fewer than 61 bytes or a field has a value that no batch has,
    INVALID_RECORD when the magic byte is not 2.
    """
    header = _unpack(buf, pos)
    if (
        header.base_offset < 0
        or header.last_offset_delta < 0
        or header.count < 0
        or header.base_offset + header.last_offset_delta >= LONG_MAX
    ):
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"invalid record batch header: base offset {header.base_offset}, last offset delta "
            f"{header.last_offset_delta}, {header.count} records",
        )
    return header


def check_batch(
    buf: Buffer,
    *,
    codecs: Codecs | None = None,
    max_bytes: int | None = None,
    allows_zstd: bool = True,
    needs_sequence: bool = True,
) -> BatchHeader:
    """Validate the single batch of a Produce request for a partition (Kafka: LogValidator) without opening its records.

    `max_bytes` bounds the whole batch (max.message.bytes). `codecs`, when given, must know the codec of the batch.
    Without `needs_sequence`, a batch with a producer id may lack a sequence number: the broker writes such batches.
    Raises `ApiError`: CORRUPT_MESSAGE (cut, CRC), INVALID_RECORD (magic, counts, not exactly one batch, control batch,
    base offset, sequence), MESSAGE_TOO_LARGE, INVALID_TIMESTAMP (log-append time is the broker's to set),
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    if not buf:
        raise ApiError(ErrorCode.INVALID_RECORD, "the request contains no record batch")
    header = _unpack(buf, 0)
    size = header.size
    if max_bytes is not None and size > max_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE, f"record batch of {size} bytes exceeds max.message.bytes={max_bytes}"
        )
    if size > len(buf):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"record batch of {size} bytes is truncated after {len(buf)} bytes")
    if size < len(buf):
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"{len(buf) - size} bytes follow the record batch; exactly one batch is allowed"
        )
    if not is_crc_valid(buf, header):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the CRC-32C of the batch does not match its content")
    if header.base_offset != 0:
        raise ApiError(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}; a producer must send 0")
    if header.count <= 0 or header.last_offset_delta + 1 != header.count:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{header.count} records with last offset delta {header.last_offset_delta}",
        )
    if header.producer_id >= 0 and header.base_sequence < 0 and needs_sequence:
        raise ApiError(ErrorCode.INVALID_RECORD, f"producer {header.producer_id} without a sequence number")
    attributes = header.attributes
    if attributes & ~CODEC_MASK:
        _check_attributes(header)
    codec_id = attributes & CODEC_MASK
    if codec_id == ZSTD_ID and not allows_zstd:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    if codecs is not None and codec_id not in codecs:
        codecs.by_id(codec_id)
    return header


def _check_attributes(header: BatchHeader) -> None:
    if header.control:
        raise ApiError(ErrorCode.INVALID_RECORD, "clients are not allowed to write control batches")
    if header.transactional and header.producer_id < 0:
        raise ApiError(ErrorCode.INVALID_RECORD, "transactional record batch without a producer id")
    if header.log_append_time:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP, "clients are not allowed to set the timestamp type to LogAppendTime"
        )


def check_timestamps(first: int, largest: int, *, now_ms: int, before_max_ms: int, after_max_ms: int) -> None:
    """Check the first and the largest timestamp of a batch against the window of a CreateTime topic.

    Raises `ApiError` INVALID_TIMESTAMP. `validate_records` checks the timestamps of single records.
    """
    for timestamp in (first, largest):
        if timestamp != NO_TIMESTAMP and not now_ms - before_max_ms <= timestamp <= now_ms + after_max_ms:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is outside [{now_ms - before_max_ms}, {now_ms + after_max_ms}]",
            )


def is_crc_valid(buf: Buffer, header: BatchHeader, pos: int = 0) -> bool:
    """Return True if the batch at `pos` is complete and has the CRC-32C of its header."""
    end = pos + header.size
    return end <= len(buf) and bool(crc32c(memoryview(buf)[pos + CRC_COVERS_FROM : end]) == header.crc)


def verify_crc(buf: Buffer, header: BatchHeader) -> None:
    """Raise `ApiError` CORRUPT_MESSAGE unless `is_crc_valid`."""
    if not is_crc_valid(buf, header):
        text = f"record batch at offset {header.base_offset} is truncated or its CRC-32C does not match"
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, text)


def records_of(buf: Buffer, header: BatchHeader) -> memoryview:
    """Return the records, as compressed, of the batch at the start of `buf`.

    Raises `ApiError` CORRUPT_MESSAGE for a truncated batch.
    """
    if header.size > len(buf):
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"record batch of {header.size} bytes is truncated after {len(buf)} bytes"
        )
    return memoryview(buf)[HEADER_SIZE : header.size]


def assign_offset(buf: bytearray | memoryview, base_offset: int, leader_epoch: int, pos: int = 0) -> None:
    """Set base offset and leader epoch in place; the CRC covers neither."""
    _LONG.pack_into(buf, pos, base_offset)
    _INT.pack_into(buf, pos + LENGTH_OVERHEAD, leader_epoch)


def set_max_timestamp(buf: bytearray | memoryview, max_timestamp: int, *, log_append_time: bool, pos: int = 0) -> None:
    """Set the max timestamp and the timestamp type in place and recompute the CRC. No record is opened."""
    header = _unpack(buf, pos)
    if header.size > len(buf) - pos:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"record batch of {header.size} bytes is truncated after {len(buf) - pos} bytes"
        )
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT | (LOG_APPEND_TIME_BIT if log_append_time else 0)
    _ATTRIBUTES.pack_into(buf, pos + _ATTRIBUTES_AT, attributes)
    _LONG.pack_into(buf, pos + _MAX_TIMESTAMP_AT, max_timestamp)
    write_crc(buf, pos, pos + header.size)


def write_crc(buf: bytearray | memoryview, pos: int, end: int) -> None:
    """Compute and set the CRC-32C of the batch in buf[pos:end]."""
    with memoryview(buf) as view, view[pos + CRC_COVERS_FROM : end] as covered:
        crc = crc32c(covered)
    _UNSIGNED.pack_into(buf, pos + CRC_AT, crc)


def _unpack(buf: Buffer, pos: int) -> BatchHeader:
    available = len(buf) - pos
    if available > MAGIC_AT and buf[pos + MAGIC_AT] != MAGIC:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"unsupported magic {buf[pos + MAGIC_AT]}; only record batches with magic 2 are accepted",
        )
    if available < HEADER_SIZE:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"record batch header is truncated after {available} bytes")
    header = _new(BatchHeader, HEADER.unpack_from(buf, pos))
    if header.batch_length < BATCH_LENGTH_MIN:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"batch length {header.batch_length} is below the minimum of {BATCH_LENGTH_MIN}"
        )
    return header
