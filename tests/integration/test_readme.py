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
def test_the_spark_examples(readme: str, broker: BrokerProcess, tmp_path: Path) -> None:
    from barnabas import Consumer, Producer

    with Producer(broker.bootstrap) as producer:
        producer.send_many("events", [b"one", b"two"])
    example = next(block for block in blocks(readme, "python") if "spark" in block)
    names: dict[str, object] = {}
    from barnabas.pipeline.session import local_session

    with local_session("readme"):
        exec(compile(example.replace(ADDRESS, broker.bootstrap), "README.md", "exec"), names)
        assert sorted(bytes(row.value) for row in names["rows"].collect()) == [b"one", b"two"]  # type: ignore[attr-defined]
        printed: list[object] = []
        example = next(block for block in blocks(readme, "python") if "append_batches" in block)
        example = example.replace(ADDRESS, broker.bootstrap).replace('"checkpoint"', repr(str(tmp_path)))
        options: dict[str, str] = {**names["options"], "startingOffsets": "earliest"}  # type: ignore[dict-item]
        source = names["spark"].readStream.format("barnabas").options(**options).load()  # type: ignore[attr-defined]
        counts = source.groupBy("topic").count().selectExpr("concat(topic, ' ', count) as value")
        names |= {"counts": counts, "print": printed.append}
        exec(compile(example, "README.md", "exec"), names)
        names["query"].stop()  # type: ignore[attr-defined]
        with Consumer(broker.bootstrap) as consumer:
            consumer.assign("counts", position="earliest")
            assert [message.value for message in consumer.messages(stop_at_end=True)] == [b"events 2"]
        assert printed == [
            dict.fromkeys(("minOffsetsBehindLatest", "maxOffsetsBehindLatest"), "0") | {"avgOffsetsBehindLatest": "0.0"}
        ]


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
    for line in lines:
        words = shlex.split(line.partition("#")[0].replace(ADDRESS, bootstrap))
        done = subprocess.run(
            [COMMAND, *words[1:]], cwd=folder, capture_output=True, timeout=60, check=False, env=dict(os.environ)
        )
        assert done.returncode == 0, (line, done.stderr)
        if "consume" in words:
            assert done.stdout == b"a line\n"
    return len(lines)
