"""Statistics of a segment, a partition or a topic: sums that can be merged."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log
from typing import NamedTuple
from zlib import crc32

from ....ports.errors import ApiError
from ....ports.storage import File
from ....ports.types import Offset, Position
from ...log.batch_scan import SCAN_CHUNK_BYTES
from ...log.segment.damage import Gap, walk
from ...message.batch_header import DELETE_HORIZON_BIT, BatchHeader
from ...message.batch_reader import Columns, decode_columns
from ...message.classic.message_set import ClassicMessageSet
from ...message.classic.validation import find_valid_prefix
from ...message.codec import Codecs
from ...message.crc32c import crc32c

_BITS = 12
_REGISTERS = 1 << _BITS
_ALPHA = 0.7213 / (1 + 1.079 / _REGISTERS)
_MASK = (1 << 64) - 1
EXACT_MAX = 1024
"""Up to this number the hashes of all keys are stored, and the count is exact."""


class KeyCount(NamedTuple):
    """The result of a count of distinct keys."""

    number: int
    is_exact: bool = True

    def estimate(self) -> int:
        return self.number


class DistinctCount:
    """4 KB for any number of keys; off by about 1.6 % beyond `EXACT_MAX`. Two of them can be merged."""

    __slots__ = ("_exact", "_registers")

    def __init__(self) -> None:
        self._exact: set[int] | None = set()
        self._registers = bytearray()

    def add(self, keys: Iterable[bytes]) -> None:
        hashes = [_hash(key) for key in keys]
        if self._exact is not None:
            self._exact.update(hashes)
            if len(self._exact) <= EXACT_MAX:
                return
            hashes = self._spill()
        self._add_hashes(hashes)

    def merge(self, other: "DistinctCount") -> None:
        """Add the keys of another one."""
        if other._exact is not None:
            if self._exact is not None:
                self._exact |= other._exact
                if len(self._exact) <= EXACT_MAX:
                    return
                self._add_hashes(self._spill())
            else:
                self._add_hashes(list(other._exact))
            return
        if self._exact is not None:
            self._add_hashes(self._spill())
        self._registers = bytearray(map(max, self._registers, other._registers))

    def estimate(self) -> int:
        if self._exact is not None:
            return len(self._exact)
        raw = _ALPHA * _REGISTERS**2 / sum(2.0**-rank for rank in self._registers)
        empty = self._registers.count(0)
        if raw <= 2.5 * _REGISTERS and empty:
            raw = _REGISTERS * log(_REGISTERS / empty)
        return round(raw)

    @property
    def is_exact(self) -> bool:
        return self._exact is not None

    def ended(self) -> KeyCount:
        return KeyCount(self.estimate(), self.is_exact)

    def _spill(self) -> list[int]:
        assert self._exact is not None
        hashes, self._exact = list(self._exact), None
        self._registers = bytearray(_REGISTERS)
        return hashes

    def _add_hashes(self, hashes: list[int]) -> None:
        registers = self._registers
        for value in hashes:
            place = value & (_REGISTERS - 1)
            rank = 65 - _BITS - (value >> _BITS).bit_length()
            registers[place] = max(registers[place], rank)


def _hash(key: bytes) -> int:
    """Return a 64-bit hash of two checksums, mixed by the finalizer of MurmurHash3."""
    value = crc32c(key) << 32 | crc32(key)
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


NO_TIMESTAMP = -1
_SPANS_MAX = 240
"""Maximum number of time spans; beyond it, spans become twice as long."""


class Throughput:
    """Messages and bytes per span of time; all spans have the same length, which grows with the total time."""

    __slots__ = ("_first", "_last", "spans", "width_ms")

    def __init__(self) -> None:
        self._first = self._last = 0
        self.width_ms = 1000
        self.spans: dict[int, tuple[int, int]] = {}
        """(messages, bytes) by the number of the span since 1970."""

    def add(self, timestamp_ms: int, messages: int, size: int) -> None:
        if timestamp_ms < 0:
            return
        number = timestamp_ms // self.width_ms
        self._first = min(self._first, number) if self.spans else number
        self._last = max(self._last, number) if self.spans else number
        before = self.spans.get(number, (0, 0))
        self.spans[number] = before[0] + messages, before[1] + size
        while self._last - self._first >= _SPANS_MAX:
            self._widen()

    def merge(self, other: "Throughput") -> None:
        """Add the spans of another one."""
        while self.width_ms < other.width_ms:
            self._widen()
        for number, (messages, size) in other.spans.items():
            self.add(number * other.width_ms, messages, size)

    def _widen(self) -> None:
        spans, self.spans = self.spans, {}
        self.width_ms *= 2
        self._first, self._last = self._first // 2, self._last // 2
        for number, (messages, size) in spans.items():
            before = self.spans.get(number // 2, (0, 0))
            self.spans[number // 2] = before[0] + messages, before[1] + size

    def series(self) -> Sequence[tuple[int, int, int]]:
        """Return (start in ms, messages, bytes) of every span from the first to the last, empty ones too."""
        if not self.spans:
            return []
        numbers = range(min(self.spans), max(self.spans) + 1)
        return [(number * self.width_ms, *self.spans.get(number, (0, 0))) for number in numbers]


class LogStats:
    """Sums. `merge` adds those of another one."""

    def __init__(self) -> None:
        self.segments = 0
        self.bytes = 0
        self.batches = 0
        self.messages = 0
        self.markers = 0
        """Control batches."""
        self.transactional = 0
        """Messages of transactions."""
        self.damaged_bytes = 0
        self.codecs: Counter[str] = Counter()
        """Messages by the codec they came with."""
        self.codec_bytes: Counter[str] = Counter()
        self.content_bytes = 0
        """Bytes of keys and values, decompressed, in the opened batches."""
        self.opened_bytes = 0
        """Bytes of these batches in the segment."""
        self.opened = 0
        """Number of opened messages."""
        self.without_key = 0
        self.without_value = 0
        """Number of tombstones on a compacted topic."""
        self.keys: DistinctCount | KeyCount = DistinctCount()
        self.sizes: Counter[int] = Counter()
        """Messages by the number of bits of their size (key and value, bytes): 3 is for 4 to 7."""
        self.largest = 0
        self.first_ms = self.last_ms = NO_TIMESTAMP
        """First and last timestamp."""
        self.rates = Throughput()

    def merge(self, other: "LogStats") -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("codecs", "codec_bytes", "sizes"):
            getattr(self, name).update(getattr(other, name))
        assert isinstance(self.keys, DistinctCount)
        assert isinstance(other.keys, DistinctCount)
        self.keys.merge(other.keys)
        self.rates.merge(other.rates)
        self.largest = max(self.largest, other.largest)
        self.seen(other.first_ms)
        self.seen(other.last_ms)

    def seen(self, timestamp_ms: int) -> None:
        """Add the timestamp of a message."""
        if timestamp_ms < 0:
            return
        self.first_ms = timestamp_ms if self.first_ms < 0 else min(self.first_ms, timestamp_ms)
        self.last_ms = max(self.last_ms, timestamp_ms)

    def end(self) -> None:
        """Free the memory of counting, after the last `add` and `merge`."""
        if isinstance(self.keys, DistinctCount):
            self.keys = self.keys.ended()
        self.rates = Throughput()

    @property
    def seconds(self) -> float:
        """Return the time from the first timestamp to the last."""
        return (self.last_ms - self.first_ms) / 1000

    def per_second(self, count: float) -> float | None:
        """Return the rate of `count`; None if all messages have the same timestamp."""
        return count / self.seconds if self.seconds > 0 else None


_SUMS = (
    "segments",
    "bytes",
    "batches",
    "messages",
    "markers",
    "transactional",
    "damaged_bytes",
    "content_bytes",
    "opened_bytes",
    "opened",
    "without_key",
    "without_value",
)


# Computes the statistics of a segment.

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_NOTHING = b""


def batch_figures(file: File, base_offset: int, codecs: Codecs, *, records: bool) -> LogStats:
    """Return the statistics of a segment of batches; `records` opens each message. Raises `StorageError`."""
    figures = LogStats()
    figures.segments, figures.bytes = 1, file.size
    for item in walk(file, Position(0), Position(file.size), expected=Offset(base_offset)):
        if isinstance(item, Gap):
            figures.damaged_bytes += item.end - item.position
            continue
        position, header = item
        figures.batches += 1
        if header.control:
            figures.markers += 1
            continue
        figures.messages += header.count
        figures.transactional += header.count if header.transactional else 0
        codec = _codec_name(header.codec_id)
        figures.codecs[codec] += header.count
        figures.codec_bytes[codec] += header.size
        if not header.attributes & DELETE_HORIZON_BIT:
            figures.seen(header.base_timestamp)
        figures.seen(header.max_timestamp)
        figures.rates.add(header.max_timestamp, header.count, header.size)
        if records:
            _open(figures, file, position, header, codecs)
    return figures


def _open(figures: LogStats, file: File, position: Position, header: BatchHeader, codecs: Codecs) -> None:
    try:
        columns = decode_columns(file.read(position, header.size), codecs, into=Columns(header.base_offset))
    except ApiError:
        figures.damaged_bytes += header.size
        return
    figures.opened_bytes += header.size
    _count_records(figures, columns.keys, columns.values)


def _count_records(figures: LogStats, keys: list[bytes | None], values: list[bytes | None]) -> None:
    figures.opened += len(values)
    present = [key for key in keys if key is not None]
    figures.without_key += len(values) - len(present)
    figures.without_value += values.count(None)
    if present:
        assert isinstance(figures.keys, DistinctCount)
        figures.keys.add(set(present))
        sizes = [len(key or _NOTHING) + len(value or _NOTHING) for key, value in zip(keys, values, strict=True)]
    else:
        sizes = [len(value or _NOTHING) for value in values]
    if sizes:
        figures.content_bytes += sum(sizes)
        figures.largest = max(figures.largest, *sizes)
        figures.sizes.update([size.bit_length() for size in sizes])


def classic_figures(file: File, modified_ms: int, codecs: Codecs, *, records: bool) -> LogStats:
    """Return the statistics of a segment of classic messages, which have no keys or times. Raises `StorageError`."""
    figures = LogStats()
    figures.segments, figures.bytes = 1, file.size
    position = 0
    while position < file.size:
        piece = file.read(Position(position), min(SCAN_CHUNK_BYTES, file.size - position))
        good, problem, needs = find_valid_prefix(piece)
        if not good and problem is None and len(piece) < needs <= file.size - position:
            piece = file.read(Position(position), needs)
            good, problem, needs = find_valid_prefix(piece)
        if not good:
            figures.damaged_bytes += file.size - position
            break
        _look_classic(figures, piece[:good], codecs, records=records)
        position += good
    figures.seen(modified_ms)
    return figures


def _look_classic(figures: LogStats, piece: bytes, codecs: Codecs, *, records: bool) -> None:
    plain: list[bytes | None] = []
    start = 0
    for shallow in ClassicMessageSet(piece, codecs, from_offset=0).shallow():
        entry, start = piece[start : shallow.offset], shallow.offset
        codec = _codec_name(shallow.codec_id)
        figures.batches += 1
        figures.codec_bytes[codec] += len(entry)
        if not shallow.codec_id or not records:
            plain.append(shallow.value)
            figures.codecs[codec] += 1
            continue
        try:
            values = [message.value for message in ClassicMessageSet(entry, codecs)]
        except ApiError:
            figures.damaged_bytes += len(entry)
            continue
        figures.codecs[codec] += len(values)
        figures.messages += len(values)
        _count_records(figures, [None] * len(values), values)
    figures.messages += len(plain)
    if records:
        figures.opened_bytes += len(piece)
        _count_records(figures, [None] * len(plain), plain)


def _codec_name(codec_id: int) -> str:
    return _CODECS[codec_id] if codec_id < len(_CODECS) else f"unknown ({codec_id})"
