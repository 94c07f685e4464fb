"""Equal numbers of partitions to all members, moving few of them (Kafka: `UniformAssignor`).

With equal subscriptions no assignment is more even, and none as even moves fewer partitions. With mixed subscriptions
no single partition can be moved to a subscriber that would have fewer partitions afterwards than its present owner has.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heapreplace

from .assignor import (
    GroupAssignment,
    GroupSpec,
    Partitions,
    SubscribedTopicDescriber,
    SubscriptionType,
    subscribed_partitions,
)

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
        return GroupAssignment(members={member_id: _target(group, member_id, targets) for member_id in group.members})


def _target(group: GroupSpec, member_id: str, targets: Mapping[str, _Target]) -> Partitions:
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
