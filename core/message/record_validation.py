"""Validation of every record of a batch (Kafka: LogValidator, DefaultRecord), in bounded pieces.

Compacted topics, `record.validation=true` and batches whose header cannot state the right max timestamp need it.
Nothing is copied, so memory does not grow with the batch.
"""

from collections.abc import Generator, Sequence
from functools import partial
from typing import NamedTuple

from ...ports.broker_api.produce import RecordError
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import Buffer
from ..traffic.steps import Steps, complete
from .batch_header import CODEC_MASK, LONG_MAX, NO_TIMESTAMP, BatchHeader, parse_header, records_of
from .batch_writer import assemble_batch
from .codec import Codec, Codecs
from .varint import LONG_BYTES_MAX, encode_varint, read_raw, undo_zigzag

RECORD_ERRORS_MAX = 100
"""Maximum number of record errors per batch in a response."""
PIECE = 500
"""Records and record headers between two yields: about 0.3 ms."""
RECORD_SIZE_MIN = 7
"""Length, attributes, timestamp and offset delta, key and value length, header count: a byte each."""
LONG_MIN = -(2**63)

Pieces = Generator[None, None, "RecordsSummary"]


class RecordRules(NamedTuple):
    """The rules of a topic for the records of a batch."""

    need_keys: bool = False
    low_ms: int = LONG_MIN
    high_ms: int = LONG_MAX
    """Timestamps must be in [low, high], or -1."""
    consecutive: bool = True
    """True if a wrong offset delta is an error; else it clears `RecordsSummary.consecutive`."""


class RecordsSummary(NamedTuple):
    """The result of a walk over the records of a batch."""

    end: int
    """Position after the last record."""
    least_delta: int
    largest_delta: int
    """Smallest and largest timestamp delta."""
    largest_index: int
    """Index of the first record with the largest timestamp."""
    consecutive: bool
    """True if the offset deltas are 0, 1, 2, ..."""
    timestamp_out_of_range: bool
    """True if a timestamp is outside the bounds of the topic."""
    errors: list[RecordError]
    """The first records that break a rule of the topic."""


def check_count(count: int, size: int) -> None:
    """Raise `ApiError` CORRUPT_MESSAGE for more records than `size` bytes can hold."""
    if count * RECORD_SIZE_MIN > size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{count} records cannot be in {size} bytes")


def walk_records(  # noqa: PLR0915
    data: bytes, position: int, count: int, base_timestamp: int, rules: RecordRules
) -> Pieces:
    """Check `count` records from `position` on, and yield after every piece.

    Varints are read inline: calls would double the time. Raises `ApiError` CORRUPT_MESSAGE, or `IndexError` at the end
    of the data, if a record is malformed. The caller compares the position after the last record.
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
    return RecordsSummary(position, least, largest, largest_index, consecutive, outside, errors)


def renumber_records(data: bytes, count: int) -> Generator[None, None, bytearray]:
    """Return `count` records that passed `walk_records` with offset deltas 0, 1, 2, ..., in bounded pieces."""
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


# Records of one size are checked by columns, in a twentieth of the time of `walk_records`.
#
# Records of one size whose varints have the same widths are a table: each of their bytes is in a column. The bytes that
# state lengths are the same in a column, and those of the offset deltas are known.

UNIFORM_COUNT_MAX = 16_384
"""Maximum number of records that are checked by columns: bounds the time to about 1 ms."""
_RUNS_MAX = 8
"""Maximum number of tables in a batch: a longer offset or timestamp delta begins another one."""
_TIMESTAMP_BYTES_MAX = 4

_ASCII = bytes(range(128))
_NOT_ASCII = bytes(range(128, 256))
_FLIP_HIGH_BIT = _NOT_ASCII + _ASCII


def _in_groups(first: int, stop: int, mark: int) -> bytes:
    return b"".join(bytes((number & 0x7F | mark,)) * 64 for number in range(first, stop))


_LOWEST = bytes(range(0x80, 0x100, 2)) * (UNIFORM_COUNT_MAX // 64)
_OFFSET_COLUMNS = (
    (0, 64, (bytes(range(0, 128, 2)),)),
    (64, 8_192, (_LOWEST, _in_groups(1, 128, 0))),
    (8_192, UNIFORM_COUNT_MAX, (_LOWEST, _in_groups(128, 256, 0x80), b"\x01" * (UNIFORM_COUNT_MAX - 8_192))),
)
"""First and last offset delta + 1 of each width, and the bytes of these deltas by column."""


def are_records_uniform(content: memoryview, header: BatchHeader) -> bool:
    """Return True if `content` is the valid records of an uncompressed batch, without headers, in a few tables.

    Then `walk_records` accepts them with consecutive offset deltas. False says nothing about them.
    """
    count = header.count
    if not 0 < count <= UNIFORM_COUNT_MAX or not 0 <= header.base_timestamp <= LONG_MAX >> 1:
        return False
    position = number = 0
    try:
        for _ in range(_RUNS_MAX):
            run, stride = _count_run(content, position, number, count)
            position += run * stride
            number += run
            if not run or number == count:
                return number == count and position == len(content)
    except (ApiError, IndexError):
        pass
    return False


def _count_run(content: memoryview, position: int, number: int, count: int) -> tuple[int, int]:
    """Return how many records from the one at `position` on, which has this number, are a valid table, and their size.

    The position of each record follows from the lengths of those before it, which are checked.
    """
    raw, attributes_at = _read(content, position)
    stride = attributes_at + (raw >> 1) - position
    _, offset_at = _read(content, attributes_at + 1)
    offset, key_at = _read(content, offset_at)
    key_raw, value_at = _read(content, key_at)
    key_start = value_at
    value_at += 0 if key_raw & 1 else key_raw >> 1
    value_raw, value_start = _read(content, value_at)
    headers_at = value_start + (0 if value_raw & 1 else value_raw >> 1)
    first, stop, columns = _OFFSET_COLUMNS[0 if number < 64 else 1 if number < 8_192 else 2]
    if (
        raw & 1
        or (key_raw & 1 and key_raw != 1)
        or (value_raw & 1 and value_raw != 1)
        or content[headers_at]
        or headers_at + 1 - position != stride
        or offset != number << 1
        or key_at - offset_at != len(columns)
        or offset_at - attributes_at - 1 > _TIMESTAMP_BYTES_MAX
    ):
        return 0, stride
    run = min(min(count, stop) - number, (len(content) - position) // stride)

    def column(at: int) -> bytes:
        return bytes(content[at : at + (run - 1) * stride + 1 : stride])

    constant = (
        *range(position, attributes_at),
        *range(key_at, key_start),
        *range(value_at, value_start),
        headers_at,
    )
    for at in constant:
        same, expected = column(at), bytes(content[at : at + 1])
        if same != expected * run:
            run -= len(same.lstrip(expected))
    for at in range(attributes_at + 1, offset_at):
        continued = at < offset_at - 1
        part = column(at).translate(_FLIP_HIGH_BIT) if continued else column(at)
        if not part.isascii():
            run -= len(part.lstrip(_ASCII))
    start = number - first
    for at, known in zip(range(offset_at, key_at), columns, strict=True):
        if column(at) != known[start : start + run]:
            return 0, stride
    return run, stride


def _read(content: memoryview, at: int) -> tuple[int, int]:
    raw, width = read_raw(bytes(content[at : at + LONG_BYTES_MAX]), 0)
    return raw, at + width


__all__ = [
    "are_records_uniform",
    "RECORD_ERRORS_MAX",
    "ValidatedRecords",
    "InvalidRecords",
    "check_records",
    "decompress_records",
    "validate_records",
]

INLINE_BYTES_MAX = 64 * 1024
"""Larger records are compressed and decompressed on a worker."""
INLINE_UNPACKED_MAX = 256 * 1024


class InvalidRecords(ApiError):
    """Some records break a rule of the topic: `record_errors` lists the first of them, at least one."""

    def __init__(self, code: ErrorCode, record_errors: Sequence[RecordError]) -> None:
        first = record_errors[0]
        super().__init__(code, f"record {first.index}: {first.message}")
        self.record_errors = tuple(record_errors)


class ValidatedRecords(NamedTuple):
    """Facts from the records of a valid batch that its header may state wrongly."""

    max_timestamp: int
    """Largest timestamp of a record; `set_max_timestamp` corrects a header with another one."""
    max_timestamp_delta: int
    """Index of the first record with it: its offset delta in a consecutive batch."""
    consecutive: bool
    """False unless the offset deltas are 0, 1, 2, ...: `rebuild_batch` must renumber the records."""


def validate_records(
    buf: Buffer,
    codecs: Codecs,
    *,
    max_bytes: int,
    need_keys: bool = False,
    now_ms: int = 0,
    before_max_ms: int = LONG_MAX,
    after_max_ms: int = LONG_MAX,
) -> ValidatedRecords:
    """Check each record of a batch that passed `check_batch`, in one call.

    Timestamps must be in [now - before, now + after]; a topic with LogAppendTime has no such bounds. `max_bytes` bounds
    the decompressed size. Raises the errors of `check_records` and `decompress_records`.
    """
    header = parse_header(buf)
    rules = RecordRules(need_keys, now_ms - before_max_ms, now_ms + after_max_ms, not header.codec_id)
    content = complete(decompress_records(buf, header, codecs, max_bytes=max_bytes))
    return complete(check_records(content, header, rules))


def decompress_records(buf: Buffer, header: BatchHeader, codecs: Codecs, *, max_bytes: int) -> Steps[bytes]:
    """Decompress the records of a batch, large ones on a worker.

    Raises `ApiError` INVALID_RECORD if this fails, since the CRC was valid and so a retry cannot help;
    MESSAGE_TOO_LARGE beyond `max_bytes`, UNSUPPORTED_COMPRESSION_TYPE.
    """
    content = records_of(buf, header)
    if not header.codec_id:
        return bytes(content)
    decompress = codecs.by_id(header.codec_id).decompress
    try:
        if len(content) <= INLINE_BYTES_MAX:
            try:
                return decompress(content, min(INLINE_UNPACKED_MAX, max_bytes))
            except ApiError as error:
                if error.code is not ErrorCode.MESSAGE_TOO_LARGE or max_bytes <= INLINE_UNPACKED_MAX:
                    raise
        unpacked: bytes = yield partial(decompress, content, max_bytes)
    except ApiError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            raise ApiError(ErrorCode.INVALID_RECORD, error.message) from error
        raise
    return unpacked


def check_records(content: bytes, header: BatchHeader, rules: RecordRules) -> Steps[ValidatedRecords]:
    """Check each record of a batch in bounded pieces; `content` is the decompressed records.

    Raises `InvalidRecords` (INVALID_RECORD, or INVALID_TIMESTAMP if a timestamp is a reason), `ApiError` INVALID_RECORD
    for malformed records or a count that differs from the header.
    """
    walked = yield from _walk(content, header, rules)
    base = header.base_timestamp
    if base + walked.least_delta < LONG_MIN or base + walked.largest_delta > LONG_MAX:
        text = f"timestamps from {base + walked.least_delta} to {base + walked.largest_delta}"
        raise ApiError(ErrorCode.INVALID_RECORD, text)
    if walked.errors:
        code = ErrorCode.INVALID_TIMESTAMP if walked.timestamp_out_of_range else ErrorCode.INVALID_RECORD
        raise InvalidRecords(code, walked.errors)
    return ValidatedRecords(base + walked.largest_delta, walked.largest_index, walked.consecutive)


def _walk(content: bytes, header: BatchHeader, rules: RecordRules) -> Steps[RecordsSummary]:
    count = header.count
    if not count:
        raise ApiError(ErrorCode.INVALID_RECORD, "the batch has no records")
    try:
        check_count(count, len(content))
        walked = yield from walk_records(content, 0, count, header.base_timestamp, rules)
    except IndexError:
        raise ApiError(ErrorCode.INVALID_RECORD, f"the batch ends before the last of its {count} records") from None
    except ApiError as error:
        # The CRC is valid, so the client sent malformed records, and a retry cannot help.
        raise ApiError(ErrorCode.INVALID_RECORD, error.message) from error
    if walked.end != len(content):
        text = f"the {count} records end at byte {walked.end} of {len(content)}"
        raise ApiError(ErrorCode.INVALID_RECORD, text)
    return walked


def claimed_timestamp(header: BatchHeader) -> int:
    """Return the max timestamp in the header of a batch with base timestamp -1.

    librdkafka writes 0 if no message has a timestamp.
    """
    return header.max_timestamp or NO_TIMESTAMP


def rebuild_batch(
    header: BatchHeader, content: bytes, codec: Codec | None, *, consecutive: bool = True
) -> Steps[bytearray]:
    """Build a batch with the fields of `header` and its records compressed by `codec` (None: uncompressed).

    `content` is the decompressed records. Unless they are `consecutive`, they must have passed `check_records` and get
    the offset deltas 0, 1, 2, ... For LogAppendTime, call `set_max_timestamp` on the result. Raises
    `ApiError` MESSAGE_TOO_LARGE.
    """
    records = content if consecutive else (yield from renumber_records(content, header.count))
    work = partial(
        assemble_batch,
        records,
        count=header.count,
        codec=codec,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        attributes=header.attributes & ~CODEC_MASK,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
    )
    if codec is None or len(records) <= INLINE_BYTES_MAX:
        return work()
    rebuilt: bytearray = yield work
    return rebuilt
