"""The quick reader of records that have one header each, of one name and size, and no key: as an audit stamps them.

As the quick reader of plain records it reads the fixed part by one `unpack_from`, and leaves the rest, from the first
record that is different, to the general one.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import Struct, unpack
from struct import error as StructError
from typing import NamedTuple

from .message import Headers
from .varint import SMALL, SMALL_LIMIT, encode_varint

_ONE_BYTE_OFFSETS = 64
_ONE_BYTE_SIZES = 64
_VALUE_MAX = 2047
_NO_KEY = 1
_DELTA_MAX = 0x7F


class _Layout(NamedTuple):
    """Length, (attributes), timestamp delta, offset delta, key length, value length, by how long the last of these and
    the offset delta are; and so many bytes beside value and headers."""

    head: Struct
    around: int


# By whether the offset delta has two bytes, and whether the value's length has.
_LAYOUTS = {
    (False, False): _Layout(Struct("<HxBBBB"), 5),
    (False, True): _Layout(Struct("<HxBBBH"), 6),
    (True, False): _Layout(Struct("<HxBHBB"), 6),
    (True, True): _Layout(Struct("<HxBHBH"), 7),
}


class HeaderLike(NamedTuple):
    """What the header lists of a run have in common."""

    name: str
    prefix: bytes
    """All of the list but the header's value."""
    value_size: int


def header_like(headers: Headers) -> HeaderLike | None:
    """None unless it is one header, with a value."""
    if len(headers) != 1:
        return None
    name, value = headers[0]
    if value is None:
        return None
    written = name.encode()
    prefix = b"\2" + encode_varint(len(written)) + written + encode_varint(len(value))
    return HeaderLike(name, prefix, len(value))


class HeadedRun:
    """Takes records from `position` on, as long as they are alike."""

    def __init__(self, data: bytes, position: int, like: HeaderLike) -> None:
        self.position = position
        self.values: list[bytes | None] = []
        self.deltas: list[int] = []
        self.stamps: list[bytes] = []
        """The values of the headers."""
        self._data = data
        self._like = like

    def take(self, count: int) -> None:
        """Up to so many."""
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
        add_value, add_delta, add_stamp = self.values.append, self.deltas.append, self.stamps.append
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
            pass  # another kind of record, or the end: the general reader says which
        self.position = position


def _offsets(first: int, end: int) -> Iterable[int]:
    """Offset deltas, as the layouts give them."""
    if first < _ONE_BYTE_OFFSETS:
        return range(2 * first, 2 * end, 2)
    return unpack(f"<{end - first}H", b"".join(SMALL[first:end]))


@lru_cache(maxsize=256)
def _tables(trailer: int, wide: bool, long: bool) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """By the length field of a value its size, and the length field of its record, if that has two bytes."""
    around = _LAYOUTS[wide, long].around + trailer
    first, last = (_ONE_BYTE_SIZES, _VALUE_MAX) if long else (0, _ONE_BYTE_SIZES - 1)
    usable = [size for size in range(first, last + 1) if _ONE_BYTE_SIZES <= around + size < SMALL_LIMIT]
    fields = [int.from_bytes(SMALL[size], "little") for size in usable]
    lengths = [int.from_bytes(SMALL[around + size], "little") for size in usable]
    return dict(zip(fields, usable, strict=True)), dict(zip(fields, lengths, strict=True))
