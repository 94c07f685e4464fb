"""A share group against a model: heartbeats in any order, calls that end late, coordinators that change."""

from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.long_tests import examples
from support.share_group_driver import Call, ShareGroupDriver

from barnabas.core.coordinator.group.share_group import ShareGroup
from barnabas.core.share.share_group_offset import ShareGroupOffset
from barnabas.ports.broker_api.share_group_offsets import (
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    SharePartitionStart,
)
from barnabas.ports.broker_api.share_groups import ShareGroupDescription
from barnabas.ports.broker_api.share_state import DeleteShareGroupState
from barnabas.ports.error_codes import ErrorCode

MEMBERS = ("m1", "m2", "m3")
TOPICS = ("t", "u")
USED = 1_000
"""The start offset of a share partition that members have read."""

_members, _topics = st.sampled_from(MEMBERS), st.sampled_from(TOPICS)


def described(group: ShareGroup) -> ShareGroupDescription:
    """Return what the group is, with its members in order."""
    found = group.describe()
    return evolve(found, members=sorted(found.members, key=lambda each: each.member_id))


class ShareGroupMachine(RuleBasedStateMachine):
    """Members say the epoch that they got last; the answer may be lost on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = ShareGroupDriver()
        self.driver.is_automatic = False
        self.epochs: dict[str, int] = {}
        self.assignments: dict[str, dict[bytes, set[int]]] = {}
        self.late: list[Call] = []
        """Calls that were reported as failed, and may arrive later."""
        self.highest = 0
        self.used: set[tuple[bytes, int]] = set()
        """The share partitions that members have read since the state began."""

    @initialize(counts=st.tuples(st.integers(0, 3), st.integers(0, 3)))
    def create(self, counts: tuple[int, int]) -> None:
        for name, count in zip(TOPICS, counts, strict=True):
            if count:
                self.driver.topics.create(name, count)

    # --- members

    @rule(member=_members, topics=st.sets(_topics, min_size=1), lost=st.booleans())
    def join(self, member: str, topics: set[str], lost: bool) -> None:
        self._beat(member, 0, *sorted(topics), lost=lost)

    @precondition(lambda self: self.epochs)
    @rule(data=st.data(), topics=st.none() | st.sets(_topics), lost=st.booleans())
    def heartbeat(self, data: st.DataObject, topics: set[str] | None, lost: bool) -> None:
        member = data.draw(st.sampled_from(sorted(self.epochs)))
        self._beat(member, self.epochs[member], *sorted(topics or ()), lost=lost)

    @precondition(lambda self: self.epochs)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.epochs)))
        result = self.driver.heartbeat(member, -1)
        assert result.error in (self.driver.write_error, ErrorCode.UNKNOWN_MEMBER_ID)
        self._forget(member)

    def _beat(self, member: str, epoch: int, *topics: str, lost: bool = False) -> None:
        result = self.driver.heartbeat(member, epoch, *topics)
        if result.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._forget(member)
        elif result.error is ErrorCode.NONE and not lost:
            self.epochs[member] = result.member_epoch
            if result.assignment is not None:
                self.assignments[member] = {each.topic_id: set(each.partitions) for each in result.assignment}
            self._read(member)
            assert self.assignments[member] == {
                topic_id: set(numbers) for topic_id, numbers in self.driver.group.members[member].assigned.items()
            }

    def _forget(self, member: str) -> None:
        self.epochs.pop(member, None)
        self.assignments.pop(member, None)

    # --- time, topics, writes

    @rule(ms=st.sampled_from([1, 500, 1000, 20_000, 45_000]))
    def wait(self, ms: int) -> None:
        self.driver.tick(ms)

    @rule(name=_topics, count=st.integers(1, 4))
    def create_or_grow(self, name: str, count: int) -> None:
        topics = self.driver.topics
        topic_id = topics.topic_id(name)
        if topic_id is None:
            topics.create(name, count)
        elif topics.num_partitions(topic_id) < count:
            topics.grow(name, count)

    @rule(name=_topics)
    def delete_topic(self, name: str) -> None:
        if name in self.driver.topics.names():
            self.driver.apply(self.driver.group.forget_topics([self.driver.topics.delete(name)]))

    @rule()
    def fail_writes(self) -> None:
        self.driver.write_error = ErrorCode.NOT_ENOUGH_REPLICAS

    @rule()
    def heal_writes(self) -> None:
        self.driver.write_error = ErrorCode.NONE

    @rule()
    def move(self) -> None:
        """Let another coordinator load the group; those calls that are on their way arrive when they like."""
        if not self.driver.group.is_stored:
            return
        self.late += self.driver.calls
        self.driver.calls.clear()
        self.driver.write_error = ErrorCode.NONE
        self.driver.move()
        self.highest = 0 if not self.driver.group.group_epoch else self.driver.group.group_epoch

    # --- the share coordinator

    @precondition(lambda self: self.driver.calls)
    @rule(data=st.data(), outcome=st.sampled_from(["ok", "failed", "failed and late"]))
    def end_call(self, data: st.DataObject, outcome: str) -> None:
        call = self.driver.calls.pop(data.draw(st.integers(0, len(self.driver.calls) - 1)))
        if outcome == "ok":
            if isinstance(call.effect.request, DeleteShareGroupState):
                self.used -= {(each.topic_id, each.partition) for each in call.effect.request.partitions}
            self.driver.end(call)
            return
        if outcome == "failed and late":
            self.late.append(call)
        self.driver.end(call, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        call = self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))
        if not isinstance(call.effect.request, DeleteShareGroupState):  # which has no epoch
            self.driver.arrive(call)

    # --- administration

    @rule(name=_topics, partition=st.integers(0, 3))
    def alter(self, name: str, partition: int) -> None:
        request = AlterShareGroupOffsets(group_id="g", partitions=[SharePartitionStart(name, partition, 7)])
        topic_id = self.driver.topics.topic_id(name) or b""
        calls = len(self.driver.calls)
        self.driver.apply(self.driver.group.alter_offsets(request, lambda _: None))
        if len(self.driver.calls) > calls:
            self.used.discard((topic_id, partition))

    @rule(name=_topics)
    def delete_offsets(self, name: str) -> None:
        request = DeleteShareGroupOffsets(group_id="g", topics=[name])
        topic_id = self.driver.topics.topic_id(name) or b""
        calls = len(self.driver.calls)
        self.driver.apply(self.driver.group.delete_offsets(request, lambda _: None))
        if len(self.driver.calls) > calls:
            self.used = {each for each in self.used if each[0] != topic_id}

    def _read(self, member: str) -> None:
        """Let a member read what it has: the state of these partitions must stay from now on."""
        for topic_id, numbers in self.assignments[member].items():
            for number in numbers & self.driver.group.initialized.get(topic_id, set()):
                self._use(topic_id, number)

    def _use(self, topic_id: bytes, number: int) -> None:
        for key, state in self.driver.persister.offsets.items():
            if (key.topic_id, key.partition) == (topic_id, number):
                self.driver.persister.offsets[key] = ShareGroupOffset(state_epoch=state.state_epoch, start_offset=USED)
                self.used.add((topic_id, number))

    # --- what always holds

    @invariant()
    def epochs_grow(self) -> None:
        group = self.driver.group
        assert group.group_epoch >= self.highest
        self.highest = group.group_epoch
        assert group.target_epoch <= group.group_epoch
        assert all(each.member_epoch <= group.target_epoch for each in group.members.values())

    @invariant()
    def no_partition_is_in_two_states(self) -> None:
        group = self.driver.group
        for topic_id, numbers in group.initialized.items():
            assert numbers
            assert not numbers & group.initializing.get(topic_id, set())
            assert topic_id not in group.deleting

    @invariant()
    def a_partition_in_use_never_begins_again(self) -> None:
        """Otherwise records that were acknowledged would be delivered again."""
        known = {(key.topic_id, key.partition): state for key, state in self.driver.persister.offsets.items()}
        for topic_id, number in self.used:
            if number in self.driver.group.initialized.get(topic_id, ()):
                assert known[topic_id, number].start_offset == USED

    @invariant()
    def the_log_has_the_group(self) -> None:
        driver = self.driver
        if driver.group._unwritten or not driver.group.is_stored:
            return
        loaded = ShareGroup.restored("g", driver.context, driver.loaded(), driver.now_ms)
        assert described(loaded) == described(driver.group)
        assert (loaded.initialized, loaded.initializing) == (driver.group.initialized, driver.group.initializing)
        assert loaded.deleting == driver.group.deleting
        assert {each: target for each, target in loaded.target.items() if target} == {
            each: target for each, target in driver.group.target.items() if target
        }

    def teardown(self) -> None:
        """In the end everything settles: each partition of each subscribed topic has a reader, and no other has."""
        driver = self.driver
        driver.write_error = ErrorCode.NONE
        driver.is_automatic = True
        for _ in range(8):
            driver.end_calls()
            driver.tick(1000)
            for name in list(self.epochs):
                self._beat(name, self.epochs[name])
        group = driver.group
        for member_id, member in group.members.items():
            if member_id not in self.epochs:
                continue  # its session is going to end
            for topic_id in member.assigned:
                assert driver.topics.topic_name(topic_id) in member.subscribed_topic_names
        if len(self.epochs) == len(group.members):
            for name in {name for each in group.members.values() for name in each.subscribed_topic_names}:
                known_id = driver.topics.topic_id(name)
                if known_id is not None:
                    read = {number for each in group.members.values() for number in each.assigned.get(known_id, ())}
                    assert read == set(range(driver.topics.num_partitions(known_id)))


ShareGroupMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestShareGroup = ShareGroupMachine.TestCase
