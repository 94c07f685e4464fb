"""The interface between a coordinator and its assignors (Kafka: `PartitionAssignor`, KIP-848).

Topics are known by their ids here, 16 bytes each. A topic that is deleted and created again is thus another topic, and
what a member had of the former one is worth nothing for the latter.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Protocol

from .....ports.values import frozen

Partitions = Mapping[bytes, AbstractSet[int]]
"""Partitions of topics, by topic id. A topic without partitions is not listed."""


class SubscriptionType(Enum):
    """HOMOGENEOUS if all members subscribe to equal topics."""

    HOMOGENEOUS = "homogeneous"
    HETEROGENEOUS = "heterogeneous"


@frozen(eq=False)
class MemberSubscriptionAndAssignment:
    """The topics of a member, and its target so far. `subscribed_topic_ids` may be shared between members."""

    subscribed_topic_ids: AbstractSet[bytes]
    partitions: Partitions
    instance_id: str | None = None


@frozen(eq=False)
class GroupSpec:
    """The members of a group by member id."""

    members: Mapping[str, MemberSubscriptionAndAssignment]
    assignable: Partitions | None = None
    """The partitions that may be assigned. None: all of them, as always in a consumer group."""

    @property
    def subscription_type(self) -> SubscriptionType:
        subscriptions = iter(self.members.values())
        first = next(subscriptions, None)
        if first is None:
            return SubscriptionType.HOMOGENEOUS
        topics = first.subscribed_topic_ids
        # Equal objects are compared first: a coordinator shares one set between members with equal subscriptions.
        equal = all(
            member.subscribed_topic_ids is topics or member.subscribed_topic_ids == topics for member in subscriptions
        )
        return SubscriptionType.HOMOGENEOUS if equal else SubscriptionType.HETEROGENEOUS

    def assignable_partitions(self, topic_id: bytes, count: int) -> Sequence[int]:
        """Return those of the topic's `count` partitions that may be assigned, in their order."""
        if self.assignable is None:
            return range(count)
        allowed = self.assignable.get(topic_id, frozenset())
        return [partition for partition in range(count) if partition in allowed]


class SubscribedTopicDescriber(Protocol):
    """The topics of the cluster, as the coordinator knows them."""

    @abstractmethod
    def num_partitions(self, topic_id: bytes) -> int:
        """Return -1 if there is no such topic."""


@frozen
class GroupAssignment:
    """The new target of every member. A member that keeps its target may have the object of the `GroupSpec`."""

    members: Mapping[str, Partitions]


class PartitionAssignor(Protocol):
    """A way to assign partitions. It is stateless: everything that it knows comes with the call."""

    name: str

    @abstractmethod
    def assign(self, group: GroupSpec, topics: SubscribedTopicDescriber) -> GroupAssignment:
        """Return a target for every member of the group."""


def subscribed_partitions(group: GroupSpec, topics: SubscribedTopicDescriber) -> dict[bytes, Sequence[int]]:
    """Return the assignable partitions of all subscribed topics, by topic id and in its order."""
    return dict(_subscribed_partitions(group, topics))


def _subscribed_partitions(group: GroupSpec, topics: SubscribedTopicDescriber) -> Iterator[tuple[bytes, Sequence[int]]]:
    distinct = {id(member.subscribed_topic_ids): member.subscribed_topic_ids for member in group.members.values()}
    for topic_id in sorted(set().union(*distinct.values())):
        partitions = group.assignable_partitions(topic_id, topics.num_partitions(topic_id))
        if partitions:
            yield topic_id, partitions
