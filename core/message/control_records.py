"""Control batches that end a transaction (Kafka: EndTransactionMarker), with one record each."""

from struct import Struct
from typing import NamedTuple

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import Buffer
from .batch_header import CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, BatchHeader
from .batch_reader import open_records
from .batch_writer import assemble_batch
from .codec import NO_CODECS

_KEY = Struct(">hh")
"""Fields of the key: version, type."""
_VALUE = Struct(">hi")
"""Fields of the value: version, coordinator epoch."""
_ABORT, _COMMIT = 0, 1
_RECORD = b"\x20\0\0\0\x08%b\x0c%b\0"
"""A record of length 16: attributes, timestamp and offset delta 0, a key of 4 bytes, a value of 6, no headers."""
_RECORD_BYTES_MAX = 1024
"""Maximum size of a control record, with room for later versions."""


class EndTransactionMarker(NamedTuple):
    """The outcome of a transaction and the epoch of its coordinator."""

    committed: bool
    coordinator_epoch: int


def encode_marker(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, now_ms: int, log_append_time: bool = False
) -> bytearray:
    """Encode the batch that ends the transaction of a producer, with base offset 0."""
    key = _KEY.pack(0, _COMMIT if marker.committed else _ABORT)
    return assemble_batch(
        _RECORD % (key, _VALUE.pack(0, marker.coordinator_epoch)),
        count=1,
        codec=None,
        base_offset=0,
        last_offset_delta=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT | (LOG_APPEND_TIME_BIT if log_append_time else 0),
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
    )


def read_marker(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker at the start of `batch`; None for another control batch or an emptied one.

    Raises `ApiError` CORRUPT_MESSAGE for a marker that cannot be read.
    """
    if not header.count:
        return None
    records = open_records(batch, header, NO_CODECS, max_bytes=_RECORD_BYTES_MAX, with_headers=False)
    key = records.keys[0] if records.keys else None
    value = records.values[0] if records.values else None
    if key is None or len(key) < _KEY.size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the control batch at offset {header.base_offset} has no type")
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the marker at offset {header.base_offset} has no coordinator epoch")
    return EndTransactionMarker(kind == _COMMIT, _VALUE.unpack_from(value)[1])
