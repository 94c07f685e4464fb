"""The assignors of the group coordinator, and their interface (Kafka: `PartitionAssignor`, KIP-848).

Topics are known by their ids here, 16 bytes each. A topic that is deleted and created again is thus another topic, and
what a member had of the former one is worth nothing for the latter.

`RangeAssignor` gives consecutive partitions of each topic to each member.

`UniformAssignor` gives equal numbers of partitions to all members, and moves few of them. With equal subscriptions no
assignment is more even, and none as even moves fewer partitions. With mixed subscriptions no single partition can be
moved to a subscriber that would have fewer partitions afterwards than its present owner has.

`SimpleAssignor` serves share groups (KIP-932): members share partitions if there are more members. With equal
subscriptions all partitions are shared out at once, otherwise each topic among its own subscribers. Every partition has
⌈members / partitions⌉ members, so one if there are enough partitions; no member has two partitions more than another.
"""

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Protocol

from ....ports.values import frozen

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


_TopicPartition = tuple[bytes, int]
_Targets = Mapping[str, set[_TopicPartition]]


class SimpleAssignor:
    """Keeps what members have as far as that is even."""

    name = "simple"

    def assign(self, group: GroupSpec, topics: SubscribedTopicDescriber) -> GroupAssignment:
        partitions = [
            [(topic_id, number) for number in numbers]
            for topic_id, numbers in subscribed_partitions(group, topics).items()
        ]
        targets: _Targets = {member_id: set() for member_id in group.members}
        if group.subscription_type is SubscriptionType.HOMOGENEOUS:
            _share_out([each for of_topic in partitions for each in of_topic], group, targets)
        else:
            for of_topic in partitions:
                _share_out(of_topic, group, targets)
        return GroupAssignment(members={each: _target(group, each, targets[each]) for each in targets})


def _target(group: GroupSpec, member_id: str, target: set[_TopicPartition]) -> Partitions:
    """Return the former target of the member if it is not changed."""
    found: dict[bytes, set[int]] = {}
    for topic_id, number in target:
        found.setdefault(topic_id, set()).add(number)
    former = group.members[member_id].partitions
    return former if former == found else {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def _share_out(partitions: Sequence[_TopicPartition], group: GroupSpec, targets: _Targets) -> None:
    """Add the partitions, whose topics have equal subscribers, to the targets."""
    if partitions:
        topic_ids = {topic_id for topic_id, _ in partitions}
        members = {
            member_id: {
                (topic_id, number)
                for topic_id in topic_ids & member.partitions.keys()
                for number in member.partitions[topic_id]
            }
            for member_id, member in group.members.items()
            if partitions[0][0] in member.subscribed_topic_ids
        }
        for member_id, given in _Sharing(partitions, members, targets).given.items():
            targets[member_id].update(given)


class _Sharing:
    def __init__(
        self, partitions: Sequence[_TopicPartition], former: Mapping[str, set[_TopicPartition]], targets: _Targets
    ) -> None:
        """`targets` are what the members have of other topics; `former` what they had of these."""
        self._partitions = partitions
        self._copies = -(-len(former) // len(partitions))
        there = set(partitions)
        self.given = {member_id: had & there for member_id, had in former.items()}
        least, extras = divmod(len(partitions) * self._copies, len(former))

        def claim(member_id: str) -> tuple[bool, int]:
            """Members that keep one partition more with it come first, then those with few of other topics."""
            return (len(self.given[member_id]) <= least, len(targets[member_id]))

        self._quotas = dict.fromkeys(former, least)
        for member_id in sorted(former, key=claim)[:extras]:
            self._quotas[member_id] += 1
        self._counts = Counter(each for had in self.given.values() for each in had)
        self._release()
        self._fill()

    def _release(self) -> None:
        """Take partitions from members above their quota, and from the last members of a partition with too many."""
        for member_id, given in self.given.items():
            surplus = len(given) - self._quotas[member_id]
            if surplus > 0:
                for each in sorted(given, key=lambda each: (self._counts[each], each), reverse=True)[:surplus]:
                    self._unassign(member_id, each)
        for member_id, given in reversed(self.given.items()):
            for each in [each for each in given if self._counts[each] > self._copies]:
                self._unassign(member_id, each)

    def _fill(self) -> None:
        """Give partitions with too few members to members below their quotas, those with most missing first."""
        missing = {each: self._copies - self._counts[each] for each in self._partitions}
        if self._copies == 1:
            rest = iter([each for each in self._partitions if missing[each]])
            for member_id, given in self.given.items():
                given.update(islice(rest, self._quotas[member_id] - len(given)))
            return
        order = sorted(self.given, key=lambda member_id: len(self.given[member_id]) - self._quotas[member_id])
        for member_id in order:
            given = self.given[member_id]
            wanted = self._quotas[member_id] - len(given)
            if wanted:
                open_ones = [each for each in self._partitions if missing[each] and each not in given]
                for each in sorted(open_ones, key=lambda each: -missing[each])[:wanted]:
                    self._give(member_id, each)
                    missing[each] -= 1
                for _ in range(self._quotas[member_id] - len(given)):
                    self._exchange(member_id, next(each for each in self._partitions if missing[each]), missing)

    def _exchange(self, member_id: str, offered: _TopicPartition, missing: dict[_TopicPartition, int]) -> None:
        """Give `offered`, which the member has already, to another one, for a partition that the member has not."""
        mine = self.given[member_id]
        for other_id, theirs in self.given.items():
            exchanged = () if offered in theirs else theirs - mine
            if exchanged:
                self._unassign(other_id, min(exchanged))
                self._give(other_id, offered)
                self._give(member_id, min(exchanged))
                missing[offered] -= 1
                return

    def _unassign(self, member_id: str, each: _TopicPartition) -> None:
        self.given[member_id].remove(each)
        self._counts[each] -= 1

    def _give(self, member_id: str, each: _TopicPartition) -> None:
        self.given[member_id].add(each)
        self._counts[each] += 1


_ROUNDS_MAX = 16
"""Kafka's bound of the rounds over all topics in which partitions are moved between members."""

_Target = dict[bytes, set[int]]


class UniformAssignor:
    """Keeps what members have, up to the number that every member gets, and gives the rest to those with fewer."""

    name = "uniform"

    def assign(self, group: GroupSpec, topics: SubscribedTopicDescriber) -> GroupAssignment:
        partitions = subscribed_partitions(group, topics)
        if group.subscription_type is SubscriptionType.HOMOGENEOUS:
            targets = _equal_subscriptions(group, partitions)
        else:
            targets = _MixedSubscriptions(group, partitions).targets()
        return GroupAssignment(
            members={member_id: _share_target(group, member_id, targets) for member_id in group.members}
        )


def _share_target(group: GroupSpec, member_id: str, targets: Mapping[str, _Target]) -> Partitions:
    """Return the former target of the member if it is not changed."""
    former = group.members[member_id].partitions
    target = {topic_id: numbers for topic_id, numbers in targets[member_id].items() if numbers}
    if former == target:
        return former
    return {topic_id: frozenset(numbers) for topic_id, numbers in target.items()}


def _retain(group: GroupSpec, member_id: str, free: _Target) -> _Target:
    """Take the partitions that the member has and subscribes to out of `free`, and return them."""
    member = group.members[member_id]
    retained: _Target = {}
    for topic_id, numbers in member.partitions.items():
        if topic_id in free and topic_id in member.subscribed_topic_ids:
            still = free[topic_id] & numbers
            if still:
                retained[topic_id] = still
                free[topic_id] -= still
    return retained


def _size(target: _Target) -> int:
    return sum(map(len, target.values()))


def _equal_subscriptions(group: GroupSpec, partitions: Mapping[bytes, Sequence[int]]) -> dict[str, _Target]:
    if not group.members:
        return {}
    free = {topic_id: set(numbers) for topic_id, numbers in partitions.items()}
    least, extras = divmod(_size(free), len(group.members))
    targets = {member_id: _retain(group, member_id, free) for member_id in group.members}
    sizes = {member_id: _size(target) for member_id, target in targets.items()}
    quotas = dict.fromkeys(targets, least)
    # Those that have more already come first: each of them keeps one partition more with it.
    for member_id in sorted(targets, key=lambda each: sizes[each] <= least)[:extras]:
        quotas[member_id] += 1
    for member_id, target in targets.items():
        for topic_id, number in _surplus(target, sizes[member_id] - quotas[member_id]):
            free[topic_id].add(number)
    rest = ((topic_id, number) for topic_id, numbers in free.items() for number in sorted(numbers))
    for member_id, target in targets.items():
        for _ in range(quotas[member_id] - _size(target)):
            topic_id, number = next(rest)
            target.setdefault(topic_id, set()).add(number)
    return targets


def _surplus(target: _Target, count: int) -> Iterator[tuple[bytes, int]]:
    """Take the last `count` partitions out of the target."""
    for topic_id in sorted(target, reverse=True) if count > 0 else ():
        for number in sorted(target[topic_id], reverse=True)[:count]:
            target[topic_id].remove(number)
            count -= 1
            yield topic_id, number
        if not count:
            break


class _Audience:
    """The members that subscribe to a topic, shared by all topics with equal subscribers."""

    def __init__(self, places: Sequence[int], sizes: Sequence[int]) -> None:
        self.places = places
        self.partitions = 0
        """The number of partitions of all its topics."""
        self._sizes = sizes
        self._heap: list[tuple[int, int]] | None = None
        self._smallest = (-1, 0)

    def to_fill(self) -> int:
        """Return the place of a member with the fewest partitions. Between calls, numbers of partitions only grow."""
        if self.partitions == 1:
            return min(self.places, key=self._sizes.__getitem__)
        if self._heap is None:
            self._heap = [(self._sizes[place], place) for place in self.places]
            heapify(self._heap)
        while True:
            size, place = self._heap[0]
            if size == self._sizes[place]:
                return place
            heapreplace(self._heap, (self._sizes[place], place))

    def smallest(self, moves: int) -> int:
        """Return the smallest number of partitions after that many moves."""
        if self._smallest[0] != moves:
            self._smallest = (moves, min(map(self._sizes.__getitem__, self.places)))
        return self._smallest[1]


class _MixedSubscriptions:
    """Members are known by their places in the order of the group."""

    def __init__(self, group: GroupSpec, partitions: Mapping[bytes, Sequence[int]]) -> None:
        self._group = group
        self._ids = list(group.members)
        free = {topic_id: set(numbers) for topic_id, numbers in partitions.items()}
        self._targets = [_retain(group, member_id, free) for member_id in self._ids]
        self._sizes = [_size(target) for target in self._targets]
        self._owners: dict[bytes, set[int]] = defaultdict(set)
        """The members that have partitions of a topic."""
        for place, target in enumerate(self._targets):
            for topic_id in target:
                self._owners[topic_id].add(place)
        self._audiences = self._find_audiences(partitions)
        self._moves = 0
        self._new: dict[bytes, set[int]] = defaultdict(set)
        """Partitions whose present owners have not had them before: they are moved first."""

        def weight(topic_id: bytes) -> tuple[float, int, bytes]:
            """Topics whose partitions weigh most on their subscribers come first; the others can make up for them."""
            subscribers = len(self._audiences[topic_id].places)
            return (-len(partitions[topic_id]) / subscribers, subscribers, topic_id)

        order = sorted(partitions, key=weight)
        for topic_id in order:
            self._hand_out(topic_id, sorted(free[topic_id]))
        for _ in range(_ROUNDS_MAX):
            moves = self._moves
            self._even_out([topic_id for topic_id in order if self._new[topic_id]], only_new=True)
            self._even_out(order, only_new=False)
            if moves == self._moves:  # otherwise further moves may have become possible
                break

    def targets(self) -> dict[str, _Target]:
        return dict(zip(self._ids, self._targets, strict=True))

    def _find_audiences(self, partitions: Mapping[bytes, Sequence[int]]) -> dict[bytes, _Audience]:
        classes: dict[AbstractSet[bytes], list[int]] = {}
        for place, member_id in enumerate(self._ids):
            classes.setdefault(self._group.members[member_id].subscribed_topic_ids, []).append(place)
        readers: dict[bytes, list[int]] = {topic_id: [] for topic_id in partitions}
        for number, subscription in enumerate(classes):
            for topic_id in readers.keys() & subscription:
                readers[topic_id].append(number)
        members = list(classes.values())
        audiences: dict[tuple[int, ...], _Audience] = {}
        found: dict[bytes, _Audience] = {}
        for topic_id, numbers in readers.items():
            key = tuple(numbers)
            if key not in audiences:
                places = [place for number in numbers for place in members[number]]
                audiences[key] = _Audience(places, self._sizes)
            audiences[key].partitions += len(partitions[topic_id])
            found[topic_id] = audiences[key]
        return found

    def _hand_out(self, topic_id: bytes, numbers: Sequence[int]) -> None:
        """Give each partition to the subscriber with the fewest."""
        for number in numbers:
            place = self._audiences[topic_id].to_fill()
            self._targets[place].setdefault(topic_id, set()).add(number)
            self._owners[topic_id].add(place)
            self._new[topic_id].add(number)
            self._sizes[place] += 1

    def _even_out(self, order: Sequence[bytes], *, only_new: bool) -> None:
        smallest = min(self._sizes)
        for topic_id in order:
            largest = max(map(self._sizes.__getitem__, self._owners[topic_id]))
            # The first test is for the second one, which looks at all subscribers.
            if largest - smallest > 1 and largest - self._audiences[topic_id].smallest(self._moves) > 1:
                self._balance(topic_id, only_new=only_new)

    def _balance(self, topic_id: bytes, *, only_new: bool) -> None:
        """Move partitions of one topic from the largest target to the smallest until they differ by at most one."""
        sizes, owners = self._sizes, self._owners[topic_id]
        low = [(sizes[place], place) for place in self._audiences[topic_id].places]
        high = [(-sizes[place], place) for place in owners]
        heapify(low)
        heapify(high)
        while high and -high[0][0] - low[0][0] > 1:
            giver, taker = high[0][1], low[0][1]
            numbers = self._targets[giver][topic_id]
            if not (numbers & self._new[topic_id] if only_new else numbers):
                heappop(high)
            elif -high[0][0] != sizes[giver]:
                heapreplace(high, (-sizes[giver], giver))
            elif low[0][0] != sizes[taker]:
                heapreplace(low, (sizes[taker], taker))
            else:
                self._move(topic_id, giver, taker)
        owners.difference_update([place for place in owners if not self._targets[place][topic_id]])

    def _move(self, topic_id: bytes, giver: int, taker: int) -> None:
        number = self._choice(topic_id, giver, taker)
        self._targets[giver][topic_id].remove(number)
        self._targets[taker].setdefault(topic_id, set()).add(number)
        self._owners[topic_id].add(taker)
        self._sizes[giver] -= 1
        self._sizes[taker] += 1
        self._moves += 1
        if number in self._former(taker, topic_id):
            self._new[topic_id].discard(number)
        else:
            self._new[topic_id].add(number)

    def _choice(self, topic_id: bytes, giver: int, taker: int) -> int:
        """Return the partition to move: one that the taker had before, else one that the giver had not."""
        numbers = self._targets[giver][topic_id]
        new = numbers & self._new[topic_id]
        for candidates in (new & self._former(taker, topic_id), new):
            if candidates:
                return max(candidates)
        return max(numbers)

    def _former(self, place: int, topic_id: bytes) -> AbstractSet[int]:
        return self._group.members[self._ids[place]].partitions.get(topic_id, frozenset())


class ServerRangeAssignor:
    """Divides each topic on its own: equal partitions of equally subscribed topics go to one member, for joins.

    The first members get one partition more where a topic cannot be divided. Static members come first, by their
    instance ids: they keep their places when they return under another member id.
    """

    name = "range"

    def assign(self, group: GroupSpec, topics: SubscribedTopicDescriber) -> GroupAssignment:
        members: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in group.members}
        subscribers = self._subscribers(group)
        for topic_id, partitions in subscribed_partitions(group, topics).items():
            readers = subscribers[topic_id]
            least, extras = divmod(len(partitions), len(readers))
            start = 0
            for place, member_id in enumerate(readers):
                end = start + least + (place < extras)
                if end == start:
                    break
                members[member_id][topic_id] = frozenset(partitions[start:end])
                start = end
        targets: dict[str, Partitions] = {}
        for member_id, target in members.items():
            former = group.members[member_id].partitions
            targets[member_id] = former if former == target else target
        return GroupAssignment(members=targets)

    def _subscribers(self, group: GroupSpec) -> dict[bytes, Sequence[str]]:
        """Return the members of each topic in the order in which they get partitions."""

        def place(member_id: str) -> tuple[bool, str, str]:
            instance_id = group.members[member_id].instance_id
            return (instance_id is None, instance_id or "", member_id)

        subscribers: dict[bytes, list[str]] = defaultdict(list)
        for member_id in sorted(group.members, key=place):
            for topic_id in group.members[member_id].subscribed_topic_ids:
                subscribers[topic_id].append(member_id)
        return dict(subscribers)
