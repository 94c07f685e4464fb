"""What a batch goes through before it is appended: the checks and changes of facts B2."""

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ..message.batch_header import NO_TIMESTAMP, BatchHeader, check_batch, check_timestamps, parse_header, stamp_time
from ..message.batch_rebuild import rebuild_batch, renumber_batch
from ..message.codec import DECOMPRESSED_BYTES_MAX, Codecs
from ..message.record_check import largest_timestamp, validate_records
from .config import LONG_MAX, LogConfig
from .format import Admitted
from .origin import AppendOrigin

LOG_APPEND_TIME = "LogAppendTime"
PRODUCER = "producer"
_BROKER = AppendOrigin.BROKER


def admit(
    records: memoryview, config: LogConfig, codecs: Codecs, *, now_ms: int, allows_zstd: bool, origin: AppendOrigin
) -> Admitted:
    """Check a client's batch, and set its timestamps and compression as the topic wants them.

    Changes `records` in place, or leaves them and gives a new batch. Raises `ApiError` as `check_batch` and
    `validate_records`, and RECORD_LIST_TOO_LARGE for more than a segment may hold.
    """
    header = check_batch(
        records,
        codecs=codecs,
        max_bytes=config.max_message_bytes,
        allows_zstd=allows_zstd,
        needs_sequence=origin is not _BROKER,
    )
    if header.size > config.segment_bytes:
        raise _too_large_for_segment(header.size, config)
    max_timestamp, consecutive = header.max_timestamp, True
    append_time = now_ms if config.message_timestamp_type == LOG_APPEND_TIME else -1
    before_max, after_max = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if append_time >= 0:
        before_max = after_max = LONG_MAX
    elif header.base_timestamp == NO_TIMESTAMP != max_timestamp:
        max_timestamp = largest_timestamp(records, header, codecs)
    if not now_ms - before_max <= header.base_timestamp <= max_timestamp <= now_ms + after_max:
        check_timestamps(
            header.base_timestamp, max_timestamp, now_ms=now_ms, before_max_ms=before_max, after_max_ms=after_max
        )
    if config.compacted or config.record_validation:
        checked = validate_records(
            records,
            codecs,
            max_bytes=DECOMPRESSED_BYTES_MAX,
            need_keys=config.compacted,
            now_ms=now_ms,
            before_max_ms=before_max,
            after_max_ms=after_max,
        )
        max_timestamp, consecutive = checked.max_timestamp, checked.consecutive
    ready: memoryview | bytearray = records
    if config.compression_type != PRODUCER or not consecutive:
        ready = _recompressed(records, header, config, codecs, consecutive=consecutive)
    if append_time >= 0 or max_timestamp != header.max_timestamp:
        stamp_time(ready, append_time if append_time >= 0 else max_timestamp, log_append_time=append_time >= 0)
        header = parse_header(ready)
    elif ready is not records:
        header = parse_header(ready)
    return Admitted(ready, header.last_offset_delta + 1, header.count, append_time, header)


def _recompressed(
    records: memoryview, header: BatchHeader, config: LogConfig, codecs: Codecs, *, consecutive: bool
) -> memoryview | bytearray:
    """The batch in the compression that the topic wants; the same memory where nothing changes."""
    keep = config.compression_type == PRODUCER
    codec = None if keep else codecs.by_name(config.compression_type)
    keep = keep or header.codec_id == (codec.id if codec is not None else 0)
    if keep and consecutive:
        return records
    if keep:
        codec = codecs.by_id(header.codec_id) if header.codec_id else None
    rebuild = rebuild_batch if consecutive else renumber_batch
    rebuilt = rebuild(records, codecs, codec, max_bytes=DECOMPRESSED_BYTES_MAX)
    if len(rebuilt) > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(rebuilt)} bytes as {config.compression_type}; at most {config.max_message_bytes} are allowed",
        )
    if len(rebuilt) > config.segment_bytes:
        raise _too_large_for_segment(len(rebuilt), config)
    return rebuilt


def _too_large_for_segment(size: int, config: LogConfig) -> ApiError:
    return ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes; a segment holds {config.segment_bytes}")
