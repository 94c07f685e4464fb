"""A leader epoch that is raised since records come from another cluster, whose leader epochs they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import evolve

from ....core.cluster.image import ClusterImage
from ....core.cluster.topics import ALONE_EPOCH, PartitionState, ReplicaId, Topic
from ....core.replica.partition.partition import Partition

if TYPE_CHECKING:
    from .broker_state import BrokerState


async def raise_leader_epoch(state: BrokerState, partition: Partition, leader_epoch: int) -> None:
    """Raise the leader epoch of a partition in the tree to this one at least: a part of a change.

    Its leader stays the same. The change reaches the partition by the image, at the latest.
    """
    key = partition.topic_partition

    def decide(topic: Topic, image: ClusterImage) -> Mapping[int, PartitionState]:
        known = image.state(key) if key.partition in topic.partitions else None
        if known is None or known.leader_epoch >= leader_epoch:
            return {}
        raised = evolve(known, leader_epoch=leader_epoch, partition_epoch=known.partition_epoch + 1)
        return {key.partition: raised}

    await state.registry.change_states([key.topic], decide)
    if state.is_alone:  # nothing follows the image
        own = ReplicaId(state.node_id, ALONE_EPOCH)
        partition.apply_state(state.image.state(key), partition.replicas, own, state.clock.monotonic_ms())
