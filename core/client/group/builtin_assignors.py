"""The assignors that Kafka's clients have, by their names."""

from collections.abc import Iterable, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush, heapreplace
from struct import Struct

from ....ports.errors import ConfigError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from .assignor import Assignor, RangeAssignor, RoundRobinAssignor, Shares, subscribers, wanted_topics
from .consumer_protocol import ProtocolReader, Subscription, encode_partitions

ASSIGNOR_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


# Assignors that preserve the present assignment as far as it is balanced (KIP-54, KIP-429).

_I32 = Struct(">i")


@frozen
class OwnedShare:
    """The partitions that a member claims, and their generation (-1: it names none)."""

    partitions: Sequence[TopicPartition]
    generation_id: int = -1


class StickyAssignor:
    """Balanced, with few moves: where all members want the same topics, the number of moves is minimal.

    No member has two partitions more than another that could take one of them. Members send what they had in the
    user data (StickyAssignorUserData version 1: `[topic [partition]]`, generation i32; version 0 ends before the
    generation).
    """

    name = "sticky"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        return encode_partitions(owned) + _I32.pack(generation_id) if owned else None

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Shares:
        claims = {member: _claim_in_user_data(members[member].user_data) for member in members}
        return balanced(members, partitions, claims)


class CooperativeStickyAssignor:
    """A sticky assignor in two steps: a partition that moves is first given up, and assigned in the next round.

    Members send what they have in their subscriptions, version 1 and later; the generation there since version 2,
    before that in the user data (i32).
    """

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> bytes | None:  # noqa: ARG002
        return _I32.pack(generation_id)

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Shares:
        claims = {
            member: OwnedShare(subscription.owned, _generation_of(subscription))
            for member, subscription in members.items()
        }
        owners: dict[TopicPartition, set[str]] = {}
        for member, claim in claims.items():
            for tp in claim.partitions:
                owners.setdefault(tp, set()).add(member)
        return {
            member: [tp for tp in share if tp not in owners or member in owners[tp]]
            for member, share in balanced(members, partitions, claims).items()
        }


def _claim_in_user_data(data: bytes | None) -> OwnedShare:
    """Return the claim; an empty one for invalid user data, which belong to another client."""
    for start in (0, 2):  # kafka-python 3 has the version before it, which others read as a count that does not fit
        reader = ProtocolReader((data or b"")[start:])
        try:
            partitions = reader.partitions()
            return OwnedShare(partitions, reader.i32() if reader.has_more else -1)
        except ValueError:
            continue
    return OwnedShare(())


def _generation_of(subscription: Subscription) -> int:
    """Return the generation of a claim; librdkafka sends the user data of the sticky assignor here too."""
    data = subscription.user_data
    if subscription.generation_id >= 0 or not data:
        return subscription.generation_id
    if len(data) == _I32.size:
        (generation_id,) = _I32.unpack(data)
        return int(generation_id)
    return _claim_in_user_data(data).generation_id


def balanced(
    members: Mapping[str, Subscription], partitions: Mapping[str, int], claims: Mapping[str, OwnedShare]
) -> Shares:
    """Assign every partition to a subscriber, evenly, preserving claims where that is fair.

    Of several claims to a partition the one with the latest generation counts.
    """
    scales = _Balancer(members, partitions)
    scales.keep(claims)
    scales.fill()
    scales.even_out()
    return scales.shares()


class _SubscriberGroup:
    """Members that want the same topics."""

    def __init__(self, topics: Set[str]) -> None:
        self.topics = topics
        self.heap: list[tuple[int, int]] = []
        """Count and number of its members; entries with an outdated count are dropped when they come to the top."""


class _Member:
    """The partitions of one member by topic: those it claimed, and others."""

    def __init__(self, group: _SubscriberGroup) -> None:
        self.group = group
        self.count = 0
        self.retained: dict[str, list[int]] = {}
        self.given: dict[str, list[int]] = {}


class _Balancer:
    """Members are identified by their numbers in the order of `assignor.in_order`."""

    def __init__(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> None:
        wanted = wanted_topics(members)
        self._ids = list(wanted)
        self._takers = subscribers(wanted, partitions)
        self._partitions = partitions
        self._groups: dict[frozenset[str], _SubscriberGroup] = {}
        self._members: list[_Member] = []
        for number, topics in enumerate(wanted.values()):
            if topics not in self._groups:
                self._groups[topics] = _SubscriberGroup(topics & self._takers.keys())
            group = self._groups[topics]
            group.heap.append((0, number))
            self._members.append(_Member(group))
        self._owned: set[TopicPartition] = set()

    def keep(self, claims: Mapping[str, OwnedShare]) -> None:
        """Give every member the existing partitions that it claims and still wants."""
        best: dict[TopicPartition, tuple[int, int]] = {}
        for number, member in enumerate(self._ids):
            claim, topics = claims[member], self._members[number].group.topics
            for tp in claim.partitions:
                if tp.topic in topics and 0 <= tp.partition < self._partitions[tp.topic]:
                    known = best.get(tp)
                    if known is None or claim.generation_id > known[0]:
                        best[tp] = (claim.generation_id, number)
        for tp in sorted(best):
            self._members[best[tp][1]].retained.setdefault(tp.topic, []).append(tp.partition)
            self._members[best[tp][1]].count += 1
        self._owned.update(best)
        for group in self._groups.values():
            group.heap = [(self._members[number].count, number) for _, number in group.heap]
            heapify(group.heap)

    def fill(self) -> None:
        """Assign each free partition to the subscriber with the fewest, the most selective topics first."""
        groups_of: dict[str, list[_SubscriberGroup]] = {topic: [] for topic in self._takers}
        for group in self._groups.values():
            for topic in group.topics:
                groups_of[topic].append(group)
        for topic in sorted(self._takers, key=lambda topic: (len(self._takers[topic]), topic)):
            free = [
                number for number in range(self._partitions[topic]) if TopicPartition(topic, number) not in self._owned
            ]
            if free:
                self._hand_out(topic, free, groups_of[topic])

    def _hand_out(self, topic: str, numbers: Iterable[int], groups: Sequence[_SubscriberGroup]) -> None:
        heap = [(*self._lowest(group), index) for index, group in enumerate(groups)]
        heapify(heap)
        for number in numbers:
            _, taker, index = heap[0]
            self._assign(taker, topic, number)
            heapreplace(heap, (*self._lowest(groups[index]), index))

    def even_out(self) -> None:
        """Move partitions from the largest shares, until no member has two more than another that could take one."""
        while self._one_round():
            pass

    def _one_round(self) -> bool:
        """Return True if something was moved: then further moves may have become possible."""
        groups = list(self._groups.values())
        low = [(*self._lowest(group), index) for index, group in enumerate(groups)]
        heapify(low)
        high = [(-member.count, number) for number, member in enumerate(self._members)]
        heapify(high)
        moved = False
        while high:
            count, number = heappop(high)
            donor = self._members[number]
            if -count != donor.count:
                heappush(high, (-donor.count, number))
                continue
            while low[0][:2] != self._lowest(groups[low[0][2]]):
                heapreplace(low, (*self._lowest(groups[low[0][2]]), low[0][2]))
            if donor.count - low[0][0] < 2:
                break
            if self._give(donor, groups):
                moved = True
                heappush(high, (-donor.count, number))
                heappush(donor.group.heap, (donor.count, number))
        return moved

    def _give(self, donor: _Member, groups: Sequence[_SubscriberGroup]) -> bool:
        """Move one partition to the smallest share that can take it; preferably one that was not claimed."""
        takers = sorted((*self._lowest(group), index) for index, group in enumerate(groups))
        for stock in (donor.given, donor.retained):
            for count, taker, index in takers:
                if donor.count - count < 2:
                    break
                topic = next((topic for topic in stock if topic in groups[index].topics), None)
                if topic is None:
                    continue
                number = stock[topic].pop()
                if not stock[topic]:
                    del stock[topic]
                donor.count -= 1
                self._assign(taker, topic, number)
                return True
        return False

    def _assign(self, taker: int, topic: str, number: int) -> None:
        member = self._members[taker]
        member.given.setdefault(topic, []).append(number)
        member.count += 1
        heappush(member.group.heap, (member.count, taker))

    def _lowest(self, group: _SubscriberGroup) -> tuple[int, int]:
        """Return count and number of the member with the fewest partitions."""
        while group.heap[0][0] != self._members[group.heap[0][1]].count:
            heappop(group.heap)
        return group.heap[0]

    def shares(self) -> Shares:
        return {
            member: sorted(
                TopicPartition(topic, number)
                for stock in (self._members[index].retained, self._members[index].given)
                for topic, numbers in stock.items()
                for number in numbers
            )
            for index, member in enumerate(self._ids)
        }


def builtin_assignor(name: str) -> Assignor:
    """Return the built-in assignor of that name. Raises `ConfigError` listing them for any other."""
    known: dict[str, type[Assignor]] = {
        "range": RangeAssignor,
        "roundrobin": RoundRobinAssignor,
        "sticky": StickyAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    if name not in known:
        raise ConfigError(f"unknown assignor {name!r}; known: {', '.join(ASSIGNOR_NAMES)}")
    return known[name]()
