"""The states of a group."""

from enum import Enum


class GroupState(Enum):
    """The value is Kafka's word, as DescribeGroups tells it (facts C5)."""

    EMPTY = "Empty"
    """Without members; it may have committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for the members to join the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation stands; waits for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted, or handed to another coordinator."""
