"""Parser of the decompressed records of a batch, which returns columns.

Three readers share the work. The fast reader handles the most common records: values of 64 bytes to 2 KB without key
and headers, at consecutive offsets, within 63 ms; it reads the fixed part of a record by one `unpack_from`. `HeadedRun`
does this for records with one header and no key. The general reader continues at the first record that differs. It is
the fastest of the three where it is compiled, and reads all records then.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import Struct, unpack
from struct import error as StructError
from typing import NamedTuple

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from .message import Headers
from .varint import COMPILED, LONG_BYTES_MAX, SMALL, SMALL_LIMIT, encode_varint, read_raw, undo_zigzag

_ONE_BYTE_OFFSETS = 64
_ONE_BYTE_SIZES = 64
_VALUE_MAX = 2047
_NO_KEY = 1
_DELTA_MAX = 0x7F


class _Layout(NamedTuple):
    """The fixed part of a record (length, attributes, timestamp and offset delta, key and value length), for one or two
    bytes of offset delta and value length, and the bytes around value and headers."""

    head: Struct
    around: int


# Keys: whether the offset delta and the value length take two bytes.
_LAYOUTS = {
    (False, False): _Layout(Struct("<HxBBBB"), 5),
    (False, True): _Layout(Struct("<HxBBBH"), 6),
    (True, False): _Layout(Struct("<HxBHBB"), 6),
    (True, True): _Layout(Struct("<HxBHBH"), 7),
}


class HeaderLike(NamedTuple):
    """The common part of the header lists of a run."""

    name: str
    prefix: bytes
    """The encoded header list without the value."""
    value_size: int


def header_like(headers: Headers) -> HeaderLike | None:
    """Return the common part for a list of one header with a value, else None."""
    if len(headers) != 1:
        return None
    name, value = headers[0]
    if value is None:
        return None
    written = name.encode()
    prefix = b"\2" + encode_varint(len(written)) + written + encode_varint(len(value))
    return HeaderLike(name, prefix, len(value))


class HeadedRun:
    """Reader of records from `position` on whose only header has one name and size."""

    def __init__(self, data: bytes, position: int, like: HeaderLike) -> None:
        self.position = position
        self.values: list[bytes | None] = []
        self.deltas: list[int] = []
        self.header_values: list[bytes] = []
        """Values of the headers."""
        self._data = data
        self._like = like

    def read(self, count: int) -> None:
        """Read up to `count` records."""
        while len(self.values) < count:
            before = len(self.values)
            end = min(count, _ONE_BYTE_OFFSETS if before < _ONE_BYTE_OFFSETS else SMALL_LIMIT)
            wide = before >= _ONE_BYTE_OFFSETS
            for long in (True, False):
                at = len(self.values)
                if at < end:
                    self._run(_offsets(at, end), _LAYOUTS[wide, long], *_tables(self._sizes, wide, long))
            if len(self.values) == before:
                return

    @property
    def _sizes(self) -> int:
        return len(self._like.prefix) + self._like.value_size

    def _run(
        self, offsets: Iterable[int], layout: _Layout, sizes: Mapping[int, int], lengths: Mapping[int, int]
    ) -> None:
        data, position, prefix, last = self._data, self.position, self._like.prefix, self._like.value_size
        unpack_head, head_size, skip = layout.head.unpack_from, layout.head.size, len(prefix)
        has_prefix: Callable[[bytes, int], bool] = data.startswith
        add_value, add_delta, add_stamp = self.values.append, self.deltas.append, self.header_values.append
        try:
            for expected in offsets:
                length, delta, offset, key, field = unpack_head(data, position)
                start = position + head_size
                end = start + sizes[field]
                if (
                    offset != expected
                    or key != _NO_KEY
                    or length != lengths[field]
                    or delta > _DELTA_MAX
                    or not has_prefix(prefix, end)
                ):
                    break
                add_value(data[start:end])
                add_delta(delta >> 1 ^ -(delta & 1))
                start = end + skip
                position = start + last
                add_stamp(data[start:position])
        except (KeyError, StructError):
            pass  # another kind of record, or the end: the general reader decides
        self.position = position


def _offsets(first: int, end: int) -> Iterable[int]:
    """Return the offset deltas as the layouts unpack them."""
    if first < _ONE_BYTE_OFFSETS:
        return range(2 * first, 2 * end, 2)
    return unpack(f"<{end - first}H", b"".join(SMALL[first:end]))


@lru_cache(maxsize=256)
def _tables(trailer: int, wide: bool, long: bool) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return, by the length field of a value, its size and the two-byte length field of its record."""
    around = _LAYOUTS[wide, long].around + trailer
    first, last = (_ONE_BYTE_SIZES, _VALUE_MAX) if long else (0, _ONE_BYTE_SIZES - 1)
    usable = [size for size in range(first, last + 1) if _ONE_BYTE_SIZES <= around + size < SMALL_LIMIT]
    fields = [int.from_bytes(SMALL[size], "little") for size in usable]
    lengths = [int.from_bytes(SMALL[around + size], "little") for size in usable]
    return dict(zip(fields, usable, strict=True)), dict(zip(fields, lengths, strict=True))


RECORD_SIZE_MIN = 7
"""Length, attributes, timestamp and offset delta, key and value length, header count: a byte each."""

# The fixed part of a plain record (length, attributes, timestamp delta, offset delta, key length, value length) for
# offset deltas of one byte and of two. `unpack` returns the two-byte varints as little-endian numbers.
_PLAIN = Struct("<HxBBBH")
_PLAIN_2 = Struct("<HxBHBH")
_PLAIN_VALUE_MIN, _PLAIN_VALUE_MAX = 64, 2047
_RUN_MIN = 4
"""Minimum number of records for which the run reader pays off."""
_NO_LIKE = b"\0"
"""A prefix that no list of headers has."""


def _as_unpacked(first: int, last: int) -> tuple[int, ...]:
    """Return the two-byte varints of these numbers as the layouts unpack them."""
    return unpack(f"<{last - first + 1}H", b"".join(SMALL[first : last + 1]))


@lru_cache(maxsize=2)
def _plain_tables(around: int) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return, by the length field of a value, its size and the length field of its plain record, `around` (7 or 8)
    bytes longer. They are made for the first batch that is read: a broker without one has 0.4 MB more."""
    fields = _as_unpacked(_PLAIN_VALUE_MIN, _PLAIN_VALUE_MAX + 8)
    sizes = range(_PLAIN_VALUE_MIN, _PLAIN_VALUE_MAX + 1)
    return dict(zip(fields, sizes, strict=False)), dict(zip(fields, fields[around:], strict=False))


class Records(NamedTuple):
    """Columns of one batch; deltas are relative to base offset and base timestamp."""

    values: list[bytes | None]
    keys: list[bytes | None]
    offset_deltas: list[int]
    """Empty if they are 0, 1, 2, ..., as most are."""
    timestamp_deltas: list[int]
    """Empty if all are 0."""
    headers: list[Headers]
    """Empty unless requested."""


def parse_records(data: bytes, start: int, end: int, count: int, *, with_headers: bool = False) -> Records:
    """Parse the `count` records that fill data[start:end]. Headers are skipped unless requested.

    Raises `ApiError` CORRUPT_MESSAGE unless the records fill the range exactly, each with its stated length.
    """
    if count * RECORD_SIZE_MIN > end - start:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{count} records do not fit into {end - start} bytes")
    values: list[bytes | None] = []
    deltas: list[int] = []
    position = start if COMPILED else _read_plain_records(data, start, count, values, deltas)
    plain = len(values)
    records = Records(values, [None] * plain, [], deltas, [()] * plain if with_headers else [])
    try:
        # The first record's time and offset take a byte each, so that the length of its key is the one behind them.
        may_run = not plain and not COMPILED and count >= _RUN_MIN
        if may_run and data[start + (4 if data[start] < 0x80 else 5)] == _NO_KEY:
            position = read_headed_records(data, start, count, records, with_headers)
        position = read_records(data, position, count - len(values), records, with_headers)
    except IndexError:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch ends before the last of its {count} records") from None
    if position != end:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the {count} records end at byte {position - start} of {end - start}",
        )
    return records


def _read_plain_records(data: bytes, position: int, count: int, values: list[bytes | None], deltas: list[int]) -> int:
    """Read consecutive plain records; return the position of the first other record."""
    start = position
    first = range(0, 2 * min(count, _ONE_BYTE_OFFSETS), 2)
    position = _read_plain_run(data, position, first, _PLAIN, 7, values, deltas)
    if len(values) == _ONE_BYTE_OFFSETS < count:
        rest = _as_unpacked(_ONE_BYTE_OFFSETS, min(count, SMALL_LIMIT) - 1)
        position = _read_plain_run(data, position, rest, _PLAIN_2, 8, values, deltas)
    if any(deltas):
        if max(deltas) > 0x7F:  # a timestamp delta of two bytes: these are not plain records
            values.clear()
            deltas.clear()
            return start
        deltas[:] = [raw >> 1 ^ -(raw & 1) for raw in deltas]
    else:
        deltas.clear()
    return position


def _read_plain_run(
    data: bytes,
    position: int,
    offsets: Iterable[int],
    layout: Struct,
    around: int,
    values: list[bytes | None],
    deltas: list[int],
) -> int:
    """Read plain records whose offset deltas are `offsets`; return the position of the first other record.

    Timestamp deltas stay zig-zag encoded. The caller detects a value beyond the batch by the final position.
    """
    unpack_head, size = layout.unpack_from, layout.size
    sizes, lengths = _plain_tables(around)
    add_value, add_delta = values.append, deltas.append
    try:
        for expected in offsets:
            length, delta, offset, key, value_length = unpack_head(data, position)
            start = position + size
            end = start + sizes[value_length]
            if offset != expected or key != _NO_KEY or length != lengths[value_length] or data[end]:
                break
            add_value(data[start:end])
            add_delta(delta)
            position = end + 1
    except (KeyError, IndexError, StructError):
        pass  # another value length, or the end: the general reader decides
    return position


def read_headed_records(data: bytes, position: int, count: int, records: Records, with_headers: bool) -> int:
    """Read records with one header like that of the first; return the position of the first other record."""
    first = Records([], [], [], [], [])
    try:
        read_records(data, position, 1, first, True)
    except (ApiError, IndexError):
        return position  # the general reader reports the fault, if headers are requested at all
    like = header_like(first.headers[0])
    if like is None or first.keys[0] is not None:
        return position
    run = HeadedRun(data, position, like)
    run.read(count)
    records.values.extend(run.values)
    records.keys.extend([None] * len(run.values))
    if any(run.deltas):
        records.timestamp_deltas.extend(run.deltas)
    if with_headers:
        records.headers.extend([((like.name, stamp),) for stamp in run.header_values])
    return run.position


def read_records(data: bytes, position: int, count: int, records: Records, with_headers: bool) -> int:  # noqa: PLR0915
    """Read arbitrary records; return the position after them. Raises `IndexError` or `ApiError` if malformed.

    Varints are read inline: calls would double the time. Positions only grow, so the last one reveals any overrun.
    """
    values, keys, offsets, deltas = records.values, records.keys, records.offset_deltas, records.timestamp_deltas
    first, lists = len(values), _HeaderLists()
    for number in range(first, first + count):
        raw = data[position]
        if raw < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            raw = raw & 0x7F | high << 7
            position += 2
        else:
            raw, position = read_raw(data, position)
        if raw & 1:
            raise _bad_length("record", raw)
        record_end, position = position + (raw >> 1), position + 1  # past the attributes, which mean nothing yet

        raw, position = data[position], position + 1
        if raw > 0x7F:
            two, at = (high := data[position]) < 0x80, position - 1
            raw, position = (raw & 0x7F | high << 7, position + 1) if two else read_raw(data, at, LONG_BYTES_MAX)
        if raw or deltas:
            if not deltas:
                deltas.extend([0] * number)
            deltas.append(raw >> 1 ^ -(raw & 1))

        raw = data[position]
        if raw < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            raw = raw & 0x7F | high << 7
            position += 2
        else:
            raw, position = read_raw(data, position)
        if raw != number << 1 or offsets:
            if not offsets:
                offsets.extend(range(number))
            offsets.append(raw >> 1 ^ -(raw & 1))

        raw, position = data[position], position + 1
        if raw > 0x7F:
            raw, position = read_raw(data, position - 1)
        if raw == 1:
            keys.append(None)
        elif raw & 1:
            raise _bad_length("key", raw)
        else:
            start, position = position, position + (raw >> 1)
            keys.append(data[start:position])

        raw = data[position]
        if raw < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            raw = raw & 0x7F | high << 7
            position += 2
        else:
            raw, position = read_raw(data, position)
        if raw == 1:
            values.append(None)
        elif raw & 1:
            raise _bad_length("value", raw)
        else:
            start, position = position, position + (raw >> 1)
            values.append(data[start:position])

        if with_headers:
            if data[position]:
                headers, position = lists.read(data, position)
                records.headers.append(headers)
            else:
                records.headers.append(())
                position += 1
        else:
            position = max(position, record_end) if data[position] else position + 1
        if position != record_end:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record is {position - record_end} bytes longer than it says")
    return position


class _HeaderLists:
    """Reader of header lists that compares each with the previous one, since most come from one producer."""

    __slots__ = ("_like", "_name", "_size")

    def __init__(self) -> None:
        self._like, self._name, self._size = _NO_LIKE, "", 0

    def read(self, data: bytes, position: int) -> tuple[Headers, int]:
        """Return the headers and their end. Raises `IndexError` or `ApiError` if malformed."""
        if data.startswith(self._like, position):  # a single header with the name and size of the previous one
            start = position + len(self._like)
            end = start + self._size
            return ((self._name, data[start:end]),), end
        headers, end = _read_headers(data, position)
        content = headers[0][1] if len(headers) == 1 else None
        if content is not None:
            self._name, self._size = headers[0][0], len(content)
            self._like = data[position : end - self._size]
        return headers, end


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
