"""Groups in short form for the assignors of coordinators: topics and partitions by name, members by letters."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from barnabas.core.coordinator.group.assignors import (
    GroupSpec,
    MemberSubscriptionAndAssignment,
    PartitionAssignor,
)

Named = Mapping[str, Mapping[str, AbstractSet[int]]]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def topic_name(topic: bytes) -> str:
    return topic.rstrip(b"\0").decode()


class Group:
    """`topics`: name → partitions. `members`: id → names of topics. `owned`: id → name of a topic → partitions."""

    def __init__(
        self,
        topics: Mapping[str, int],
        members: Mapping[str, str],
        *,
        owned: Named | None = None,
        instances: Mapping[str, str] | None = None,
        assignable: Mapping[str, AbstractSet[int]] | None = None,
    ) -> None:
        self._counts = {topic_id(name): count for name, count in topics.items()}
        self.spec = GroupSpec(
            members={
                member: MemberSubscriptionAndAssignment(
                    subscribed_topic_ids=frozenset(map(topic_id, names.split())),
                    partitions={topic_id(t): frozenset(p) for t, p in (owned or {}).get(member, {}).items()},
                    instance_id=(instances or {}).get(member),
                )
                for member, names in members.items()
            },
            assignable=None if assignable is None else {topic_id(t): p for t, p in assignable.items()},
        )

    def num_partitions(self, topic_id: bytes) -> int:
        return self._counts.get(topic_id, -1)

    def assign(self, assignor: PartitionAssignor) -> dict[str, dict[str, set[int]]]:
        members = assignor.assign(self.spec, self).members
        assert members.keys() == self.spec.members.keys()
        return {m: {topic_name(t): set(p) for t, p in parts.items()} for m, parts in members.items()}
