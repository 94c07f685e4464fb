"""Brokers of Apache Kafka (KRaft, each a controller as well), from jars of a Maven repository."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

jars: Any = import_module("support.compat.java_client")
model: Any = import_module("support.compat.model")
given: Any = import_module("support.ports")

HEAP = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")
"""Kafka's own settings of its start script."""
START_S, STOP_S = 90, 60
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class KafkaUnavailable(Exception):
    """The text says why, in one line."""


def kafka_cluster(
    folder: Path,
    brokers: int = 3,
    *,
    protocol: str = "PLAINTEXT",
    settings: Mapping[str, str] = NO_SETTINGS,
    users: Sequence[str] = (),
) -> AbstractContextManager[tuple[str, Sequence[int]]]:
    """Run brokers with data below `folder`; gives the bootstrap addresses and the ids of the processes.

    The listener for clients has the security `protocol`; brokers speak in plain text to each other. `users` are the
    first SCRAM credentials, in the form of `kafka-storage.sh format --add-scram`. Raises `KafkaUnavailable`.
    """
    try:
        return _run(folder, jars.broker_classpath(), brokers, protocol, settings, users)
    except model.Unavailable as error:
        raise KafkaUnavailable(str(error)) from error


@contextmanager
def _run(
    folder: Path, classpath: str, brokers: int, protocol: str, settings: Mapping[str, str], users: Sequence[str]
) -> Iterator[tuple[str, Sequence[int]]]:
    ports = given.free_ports(3 * brokers)
    voters = ",".join(f"{n + 1}@127.0.0.1:{ports[brokers + n]}" for n in range(brokers))
    java = ["java", *HEAP, "-cp", classpath]
    credentials = [word for user in users for word in ("--add-scram", user)]
    started = []
    try:
        for number in range(1, brokers + 1):
            home = folder / f"kafka-{number}"
            home.mkdir()
            config = home / "server.properties"
            each = {**_config(number, home, ports, voters, protocol), **settings}
            config.write_text("".join(f"{key}={value}\n" for key, value in each.items()))
            words = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(config), *credentials]
            subprocess.run(words, cwd=home, capture_output=True, check=True)
            with (home / "server.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        [*java, "kafka.Kafka", str(config)], cwd=home, stdout=log, stderr=log, start_new_session=True
                    )
                )
        for number in range(brokers):
            _wait_open(ports[number])
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports[:brokers])
        yield addresses, [process.pid for process in started]
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_S)


def _config(number: int, home: Path, ports: list[int], voters: str, protocol: str) -> dict[str, str]:
    brokers = len(ports) // 3
    mine, controller, internal = ports[number - 1], ports[brokers + number - 1], ports[2 * brokers + number - 1]
    replicas = min(3, brokers)
    names = {protocol: mine, "INTERNAL": internal, "CONTROLLER": controller}
    return {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": voters,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in names.items()),
        "listener.security.protocol.map": f"{protocol}:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(home / "data"),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(max(1, replicas - 1)),
        "offsets.topic.replication.factor": str(replicas),
    }


def _wait_open(port: int) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"Apache Kafka does not listen on {port}")
