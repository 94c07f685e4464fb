"""docs/deployment.md: systemd's unit, Kubernetes' manifest and logrotate's file, looked at by their tools, and run."""

import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from string import Template
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from support.doc_commands import Reader
from support.documents import blocks, read
from support.etcd_server import EtcdServer
from support.ports import free_ports
from support.process import COMMAND, BrokerProcess, broker_process
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Producer

UNIT = "docs/deploy/barnabas.service"
MANIFEST = "docs/deploy/kubernetes.yaml"


def unit_value(key: str) -> str:
    (value,) = re.findall(rf"^{key}=(.*)$", read(UNIT), re.MULTILINE)
    return str(value)


def properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    return {key: value for key, _, value in pairs}


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def test_weekly_commands_run_against_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (commands,) = blocks("docs/checklist.md", "sh")
    with Broker(tmp_path / "data") as broker:
        reader = Reader(tmp_path, monkeypatch)
        monkeypatch.setenv("BARNABAS_BOOTSTRAP", broker.bootstrap)
        assert len(reader.run(commands, broker.bootstrap)) == 5


# --- systemd


def test_unit_is_accepted_and_confined_by_systemd(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not here")
    unit = tmp_path / "barnabas.service"
    here = read(UNIT).replace("/opt/barnabas/bin/barnabas", str(COMMAND))
    unit.write_text(re.sub(r"^(User|Group)=barnabas$", r"\1=root", here, flags=re.MULTILINE))
    verified = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    words = [tool, "security", "--offline=yes", "--threshold=25", str(unit)]
    judged = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unrecognized option" in judged.stderr or "Unknown option" in judged.stderr:
        pytest.skip("systemd before 250 judges loaded units only")
    assert judged.returncode == 0, judged.stdout[-500:]


@pytest.mark.process
@pytest.mark.parametrize("is_abstract", [False, True], ids=["file", "abstract"])
def test_command_of_the_unit_reports_ready_to_systemd_and_stops_in_order(tmp_path: Path, is_abstract: bool) -> None:
    settings = properties(read("docs/deploy/server.properties"))
    assert unit_value("Type") == "notify"
    settings |= {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "metrics.listen": "127.0.0.1:0",
    }
    del settings["coordination"], settings["advertised.listeners"]
    config = write_properties(tmp_path / "server.properties", settings)
    words = shlex.split(unit_value("ExecStart"))
    assert words[:4] == ["/opt/barnabas/bin/barnabas", "serve", "--config", "/etc/barnabas/server.properties"]
    address = f"\0barnabas-{tmp_path}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(PATIENCE_S)
        with (tmp_path / "log").open("wb") as log:
            broker = subprocess.Popen(
                [str(COMMAND), "serve", "--config", str(config), *words[4:]],
                env={"HOME": str(tmp_path), "NOTIFY_SOCKET": address.replace("\0", "@")},
                stdout=subprocess.PIPE,
                stderr=log,
            )
            try:
                assert manager.recv(100) == b"READY=1"
                broker.send_signal(signal.SIGTERM)
                printed, _ = broker.communicate(timeout=PATIENCE_S)
                assert (broker.returncode, printed[:15]) == (0, b"barnabas ready ")
            finally:
                broker.kill()


@pytest.mark.process
def test_broker_serves_although_systemd_cannot_be_notified(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data", environment={"NOTIFY_SOCKET": str(tmp_path / "nobody")}) as broker:
        wait_for(lambda: "systemd cannot be notified" in broker.log())


@pytest.mark.process
def test_wrong_setting_ends_with_the_code_that_systemd_does_not_restart(tmp_path: Path) -> None:
    words = [str(COMMAND), "serve", "--data", str(tmp_path / "data"), "--set", "retention.sm=1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert str(done.returncode) == unit_value("RestartPreventExitStatus"), done.stderr


def test_logrotate_takes_its_file(tmp_path: Path) -> None:
    tool = shutil.which("logrotate")
    if tool is None:
        pytest.skip("logrotate is not here")
    config = tmp_path / "barnabas"
    config.write_text(read("docs/deploy/barnabas.logrotate").replace("/var/log/barnabas", str(tmp_path)))
    (tmp_path / "broker.log").write_text("a line\n")
    words = [tool, "--force", "--state", str(tmp_path / "state"), str(config)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / name).read_text() for name in ("broker.log", "broker.log.1")] == ["", "a line\n"]


# --- Kubernetes


@pytest.fixture(scope="module")
def resources() -> dict[tuple[str, str], dict[str, Any]]:
    found = list(yaml.safe_load_all(read(MANIFEST)))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.slow
def test_manifest_fits_the_schemas_of_kubernetes(resources: dict[tuple[str, str], dict[str, Any]]) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    assert len(resources) == 7
    for resource in resources.values():
        validate.validate(resource, validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", ["barnabas", "etcd"])
def test_parts_of_the_manifest_refer_to_each_other(resources: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    workload = resources["StatefulSet", name]["spec"]
    pod = workload["template"]
    labels = pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    service = resources["Service", name]["spec"]
    assert workload["serviceName"] == name
    assert service["clusterIP"] == "None"
    assert service["selector"] == workload["selector"]["matchLabels"] == labels
    assert resources["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"] == labels
    assert all(ports[each["targetPort"]] == each["port"] for each in service["ports"])
    probes = [probe for key, probe in container.items() if key.endswith("Probe")]
    assert len(probes) >= 2
    assert {probe["httpGet"]["port"] for probe in probes} == {"metrics"}
    given = {each["name"] for each in pod["spec"].get("volumes", ())}
    given |= {each["metadata"]["name"] for each in workload["volumeClaimTemplates"]}
    assert {each["name"] for each in container["volumeMounts"]} == given
    named = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
    assert named == {each["name"] for each in container["env"]}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.xdist_group("etcd")
def test_brokers_of_the_manifest_form_a_cluster_and_pass_its_probes(
    resources: dict[tuple[str, str], dict[str, Any]], etcd_server: EtcdServer, tmp_path: Path
) -> None:
    (container,) = resources["StatefulSet", "barnabas"]["spec"]["template"]["spec"]["containers"]
    common = properties(resources["ConfigMap", "barnabas"]["data"]["server.properties"])
    ports, pages = free_ports(3), free_ports(3)
    with ExitStack() as stack:
        for number in range(3):
            # What the cluster gives a pod: its index and name; names of hosts and folders are those of this machine.
            pod = {"POD_INDEX": str(number), "POD_NAME": f"barnabas-{number}", "POD_NAMESPACE": "here"}
            words = [Template(word.replace("(", "{").replace(")", "}")).substitute(pod) for word in container["args"]]
            given = [word.removeprefix("--set=") for word in words if word.startswith("--set=")]
            assert given[1].endswith(f"=PLAINTEXT://barnabas-{number}.barnabas.here.svc.cluster.local:9092")
            own = {
                "listeners": f"PLAINTEXT://127.0.0.1:{ports[number]}",
                "log.dirs": str(tmp_path / f"data-{number}"),
                "coordination": f"etcd://127.0.0.1:{etcd_server.port}/kubernetes-{tmp_path.name}",
                "metrics.listen": f"127.0.0.1:{pages[number]}",
            }
            assert own.keys() <= common.keys()
            config = write_properties(tmp_path / f"server-{number}.properties", {**common, **own})
            advertised = f"advertised.listeners=PLAINTEXT://127.0.0.1:{ports[number]}"
            broker = BrokerProcess(tmp_path / f"data-{number}", given[0], advertised, listen=(), config=config)
            stack.callback(broker.stop)
        bootstrap = f"127.0.0.1:{ports[0]}"
        with Admin(bootstrap) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 3)
            assert sorted(each.node_id for each in admin.describe_cluster().brokers) == [0, 1, 2]
            admin.create_topic("orders")
            (described,) = admin.describe_topics(["orders"])
            assert {len(each.replicas) for each in described.partitions} == {3}
        with Producer(bootstrap, acks="all") as producer:
            producer.send("orders", b"one").result(PATIENCE_S)
        with Consumer(bootstrap, group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.value == b"one"
        for page in pages:
            for key in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = container[key]["httpGet"]["path"]
                with urlopen(f"http://127.0.0.1:{page}{path}", timeout=PATIENCE_S) as answer:
                    assert answer.status == 200
