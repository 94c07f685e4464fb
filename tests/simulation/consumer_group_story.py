"""A consumer group by KIP-848 under seeded disasters: one seed, played."""

from collections.abc import Callable, Mapping
from typing import Any

from simulation.actors import PartitionCreator
from simulation.group_actors import SESSION_MS, GroupMember
from simulation.group_story import GroupStory


class ConsumerGroupStory(GroupStory):
    """The same with members by KIP-848, some of them static; and the topic grows."""

    SETTINGS: Mapping[str, Any] = {
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_consumer_min_session_timeout_ms": SESSION_MS,
        "group_consumer_heartbeat_interval_ms": 200,
        "group_consumer_min_heartbeat_interval_ms": 200,
        "group_consumer_assignment_interval_ms": 300,
    }
    PARTITIONS_MAX = 6

    def settings_of_member(self) -> dict[str, Any]:
        instance_id = f"static-{self.named}" if self.entropy.below(2) else None
        return {"group_protocol": "consumer", "group_instance_id": instance_id}

    def fates(self) -> list[Callable[[], None]]:
        return [*super().fates(), self.add_partition, self.return_static_member]

    def add_partition(self) -> None:
        if self.partitions < self.PARTITIONS_MAX:
            self.partitions += 1
            PartitionCreator(self.world, f"creator of partition {self.partitions}", self.partitions)

    def return_static_member(self) -> None:
        """Stop a static member, and start it again with another member id, before its session ends or after."""
        static = [member for member in self.members if member.instance_id is not None]
        if not static:
            return
        member = static[self.entropy.below(len(static))]
        self.members.remove(member)
        if self.entropy.below(2):
            member.leave()
            self.world.scheduler.advance(self.entropy.below(2 * SESSION_MS))
        else:
            member.vanish()
        self.named += 1
        own = {"group_protocol": "consumer", "group_instance_id": member.instance_id}
        self.members.append(GroupMember(self.world, f"member-{self.named}", self.book, self.assignor, **own))
