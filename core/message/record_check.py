"""The checks of a client's batch that open every record (facts B2): compacted topics, `record.validation=true`, and
batches whose header cannot be right about timestamps."""

from collections.abc import Sequence
from typing import NamedTuple

from ...ports.broker_api import RecordError
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.words import Buffer
from .batch_header import LONG_MAX, NO_TIMESTAMP, BatchHeader, parse_header
from .batch_reader import open_records, timestamp_range
from .codec import Codecs

RECORD_ERRORS_MAX = 100
"""How many records of a batch are complained about one by one."""

_LOOKED_AT_RECORDS_MAX = 10_000
_LOOKED_AT_BYTES_MAX = 8 * 1024 * 1024
"""What a batch may unpack to where only its timestamps are wanted: what librdkafka puts into one by default, and more.
Whoever packs more than that would make the others wait."""


class InvalidRecords(ApiError):
    """Some records break a rule of the topic: `record_errors` names the first of them, one at least."""

    def __init__(self, code: ErrorCode, record_errors: Sequence[RecordError]) -> None:
        first = record_errors[0]
        super().__init__(code, f"record {first.index}: {first.message}")
        self.record_errors = tuple(record_errors)


class CheckedRecords(NamedTuple):
    """What the records of a good batch say, and their header need not."""

    max_timestamp: int
    """The largest timestamp of a record; where the header claims another, `stamp_time` corrects it."""
    max_timestamp_delta: int
    """The index of the first record that has it; its offset delta, once the batch is consecutive."""
    consecutive: bool
    """False when the offset deltas are not 0, 1, 2, ...: the batch must be rebuilt with `renumber_batch`."""


def validate_records(
    buf: Buffer,
    codecs: Codecs,
    *,
    max_bytes: int,
    need_keys: bool = False,
    now_ms: int = 0,
    before_max_ms: int = LONG_MAX,
    after_max_ms: int = LONG_MAX,
) -> CheckedRecords:
    """Open the batch that `check_batch` has passed and check each record.

    Timestamps must be in [now - before, now + after]; a topic with log-append time leaves those bounds out. `max_bytes`
    bounds what the records decompress to. Raises `InvalidRecords` (INVALID_RECORD, or INVALID_TIMESTAMP if a timestamp
    is among the reasons), `ApiError` INVALID_RECORD when the records cannot be read, MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = parse_header(buf)
    if not header.count:
        raise ApiError(ErrorCode.INVALID_RECORD, "the batch has no records")
    try:
        records = open_records(buf, header, codecs, max_bytes=max_bytes)
        least, largest = timestamp_range(header, records)
    except ApiError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            # The CRC was right: the client made it so, and sending it again cannot help.
            raise ApiError(ErrorCode.INVALID_RECORD, error.message) from error
        raise
    errors: dict[int, str] = {}
    if need_keys and None in records.keys:
        errors.update(
            (index, "a compacted topic needs a key in every record")
            for index, key in enumerate(records.keys)
            if key is None
        )
    base, deltas = header.base_timestamp, records.timestamp_deltas
    low, high = now_ms - before_max_ms, now_ms + after_max_ms
    code = ErrorCode.INVALID_RECORD
    if least < low or largest > high:
        outside = {
            index: f"timestamp {base + delta} is outside [{low}, {high}]"
            for index, delta in enumerate(deltas)
            if base + delta != NO_TIMESTAMP and not low <= base + delta <= high
        }
        if outside:
            code = ErrorCode.INVALID_TIMESTAMP
            errors.update(outside)
    consecutive = records.consecutive
    if not consecutive and not header.codec_id:
        errors.update(
            (index, f"offset delta {delta}; it must be {index}")
            for index, delta in enumerate(records.offset_deltas)
            if delta != index
        )
    if errors:
        first = sorted(errors.items())[:RECORD_ERRORS_MAX]
        raise InvalidRecords(code, [RecordError(index=index, message=text) for index, text in first])
    return CheckedRecords(largest, deltas.index(largest - base), consecutive)


def largest_timestamp(buf: Buffer, header: BatchHeader, codecs: Codecs) -> int:
    """The largest timestamp of a batch whose first record has none (base timestamp -1); -1 when no record has one.

    Its header need not be right: librdkafka says 0 where no message has a timestamp. Of a batch that unpacks to more
    than a producer sends by default the header counts, its 0 meaning none. Raises `ApiError` INVALID_RECORD when the
    records cannot be read.
    """
    claimed = header.max_timestamp or NO_TIMESTAMP
    if header.count > _LOOKED_AT_RECORDS_MAX:
        return claimed
    try:
        records = open_records(buf, header, codecs, max_bytes=_LOOKED_AT_BYTES_MAX, with_headers=False)
        return timestamp_range(header, records)[1]
    except ApiError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            return claimed
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            raise ApiError(ErrorCode.INVALID_RECORD, error.message) from error
        raise
