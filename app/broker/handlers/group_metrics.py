"""Metrics of consumer groups that this broker coordinates, by the names of kafka_exporter."""

from collections.abc import Callable, Iterator, Sequence

from ....core.coordinator.group.coordinator import GroupCoordinator
from ....ports.metrics import Metrics
from ....ports.types import TopicPartition

_PLACE = ("consumergroup", "topic", "partition")
_GROUP_TOPIC = ("consumergroup", "topic")
EndOf = Callable[[TopicPartition], int | None]
"""The high watermark of a partition; None where this broker has no replica of it."""

_Row = tuple[Sequence[str], float]


def show_lag(metrics: Metrics, coordinator: GroupCoordinator, end_of: EndOf) -> None:
    """Register the metrics of groups: committed offsets, lags and members.

    A lag is available where this broker has a replica of the partition.
    """
    metrics.gauges(
        "kafka_consumergroup_current_offset",
        "Committed position of a group in a partition.",
        _PLACE,
        lambda: [((group, *_texts(place)), float(offset)) for group, place, offset in coordinator.committed()],
    )
    metrics.gauges(
        "kafka_consumergroup_lag",
        "Messages between a group's committed position and the high watermark of a partition.",
        _PLACE,
        lambda: [((group, *_texts(place)), lag) for group, place, lag in _lags(coordinator, end_of)],
    )
    metrics.gauges(
        "kafka_consumergroup_lag_sum",
        "The lag of a group in all partitions of a topic.",
        _GROUP_TOPIC,
        lambda: _sums(coordinator, end_of),
    )
    metrics.gauges(
        "kafka_consumergroup_members",
        "Members of a group.",
        ("consumergroup",),
        lambda: [((group,), float(count)) for group, count in coordinator.member_counts()],
    )


def _texts(place: TopicPartition) -> tuple[str, str]:
    return place.topic, str(place.partition)


def _lags(coordinator: GroupCoordinator, end_of: EndOf) -> Iterator[tuple[str, TopicPartition, float]]:
    for group, place, offset in coordinator.committed():
        end = end_of(place)
        if end is not None:
            yield group, place, float(max(0, end - offset))


def _sums(coordinator: GroupCoordinator, end_of: EndOf) -> list[_Row]:
    sums: dict[tuple[str, str], float] = {}
    for group, place, lag in _lags(coordinator, end_of):
        key = (group, place.topic)
        sums[key] = sums.get(key, 0.0) + lag
    return list(sums.items())
