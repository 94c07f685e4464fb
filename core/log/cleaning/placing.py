"""From a dirty log to the order to clean it."""

from ....ports.words import Offset, Position
from ...message.codec import Codecs
from ..producer_state import NO_OFFSET
from ..retention import RecordPolicy
from ..segment import Segment
from ..sparse_index import OFFSET_ENTRY, TIME_ENTRY
from .choice import Dirt
from .order import SLOT_BYTES, CleanerSettings, Order, Source

_CHUNK_BYTES_MIN = 65_536
_MAP_BYTES_MIN = 64 * SLOT_BYTES


def order_for(
    dirt: Dirt,
    settings: CleanerSettings,
    *,
    now_ms: int,
    codecs: Codecs,
    secret: bytes,
    policy: RecordPolicy | None = None,
) -> Order:
    """Owner thread only. Raises `StorageError`."""
    log, threads = dirt.log, max(1, settings.threads)
    segments = log.segments
    below = [segment for segment in segments if segment.base_offset < dirt.upto and isinstance(segment, Segment)]
    ends = [segment.base_offset for segment in segments[1 : len(below) + 1]]
    producers = log.producers.producers
    return Order(
        folder=log.folder,
        config=log.config,
        partition=log.topic_partition,
        policy=policy,
        codecs=codecs,
        sources=[_source(segment, end) for segment, end in zip(below, ends, strict=True)],
        first_dirty=dirt.first_dirty,
        upto=dirt.upto,
        now_ms=now_ms,
        aborted=log.transactions.aborted(below[0].base_offset, dirt.upto),
        map_bytes=max(_MAP_BYTES_MIN, settings.dedupe_buffer_bytes // threads),
        load_factor=settings.load_factor,
        chunk_bytes=max(_CHUNK_BYTES_MIN, settings.io_buffer_bytes // threads // 2),
        secret=secret,
        last_of_producers={
            number: (Offset(each.batches[-1].last_offset if each.batches else NO_OFFSET), each.epoch)
            for number, each in producers.items()
        },
    )


def _source(segment: Segment, end: Offset) -> Source:
    return Source(
        segment=segment,
        base_offset=segment.base_offset,
        next_offset=end,
        records=segment.region(Position(0), segment.size),
        index_bytes=max(segment.index.count * OFFSET_ENTRY.size, segment.time_index.count * TIME_ENTRY.size),
        modified_ms=segment.modified_ms,
    )
