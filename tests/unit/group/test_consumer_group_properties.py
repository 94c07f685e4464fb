"""Any order of events: no partition has two owners, no member is stopped without need, and the group comes to rest."""

from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.group_harness import ID, OTHER_ID, Harness
from support.long_tests import examples
from support.modern_members import ModernMember, run_until_idle

from barnabas.core.coordinator.group.consumer_group import ConsumerGroup
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupDescription
from barnabas.ports.error_codes import ErrorCode

_NAMES = st.sampled_from([["t"], ["u"], ["t", "u"], ["t", "w"]])
_MOST = 6
_IDS = {"t": ID, "u": OTHER_ID, "w": b"w" * 16}
_AGAIN_ID = b"a" * 16


class GroupMachine(RuleBasedStateMachine):
    """Members join, leave, lose answers, are slow, and lapse; topics change; the coordinator fails and moves."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = self._new_harness(Harness())
        self.members: list[ModernMember] = []
        self.count = 0

    def _new_harness(self, harness: Harness, topics: dict[str, int] | None = None) -> Harness:
        harness.topics = {"t": 5, "u": 3} if topics is None else topics
        harness.topic_ids = dict(_IDS)
        return harness

    @initialize()
    def start(self) -> None:
        self.join(["t"], is_terse=False)

    @property
    def group(self) -> ConsumerGroup | None:
        entry = self.harness.coordinator._table.get("g")
        group = None if entry is None else entry.group
        return group if isinstance(group, ConsumerGroup) else None

    def alive(self) -> list[ModernMember]:
        """Return the members that the group knows: an expired client has to give up by its own clock."""
        group = self.group
        known = {} if group is None else group.members
        return [each for each in self.members if each.epoch == 0 or each.member_id in known]

    # --- events

    @precondition(lambda self: len(self.members) < _MOST)
    @rule(topics=_NAMES, is_terse=st.booleans())
    def join(self, topics: list[str], is_terse: bool) -> None:
        self.count += 1
        member = ModernMember(self.harness, f"m{self.count}", topics, is_terse=is_terse)
        self.members.append(member)
        member.beat()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), is_lost=st.booleans(), gives_up=st.booleans())
    def beat(self, data: st.DataObject, is_lost: bool, gives_up: bool) -> None:
        member = data.draw(st.sampled_from(self.members))
        member.beat(is_lost=is_lost, gives_up=gives_up)

    @precondition(lambda self: self.members)
    @rule(are_lost=st.booleans())
    def all_beat(self, are_lost: bool) -> None:
        for member in self.members:
            member.beat(is_lost=are_lost)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), topics=_NAMES)
    def subscribe(self, data: st.DataObject, topics: list[str]) -> None:
        member = data.draw(st.sampled_from(self.members))
        member.topics = topics
        member.beat()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), says_so=st.booleans())
    def leave(self, data: st.DataObject, says_so: bool) -> None:
        member = data.draw(st.sampled_from(self.members))
        self.members.remove(member)
        if says_so:
            self.harness.beat(member.member_id, -1)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def join_again(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        member.fenced()
        member.beat()

    @rule(ms=st.sampled_from([100, 1_000, 5_000, 21_000, 46_000]))
    def pass_time(self, ms: float) -> None:
        self.harness.pass_time(ms)

    @rule(name=st.sampled_from(["t", "u", "w"]), count=st.integers(0, 7))
    def change_topic(self, name: str, count: int) -> None:
        if count > self.harness.topics.get(name, 0):
            self.harness.topics[name] = count
        elif not count:
            self.harness.topics.pop(name, None)
            again = self.harness.topic_ids[name] == _IDS[name]
            self.harness.topic_ids[name] = name.encode() + _AGAIN_ID[1:] if again else _IDS[name]

    @rule(fails=st.booleans())
    def log_fails(self, fails: bool) -> None:
        self.harness.error = ErrorCode.NOT_ENOUGH_REPLICAS if fails else ErrorCode.NONE

    @rule()
    def coordinator_moves(self) -> None:
        topics, ids = self.harness.topics, self.harness.topic_ids
        self.harness = self._new_harness(self.harness.restarted(), topics)
        self.harness.topic_ids = ids
        for member in self.members:
            member.coordinator_changed(self.harness)
        group = self.group
        if group is not None:
            known = group.members
            for member in self.members:
                if member.member_id not in known:
                    member.fenced()  # it hears of it with its next heartbeat

    # --- what always holds

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        for member in self.alive():
            for tp in member.owned:
                assert tp not in owners, (tp, owners[tp], member.member_id)
                owners[tp] = member.member_id

    @invariant()
    def epochs_of_members_are_not_ahead_of_the_group(self) -> None:
        group = self.group
        if group is not None:
            assert group.target_epoch <= group.group_epoch
            assert all(member.member_epoch <= group.target_epoch for member in group.members.values())

    @invariant()
    def state_is_as_the_members_are(self) -> None:
        group = self.group
        if group is not None and group.members:
            assert group._unreconciled == {
                each.member_id
                for each in group.members.values()
                if each.member_epoch != group.target_epoch or each.state != 0
            }
            owned = {
                (topic_id, number): each.member_id
                for each in group.members.values()
                for partitions in (each.assigned, each.revoking)
                for topic_id, numbers in partitions.items()
                for number in numbers
            }
            assert owned == {
                (topic_id, number): owner
                for topic_id, owners in group._owners.items()
                for number, owner in owners.items()
            }
            assert group.size_bytes == sum(each.size_bytes for each in group.members.values())

    def teardown(self) -> None:
        """Without further events the group comes to rest, and every partition of a subscribed topic has one owner."""
        self.harness.error = ErrorCode.NONE
        if not self.members:
            return
        members = self.members
        self.all_beat(are_lost=False)  # they hear what lost answers had
        self.harness.pass_time(1_100)  # what could not be written is written after a second

        def is_settled() -> bool:
            group = self.group
            if group is None or group.state.value != "Stable" or len(group.members) != len(members):
                return False
            return all(each.owned == each.wanted for each in members)

        run_until_idle(self.harness, members, is_settled, rounds=60)  # those that left and did not say so lapse
        self.no_partition_has_two_owners()
        topics = self.harness.topics
        wanted = {
            (self.harness.topic_ids[name], number)
            for name in {name for member in members for name in member.topics} & topics.keys()
            for number in range(topics[name])
        }
        assert set().union(*(each.owned for each in members)) == wanted
        again = self._new_harness(self.harness.restarted(), topics)
        again.topic_ids = self.harness.topic_ids
        assert _in_order(again.describe_consumers()) == _in_order(self.harness.describe_consumers())


def _in_order(group: ConsumerGroupDescription) -> ConsumerGroupDescription:
    return evolve(group, members=sorted(group.members, key=lambda member: member.member_id))


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)


def test_member_that_keeps_its_partitions_is_not_stopped_when_others_join() -> None:
    harness = Harness()
    harness.topics = {"t": 500}
    members = [ModernMember(harness, f"m{number}", ["t"]) for number in range(50)]

    def is_settled() -> bool:
        return harness.describe_consumers().group_state == "Stable" and all(
            each.owned == each.wanted for each in members
        )

    run_until_idle(harness, members, is_settled)
    before = [set(each.owned) for each in members]
    seen = [set(each.owned) for each in members]
    members.append(ModernMember(harness, "new", ["t"]))
    members[-1].beat()
    while not is_settled():
        for member in members:
            member.beat()
        seen = [had & member.owned for had, member in zip(seen, members, strict=False)]
        harness.pass_time(1_000)
    given_up = [had - owns for had, owns in zip(before, seen, strict=True)]
    assert set().union(*given_up) == members[-1].owned
    assert len(members[-1].owned) == 9
    assert {len(each) for each in given_up} == {0, 1}
