"""Brokers of Apache Kafka (KRaft, each a controller as well), from jars of a Maven repository."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

jars: Any = import_module("support.compat.java_client")
model: Any = import_module("support.compat.model")
given: Any = import_module("support.ports")

HEAP = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")
"""Kafka's own settings of its start script."""
START_S, STOP_S = 90, 60
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class KafkaUnavailable(Exception):
    """The text says why, in one line."""


def kafka_cluster(folder: Path, brokers: int = 3) -> AbstractContextManager[str]:
    """Run brokers with data below `folder`; gives the bootstrap addresses. Raises `KafkaUnavailable`."""
    try:
        return _run(folder, jars.broker_classpath(), brokers)
    except model.Unavailable as error:
        raise KafkaUnavailable(str(error)) from error


@contextmanager
def _run(folder: Path, classpath: str, brokers: int) -> Iterator[str]:
    ports = given.free_ports(2 * brokers)
    voters = ",".join(f"{n + 1}@127.0.0.1:{ports[brokers + n]}" for n in range(brokers))
    java = ["java", *HEAP, "-cp", classpath]
    started = []
    try:
        for number in range(1, brokers + 1):
            home = folder / f"kafka-{number}"
            home.mkdir()
            config = home / "server.properties"
            config.write_text(_config(number, home, ports, voters))
            words = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(config)]
            subprocess.run(words, cwd=home, capture_output=True, check=True)
            with (home / "server.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        [*java, "kafka.Kafka", str(config)], cwd=home, stdout=log, stderr=log, start_new_session=True
                    )
                )
        for number in range(brokers):
            _wait_open(ports[number])
        yield ",".join(f"127.0.0.1:{port}" for port in ports[:brokers])
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_S)


def _config(number: int, home: Path, ports: list[int], voters: str) -> str:
    brokers = len(ports) // 2
    mine, controller = ports[number - 1], ports[brokers + number - 1]
    replicas = min(3, brokers)
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://127.0.0.1:{mine},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(home / "data"),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(max(1, replicas - 1)),
        "offsets.topic.replication.factor": str(replicas),
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _wait_open(port: int) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"Apache Kafka does not listen on {port}")
