"""Reads messages of a topic for a page: forward from positions, or backward from them, until enough match a filter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import field

from .. import Message, SimpleConsumer
from ..ports.values import frozen

LIMIT_S = 4.0
"""The time after which a page shows what it has found, and where to continue."""
BYTES_MAX = 48 * 1024 * 1024
"""The bytes of messages that a page reads at most."""
_FETCH_BYTES = 1024 * 1024
_SMALL_FETCH_BYTES = 128 * 1024
"""The bytes of a fetch for few messages without a filter."""
_CHUNK = 2_000
"""The offsets of a partition that are read at once, backward with a filter."""
_FOUND_BYTES_MAX = 8 * 1024 * 1024
"""The bytes of matching messages in memory."""


@frozen(kw_only=True)
class FoundMessage:
    """A message, or a control record. `batch`: the header of its batch; `outcome`: "committed", "aborted", or "open"
    where no marker was read; "" outside of transactions. `marker`: "commit", "abort" or "control" of a control record.
    """

    message: Message
    batch: Any = field(repr=False)
    outcome: str = ""
    marker: str = ""


Matches = Callable[[Sequence[FoundMessage]], Sequence[bool]]
"""Says which messages match a filter."""


@frozen(kw_only=True)
class Found:
    """The messages that a page found. `positions`: where the next page continues, by partition; `scanned`: the messages
    that were looked at; `is_complete`: the end, or the beginning, was reached."""

    messages: Sequence[FoundMessage]
    positions: Mapping[int, int]
    scanned: int
    is_complete: bool


class _Budget:
    def __init__(self, fetch_bytes: int = _FETCH_BYTES) -> None:
        self.fetch_bytes = fetch_bytes
        self.until = time.monotonic() + LIMIT_S
        self.bytes = BYTES_MAX
        self.scanned = 0

    def is_used_up(self) -> bool:
        return self.bytes <= 0 or time.monotonic() > self.until


def read_forward(
    consumer: SimpleConsumer,
    topic: str,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    limit: int,
    matches: Matches | None,
    *,
    control: bool = False,
) -> Found:
    """Read from `positions` up to `ends` until `limit` messages match. Raises `BarnabasError`."""
    now = dict(positions)
    found: list[FoundMessage] = []
    budget, held = _Budget(_SMALL_FETCH_BYTES if matches is None and limit <= _CHUNK else _FETCH_BYTES), 0
    while len(found) < limit and held < _FOUND_BYTES_MAX and not budget.is_used_up():
        open_partitions = [each for each in now if now[each] < ends[each]]
        if not open_partitions:
            break
        # All of a topic with many partitions fit into one round.
        for partition, read, position in _fetch(
            consumer, topic, {each: now[each] for each in open_partitions}, ends, budget
        ):
            chosen = _chosen(read, matches, control)
            room = limit - len(found)
            if len(chosen) > room:
                if room <= 0:
                    continue
                chosen = chosen[:room]
                now[partition] = chosen[-1].message.offset + 1
            else:
                now[partition] = position
            found += chosen
            held += sum(len(each.message.value or b"") for each in chosen)
    done = all(now[each] >= ends[each] for each in now)
    return Found(messages=in_order_of_append(found), positions=now, scanned=budget.scanned, is_complete=done)


def read_backward(
    consumer: SimpleConsumer,
    topic: str,
    before: Mapping[int, int],
    starts: Mapping[int, int],
    limit: int,
    matches: Matches | None,
    *,
    control: bool = False,
) -> Found:
    """Read the `limit` newest messages that match, with offsets below `before`, the newest first. Raises
    `BarnabasError`."""
    lows = dict(before)
    found: dict[int, list[FoundMessage]] = {partition: [] for partition in before}
    budget = _Budget()
    chunk = limit if matches is None else _CHUNK
    while not budget.is_used_up() and (matches is None or sum(map(len, found.values())) < limit):
        todo = [each for each in lows if lows[each] > starts[each] and len(found[each]) < limit]
        for partition in todo:
            low = max(starts[partition], lows[partition] - chunk)
            lows[partition], read = _read_range(consumer, topic, partition, low, lows[partition], budget)
            found[partition] += reversed(_chosen(read, matches, control))
            if budget.is_used_up():
                break
        if not todo:
            break
    shown = _newest(found, limit)
    positions = {}
    for partition, low in lows.items():
        taken = sum(each.message.partition == partition for each in shown)
        positions[partition] = low if taken == len(found[partition]) else found[partition][taken].message.offset + 1
    done = all(positions[each] <= starts[each] for each in positions)
    return Found(messages=shown, positions=positions, scanned=budget.scanned, is_complete=done)


def _newest(found: Mapping[int, Sequence[FoundMessage]], limit: int) -> list[FoundMessage]:
    """Return the `limit` newest messages of the partitions, the newest first; each partition begins with its newest."""
    return in_order_of_append([each for part in found.values() for each in reversed(part)])[: -limit - 1 : -1]


def in_order_of_append(found: Sequence[FoundMessage]) -> list[FoundMessage]:
    """Return messages in the order in which they were appended, as far as it can be known: within a partition by
    offset, and between partitions by time.

    A message was appended after those before it in its partition, so it counts as at least as late as they. Else one
    with an old timestamp would hide all that came before it. A timestamp of the future says nothing.
    """
    now_ms = time.time_ns() // 1_000_000
    latest: dict[int, int] = {}
    for each in reversed(found):
        given = each.message.timestamp_ms or 0
        if given <= now_ms:
            latest[each.message.partition] = given  # of the first that says a time
    times: list[tuple[int, int, int]] = []
    for place, each in enumerate(found):
        given, partition = each.message.timestamp_ms or 0, each.message.partition
        before = latest.get(partition, now_ms)
        latest[partition] = max(before, given) if given <= now_ms else before
        times.append((latest[partition], -partition, place))
    return [found[place] for _, _, place in sorted(times)]


def read_one(consumer: SimpleConsumer, topic: str, partition: int, offset: int) -> FoundMessage | None:
    """Return the record at an offset, also a control record; None if there is none. Raises `BarnabasError`."""
    fetched = consumer.fetch(topic, partition, offset, _FETCH_BYTES)
    return next((each for each in records_of(fetched) if each.message.offset == offset), None)


def records_of(fetched: Any) -> Iterator[FoundMessage]:
    """Yield the messages and the control records of a fetched set, in the order of their offsets."""
    headers = list(fetched.batches())
    markers = {header.base_offset: marker for header, marker in fetched.markers()}
    ended: dict[int, list[tuple[int, str]]] = {}
    for header in headers:
        marker = markers.get(header.base_offset)
        if marker is not None:
            ended.setdefault(header.producer_id, []).append(
                (header.base_offset, "committed" if marker.committed else "aborted")
            )
    messages = iter(fetched)
    message = next(messages, None)
    for header in headers:
        if header.control:
            if header.next_offset <= fetched.from_offset:
                continue
            marker = markers.get(header.base_offset)
            kind = "control" if marker is None else ("commit" if marker.committed else "abort")
            made = Message(
                None,
                timestamp_ms=header.max_timestamp,
                topic=fetched.topic,
                partition=fetched.partition,
                offset=header.base_offset,
            )
            yield FoundMessage(message=made, batch=header, marker=kind)
            continue
        outcome = ""
        if header.transactional:
            later = ended.get(header.producer_id, ())
            outcome = next((how for offset, how in later if offset > header.base_offset), "open")
        while message is not None and message.offset < header.next_offset:
            yield FoundMessage(message=message, batch=header, outcome=outcome)
            message = next(messages, None)


def _chosen(read: Sequence[FoundMessage], matches: Matches | None, control: bool) -> list[FoundMessage]:
    seen = [each for each in read if control or not each.marker]
    if matches is None or not seen:
        return list(seen)
    return [each for each, is_match in zip(seen, matches(seen), strict=True) if is_match]


def _fetch(
    consumer: SimpleConsumer, topic: str, positions: Mapping[int, int], ends: Mapping[int, int], budget: _Budget
) -> Iterator[tuple[int, list[FoundMessage], int]]:
    """Yield partition, its records up to the end, and its next position, of one round of fetches."""
    size = max(64 * 1024, min(budget.fetch_bytes, 8 * _FETCH_BYTES // max(1, len(positions))))
    sets = consumer.multifetch([(topic, each, position) for each, position in positions.items()], size)
    for (partition, position), fetched in zip(positions.items(), sets, strict=True):
        read = [each for each in records_of(fetched) if position <= each.message.offset < ends[partition]]
        budget.bytes -= fetched.size
        budget.scanned += len(read)
        # Without a batch nothing is left below the end: compaction removed it, or a transaction's marker is last.
        following = max(position, fetched.next_offset) if fetched.size else ends[partition]
        yield partition, read, min(following, ends[partition])


def _read_range(
    consumer: SimpleConsumer, topic: str, partition: int, low: int, high: int, budget: _Budget
) -> tuple[int, list[FoundMessage]]:
    """Return the records of [low, high) with the first offset they stand for: a later one than `low` where the
    range is too large to be read at once."""
    read: list[FoundMessage] = []
    position, size = low, 0
    while position < high:
        for _, part, following in _fetch(consumer, topic, {partition: position}, {partition: high}, budget):
            read += part
            size += sum(len(each.message.value or b"") for each in part)
            position = following
        if position < high and (size > 8 * _FETCH_BYTES or budget.is_used_up()) and high - low > 1:
            # The newest ones are wanted: those nearer to `high` are read instead.
            low = position = max(position, high - 1 if budget.is_used_up() else high - max(1, (high - low) // 8))
            read, size = [], 0
    return low, read
