"""The assignor of share groups (Kafka: `SimpleAssignor`, KIP-932): members share partitions if there are more members.

With equal subscriptions all partitions are shared out at once, otherwise each topic among its own subscribers. Every
partition has ⌈members / partitions⌉ members, so one if there are enough partitions; no member has two partitions more
than another.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from .assignor import (
    GroupAssignment,
    GroupSpec,
    Partitions,
    SubscribedTopicDescriber,
    SubscriptionType,
    subscribed_partitions,
)

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
                    self._take(member_id, each)
        for member_id, given in reversed(self.given.items()):
            for each in [each for each in given if self._counts[each] > self._copies]:
                self._take(member_id, each)

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
                self._take(other_id, min(exchanged))
                self._give(other_id, offered)
                self._give(member_id, min(exchanged))
                missing[offered] -= 1
                return

    def _take(self, member_id: str, each: _TopicPartition) -> None:
        self.given[member_id].remove(each)
        self._counts[each] -= 1

    def _give(self, member_id: str, each: _TopicPartition) -> None:
        self.given[member_id].add(each)
        self._counts[each] += 1
