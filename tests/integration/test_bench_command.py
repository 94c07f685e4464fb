"""`barnabas bench` with a broker that runs."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.process import COMMAND, PATIENCE_S, BrokerProcess, broker_process
from support.waiting import wait_for
from typer.testing import CliRunner

from barnabas import Admin
from barnabas.app.cli.main import build_app

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("bench") / "data") as running:
        yield running


def bench(*words: object) -> Any:
    result = CliRunner().invoke(build_app("bench"), ["bench", *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("clients", ["own", "librdkafka"])
def test_rates_and_latencies_of_both_clients(broker: BrokerProcess, clients: str, tmp_path: Path) -> None:
    b = ("--bootstrap", broker.bootstrap, "--rounds", 2, "--clients", clients)
    page = tmp_path / "page.html"
    found = bench("produce", *b, "--volume", "400KB", "--partitions", 3, "--connections", 2, "--html", page)
    (row,) = found["results"]
    assert (found["messages"], row["work"], row["rounds"]) == (2_000, "produce", 2)
    assert 0 < row["messages_per_s"]["min"] <= row["messages_per_s"]["median"] <= row["messages_per_s"]["max"]
    assert row["curve"][-1][0] == pytest.approx(0.4)
    assert "<svg" in page.read_text()
    for connections in (1, 2, 4):
        read = bench("fetch", *b, "-n", 3_000, "--partitions", 2, "--connections", connections, "--compression", "lz4")
        assert read["results"][0]["messages_per_s"]["median"] > 0
    for work in ("latency", "e2e"):
        (row,) = bench(work, *b, "--rate", 200, "--seconds", 0.2)["results"]
        assert 0 < row["p50_ms"]["median"] <= row["p99_ms"]["median"] <= row["max_ms"]["max"]
        assert row["lost"] == 0
    (row,) = bench("transactions", *b, "--number", 3, "--messages", 2)["results"]
    assert row["messages_per_s"]["median"] > 0


def test_given_topic_is_read_from_where_the_measurement_begins(broker: BrokerProcess) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("given", partitions=1)
    for _ in range(2):
        found = bench("--bootstrap", broker.bootstrap, "-n", 1_500, "--topic", "given")
        assert found["consume_messages_per_s"] > 0


def test_peers_that_are_not_installed_are_left_out(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    words = ("compare", "--peer", "redis", "--peer", "kafka", "--peer", "nats", "--bootstrap", broker.bootstrap)
    found = bench(*words, "-n", 1_000, "--rounds", 1, "--seconds", 0.1)
    assert [sentence.partition(" is not measured: ")[0] for sentence in found["skipped"]] == [
        "Redis",
        "Apache Kafka",
        "NATS",
    ]
    assert {row["work"] for row in found["results"]} == {"produce", "fetch", "latency"}


def test_unknown_names_are_wrong_usage(broker: BrokerProcess) -> None:
    for words in (["compare", "--peer", "pulsar"], ["produce", "--clients", "java"], ["fetch", "--cold"]):
        result = CliRunner().invoke(build_app("bench"), ["bench", *words, "--bootstrap", broker.bootstrap])
        assert result.exit_code != 0


def test_options_before_the_name_of_a_measurement_are_wrong_usage_and_not_ignored() -> None:
    result = CliRunner().invoke(build_app("bench"), ["bench", "--topic", "orders", "produce"])
    assert result.exit_code == 2
    assert "stand behind its name: barnabas bench produce" in result.output


@pytest.mark.slow
def test_cold_reads_of_a_new_broker() -> None:
    found = bench("fetch", "--cold", "-n", 1_000, "--rounds", 1)
    assert found["results"][0]["messages_per_s"]["median"] > 0


@pytest.mark.slow
def test_sigterm_ends_the_servers_too() -> None:
    command = [str(COMMAND), "bench", "produce", "--messages", "100000000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        children: list[psutil.Process] = []

        def look() -> bool:
            children[:] = psutil.Process(process.pid).children(recursive=True)
            return bool(children) and any(child.net_connections("tcp") for child in children)

        wait_for(look)
        process.terminate()
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert not any(child.is_running() for child in children)
