"""Computes the statistics of a segment."""

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
from .log_stats import DistinctCount, LogStats

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
    _look(figures, columns.keys, columns.values)


def _look(figures: LogStats, keys: list[bytes | None], values: list[bytes | None]) -> None:
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
        _look(figures, [None] * len(values), values)
    figures.messages += len(plain)
    if records:
        figures.opened_bytes += len(piece)
        _look(figures, [None] * len(plain), plain)


def _codec_name(codec_id: int) -> str:
    return _CODECS[codec_id] if codec_id < len(_CODECS) else f"unknown ({codec_id})"
