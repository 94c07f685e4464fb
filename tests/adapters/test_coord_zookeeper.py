"""The ZooKeeper adapter against real servers."""

import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from support.coordination_server import ignore, reopened, running
from support.ports import free_port
from support.security_entities import SecurityEntitySuite
from support.standing_still import check_fail_over_from_stopped_server
from support.zookeeper_server import ZookeeperServer, zookeeper_ensemble

from barnabas.adapters.coord_zookeeper import ZookeeperCoordination
from barnabas.adapters.coord_zookeeper.coordination import AddWatch
from barnabas.ports.coordination import Coordination, CoordinationError, SessionState
from barnabas.ports.errors import ConfigError
from barnabas.testing.contracts.coordination import CoordinationContract, Opened, machine_for
from barnabas.testing.contracts.coordination_harness import Follower, Recorder, Watch, exists, wait_until
from barnabas.testing.contracts.coordination_remote import CableHarness, RemoteSuite, is_created, is_set

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("zookeeper")]
SESSION_MS = 6000
_running: list[ZookeeperServer] = []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with running(ZookeeperServer(tmp_path_factory.mktemp("zookeeper") / "server"), _running) as server:
        yield server


def _url(port: int, chroot: str) -> str:
    return f"zookeeper://127.0.0.1:{port}{chroot}"


class ZookeeperHarness(CableHarness):
    short_session_ms = 1500

    def __init__(self, server: ZookeeperServer) -> None:
        super().__init__(server)
        self.chroot = f"/{uuid4().hex}/root"

    def connect(
        self, port: int, *, session_timeout_ms: int | None = None, report: Callable[[str], None] | None = None
    ) -> ZookeeperCoordination:
        return ZookeeperCoordination(
            _url(port, self.chroot), session_timeout_ms=session_timeout_ms or SESSION_MS, report=report or ignore
        )

    def expire_session(self, session: Coordination) -> None:
        """Another client takes the session over and ends it."""
        assert isinstance(session, ZookeeperCoordination)
        identity = session._client.client_id
        cable = self.cable(session)
        cable.cut()
        thief = KazooClient(f"127.0.0.1:{self.server.port}", client_id=identity)
        thief.start()
        thief.stop()
        thief.close()
        cable.restore()


@pytest.fixture
def harness(server: ZookeeperServer) -> Iterator[ZookeeperHarness]:
    harness = ZookeeperHarness(server)
    yield harness
    harness.close()


class TestZookeeperCoordination(CoordinationContract, SecurityEntitySuite, RemoteSuite):
    """The contract, and what a network adds; the fixture `harness` is the module's."""


def _open_fresh() -> Opened:
    url = _url(_running[0].port, f"/{uuid4().hex}")
    return reopened(lambda: ZookeeperCoordination(url))


@pytest.mark.usefixtures("server")
class TestZookeeperMachine(machine_for(_open_fresh).TestCase):  # type: ignore[misc]  # hypothesis makes the base class
    settings = settings(max_examples=8, stateful_step_count=15, deadline=None)


@pytest.mark.parametrize("answer", [b"what", struct.pack(">iqi", 7777, 0, 0)], ids=["garbage", "to another request"])
def test_an_answer_that_makes_no_sense_costs_the_connection_and_not_the_session(
    harness: ZookeeperHarness, answer: bytes
) -> None:
    session = harness.session()
    states: Recorder[SessionState] = Recorder()
    session.add_session_listener(states)
    session.create("/registered", ephemeral=True)
    watch = Watch(session, "/a")
    harness.cable(session).swallow()
    refused: Recorder[CoordinationError] = Recorder()

    def ask() -> None:
        try:
            session.get("/registered")
        except CoordinationError as error:
            refused(error)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: harness.cable(session).swallowed > 0)
    harness.cable(session).inject(struct.pack(">i", len(answer)) + answer)
    asking.join()
    assert len(refused.calls) == 1
    states.wait(lambda observed: observed == [SessionState.SUSPENDED])
    harness.cable(session).cut()  # ends the swallowing
    harness.cable(session).restore()
    states.wait(lambda observed: observed == [SessionState.SUSPENDED, SessionState.CONNECTED])
    assert exists(session, "/registered")
    session.create("/a", b"1")
    watch.wait(b"1", [])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_in_the_thread_of_the_connection_ends_the_session_but_not_the_adapter(
    harness: ZookeeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = harness.session(session_timeout_ms=1000)
    states: Recorder[SessionState] = Recorder()
    session.add_session_listener(states)
    session.create("/registered", ephemeral=True)
    watch = Watch(session, "/a")

    def faulty(*_: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("a fault")

    monkeypatch.setattr(ConnectionHandler, "_send_request", faulty)
    with pytest.raises(CoordinationError):
        session.get("/registered")
    states.wait(lambda observed: SessionState.EXPIRED in observed)
    assert not exists(session, "/registered")
    session.create("/a", b"1")
    watch.wait(b"1", [])


def test_nodes_stand_at_the_paths_that_others_expect(server: ZookeeperServer, harness: ZookeeperHarness) -> None:
    harness.session().create("/brokers/ids/0", b"creator:127.0.0.1:9092", ephemeral=True)
    plain = KazooClient(f"127.0.0.1:{server.port}")
    plain.start()
    try:
        data, stat = plain.get(f"{harness.chroot}/brokers/ids/0")
        assert data == b"creator:127.0.0.1:9092"
        assert stat.ephemeralOwner != 0
    finally:
        plain.stop()
        plain.close()


def test_nodes_that_someone_else_made_and_that_cannot_be_named(
    server: ZookeeperServer, harness: ZookeeperHarness
) -> None:
    session = harness.session()
    session.create("/a/b")
    follower = Follower(session, "/a")
    plain = KazooClient(f"127.0.0.1:{server.port}")
    plain.start()
    try:
        plain.create(f"{harness.chroot}/a/\u3000", b"foreign")
        plain.set(f"{harness.chroot}/a/\u3000", b"again")
    finally:
        plain.stop()
        plain.close()
    session.set("/a", b"1")
    follower.wait({"/a": b"1", "/a/b": b""})
    assert {path for paths in follower.changes.calls for path in paths or ()} == {"/a"}
    assert session.children("/a") == ["b"]


def test_a_service_that_is_not_there_is_a_clear_error() -> None:
    port = free_port()
    with pytest.raises(CoordinationError, match=f"no ZooKeeper answers at 127.0.0.1:{port} within 300 ms"):
        ZookeeperCoordination(_url(port, ""), connect_timeout_ms=300)


@pytest.mark.parametrize("url", ["etcd://h:1", "h:2181", "zookeeper://", "zookeeper://h:0", "zookeeper://h:1/a//b"])
def test_a_url_that_makes_no_sense_is_a_clear_error(url: str) -> None:
    with pytest.raises(ConfigError, match=url):
        ZookeeperCoordination(url)


@pytest.mark.slow
def test_zookeeper_ensemble_survives_one_killed_member_and_waits_without_quorum(tmp_path: Path) -> None:
    servers = zookeeper_ensemble(tmp_path, 3)
    sessions: list[ZookeeperCoordination] = []
    try:
        all_servers = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        sessions = [ZookeeperCoordination(f"zookeeper://{all_servers}/chroot", report=ignore) for _ in range(3)]
        for number, session in enumerate(sessions):
            session.create(f"/registered/{number}", ephemeral=True)
        watches = [Watch(session, "/a") for session in sessions]
        leader = next(server for server in servers if server.mode() == "leader")
        leader.kill()
        wait_until(lambda: is_created(sessions[0], "/a", b"after"))
        for watch in watches:
            watch.wait(b"after", [])
        assert sessions[1].children("/registered") == ["0", "1", "2"]
        states: Recorder[SessionState] = Recorder()
        sessions[1].add_session_listener(states)
        left = [server for server in servers if server is not leader]
        left[0].kill()  # one of three is left: no quorum
        states.wait(lambda observed: bool(observed) and observed[-1] is SessionState.SUSPENDED)
        with pytest.raises(CoordinationError):
            sessions[1].set("/a", b"alone")
        left[0].start()
        states.wait(lambda observed: observed[-1] is not SessionState.SUSPENDED)
        wait_until(lambda: is_set(sessions[1], "/a", b"quorum"))
        for watch in watches:
            watch.wait(b"quorum", [])
    finally:
        for session in sessions:
            session.close()
        for server in servers:
            server.stop()


def test_the_session_time_is_what_the_service_agreed_to(harness: ZookeeperHarness) -> None:
    assert harness.session(session_timeout_ms=900).heartbeat() == 1000  # `minSessionTimeout` of the server
    assert harness.session(session_timeout_ms=7300).heartbeat() == 7300


def test_a_server_that_is_too_old_to_watch_all_below(harness: ZookeeperHarness) -> None:
    session = harness.session()
    single = Watch(session, "/top/a")
    asked = AddWatch.type
    AddWatch.type = 1106  # as unknown to this server as the right one is to an old server
    try:
        with pytest.raises(CoordinationError, match=r"/top: .* 3\.6 or newer"):
            session.watch_below("/top", lambda paths: None)
        wait_until(lambda: is_created(session, "/top/a", b"1"))  # such a server cuts the connection, too
        single.wait(b"1", [])
        second = Watch(session, "/top/a")
        session.set("/top/a", b"2")
        single.wait(b"2", [])
        second.wait(b"2", [])
    finally:
        AddWatch.type = asked


@pytest.mark.slow
def test_a_member_that_stands_still_is_left_for_another(tmp_path: Path) -> None:
    servers = zookeeper_ensemble(tmp_path, 3)
    try:
        followers = [server for server in servers if server.mode() == "follower"]
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in followers)
        session = ZookeeperCoordination(f"zookeeper://{hosts}/chroot", report=ignore, session_timeout_ms=12_000)
        try:
            port = session._client._connection._socket.getpeername()[1]
            check_fail_over_from_stopped_server(session, next(server for server in followers if server.port == port))
        finally:
            session.close()
    finally:
        for server in servers:
            server.kill()
