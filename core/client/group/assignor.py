"""The interface of assignors, and the two assignors that need no earlier assignment."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ....ports.types import TopicPartition
from .consumer_protocol import Subscription

Shares = dict[str, list[TopicPartition]]
"""Member id → its partitions, sorted."""


class Assignor(Protocol):
    """A pure function of the members' subscriptions, and the data that a member adds to its own.

    It has no state: one object serves many groups.

    Members of one group, of whatever client, agree by the name on an assignor that all of them know, and one of them,
    the leader, assigns for all.
    """

    @property
    def name(self) -> str:
        """The name known to other clients: "range", "roundrobin", "sticky", "cooperative-sticky"."""
        ...

    @property
    def cooperative(self) -> bool:
        """Members keep reading while they join, and give up only what moves (KIP-429).

        `assign` then leaves out a partition that another member still owns: it moves after its owner has given it up.
        """
        ...

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        """Return the data that this assignor needs from every member.

        `owned` are the member's partitions by its last assignment, also when it has given them up to join again, and
        `generation_id` is the generation of that assignment; () and -1 before the first.
        """
        ...

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Shares:
        """Member id → its partitions. `partitions`: topic → their number; topics left out do not exist.

        Every member is in the result. Each partition of a subscribed topic goes to exactly one of its subscribers
        (cooperative: to none, while another owns it). Invalid data of members raise nothing.
        """
        ...


class RangeAssignor:
    """Per topic: members in their order get neighbouring partitions, the first ones one more.

    Partitions of equal number go to the same member, in topics with equally many partitions. Members with an instance
    id come first, in its order, so that the result stays the same when one of them returns with another member id.
    """

    name = "range"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> None:  # noqa: ARG002
        return None

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Shares:
        shares: Shares = {member: [] for member in members}
        for topic, takers in subscribers(wanted_topics(members), partitions).items():
            each, over = divmod(partitions[topic], len(takers))
            start = 0
            for index, member in enumerate(takers):
                end = start + each + (index < over)
                if start == end:
                    break
                shares[member] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return shares


class RoundRobinAssignor:
    """All partitions of all topics in turn to the members, in the order that `RangeAssignor` has them in.

    A member that is not subscribed to the topic whose turn it is, is passed over.
    """

    name = "roundrobin"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> None:  # noqa: ARG002
        return None

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Shares:
        shares: Shares = {member: [] for member in members}
        wanted = wanted_topics(members)
        order = list(wanted)
        turn = 0
        for topic in subscribers(wanted, partitions):
            for number in range(partitions[topic]):
                while topic not in wanted[order[turn % len(order)]]:
                    turn += 1
                shares[order[turn % len(order)]].append(TopicPartition(topic, number))
                turn += 1
        return shares


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return the members' ids: static members by their instance ids, then the others by their member ids."""

    def key(member: str) -> tuple[bool, str, str]:
        instance = members[member].group_instance_id
        return (instance is None, instance or "", member)

    return sorted(members, key=key)


def wanted_topics(members: Mapping[str, Subscription]) -> dict[str, frozenset[str]]:
    """Member, in order → the topics it is subscribed to; one object for all that name the same."""
    known: dict[tuple[str, ...], frozenset[str]] = {}
    same: dict[frozenset[str], frozenset[str]] = {}
    found: dict[str, frozenset[str]] = {}
    for member in in_order(members):
        topics = tuple(members[member].topics)
        if topics not in known:
            wanted = frozenset(topics)
            known[topics] = same.setdefault(wanted, wanted)
        found[member] = known[topics]
    return found


def subscribers(wanted: Mapping[str, frozenset[str]], partitions: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the subscribers of each existing topic that has some, in order; the topics are sorted."""
    found: dict[str, list[str]] = {}
    distinct = set(wanted.values())
    if len(distinct) == 1:
        everyone = list(wanted)
        found = dict.fromkeys(next(iter(distinct)), everyone)
    else:
        for member, topics in wanted.items():
            for topic in topics:
                found.setdefault(topic, []).append(member)
    return {topic: found[topic] for topic in sorted(found) if partitions.get(topic, 0) > 0}
