"""A broker of Apache Kafka, alone (KRaft), from jars of a Maven repository."""

import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from support.compat.java_client import QUICK, broker_classpath
from support.compat.model import Unavailable
from support.confluent import AdminClient
from support.ports import free_ports
from support.server_process import ServerProcess
from support.waiting import PATIENCE_S, wait_for

_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_FORMAT_LIMIT_S = 300
_BROKER_ID = 1
_OF_KRAFT = ("process.roles", "node.id", "controller.quorum.voters", "controller.listener.names")


class KafkaServer(ServerProcess):
    """Makes topics by itself; internal topics have one partition; compacts soon."""

    name = "Kafka"

    def __init__(
        self,
        folder: Path,
        users: Mapping[str, str] | None = None,
        tls: Mapping[str, str] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
        java: Sequence[str] = (),
        release: str | None = None,
        zookeeper: str | None = None,
    ) -> None:
        """With `users` and their passwords clients log in by SASL/PLAIN, ACLs decide, and `admin` is a super user.
        With `tls`, settings of certificates, they also log in by SCRAM, over SASL_SSL.
        With `listeners`, name → security protocol, it has these alone, and of `controller`; `more` are their settings,
        `java` options of the process. `release`: the version of an earlier broker, `zookeeper`: where one without KRaft
        finds its ZooKeeper.

        Skips the test where the jars, or Java, cannot be had.
        """
        try:
            command = ["java", *QUICK, *java, "-cp", broker_classpath(release)]
        except Unavailable as error:
            pytest.skip(f"Apache Kafka cannot be had here: {error}")
        config = folder / "server.properties"
        super().__init__(folder, [*command, "kafka.Kafka", str(config)])
        self.port, controller, internal = free_ports(3)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.backoff.ms": "100",
            **{f"{name}.replication.factor": "1" for name in ("offsets.topic", "transaction.state.log")},
            **{f"{name}.num.partitions": "1" for name in ("offsets.topic", "transaction.state.log")},
            "transaction.state.log.min.isr": "1",
        }
        if users:
            known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
            protocol = "SASL_SSL" if tls else "SASL_PLAINTEXT"
            addresses = {protocol: self.port, "INTERNAL": internal, "CONTROLLER": controller}
            protocols = f"{protocol}:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            settings |= {
                "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in addresses.items()),
                "listener.security.protocol.map": protocols,
                "inter.broker.listener.name": "INTERNAL",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" if tls else "PLAIN",
                **(tls or {}),
                **{
                    f"listener.name.{protocol.lower()}.scram-sha-{bits}.sasl.jaas.config": f"{scram} required;"
                    for bits in ((256, 512) if tls else ())
                },
                f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f"{module} required {known};",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:admin;User:ANONYMOUS",
            }
        self.zookeeper, self.release = zookeeper, release
        self.bootstraps: dict[str, str] = {}
        if listeners:
            names = [name for name in listeners if name != "controller"]
            ports = dict(zip(names, (self.port, *free_ports(len(names) - 1)), strict=True))
            self.bootstraps = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
            named = {**self.bootstraps, "controller": f"127.0.0.1:{controller}"}
            settings |= {
                "listeners": ",".join(f"{name.upper()}://{address}" for name, address in named.items()),
                "listener.security.protocol.map": ",".join(
                    f"{name.upper()}:{what}" for name, what in listeners.items()
                ),
            }
        settings |= more or {}
        if zookeeper is not None:
            settings = {name: value for name, value in settings.items() if name not in _OF_KRAFT}
            settings |= {"broker.id": str(_BROKER_ID), "zookeeper.connect": zookeeper}
            settings |= {f"zookeeper.{limit}.timeout.ms": "60000" for limit in ("session", "connection")}
            settings["listeners"] = f"PLAINTEXT://127.0.0.1:{self.port}"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if zookeeper is not None:
            return
        words = [*command, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(config)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_FORMAT_LIMIT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait_for_topic(self, topic: str) -> None:
        """Return once all partitions of the topic have a leader: the port opens before, after a restart."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})

        def is_led() -> bool:
            found = admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
            return found is not None and all(each.leader >= 0 for each in found.partitions.values())

        wait_for(is_led, PATIENCE_S)

    def kill(self) -> None:
        """kill -9. With ZooKeeper, removes what its session keeps there: a start before the session ends would fail."""
        was_running = self.is_running
        super().kill()
        if was_running and self.zookeeper is not None:
            _remove_registration(self.zookeeper)

    def serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2):
                return True
        except OSError:
            return False


@contextmanager
def made_kafka_cluster(folder: Path, count: int = 3) -> Iterator[list[KafkaServer]]:
    """Yield brokers with the ids from 1 on, each in a folder of its own (`kafka-1`, ...); the first one has the
    controller. They are killed at the end."""
    voter, *ports = free_ports(1 + count)
    servers = []
    for number, port in enumerate(ports, 1):
        own = folder / f"kafka-{number}"
        own.mkdir()
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        settings = {
            "node.id": str(number),
            "process.roles": "broker,controller" if number == 1 else "broker",
            "controller.quorum.voters": f"1@127.0.0.1:{voter}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{voter}" if number == 1 else listeners,
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
        server = KafkaServer(own, more=settings)
        server.port = port
        servers.append(server)
    try:
        yield servers
    finally:
        for server in servers:
            server.kill()


def start_kafka_cluster(servers: Sequence[KafkaServer]) -> None:
    """Start all brokers; returns once they know each other."""
    for server in servers:
        server.start()
    for server in servers:
        server.wait_ready()
    admin = AdminClient({"bootstrap.servers": servers[0].bootstrap})
    wait_for(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == len(servers), PATIENCE_S, pause_s=0.2)


def _remove_registration(zookeeper: str) -> None:
    """Remove the ephemeral nodes of the broker."""
    client = KazooClient(zookeeper, timeout=PATIENCE_S)
    client.start(PATIENCE_S)
    try:
        for path in (f"/brokers/ids/{_BROKER_ID}", "/controller"):
            with suppress(NoNodeError):
                client.delete(path)
    finally:
        client.stop()
        client.close()
