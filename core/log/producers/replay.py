"""Rebuild of producer state from batches, where no snapshot has it."""

from collections.abc import Callable, Sequence

from ....ports.errors import ApiError
from ....ports.types import Offset, Position
from ...message.batch_header import BatchHeader
from ...message.control_records import EndTransactionMarker, read_marker
from ..segment.offset_index import CorruptIndex
from ..segment.segment import Segment
from ..segment.transaction_index import AbortedTxn
from .producer_state import ProducerStates

LOOK_BACK_ENTRIES = 32
"""A snapshot has one batch of each producer. Earlier ones are read from this number of index entries (each about
4 KB, or one larger batch) before its offset."""
MARKER_BYTES_MAX = 4096
"""Maximum size of a marker, which has 78 bytes."""


def apply_batch(
    states: ProducerStates, header: BatchHeader, base_offset: Offset, marker: EndTransactionMarker | None, seen_ms: int
) -> AbortedTxn | None:
    """Apply a batch of the log at `base_offset`; `marker`: the parsed content of a control batch.

    Return the transaction that it aborts. Nothing is checked: the leader has done that.
    """
    if header.producer_id < 0:
        return None
    if not header.control:
        if header.base_sequence >= 0 or header.transactional:
            states.update(header, base_offset, seen_ms)
        return None
    if marker is None:
        return None
    ended = states.end(header.producer_id, header.producer_epoch, marker.coordinator_epoch, base_offset, seen_ms)
    if ended is None or marker.committed:
        return None
    return AbortedTxn(header.producer_id, ended.first_offset, base_offset, ended.last_stable_offset)


def read_marker_at(segment: Segment, position: Position, header: BatchHeader) -> EndTransactionMarker | None:
    """Read a control batch; a corrupt one is reported and ends no transaction. Raises `StorageError`."""
    if header.producer_id < 0:
        return None
    try:
        return read_marker(segment.file.read(position, min(header.size, MARKER_BYTES_MAX)), header)
    except ApiError as error:
        segment.report(f"{segment.path}: {error.message}; the transaction that it ended counts as open")
        return None


def replay(
    states: ProducerStates,
    segments: Sequence[Segment],
    start: Offset,
    end: Offset,
    now_ms: int,
    aborts: Callable[[AbortedTxn], None] | None = None,
) -> None:
    """Apply the batches in [start, end) whose CRC is right; `aborts` receives the aborted transactions."""
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if next_base <= start or segment.base_offset >= end or not segment.size:
            continue
        found = segment.locate_intact(start) if start > segment.base_offset else (Position(0), 0)
        for position, header in segment.batches(found[0] if found is not None else segment.size, check_crc=True):
            if header.base_offset >= end:
                break
            if header.base_offset >= start:
                marker = read_marker_at(segment, position, header) if header.control else None
                seen_ms = min(now_ms, max(header.max_timestamp, segment.modified_ms))
                aborted = apply_batch(states, header, header.base_offset, marker, seen_ms)
                if aborted is not None and aborts is not None:
                    aborts(aborted)


def load_recent_batches(states: ProducerStates, segments: Sequence[Segment], offset: Offset, now_ms: int) -> None:
    """Read the batches shortly before a snapshot, which stores only the last one of each producer."""
    places: list[tuple[Segment, Position]] = []
    entries = LOOK_BACK_ENTRIES
    for segment in reversed(segments):
        if entries > 0 and segment.base_offset < offset and segment.size:
            try:
                places.append((segment, segment.position_before(offset, entries)))
            except CorruptIndex:
                break  # a lookup will rebuild it; the last batches are known
            entries -= segment.index.count + 1
    earlier = ProducerStates()
    for segment, position in reversed(places):
        for _, header in segment.batches(position, check_crc=True):
            if header.next_offset > offset:
                break
            if not header.control:
                apply_batch(earlier, header, header.base_offset, None, now_ms)
    states.complete(earlier)
