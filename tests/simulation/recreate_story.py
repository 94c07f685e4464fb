"""A topic that a group reads is deleted and made again, over and over, between disasters: one seed, played."""

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from simulation.cluster_checker import OFFSETS, Broken
from simulation.cluster_story import REPAIRED_WITHIN, ClusterStory

from barnabas import Admin, Consumer, Producer
from barnabas.core.tree.tree import Change
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.types import TopicPartition
from barnabas.simulation import Disasters, Program

REBORN = "reborn"
READERS = "readers of reborn"
PARTITIONS = 2
LAST = 20
"""Messages of the last topic, in calm."""
CALLS: dict[str, Any] = {"request_timeout_ms": 2000, "default_api_timeout_ms": 5000, "retry_backoff_ms": 50}


@define
class Lives:
    """The known topics of this name. Each life is a number, in the order of their creation; a message says
    of which life it is."""

    last: int = 0
    acknowledged: set[tuple[int, int, int]] = field(factory=set)
    """The life, the partition and the offset of messages with acks=all."""
    read: dict[tuple[int, int], int] = field(factory=dict)
    """By life and partition: the offset after the last one that the group was given."""
    ids: dict[int, bytes] = field(factory=dict)
    """By life: the topic's id."""
    deleted: set[bytes] = field(factory=set)
    """The ids of the topics that were to be deleted."""
    by_member: dict[tuple[str, int, int], int] = field(factory=dict)
    """By member with its start, and partition: the life that it reads."""

    def observe(self, member: str, start: int, partition: int, offset: int, value: bytes) -> None:
        """A member of the group is given a message. Raises `Broken`."""
        life = int(value.split()[0])
        what = f"offset {offset} of partition {partition} of the topic's life {life}"
        if life > self.last:
            raise Broken(f"unexpected: {member} is given {what}, of {self.last}")
        before = self.by_member.get((member, start, partition), 0)
        if life < before:
            raise Broken(f"names: {member} is given {what}, after some of life {before}")
        self.by_member[member, start, partition] = life
        reached = self.read.get((life, partition), 0)
        if offset > reached:
            raise Broken(f"group: {member} is given {what}; {reached} comes next")
        self.read[life, partition] = max(reached, offset + 1)


class LiveMember:
    """A consumer of the group, which commits what it has read. It stays while the topic is deleted and made again."""

    def __init__(self, lives: Lives) -> None:
        self._lives = lives

    def run(self, program: Program) -> None:
        with Consumer(
            program,
            group_id=READERS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=3000,
            heartbeat_interval_ms=500,
            max_poll_interval_ms=10_000,
            metadata_max_age_ms=1000,
            allow_auto_create_topics=False,
            **CALLS,
        ) as consumer:
            consumer.subscribe(REBORN)
            while True:
                for message in consumer.poll_many(50, timeout=0.3):
                    assert message.value is not None
                    self._lives.observe(program.name, program.lives, message.partition, message.offset, message.value)
                try:
                    consumer.commit(timeout=2.0)
                except BarnabasError:
                    continue  # nothing was promised


class Maker:
    """Makes the topic, writes some messages, and deletes it a little later."""

    def __init__(self, lives: Lives) -> None:
        self._lives = lives

    def run(self, program: Program) -> None:
        chance = program.world.entropy.child(f"maker {program.lives}")
        with Admin(program, **CALLS) as admin:
            while True:
                make(admin, program, self._lives)
                with producer_of(program) as producer:
                    write(producer, self._lives, 1 + chance.below(8))
                program.sleep((0.05, 0.5, 2.0)[chance.below(3)] * chance.fraction())
                delete(admin, self._lives, self._lives.ids[self._lives.last])
                program.world.reached["names: a topic deleted while its group reads"] += 1
                program.sleep((0.0, 0.0, 1.0)[chance.below(3)] * chance.fraction())


def producer_of(program: Program) -> Producer:
    """Return a producer for one life of the topic."""
    return Producer(
        program,
        acks="all",
        delivery_timeout_ms=4000,
        request_timeout_ms=2000,
        max_block_ms=2000,
        allow_auto_create_topics=False,
        retry_backoff_ms=50,
    )


def make(admin: Admin, program: Program, lives: Lives) -> None:
    """Make the topic, which begins another life. It may take some attempts, while an earlier one is being deleted."""
    lives.last += 1
    while True:
        try:
            made = admin.create_topic(REBORN, partitions=PARTITIONS)
            lives.ids[lives.last] = made.topic_id
            return
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            known = admin.describe_topics([REBORN]) if REBORN in admin.list_topics() else []
            for topic in known:
                delete(admin, lives, topic.topic_id)
            program.sleep(0.1)


def delete(admin: Admin, lives: Lives, topic_id: bytes) -> None:
    """Delete the topic with this id, and no later one of its name."""
    lives.deleted.add(topic_id)
    try:
        admin.delete_topics(topic_ids=[topic_id])
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_ID:
            raise


def write(producer: Producer, lives: Lives, count: int) -> None:
    """Write messages into each partition of the present topic, and wait for the answers. Raises `BarnabasError`."""
    life = lives.last
    values = [(number % PARTITIONS, b"%d %d" % (life, number)) for number in range(count * PARTITIONS)]
    sent = [producer.send(REBORN, value, partition=partition) for partition, value in values]
    for result in sent:
        message = result.result(10)
        lives.acknowledged.add((life, message.partition, message.offset))


class RecreateStory(ClusterStory):
    """A group of two that never stops reading, and a topic that comes and goes under it. No message of an earlier topic
    is given after one of a later topic, no offset is skipped, and in the end the group has read all of the last one."""

    name = "recreate"

    def __init__(self, seed: int, *, acts: Sequence[str] = ("elect",), **settings: Any) -> None:
        super().__init__(seed, acts=acts, **settings)
        self.lives = Lives()
        self._present = b""
        """The id of the topic in the tree; empty: there is none."""

    def _checked_topics(self) -> list[str]:
        return [REBORN, OFFSETS]

    def _play(self) -> None:
        world = self.world
        self.checker.watch()
        changed = world.tree.changed

        def tree_changed(changes: Sequence[Change]) -> None:
            if changed is not None:
                changed(changes)
            self._check_deletion()

        world.tree.changed = tree_changed
        for number in range(2):
            world.program(f"member-{number}", LiveMember(self.lives).run, restart_after=0.5)
        world.program("maker", Maker(self.lives).run, restart_after=0.5)
        self.disasters = Disasters(world, every=self.every, lasting=self.lasting, kinds=self.kinds, spared=["founder"])
        self.checker.brokers_with_losses = lambda: self.disasters.brokers_with_losses
        with self.disasters:
            world.run(self.seconds)
        self._end_story()

    def _check_deletion(self) -> None:
        """A topic goes only when it, by its id, was to be deleted."""
        topic = self.world.look.topics().get(REBORN)
        before, self._present = self._present, b"" if topic is None else topic.topic_id
        if before not in (b"", self._present) and before not in self.lives.deleted:
            raise Broken(f"names: the topic with the id {before.hex()} is deleted, and none asked for that")

    def _wait_until_stable(self) -> None:
        """All is well again: the topic is made once more, and the same consumers read it."""
        world = self.world
        world.programs["maker"].cut_power()
        self._mend_logs()
        self._await("all brokers are in sync", self._all_in_sync)
        rotten = len(self._rotten())
        self._await("what has rotten is repaired", self._nothing_is_rotten, REPAIRED_WITHIN)
        world.reached["rot: found and repaired"] += rotten
        founder = world.client("founder")
        with Admin(founder, default_api_timeout_ms=30_000) as admin:
            make(admin, founder, self.lives)
        with producer_of(founder) as producer:
            write(producer, self.lives, LAST // PARTITIONS)
        last = self.lives.last
        ends = {
            (life, partition): 1 + max(o for known, p, o in self.lives.acknowledged if (known, p) == (life, partition))
            for life, partition, _ in self.lives.acknowledged
            if life == last
        }
        self._await(
            "the group reads the topic made again",
            lambda: all(self.lives.read.get(key, 0) >= end for key, end in ends.items()),
        )
        with Admin(founder, default_api_timeout_ms=30_000) as admin:
            self._await("the group has committed what it has read", lambda: self._committed(admin) == self._ends(ends))

    def _committed(self, admin: Admin) -> dict[int, int]:
        found = admin.group_offsets(READERS)
        return {tp.partition: each.offset for tp, each in found.items() if tp.topic == REBORN}

    def _ends(self, ends: dict[tuple[int, int], int]) -> dict[int, int]:
        return {partition: self._end_of(TopicPartition(REBORN, partition)) for _, partition in ends}
