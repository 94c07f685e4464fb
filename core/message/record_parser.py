"""The records of a batch, once they are decompressed, as columns (facts B1).

Two readers share the work. The quick one takes what logs are mostly made of: values of 57 bytes to 8 KB without key and
headers, at consecutive offsets, within 63 ms; it reads the fixed part of a record by one `unpack_from`. At the first
record that is different the general one takes over.
"""

from collections.abc import Sequence
from struct import Struct, unpack
from typing import NamedTuple

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from .message import Headers
from .varint import LONG_BYTES_MAX, SMALL, SMALL_LIMIT, read_raw, undo_zigzag

RECORD_SIZE_MIN = 7
"""Length, attributes, timestamp and offset delta, key and value length, header count: a byte each."""

_ONE_BYTE_OFFSETS = 64
# Length, (attributes), timestamp delta, offset delta, key length, value length; the offset delta has one byte or two.
_PLAIN = Struct("<HxBBBH").unpack_from
_PLAIN_2 = Struct("<HxBHBH").unpack_from
_PLAIN_SIZE = 8
_LAST_RECORD_MIN = _PLAIN_SIZE + 2


class Records(NamedTuple):
    """The columns of one batch; deltas are to the base offset and base timestamp of its header."""

    values: list[bytes | None]
    keys: list[bytes | None]
    offset_deltas: list[int]
    timestamp_deltas: list[int]
    headers: list[Headers]
    """Empty when they were not asked for."""

    @property
    def consecutive(self) -> bool:
        """True if the offset deltas are 0, 1, 2, ..."""
        return self.offset_deltas == list(range(len(self.offset_deltas)))


def parse_records(data: bytes, start: int, end: int, count: int, *, with_headers: bool = False) -> Records:
    """The `count` records that fill data[start:end].

    Raises `ApiError` CORRUPT_MESSAGE unless they do so exactly, each of the length it says. Headers that are not asked
    for are stepped over unseen.
    """
    if count * RECORD_SIZE_MIN > end - start:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{count} records cannot be in {end - start} bytes")
    values: list[bytes | None] = []
    deltas: list[int] = []
    position = _take_plain(data, start, end, count, values, deltas)
    plain = len(values)
    records = Records(values, [None] * plain, list(range(plain)), deltas, [()] * plain if with_headers else [])
    try:
        position = _take_any(data, position, count - plain, records, with_headers)
    except IndexError:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch ends before the last of its {count} records") from None
    if position != end:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"the {count} records of the batch end {end - position} bytes before the batch"
        )
    return records


def _take_plain(data: bytes, position: int, end: int, count: int, values: list[bytes | None], deltas: list[int]) -> int:
    """Read plain records as long as they come; returns where the first other one begins.

    Both lengths are two-byte varints here, whose groups `length & 127 | length >> 1 & 0x3F80` puts together.
    """
    add_value, add_delta, size, overhead, unpack_plain = values.append, deltas.append, _PLAIN_SIZE, 14, _PLAIN
    last_start = end - _LAST_RECORD_MIN
    for offset in _plain_offsets(count):
        if offset == _TWO_BYTE_OFFSETS_FROM:
            size, overhead, unpack_plain = _PLAIN_SIZE + 1, 16, _PLAIN_2
        if position > last_start:
            break
        length, delta, its_offset, key_size, value_size = unpack_plain(data, position)
        value_start = position + size
        raw = value_size & 127 | value_size >> 1 & 0x3F80
        value_end = value_start + (raw >> 1)
        if (
            its_offset != offset
            or key_size != 1
            or delta > 127
            or length & value_size & 0x80 == 0
            or (length | value_size) & 0x8000
            or raw & 1
            or (length & 127 | length >> 1 & 0x3F80) - raw != overhead
            or value_end >= end
            or data[value_end]
        ):
            break
        add_value(data[value_start:value_end])
        add_delta(delta >> 1 ^ -(delta & 1))
        position = value_end + 1
    return position


_TWO_BYTE_OFFSETS_FROM = SMALL[_ONE_BYTE_OFFSETS][0] | SMALL[_ONE_BYTE_OFFSETS][1] << 8


def _plain_offsets(count: int) -> Sequence[int]:
    """The offset deltas 0, 1, 2, ... as they look to `unpack`: little-endian numbers of one byte or two."""
    one_byte = range(0, 2 * min(count, _ONE_BYTE_OFFSETS), 2)
    if count <= _ONE_BYTE_OFFSETS:
        return one_byte
    two_bytes = b"".join(SMALL[_ONE_BYTE_OFFSETS : min(count, SMALL_LIMIT)])
    return [*one_byte, *unpack(f"<{len(two_bytes) // 2}H", two_bytes)]


def _take_any(data: bytes, position: int, count: int, records: Records, with_headers: bool) -> int:
    """Read records of any kind; returns the position after them. Raises `IndexError` or `ApiError` if malformed.

    Small varints are read in place: a call each would double the time. Positions only grow, so a length that points
    beyond the batch shows in the position returned.
    """
    add_value, add_key, add_offset, add_delta, add_headers = (
        records.values.append,
        records.keys.append,
        records.offset_deltas.append,
        records.timestamp_deltas.append,
        records.headers.append,
    )
    for _ in range(count):
        raw, position = data[position], position + 1
        if raw > 0x7F:
            two, start = data[position] < 0x80, position - 1
            raw, position = (raw & 0x7F | data[position] << 7, position + 1) if two else read_raw(data, start)
        if raw & 1:
            raise _bad_length("record", raw)
        record_end = position + (raw >> 1)

        raw, position = data[position + 1], position + 2  # after the attributes, which mean nothing yet
        if raw > 0x7F:
            raw, position = read_raw(data, position - 1, LONG_BYTES_MAX)
        add_delta(raw >> 1 ^ -(raw & 1))

        raw, position = data[position], position + 1
        if raw > 0x7F:
            two, start = data[position] < 0x80, position - 1
            raw, position = (raw & 0x7F | data[position] << 7, position + 1) if two else read_raw(data, start)
        add_offset(raw >> 1 ^ -(raw & 1))

        raw, position = data[position], position + 1
        if raw == 1:
            add_key(None)
        else:
            if raw > 0x7F:
                raw, position = read_raw(data, position - 1)
            if raw & 1:
                raise _bad_length("key", raw)
            start, position = position, position + (raw >> 1)
            add_key(data[start:position])

        raw, position = data[position], position + 1
        if raw == 1:
            add_value(None)
        else:
            if raw > 0x7F:
                two = data[position] < 0x80
                raw, position = (
                    (raw & 0x7F | data[position] << 7, position + 1) if two else read_raw(data, position - 1)
                )
            if raw & 1:
                raise _bad_length("value", raw)
            start, position = position, position + (raw >> 1)
            add_value(data[start:position])

        if with_headers:
            headers, position = _read_headers(data, position) if data[position] else ((), position + 1)
            add_headers(headers)
        else:
            position = max(position, record_end) if data[position] else position + 1
        if position != record_end:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"a record ends {position - record_end} bytes from where its length says"
            )
    return position


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    raw, position = read_raw(data, position)
    if raw & 1:
        raise _bad_length("header list", raw)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(raw >> 1):
        key, position = _read_bytes(data, position, "header key")
        if key is None:
            raise _bad_length("header key", 1)
        value, position = _read_bytes(data, position, "header value")
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, what: str) -> tuple[bytes | None, int]:
    raw, position = read_raw(data, position)
    if raw == 1:
        return None, position
    if raw & 1:
        raise _bad_length(what, raw)
    end = position + (raw >> 1)
    return data[position:end], end


def _bad_length(what: str, raw: int) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a {what} of length {undo_zigzag(raw)}")
