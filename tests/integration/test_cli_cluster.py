"""`barnabas cluster` and `barnabas brokers`, as a person or a script uses them."""

import json
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from support.cluster_process import ClusterProcess, cluster_process
from support.command import barnabas_here
from support.etcd_server import EtcdServer
from support.ports import free_pairs
from support.process import barnabas
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin
from barnabas.app.cli.cluster.status import ask_status
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("etcd")]

BROKERS = 3
LED = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, etcd_server: EtcdServer) -> Iterator[ClusterProcess]:
    words = ("--brokers", str(BROKERS), "--coordination", f"etcd://127.0.0.1:{etcd_server.port}/cli-cluster")
    with cluster_process(tmp_path_factory.mktemp("cluster") / "data", *words) as running:
        yield running


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE  # an orphan may have no parent to reap it
    except psutil.NoSuchProcess:
        return True


def _all_ended(processes: list[psutil.Process]) -> bool:
    return all(map(_has_ended, processes))


@pytest.mark.parametrize(
    "words",
    [
        *(["cluster", *rest] for rest in ([], ["start"], ["status"], ["reassign"], ["elect"])),
        *(["cluster", "reassign", name] for name in ("plan", "execute", "verify", "cancel")),
        *(["brokers", *rest] for rest in ([], ["list"], ["describe"])),
    ],
    ids=" ".join,
)
def test_every_command_explains_itself(words: list[str]) -> None:
    assert b"Usage: barnabas " + " ".join(words).encode() in barnabas_here(*words, "--help").stdout


def _healthy(cluster: ClusterProcess) -> bool:
    with Admin(cluster.bootstrap) as admin:
        return ask_status(admin).healthy


def _may_elect(admin: Admin, topic: str) -> bool:
    try:
        admin.elect_leaders([(topic, number) for number in range(LED * BROKERS)])
    except ApiError as error:
        assert error.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return False
    return True


def test_the_ready_line_names_every_broker(cluster: ClusterProcess) -> None:
    assert re.fullmatch(r"barnabas cluster ready (127\.0\.0\.1:[1-9]\d*,?)+\n", cluster.ready_line)
    assert len(set(cluster.addresses)) == BROKERS
    for line in cluster.log().splitlines():
        assert re.match(r"(cluster|broker-\d) +\| ", line), line


def test_status_and_brokers(cluster: ClusterProcess) -> None:
    b = ("--bootstrap", cluster.bootstrap)
    barnabas_here("topics", "create", "watched", "-p", "4", *b)
    wait_for(lambda: _healthy(cluster))
    status = json.loads(barnabas_here("cluster", "status", "--json", *b).stdout)
    assert [broker["id"] for broker in status["brokers"]] == list(range(1, BROKERS + 1))
    assert sum(broker["leaders"] for broker in status["brokers"]) == status["partitions"]
    assert sum(broker["controller"] for broker in status["brokers"]) == 1
    shown = barnabas_here("cluster", "status", *b).stdout.decode()
    assert "no offline partitions" in shown
    assert "no under-replicated partitions" in shown
    listed = json.loads(barnabas_here("brokers", "list", "--json", *b).stdout)
    assert {broker["address"] for broker in listed} == set(cluster.addresses)
    assert len(barnabas_here("brokers", "list", *b).stdout.splitlines()) == BROKERS + 1
    described = json.loads(barnabas_here("brokers", "describe", "1", "--json", *b).stdout)
    assert described["configs"]["broker.id"] == "1"
    assert described["log_dirs"][0]["path"].endswith("broker-1")
    assert b"broker-1" in barnabas_here("brokers", "describe", "1", *b).stdout
    assert b"unknown broker 77" in barnabas_here("brokers", "describe", "77", *b, expect=2).stderr


def test_cluster_status_watch_runs_until_interrupted(cluster: ClusterProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("barnabas.app.cli.cluster.command.sleep", sleep)
    words = ("cluster", "status", "--watch", "--interval", "0.5", "-b", cluster.bootstrap)
    assert barnabas_here(*words).stdout.count(b"controller") >= 3
    assert pauses == [0.5] * 3
    pauses.clear()
    lines = barnabas_here(*words, "--json").stdout.splitlines()
    assert [len(json.loads(line)["brokers"]) for line in lines] == [BROKERS] * 3


def test_a_reassignment_with_a_throttle(cluster: ClusterProcess, tmp_path: Path) -> None:
    b = ("--bootstrap", cluster.bootstrap)
    barnabas_here("topics", "create", "moved", "-p", "3", *b)
    planned = barnabas_here("cluster", "reassign", "plan", "--topics", "moved", *b)
    file = tmp_path / "plan.json"
    file.write_bytes(planned.stdout)
    assert b"of 3 partitions change" in planned.stderr
    before = json.loads(planned.stdout)
    assert [entry["partition"] for entry in before["partitions"]] == [0, 1, 2]
    printed = barnabas_here("cluster", "reassign", "execute", file, "--throttle", "1000000", *b).stdout
    assert json.loads(printed)["partitions"]
    throttled = barnabas_here("configs", "describe", "--broker", "1", "--json", *b).stdout
    assert b"leader.replication.throttled.rate" in throttled
    verified = json.loads(barnabas_here("cluster", "reassign", "verify", "--wait", "--json", file, *b).stdout)
    assert {entry["state"] for entry in verified} == {"done"}
    for words in (("--broker", "1"), ("--topic", "moved")):
        assert b"throttled" not in barnabas_here("configs", "describe", *words, *b).stdout
    assert b"0 moves cancelled" in barnabas_here("cluster", "reassign", "cancel", file, *b).stdout


def test_partitions_move_and_come_back(cluster: ClusterProcess, tmp_path: Path) -> None:
    b = ("--bootstrap", cluster.bootstrap)
    barnabas_here("topics", "create", "carried", "-p", "3", "--replication-factor", "1", *b)
    barnabas_here("produce", "carried", *b, stdin=b"".join(b"line %d\n" % number for number in range(100)))
    planned = barnabas_here(
        "cluster", "reassign", "plan", "--topics", "carried", "--brokers", "2,3", "--replication-factor", "2", *b
    )
    there, back = tmp_path / "there.json", tmp_path / "back.json"
    there.write_bytes(planned.stdout)
    back.write_bytes(barnabas_here("cluster", "reassign", "execute", there, *b).stdout)
    for file, held in ((there, {2, 3}), (back, None)):
        if held is None:
            barnabas_here("cluster", "reassign", "execute", file, *b)
        barnabas_here("cluster", "reassign", "verify", "--wait", file, *b)
        wanted = {entry["partition"]: entry["replicas"] for entry in json.loads(file.read_bytes())["partitions"]}
        described = json.loads(barnabas_here("topics", "describe", "carried", "--json", *b).stdout)
        assert {each["partition"]: each["replicas"] for each in described["partitions"]} == wanted
        assert held is None or all(set(each["isr"]) == held for each in described["partitions"])
        assert len(barnabas_here("consume", "carried", "--from", "beginning", "-e", *b).stdout.splitlines()) == 100


def test_reassign_verify_lists_partitions_that_differ_from_plan(cluster: ClusterProcess, tmp_path: Path) -> None:
    b = ("--bootstrap", cluster.bootstrap)
    barnabas_here("topics", "create", "other", "-p", "1", *b)
    file = tmp_path / "plan.json"
    file.write_text(
        '{"partitions": [{"topic": "other", "partition": 0, "replicas": [77]},'
        ' {"topic": "nowhere", "partition": 0, "replicas": [1]}]}'
    )
    observed = json.loads(barnabas_here("cluster", "reassign", "verify", "--json", file, *b, expect=1).stdout)
    assert [entry["state"] for entry in observed] == ["no such partition", "other replicas"]
    file.write_text('{"partitions": [{"topic": "other", "partition": 0, "replicas": [77]}]}')
    assert b"INVALID_REPLICA_ASSIGNMENT" in barnabas_here("cluster", "reassign", "execute", file, *b, expect=1).stderr


def test_cluster_elect_reports_partitions_and_rejects_wrong_options(cluster: ClusterProcess) -> None:
    b = ("--bootstrap", cluster.bootstrap)
    barnabas_here("topics", "create", "elected", "-p", "6", "--replication-factor", str(BROKERS), *b)
    barnabas_here("cluster", "elect", "--all", *b)
    assert b"no partition needed" in barnabas_here("cluster", "elect", "--all", *b).stdout
    words = ("cluster", "elect", "--topic", "elected", "--partition", "1", "--json", *b)
    assert json.loads(barnabas_here(*words).stdout) == []
    for wrong in ([], ["--all", "--topic", "elected"], ["--all", "--partition", "1"]):
        assert barnabas_here("cluster", "elect", *wrong, *b, expect=2).stderr


def test_a_broker_that_is_killed_comes_back(cluster: ClusterProcess) -> None:
    b = ("--bootstrap", cluster.bootstrap)
    barnabas_here("topics", "create", "killed", "-p", str(LED * BROKERS), *b)
    barnabas_here("cluster", "elect", "--all", *b)
    killed = cluster.broker(1)
    killed.kill()
    wait_for(lambda: "broker-1 is ready again" in cluster.log())
    assert "broker-1 was killed by signal 9; it starts again" in cluster.log()
    assert cluster.broker(1).pid != killed.pid
    assert len(json.loads(barnabas_here("brokers", "list", "--json", "-b", cluster.bootstrap).stdout)) == BROKERS
    # What it led, others lead now; the first replicas are asked to lead again once they are in sync.
    with Admin(cluster.bootstrap) as admin:
        wait_for(lambda: {p.leader for p in admin.describe_topics(["killed"])[0].partitions} == {2, 3})
        wait_for(lambda: _may_elect(admin, "killed"))
        # Whom one asks may know it a little later.
        wait_for(lambda: all(p.leader == p.replicas[0] for p in admin.describe_topics(["killed"])[0].partitions))


@pytest.mark.slow
def test_by_default_it_has_an_etcd_of_its_own(tmp_path: Path) -> None:
    for life in range(2):
        with cluster_process(tmp_path / "data", "--brokers", str(BROKERS)) as running:
            if not life:
                barnabas_here("topics", "create", "kept", "-b", running.bootstrap)
            assert b"kept" in barnabas_here("topics", "list", "-b", running.bootstrap).stdout
            processes = psutil.Process(running.process.pid).children(recursive=True)
            assert any("etcd" in Path(each.exe()).name for each in processes)
            assert running.stop() == 0
            wait_for(partial(_all_ended, processes))
    brokers = [f"broker-{number}" for number in range(1, BROKERS + 1)]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [*brokers, "etcd"]


@pytest.mark.slow
def test_each_broker_may_run_a_member_of_the_etcd(tmp_path: Path) -> None:
    ports = free_pairs(BROKERS)
    place = f"etcd+managed://{','.join(f'127.0.0.1:{port}' for port in ports)}/x"
    with cluster_process(tmp_path / "data", "--brokers", str(BROKERS), "--coordination", place) as running:
        for number in range(1, BROKERS + 1):
            assert any("etcd" in Path(each.exe()).name for each in running.broker(number).children(recursive=True))
        assert running.stop() == 0
    more = barnabas_here("cluster", "start", "--data", tmp_path, "--brokers", "7", "--coordination", place, expect=2)
    assert b"7 brokers run one each" in more.stderr


@pytest.mark.slow
def test_a_broker_whose_disk_is_gone_comes_back_with_its_member_of_the_etcd(tmp_path: Path) -> None:
    place = f"etcd+managed://{','.join(f'127.0.0.1:{port}' for port in free_pairs(BROKERS))}/x"
    data = tmp_path / "data"
    with cluster_process(data, "--brokers", str(BROKERS), "--coordination", place) as running:
        b = ("--bootstrap", running.bootstrap)
        barnabas_here("topics", "create", "t", "-p", "1", *b)
        barnabas_here("produce", "t", "--acks", "all", *b, stdin=b"before\n")
        victim = running.broker(2)
        (data / "broker-2").rename(tmp_path / "gone")
        victim.kill()
        wait_for(lambda: "broker-2 is ready again" in running.log(), 90)
        barnabas_here("produce", "t", "--acks", "all", *b, stdin=b"after\n")
        wait_for(lambda: _in_sync(running.bootstrap) == {1, 2, 3}, pause_s=0.2)
        shown = barnabas_here("consume", "t", "--from-beginning", "--max-messages", "2", *b).stdout
        assert shown.splitlines() == [b"before", b"after"]
        assert running.stop() == 0


def _in_sync(bootstrap: str) -> set[int]:
    found = barnabas_here("topics", "describe", "t", "--json", "--bootstrap", bootstrap).stdout
    [partition] = json.loads(found)["partitions"]
    return set(partition["isr"])


@pytest.mark.slow
def test_sigterm_stops_all_in_order_and_ids_stay(tmp_path: Path, etcd_server: EtcdServer) -> None:
    place = f"etcd://127.0.0.1:{etcd_server.port}/cli-stop"
    words = ("--brokers", str(BROKERS), "--coordination", place, "--log-format", "json", "--no-restart")
    for life in range(2):
        with cluster_process(tmp_path / "data", *words) as running:
            b = ("--bootstrap", running.bootstrap)
            if not life:
                barnabas_here("topics", "create", "kept", "-p", "2", *b)
            assert b"kept" in barnabas_here("topics", "list", *b).stdout
            processes = [running.broker(number) for number in range(1, BROKERS + 1)]
            assert running.stop() == 0
            assert _all_ended(processes)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [f"broker-{n}" for n in range(1, BROKERS + 1)]
    lines = [json.loads(line) for line in running.log().splitlines()]
    stopped = [line["node"] for line in lines if "has stopped" in line["message"]]
    assert stopped == [f"broker-{number}" for number in range(BROKERS, 0, -1)] * 2


@pytest.mark.slow
def test_cluster_without_restart_runs_until_last_broker_is_killed(tmp_path: Path, etcd_server: EtcdServer) -> None:
    place = f"etcd://127.0.0.1:{etcd_server.port}/cli-dies"
    words = ("--brokers", "2", "--coordination", place, "--no-restart", "--set", "zookeeper.session.timeout.ms=1000")
    with cluster_process(tmp_path / "data", *words) as running:
        b = ("--bootstrap", running.addresses[1])
        barnabas_here("topics", "create", "half", "-p", "2", *b)
        barnabas_here("topics", "create", "alone", "-p", "2", "--replication-factor", "1", *b)
        running.broker(1).kill()
        wait_for(lambda: "broker-1 was killed by signal 9\n" in running.log())
        assert running.process.poll() is None
        with Admin(running.addresses[1]) as admin:
            wait_for(lambda: ask_status(admin).offline)
            wait_for(lambda: len(ask_status(admin).under_replicated) == 2)
        status = json.loads(barnabas_here("cluster", "status", "--json", *b, expect=1).stdout)
        assert [(each["topic"], each["leader"], each["replicas"]) for each in status["offline"]] == [("alone", -1, [1])]
        behind = [(each["topic"], each["leader"], each["isr"]) for each in status["under_replicated"]]
        assert behind == [("half", 2, [2])] * 2
        assert [broker["problem"] for broker in status["brokers"]] == ["down", None]
        shown = barnabas_here("cluster", "status", *b, expect=1).stdout
        assert b"1 offline partition" in shown
        assert b"2 under-replicated partitions" in shown
        running.broker(2).kill()
        assert running.process.wait(PATIENCE_S) == 1
        assert "barnabas: no broker is left\n" in running.log()


def test_brokers_stop_when_the_cluster_command_is_killed(tmp_path: Path, etcd_server: EtcdServer) -> None:
    place = f"etcd://127.0.0.1:{etcd_server.port}/cli-killed"
    with cluster_process(tmp_path / "data", "--brokers", "1", "--coordination", place) as running:
        left = running.broker(1)
        running.process.send_signal(signal.SIGKILL)
        wait_for(lambda: _has_ended(left))


def test_a_cluster_that_cannot_start_says_why(tmp_path: Path, etcd_server: EtcdServer) -> None:
    place = f"etcd://127.0.0.1:{etcd_server.port}/cli-wrong"
    words = ("cluster", "start", "--data", str(tmp_path / "d"), "--brokers", "1", "--coordination")
    assert b"--set broker.id" in barnabas_here(*words, place, "--set", "broker.id=7", expect=2).stderr
    assert b"--set listeners" in barnabas_here(*words, place, "--set", "listeners=kafka://h:1", expect=2).stderr
    assert b"num.partitions" in barnabas_here(*words, place, "--set", "num.partitions=many", expect=2).stderr
    assert b"several brokers need" in barnabas_here(*words, "embedded", expect=2).stderr
    (tmp_path / "d" / "broker-1").mkdir(parents=True)
    (tmp_path / "d" / "broker-1" / "meta.properties").write_text("version=1\nbroker.id=5\ncluster.id=other\n")
    failed = barnabas(*words, place, "--base-port", "0", expect=1)
    assert b"barnabas: broker-1 did not start: it ended with exit code" in failed.stderr
    assert b"broker-1 | " in failed.stderr
