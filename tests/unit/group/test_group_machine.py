"""A group under any sequence of events: what must hold after each of them."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from support.group_driver import REBALANCE_MS, SESSION_MS, Asked, Driver

from barnabas.core.coordinator.group.classic_group import ClassicGroup
from barnabas.core.coordinator.group.states import GroupState
from barnabas.ports.error_codes import ErrorCode

PROTOCOLS = [
    (("range", b"1"), ("roundrobin", b"1")),
    (("roundrobin", b"2"), ("range", b"2")),
    (("range", b"3"),),
    (("sticky", b"4"), ("roundrobin", b"4")),
]
_members = st.sampled_from([f"m{number}" for number in range(1, 12)])
_instances = st.sampled_from([None, None, "s", "t"])
_protocols = st.sampled_from(PROTOCOLS)
_errors = st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS])


class GroupMachine(RuleBasedStateMachine):
    """Members that behave, and others that do not; answers that come late; writes that fail."""

    joins: Bundle[Any] = Bundle("joins")

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Asked] = []
        self.joined: list[Asked] = []
        self.observed: dict[int, tuple[str, str]] = {}
        """Leader and protocol by generation."""
        self.generation = 0

    @initialize(delay=st.sampled_from([0, 3000]), size=st.sampled_from([2, 4, 100]))
    def begin(self, delay: int, size: int) -> None:
        self.driver = Driver(hold=True, group_initial_rebalance_delay_ms=delay, group_max_size=size)
        self.size_max = size

    def _note(self, asked: Asked) -> Asked:
        self.asked.append(asked)
        return asked

    @rule(target=joins, instance=_instances, protocols=_protocols, at_once=st.booleans(), can_skip=st.booleans())
    def join_new(self, instance: str | None, protocols: Any, at_once: bool, can_skip: bool) -> Asked:
        join = self.driver.join(instance=instance, protocols=protocols, at_once=at_once, can_skip=can_skip)
        self.joined.append(join)
        return self._note(join)

    @rule(target=joins, join=consumes(joins), protocols=_protocols)
    def join_again(self, join: Asked, protocols: Any) -> Any:
        """With the id that was given out, as a client does after an answer."""
        if join.waits:
            return join
        member = self.driver.group.roster.get(join.result.member_id)
        instance = None if member is None else member.group_instance_id
        again = self.driver.join(join.result.member_id, instance=instance, protocols=protocols)
        self.joined.append(again)
        self._note(again)
        return multiple() if again.result is not None and again.error is ErrorCode.UNKNOWN_MEMBER_ID else again

    @rule(member=_members, instance=_instances, protocols=_protocols)
    def join_any(self, member: str, instance: str | None, protocols: Any) -> None:
        join = self.driver.join(member, instance=instance, protocols=protocols)
        self.joined.append(join)
        self._note(join)

    @rule(join=joins)
    def sync(self, join: Asked) -> None:
        if not join.waits and join.error is ErrorCode.NONE:
            result = join.result
            given = {each.member_id: each.member_id.encode() for each in result.members}
            sync = self._note(self.driver.sync(result.member_id, given, generation=result.generation_id))
            if result.generation_id != self.driver.group.generation:
                assert sync.error is not ErrorCode.NONE

    @rule(member=_members, behind=st.integers(0, 2), instance=_instances)
    def old_generations_are_refused(self, member: str, behind: int, instance: str | None) -> None:
        group = self.driver.group
        state = group.state
        generation = group.generation - behind
        answers = [self.driver.heartbeat(member, generation, instance)]
        if generation >= 0:
            answers.append(self.driver.commit(member, generation, instance))
        if behind or member not in group.roster:
            assert ErrorCode.NONE not in answers
            assert ErrorCode.REBALANCE_IN_PROGRESS not in answers
            answers.append(self._note(self.driver.sync(member, generation=generation, instance=instance)).error)
            assert answers[-1] is not ErrorCode.NONE
        assert group.state is state

    @rule(members=st.lists(_members, max_size=3), instance=_instances)
    def leave(self, members: list[str], instance: str | None) -> None:
        self.driver.leave(*members, instance=instance)
        if instance is None:
            assert not any(member in self.driver.group.roster for member in members)

    @rule(ms=st.sampled_from([1, 2999, SESSION_MS - 1, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, ms: int) -> None:
        self.driver.pass_time(ms)

    @rule(error=_errors)
    def finish_write(self, error: ErrorCode) -> None:
        if self.driver.held:
            self.driver.finish(error)

    @rule(member=_members)
    def forget_promise(self, member: str) -> None:
        self.driver.carry_out(self.driver.group.remove_pending_member(member, self.driver.now_ms))

    @rule()
    def restart(self) -> None:
        """The broker stops and reads its log. Generations that were not written then never were."""
        if not self.driver.written or self.driver.held:
            return
        self.driver.carry_out(self.driver.group.die(ErrorCode.NOT_COORDINATOR))
        assert not any(asked.waits for asked in self.asked)
        stored = self.driver.written[-1].group
        config = self.driver.group.config
        self.driver.group = ClassicGroup.restored("g", config, stored, self.driver.now_ms)
        self.generation = stored.generation
        self.joined.clear()
        self.observed = {each: observed for each, observed in self.observed.items() if each <= stored.generation}

    # --- what holds

    @invariant()
    def the_generation_only_grows(self) -> None:
        assert self.driver.group.generation >= self.generation
        self.generation = self.driver.group.generation

    @invariant()
    def one_leader_and_one_protocol_per_generation(self) -> None:
        group = self.driver.group
        assert (group.leader is None) == (not len(group.roster))
        assert group.leader is None or group.leader in group.roster
        for join in [each for each in self.joined if not each.waits and each.error is ErrorCode.NONE]:
            result = join.result
            observed = self.observed.setdefault(result.generation_id, (result.leader, result.protocol_name))
            assert result.protocol_name == observed[1]
            if result.members and not result.skip_assignment:
                leaders = [
                    each.result.member_id
                    for each in self.joined
                    if not each.waits
                    and each.result.generation_id == result.generation_id
                    and each.result.members
                    and not each.result.skip_assignment
                ]
                assert set(leaders) == {result.member_id}
        self.joined = [each for each in self.joined if each.waits or each.result.generation_id == group.generation]

    @invariant()
    def the_state_fits_the_members(self) -> None:
        group = self.driver.group
        members = list(group.roster)
        joining = [member for member in members if member.joining is not None]
        syncing = [member for member in members if member.syncing is not None]
        assert group.roster.waiting == len(joining)
        assert group.roster.size_bytes == sum(member.size_bytes for member in members)
        assert len({member.group_instance_id for member in members if member.group_instance_id}) == sum(
            member.group_instance_id is not None for member in members
        )
        if group.state is GroupState.EMPTY:
            assert not members
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert members
            assert all(group.protocol in member.protocols for member in members)
            assert not any(member.is_new for member in members)
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert not syncing
        if group.state is not GroupState.PREPARING_REBALANCE and not self.driver.held:
            assert not joining
        if members:
            assert group.roster.supports(members[0].protocols)
        assert len(members) <= self.size_max or group.state is GroupState.PREPARING_REBALANCE

    @invariant()
    def everything_that_waits_is_waited_for(self) -> None:
        group = self.driver.group
        waiting = sum(asked.waits for asked in self.asked)
        assert waiting == sum((member.joining is not None) + (member.syncing is not None) for member in group.roster)
        if waiting or len(group.roster) or group.pending_members:
            assert group.next_due_ms is not None or self.driver.held
        self.asked = [asked for asked in self.asked if asked.waits]

    def teardown(self) -> None:
        """Check that every request is answered and the group becomes empty, without further requests."""
        if not hasattr(self, "driver"):
            return
        self.driver.hold = False
        while self.driver.held:
            self.driver.finish()
        self.driver.pass_time(1_000_000)
        assert not any(asked.waits for asked in self.asked)
        assert self.driver.group.state is GroupState.EMPTY
        assert self.driver.group.next_due_ms is None


TestGroupMachine = GroupMachine.TestCase
