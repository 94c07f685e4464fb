"""A group under test: its effects are carried out here, and every request knows its answer."""

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from barnabas.core.coordinator.group.classic_group import ClassicGroup
from barnabas.core.coordinator.group.config import GroupCoordinatorConfig
from barnabas.core.coordinator.group.effects import Answer, Effects, Store
from barnabas.core.coordinator.group.states import GroupState
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import (
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    OffsetCommit,
    SyncGroup,
)
from barnabas.ports.error_codes import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 30_000
CALLER = Caller(client_id="c", host="127.0.0.1")


class Asked:
    """One request, and its answer once it is there. A second answer fails the test."""

    def __init__(self) -> None:
        self.result: Any = None

    def __call__(self, result: Any) -> None:
        assert self.result is None, f"a second answer: {result} after {self.result}"
        assert result is not None
        self.result = result

    @property
    def waits(self) -> bool:
        return self.result is None

    @property
    def error(self) -> ErrorCode:
        assert self.result is not None, "there is no answer yet"
        error = self.result.error
        assert isinstance(error, ErrorCode)
        return error


class Driver:
    """Drives a group. With `hold` its stores wait in `held` until `finish`."""

    def __init__(self, group: ClassicGroup | None = None, *, hold: bool = False, **config: Any) -> None:
        settings = evolve(GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0), **config)
        self.group = group or ClassicGroup("g", settings)
        self.now_ms = 1000.0
        self.hold = hold
        self.held: list[Store] = []
        self.written: list[Store] = []
        self.topics: dict[str, int] = {}
        """The numbers of partitions of the topics that the coordinator knows."""
        self._ids = 0

    def state(self) -> GroupState:
        """Return the state by a call, so that a type checker does not take it for constant."""
        return self.group.state

    # --- events

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"m"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        at_once: bool = True,
        can_skip: bool = True,
    ) -> Asked:
        request = JoinGroup(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[GroupProtocol(name, metadata) for name, metadata in protocols],
            knows_member_id_required=not at_once,
            can_skip_assignment=can_skip,
        )
        self._ids += 1
        asked = Asked()
        effects = self.group.join(
            request, CALLER, asked, self.now_ms, f"m{self._ids}", lambda topic: self.topics.get(topic, -1)
        )
        self.carry_out(effects)
        return asked

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> Asked:
        request = SyncGroup(
            group_id="g",
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol[0],
            protocol_name=protocol[1],
            assignments=[MemberAssignment(key, value) for key, value in (assignments or {}).items()],
        )
        asked = Asked()
        self.carry_out(self.group.sync(request, asked, self.now_ms))
        return asked

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        request = Heartbeat(group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance)
        return self.group.heartbeat(request, self.now_ms)

    def commit(self, member_id: str = "", generation: int = -1, instance: str | None = None) -> ErrorCode:
        request = OffsetCommit(
            group_id="g", partitions=[], generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return self.group.check_commit(request, self.now_ms)

    def leave(self, *members: str, instance: str | None = None) -> list[ErrorCode]:
        asked = Asked()
        entries = [LeavingMember(member_id=each, group_instance_id=instance) for each in members]
        self.carry_out(self.group.leave(LeaveGroup(group_id="g", members=entries), asked, self.now_ms))
        if asked.error is not ErrorCode.NONE:
            return [asked.error]
        return [left.error for left in asked.result.members]

    def pass_time(self, ms: float) -> None:
        """Let time continue, with a tick whenever one is due."""
        end = self.now_ms + ms
        ticks = 0
        while (due := self.group.next_due_ms) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self.carry_out(self.group.tick(self.now_ms))
            ticks += 1
            assert ticks < 10_000, "the group is due again and again"
        self.now_ms = end

    def finish(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """End the store that has waited longest."""
        store = self.held.pop(0)
        if error is ErrorCode.NONE:
            self.written.append(store)
        self.carry_out(self.group.stored(store, error, self.now_ms))

    def carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                effect.to(effect.result)
            elif isinstance(effect, Store):
                self.held.append(effect)
                if not self.hold:
                    self.finish()

    # --- shortcuts

    def stable(self, members: int = 1, *, static: Sequence[str] = ()) -> list[str]:
        """Make a group with members that all have their assignments; return their ids, the leader's first."""
        return self.settled([self.join() for _ in range(members)] + [self.join(instance=each) for each in static])

    def settled(self, joins: Sequence[Asked], assigned: Sequence[bytes] = ()) -> list[str]:
        """Bring on who has joined until the group is stable; `assigned` has the leader's assignment first."""
        ids: list[str] = []
        while any(join.waits for join in joins) or len({join.result.generation_id for join in joins}) > 1:
            stale = [join for join in joins if not join.waits and join.result.generation_id < self.group.generation]
            rejoining = [join for join in joins if not join.waits]
            assert rejoining or stale, "no member can continue"
            again = [self._again(join) for join in rejoining]
            joins = again + [join for join in joins if join not in rejoining]
        leader = joins[0].result.leader
        ids = sorted((join.result.member_id for join in joins), key=lambda each: each != leader)
        for each in ids[1:]:
            assert self.sync(each).waits
        given = dict(zip(ids, assigned, strict=True)) if assigned else {each: f"for {each}".encode() for each in ids}
        synced = self.sync(leader, given)
        assert not synced.error
        return ids

    def _again(self, join: Asked) -> Asked:
        member = self.group.roster.get(join.result.member_id)
        assert member is not None
        return self.join(member.member_id, instance=member.group_instance_id, protocols=list(member.protocols.items()))
