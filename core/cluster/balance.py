"""The partitions that should get their preferred leader again (facts D2, `leader.imbalance.*`)."""

from collections.abc import Sequence

from ...ports.types import TopicPartition
from .image import ClusterImage
from .reassignment import is_moving


def unbalanced(image: ClusterImage, percentage: int) -> Sequence[TopicPartition]:
    """Return the partitions to give back to their preferred leaders: those of live brokers of whose preferred
    partitions others lead more than `percentage` percent."""
    preferred: dict[int, int] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for topic in image.topics.values():
        for number, replicas in topic.partitions.items():
            first = replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            key = TopicPartition(topic.name, number)
            state = image.state(key)
            if state.leader != first and first in state.isr and not is_moving(topic, number):
                elsewhere.setdefault(first, []).append(key)
    return [
        key
        for broker, keys in elsewhere.items()
        if broker in image.brokers and 100 * len(keys) > percentage * preferred[broker]
        for key in keys
    ]
