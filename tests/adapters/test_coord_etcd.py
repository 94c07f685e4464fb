"""The etcd adapter against real servers."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any
from uuid import uuid4

import pytest
from aetcd import rpc
from hypothesis import settings
from support.coordination_server import ignore, reopened, running
from support.etcd_server import EtcdServer, etcd_cluster
from support.ports import free_port
from support.security_entities import SecurityEntitySuite
from support.standing_still import check_fail_over_from_stopped_server
from support.stuck_disk import fdatasync_held

from barnabas.adapters.coord_etcd import EtcdCoordination
from barnabas.adapters.coord_etcd.link import Link, WatchStream
from barnabas.core.tree.service_url import Endpoint
from barnabas.ports.coordination import Coordination, CoordinationError, NoNode, NotEmpty, SessionState
from barnabas.ports.errors import ConfigError
from barnabas.testing.contracts.coordination import CoordinationContract, Opened, machine_for
from barnabas.testing.contracts.coordination_harness import Follower, Recorder, Watch, wait_until
from barnabas.testing.contracts.coordination_remote import CableHarness, RemoteSuite, is_created, is_set

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("etcd")]
SESSION_MS = 4000
_running: list[EtcdServer] = []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with running(EtcdServer(tmp_path_factory.mktemp("etcd") / "server"), _running) as server:
        yield server


def _url(port: int, prefix: str) -> str:
    return f"etcd://127.0.0.1:{port}{prefix}"


class EtcdHarness(CableHarness):
    short_session_ms = 2000

    def __init__(self, server: EtcdServer) -> None:
        super().__init__(server)
        self.prefix = f"/{uuid4().hex}/root"

    def connect(
        self, port: int, *, session_timeout_ms: int | None = None, report: Callable[[str], None] | None = None
    ) -> EtcdCoordination:
        return EtcdCoordination(
            _url(port, self.prefix), session_timeout_ms=session_timeout_ms or SESSION_MS, report=report or ignore
        )

    def expire_session(self, session: Coordination) -> None:
        assert isinstance(session, EtcdCoordination)
        assert isinstance(self.server, EtcdServer)
        self.server.end_lease(session._keeper.lease)


@pytest.fixture
def harness(server: EtcdServer) -> Iterator[EtcdHarness]:
    harness = EtcdHarness(server)
    yield harness
    harness.close()


class TestEtcdCoordination(CoordinationContract, SecurityEntitySuite, RemoteSuite):
    """The contract, and what a network adds; the fixture `harness` is the module's."""


def _open_fresh() -> Opened:
    url = _url(_running[0].port, f"/{uuid4().hex}")
    return reopened(lambda: EtcdCoordination(url))


@pytest.mark.usefixtures("server")
class TestEtcdMachine(machine_for(_open_fresh).TestCase):  # type: ignore[misc]  # hypothesis makes the base class
    settings = settings(max_examples=8, stateful_step_count=15, deadline=None)


def test_ephemeral_create_on_lost_lease_reports_session_expired(harness: EtcdHarness) -> None:
    session = harness.session(session_timeout_ms=60_000)
    states: Recorder[SessionState] = Recorder()
    session.add_session_listener(states)
    harness.expire_session(session)
    with pytest.raises(CoordinationError, match="expired"):
        session.create("/registered", ephemeral=True)
    states.wait(lambda observed: observed == [SessionState.EXPIRED])  # long before the lease would be refreshed
    session.create("/registered", ephemeral=True)


def test_nodes_stand_at_the_keys_that_others_expect(server: EtcdServer, harness: EtcdHarness) -> None:
    harness.session().create("/brokers/ids/0", b"creator:127.0.0.1:9092", ephemeral=True)
    assert server.value(f"{harness.prefix}/brokers/ids/0".encode()) == b"creator:127.0.0.1:9092"
    assert server.value(f"{harness.prefix}/brokers".encode()) == b""


def test_keys_that_someone_else_wrote(server: EtcdServer, harness: EtcdHarness) -> None:
    session = harness.session()
    session.create("/a/b")
    prefix = harness.prefix.encode()
    gap = Watch(session, "/a/gap/below")
    for key in (b"/a/\xff\xfe", b"/a/", b"/a/b//c", b"-beside/a", b"/a/gap/below"):
        server.put(prefix + key, b"foreign")
    gap.wait(b"foreign", [])  # the event may be late: a follower that watches earlier gets this path, too
    watch, follower = Watch(session, "/a"), Follower(session, "/a")
    for key in (b"/a/\xff", b"/a/", b"/a/b//c", b"/a/..", b"/a/\x01", "/a/\u3000".encode()):
        server.put(prefix + key, b"foreign")
    session.set("/a", b"1")
    watch.wait(b"1", ["b"])
    follower.wait({"/a": b"1", "/a/b": b""})
    assert {path for paths in follower.changes.calls for path in paths or ()} == {"/a"}
    assert session.children("/a") == ["b"]
    with pytest.raises(NotEmpty):
        session.delete("/a/b")
    session.create("/a/gap")
    assert session.children("/a/gap") == ["below"]


def test_a_service_that_is_not_there_is_a_clear_error() -> None:
    port = free_port()
    with pytest.raises(CoordinationError, match=f"no etcd answers at 127.0.0.1:{port} within 300 ms"):
        EtcdCoordination(_url(port, ""), connect_timeout_ms=300)


@pytest.mark.parametrize("url", ["zookeeper://h:1", "h:2379", "etcd://", "etcd://h:0", "etcd://h:1/a//b"])
def test_a_url_that_makes_no_sense_is_a_clear_error(url: str) -> None:
    with pytest.raises(ConfigError, match=url):
        EtcdCoordination(url)


@pytest.mark.slow
def test_etcd_cluster_survives_one_killed_member_and_waits_without_quorum(tmp_path: Path) -> None:
    servers = etcd_cluster(tmp_path, 3)
    sessions: list[EtcdCoordination] = []
    try:
        leader = next(server for server in servers if server.is_leader())
        order = [leader, *(server for server in servers if server is not leader)]
        all_servers = ",".join(f"127.0.0.1:{server.port}" for server in order)
        # The first server of the list is used first: one session on the leader, one on a follower.
        turned = ",".join(f"127.0.0.1:{server.port}" for server in reversed(order))
        sessions = [
            EtcdCoordination(f"etcd://{each}/prefix", report=ignore, session_timeout_ms=6000)
            for each in (all_servers, turned)
        ]
        for number, session in enumerate(sessions):
            session.create(f"/registered/{number}", ephemeral=True)
        watches = [Watch(session, "/a") for session in sessions]
        leader.kill()
        wait_until(lambda: is_created(sessions[0], "/a", b"after"))
        for watch in watches:
            watch.wait(b"after", [])
        wait_until(lambda: is_created(sessions[1], "/b", b"after"))
        assert sessions[1].children("/registered") == ["0", "1"]
        states: Recorder[SessionState] = Recorder()
        sessions[1].add_session_listener(states)
        order[1].kill()  # one of three is left: no quorum
        states.wait(lambda observed: bool(observed) and observed[-1] is SessionState.SUSPENDED)
        with pytest.raises(CoordinationError):
            sessions[1].set("/a", b"alone")
        order[1].start()
        states.wait(lambda observed: observed[-1] is not SessionState.SUSPENDED)
        wait_until(lambda: is_set(sessions[1], "/a", b"quorum"))
        for watch in watches:
            watch.wait(b"quorum", [])
    finally:
        for session in sessions:
            session.close()
        for server in servers:
            server.stop()


def test_the_session_time_is_what_the_service_agreed_to(harness: EtcdHarness) -> None:
    assert harness.session(session_timeout_ms=4100).heartbeat() == 5000
    assert harness.session(session_timeout_ms=1).heartbeat() == 2000  # the least that etcd gives


def test_unexpected_watch_fault_does_not_end_session(harness: EtcdHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = Link.watch, [True]

    def watch(link: Link, *arguments: Any, **named: Any) -> WatchStream:
        if left:
            left.pop()
            raise RuntimeError("can't start new thread")
        return real(link, *arguments, **named)

    monkeypatch.setattr(Link, "watch", watch)
    harness.session().create("/there")
    assert not left


@pytest.mark.slow
def test_a_member_that_stands_still_is_left_for_another(tmp_path: Path) -> None:
    servers = etcd_cluster(tmp_path, 3)
    try:
        leader = next(server for server in servers if server.is_leader())
        order = [*(server for server in servers if server is not leader), leader]
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in order)
        session = EtcdCoordination(f"etcd://{hosts}/prefix", report=ignore, session_timeout_ms=12_000)
        try:
            check_fail_over_from_stopped_server(session, order[0])
        finally:
            session.close()
    finally:
        for server in servers:
            server.kill()


@pytest.mark.slow
def test_keep_promises_nothing_that_a_leader_stuck_in_fdatasync_says(tmp_path: Path) -> None:
    """Before etcd 3.5.10 a leader whose disk hangs answers keep-alives though another one leads (etcd #15247)."""
    servers = etcd_cluster(tmp_path, 3, fsync=True)
    try:
        leader = next(each for each in servers if each.is_leader())
        others = [each for each in servers if each is not leader]
        ports = ",".join(f"127.0.0.1:{each.port}" for each in [leader, *others])
        with (
            closing(EtcdCoordination(f"etcd://{ports}/p", session_timeout_ms=3000)) as session,
            closing(EtcdCoordination(_url(others[0].port, "/p"), session_timeout_ms=30_000)) as witness,
        ):
            states: Recorder[SessionState] = Recorder()
            session.add_session_listener(states)
            session.create("/registered", ephemeral=True)
            session.create("/written")
            stop = Event()
            writer = Thread(target=_write_until, args=(witness, stop))
            writer.start()
            try:
                with fdatasync_held(leader.pid, ".wal"):
                    lease_end_s = 0.0
                    while _exists(witness, "/registered") and len(states.calls) < 2:
                        began_s = time.monotonic()
                        with suppress(CoordinationError):
                            lease_end_s = max(lease_end_s, began_s + session.heartbeat() / 1000)
                    assert _exists(witness, "/registered") or lease_end_s <= time.monotonic()
                    assert states.calls == [SessionState.SUSPENDED, SessionState.CONNECTED]
                    assert _exists(witness, "/registered")
                    wait_until(lambda: session.heartbeat() > 0)
            finally:
                stop.set()
                writer.join()
    finally:
        for each in servers:
            each.kill()


def _write_until(session: EtcdCoordination, stop: Event) -> None:
    while not stop.is_set():
        with suppress(CoordinationError):
            session.set("/written", b"again")


def test_session_that_its_user_renews_is_not_renewed_by_the_adapter_as_well(
    harness: EtcdHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers: list[str] = []
    keep_alive = Link.keep_alive

    def noted(link: Link, lease: int, timeout_s: float) -> int:
        callers.append(current_thread().name)
        return keep_alive(link, lease, timeout_s)

    monkeypatch.setattr(Link, "keep_alive", noted)
    session = harness.session(session_timeout_ms=6000)
    began_s = time.monotonic()
    while time.monotonic() - began_s < 5.0:
        session.heartbeat()
        time.sleep(0.2)
    by_adapter = [name for name in callers if name == "coordination-session"]
    assert len(by_adapter) < len(callers) / 10, "a slow machine may let a heartbeat come late"
    callers.clear()
    wait_until(lambda: "coordination-session" in callers)
    assert session.heartbeat() > 0


def _exists(session: EtcdCoordination, path: str) -> bool:
    """Return whether a majority has the node, once it answers."""
    while True:
        try:
            return session.get(path) is not None
        except NoNode:
            return False
        except CoordinationError:
            continue


def test_a_keep_alive_of_another_term_than_the_read_after_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = iter([1, 2, 2, 2])

    def header() -> rpc.ResponseHeader:
        return rpc.ResponseHeader(raft_term=next(terms))

    link = Link(Endpoint(host="127.0.0.1", port=free_port()))
    monkeypatch.setattr(
        link._lease, "LeaseKeepAlive", lambda *_, **__: iter([rpc.LeaseKeepAliveResponse(header=header(), TTL=3)])
    )
    monkeypatch.setattr(link._kv, "Range", lambda *_, **__: rpc.RangeResponse(header=header()))
    assert link.keep_alive(7, 60.0) == 3
    assert list(terms) == []
    link.close()


@pytest.mark.slow
def test_readers_that_give_up_while_the_server_reads_leave_it_running(tmp_path: Path) -> None:
    """etcd before 3.5.5 panics when a read-only transaction ends with its client (etcd issue 14110)."""
    server = EtcdServer(tmp_path / "server")
    server.start()
    try:
        server.wait_ready()
        with closing(EtcdCoordination(_url(server.port, "/big"))) as writer:
            paths = [f"/t/{number:04}" for number in range(400)]
            for path in paths:
                writer.create(path, bytes(1000))
            for path in paths:
                writer.create(f"{path}/state")
            reader = EtcdCoordination(_url(server.port, "/big"))
            with closing(reader):
                readings: list[Callable[[], object]] = [
                    lambda: reader.get("/t"),
                    lambda: reader.get_many(paths),
                    lambda: reader.children("/t"),
                ]
                for number in range(150):
                    with deadline_of(reader, number % 40 / 8000), suppress(CoordinationError):
                        readings[number % 3]()
            assert len(writer.children("/t")) == len(paths)
            assert server.serves()
    finally:
        server.stop()


@contextmanager
def deadline_of(session: EtcdCoordination, seconds: float) -> Iterator[None]:
    """Have the requests of a session end after `seconds`."""
    keeper = session._keeper
    usual = keeper.ask
    keeper.ask = lambda request: request(keeper.link(), seconds)  # type: ignore[method-assign]
    try:
        yield
    finally:
        keeper.ask = usual  # type: ignore[method-assign]
