"""Decoding of record batches v2 to messages or columns."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import Any, TypeVar, cast

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import Buffer
from .batch_header import HEADER_SIZE, LENGTH_OVERHEAD, LONG_MAX, BatchHeader, parse_header, records_of, verify_crc
from .codec import DECOMPRESSED_BYTES_MAX, Codecs
from .message import CREATE_TIME, LOG_APPEND_TIME, Headers, Message, ShareMessage
from .record_parser import Records, parse_records

LONG_MIN = -(2**63)
T = TypeVar("T")


class Columns:
    """The records of some batches as columns of equal length, for building tables.

    `headers` is empty unless requested. `next_offset` is the next fetch offset: after the last complete batch, also
    when its records were skipped. `valid_bytes` is the size of the complete batches.
    """

    __slots__ = ("headers", "keys", "log_append_time", "next_offset", "offsets", "timestamps", "valid_bytes", "values")

    def __init__(self, next_offset: int = 0) -> None:
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.log_append_time: list[bool] = []
        self.next_offset = next_offset
        self.valid_bytes = 0

    def __len__(self) -> int:
        return len(self.values)


class BatchMessages:
    """The messages of one batch as columns of equal length; each message is made when it is taken.

    A reader that drops each message soon then has few objects at a time, and gives the garbage collector little to do.
    """

    __slots__ = ("_columns", "offsets")

    def __init__(self, columns: tuple[Iterable[Any], ...], offsets: Sequence[int]) -> None:
        """`columns` are those of all fields of a `Message` but the offset and the timestamp type."""
        self._columns = columns
        self.offsets = offsets

    def iterate(self, offsets: Iterator[int]) -> Iterator[Message]:
        """Return an iterator over the messages, each step of which also takes one of `offsets`, which are all."""
        value, key, headers, timestamp, topic, partition, timestamp_type = self._columns
        rows = zip(value, key, headers, timestamp, topic, partition, offsets, timestamp_type, strict=False)
        return cast("Iterator[Message]", map(tuple.__new__, repeat(Message), rows))

    def shared(self, delivery_count: int) -> list[Message]:
        """Return the messages of a share group with this delivery count."""
        rows = zip(self.iterate(iter(self.offsets)), repeat((delivery_count,)), strict=False)
        return [cast("Message", tuple.__new__(ShareMessage, message + count)) for message, count in rows]


def decode_batch(
    buf: Buffer,
    codecs: Codecs,
    *,
    topic: str = "",
    partition: int = -1,
    from_offset: int = 0,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    check_crc: bool = True,
    header: BatchHeader | None = None,
    delivery_count: int | None = None,
) -> list[Message]:
    """Decode the batch at the start of `buf`, also a control batch, from `from_offset` on.

    With a `delivery_count` the messages are `ShareMessage`. `header` saves parsing it again. `max_bytes` bounds the
    size of the decompressed records. Raises `ApiError`: CORRUPT_MESSAGE, INVALID_RECORD (not magic 2),
    MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    found = decode_messages(
        buf,
        codecs,
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        max_bytes=max_bytes,
        check_crc=check_crc,
        header=header,
    )
    return list(found.iterate(iter(found.offsets))) if delivery_count is None else found.shared(delivery_count)


def decode_messages(
    buf: Buffer,
    codecs: Codecs,
    *,
    topic: str,
    partition: int,
    from_offset: int,
    max_bytes: int,
    check_crc: bool,
    header: BatchHeader | None,
) -> BatchMessages:
    """Decode like `decode_batch` to messages that are made when they are taken. Raises the same errors."""
    header = parse_header(buf) if header is None else header
    if check_crc:
        verify_crc(buf, header)
    if not header.count:
        return BatchMessages(((), (), (), (), (), (), ()), ())
    records = open_records(buf, header, codecs, max_bytes=max_bytes)
    offsets: Sequence[int] = _offsets(header, records)
    columns = (records.values, records.keys, records.headers, _timestamps(header, records))
    if header.base_offset < from_offset:
        keep = [offset >= from_offset for offset in offsets]
        values, keys, headers, timestamps = columns
        columns = (
            list(compress(values, keep)),
            list(compress(keys, keep)),
            list(compress(headers, keep)),
            list(compress(timestamps, keep)),
        )
        offsets = list(compress(offsets, keep))
    timestamp_type = LOG_APPEND_TIME if header.log_append_time else CREATE_TIME
    return BatchMessages((*columns, repeat(topic), repeat(partition), repeat(timestamp_type)), offsets)


def decode_columns(
    records: Buffer,
    codecs: Codecs,
    *,
    from_offset: int = 0,
    upto: int | None = None,
    with_headers: bool = False,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    check_crc: bool = True,
    into: Columns | None = None,
) -> Columns:
    """Decode the records with offsets in [from_offset, upto) of consecutive batches, without control records.

    A truncated batch at the end is left for the next read. `into` collects the columns of several calls. Raises the
    errors of `decode_batch`; `into` then holds the complete batches before its `next_offset`.
    """
    columns = Columns(from_offset) if into is None else into
    view = memoryview(records)
    for position, header in whole_batches(view):
        if upto is not None and header.base_offset >= upto:
            break
        batch = view[position : position + header.size]
        if header.control or header.next_offset <= from_offset:
            if check_crc:  # damage may have made it a control batch, or one that ends before
                verify_crc(batch, header)
        else:
            start = len(columns.values)
            _add_batch(
                columns, batch, header, codecs, max_bytes=max_bytes, check_crc=check_crc, with_headers=with_headers
            )
            if header.base_offset < from_offset or (upto is not None and header.next_offset > upto):
                _drop_outside(columns, start, from_offset, upto)
        reached = header.next_offset if upto is None else min(header.next_offset, upto)
        columns.next_offset = max(columns.next_offset, reached)
        columns.valid_bytes += header.size
    return columns


def whole_batches(records: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every complete batch. Raises `ApiError` for an invalid header."""
    position, end = 0, len(records)
    while position + LENGTH_OVERHEAD <= end:
        size = batch_size(records, position)
        if position + size > end:
            return
        yield position, parse_header(records, position)
        position += size


def batch_size(records: Buffer, position: int) -> int:
    """Return the size of the batch at `position`; reads its first 12 bytes. Raises `ApiError` CORRUPT_MESSAGE."""
    size = LENGTH_OVERHEAD + int.from_bytes(records[position + 8 : position + LENGTH_OVERHEAD], "big", signed=True)
    if size < HEADER_SIZE:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch length {size - LENGTH_OVERHEAD} is below the minimum of {HEADER_SIZE - LENGTH_OVERHEAD}",
        )
    return size


def open_records(
    batch: Buffer, header: BatchHeader, codecs: Codecs, *, max_bytes: int, with_headers: bool = True
) -> Records:
    """Decompress and parse the records of a batch with a checked header. Raises the errors of `decode_batch`."""
    content = records_of(batch, header)
    if header.codec_id:
        data = codecs.by_id(header.codec_id).decompress(content, max_bytes)
        return parse_records(data, 0, len(data), header.count, with_headers=with_headers)
    if isinstance(batch, bytes):
        return parse_records(batch, HEADER_SIZE, header.size, header.count, with_headers=with_headers)
    data = bytes(content)
    return parse_records(data, 0, len(data), header.count, with_headers=with_headers)


def _add_batch(
    columns: Columns,
    batch: Buffer,
    header: BatchHeader,
    codecs: Codecs,
    *,
    max_bytes: int,
    check_crc: bool,
    with_headers: bool,
) -> None:
    """Append the records of one batch: all of them, or none if it raises."""
    if check_crc:
        verify_crc(batch, header)
    if not header.count:
        return
    records = open_records(batch, header, codecs, max_bytes=max_bytes, with_headers=with_headers)
    offsets = _offsets(header, records)
    timestamps = _timestamps(header, records)
    columns.values += records.values
    columns.keys += records.keys
    columns.headers += records.headers
    columns.offsets += offsets
    columns.timestamps += timestamps
    columns.log_append_time += repeat(header.log_append_time, header.count)


def _offsets(header: BatchHeader, records: Records) -> range | list[int]:
    base, deltas = header.base_offset, records.offset_deltas
    if not deltas:  # 0, 1, 2, ...
        if header.count <= header.last_offset_delta + 1:
            return range(base, base + header.count)
        deltas = [0, header.count - 1]
    if min(deltas) < 0 or max(deltas) > header.last_offset_delta:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"record offset deltas {min(deltas)} to {max(deltas)} exceed last offset delta {header.last_offset_delta}",
        )
    return [base + delta for delta in deltas]


def _timestamps(header: BatchHeader, records: Records) -> list[int]:
    """Return the timestamps of the records; with LogAppendTime all have the max timestamp of the batch."""
    if header.log_append_time:
        return [header.max_timestamp] * header.count
    least, largest = timestamp_range(header, records)
    if least == largest:
        return [least] * header.count
    base = header.base_timestamp
    return [base + delta for delta in records.timestamp_deltas]


def timestamp_range(header: BatchHeader, records: Records) -> tuple[int, int]:
    """Return the smallest and largest timestamp of one record or more. Raises `ApiError` CORRUPT_MESSAGE."""
    if not records.timestamp_deltas:
        return header.base_timestamp, header.base_timestamp
    least = header.base_timestamp + min(records.timestamp_deltas)
    largest = header.base_timestamp + max(records.timestamp_deltas)
    if least < LONG_MIN or largest > LONG_MAX:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"timestamps from {least} to {largest}")
    return least, largest


def _drop_outside(columns: Columns, start: int, from_offset: int, upto: int | None) -> None:
    """Drop the rows from row `start` on whose offset is outside [from_offset, upto)."""
    end = LONG_MAX if upto is None else upto
    keep = [from_offset <= offset < end for offset in columns.offsets[start:]]
    if all(keep):
        return
    _keep(columns.values, start, keep)
    _keep(columns.keys, start, keep)
    _keep(columns.headers, start, keep)
    _keep(columns.offsets, start, keep)
    _keep(columns.timestamps, start, keep)
    _keep(columns.log_append_time, start, keep)


def _keep(column: list[T], start: int, keep: list[bool]) -> None:
    column[start:] = compress(column[start:], keep)
