"""The filter of read_committed consumers: batches of aborted transactions are left out (KIP-98)."""

from collections.abc import Sequence

from ...ports.broker_api.fetch import AbortedTransaction
from ...ports.errors import ApiError
from ...ports.types import Buffer
from .batch_header import BatchHeader
from .batch_reader import open_records
from .batch_sequence import Batches
from .codec import DECOMPRESSED_BYTES_MAX, NO_CODECS

_ABORT = b"\0\0\0\0"
"""Key of an abort marker: version 0, type 0."""


def filter_aborted(batches: Batches, records: Buffer, aborted: Sequence[AbortedTransaction]) -> Batches:
    """Return (position, header) of the batches of `records` that belong to no aborted transaction.

    `aborted` is the list of the fetch response: the batches of a producer are aborted from `first_offset` up to the
    abort marker of that producer. Markers stay. Raises `ApiError` for a control batch that cannot be read.
    """
    if not aborted:
        return batches
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_now: set[int] = set()
    committed: Batches = []
    for position, header in batches:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            open_now.add(waiting.pop().producer_id)
        if header.control:
            if header.producer_id in open_now and _is_abort_marker(records, position, header):
                open_now.discard(header.producer_id)
        elif header.transactional and header.producer_id in open_now:
            continue
        committed.append((position, header))
    return committed


def _is_abort_marker(records: Buffer, position: int, header: BatchHeader) -> bool:
    batch = memoryview(records)[position : position + header.size]
    try:
        keys = open_records(batch, header, NO_CODECS, max_bytes=DECOMPRESSED_BYTES_MAX, with_headers=False).keys
    except ApiError as error:
        text = f"the marker of a transaction at offset {header.base_offset}: {error.message}"
        raise ApiError(error.code, text) from error
    return bool(keys) and keys[0] == _ABORT
