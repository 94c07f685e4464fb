"""Elections by hand, for tests of what follows from them."""

from collections.abc import Mapping

from attrs import evolve

from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.core.cluster.topics import PartitionState, Topic
from barnabas.ports.types import TopicPartition


def elect_again(registry: ClusterRegistry, name: str, number: int) -> PartitionState:
    """Let the same leader lead in the next epoch."""

    def decide(_: Topic, image: ClusterImage) -> Mapping[int, PartitionState]:
        state = image.state(TopicPartition(name, number))
        after = evolve(state, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1)
        return {number: after}

    complete(registry.change_states([name], decide))
    return registry.image.state(TopicPartition(name, number))
