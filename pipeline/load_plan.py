"""What a load has to do: from the table's state and the cluster's offsets to ranges, and what they replace."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from ..ports.error_codes import ErrorCode
from ..ports.errors import ApiError, BarnabasError, ConfigError
from ..ports.words import TopicPartition
from .cluster import EARLIEST, LATEST, NO_OFFSET, Cluster, TopicInfo
from .commits import Commit, TopicState
from .ranges import OffsetRange, data_loss


class TopicRecreated(BarnabasError):
    """A topic is not the one that was loaded before."""


@frozen(kw_only=True)
class LoadPlan:
    """The work of one load.

    `ranges` are read, `topics` is the state afterwards. Rows of the table at or after the offset in `replaced_from` are
    replaced; `replaced_topics` are dropped whole. `lost` tells which data is gone.
    """

    ranges: Sequence[OffsetRange]
    topics: Mapping[str, TopicState]
    replaced_from: Mapping[TopicPartition, int]
    replaced_topics: Sequence[str]
    lost: Sequence[str]

    @property
    def rows(self) -> int:
        """How many offsets are read; a compacted topic may have fewer records."""
        return sum(part.size for part in self.ranges)

    def changes(self, last: Commit | None) -> bool:
        """False if the table is already as this plan would leave it."""
        return bool(self.ranges or self.replaced_topics) or last is None or dict(last.topics) != self.topics


def plan_load(
    cluster: Cluster,
    last: Commit | None,
    topics: Sequence[str],
    *,
    since_ms: int | None,
    fail_on_data_loss: bool,
    recreated: str,
) -> LoadPlan:
    """Everything from the offsets reached (with `since_ms`: from that time, if it is earlier) to the end as of now.

    Raises `ApiError` for an unknown topic and for data loss, `TopicRecreated` unless `recreated` is "replace".
    """
    if recreated not in ("fail", "replace"):
        raise ConfigError(f"recreated must be 'fail' or 'replace', not {recreated!r}")
    state: dict[str, TopicState] = dict(last.topics) if last is not None else {}
    infos = _known(cluster, topics)
    partitions = [TopicPartition(info.name, p) for info in infos for p in range(info.partitions)]
    first, end = cluster.offsets(partitions, EARLIEST), cluster.offsets(partitions, LATEST)
    times = cluster.offsets(partitions, since_ms) if since_ms is not None else {}
    replaced_topics = [info.name for info in infos if _is_another(info, state.get(info.name), end, recreated)]
    for name in replaced_topics:
        del state[name]
    lost: list[str] = []
    ranges: list[OffsetRange] = []
    replaced_from: dict[TopicPartition, int] = {}
    reached: dict[TopicPartition, int] = {}
    for partition in partitions:
        before = _reached(state.get(partition.topic), partition)
        start = before if before is not None else first[partition]
        if since_ms is not None:
            at_time = times[partition] if times[partition] != NO_OFFSET else end[partition]
            start = at_time if before is None else min(before, at_time)
            if before is not None and start < before:
                replaced_from[partition] = start
        if start < first[partition]:
            text = f"{partition}: offsets {start} to {first[partition]} were deleted before they were loaded"
            data_loss(text, fail_on_data_loss=fail_on_data_loss, report=lost.append)
            start = first[partition]
        reached[partition] = max(start, end[partition])
        if start < end[partition]:
            ranges.append(OffsetRange(partition.topic, partition.partition, start, end[partition]))
    for info in infos:
        offsets = {str(p): reached[TopicPartition(info.name, p)] for p in range(info.partitions)}
        state[info.name] = TopicState(topic_id=info.topic_id, next_offsets=offsets)
    return LoadPlan(
        ranges=ranges, topics=state, replaced_from=replaced_from, replaced_topics=replaced_topics, lost=lost
    )


def task_count(sizes: Sequence[int], *, cores: int, rows_per_file: int, rows_per_task_min: int = 10_000) -> int:
    """How many tasks write a load: enough for the cores and for files of at most `rows_per_file`, not more."""
    total = sum(sizes)
    return max(1, -(-total // rows_per_file), min(cores, -(-total // rows_per_task_min)))


def _known(cluster: Cluster, topics: Sequence[str]) -> list[TopicInfo]:
    known = cluster.topics()
    for name in topics:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}; there is {there}")
    return [known[name] for name in dict.fromkeys(topics)]


def _is_another(info: TopicInfo, before: TopicState | None, end: Mapping[TopicPartition, int], recreated: str) -> bool:
    """True if the topic was created anew and is to be replaced. By its id; without ids, because its log is shorter."""
    if before is None:
        return False
    reason = ""
    if before.topic_id and info.topic_id and before.topic_id != info.topic_id:
        reason = f"its id was {before.topic_id} and is {info.topic_id}"
    elif len(before.next_offsets) > info.partitions:
        reason = f"it had {len(before.next_offsets)} partitions and has {info.partitions}"
    else:
        for p in range(info.partitions):
            reached = before.next_offsets.get(str(p), 0)
            if reached > end[TopicPartition(info.name, p)]:
                reason = (
                    f"partition {p} was loaded up to offset {reached} and ends at {end[TopicPartition(info.name, p)]}"
                )
    if reason and recreated != "replace":
        raise TopicRecreated(
            f"topic {info.name!r} is not the one loaded before: {reason}. Load it into another folder, or with "
            "recreated='replace' to drop the rows loaded before"
        )
    return bool(reason)


def _reached(state: TopicState | None, partition: TopicPartition) -> int | None:
    return None if state is None else state.next_offsets.get(str(partition.partition), 0)
