"""Contract suite for adapters whose service is reached over a network, in addition to that of `ports.coordination`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import pytest

from ...ports.coordination import BadVersion, Coordination, CoordinationError, NoNode, SessionState
from ..tcp_proxy import TcpProxy
from .coordination_harness import Recorder, Watch, exists, wait_until


class ServiceProcess(Protocol):
    """One server of the service, in a process of its own."""

    port: int

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def wait_ready(self) -> None: ...


class CableHarness(ABC):
    """A `Harness` whose sessions have a network cable each."""

    several_sessions = True
    faults = frozenset({"expire_session", "disconnect", "reconnect", "restart_server"})

    def __init__(self, server: ServiceProcess) -> None:
        self.server = server
        self._made: list[tuple[Coordination, TcpProxy]] = []

    @property
    @abstractmethod
    def short_session_ms(self) -> int:
        """A session time that the service keeps, as short as makes sense."""

    @abstractmethod
    def connect(
        self, port: int, *, session_timeout_ms: int | None = None, report: Callable[[str], None] | None = None
    ) -> Coordination:
        """Return a session over this port of loopback, with one tree for the whole harness."""

    @abstractmethod
    def expire_session(self, session: Coordination) -> None:
        """Make the service end the session behind its back."""

    def session(self, session_timeout_ms: int | None = None) -> Coordination:
        cable = TcpProxy(("127.0.0.1", self.server.port))
        try:
            made = self.connect(cable.port, session_timeout_ms=session_timeout_ms)
        except CoordinationError:
            cable.close()
            raise
        self._made.append((made, cable))
        return made

    def cable(self, session: Coordination) -> TcpProxy:
        return next(cable for made, cable in self._made if made is session)

    def disconnect(self, session: Coordination) -> None:
        self.cable(session).cut()

    def reconnect(self, session: Coordination) -> None:
        self.cable(session).restore()

    def restart_server(self) -> None:
        self.server.kill()
        self.server.start()
        self.server.wait_ready()

    def close(self) -> None:
        for session, cable in self._made:
            session.close()
            cable.close()


class RemoteSuite:
    """Inherit it in addition to the contract; the fixture `harness` gives a `CableHarness`."""

    def test_a_cable_that_goes_dead_is_noticed_and_the_session_expires(self, harness: CableHarness) -> None:
        """Nothing is closed and nothing arrives: only the silence shows the fault."""
        one, other = harness.session(harness.short_session_ms), harness.session()
        states = _states_of(one)
        one.create("/registered/one", b"1", ephemeral=True)
        watch, others_watch = Watch(one, "/a"), Watch(other, "/registered")
        harness.cable(one).stall()
        with pytest.raises(CoordinationError):
            one.get("/registered/one")
        states.wait(lambda seen: seen == [SessionState.SUSPENDED])
        others_watch.wait(b"", [])
        other.create("/a", b"meanwhile")
        harness.cable(one).restore()
        states.wait(lambda seen: seen == [SessionState.SUSPENDED, SessionState.EXPIRED])
        watch.wait(b"meanwhile", [])
        one.create("/registered/one", b"2", ephemeral=True)

    def test_the_session_of_a_user_who_hangs_ends(self, harness: CableHarness) -> None:
        """One that kept it by calls, and makes none any longer, while the threads of the adapter run on."""
        one, other = harness.session(harness.short_session_ms), harness.session()
        states = _states_of(one)
        one.create("/registered/one", b"1", ephemeral=True)
        others_watch = Watch(other, "/registered")
        one.heartbeat()
        others_watch.wait(b"", [])
        with suppress(CoordinationError):
            one.heartbeat()
        states.wait(lambda seen: SessionState.EXPIRED in seen)
        one.create("/registered/one", b"2", ephemeral=True)
        wait_until(lambda: _is_alive(one))

    def test_ephemeral_nodes_are_not_made_again(self, harness: CableHarness) -> None:
        session = harness.session()
        states = _states_of(session)
        session.create("/registered", ephemeral=True)
        harness.expire_session(session)
        states.wait(lambda seen: SessionState.EXPIRED in seen)
        session.create("/later")
        assert not exists(session, "/registered")

    def test_closing_while_the_connection_is_lost(self, harness: CableHarness) -> None:
        session = harness.session()
        states = _states_of(session)
        harness.disconnect(session)
        states.wait(lambda seen: seen == [SessionState.SUSPENDED])
        session.watch("/a", lambda: None)
        session.close()

    def test_versions_that_the_service_cannot_have(self, harness: CableHarness) -> None:
        session = harness.session()
        session.create("/a", b"x")
        for version in (-1, -2, 2**31, 2**70):
            with pytest.raises(BadVersion, match="/a"):
                session.set("/a", b"lost", version=version)
            with pytest.raises(BadVersion, match="/a"):
                session.delete("/a", version=version)
            with pytest.raises(NoNode, match="/b"):
                session.delete("/b", version=version)
        assert session.get("/a").data == b"x"

    def test_a_callback_that_raises_is_reported(self, harness: CableHarness) -> None:
        reports: Recorder[str] = Recorder()
        session = harness.connect(harness.server.port, report=reports)

        def broken() -> None:
            raise RuntimeError("a broken watch")

        try:
            session.watch("/a", broken)
            session.create("/a")
            reports.wait(lambda seen: bool(seen) and "callback failed" in seen[0] and "a broken watch" in seen[0])
        finally:
            session.close()


def is_set(session: Coordination, path: str, data: bytes) -> bool:
    """Set the node's data; False if that did not work."""
    try:
        session.set(path, data)
    except CoordinationError:
        return False
    return True


def is_created(session: Coordination, path: str, data: bytes) -> bool:
    """Create the node, over lost connections; False if that did not work."""
    try:
        session.create(path, data)
    except CoordinationError:
        try:
            return exists(session, path)
        except CoordinationError:
            return False
    return True


def _states_of(session: Coordination) -> Recorder[SessionState]:
    states: Recorder[SessionState] = Recorder()
    session.add_session_listener(states)
    return states


def _is_alive(session: Coordination) -> bool:
    try:
        return session.heartbeat() > 0
    except CoordinationError:
        return False
