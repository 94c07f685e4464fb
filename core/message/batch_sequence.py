"""Whether the batches of one fetch follow each other.

The CRC covers neither a batch's base offset nor its length and magic byte: that these are wrong shows only beside the
neighbours. Batches leave gaps where a topic is compacted, but never overlap or go back.
"""

from typing import NamedTuple

from attrs import define, field

from ...ports.errors import ApiError
from ...ports.values import frozen
from ...ports.words import Buffer
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
"""(position, header)"""
_MAGIC = bytes([MAGIC])


class SequenceFault(NamedTuple):
    """Why the batch at `position` is not believed, though an offset `expected` is wanted there."""

    position: int
    expected: int
    reason: str
    header: BatchHeader | None = None
    """Where its CRC vouches for all but its base offset."""
    beyond_end: bool = False
    """It lies beyond the end of the log that was told with it."""


@define
class BatchSequence:
    """The batches at the beginning of a fetch that are to be believed, and what comes behind them."""

    next_offset: int
    """Where to read on."""
    batches: Batches = field(factory=list)
    """(position, header), one after the other."""
    fault: SequenceFault | None = None
    cut_bytes: int = 0
    """How many bytes it takes until a batch ends that is there in part; 0 where there is none, or it does not say."""
    probe_offset: int = -1
    """Where to ask instead, if it is >= 0: the first batch begins elsewhere than wanted, and is to be seen beside the
    one before it."""
    unconfirmed: bool = False
    """The last batch, behind a gap, is left out: it counts when what follows agrees."""
    suspect: SequenceFault | None = None
    """What the last batch would be, if it should turn out to lie: it is behind a gap, and nothing follows it."""
    gaps_seen: bool = False
    """A gap stood between two batches that are right: the log has such."""

    def truncate_before(self, leap: SequenceFault) -> None:
        """Leave out the batch there, and what follows it."""
        while self.batches and self.batches[-1][0] >= leap.position:
            self.batches.pop()
        self.next_offset = leap.expected


@frozen(kw_only=True)
class ValidationContext:
    """What is known of the records of a fetch, beside themselves."""

    log_end_offset: int = LONG_MAX
    """The log's end as it was told with them (exclusive)."""
    check_crc: bool = True
    allows_gaps: bool = False
    """The log has gaps, or it is known what stands before: a batch behind a gap counts."""
    starts_at_boundary: bool = False
    """A batch ends just before the offset wanted, so that none of them begins before it."""
    has_more: bool = False
    """There may be more behind them."""
    rejected: BatchHeader | None = None
    """A batch that was found to lie about its offset."""


def validate_batches(records: Buffer, wanted: int, context: ValidationContext, start: int = 0) -> BatchSequence:
    """Go from batch to batch of what was fetched from offset `wanted` on, up to the first one that is wrong.

    `start`: the position at which to begin. The first batch must contain `wanted` or lie behind it.
    """
    chain = BatchSequence(wanted)
    position, size = start, len(records)
    leap: SequenceFault | None = None  # the batch before came behind a gap: perhaps it is the one that lies
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
            _attribute_fault(chain, leap, header)
            break
        chain.gaps_seen |= leap is not None
        if not chain.batches and not context.allows_gaps and header.base_offset != wanted and header.base_offset > 0:
            chain.probe_offset = min(wanted, header.base_offset) - 1
            return chain
        leap = _suspect_gap(position, header, chain.next_offset)
        chain.batches.append((position, header))
        chain.next_offset = header.next_offset
        position += length
    if leap is not None and chain.fault != leap and (context.has_more or not context.allows_gaps):
        chain.truncate_before(leap)  # it comes again, with what follows it
        chain.unconfirmed, chain.fault, chain.cut_bytes = True, None, 0
    elif leap is not None and chain.fault is None:
        chain.suspect = leap
    return chain


def find_next_intact(
    records: Buffer, fault: SequenceFault, context: ValidationContext
) -> tuple[int, BatchHeader] | None:
    """(position, header) of the next batch behind a wrong one that is right in itself and fits.

    First where the wrong one says that it ends, then wherever one can begin.
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
    """What is wrong with a batch by itself."""
    expected = chain.next_offset
    if context.check_crc and not is_crc_valid(records, header, position):
        text = f"the CRC-32C of a batch does not match its content ({header.size} bytes, base {header.base_offset})"
        return SequenceFault(position, expected, text)
    if header.count > header.last_offset_delta + 1:
        text = f"a batch of {header.count} records has the last offset delta {header.last_offset_delta}"
        return SequenceFault(position, expected, text)
    if header.next_offset > context.log_end_offset:
        text = f"a batch claims the offsets {header.base_offset} to {header.last_offset}; the log ends at {context.log_end_offset}"
        return SequenceFault(position, expected, text, header if context.check_crc else None, beyond_end=True)
    return None


def _find_order_fault(
    position: int, header: BatchHeader, chain: BatchSequence, context: ValidationContext
) -> SequenceFault | None:
    """What is wrong with it where it stands."""
    expected = chain.next_offset
    overlaps = chain.batches or (context.starts_at_boundary and context.allows_gaps)
    if (header.base_offset if overlaps else header.last_offset) >= expected:
        return None
    text = f"a batch claims the offsets {header.base_offset} to {header.last_offset}; they came before"
    return SequenceFault(position, expected, text, header if context.check_crc else None)


def _suspect_gap(position: int, header: BatchHeader, expected: int) -> SequenceFault | None:
    if header.base_offset <= expected:
        return None
    text = f"a batch claims the offsets {header.base_offset} to {header.last_offset}; what follows it goes back"
    return SequenceFault(position, expected, text, header)


def _attribute_fault(chain: BatchSequence, leap: SequenceFault | None, header: BatchHeader) -> None:
    """If without the batch before, which leapt, this one was right, that one is wrong."""
    fault = chain.fault
    assert fault is not None
    if leap is not None and fault.header is not None and not fault.beyond_end and leap.expected <= header.base_offset:
        chain.fault = leap
        chain.truncate_before(leap)


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
