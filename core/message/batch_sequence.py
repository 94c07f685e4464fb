"""Validation of the order of the batches in one fetch.

The CRC covers neither the base offset of a batch nor its length and magic byte: only the neighbours of a batch reveal
that these are corrupt. Compaction leaves gaps between batches, but batches never overlap or go back.
"""

from typing import NamedTuple

from attrs import define, field

from ...ports.errors import ApiError
from ...ports.types import Buffer
from ...ports.values import frozen
from .batch_header import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LONG_MAX,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    is_crc_valid,
    parse_header,
)
from .batch_reader import batch_size

Batches = list[tuple[int, BatchHeader]]
"""The (position, header) of each batch."""
_MAGIC = bytes([MAGIC])


class SequenceFault(NamedTuple):
    """The reason why the batch at `position`, where offset `expected` should begin, is invalid."""

    position: int
    expected: int
    reason: str
    header: BatchHeader | None = None
    """The header, if the CRC confirms all of it but the base offset."""
    beyond_end: bool = False
    """True if the batch lies beyond the log end offset of the response."""


@define
class BatchSequence:
    """The valid batches at the start of a fetch, and the state after them."""

    next_offset: int
    """Offset to fetch next."""
    batches: Batches = field(factory=list)
    """The (position, header) of each valid batch, in order."""
    fault: SequenceFault | None = None
    cut_bytes: int = 0
    """Bytes needed to complete a truncated batch at the end; 0 without one, or if its size is unknown."""
    probe_offset: int = -1
    """Offset to fetch instead, if >= 0: the first batch starts at an unexpected offset, and the batch before it is
    needed to judge it."""
    unconfirmed: bool = False
    """True if the last batch, after a gap, is left out until the batch after it confirms its offset."""
    suspect: SequenceFault | None = None
    """The fault to report if the base offset of the last batch proves wrong: it follows a gap and nothing follows it.
    """
    gaps_seen: bool = False
    """True if a gap between two valid batches was seen: the log is compacted."""

    def truncate_before(self, gap: SequenceFault) -> None:
        """Drop the suspect batch and all batches after it."""
        while self.batches and self.batches[-1][0] >= gap.position:
            self.batches.pop()
        self.next_offset = gap.expected


@frozen(kw_only=True)
class ValidationContext:
    """Facts about the records of a fetch that the records do not contain."""

    log_end_offset: int = LONG_MAX
    """Log end offset of the response (exclusive)."""
    check_crc: bool = True
    allows_gaps: bool = False
    """True if the log has gaps or the batch before is known: a batch after a gap is valid."""
    starts_at_boundary: bool = False
    """True if a batch ends just before the wanted offset, so that no batch begins before it."""
    has_more: bool = False
    """True if the log may have more batches after these."""
    rejected: BatchHeader | None = None
    """A batch whose base offset proved wrong."""


def validate_batches(records: Buffer, wanted: int, context: ValidationContext, start: int = 0) -> BatchSequence:
    """Validate the batches fetched from offset `wanted` on, up to the first invalid one.

    `start` is the position of the first batch, which must contain `wanted` or follow it.
    """
    chain = BatchSequence(wanted)
    position, size = start, len(records)
    gap: SequenceFault | None = None  # the batch before follows a gap: its base offset may be the wrong one
    while position + LENGTH_OVERHEAD <= size:
        header: BatchHeader | None = None
        try:
            length = batch_size(records, position)
            if position + HEADER_SIZE <= size:
                header = parse_header(records, position)
        except ApiError as error:
            chain.fault = SequenceFault(position, chain.next_offset, error.message)
            break
        if header is None or position + length > size:
            chain.cut_bytes = position + length
            break
        if header == context.rejected:
            position += length
            continue
        chain.fault = _find_content_fault(records, position, header, chain, context) or _find_order_fault(
            position, header, chain, context
        )
        if chain.fault is not None:
            _attribute_fault(chain, gap, header)
            break
        chain.gaps_seen |= gap is not None
        if not chain.batches and not context.allows_gaps and header.base_offset != wanted and header.base_offset > 0:
            chain.probe_offset = min(wanted, header.base_offset) - 1
            return chain
        gap = _suspect_gap(position, header, chain.next_offset)
        chain.batches.append((position, header))
        chain.next_offset = header.next_offset
        position += length
    if gap is not None and chain.fault != gap and (context.has_more or not context.allows_gaps):
        chain.truncate_before(gap)  # the next fetch returns it again, with its successor
        chain.unconfirmed, chain.fault, chain.cut_bytes = True, None, 0
    elif gap is not None and chain.fault is None:
        chain.suspect = gap
    return chain


def find_next_intact(
    records: Buffer, fault: SequenceFault, context: ValidationContext
) -> tuple[int, BatchHeader] | None:
    """Return (position, header) of the next intact batch after an invalid one.

    The end that the invalid batch claims is tried first, then every position with a magic byte.
    """
    view = memoryview(records)
    claimed = fault.position
    if claimed + LENGTH_OVERHEAD <= len(view):
        claimed += LENGTH_OVERHEAD + int.from_bytes(view[claimed + 8 : claimed + LENGTH_OVERHEAD], "big", signed=True)
    if claimed > fault.position and (header := _intact_at(view, claimed, fault, context, check_crc=context.check_crc)):
        return claimed, header
    data = bytes(view)
    mark = data.find(_MAGIC, fault.position + 1 + MAGIC_AT)
    while mark >= 0:
        position = mark - MAGIC_AT
        if header := _intact_at(view, position, fault, context, check_crc=True):
            return position, header
        mark = data.find(_MAGIC, mark + 1)
    return None


def _find_content_fault(
    records: Buffer, position: int, header: BatchHeader, chain: BatchSequence, context: ValidationContext
) -> SequenceFault | None:
    """Return the fault in the batch itself, or None."""
    expected = chain.next_offset
    if context.check_crc and not is_crc_valid(records, header, position):
        text = f"the CRC-32C of a batch does not match its content ({header.size} bytes, base {header.base_offset})"
        return SequenceFault(position, expected, text)
    if header.count > header.last_offset_delta + 1:
        text = f"a batch of {header.count} records has the last offset delta {header.last_offset_delta}"
        return SequenceFault(position, expected, text)
    if header.next_offset > context.log_end_offset:
        claim = f"record batch with offsets {header.base_offset} to {header.last_offset}"
        text = f"{claim} beyond the log end offset {context.log_end_offset}"
        return SequenceFault(position, expected, text, header if context.check_crc else None, beyond_end=True)
    return None


def _find_order_fault(
    position: int, header: BatchHeader, chain: BatchSequence, context: ValidationContext
) -> SequenceFault | None:
    """Return the fault in the place of the batch, or None."""
    expected = chain.next_offset
    overlaps = chain.batches or (context.starts_at_boundary and context.allows_gaps)
    if (header.base_offset if overlaps else header.last_offset) >= expected:
        return None
    text = f"record batch with offsets {header.base_offset} to {header.last_offset}, which were read before"
    return SequenceFault(position, expected, text, header if context.check_crc else None)


def _suspect_gap(position: int, header: BatchHeader, expected: int) -> SequenceFault | None:
    if header.base_offset <= expected:
        return None
    text = (
        f"record batch with offsets {header.base_offset} to {header.last_offset}, but the next batch has lower offsets"
    )
    return SequenceFault(position, expected, text, header)


def _attribute_fault(chain: BatchSequence, gap: SequenceFault | None, header: BatchHeader) -> None:
    """Attribute the fault to the suspect batch before, if this batch is valid without it."""
    fault = chain.fault
    assert fault is not None
    if gap is not None and fault.header is not None and not fault.beyond_end and gap.expected <= header.base_offset:
        chain.fault = gap
        chain.truncate_before(gap)


def _intact_at(
    view: memoryview, position: int, fault: SequenceFault, context: ValidationContext, *, check_crc: bool
) -> BatchHeader | None:
    try:
        header = parse_header(view, position)
    except ApiError:
        return None
    fits = (
        fault.expected <= header.base_offset and header.next_offset <= context.log_end_offset and header != fault.header
    )
    if not fits or position + header.size > len(view) or header.count > header.last_offset_delta + 1:
        return None
    return header if not check_crc or is_crc_valid(view, header, position) else None
