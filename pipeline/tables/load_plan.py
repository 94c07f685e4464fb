"""Plan of a load: from the table's state and the cluster's offsets to ranges, and what they replace."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from ...ports.errors import BarnabasError
from ...ports.report import counted
from ..option_names import Option
from ..source.ranges import OffsetRange, data_loss, known_topics
from ..topics.model import EARLIEST, LATEST, NO_BROKER, NO_OFFSET, Cluster, ClusterPartition, TopicInfo
from .state import Commit, TopicState

_CLASSIC_ROW_BYTES = 200
"""A guess, for decisions and progress before the rows are there."""


class TopicRecreated(BarnabasError):
    """A topic is not the one that was loaded before."""

    option = Option.REPLACE_RECREATED


@frozen(kw_only=True)
class LoadPlan:
    """The work of one load.

    `ranges` are read, `topics` is the state afterwards. Rows of the table at or after the offset in `replaced_from` are
    replaced; `replaced_topics` are dropped whole. `lost` describes the data that is gone.
    """

    ranges: Sequence[OffsetRange]
    topics: Mapping[str, TopicState]
    replaced_from: Mapping[ClusterPartition, int]
    replaced_topics: Sequence[str]
    lost: Sequence[str]
    absent: Sequence[ClusterPartition] = ()
    """Partitions loaded before whose brokers are not there now; a later load continues with them."""
    deleted: Sequence[str] = ()
    """The offsets that a topic had lost, to retention for example, before its first load."""
    from_bucket: Mapping[str, int] = {}
    """The offsets of each topic that come from remote storage, past the brokers."""

    @property
    def rows_max(self) -> int | None:
        """The number of offsets that are read: a compacted topic may have fewer records. None for a classic cluster,
        where offsets count bytes, and those of compressed messages.
        """
        return None if self._classic else sum(part.size for part in self.ranges)

    @property
    def rows(self) -> int:
        """The approximate number of rows that will come."""
        return sum(self.rows_by_topic.values())

    @property
    def rows_by_topic(self) -> dict[str, int]:
        """The approximate number of rows that will come of each topic that has new ones."""
        sizes: dict[str, int] = {}
        for part in self.ranges:
            sizes[part.topic] = sizes.get(part.topic, 0) + part.size
        return {name: self._rows(size) for name, size in sizes.items()}

    def rows_of(self, offsets: Mapping[str, int]) -> int:
        """Return the approximate number of rows that these numbers of offsets by topic stand for."""
        return min(self.rows, sum(map(self._rows, offsets.values())))

    def _rows(self, offsets: int) -> int:
        return -(-offsets // _CLASSIC_ROW_BYTES) if self._classic else offsets

    @property
    def _classic(self) -> bool:
        return any(part.broker != NO_BROKER for part in self.ranges)

    def changes(self, last: Commit | None) -> bool:
        """Return False if the table is already as this plan would leave it."""
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
    """Return everything from the offsets reached (with `since_ms`: from that time, if it is earlier) to the end as of
    now.

    Raises `ApiError` for an unknown topic and for data loss, `TopicRecreated` unless `recreated` is "replace".
    """
    state: dict[str, TopicState] = dict(last.topics) if last is not None else {}
    infos = known_topics(cluster, topics)
    partitions = [tp for info in infos for tp in info.partitions]
    first, end = cluster.offsets(partitions, EARLIEST), cluster.offsets(partitions, LATEST)
    times = cluster.offsets(partitions, since_ms) if since_ms is not None else {}
    replaced_topics = [info.name for info in infos if _is_another(info, state.get(info.name), end, recreated)]
    for name in replaced_topics:
        del state[name]
    lost: list[str] = []
    deleted: list[str] = []
    ranges: list[OffsetRange] = []
    replaced_from: dict[ClusterPartition, int] = {}
    reached: dict[ClusterPartition, int] = {}
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
            hint = f"set {Option.ALLOW_DATA_LOSS.python} to continue without them"
            data_loss(text, fail_on_data_loss=fail_on_data_loss, report=lost.append, hint=hint)
            start = first[partition]
        if before is None and first[partition] > 0 and (since_ms is None or first[partition] == end[partition]):
            deleted.append(_deleted_before_first_load(partition, first[partition], end[partition]))
        reached[partition] = max(start, end[partition])
        if start < end[partition]:
            ranges.append(OffsetRange.of(partition, start, end[partition]))
    for info in infos:
        before_there = state[info.name].next_offsets if info.name in state else {}
        offsets = {**before_there, **{tp.key: reached[tp] for tp in info.partitions}}
        state[info.name] = TopicState(topic_id=info.topic_id, next_offsets=offsets)
    return LoadPlan(
        ranges=ranges,
        topics=state,
        replaced_from=replaced_from,
        replaced_topics=replaced_topics,
        lost=lost,
        absent=_absent(infos, state),
        deleted=deleted,
    )


def _deleted_before_first_load(partition: ClusterPartition, first: int, end: int) -> str:
    text = f"{partition}: offsets 0 to {first} were deleted before this first load"
    if first < end:
        return text
    return f"{text}; nothing is left (retention goes by the messages' timestamps; retention.ms=-1 keeps old ones)"


def task_count(sizes: Sequence[int], *, cores: int, rows_per_file: int, rows_per_task_min: int = 10_000) -> int:
    """Return the number of tasks of a load: enough for the cores and for files of at most `rows_per_file`, not more."""
    total = sum(sizes)
    return max(1, -(-total // rows_per_file), min(cores, -(-total // rows_per_task_min)))


def _absent(infos: Sequence[TopicInfo], state: Mapping[str, TopicState]) -> list[ClusterPartition]:
    loaded = [ClusterPartition.parse(info.name, key) for info in infos for key in state[info.name].next_offsets]
    there = {tp for info in infos for tp in info.partitions}
    return [tp for tp in loaded if tp is not None and tp not in there]


def _is_another(
    info: TopicInfo, before: TopicState | None, end: Mapping[ClusterPartition, int], recreated: str
) -> bool:
    """Return True if the topic was created again and is to be replaced. By its id; without ids, because its log is
    shorter."""
    if before is None:
        return False
    reason = ""
    loaded, classic = before.next_offsets, info.partitions[0].broker != NO_BROKER
    if before.topic_id and info.topic_id and before.topic_id != info.topic_id:
        reason = f"its id was {before.topic_id} and is {info.topic_id}"
    elif {"-" in key for key in loaded} - {classic}:
        reason = "one of them is in a classic cluster"
    elif len(loaded) > len(info.partitions) and not classic:
        reason = f"it had {counted(len(loaded), 'partition')} and has {len(info.partitions)}"
    else:
        for tp in info.partitions:
            reached = loaded.get(tp.key, 0)
            if reached > end[tp]:
                reason = f"partition {tp.key} was loaded up to offset {reached} and ends at {end[tp]}"
    if reason and recreated != "replace":
        raise TopicRecreated(
            f"topic {info.name!r} is not the one loaded before: {reason}. Load it into another folder, or set "
            f"{Option.REPLACE_RECREATED.python} to drop the rows loaded before"
        )
    return bool(reason)


def _reached(state: TopicState | None, partition: ClusterPartition) -> int | None:
    return None if state is None else state.next_offsets.get(partition.key, 0)
