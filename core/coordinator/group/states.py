"""The states of groups, and all transitions of the classic protocol in one table (facts C5, C6)."""

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    """The state of a group; the value is Kafka's word, as DescribeGroups returns it (facts C5)."""

    EMPTY = "Empty"
    """Without members; it may have committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for the members to join the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation stands; waits for the leader's assignment."""
    ASSIGNING = "Assigning"
    """Only with KIP-848: the target assignment is of an earlier epoch than the group."""
    RECONCILING = "Reconciling"
    """Only with KIP-848: members are on their way to the target assignment."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted, or handed to another coordinator."""


class GroupChange(Enum):
    """An event of the group as a whole. Everything else that members do leaves the state as it is."""

    REBALANCE = "a member joined, left or changed, or the assignment could not be written: all members must join again"
    JOINED = "all awaited members have joined, or the rebalance timeout is over"
    DESERTED = "the rebalance timeout is over, and the group has no members"
    ASSIGNED = "the leader's assignment is in the log"
    END = "the group was deleted, or has another coordinator"


_S, _E = GroupState, GroupChange

CLASSIC_STATES = (_S.EMPTY, _S.PREPARING_REBALANCE, _S.COMPLETING_REBALANCE, _S.STABLE, _S.DEAD)
CONSUMER_STATES = (_S.EMPTY, _S.ASSIGNING, _S.RECONCILING, _S.STABLE, _S.DEAD)
SHARE_STATES = (_S.EMPTY, _S.STABLE, _S.DEAD)

TRANSITIONS: Mapping[tuple[GroupState, GroupChange], GroupState] = {
    (_S.EMPTY, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.JOINED): _S.COMPLETING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.DESERTED): _S.EMPTY,
    (_S.COMPLETING_REBALANCE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    (_S.COMPLETING_REBALANCE, _E.ASSIGNED): _S.STABLE,
    (_S.STABLE, _E.REBALANCE): _S.PREPARING_REBALANCE,
    **{(state, _E.END): _S.DEAD for state in CLASSIC_STATES},
}
"""The next state. A pair that is missing here cannot happen: while a rebalance is being prepared, members that join or
leave change only the set of members it waits for. A new group is empty; one restored from the log is stable."""
