"""Search of a batch for a timestamp; reads only timestamps and offsets and copies nothing."""

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from .batch_header import HEADER_SIZE, BatchHeader, parse_header, records_of, verify_crc
from .codec import DECOMPRESSED_BYTES_MAX, Codecs
from .varint import LONG_BYTES_MAX, read_raw, undo_zigzag


def find_first_record(batch: bytes, timestamp: int, codecs: Codecs, *, from_offset: int = 0) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record from `from_offset` on at `timestamp` or later, or None.

    Call it on a worker: decompression may be long and releases the interpreter lock. Raises the `ApiError` of
    `decode_batch` if the records before the result are corrupt.
    """
    header = parse_header(batch)
    verify_crc(batch, header)
    if not header.count:
        return None
    if not header.codec_id:
        return _first(batch, HEADER_SIZE, header.size, header, timestamp, from_offset)
    records = codecs.by_id(header.codec_id).decompress(records_of(batch, header), DECOMPRESSED_BYTES_MAX)
    return _first(records, 0, len(records), header, timestamp, from_offset)


def _first(
    records: bytes, position: int, end: int, header: BatchHeader, timestamp: int, from_offset: int
) -> tuple[int, int] | None:
    for _ in range(header.count):
        try:
            length, position = read_raw(records, position)
            raw_time, after = read_raw(records, position + 1, LONG_BYTES_MAX)  # after the attributes
            raw_offset, after = read_raw(records, after)
        except IndexError:
            raise _corrupt(header, "ends early") from None
        delta = undo_zigzag(raw_offset)
        position += undo_zigzag(length)
        if not after <= position <= end or not 0 <= delta <= header.last_offset_delta:
            raise _corrupt(header, f"has a record of {undo_zigzag(length)} bytes at offset delta {delta}")
        time = header.max_timestamp if header.log_append_time else header.base_timestamp + undo_zigzag(raw_time)
        if time >= timestamp and header.base_offset + delta >= from_offset:
            return time, header.base_offset + delta
    return None


def _corrupt(header: BatchHeader, what: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} {what}")
