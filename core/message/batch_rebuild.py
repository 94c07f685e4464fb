"""Batches made anew from batches: for a topic with a compression of its own (facts B2)."""

from ...ports.words import Buffer
from .batch_header import CODEC_MASK, content_of, parse_header
from .batch_reader import open_records
from .batch_writer import assemble, encode_columns
from .codec import Codec, Codecs


def rebuild_batch(buf: Buffer, codecs: Codecs, codec: Codec | None, *, max_bytes: int) -> bytearray:
    """The same batch compressed by `codec` (None: not at all); header fields and records stay, no record is opened.

    `max_bytes` bounds what the records decompress to. For log-append time call `stamp_time` on the result. Raises
    `ApiError`: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = parse_header(buf)
    records: Buffer = content_of(buf, header)
    if header.codec_id:
        records = codecs.by_id(header.codec_id).decompress(records, max_bytes)
    return assemble(
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


def renumber_batch(buf: Buffer, codecs: Codecs, codec: Codec | None, *, max_bytes: int) -> bytearray:
    """The same records with offset deltas 0, 1, 2, ..., where a client numbers otherwise. Raises as `rebuild_batch`."""
    header = parse_header(buf)
    records = open_records(buf, header, codecs, max_bytes=max_bytes)
    return encode_columns(
        records.values,
        keys=records.keys,
        headers=records.headers,
        timestamps=[header.base_timestamp + delta for delta in records.timestamp_deltas],
        now_ms=header.max_timestamp,
        codec=codec,
        base_offset=header.base_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.transactional,
    )
