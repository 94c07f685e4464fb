"""Clients that each ask one broker, over and over, and compare: no answer may be older than one that was given before.

A leader that was replaced, and has not heard of it yet, may answer by what it knows for a moment. A coordinator whose
registration has ended may not answer at all.
"""

from attrs import define, field
from simulation.actors import Actor
from simulation.client import TOPIC
from simulation.cluster_checker import Broken, ClusterChecker

from barnabas.core.coordinator.table import partition_of
from barnabas.ports.broker_api.groups import (
    DescribeGroups,
    DescribeGroupsResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
)
from barnabas.ports.broker_api.offsets import LATEST, ListOffsets, ListOffsetsPartition, ListOffsetsResult
from barnabas.ports.error_codes import ErrorCode

HEARS_WITHIN_MS = 3_000.0
"""A live broker that was replaced as leader knows it after this time: its session is shorter."""


@define
class Given:
    """The newest answer by subject, and when it was given first."""

    newest: dict[object, list[tuple[float, int]]] = field(factory=dict)

    def give(self, subject: object, value: int, now_ms: float) -> None:
        known = self.newest.setdefault(subject, [])
        if not known or value > known[-1][1]:
            known.append((now_ms, value))

    def before(self, subject: object, now_ms: float) -> int:
        """Return the newest answer before this time; -1: none."""
        return max((value for given_ms, value in self.newest.get(subject, ()) if given_ms < now_ms), default=-1)


class Probe(Actor):
    """Asks one broker for the ends of the partitions and for the positions of a group."""

    def __init__(self, checker: ClusterChecker, broker_id: int, given: Given, partitions: int, group: str) -> None:
        world = checker.world
        self.broker_id = broker_id
        self.answers = 0
        self._checker = checker
        self._given = given
        self._partitions = partitions
        self._group = group
        self._asked_ms = 0.0
        self._leads: dict[int, int] = {}
        """The partitions that the broker led when it was asked, and knew it, with the leader epoch."""
        self._ended_epoch = -1
        """The life of the broker that was asked, if its registration had ended before; -1: it had not."""
        self.entropy = world.entropy.child(f"probe {broker_id}")
        super().__init__(world, f"probe-{broker_id}", broker_id)

    def act(self) -> None:
        self._asked_ms = self.world.clock.monotonic_ms()
        self._ended_epoch = self._unregistered_epoch()
        self._leads = self._led()
        kind = self.entropy.below(3)
        if kind == 0:
            self.ask(DescribeGroups(group_ids=[self._group]), self._described)
        elif kind == 1:
            wanted = [ListOffsetsPartition(topic=TOPIC, partition=n, timestamp=LATEST) for n in range(self._partitions)]
            self.ask(ListOffsets(partitions=wanted), self._ends)
        else:
            self.ask(OffsetFetch(groups=[OffsetFetchGroup(group_id=self._group)]), self._positions)

    def _ends(self, result: ListOffsetsResult) -> None:
        for each in result.partitions:
            if each.error is ErrorCode.NONE:
                self._compare(("end", each.topic, each.partition), each.offset)
        self._again()

    def _positions(self, result: OffsetFetchResult) -> None:
        (group,) = result.groups
        if group.error is ErrorCode.NONE:
            count = int(str(self.world.brokers[self.broker_id].settings["offsets_topic_num_partitions"]))
            self._checker.check_answer_of_coordinator(self.broker_id, partition_of(self._group, count), self._asked_ms)
            answered = {each.partition: each.offset for each in group.partitions if each.topic == TOPIC}
            for number in range(self._partitions):
                self._compare(("position", self._group, number), answered.get(number, -1))
        self._again()

    def _described(self, result: DescribeGroupsResult) -> None:
        """A coordinator answers from memory: without the lease that may be out of date, so it does not."""
        (group,) = result.groups
        if group.error is ErrorCode.NONE and self._ended_epoch >= 0 and self._ended_epoch == self._unregistered_epoch():
            raise Broken(f"lease: broker {self.broker_id} speaks for {self._group}, and its registration has ended")
        self._again()

    def _again(self) -> None:
        self.answers += 1
        self.later(20 + self.entropy.below(100))

    def _compare(self, subject: tuple[object, ...], value: int) -> None:
        given, asked_ms = self._given, self._asked_ms
        newest = given.before(subject, asked_ms)
        given.give(subject, value, self.world.clock.monotonic_ms())
        if value >= newest:
            return
        kind, *about = subject
        what = f"broker {self.broker_id} answers {value} for {about}, after {newest} had been given"
        if kind == "end":
            number = int(str(about[-1]))
            if number in self._leads and self._leads[number] == self._led().get(number):
                raise Broken(f"stale {kind}: {what}; it leads in epoch {self._leads[number]}")
        if given.before(subject, asked_ms - HEARS_WITHIN_MS) > value:
            raise Broken(f"stale {kind}: {what} for {HEARS_WITHIN_MS:.0f} ms")
        if kind == "position" and self._ended_epoch >= 0 and self._ended_epoch == self._unregistered_epoch():
            raise Broken(f"stale {kind}: {what}, and its registration has ended")
        self.world.reached[f"answer: a {kind} of a leader that has not heard of the next one"] += 1

    def _led(self) -> dict[int, int]:
        """By partition the leader epoch in which the broker leads, in the coordination tree and by what it knows."""
        partitions = self.world.brokers[self.broker_id].partitions
        found = {}
        for number, state in self.world.look.states(TOPIC).items():
            partition = partitions.get((TOPIC, number)) if state.leader == self.broker_id else None
            if partition is not None and partition.is_leader and partition.leader_epoch == state.leader_epoch:
                found[number] = state.leader_epoch
        return found

    def _unregistered_epoch(self) -> int:
        broker = self.world.brokers[self.broker_id]
        registered = self.world.look.brokers().get(self.broker_id)
        if registered is not None and registered.broker_epoch == broker.epoch:
            return -1
        return -1 if any(session.ended_without_outage for session in broker.sessions) else broker.epoch
