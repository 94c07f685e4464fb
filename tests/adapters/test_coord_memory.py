from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.ports.coordination import Coordination, NoNode, SessionState
from barnabas.testing.contracts.coordination import CoordinationContract, Harness, Opened, machine_for


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


class TestMemoryCoordination(CoordinationContract):
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
TestMemoryMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_session_that_expires_while_disconnected_is_told_when_it_is_back() -> None:
    due: list[Callable[[], None]] = []
    tree = MemoryTree(deliver=due.append)
    one, other = tree.session(), tree.session()
    states: list[SessionState] = []
    one.listen(states.append)
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
    told: list[str] = []
    session.watch("/a", lambda: told.append("a"))
    session.create("/a")
    session.set("/a", b"1")
    assert told == []
    assert len(due) == 1
    due.pop()()
    assert told == ["a"]
    session.set("/a", b"2")
    due.pop()()
    assert told == ["a", "a"]


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
