"""A topic with many partitions for the size of a node of the coordination tree: one seed, played.

The sizes are lowered, so that 24 partitions are what 10,000 are otherwise: their states are in several nodes, a change
of all takes several commits, and the claims of all replicas do not fit into one node.
"""

from collections.abc import Sequence
from typing import Any

from simulation.cluster_story import ClusterStory

from barnabas.ports.entropy import Entropy

PARTITIONS = 24
PER_NODE = 5
NODE_BYTES = 1_800
"""More than the states of `PER_NODE` partitions with claims of three replicas, less than those of all."""
COMMIT_BYTES = 600


class PartitionsStory(ClusterStory):
    """The brokers are killed or stopped together more often than in other stories, since all replicas claim then."""

    name = "partitions"
    partitions = PARTITIONS
    written = (0, 4, 5, 12, 19, 23)

    def __init__(self, seed: int, *, kinds: Sequence[str] = (), acts: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(seed, kinds=kinds, acts=acts, **settings)
        if not kinds:
            self.kinds = (*self.kinds, "kill_all", "stop_all")
        self.remakes = False

    @staticmethod
    def knobs_of(entropy: Entropy) -> dict[str, Any]:
        return {
            "cluster.layout.PARTITIONS_PER_NODE": PER_NODE,
            "cluster.reassignment.STATES_NODES_AT_A_TIME": 2,
            "cluster.registry.COMMIT_BYTES": COMMIT_BYTES,
            "tree.tree.DATA_BYTES_MAX": NODE_BYTES,
        }
