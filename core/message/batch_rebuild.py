"""Batches made anew from batches: for a topic with a compression of its own (facts B2), and clients that misnumber."""

from functools import partial

from ..traffic.steps import Steps
from .batch_header import CODEC_MASK, BatchHeader
from .batch_writer import assemble
from .codec import Codec
from .record_check import INLINE_BYTES_MAX
from .record_walk import renumber_records


def rebuild_in_steps(
    header: BatchHeader, content: bytes, codec: Codec | None, *, consecutive: bool = True
) -> Steps[bytearray]:
    """The batch with the fields of `header`, its records compressed by `codec` (None: not at all).

    `content` is what the records decompress to. They stay as they are, or get the offset deltas 0, 1, 2, ... where they
    are not `consecutive`: then they must be checked. For log-append time call `stamp_time` on the result. Raises
    `ApiError` MESSAGE_TOO_LARGE.
    """
    records = content if consecutive else (yield from renumber_records(content, header.count))
    work = partial(
        assemble,
        records,
        count=header.count,
        codec=codec,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        attributes=header.attributes & ~CODEC_MASK,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
    )
    if codec is None or len(records) <= INLINE_BYTES_MAX:
        return work()
    rebuilt: bytearray = yield work
    return rebuilt
