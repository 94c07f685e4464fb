"""Planning of a stream's next batch, from the offsets in Spark's checkpoint and the logs as they are now."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from ...ports.errors import ConfigError
from ..option_names import Option
from ..topics.model import EARLIEST, LATEST, Cluster, ClusterPartition
from .options import ReadOptions, parse_partitions_json, partitions_json
from .ranges import OffsetRange, Report, data_loss, selected, within

_OFFSETS = "offsets"
_TOPIC_IDS = "topicIds"
_NEW_TOPIC = (
    f"set {Option.ALLOW_DATA_LOSS.spark} to continue with the new topic from its beginning, or another "
    "checkpointLocation to start a new query"
)

_PARTITIONS_SHOWN_MAX = 5
"""Partitions in one text."""


@frozen
class StreamOffsets:
    """The position of a stream: the next offset per partition, and the topic ids, as far as the cluster has them."""

    positions: Mapping[ClusterPartition, int]
    topic_ids: Mapping[str, str] = field(factory=dict)

    def packed(self) -> dict[str, Any]:
        """Return the form of the checkpoint: {"offsets": JSON as in option startingOffsets, "topicIds": {topic: id}}.

        The second one is missing where there are no ids, and in checkpoints of before.
        """
        ids = {name: self.topic_ids[name] for name in sorted(self.topic_ids) if self.topic_ids[name]}
        return {_OFFSETS: partitions_json(self.positions), **({_TOPIC_IDS: ids} if ids else {})}

    @classmethod
    def unpacked(cls, offset: Mapping[str, Any]) -> "StreamOffsets":
        """Return the reverse of `packed`, and the form of Spark's Kafka source, whose checkpoint may be taken over:
        {"topic": {"0": 23}}. Raises `ConfigError`."""
        ours = isinstance(offset.get(_OFFSETS), str)  # else it may be a topic
        ids = offset.get(_TOPIC_IDS, {}) if ours else {}
        text = offset[_OFFSETS] if ours else json.dumps(offset)
        try:
            positions = parse_partitions_json(text)
        except ConfigError:
            text = json.dumps(offset)
            raise ConfigError(
                f"the offsets in the checkpoint are none of format 'barnabas' or 'kafka': {text}"
            ) from None
        return cls(positions, {str(name): str(topic_id) for name, topic_id in dict(ids).items()})

    def connector_form(self) -> str:
        """Return the form that Spark's Kafka source keeps."""
        return partitions_json(self.positions)

    def another(self, topic: str, topic_id: str) -> bool:
        """Return True if the topic with that id is certainly not the one of these offsets; "" = unknown."""
        known = self.topic_ids.get(topic, "")
        return bool(known and topic_id and known != topic_id)


@frozen
class Step:
    """One step of a stream: from `begin`, per partition, to `end`."""

    begin: Mapping[ClusterPartition, int]
    end: StreamOffsets

    @property
    def size(self) -> int:
        """Offsets; of a classic cluster they are bytes."""
        return sum(offset - self.begin[tp] for tp, offset in self.end.positions.items())


@define
class Pace:
    """Holds a batch back until there are `least` offsets, or `delay_s` have passed since the last one.

    The first batch is not held back, as with Spark's Kafka source. `clock` gives seconds.
    """

    least: int | None
    delay_s: float
    clock: Callable[[], float]
    _last: float | None = None

    def waits(self, size: int) -> bool:
        """Return True if a batch of that size is to wait."""
        now = self.clock()
        late = self._last is None or now - self._last >= self.delay_s
        if self.least is not None and size < self.least and not late:
            return True
        self._last = now
        return False


def log_ends(cluster: Cluster, options: ReadOptions) -> StreamOffsets:
    """Return the present log end offsets of all partitions that the options select."""
    infos = selected(cluster, options.selection)
    partitions = [tp for info in infos for tp in info.partitions]
    return StreamOffsets(
        cluster.offsets(partitions, LATEST), {info.name: info.topic_id for info in infos if info.topic_id}
    )


def falls_short(before: StreamOffsets, target: StreamOffsets) -> bool:
    """Return True if a log ends before the stream's position, although nothing says that it is another topic's."""
    return any(
        target.positions.get(tp, position) < position
        for tp, position in before.positions.items()
        if not before.another(tp.topic, target.topic_ids.get(tp.topic, ""))
    )


def next_step(
    cluster: Cluster, options: ReadOptions, before: StreamOffsets, target: StreamOffsets, report: Report
) -> Step:
    """Return everything from `before` to `target`. What is lost between is an error, or reported, as `failOnDataLoss`
    says."""

    def lost(text: str, hint: str = "") -> None:
        hint = hint or f"set {Option.ALLOW_DATA_LOSS.spark} to continue with what remains"
        data_loss(text, fail_on_data_loss=options.fail_on_data_loss, report=report, hint=hint)

    begin = dict(before.positions)
    for topic in sorted({tp.topic for tp in begin}):
        topic_id = target.topic_ids.get(topic, "")
        if before.another(topic, topic_id):
            lost(_recreated(before, topic, topic_id), _NEW_TOPIC)
            begin = {tp: position for tp, position in begin.items() if tp.topic != topic}
    for tp, position in sorted(begin.items()):
        if tp not in target.positions and options.selection.wants(tp) and not options.where.classic:
            lost(f"{tp} is gone; the stream was at offset {position} of it")
            del begin[tp]
        elif target.positions.get(tp, position) < position:
            end = target.positions[tp]
            lost(f"{tp} ends at {end}, before the stream's offset {position}: it was truncated, or created again")
            if before.topic_ids.get(tp.topic) and target.topic_ids.get(tp.topic):
                begin[tp] = end  # the same topic
            else:
                del begin[tp]
    unchanged = {tp: position for tp, position in begin.items() if tp not in target.positions}
    new = sorted(set(target.positions) - set(begin))
    begin.update(cluster.offsets(new, EARLIEST) if new else {})
    ends = {tp: max(offset, begin[tp]) for tp, offset in target.positions.items()} | unchanged
    unchanged_ids = {tp.topic: before.topic_ids[tp.topic] for tp in unchanged if tp.topic in before.topic_ids}
    return Step(begin, StreamOffsets(ends, {**unchanged_ids, **target.topic_ids}))


def limited(cluster: Cluster, options: ReadOptions, step: Step, max_rows: int) -> StreamOffsets:
    """Return the end of a step of at most about `max_rows`: the share of it that each partition's backlog has, at least
    one record where there is any. The limit may fall into a classic message: then before that one, if the log has still
    got what is before it."""
    if step.size <= max_rows:
        return step.end
    ends = {
        tp: step.begin[tp] + min(end - step.begin[tp], -(-(end - step.begin[tp]) * max_rows // step.size))
        for tp, end in step.end.positions.items()
    }
    cut = [tp for tp, offset in ends.items() if offset < step.end.positions[tp]]
    if options.where.classic and cut:
        first = cluster.offsets(cut, EARLIEST)
        starts = {tp: max(step.begin[tp], first[tp]) for tp in cut}
        ends |= {tp: cluster.boundary(tp, starts[tp], max(starts[tp], ends[tp])) for tp in cut}
    return evolve(step.end, positions=ends)


def batch_ranges(
    cluster: Cluster, options: ReadOptions, before: StreamOffsets, after: StreamOffsets, report: Report
) -> list[OffsetRange]:
    """Return the ranges of a batch from `before` to `after`, perhaps planned by an earlier run of the stream."""
    recreated = {topic for topic, topic_id in after.topic_ids.items() if before.another(topic, topic_id)}
    begin = {tp: position for tp, position in before.positions.items() if tp.topic not in recreated}
    for tp, end in after.positions.items():
        known = before.topic_ids.get(tp.topic) and after.topic_ids.get(tp.topic)
        if end < begin.get(tp, 0) and not known:
            del begin[tp]  # its log was shorter than the position: another one
    there = _still_there(cluster, options, after, {tp.topic for tp in after.positions}, report)
    new = sorted(tp for tp in set(after.positions) - set(begin) if tp.topic in there)
    begin.update(cluster.offsets(new, EARLIEST) if new else {})
    for tp in new:
        end = after.positions[tp]
        if begin[tp] > end:
            text = f"{tp}: offsets up to {end} were planned, and the log begins at {begin[tp]}"
            data_loss(text, fail_on_data_loss=options.fail_on_data_loss, report=report)
    wanted = [
        OffsetRange.of(tp, begin[tp], end, there[tp.topic])
        for tp, end in sorted(after.positions.items())
        if tp.topic in there and begin[tp] < end
    ]
    partitions = [part.tp for part in wanted]
    first, last = cluster.offsets(partitions, EARLIEST), cluster.offsets(partitions, LATEST)
    return within(wanted, first, last, fail_on_data_loss=options.fail_on_data_loss, report=report)


def _still_there(
    cluster: Cluster, options: ReadOptions, planned: StreamOffsets, topics: Iterable[str], report: Report
) -> dict[str, str]:
    """Return the ids of those topics that are still the planned ones; "" = unknown."""
    names = sorted(topics)
    if options.where.classic:
        return dict.fromkeys(names, "")
    found = cluster.topics(names)
    there = {}
    for name in names:
        topic_id = found[name].topic_id if name in found else ""
        if name not in found or planned.another(name, topic_id):
            text = _recreated(planned, name, topic_id) if name in found else f"topic {name!r} is gone"
            text = f"{text}; a batch up to {_offsets_text(planned, name)} was planned"
            data_loss(text, fail_on_data_loss=options.fail_on_data_loss, report=report, hint=_NEW_TOPIC)
        else:
            there[name] = topic_id
    return there


def _recreated(before: StreamOffsets, topic: str, topic_id: str) -> str:
    return (
        f"topic {topic!r} was deleted and created again: its id was {before.topic_ids[topic]} and is {topic_id}; "
        f"what the old one had after {_offsets_text(before, topic)} is lost"
    )


def _offsets_text(offsets: StreamOffsets, topic: str) -> str:
    mine: Sequence[ClusterPartition] = sorted(tp for tp in offsets.positions if tp.topic == topic)
    more = ", ..." if len(mine) > _PARTITIONS_SHOWN_MAX else ""
    return ", ".join(f"{tp}@{offsets.positions[tp]}" for tp in mine[:_PARTITIONS_SHOWN_MAX]) + more
