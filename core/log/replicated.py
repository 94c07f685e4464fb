"""What a follower's log takes from the leader: batches as they came, offsets and epochs kept (facts B2)."""

from typing import NamedTuple

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.words import Offset
from ..message.batch_header import HEADER_SIZE, BatchHeader, crc_valid, parse_header


class Replicated(NamedTuple):
    """What was appended: bytes, messages, and where the log ends now."""

    size: int
    messages: int
    log_end_offset: Offset


def whole_batches(records: memoryview, end: Offset, latest_epoch: int, *, empty: bool) -> list[BatchHeader]:
    """The headers of the whole batches, up to the first that a log which ends at `end` cannot take.

    An `empty` log takes a first batch that reaches over its end: records were deleted up to the middle of it. What is
    cut at the end of `records` is left out. Offsets may leave holes (compaction), never go back, nor do leader epochs.
    Raises `ApiError` CORRUPT_MESSAGE when the first batch is one that the log cannot take.
    """
    headers: list[BatchHeader] = []
    position, size = 0, len(records)
    while position + HEADER_SIZE <= size:
        try:
            header = parse_header(records, position)
            if position + header.size > size:
                break
            if empty and not headers and header.base_offset < end < header.next_offset:
                end = header.base_offset
            _check(records, position, header, end, latest_epoch)
        except ApiError as error:
            if headers:
                break  # the next fetch begins with it
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"from the leader, for offset {end}: {error.message}") from error
        headers.append(header)
        position += header.size
        end, latest_epoch = header.next_offset, header.leader_epoch
    return headers


def _check(records: memoryview, position: int, header: BatchHeader, end: Offset, latest_epoch: int) -> None:
    if not crc_valid(records, header, position):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the CRC-32C of the batch does not match its content")
    if header.base_offset < end:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch with base offset {header.base_offset}")
    if header.leader_epoch < latest_epoch:
        text = f"a batch of leader epoch {header.leader_epoch}, behind one of epoch {latest_epoch}"
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, text)
