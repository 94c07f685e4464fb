"""Whether the batches of one fetch follow each other.

The CRC covers neither a batch's base offset nor its length and magic byte: that these are wrong shows only beside the
neighbours. Batches leave gaps where a topic is compacted, but never overlap or go back.
"""

from typing import NamedTuple

from attrs import define, field

from ...ports.errors import ApiError
from ...ports.values import frozen
from ...ports.words import Buffer
from .batch_header import HEADER_SIZE, LENGTH_OVERHEAD, LONG_MAX, MAGIC, MAGIC_AT, BatchHeader, crc_valid, parse_header
from .batch_reader import batch_size

Batches = list[tuple[int, BatchHeader]]
"""(position, header)"""
_MAGIC = bytes([MAGIC])


class ChainBreak(NamedTuple):
    """Why the batch at `position` is not believed, though an offset `expected` is wanted there."""

    position: int
    expected: int
    reason: str
    header: BatchHeader | None = None
    """Where its CRC vouches for all but its base offset."""
    beyond: bool = False
    """It lies beyond the end of the log that was told with it."""


@define
class Chain:
    """The batches at the beginning of a fetch that are to be believed, and what comes behind them."""

    next_offset: int
    """Where to read on."""
    batches: Batches = field(factory=list)
    """(position, header), one after the other."""
    fault: ChainBreak | None = None
    cut_bytes: int = 0
    """How many bytes it takes until a batch ends that is there in part; 0 where there is none, or it does not say."""
    doubt: int = -1
    """Where to ask instead, if it is >= 0: the first batch begins elsewhere than wanted, and is to be seen beside the
    one before it."""
    lonely: bool = False
    """The last batch, behind a gap, is left out: it counts when what follows agrees."""
    leap: ChainBreak | None = None
    """What the last batch would be, if it should turn out to lie: it is behind a gap, and nothing follows it."""
    gaps_seen: bool = False
    """A gap stood between two batches that are right: the log has such."""

    def end_before(self, leap: ChainBreak) -> None:
        """Leave out the batch there, and what follows it."""
        while self.batches and self.batches[-1][0] >= leap.position:
            self.batches.pop()
        self.next_offset = leap.expected


@frozen(kw_only=True)
class Trust:
    """What is known of the records of a fetch, beside themselves."""

    end: int = LONG_MAX
    """The log's end as it was told with them (exclusive)."""
    check_crc: bool = True
    gaps: bool = False
    """The log has gaps, or it is known what stands before: a batch behind a gap counts."""
    boundary: bool = False
    """A batch ends just before the offset wanted, so that none of them begins before it."""
    more: bool = False
    """There may be more behind them."""
    shunned: BatchHeader | None = None
    """A batch that was found to lie about its offset."""


def follow(records: Buffer, wanted: int, trust: Trust, start: int = 0) -> Chain:
    """Go from batch to batch of what was fetched from offset `wanted` on, up to the first one that is wrong.

    `start`: the position at which to begin. The first batch must contain `wanted` or lie behind it.
    """
    chain = Chain(wanted)
    position, size = start, len(records)
    leap: ChainBreak | None = None  # the batch before came behind a gap: perhaps it is the one that lies
    while position + LENGTH_OVERHEAD <= size:
        header: BatchHeader | None = None
        try:
            length = batch_size(records, position)
            if position + HEADER_SIZE <= size:
                header = parse_header(records, position)
        except ApiError as error:
            chain.fault = ChainBreak(position, chain.next_offset, error.message)
            break
        if header is None or position + length > size:
            chain.cut_bytes = position + length
            break
        if header == trust.shunned:
            position += length
            continue
        chain.fault = _fault_in(records, position, header, chain, trust) or _fault_beside(
            position, header, chain, trust
        )
        if chain.fault is not None:
            _blame(chain, leap, header)
            break
        chain.gaps_seen |= leap is not None
        if not chain.batches and not trust.gaps and header.base_offset != wanted and header.base_offset > 0:
            chain.doubt = min(wanted, header.base_offset) - 1
            return chain
        leap = _leap(position, header, chain.next_offset)
        chain.batches.append((position, header))
        chain.next_offset = header.next_offset
        position += length
    if leap is not None and chain.fault != leap and (trust.more or not trust.gaps):
        chain.end_before(leap)  # it comes again, with what follows it
        chain.lonely, chain.fault, chain.cut_bytes = True, None, 0
    elif leap is not None and chain.fault is None:
        chain.leap = leap
    return chain


def next_intact(records: Buffer, fault: ChainBreak, trust: Trust) -> tuple[int, BatchHeader] | None:
    """(position, header) of the next batch behind a wrong one that is right in itself and fits.

    First where the wrong one says that it ends, then wherever one can begin.
    """
    view = memoryview(records)
    claimed = fault.position
    if claimed + LENGTH_OVERHEAD <= len(view):
        claimed += LENGTH_OVERHEAD + int.from_bytes(view[claimed + 8 : claimed + LENGTH_OVERHEAD], "big", signed=True)
    if claimed > fault.position and (header := _intact_at(view, claimed, fault, trust, check_crc=trust.check_crc)):
        return claimed, header
    data = bytes(view)
    mark = data.find(_MAGIC, fault.position + 1 + MAGIC_AT)
    while mark >= 0:
        position = mark - MAGIC_AT
        if header := _intact_at(view, position, fault, trust, check_crc=True):
            return position, header
        mark = data.find(_MAGIC, mark + 1)
    return None


def _fault_in(records: Buffer, position: int, header: BatchHeader, chain: Chain, trust: Trust) -> ChainBreak | None:
    """What is wrong with a batch by itself."""
    expected = chain.next_offset
    if trust.check_crc and not crc_valid(records, header, position):
        text = f"the CRC-32C of a batch does not match its content ({header.size} bytes, base {header.base_offset})"
        return ChainBreak(position, expected, text)
    if header.count > header.last_offset_delta + 1:
        text = f"a batch of {header.count} records has the last offset delta {header.last_offset_delta}"
        return ChainBreak(position, expected, text)
    if header.next_offset > trust.end:
        text = f"a batch claims the offsets {header.base_offset} to {header.last_offset}; the log ends at {trust.end}"
        return ChainBreak(position, expected, text, header if trust.check_crc else None, beyond=True)
    return None


def _fault_beside(position: int, header: BatchHeader, chain: Chain, trust: Trust) -> ChainBreak | None:
    """What is wrong with it where it stands."""
    expected = chain.next_offset
    overlaps = chain.batches or (trust.boundary and trust.gaps)
    if (header.base_offset if overlaps else header.last_offset) >= expected:
        return None
    text = f"a batch claims the offsets {header.base_offset} to {header.last_offset}; they came before"
    return ChainBreak(position, expected, text, header if trust.check_crc else None)


def _leap(position: int, header: BatchHeader, expected: int) -> ChainBreak | None:
    if header.base_offset <= expected:
        return None
    text = f"a batch claims the offsets {header.base_offset} to {header.last_offset}; what follows it goes back"
    return ChainBreak(position, expected, text, header)


def _blame(chain: Chain, leap: ChainBreak | None, header: BatchHeader) -> None:
    """If without the batch before, which leapt, this one was right, that one is wrong."""
    fault = chain.fault
    assert fault is not None
    if leap is not None and fault.header is not None and not fault.beyond and leap.expected <= header.base_offset:
        chain.fault = leap
        chain.end_before(leap)


def _intact_at(
    view: memoryview, position: int, fault: ChainBreak, trust: Trust, *, check_crc: bool
) -> BatchHeader | None:
    try:
        header = parse_header(view, position)
    except ApiError:
        return None
    fits = fault.expected <= header.base_offset and header.next_offset <= trust.end and header != fault.header
    if not fits or position + header.size > len(view) or header.count > header.last_offset_delta + 1:
        return None
    return header if not check_crc or crc_valid(view, header, position) else None
