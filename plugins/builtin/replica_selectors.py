"""The built-in replica selectors."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...ports.types import TopicPartition

if TYPE_CHECKING:
    from ...core.replica.leader.replica_selector import NearReader, ReplicaSelector, ReplicaView


class RackAwareSelector:
    """A replica in the rack of the reader: the leader if it is there, else the one that is farthest (KIP-392)."""

    def select(
        self,
        place: TopicPartition,  # noqa: ARG002
        reader: "NearReader",
        leader: "ReplicaView",
        replicas: "Sequence[ReplicaView]",
    ) -> int:
        near = [replica for replica in replicas if reader.rack and replica.rack == reader.rack]
        if not near or leader in near:
            return leader.broker_id
        return max(near, key=lambda each: (each.log_end_offset, -each.behind_ms, -each.broker_id)).broker_id


class LeaderSelector:
    """Always the leader."""

    def select(
        self,
        place: TopicPartition,  # noqa: ARG002
        reader: "NearReader",  # noqa: ARG002
        leader: "ReplicaView",
        replicas: "Sequence[ReplicaView]",  # noqa: ARG002
    ) -> int:
        return leader.broker_id


_SELECTORS: "dict[str, Callable[[], ReplicaSelector]]" = {
    "leader": LeaderSelector,
    "rack-aware": RackAwareSelector,
    "org.apache.kafka.common.replica.LeaderSelector": LeaderSelector,
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": RackAwareSelector,
}
REPLICA_SELECTOR_NAMES = tuple(_SELECTORS)


def builtin_replica_selector(name: str) -> "ReplicaSelector | None":
    """Return the selector of this name, None if there is none; Kafka's names of its classes are known, too."""
    made = _SELECTORS.get(name)
    return made() if made is not None else None
