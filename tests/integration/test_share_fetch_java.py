"""Apache Kafka's share consumers at a broker on a socket."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.compat.java_client import broker_classpath
from support.compat.model import Unavailable
from support.share_groups import read_from_the_beginning, start_offsets
from support.waiting import PATIENCE_S

from barnabas import Admin, Producer
from barnabas.app.embedded_broker import Broker

pytestmark = [pytest.mark.slow]

COUNT = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("shares"), log_retention_ms=-1) as running:
        groups = ("console", *(f"verifiable-{mode}" for mode in ("auto", "sync", "async")))
        read_from_the_beginning(running.bootstrap, *groups)
        with Admin(running.bootstrap) as admin:
            admin.create_topic("t", partitions=2)
        with Producer(running.bootstrap) as producer:
            for number in range(COUNT):
                producer.send("t", str(number).encode())
        yield running


def run_tool(folder: Path, tool: str, *options: str) -> str:
    try:
        classpath = broker_classpath()
    except Unavailable as error:
        pytest.skip(f"Apache Kafka cannot be had here: {error}")
    words = ["java", "-cp", classpath, f"org.apache.kafka.tools.{tool}", *options]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_console_share_consumer_gets_each_message_once(broker: Broker, tmp_path: Path) -> None:
    options = ["--bootstrap-server", broker.bootstrap, "--topic", "t", "--group", "console"]
    shown = run_tool(tmp_path, "consumer.ConsoleShareConsumer", *options, "--max-messages", str(COUNT))
    assert sorted(map(int, shown.split())) == list(range(COUNT))
    assert sum(start_offsets(broker.bootstrap, "console").values()) == COUNT


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_verifiable_share_consumer_acknowledges_each_message(broker: Broker, tmp_path: Path, mode: str) -> None:
    options = ["--bootstrap-server", broker.bootstrap, "--topic", "t", "--group-id", f"verifiable-{mode}"]
    shown = run_tool(
        tmp_path,
        "VerifiableShareConsumer",
        *options,
        "--max-messages",
        str(COUNT),
        "--acknowledgement-mode",
        mode,
    )
    events = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    acknowledged = [each for each in events if each["name"] == "offsets_acknowledged"]
    assert all(each["success"] for each in acknowledged)
    assert sum(start_offsets(broker.bootstrap, f"verifiable-{mode}").values()) == COUNT
