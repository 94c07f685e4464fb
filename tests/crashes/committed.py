"""The batches that readers of committed messages get from a log, compared with those that they should get."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crashes.written import Broken, Written

from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_header import BatchHeader, parse_header
from barnabas.core.message.control_records import read_marker
from barnabas.core.message.message_set import MessageSet
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.types import TopicPartition

CODECS = builtin_codecs()


class Seen(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


class Decided(NamedTuple):
    """The aborted transactions of a run of batches: (producer, first offset, offset of the marker)."""

    aborted: frozenset[tuple[int, int, int]]
    first_open: int | None


def decided(batches: Sequence[Written]) -> Decided:
    under_way: dict[int, int] = {}
    aborted = set()
    for each, header in _headers(batches):
        if not header.transactional:
            continue
        if not header.control:
            under_way.setdefault(header.producer_id, header.base_offset)
            continue
        marker = read_marker(each.data, header)
        first = under_way.pop(header.producer_id, None)
        if marker is not None and first is not None and not marker.committed:
            aborted.add((header.producer_id, first, header.base_offset))
    return Decided(frozenset(aborted), min(under_way.values(), default=None))


def check_transactions(tp: TopicPartition, log: UnifiedLog, found: Sequence[Written]) -> None:
    """The log's index of aborted transactions, and where it is undecided, are what its batches say."""
    start, end = log.log_start_offset, log.log_end_offset
    said, wanted = log.transactions.aborted(start, end), decided(found)
    observed = {(each.producer_id, each.first_offset, each.last_offset) for each in said}
    # Compaction may have removed the first batch of one; its reported first offset stays the same.
    begun_below = {(producer, last) for producer, first, last in observed if first <= start or log.config.compacted}
    missing = {each for each in wanted.aborted - observed if (each[0], each[2]) not in begun_below}
    if missing:
        raise Broken(f"transactions: {tp} does not know of the aborted ones {sorted(missing)}")
    more = {each for each in observed - wanted.aborted if each[1] > start}
    if more and not log.config.compacted:
        raise Broken(f"transactions: {tp} has aborted ones that are not in the log: {sorted(more)}")
    unstable = log.transactions.first_unstable_offset(end)
    if unstable != wanted.first_open and not (unstable is not None and unstable <= start):
        raise Broken(f"transactions: {tp} is undecided from {unstable}, and should be from {wanted.first_open}")


def check_compacted(
    tp: TopicPartition,
    log: UnifiedLog,
    found: Sequence[Written],
    histories: Sequence[Sequence[Written]],
    wanted: Sequence[Written],
) -> None:
    """The last committed message of every key is there, and nothing that was not written, or that was deleted."""
    end = log.log_end_offset
    if wanted and wanted[-1].end > end:
        raise Broken(f"lost: {tp} was durable up to {wanted[-1].end}, and ends at {end}")
    start, transactions = log.log_start_offset, log.transactions
    entries = transactions.aborted(0, end)
    aborted = frozenset((each.producer_id, each.first_offset, each.last_offset) for each in entries)
    unstable = transactions.first_unstable_offset(end)
    view = [seen for seen in _visible(found, aborted, unstable) if seen.offset >= start]
    problems = [_problem(view, [each for each in history if each.end <= end], start) for history in histories]
    if all(problems):
        raise Broken(f"compaction: {tp} {problems[0]}")


def _problem(view: Sequence[Seen], history: Sequence[Written], start: int) -> str:
    known = decided(history)
    all_of_it = [seen for seen in _visible(history, known.aborted, known.first_open) if seen.offset >= start]
    if not set(view) <= set(all_of_it):
        strange = sorted(set(view) - set(all_of_it), key=lambda seen: seen.offset)
        return f"shows at offset {strange[0].offset} what was never committed there"
    if [seen.offset for seen in view] != sorted({seen.offset for seen in view}):
        return "is not in order"
    last = {seen.key: seen for seen in all_of_it}
    shown = {seen.key: seen for seen in view}
    for key, seen in last.items():
        now = shown.get(key)
        if seen.value is None and now is None:
            continue
        if now != seen:
            return f"shows {now} as the last of {key!r}, which is {seen}"
    return ""


def _headers(batches: Sequence[Written]) -> Iterator[tuple[Written, BatchHeader]]:
    for each in batches:
        yield each, parse_header(each.data, 0)


def _visible(
    batches: Sequence[Written], aborted: frozenset[tuple[int, int, int]], first_open: int | None
) -> Iterator[Seen]:
    """Filter batches by the list of aborted transactions, as a consumer does."""
    for each, header in _headers(batches):
        if first_open is not None and header.base_offset >= first_open:
            return
        gone = header.transactional and any(
            producer == header.producer_id and first <= header.base_offset < marker
            for producer, first, marker in aborted
        )
        if header.control or gone:
            continue
        for message in MessageSet(each.data, CODECS):
            yield Seen(message.offset, message.key, message.value)
