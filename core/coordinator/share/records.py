"""The records of `__share_group_state`: Kafka's own keys and values (facts D5).

A ShareSnapshot is the whole state of a share partition, a ShareUpdate the changes since it. A ShareSnapshot without a
value deletes the state.
"""

from collections.abc import Sequence
from struct import Struct

from ....ports.broker_api.share_state import NO_COUNT, StateBatch
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.values import frozen
from ...share.persister import SharePartitionKey
from ...share.share_group_offset import ShareGroupOffset
from ..record_fields import FlexibleReader, RecordReader, UnknownVersion, encode_text, encode_varint

SNAPSHOT, UPDATE = 0, 1
"""The types of records, which begin their keys."""

_SHORT = Struct(">h")
_PARTITION = Struct(">i")
_SNAPSHOT_HEAD = Struct(">hiiiq")
_TIMES = Struct(">qq")
_UPDATE_HEAD = Struct(">hiiq")
_COUNT = Struct(">i")
_BATCH = Struct(">qqbh")
_BATCH_END = b"\x00"
_COMPLETE_COUNT_TAG = 0


@frozen(kw_only=True)
class ShareSnapshot:
    """The state of a share partition. Times are wall-clock."""

    snapshot_epoch: int
    offset: ShareGroupOffset
    created_ms: int = -1
    written_ms: int = -1


@frozen(kw_only=True)
class ShareUpdate:
    """The changes of a share partition after the snapshot of this epoch; `start_offset` -1: it stays as it was."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NO_COUNT
    state_batches: Sequence[StateBatch] = ()


def encode_key(record_type: int, key: SharePartitionKey) -> bytes:
    """Return the key of a record. Raises `ApiError` INVALID_REQUEST for a group id that is too long."""
    return _SHORT.pack(record_type) + encode_text(key.group_id) + key.topic_id + _PARTITION.pack(key.partition)


def decode_key(data: bytes) -> tuple[int, SharePartitionKey]:
    """Return the type of the record, and its share partition.

    Raises `UnknownVersion`, and `ApiError` CORRUPT_MESSAGE for nonsense.
    """
    reader = RecordReader(data)
    record_type = reader.i16()
    if record_type not in (SNAPSHOT, UPDATE):
        raise UnknownVersion("a key", record_type)
    return record_type, SharePartitionKey(reader.text(), reader.uuid(), reader.i32())


def encode_snapshot(snapshot: ShareSnapshot) -> bytes:
    """Return the value of a ShareSnapshot, version 0."""
    offset = snapshot.offset
    return b"".join(
        (
            _SNAPSHOT_HEAD.pack(
                0, snapshot.snapshot_epoch, offset.state_epoch, offset.leader_epoch, offset.start_offset
            ),
            _TIMES.pack(snapshot.created_ms, snapshot.written_ms),
            _encode_batches(offset.state_batches),
            _encode_tags(offset.delivery_complete_count),
        )
    )


def encode_update(update: ShareUpdate) -> bytes:
    """Return the value of a ShareUpdate, version 0."""
    return b"".join(
        (
            _UPDATE_HEAD.pack(0, update.snapshot_epoch, update.leader_epoch, update.start_offset),
            _encode_batches(update.state_batches),
            _encode_tags(update.delivery_complete_count),
        )
    )


def decode_snapshot(value: bytes) -> ShareSnapshot:
    """Read the value of a ShareSnapshot. Raises as `decode_key`."""
    reader = _opened(value, "a share snapshot")
    snapshot_epoch, state_epoch, leader_epoch = reader.i32(), reader.i32(), reader.i32()
    start_offset, created_ms, written_ms = reader.i64(), reader.i64(), reader.i64()
    batches = _decode_batches(reader)
    return ShareSnapshot(
        snapshot_epoch=snapshot_epoch,
        offset=ShareGroupOffset(
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=_decode_complete_count(reader),
            state_batches=batches,
        ),
        created_ms=created_ms,
        written_ms=written_ms,
    )


def decode_update(value: bytes) -> ShareUpdate:
    """Read the value of a ShareUpdate. Raises as `decode_key`."""
    reader = _opened(value, "a share update")
    snapshot_epoch, leader_epoch, start_offset = reader.i32(), reader.i32(), reader.i64()
    batches = _decode_batches(reader)
    return ShareUpdate(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=_decode_complete_count(reader),
        state_batches=batches,
    )


def _opened(value: bytes, what: str) -> FlexibleReader:
    version = RecordReader(value).i16()
    if version != 0:
        raise UnknownVersion(what, version)
    return FlexibleReader(value[_SHORT.size :])


def _encode_batches(batches: Sequence[StateBatch]) -> bytes:
    parts = [encode_varint(len(batches) + 1)]
    for each in batches:
        parts.append(_BATCH.pack(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count))
        parts.append(_BATCH_END)
    return b"".join(parts)


def _decode_batches(reader: FlexibleReader) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(reader.count()):
        batches.append(StateBatch(reader.i64(), reader.i64(), reader.i8(), reader.i16()))
        reader.skip_tags()
    return tuple(batches)


def _encode_tags(delivery_complete_count: int) -> bytes:
    """Return the tagged fields at the end: the count, unless it has the default."""
    if delivery_complete_count == NO_COUNT:
        return encode_varint(0)
    size = encode_varint(_COUNT.size)
    return encode_varint(1) + encode_varint(_COMPLETE_COUNT_TAG) + size + _COUNT.pack(delivery_complete_count)


def _decode_complete_count(reader: FlexibleReader) -> int:
    count = reader.tags().get(_COMPLETE_COUNT_TAG)
    if count is None:
        return NO_COUNT
    if len(count) != _COUNT.size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a delivery complete count of {len(count)} bytes")
    (number,) = _COUNT.unpack(count)
    return int(number)
