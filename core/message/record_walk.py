"""The checks of every record in a batch, in bounded pieces: nothing is copied, so that memory does not grow with them.

Kafka's LogValidator and DefaultRecord check the same: sizes, offset deltas, keys, timestamps, the count of headers.
"""

from collections.abc import Generator
from typing import NamedTuple

from ...ports.broker_api import RecordError
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from .batch_header import LONG_MAX, NO_TIMESTAMP
from .varint import LONG_BYTES_MAX, encode_varint, read_raw, undo_zigzag

RECORD_ERRORS_MAX = 100
"""How many records of a batch are complained about one by one."""
PIECE = 500
"""Records, and headers of records, between two yields: about 0.3 ms."""
RECORD_SIZE_MIN = 7
"""Length, attributes, timestamp and offset delta, key and value length, header count: a byte each."""
LONG_MIN = -(2**63)

Pieces = Generator[None, None, "RecordsWalk"]


class RecordRules(NamedTuple):
    """What a topic asks of the records of a batch."""

    need_keys: bool = False
    low_ms: int = LONG_MIN
    high_ms: int = LONG_MAX
    """Timestamps are in [low, high], or -1."""
    consecutive: bool = True
    """A record whose offset delta is not its number is an error; else the walk notes it."""


class RecordsWalk(NamedTuple):
    """What the records of a batch are."""

    end: int
    """The position behind the last one."""
    least_delta: int
    largest_delta: int
    """Of their timestamps, to that of the batch."""
    largest_index: int
    """The number of the first record with the largest timestamp."""
    consecutive: bool
    """True if the offset deltas are 0, 1, 2, ..."""
    outside: bool
    """True if a timestamp is outside of the topic's bounds."""
    errors: list[RecordError]
    """The first records that break a rule of the topic."""


def check_count(count: int, size: int) -> None:
    """Raises `ApiError` CORRUPT_MESSAGE for more records than `size` bytes can hold."""
    if count * RECORD_SIZE_MIN > size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{count} records cannot be in {size} bytes")


def walk_records(  # noqa: PLR0915
    data: bytes, position: int, count: int, base_timestamp: int, rules: RecordRules
) -> Pieces:
    """Check `count` records from `position` on, and yield after every piece of them.

    Varints are read in place: calls would double the time. Raises `ApiError` CORRUPT_MESSAGE, or `IndexError` where
    the data ends, if a record is malformed. The caller compares the position behind the last one.
    """
    need_keys, low, high, strict = rules
    least: int = LONG_MAX
    largest: int = LONG_MIN
    largest_index, consecutive, outside = 0, True, False
    errors: list[RecordError] = []
    error, left = "", PIECE
    for number in range(count):
        if not left:
            yield
            left = PIECE
        left -= 1
        raw = data[position]
        if raw < 0x80:
            position += 1
        elif (more := data[position + 1]) < 0x80:
            raw = raw & 0x7F | more << 7
            position += 2
        else:
            raw, position = read_raw(data, position)
        if raw & 1:
            raise _bad_length("record", raw)
        record_end, position = position + (raw >> 1), position + 1  # past the attributes, which mean nothing yet

        raw = data[position]
        if raw < 0x80:
            position += 1
        elif (more := data[position + 1]) < 0x80:
            raw = raw & 0x7F | more << 7
            position += 2
        else:
            raw, position = read_raw(data, position, LONG_BYTES_MAX)
        delta = raw >> 1 ^ -(raw & 1)
        least = min(least, delta)
        if delta > largest:
            largest, largest_index = delta, number

        offset = data[position]
        if offset < 0x80:
            position += 1
        elif (more := data[position + 1]) < 0x80:
            offset = offset & 0x7F | more << 7
            position += 2
        else:
            offset, position = read_raw(data, position)

        raw = data[position]
        if raw < 0x80:
            position += 1
        elif (more := data[position + 1]) < 0x80:
            raw = raw & 0x7F | more << 7
            position += 2
        else:
            raw, position = read_raw(data, position)
        if not raw & 1:
            position += raw >> 1
        elif raw != 1:
            raise _bad_length("key", raw)
        elif need_keys:
            error = "a compacted topic needs a key in every record"

        raw = data[position]
        if raw < 0x80:
            position += 1
        elif (more := data[position + 1]) < 0x80:
            raw = raw & 0x7F | more << 7
            position += 2
        else:
            raw, position = read_raw(data, position)
        if not raw & 1:
            position += raw >> 1
        elif raw != 1:
            raise _bad_length("value", raw)

        if not data[position]:
            position += 1
        else:
            raw, position = read_raw(data, position)
            if raw & 1:
                raise _bad_length("header list", raw)
            if raw > record_end - position:  # a header has two bytes at least
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{raw >> 1} headers in {record_end - position} bytes")
            for _ in range(raw >> 1):
                if not left:
                    yield
                    left = PIECE
                left -= 1
                raw, position = read_raw(data, position)
                if raw & 1:
                    raise _bad_length("header key", raw)
                raw, position = read_raw(data, position + (raw >> 1))
                if not raw & 1:
                    position += raw >> 1
                elif raw != 1:
                    raise _bad_length("header value", raw)
        if position != record_end:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record is {position - record_end} bytes longer than it says")
        timestamp = base_timestamp + delta
        if not low <= timestamp <= high and timestamp != NO_TIMESTAMP:
            outside = True
            error = f"timestamp {timestamp} is outside [{low}, {high}]"
        if offset != number << 1:
            consecutive = False
            if strict:
                error = f"offset delta {undo_zigzag(offset)}; it must be {number}"
        if error:
            if len(errors) < RECORD_ERRORS_MAX:
                errors.append(RecordError(index=number, message=error))
            error = ""
    return RecordsWalk(position, least, largest, largest_index, consecutive, outside, errors)


def renumber_records(data: bytes, count: int) -> Generator[None, None, bytearray]:
    """The `count` records, which `walk_records` has passed, with offset deltas 0, 1, 2, ..., in bounded pieces."""
    out = bytearray()
    position = 0
    for number in range(count):
        if number % PIECE == PIECE - 1:
            yield
        raw, start = read_raw(data, position)
        end = start + (raw >> 1)
        _, offset_at = read_raw(data, start + 1, LONG_BYTES_MAX)
        _, rest = read_raw(data, offset_at)
        offset = encode_varint(number)
        out += encode_varint(end - start - (rest - offset_at) + len(offset))
        out += data[start:offset_at]
        out += offset
        out += data[rest:end]
        position = end
    return out


def _bad_length(what: str, raw: int) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a {what} of length {undo_zigzag(raw)}")
