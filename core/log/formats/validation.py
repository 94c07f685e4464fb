"""Validation of a batch before an append: the checks and changes of facts B2 (Kafka: LogValidator)."""

from collections.abc import Callable

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ...message.batch_header import (
    CODEC_MASK,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    check_batch,
    check_timestamps,
    parse_header,
    set_max_timestamp,
)
from ...message.codec import DECOMPRESSED_BYTES_MAX, Codecs
from ...message.record_validation import (
    PIECE,
    RECORD_SIZE_MIN,
    RecordRules,
    are_records_uniform,
    check_records,
    claimed_timestamp,
    decompress_records,
    rebuild_batch,
)
from ...traffic.steps import Steps
from ..append_origin import AppendOrigin
from ..check_budget import UNIFORM_MIN, CheckBudget
from ..config import LONG_MAX, LogConfig
from ..log_format import ValidatedBatch

LOG_APPEND_TIME = "LogAppendTime"
PRODUCER = "producer"
_BROKER = AppendOrigin.BROKER


class ValidationTakesLong(Exception):
    """Validation takes too long for one request: call `validate_batch_in_steps`."""


class DecompressedTooLarge(Exception):
    """A batch decompresses to more than its limit; it is not known to be invalid."""


def validate_batch(
    records: memoryview,
    config: LogConfig,
    codecs: Codecs,
    *,
    now_ms: int,
    allows_zstd: bool,
    origin: AppendOrigin,
    budget: CheckBudget | None = None,
) -> ValidatedBatch:
    """Check a client's batch, and set its timestamps and compression as the topic requires, in bounded time.

    The `budget` of its sender decides whether all records are checked if the topic does not require it.
    Changes `records` in place, or returns a new batch and leaves them. Raises `ApiError` as `check_batch` and
    `check_records`, RECORD_LIST_TOO_LARGE for more than a segment may contain, and `ValidationTakesLong`; then nothing
    has changed.
    """
    header = _check(records, config, codecs, allows_zstd=allows_zstd, origin=origin)
    max_timestamp = header.max_timestamp
    append_time = now_ms if config.message_timestamp_type == LOG_APPEND_TIME else -1
    whole = budget is not None and budget.is_due(header)
    if whole and budget is not None and _are_uniform(records, header):
        budget.refund(header)
        whole = False
    if whole or config.opens_records or (append_time < 0 and header.base_timestamp == NO_TIMESTAMP != max_timestamp):
        if header.count > PIECE and (whole or config.compacted or config.record_validation):
            raise ValidationTakesLong
        steps = _open(records, header, config, codecs, now_ms, lambda: now_ms, DECOMPRESSED_BYTES_MAX, whole=whole)
        try:
            next(steps)
        except StopIteration as end:
            admitted: ValidatedBatch = end.value
            return admitted
        steps.close()
        raise ValidationTakesLong
    if append_time < 0:
        _check_window(header, max_timestamp, config, now_ms)
        return ValidatedBatch(records, header.last_offset_delta + 1, header.count, append_time, header)
    set_max_timestamp(records, append_time, log_append_time=True)
    return ValidatedBatch(records, header.last_offset_delta + 1, header.count, append_time, parse_header(records))


def validate_batch_in_steps(
    records: memoryview,
    config: LogConfig,
    codecs: Codecs,
    *,
    clock_ms: Callable[[], int],
    allows_zstd: bool,
    origin: AppendOrigin,
    unpacked_max: int = DECOMPRESSED_BYTES_MAX,
    whole: bool = False,
) -> Steps[ValidatedBatch]:
    """Do what `validate_batch` does in bounded pieces; compression runs on a worker.

    `whole` checks all records. `clock_ms` is called at the end for the time of the append. The memory of `records`
    must stay valid. Raises the errors of `validate_batch`, and `DecompressedTooLarge` beyond `unpacked_max`.
    """
    header = _check(records, config, codecs, allows_zstd=allows_zstd, origin=origin)
    return (yield from _open(records, header, config, codecs, clock_ms(), clock_ms, unpacked_max, whole=whole))


def _check(
    records: memoryview, config: LogConfig, codecs: Codecs, *, allows_zstd: bool, origin: AppendOrigin
) -> BatchHeader:
    header = check_batch(
        records,
        codecs=codecs,
        max_bytes=config.max_message_bytes,
        allows_zstd=allows_zstd,
        needs_sequence=origin is not _BROKER,
    )
    if header.size > config.segment_bytes:
        raise _too_large_for_segment(header.size, config)
    if not header.attributes & CODEC_MASK and header.count * RECORD_SIZE_MIN > header.size - HEADER_SIZE:
        text = f"{header.count} records cannot be in {header.size - HEADER_SIZE} bytes"
        raise ApiError(ErrorCode.INVALID_RECORD, text)
    return header


def _are_uniform(records: memoryview, header: BatchHeader) -> bool:
    if header.count < UNIFORM_MIN or header.attributes & CODEC_MASK:
        return False
    return are_records_uniform(records[HEADER_SIZE : header.size], header)


def _check_window(header: BatchHeader, max_timestamp: int, config: LogConfig, now_ms: int) -> None:
    before_max, after_max = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if not now_ms - before_max <= header.base_timestamp <= max_timestamp <= now_ms + after_max:
        check_timestamps(
            header.base_timestamp, max_timestamp, now_ms=now_ms, before_max_ms=before_max, after_max_ms=after_max
        )


def _open(
    records: memoryview,
    header: BatchHeader,
    config: LogConfig,
    codecs: Codecs,
    now_ms: int,
    clock_ms: Callable[[], int],
    unpacked_max: int,
    *,
    whole: bool,
) -> Steps[ValidatedBatch]:
    """Open the records if the topic or `whole` requires it. `records` does not change before the last yield."""
    is_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    max_timestamp, consecutive = header.max_timestamp, True
    untimed = not is_append_time and header.base_timestamp == NO_TIMESTAMP != max_timestamp
    validated = config.compacted or config.record_validation
    if not is_append_time and not untimed:
        _check_window(header, max_timestamp, config, now_ms)
    content: bytes | None = None
    if untimed or validated or whole:
        try:
            content = yield from _content(records, header, codecs, unpacked_max)
        except ApiError as error:
            if validated or whole or error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            max_timestamp = claimed_timestamp(header)
    if content is not None:
        rules = _rules(config, header, now_ms) if validated else RecordRules(consecutive=whole and not header.codec_id)
        checked = yield from check_records(content, header, rules)
        if untimed or validated:
            max_timestamp, consecutive = checked.max_timestamp, checked.consecutive or not validated
    if untimed:
        _check_window(header, max_timestamp, config, now_ms)
    ready: memoryview | bytearray = records
    codec = codecs.by_id(header.codec_id) if header.codec_id else None
    if config.compression_type != PRODUCER:
        codec = codecs.by_name(config.compression_type)
    if not consecutive or header.codec_id != (codec.id if codec is not None else 0):
        if content is None:
            content = yield from _content(records, header, codecs, unpacked_max)
        ready = yield from rebuild_batch(header, content, codec, consecutive=consecutive)
        _check_size(len(ready), config)
    append_time = clock_ms() if is_append_time else -1
    if append_time >= 0 or max_timestamp != header.max_timestamp:
        set_max_timestamp(ready, append_time if append_time >= 0 else max_timestamp, log_append_time=append_time >= 0)
        header = parse_header(ready)
    elif ready is not records:
        header = parse_header(ready)
    return ValidatedBatch(ready, header.last_offset_delta + 1, header.count, append_time, header)


def _content(records: memoryview, header: BatchHeader, codecs: Codecs, unpacked_max: int) -> Steps[bytes]:
    try:
        content = yield from decompress_records(records, header, codecs, max_bytes=unpacked_max)
    except ApiError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and unpacked_max < DECOMPRESSED_BYTES_MAX:
            raise DecompressedTooLarge from error
        raise
    return content


def _rules(config: LogConfig, header: BatchHeader, now_ms: int) -> RecordRules:
    before_max, after_max = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if config.message_timestamp_type == LOG_APPEND_TIME:
        before_max = after_max = LONG_MAX
    return RecordRules(config.compacted, now_ms - before_max, now_ms + after_max, not header.codec_id)


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the recompressed batch ({config.compression_type}) has {size} bytes; max.message.bytes is "
            f"{config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise _too_large_for_segment(size, config)


def _too_large_for_segment(size: int, config: LogConfig) -> ApiError:
    text = f"the batch has {size} bytes; segment.bytes is {config.segment_bytes}"
    return ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, text)
