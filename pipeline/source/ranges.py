"""Planning of a read: from its options to offset ranges, and from ranges to slices for tasks."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import ceil

from attrs import evolve, frozen

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError
from ...ports.report import counted
from ..option_names import DataLoss, Option
from ..topics.model import EARLIEST, LATEST, NO_BROKER, NO_OFFSET, Cluster, ClusterPartition, TopicInfo
from .options import Bound, ReadOptions, Selection

Report = Callable[[str], None]

TASK_RECORDS = 10_000
"""Smaller ranges share a task: one task costs Spark and its worker as much as reading this number of records."""


@frozen
class OffsetRange:
    """The records of one partition with start ≤ offset < end."""

    topic: str
    partition: int
    start: int
    end: int
    broker: int = NO_BROKER
    topic_id: str = ""
    """The id of the topic for which this was planned; "" = unknown."""

    @property
    def size(self) -> int:
        """Offsets; of a classic cluster they are bytes."""
        return self.end - self.start

    @property
    def tp(self) -> ClusterPartition:
        return ClusterPartition(self.topic, self.partition, self.broker)

    @classmethod
    def of(cls, tp: ClusterPartition, start: int, end: int, topic_id: str = "") -> "OffsetRange":
        return cls(tp.topic, tp.partition, start, end, tp.broker, topic_id)


def plan_ranges(cluster: Cluster, options: ReadOptions, report: Report) -> list[OffsetRange]:
    """Return the ranges that a batch read covers, without empty ones. Raises `BarnabasError`; see `failOnDataLoss`."""
    infos = selected(cluster, options.selection)
    ids = {info.name: info.topic_id for info in infos}
    partitions = [tp for info in infos for tp in info.partitions]
    first = cluster.offsets(partitions, EARLIEST)
    starts = resolve(cluster, options.starting, partitions, "starting", strict=not options.latest_when_no_timestamp)
    ends = resolve(cluster, options.ending, partitions, "ending", strict=False)
    last = cluster.offsets(partitions, LATEST)  # asked for last: what came meanwhile is no data that was lost
    wanted = [OffsetRange.of(p, starts[p], ends[p], ids[p.topic]) for p in partitions]
    return within(wanted, first, last, fail_on_data_loss=options.fail_on_data_loss, report=report)


def selected(cluster: Cluster, selection: Selection) -> list[TopicInfo]:
    """Return the topics that a selection means now, with those of their partitions that it means.

    Raises `ApiError` for a topic or partition that there is not.
    """
    if selection.pattern is not None:
        infos = cluster.topics()
        return [infos[name] for name in sorted(infos) if re.fullmatch(selection.pattern, name)]
    if selection.topics is not None:
        return known_topics(cluster, selection.topics)
    wanted = sorted(selection.partitions or ())
    known = {info.name: info for info in known_topics(cluster, [tp.topic for tp in wanted])}
    for tp in wanted:
        there = known[tp.topic].partitions
        if tp not in there:
            listed = ", ".join(each.key for each in there)
            text = f"{tp}: the topic has {counted(len(there), 'partition')}: {listed}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return [evolve(info, partitions=[tp for tp in wanted if tp.topic == name]) for name, info in known.items()]


def known_topics(cluster: Cluster, names: Sequence[str]) -> list[TopicInfo]:
    """These topics. Raises `ApiError` for one that there is not, or whose partitions no live broker has."""
    known = cluster.topics(set(names))
    for name in names:
        if name not in known:
            there = ", ".join(sorted(cluster.topics())) or "none"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}; there is {there}")
        if not known[name].partitions:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"no live broker has topic {name!r}")
    return [known[name] for name in dict.fromkeys(names)]


def resolve(
    cluster: Cluster, bound: Bound, partitions: Sequence[ClusterPartition], side: str, *, strict: bool
) -> dict[ClusterPartition, int]:
    """Return the offset of a bound in each partition. A time after the last record is an error if `strict`, else
    LATEST."""
    if bound.timestamp_ms is not None:
        return _at_times(cluster, dict.fromkeys(partitions, bound.timestamp_ms), side, strict=strict)
    if bound.timestamps_ms is not None:
        _same(bound.timestamps_ms, partitions, f"{side}OffsetsByTimestamp")
        return _at_times(cluster, bound.timestamps_ms, side, strict=strict)
    if bound.offsets is None:
        return dict(cluster.offsets(partitions, bound.default))
    _same(bound.offsets, partitions, f"{side}Offsets")
    result = dict(bound.offsets)
    for special in (EARLIEST, LATEST):
        asked = [p for p, offset in result.items() if offset == special]
        if asked:
            result.update(cluster.offsets(asked, special))
    return result


def within(
    wanted: Sequence[OffsetRange],
    first: Mapping[ClusterPartition, int],
    last: Mapping[ClusterPartition, int],
    *,
    fail_on_data_loss: bool,
    report: Report,
) -> list[OffsetRange]:
    """Cut ranges to what the logs have (first ≤ offset < last); what falls away is an error, or reported."""
    result: list[OffsetRange] = []
    for part in wanted:
        low, high = first[part.tp], last[part.tp]
        start = min(max(part.start, low), high)
        end = min(max(part.end, start), high)
        if part.start < low or part.end > high or part.start > part.end:
            text = (
                f"{part.tp}: asked for offsets {part.start} to {part.end}, "
                f"but the log has {low} to {high}; they were deleted, or the topic was created again"
            )
            data_loss(text, fail_on_data_loss=fail_on_data_loss, report=report)
        if start < end:
            result.append(evolve(part, start=start, end=end))
    return result


def data_loss(
    text: str,
    *,
    fail_on_data_loss: bool,
    report: Report,
    hint: str = f"set {Option.ALLOW_DATA_LOSS.spark} to read what remains",
) -> None:
    """Handle lost data: raise `DataLoss`, or report it and continue."""
    if fail_on_data_loss:
        raise DataLoss(f"{text} ({hint})")
    report(text)


def offsets_in_bucket(cluster: Cluster, ranges: Sequence[OffsetRange]) -> dict[str, int]:
    """Return how many offsets of these ranges come from remote storage, past the brokers, by topic."""
    found = {part.topic: 0 for part in ranges}
    for part in ranges:
        found[part.topic] += cluster.in_bucket(part.tp, part.start, part.end) - part.start
    return found


def slices(ranges: Sequence[OffsetRange], *, at_least: int | None, at_most_records: int | None) -> list[OffsetRange]:
    """Return one slice per range, or more: `at_least` in all, shared out by size, none over `at_most_records`."""
    total = sum(part.size for part in ranges)
    result: list[OffsetRange] = []
    for part in ranges:
        pieces = 1
        if at_least is not None and at_least > len(ranges):
            pieces = ceil(part.size * at_least / total)
        if at_most_records is not None:
            pieces = max(pieces, ceil(part.size / at_most_records))
        pieces = min(pieces, part.size)
        cuts = [part.start + part.size * i // pieces for i in range(pieces + 1)]
        result += [evolve(part, start=a, end=b) for a, b in pairwise(cuts)]
    return result


def together(ranges: Sequence[OffsetRange], at_most_records: int | None = None) -> list[list[OffsetRange]]:
    """Neighbours that are small in groups, each for one task, of at most `at_most_records`; large ones alone."""
    limit = min(TASK_RECORDS, at_most_records or TASK_RECORDS)
    result: list[list[OffsetRange]] = []
    room = 0
    for part in ranges:
        if part.size > room:
            result.append([])
            room = limit
        result[-1].append(part)
        room -= part.size
    return result


def _at_times(
    cluster: Cluster, times: Mapping[ClusterPartition, int], side: str, *, strict: bool
) -> dict[ClusterPartition, int]:
    result: dict[ClusterPartition, int] = {}
    for time in sorted(set(times.values())):
        result.update(cluster.offsets([p for p, t in times.items() if t == time], time))
    late = sorted(p for p, offset in result.items() if offset == NO_OFFSET)
    if late and strict:
        raise ConfigError(
            f"{side} timestamp {times[late[0]]}: {late[0]} has no record of that time or later "
            "(set startingOffsetsByTimestampStrategy=latest to begin at the end there)"
        )
    if late:
        result.update(cluster.offsets(late, LATEST))
    return result


def _same(given: Mapping[ClusterPartition, int], partitions: Sequence[ClusterPartition], name: str) -> None:
    if set(given) != set(partitions):
        missing = ", ".join(str(p) for p in sorted(set(partitions) - set(given)))
        extra = ", ".join(str(p) for p in sorted(set(given) - set(partitions)))
        difference = "; ".join(t for t in (missing and f"missing: {missing}", extra and f"not read: {extra}") if t)
        raise ConfigError(f"{name} must name exactly the partitions that are read; {difference}")
