"""Members over connections, under a clock that stands still: what those that vanish cost the others."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.group_requests import find

from barnabas.adapters.wire_kafka import KafkaLink, connect_kafka
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import (
    DescribeGroups,
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.transport import TransportError
from barnabas.testing.manual_broker import ManualBroker

SESSION_MS = 10_000
HEARTBEAT_MS = 1_000
REBALANCE_MS = 300_000
"""The default of Java's max.poll.interval.ms: no member should have to wait for it."""
ROUND_MS = 2 * HEARTBEAT_MS
"""Until everybody knows of a rebalance, and has joined it."""


class Member:
    """Joins, synchronizes and sends heartbeats as a consumer does, until it vanishes: at once, or when it is about to
    do what `until` says ("join", "sync")."""

    def __init__(self, broker: ManualBroker, name: str) -> None:
        self.broker, self.name = broker, name
        self.member_id = ""
        self.generation = -1
        self.joined = JoinGroupResult()
        self.is_stable = False
        self.until = ""
        self._link: KafkaLink | None = None
        self.is_gone = False
        connect_kafka(
            broker.network.transport(name),
            broker.scheduler,
            ("broker", 9092),
            client_id=name,
            request_timeout_ms=2 * REBALANCE_MS,
            connect_timeout_ms=1_000,
            opened=self._opened,
        )

    def vanish(self) -> None:
        """Without a word; its connection closes."""
        self.is_gone, self.is_stable = True, False
        if self._link is not None:
            self._link.close()

    def leave(self) -> None:
        """Leave the group, as a closing consumer does."""
        request = LeaveGroup(group_id="g", members=[LeavingMember(member_id=self.member_id)])
        self._submit(request, lambda _: self.vanish())

    def _opened(self, outcome: KafkaLink | TransportError) -> None:
        assert isinstance(outcome, KafkaLink)
        self._link = outcome
        self._join()

    def _join(self) -> None:
        self.is_stable = False
        if self.until == "join":
            self.vanish()
            return
        request = JoinGroup(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[GroupProtocol("range", b"")],
        )
        self._submit(request, self._has_joined)
        if self.until == "joined":
            self.vanish_soon()

    def _has_joined(self, result: JoinGroupResult) -> None:
        self.member_id = result.member_id
        if result.error is not ErrorCode.NONE:
            if result.error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self._join()
            return
        self.joined, self.generation = result, result.generation_id
        if self.until == "sync":
            self.vanish()
            return
        given = [MemberAssignment(each.member_id, each.member_id.encode()) for each in result.members]
        request = SyncGroup(group_id="g", generation_id=self.generation, member_id=self.member_id, assignments=given)
        self._submit(request, self._has_synchronized)
        if self.until == "synced":
            self.vanish_soon()

    def vanish_soon(self) -> None:
        """When what was sent has arrived."""
        self.broker.scheduler.call_later(1, self.vanish)

    def _has_synchronized(self, result: Any) -> None:
        if result.error is not ErrorCode.NONE:
            self._join()
            return
        assert result.assignment == self.member_id.encode()
        self.is_stable = True
        self.broker.scheduler.call_later(HEARTBEAT_MS, self._heartbeat)

    def _heartbeat(self) -> None:
        if self.is_stable and not self.is_gone:
            request = Heartbeat(group_id="g", generation_id=self.generation, member_id=self.member_id)
            self._submit(request, self._has_lived)

    def _has_lived(self, result: Any) -> None:
        if result.error is ErrorCode.NONE:
            self.broker.scheduler.call_later(HEARTBEAT_MS, self._heartbeat)
        else:
            self._join()

    def _submit(self, request: Any, then: Callable[[Any], None]) -> None:
        assert self._link is not None

        def reply(result: Any) -> None:
            if not self.is_gone:
                assert not isinstance(result, Exception), result
                then(result)

        self._link.submit(request, Caller(), reply)


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker(group_initial_rebalance_delay_ms=0)
    find(simulated)
    yield simulated
    simulated.stop()


def run_until_idle(broker: ManualBroker, *members: Member) -> float:
    """Let time pass until exactly these members have their assignments; return the time."""

    def settled() -> bool:
        (group,) = broker.ask(DescribeGroups(group_ids=["g"])).groups
        known = {each.member_id for each in group.members}
        return group.state == "Stable" and known == {m.member_id for m in members} and all(m.is_stable for m in members)

    started = broker.clock.monotonic_ms()
    broker.scheduler.run_until(settled, limit_ms=2 * REBALANCE_MS)
    return broker.clock.monotonic_ms() - started


@pytest.mark.parametrize("vanishing", ["leader", "follower"])
@pytest.mark.parametrize("until", ["", "join", "joined", "sync", "synced"])
def test_a_member_that_vanishes_costs_one_session(broker: ManualBroker, vanishing: str, until: str) -> None:
    """Whatever it was about to do: answer a heartbeat, join again, wait for the others, take its assignment."""
    members = [Member(broker, f"m{number}") for number in range(3)]
    run_until_idle(broker, *members)
    leader = next(each for each in members if each.joined.leader == each.member_id)
    gone = leader if vanishing == "leader" else next(each for each in members if each is not leader)
    rest = [each for each in members if each is not gone]
    if until:
        gone.until = until
        rest.append(Member(broker, "newcomer"))
    else:
        gone.vanish()
    assert run_until_idle(broker, *rest) <= SESSION_MS + 2 * ROUND_MS
    assert not broker.reports


def test_a_newcomer_that_vanishes_costs_one_session(broker: ManualBroker) -> None:
    first = Member(broker, "first")
    run_until_idle(broker, first)
    newcomer = Member(broker, "newcomer")
    newcomer.until = "joined"
    broker.scheduler.advance(ROUND_MS)
    assert newcomer.is_gone
    assert len(first.joined.members) == 2
    assert run_until_idle(broker, first) <= SESSION_MS + ROUND_MS


def test_leaving_member_does_not_delay_the_rebalance(broker: ManualBroker) -> None:
    members = [Member(broker, f"m{number}") for number in range(3)]
    run_until_idle(broker, *members)
    members[0].leave()
    assert run_until_idle(broker, *members[1:]) <= ROUND_MS


def test_answers_to_connections_that_are_gone_are_dropped_and_leave_nothing(broker: ManualBroker) -> None:
    stays = Member(broker, "stays")
    run_until_idle(broker, stays)
    (server,) = broker.node._servers
    before = set(server.connections)
    waiting = [Member(broker, f"w{number}") for number in range(5)]
    broker.scheduler.advance(HEARTBEAT_MS // 2)
    connections = [weakref.ref(server.connections[each]) for each in set(server.connections) - before]
    assert len(connections) == 5
    for each in waiting:
        each.vanish()
    broker.scheduler.advance(10)
    assert set(server.connections) == before
    run_until_idle(broker, stays)
    gc.collect()
    assert [ref() for ref in connections] == [None] * 5
    assert not broker.reports


def test_member_on_another_connection_is_the_same_member(broker: ManualBroker) -> None:
    """The first join waited on the lost connection: the answer goes to the new one."""
    stays = Member(broker, "stays")
    run_until_idle(broker, stays)
    gone = Member(broker, "gone")
    broker.scheduler.advance(HEARTBEAT_MS // 2)
    gone.vanish()
    (group,) = broker.ask(DescribeGroups(group_ids=["g"])).groups
    (known,) = [each.member_id for each in group.members if each.client_id == "gone"]
    back = Member(broker, "back")
    back.member_id = known
    assert run_until_idle(broker, stays, back) <= ROUND_MS
    assert back.member_id == known
