"""What readers of committed records leave out: the batches of aborted transactions (facts B1, C6)."""

from collections.abc import Sequence

from ...ports.broker_api import AbortedTransaction
from ...ports.errors import ApiError
from ...ports.words import Buffer
from .batch_header import BatchHeader
from .batch_reader import open_records
from .batch_sequence import Batches
from .codec import DECOMPRESSED_BYTES_MAX, NO_CODECS

_ABORT = b"\0\0\0\0"
"""The key of the record: version 0, type 0."""


def filter_aborted(batches: Batches, records: Buffer, aborted: Sequence[AbortedTransaction]) -> Batches:
    """The (position, header) of those batches of `records` that belong to no aborted transaction.

    `aborted` comes with the records: a producer's batches are aborted from the first offset told there up to the marker
    in the log that ends its transaction. Markers stay. Raises `ApiError` for a marker that is none.
    """
    if not aborted:
        return batches
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_now: set[int] = set()
    kept: Batches = []
    for position, header in batches:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            open_now.add(waiting.pop().producer_id)
        if header.control:
            if header.producer_id in open_now and _is_abort_marker(records, position, header):
                open_now.discard(header.producer_id)
        elif header.transactional and header.producer_id in open_now:
            continue
        kept.append((position, header))
    return kept


def _is_abort_marker(records: Buffer, position: int, header: BatchHeader) -> bool:
    batch = memoryview(records)[position : position + header.size]
    try:
        keys = open_records(batch, header, NO_CODECS, max_bytes=DECOMPRESSED_BYTES_MAX, with_headers=False).keys
    except ApiError as error:
        text = f"the marker of a transaction at offset {header.base_offset}: {error.message}"
        raise ApiError(error.code, text) from error
    return bool(keys) and keys[0] == _ABORT
