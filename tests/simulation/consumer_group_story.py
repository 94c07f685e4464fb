"""A consumer group by KIP-848 under seeded disasters: one seed, played."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulation.actors import Creator, Deleter, PartitionCreator
from simulation.client import TOPIC
from simulation.cluster_checker import OFFSETS, Broken
from simulation.group_actors import GROUP, SESSION_MS, GroupMember
from simulation.group_story import AGREED_WITHIN_MS, GroupStory

from barnabas.adapters.system import SeededEntropy
from barnabas.core.client.cluster_view import ViewSettings
from barnabas.core.coordinator.group.expressions import REFRESH_AFTER_CHANGE_MS
from barnabas.core.coordinator.table import partition_of
from barnabas.ports.errors import BarnabasError
from barnabas.ports.types import TopicPartition
from barnabas.simulation import SimulatedBroker, World
from barnabas.simulation.network import COORDINATION

FAILOVER_MS = 10_000
LASTING_MS = 2 * SESSION_MS + 500
"""A broker that is paused, and requests that are delayed, are so at most for this time."""
PATTERNS = ("sim.*", "sim(?!ple).*")
"""The coordinator finds the topics of the first one, and the member itself those of the second."""
CLUSTER_SETTINGS: Mapping[str, Any] = {
    "offsets_topic_replication_factor": 3,
    "default_replication_factor": 3,
    "min_insync_replicas": 2,
    "replica_lag_time_max_ms": 1500,
    "replica_fetch_wait_max_ms": 300,
    "zookeeper_session_timeout_ms": 2000,
}


class ConsumerGroupStory(GroupStory):
    """A group of members by KIP-848, some of them static, whose topic grows. The seed decides about three brokers,
    members with the classic protocol in the group, and members that read what matches a pattern, while topics come
    and go.
    """

    SETTINGS: Mapping[str, Any] = {
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_consumer_min_session_timeout_ms": SESSION_MS,
        "group_consumer_heartbeat_interval_ms": 200,
        "group_consumer_min_heartbeat_interval_ms": 200,
        "group_consumer_assignment_interval_ms": 300,
        "group_consumer_migration_policy": "bidirectional",
    }
    PARTITIONS_MAX = 6
    seconds = 15
    TOPICS_MAX = 3

    def __init__(
        self,
        seed: int,
        *,
        kinds: Sequence[str] = (),
        brokers: int = 0,
        mixed: bool | None = None,
        patterns: bool | None = None,
    ) -> None:
        """`mixed`: there are members with the classic protocol. 0 and None: as the seed has it."""
        chance = SeededEntropy(f"consumer group {seed}")
        by_seed = (1, 3)[chance.below(2)], chance.below(3) > 0, chance.below(2) == 0
        count = brokers or by_seed[0]
        self.mixed = by_seed[1] if mixed is None else mixed
        self.patterns = by_seed[2] if patterns is None else patterns
        self.topics: list[str] = []
        """Topics that are created and deleted."""
        self._topics_made = 0
        self._errands: list[Creator | Deleter | PartitionCreator] = []
        self._lives = self._lines_read = 0
        self._replaced_ms = 0.0
        self.agreed_within_ms = AGREED_WITHIN_MS
        self.agreed_within_ms += REFRESH_AFTER_CHANGE_MS if self.patterns else 0
        self.agreed_within_ms += FAILOVER_MS if count > 1 else 0
        super().__init__(seed, kinds=kinds, brokers=count)

    def make_world(self, seed: int, brokers: int, settings: Mapping[str, Any]) -> World:
        if brokers == 1:
            return super().make_world(seed, brokers, settings)
        return World(seed, brokers=brokers, session_seconds=2.0, **{**settings, **CLUSTER_SETTINGS})

    def begin(self) -> None:
        self.book.life = self._life
        self.protocol = self._some_protocol()

    def _some_protocol(self) -> str:
        return "classic" if self.mixed and self.entropy.below(2) else "consumer"

    def _life(self) -> int:
        """Count how often the group, when it had no members, was replaced by one of the other type: see `GroupBook`."""
        reports, now_ms = self.world.reports, self.world.clock.monotonic_ms()
        for line in reports[self._lines_read :]:
            if f"group {GROUP}: the empty " in line:
                self._lives += 1
                self._replaced_ms = now_ms
        self._lines_read = len(reports)
        is_new = self._lives > 0 and now_ms < self._replaced_ms + LASTING_MS
        return 2 * self._lives - is_new

    def settings_of_member(self) -> dict[str, Any]:
        return self._settings_of(f"static-{self.named}" if self.entropy.below(2) else None)

    def _settings_of(self, instance_id: str | None) -> dict[str, Any]:
        own: dict[str, Any] = {"group_protocol": self.protocol, "group_instance_id": instance_id}
        if self.mixed and self.entropy.below(4) == 0:
            own["group_protocol"] = self._some_protocol()
        if self.patterns and self.entropy.below(2):
            own["pattern"] = PATTERNS[self.entropy.below(2)]
        own["metadata"] = ViewSettings(
            metadata_max_age_ms=1_000, allow_auto_create=False
        )  # some members look for topics themselves
        return own

    @property
    def broker(self) -> SimulatedBroker:
        """The coordinator's broker, most of the time."""
        if not self.world.shared:
            return self.world.brokers[1]
        if self.entropy.below(3):
            return self._coordinator()
        return self.world.brokers[1 + self.entropy.below(len(self.world.brokers))]

    def _coordinator(self) -> SimulatedBroker:
        count = int(str(self.world.brokers[1].settings["offsets_topic_num_partitions"]))
        state = self.world.look.states(OFFSETS).get(partition_of(GROUP, count))
        return self.world.brokers[state.leader if state is not None and state.leader > 0 else 1]

    def fates(self) -> list[Callable[[], None]]:
        found = [*super().fates(), self.add_partition, self.return_static_member, self.cut_power_early]
        if self.world.shared:
            found += [self.isolate, self.kill, self.pause, self.expire]
        if self.mixed:
            found += [self.change_protocol, self.change_protocol, self.replace_all]
        if self.patterns:
            found += [self.add_topic, self.add_topic, self.delete_topic]
        return found

    # --- what happens to members and topics

    def add_partition(self) -> None:
        if self.partitions < self.PARTITIONS_MAX:
            self.partitions += 1
            name = f"creator of partition {self.partitions}"
            self._errands.append(PartitionCreator(self.world, name, self.partitions))

    def add_topic(self) -> None:
        """A name is used once: of a topic that is created again, the group has other positions."""
        if len(self.topics) < self.TOPICS_MAX:
            self._topics_made += 1
            topic = f"{TOPIC}.{self._topics_made}"
            self.topics.append(topic)
            replicas = len(self.world.brokers)
            name = f"creator of {topic}"
            self._errands.append(Creator(self.world, name, topic, partitions=1, replicas=replicas))

    def delete_topic(self) -> None:
        if self.topics:
            topic = self.topics.pop(self.entropy.below(len(self.topics)))
            creation = next(each for each in self._errands if each.name == f"creator of {topic}")
            if creation.active:
                self.topics.append(topic)
                return
            self.book.gone.add(topic)
            self._errands.append(Deleter(self.world, f"deleter of {topic}", topic))

    def cut_power_early(self) -> None:
        """Cut the power while some members have yet to give up what the next one is to get."""
        for member in self.members:
            member.is_slow = True
        self.vanish()
        self.world.scheduler.advance(200 + self.entropy.below(600))
        broker = self.broker
        broker.power_cut()
        self.world.scheduler.advance(self.entropy.below(300))
        broker.start()
        for member in self.members:
            member.is_slow = False

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
        self._hire_again(member)

    def _hire_again(self, former: GroupMember) -> None:
        self.named += 1
        self.add_member(self._settings_of(former.instance_id))

    def add_member(self, own: dict[str, Any]) -> GroupMember:
        member = super().add_member(own)
        if self.mixed and own["group_protocol"] == "classic":
            member.on_fenced = self._replace_fenced
        return member

    def _replace_fenced(self, member: GroupMember, error: BarnabasError) -> None:
        """A join that arrives late takes the place of a static member with the classic protocol, in Kafka too."""
        assert member.instance_id is not None and not member.is_quick, error
        member.vanish()
        if member in self.members:
            self.members.remove(member)
            self._hire_again(member)

    def change_protocol(self) -> None:
        """Let one member after the other be replaced by one with the other protocol, as in a rolling upgrade."""
        self.protocol = "consumer" if self.protocol == "classic" else "classic"
        for member in list(self.members):
            self.members.remove(member)
            if self.entropy.below(4):
                member.leave()
            else:
                member.vanish()
            self.world.scheduler.advance(self.entropy.below(600))
            self._hire_again(member)

    def replace_all(self) -> None:
        """Let the group have no members for a while, but perhaps those that it has not missed yet."""
        self.protocol = self._some_protocol()
        for member in self.members:
            if self.entropy.below(4):
                member.leave()
            else:
                member.vanish()
        self.world.scheduler.advance(self.entropy.below(2 * SESSION_MS))
        former, self.members = self.members, []
        for member in former:
            self._hire_again(member)

    # --- what happens to brokers of a cluster

    def isolate(self) -> None:
        """Cut a broker off from the others, from the coordination service, or from both; or from members, too."""
        broker, network = self.broker, self.world.network
        brokers = [each for each in self.world.brokers if each != broker.broker_id]
        members = [member.name for member in self.members]
        alone = [*brokers, COORDINATION]
        cuts = ([COORDINATION], brokers, alone, alone, [*alone, *members])
        network.partition(broker.broker_id, *cuts[self.entropy.below(len(cuts))])
        if self.entropy.below(2):  # what the broker decides now, it cannot store
            self.world.scheduler.advance(self.entropy.below(500))
            self.leave()
        self.world.scheduler.advance(500 + self.entropy.below(3500))
        network.heal_all()

    def kill(self) -> None:
        broker = self.broker
        broker.kill()
        self.world.scheduler.advance(self.entropy.below(4000))
        broker.start()

    def pause(self) -> None:
        self.broker.pause((200 + self.entropy.below(2800)) / 1000)

    def expire(self) -> None:
        self.world.coordination.expire(self.broker.broker_id)

    # --- calm

    def expected(self) -> list[TopicPartition]:
        found = super().expected()
        if any(member.pattern for member in self.members):
            found += [TopicPartition(topic, 0) for topic in self.topics]
        return sorted(found)

    def wait_until_stable(self) -> None:
        for member in self.members:
            member.is_quick = True
        self.world.scheduler.advance(LASTING_MS)
        for broker in self.world.brokers.values():
            if broker.disk_failed:
                broker.restart()
        self.await_condition("brokers work", lambda: all(each.running for each in self.world.brokers.values()))
        self.await_condition("topics are as wanted", lambda: not any(each.active for each in self._errands))
        super().wait_until_stable()

    def check_calm(self) -> None:
        """A member that all answer for stays in the group when its coordinator is restarted, or moves."""
        before = [(member.membership.member_id, member.losses) for member in self.members]
        broker = self._coordinator()
        broker.power_cut()
        self.world.scheduler.advance(self.entropy.below(1500))
        broker.start()
        self.world.scheduler.advance(SESSION_MS)
        self.await_condition("the coordinator serves", self.agreed)
        for member, known in zip(self.members, before, strict=True):
            if (member.membership.member_id, member.losses) != known:
                raise Broken(f"out: {member.name} had to join again after its coordinator was restarted")
