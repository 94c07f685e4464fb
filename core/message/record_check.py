"""The checks of a client's batch that open every record (facts B2): compacted topics, `record.validation=true`, and
batches whose header cannot be right about timestamps."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ...ports.broker_api import RecordError
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.words import Buffer
from ..traffic.steps import Steps, complete
from .batch_header import LONG_MAX, NO_TIMESTAMP, BatchHeader, content_of, parse_header
from .codec import Codecs
from .record_walk import LONG_MIN, RECORD_ERRORS_MAX, RecordRules, RecordsWalk, check_count, walk_records

__all__ = ["RECORD_ERRORS_MAX", "CheckedRecords", "InvalidRecords", "check_records", "open_content", "validate_records"]

INLINE_BYTES_MAX = 64 * 1024
"""What is not longer is decompressed, or compressed, in place; more on a worker."""
INLINE_UNPACKED_MAX = 256 * 1024


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
    """Open the batch that `check_batch` has passed and check each record, all at once.

    Timestamps must be in [now - before, now + after]; a topic with log-append time leaves those bounds out. `max_bytes`
    bounds what the records decompress to. Raises as `check_records`, and as `open_content`.
    """
    header = parse_header(buf)
    rules = RecordRules(need_keys, now_ms - before_max_ms, now_ms + after_max_ms, not header.codec_id)
    content = complete(open_content(buf, header, codecs, max_bytes=max_bytes))
    return complete(check_records(content, header, rules))


def open_content(buf: Buffer, header: BatchHeader, codecs: Codecs, *, max_bytes: int) -> Steps[bytes]:
    """The records of a batch, decompressed: on a worker where they are long.

    Raises `ApiError` INVALID_RECORD when they cannot be decompressed: the CRC was right, so the client made them so;
    MESSAGE_TOO_LARGE beyond `max_bytes`, UNSUPPORTED_COMPRESSION_TYPE.
    """
    content = content_of(buf, header)
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


def check_records(content: bytes, header: BatchHeader, rules: RecordRules) -> Steps[CheckedRecords]:
    """Check each record of a batch, which are all of `content`, in bounded pieces.

    Raises `InvalidRecords` (INVALID_RECORD, or INVALID_TIMESTAMP if a timestamp is among the reasons), `ApiError`
    INVALID_RECORD when the records are malformed, or not as many as the header says.
    """
    walked = yield from _walk(content, header, rules)
    base = header.base_timestamp
    if base + walked.least_delta < LONG_MIN or base + walked.largest_delta > LONG_MAX:
        text = f"timestamps from {base + walked.least_delta} to {base + walked.largest_delta}"
        raise ApiError(ErrorCode.INVALID_RECORD, text)
    if walked.errors:
        code = ErrorCode.INVALID_TIMESTAMP if walked.outside else ErrorCode.INVALID_RECORD
        raise InvalidRecords(code, walked.errors)
    return CheckedRecords(base + walked.largest_delta, walked.largest_index, walked.consecutive)


def _walk(content: bytes, header: BatchHeader, rules: RecordRules) -> Steps[RecordsWalk]:
    count = header.count
    if not count:
        raise ApiError(ErrorCode.INVALID_RECORD, "the batch has no records")
    try:
        check_count(count, len(content))
        walked = yield from walk_records(content, 0, count, header.base_timestamp, rules)
    except IndexError:
        raise ApiError(ErrorCode.INVALID_RECORD, f"the batch ends before the last of its {count} records") from None
    except ApiError as error:
        # The CRC was right: the client made it so, and sending it again cannot help.
        raise ApiError(ErrorCode.INVALID_RECORD, error.message) from error
    if walked.end != len(content):
        text = f"the {count} records end at byte {walked.end} of {len(content)}"
        raise ApiError(ErrorCode.INVALID_RECORD, text)
    return walked


def claimed_timestamp(header: BatchHeader) -> int:
    """The largest timestamp of a batch whose first record has none (base timestamp -1), as its header claims it.

    librdkafka says 0 where no message has a timestamp.
    """
    return header.max_timestamp or NO_TIMESTAMP
