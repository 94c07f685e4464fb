"""Encoding of messages to record batches v2 (facts B1).

One `%` of a bytes format, which runs in C, writes all records of a batch when no message has a key or headers and all
have one timestamp, as `send_many` creates them, with or without a numbered header; one `join` writes those with short
keys. Other batches are written message by message: compiled, the plain loop of `append_records` writes all.
`benchmarks/message_codec.py` measures them.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from operator import add

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import Buffer, Offset
from .batch_header import (
    BATCH_LENGTH_MIN,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    LONG_MAX,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    write_crc,
)
from .codec import Codec
from .message import Headers, Message
from .numbered_header import NUMBER_SIZE, NumberedHeader
from .varint import COMPILED, SMALL, SMALL_LIMIT, encode_varint

LONG_MIN = -(2**63)
INT_MAX = 2**31 - 1

_ONE_BYTE_OFFSETS = _ONE_BYTE_SIZES = 64
_EQUAL_MIN = 64
"""The number of messages from which on it pays to look for values of one size."""
_FAST_VALUE_MAX = SMALL_LIMIT - 16
# A record without key at the base timestamp: length, attributes and timestamp delta, offset delta, null key, value
# length, value, headers.
_PLAIN_RECORD = b"%b\0\0%b\1%b%b"
_NO_HEADERS = _NO_ATTRIBUTES = b"\0"
_NO_ATTRIBUTES_NO_DELTA = b"\0\0"
_NULL = b"\1"
# Bytes around the value, without the content of the headers, for offset deltas of one byte and of two.
_AROUND, _AROUND_2 = 6, 7


def encode_batch(
    messages: Sequence[Message],
    *,
    now_ms: int,
    codec: Codec | None = None,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Encode one batch with the messages at consecutive offsets; messages without a timestamp get `now_ms`.

    Raises `ValueError` for no messages, `ApiError` INVALID_TIMESTAMP or INVALID_RECORD for a timestamp or a header key
    that has no encoding, MESSAGE_TOO_LARGE beyond 2 GiB.
    """
    if not messages:
        raise ValueError("a batch needs at least one message")
    values, keys, headers, timestamps = tuple(zip(*messages, strict=True))[:4]
    return encode_columns(
        values,
        keys=None if keys.count(None) == len(keys) else keys,
        headers=None if headers.count(()) == len(headers) else headers,
        timestamps=timestamps,
        now_ms=now_ms,
        codec=codec,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def encode_columns(
    values: Sequence[bytes | None],
    *,
    now_ms: int,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps: Sequence[int | None] | None = None,
    codec: Codec | None = None,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    numbered: NumberedHeader | None = None,
) -> bytearray:
    """Encode one batch from columns of equal length; None stands for a column of None values (or without headers).

    `numbered` is appended to the headers of each message. Raises the errors of `encode_batch`.
    """
    count = len(values)
    if not count:
        raise ValueError("a batch needs at least one message")
    base_timestamp, max_timestamp, deltas = _timestamp_deltas(timestamps, now_ms)
    records = None
    is_plain = keys is None and headers is None and deltas is None
    if is_plain and count <= SMALL_LIMIT and values.count(None) == 0:
        records = _equal_records(values) if numbered is None and count >= _EQUAL_MIN else None  # type: ignore[arg-type]
        if records is None and not COMPILED:
            records = _plain_records(values, numbered)  # type: ignore[arg-type]  # no value is None
    elif keys is not None and headers is None and deltas is None and numbered is None and not COMPILED:
        records = _keyed_records(values, keys)
    if records is None:
        trailers = _trailers(count, headers, numbered)
        write = append_records if COMPILED else _records
        records = write(values, keys or repeat(None, count), trailers, deltas or repeat(0, count))
    return assemble_batch(
        records,
        count=count,
        codec=codec,
        base_offset=base_offset,
        last_offset_delta=count - 1,
        attributes=TRANSACTIONAL_BIT if transactional else 0,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def assemble_batch(
    records: Buffer,
    *,
    count: int,
    codec: Codec | None,
    base_offset: int,
    last_offset_delta: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    leader_epoch: int = 0,
) -> bytearray:
    """Build a batch from encoded records: compress them, set length and CRC.

    `attributes` has no codec bits. Raises `ApiError` MESSAGE_TOO_LARGE beyond 2 GiB.
    """
    if codec is not None:
        records = codec.compress(records)
        attributes |= codec.id
    batch_length = HEADER_SIZE - LENGTH_OVERHEAD + len(records)
    if batch_length > INT_MAX:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE, f"record batch of {batch_length} bytes exceeds the format limit of {INT_MAX}"
        )
    batch = bytearray(
        HEADER.pack(
            base_offset,
            batch_length,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
    )
    batch += records
    write_crc(batch, 0, len(batch))
    return batch


EMPTY_HEADER = BatchHeader(
    base_offset=Offset(0),
    batch_length=BATCH_LENGTH_MIN,
    leader_epoch=0,
    magic=MAGIC,
    crc=0,
    attributes=0,
    last_offset_delta=0,
    base_timestamp=NO_TIMESTAMP,
    max_timestamp=NO_TIMESTAMP,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    count=0,
)
"""The header of a batch without records, timestamps and producer, to be used with other offsets and leader epoch."""


def make_empty_batch(header: BatchHeader) -> bytearray:
    """Return a batch without records that has offsets, leader epoch, max timestamp and producer fields of the header
    (Kafka: writeEmptyHeader). It stays in a log where all records of a batch, or of a segment, are removed."""
    return assemble_batch(
        b"",
        count=0,
        codec=None,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        attributes=header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
        base_timestamp=header.max_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
    )


def _timestamp_deltas(timestamps: Sequence[int | None] | None, now_ms: int) -> tuple[int, int, Sequence[int] | None]:
    """Return (first timestamp, largest timestamp, deltas to the first, or None if all are 0)."""
    if timestamps is None:
        return now_ms, now_ms, None
    first = timestamps[0]
    base = now_ms if first is None else first
    if timestamps.count(first) == len(timestamps):
        least = largest = base
        deltas = None
    else:
        stamped = [now_ms if timestamp is None else timestamp for timestamp in timestamps]
        least, largest = min(stamped), max(stamped)
        deltas = [timestamp - base for timestamp in stamped]
    if least < LONG_MIN or largest > LONG_MAX or largest - least > LONG_MAX:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, f"timestamps from {least} to {largest} do not fit a batch")
    return base, largest, deltas


def _equal_records(values: Sequence[bytes]) -> bytes | None:
    """Return records of values alone, like `_plain_records`, that all have one size; None if they do not."""
    count, size = len(values), len(values[0])
    if size >= _FAST_VALUE_MAX or list(map(len, values)).count(size) != count:
        return None
    parts: list[bytes] = [_NO_HEADERS] * (2 * count + 1)
    parts[0:-1:2] = _heads(size, 1 << (count - 1).bit_length())[:count]
    parts[1::2] = values
    return b"".join(parts)


@lru_cache(maxsize=8)
def _heads(size: int, count: int) -> list[bytes]:
    """Return what stands before each value of this size, with the end of the record before it."""
    short, long = (SMALL[around + size + (size >= _ONE_BYTE_OFFSETS)] for around in (_AROUND, _AROUND_2))
    heads = [b"\0%b\0\0%b\1%b" % (short, offset, SMALL[size]) for offset in SMALL[:_ONE_BYTE_OFFSETS]]
    heads += [b"\0%b\0\0%b\1%b" % (long, offset, SMALL[size]) for offset in SMALL[_ONE_BYTE_OFFSETS:count]]
    return [heads[0][1:], *heads[1:]]


def _plain_records(values: Sequence[bytes], numbered: NumberedHeader | None = None) -> bytes | None:
    """Return records of values alone with consecutive offsets and one timestamp; None if a value is too long."""
    sizes = list(map(len, values))
    trailer = _NO_HEADERS if numbered is None else _numbered_trailer(numbered)
    more = len(trailer) - len(_NO_HEADERS) + (0 if numbered is None else NUMBER_SIZE)
    if max(sizes) + more >= _FAST_VALUE_MAX:
        return None
    record = _PLAIN_RECORD + trailer.replace(b"%", b"%%")
    lengths = chain(
        map(_lengths(_AROUND + more).__getitem__, sizes[:_ONE_BYTE_OFFSETS]),
        map(_lengths(_AROUND_2 + more).__getitem__, sizes[_ONE_BYTE_OFFSETS:]),
    )
    columns = [lengths, SMALL, map(SMALL.__getitem__, sizes), values]
    if numbered is not None:
        record += b"%b"
        columns.append(numbered.numbers(len(sizes)))
    fields = zip(*columns, strict=False)
    return record * len(sizes) % tuple(chain.from_iterable(fields))


def _keyed_records(values: Sequence[bytes | None], keys: Sequence[bytes | None]) -> bytes | None:
    """Return records of keys of up to 63 bytes and values with consecutive offsets and one timestamp.

    None: it is too many, one is None or too long, or some of the values have up to 63 bytes and others more.
    """
    if len(values) > SMALL_LIMIT or values.count(None) or keys.count(None):
        return None
    key_sizes: list[int] = list(map(len, keys))  # type: ignore[arg-type]  # none of them is None
    value_sizes: list[int] = list(map(len, values))  # type: ignore[arg-type]
    longest = max(value_sizes)
    if max(key_sizes) >= _ONE_BYTE_SIZES or longest >= _FAST_VALUE_MAX - _ONE_BYTE_SIZES:
        return None
    around = _AROUND + (longest >= _ONE_BYTE_SIZES)
    if longest >= _ONE_BYTE_SIZES > min(value_sizes):
        return None
    sums = list(map(add, key_sizes, value_sizes))
    lengths = chain(
        map(_fields_from(around).__getitem__, sums[:_ONE_BYTE_OFFSETS]),
        map(_fields_from(around + 1).__getitem__, sums[_ONE_BYTE_OFFSETS:]),
    )
    key_lengths, value_lengths = (map(SMALL.__getitem__, sizes) for sizes in (key_sizes, value_sizes))
    before_offset, trailers = repeat(_NO_ATTRIBUTES_NO_DELTA), repeat(_NO_HEADERS)
    columns = lengths, before_offset, SMALL, key_lengths, keys, value_lengths, values, trailers
    return b"".join(chain.from_iterable(zip(*columns, strict=False)))


@lru_cache(maxsize=4)
def _fields_from(number: int) -> list[bytes]:
    """Return the fields of `number` and the numbers after it."""
    return SMALL[number:]


@lru_cache(maxsize=32)
def _lengths(around: int) -> list[bytes]:
    """Return record length fields by value size; `around` bytes surround values of up to 63 bytes, else one more."""
    return SMALL[around : around + 64] + SMALL[around + 65 :]


def _trailers(count: int, headers: Sequence[Headers] | None, numbered: NumberedHeader | None) -> Iterable[bytes]:
    """Return the encoded headers of each record."""
    if headers is None:
        if numbered is None:
            return repeat(_NO_HEADERS, count)
        trailer = _numbered_trailer(numbered)
        return [trailer + number for number in numbered.numbers(count)]
    if numbered is not None:
        own = numbered.headers(count)
        headers = [(*given, *ours) for given, ours in zip(headers, own, strict=True)]
    return [_encode_headers(fields) if fields else _NO_HEADERS for fields in headers]


def _numbered_trailer(numbered: NumberedHeader) -> bytes:
    """Return the encoded numbered header up to its number."""
    laid_out = _encode_headers(((numbered.name, numbered.head + bytes(NUMBER_SIZE)),))
    return laid_out[:-NUMBER_SIZE]


def _records(
    values: Iterable[bytes | None],
    keys: Iterable[bytes | None],
    trailers: Iterable[bytes],
    timestamp_deltas: Iterable[int],
) -> bytes:
    """Encode arbitrary records. Varints below 8192 are looked up inline: a call for each would double the time."""
    small, limit, out = SMALL, SMALL_LIMIT, list[bytes]()
    add = out.append
    for offset, (value, key, trailer, delta) in enumerate(zip(values, keys, trailers, timestamp_deltas, strict=True)):
        body = b"\0%b%b%b%b%b%b%b" % (
            small[delta] if 0 <= delta < limit else encode_varint(delta),
            small[offset] if offset < limit else encode_varint(offset),
            b"\1" if key is None else small[len(key)] if len(key) < limit else encode_varint(len(key)),
            key or b"",
            b"\1" if value is None else small[len(value)] if len(value) < limit else encode_varint(len(value)),
            value or b"",
            trailer,
        )
        size = len(body)
        add(small[size] if size < limit else encode_varint(size))
        add(body)
    return b"".join(out)


def append_records(
    values: Iterable[bytes | None],
    keys: Iterable[bytes | None],
    trailers: Iterable[bytes],
    timestamp_deltas: Iterable[int],
) -> bytes:
    """Encode arbitrary records like `_records`, in small steps: the faster way when compiled."""
    small, limit, out = SMALL, SMALL_LIMIT, list[bytes]()
    for offset, (value, key, trailer, delta) in enumerate(zip(values, keys, trailers, timestamp_deltas, strict=True)):
        offset_field = small[offset] if offset < limit else encode_varint(offset)
        before_offset = _NO_ATTRIBUTES_NO_DELTA
        if delta:
            before_offset = _NO_ATTRIBUTES + (small[delta] if 0 < delta < limit else encode_varint(delta))
        size = 2 + len(before_offset) + len(offset_field) + len(trailer)
        key_field = value_field = _NULL
        if key is not None:
            key_field = small[len(key)] if len(key) < limit else encode_varint(len(key))
            size += len(key_field) - 1 + len(key)
        if value is not None:
            value_field = small[len(value)] if len(value) < limit else encode_varint(len(value))
            size += len(value_field) - 1 + len(value)
        out.append(small[size] if size < limit else encode_varint(size))
        out.append(before_offset)
        out.append(offset_field)
        out.append(key_field)
        if key is not None:
            out.append(key)
        out.append(value_field)
        if value is not None:
            out.append(value)
        out.append(trailer)
    return b"".join(out)


def _encode_headers(headers: Headers) -> bytes:
    out = [_length_field(len(headers))]
    for key, value in headers:
        try:
            name = key.encode()
        except UnicodeEncodeError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, f"header key {key!r} cannot be written as UTF-8") from error
        out.append(_length_field(len(name)))
        out.append(name)
        if value is None:
            out.append(_NULL)
        else:
            out.append(_length_field(len(value)))
            out.append(value)
    return b"".join(out)


def _length_field(length: int) -> bytes:
    return SMALL[length] if length < SMALL_LIMIT else encode_varint(length)
