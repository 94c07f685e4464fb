"""Consecutive partitions of each topic to each member (Kafka: `RangeAssignor`)."""

from collections import defaultdict
from collections.abc import Sequence

from .assignor import GroupAssignment, GroupSpec, Partitions, SubscribedTopicDescriber, subscribed_partitions


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
