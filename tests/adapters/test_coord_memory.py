import math
from collections.abc import Callable, Collection, Iterator
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread

import pytest
from hypothesis import settings
from support.long_tests import examples
from support.security_entities import SecurityEntitySuite

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.adapters.system import ManualClock
from barnabas.ports.coordination import Coordination, CreateNode, NoNode, SessionExpired, SessionState, SetNode
from barnabas.testing.contracts.coordination import CoordinationContract, Harness, Opened, machine_for
from barnabas.testing.contracts.coordination_harness import WAIT_S, Follower, exists


def _ignore(text: str) -> None:
    """The suite makes watches raise on purpose."""


class MemoryHarness(Harness):
    several_sessions = True
    faults = frozenset({"expire_session", "disconnect", "reconnect"})

    def __init__(self) -> None:
        self.tree = MemoryTree(report=_ignore)
        self._made: list[MemorySession] = []

    def session(self) -> MemorySession:
        self._made.append(self.tree.session())
        return self._made[-1]

    def expire_session(self, session: Coordination) -> None:
        self.tree.expire(self._mine(session))

    def disconnect(self, session: Coordination) -> None:
        self.tree.disconnect(self._mine(session))

    def reconnect(self, session: Coordination) -> None:
        self.tree.reconnect(self._mine(session))

    def close(self) -> None:
        for session in self._made:
            session.close()

    def _mine(self, session: Coordination) -> MemorySession:
        assert isinstance(session, MemorySession)
        return session


class TestMemoryCoordination(CoordinationContract, SecurityEntitySuite):
    @pytest.fixture
    def harness(self) -> Iterator[MemoryHarness]:
        harness = MemoryHarness()
        yield harness
        harness.close()


class _OpenedMemory:
    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.session = self.tree.session()

    def reopen(self) -> MemorySession:
        self.session.close()
        self.session = self.tree.session()
        return self.session

    def close(self) -> None:
        self.session.close()


def _open_fresh() -> Opened:
    opened = _OpenedMemory()
    return Opened(opened.session, opened.reopen, opened.close)


TestMemoryMachine = machine_for(_open_fresh).TestCase
TestMemoryMachine.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)


def test_session_expired_while_disconnected_learns_of_it_on_reconnect() -> None:
    due: list[Callable[[], None]] = []
    tree = MemoryTree(deliver=due.append)
    one, other = tree.session(), tree.session()
    states: list[SessionState] = []
    one.add_session_listener(states.append)
    one.create("/registered", ephemeral=True)
    tree.disconnect(one)
    due.pop()()
    tree.expire(one)
    assert due == []
    with pytest.raises(NoNode):
        other.get("/registered")
    tree.reconnect(one)
    due.pop()()
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]


def test_callbacks_go_through_deliver() -> None:
    due: list[Callable[[], None]] = []
    tree = MemoryTree(deliver=due.append)
    session = tree.session()
    observed: list[str] = []
    session.watch("/a", lambda: observed.append("a"))
    session.create("/a")
    session.set("/a", b"1")
    assert observed == []
    assert len(due) == 1
    due.pop()()
    assert observed == ["a"]
    session.set("/a", b"2")
    due.pop()()
    assert observed == ["a", "a"]


def test_a_callback_that_raises_is_reported() -> None:
    due: list[Callable[[], None]] = []
    reports: list[str] = []
    tree = MemoryTree(deliver=due.append, report=reports.append)
    session = tree.session()

    def broken() -> None:
        raise RuntimeError("a broken watch")

    session.watch("/a", broken)
    session.create("/a")
    due.pop()()
    assert len(reports) == 1
    assert "a broken watch" in reports[0]


class _Timed:
    """A tree whose sessions last a second, and calls for callbacks that the test makes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.due: list[Callable[[], None]] = []
        self.tree = MemoryTree(deliver=self.due.append, clock=self.clock, session_timeout_ms=1000)
        self.states: list[SessionState] = []

    def notify_last(self) -> None:
        while self.due:
            self.due.pop(0)()


def test_session_with_regular_heartbeats_does_not_expire() -> None:
    timed = _Timed()
    session, client = timed.tree.session(), timed.tree.session(session_timeout_ms=math.inf)
    session.create("/registered", ephemeral=True)
    client.create("/client", ephemeral=True)
    for _ in range(5):
        timed.clock.advance(999)
        assert session.heartbeat() == 1000
        assert timed.tree.expire_overdue() == 1000
    assert client.heartbeat() == math.inf
    assert client.get("/registered").ephemeral
    assert client.get("/client").ephemeral


def test_session_without_heartbeats_expires_and_restarts_at_next_heartbeat() -> None:
    timed = _Timed()
    session, other = timed.tree.session(), timed.tree.session()
    session.add_session_listener(timed.states.append)
    observed: list[Collection[str] | None] = []
    session.watch_below("/registered", observed.append)
    session.create("/registered/one", ephemeral=True)
    timed.notify_last()
    del observed[:]
    timed.clock.advance(600)
    other.heartbeat()
    assert timed.tree.expire_overdue() == 400
    timed.clock.advance(400)
    assert timed.tree.expire_overdue() == 600
    assert other.children("/registered") == []
    other.create("/registered/two")
    timed.notify_last()
    assert (observed, timed.states) == ([], [])  # the session is idle while it is paused
    for _ in range(2):
        with pytest.raises(SessionExpired):
            session.heartbeat()  # also the second time: its listener does not know yet
    timed.notify_last()
    assert (observed, timed.states) == ([None], [SessionState.EXPIRED])
    assert session.heartbeat() == 1000
    assert session.children("/registered") == ["two"]


def test_overdue_session_rejects_commits_before_expiry_check_runs() -> None:
    timed = _Timed()
    session, other = timed.tree.session(), timed.tree.session(session_timeout_ms=math.inf)
    session.create("/registered", ephemeral=True)
    timed.clock.advance(1000)
    with pytest.raises(SessionExpired):
        session.commit([CreateNode("/late")])
    with pytest.raises(NoNode):
        other.get("/late")
    with pytest.raises(NoNode):
        other.get("/registered")


def test_a_session_that_is_cut_off_for_too_long_has_ended_when_it_is_back() -> None:
    timed = _Timed()
    session, other = timed.tree.session(), timed.tree.session(session_timeout_ms=math.inf)
    session.add_session_listener(timed.states.append)
    session.create("/registered", ephemeral=True)
    timed.tree.disconnect(session)
    timed.clock.advance(1000)
    timed.tree.reconnect(session)
    timed.notify_last()
    assert timed.states == [SessionState.SUSPENDED, SessionState.EXPIRED]
    assert not exists(other, "/registered")


def test_a_timeout_that_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="clock"):
        MemoryTree(session_timeout_ms=1000)
    for wrong in (0, -1, math.nan):
        with pytest.raises(ValueError, match="lasts longer"):
            MemoryTree(clock=ManualClock()).session(session_timeout_ms=wrong)


class _Turns:
    """A thread that runs callbacks in their order, as the reactor of a broker does."""

    def __init__(self) -> None:
        self._due: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._due.put(callback)

    def close(self) -> None:
        self._due.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (callback := self._due.get()) is not None:
            callback()


def test_brokers_with_a_thread_each_share_a_tree() -> None:
    """Each writes from its own thread and follows what all write; the one whose turns stand still hinders no other."""
    tree = MemoryTree(report=pytest.fail)
    turns = [_Turns() for _ in range(4)]
    sessions = [tree.session(deliver=each.call_soon) for each in turns]
    released = Event()
    try:
        followers = [Follower(session, "/top") for session in sessions]
        turns[3].call_soon(partial(released.wait, WAIT_S))

        def write(number: int) -> None:
            session = sessions[number]
            for count in range(100):
                session.create(f"/top/{number}/{count}", ephemeral=count % 2 == 0)
                session.commit(
                    [SetNode(f"/top/{number}/{count}", b"%d" % count, 0), CreateNode(f"/x/{number}-{count}")]
                )

        for number in range(3):
            turns[number].call_soon(partial(write, number))
        expected = {"/top": b""} | {f"/top/{n}": b"" for n in range(3)}
        expected |= {f"/top/{n}/{count}": b"%d" % count for n in range(3) for count in range(100)}
        for follower in followers[:3]:
            follower.wait(expected)
        assert followers[3].changes.calls == []
        sessions[0].close()
        expected = {path: data for path, data in expected.items() if not path.startswith("/top/0/") or int(data) % 2}
        released.set()
        for follower in followers[1:]:
            follower.wait(expected)
    finally:
        released.set()
        for session in sessions:
            session.close()
        for each in turns:
            each.close()
