"""The format of `.snapshot` files: the producers of a partition at an offset."""

from struct import Struct, error

from ....ports.types import Buffer
from ...message.crc32c import crc32c
from ..config import LONG_MAX
from .producer_state import NO_OFFSET, NO_SEQUENCE, SEQUENCE_MASK, ProducerStateEntry, ProducerStates, SentBatch

VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
"""Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction's start."""


def encode_snapshot(states: ProducerStates) -> bytes:
    """Encode the producers with their last batch and its append time, which decides their expiration."""
    out = [_COUNT.pack(len(states.producers))]
    for producer_id, producer in states.producers.items():
        last_offset, delta = NO_OFFSET, 0
        if producer.batches:
            last = producer.batches[-1]
            last_offset, delta = last.last_offset, last.last_offset - last.base_offset
        fields = (producer.epoch, producer.last_sequence, last_offset, delta, producer.seen_ms)
        out.append(_ENTRY.pack(producer_id, *fields, producer.coordinator_epoch, producer.txn_first_offset))
    content = b"".join(out)
    return _HEAD.pack(VERSION, crc32c(content)) + content


def decode_snapshot(content: Buffer, *, now_ms: int) -> ProducerStates:
    """Decode a snapshot; future times become `now_ms`. Raises `ValueError` for a corrupt one."""
    try:
        version, crc = _HEAD.unpack_from(content)
        (count,) = _COUNT.unpack_from(content, _HEAD.size)
    except error as cause:
        raise ValueError(f"{len(content)} bytes are too few") from cause
    if version != VERSION:
        raise ValueError(f"version {version}, expected {VERSION}")
    start = _HEAD.size + _COUNT.size
    if crc32c(content[_HEAD.size :]) != crc:
        raise ValueError("the CRC-32C does not match the content")
    if count < 0 or len(content) != start + count * _ENTRY.size:
        raise ValueError(f"{len(content)} bytes for {count} producers")
    states = ProducerStates()
    rows = list(_ENTRY.iter_unpack(content[start:]))
    rows.sort(key=lambda row: row[-1] if row[-1] >= 0 else LONG_MAX)
    for producer_id, epoch, last_sequence, last_offset, delta, timestamp, *transaction in rows:
        batches: tuple[SentBatch, ...] = ()
        if last_sequence >= 0 and last_offset >= 0:
            base = (last_sequence - delta) & SEQUENCE_MASK
            batches = (SentBatch(base, last_sequence, last_offset - delta, last_offset, timestamp),)
        known = (epoch, max(last_sequence, NO_SEQUENCE), batches, min(timestamp, now_ms))
        states.put(producer_id, ProducerStateEntry(*known, *transaction))
    return states
