"""What README.md says can be done, done: its Python and its commands run as written."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster_process import cluster_process
from support.etcd_server import EtcdServer
from support.process import COMMAND, BrokerProcess, broker_process

pytestmark = pytest.mark.process

ADDRESS = "127.0.0.1:9092"
"""The address that the examples use; a test has another."""


@pytest.fixture(scope="module")
def readme(checkout: Path) -> str:
    return (checkout / "README.md").read_text(encoding="utf-8")


def blocks(readme: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path / "data") as running:
        yield running


def test_the_broker_example(readme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = next(block for block in blocks(readme, "python") if "Broker(" in block)
    printed: list[object] = []
    exec(compile(example, "README.md", "exec"), {"print": printed.append})  # our own README
    assert printed == [[b"hello"]]
    assert (tmp_path / "data").is_dir()


class Enough(Exception):
    """The examples that read for ever have read what there is."""


def test_the_example_of_a_group(readme: str) -> None:
    from barnabas.testing import TestBroker

    example = next(block for block in blocks(readme, "python") if "group_id=" in block)
    printed: list[tuple[object, ...]] = []

    def show(*values: object) -> None:
        printed.append(values)
        if len(printed) == 2:
            raise Enough

    with TestBroker() as broker:
        broker.produce("orders", [b"one", b"two"])
        with pytest.raises(Enough):
            exec(compile(example.replace(ADDRESS, broker.bootstrap), "README.md", "exec"), {"print": show})
    assert sorted(str(values[-1]) for values in printed) == ["b'one'", "b'two'"]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")  # the one session of the process: another one first would leave it without its jars
def test_the_spark_example(readme: str, broker: BrokerProcess) -> None:
    from barnabas import Producer

    with Producer(broker.bootstrap) as producer:
        producer.send_many("events", [b"one", b"two"])
    example = next(block for block in blocks(readme, "python") if "spark" in block)
    names: dict[str, object] = {}
    from barnabas.pipeline.session import local_session

    with local_session("readme"):
        exec(compile(example.replace(ADDRESS, broker.bootstrap), "README.md", "exec"), names)
        assert sorted(bytes(row.value) for row in names["rows"].collect()) == [b"one", b"two"]  # type: ignore[attr-defined]


def test_the_example_of_schemas_and_audit(readme: str) -> None:
    from support.schema_registry import serving

    from barnabas.testing import TestBroker

    example = next(block for block in blocks(readme, "python") if "AvroEncoder" in block)
    with TestBroker() as broker, serving(broker.bootstrap) as url:
        example = example.replace(ADDRESS, broker.bootstrap).replace("http://127.0.0.1:8081", url)
        exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
        with broker.consumer() as consumer:
            consumer.assign("orders", position="earliest")
            (message,) = consumer.messages(stop_at_end=True)
        assert message.value is not None
        assert message.value[0] == 0, "Confluent's wire form"
        assert [name for name, _ in message.headers] == ["barnabas-audit"]


def test_the_commands_of_an_operator(readme: str, broker: BrokerProcess, tmp_path: Path) -> None:
    (block,) = [each for each in blocks(readme, "sh") if "barnabas serve" in each]
    (tmp_path / "access.log").write_text("a line\n")
    assert run_commands(block, broker.bootstrap, tmp_path) >= 4


def test_the_commands_of_who_runs_a_cluster(readme: str, etcd_server: EtcdServer, tmp_path: Path) -> None:
    (block,) = [each for each in blocks(readme, "sh") if "barnabas cluster start" in each]
    where = f"etcd://127.0.0.1:{etcd_server.port}/readme-{tmp_path.name}"
    with cluster_process(tmp_path / "cluster", "--brokers", "3", "--coordination", where) as cluster:
        assert run_commands(block, cluster.bootstrap, tmp_path) >= 4


def run_commands(block: str, bootstrap: str, folder: Path) -> int:
    """Run those that end by themselves; returns how many."""
    own = ("barnabas serve", "barnabas load", "barnabas report", "barnabas cluster start")
    lines = [line for line in block.splitlines() if line.startswith("barnabas ") and not line.startswith(own)]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config")}
    for line in lines:
        words = shlex.split(line.partition("#")[0].replace(ADDRESS, bootstrap))
        done = subprocess.run(
            [COMMAND, *words[1:]], cwd=folder, capture_output=True, timeout=60, check=False, env=environment
        )
        assert done.returncode == 0, (line, done.stderr)
        if "consume" in words:
            assert done.stdout == b"a line\n"
    return len(lines)
