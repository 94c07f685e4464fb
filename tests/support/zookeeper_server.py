"""Real ZooKeeper servers from the jars of pyspark, on free loopback ports."""

import importlib.util
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.ports import free_port, free_ports
from support.server_process import ServerProcess, start_all

from barnabas.pipeline.spark.java import find_java
from barnabas.ports.errors import ConfigError

_JARS = ("zookeeper-", "slf4j-api", "log4j-", "netty-", "snappy-java", "metrics-core", "commons-", "jackson-")


def _command(properties: Sequence[str]) -> list[str]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        pytest.skip("ZooKeeper comes with pyspark, which is not installed (pip install pyspark)")
    jars = [str(jar) for jar in sorted(Path(spec.origin).parent.glob("jars/*.jar")) if jar.name.startswith(_JARS)]
    if not any("zookeeper-" in jar for jar in jars):
        pytest.skip("this pyspark has no ZooKeeper among its jars")
    try:
        java = find_java()
    except ConfigError as error:
        pytest.skip(str(error))
    options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    # A node of 1 MiB does not fit into the default jute.maxbuffer. The page cache outlives a killed server.
    settings = ["-Djute.maxbuffer=4194304", "-Dzookeeper.forceSync=no", "-Dzookeeper.admin.enableServer=false"]
    settings += properties
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    return [str(java.home / "bin" / "java"), *options, *settings, "-cp", os.pathsep.join(jars), main]


class ZookeeperServer(ServerProcess):
    """One server; `members` lists the ensemble as (client port, peer port, election port).

    `properties` go to Java as `-D...`, `settings` into its configuration.
    """

    name = "ZooKeeper"

    def __init__(
        self,
        folder: Path,
        *,
        members: list[tuple[int, int, int]] | None = None,
        my_id: int = 1,
        properties: Sequence[str] = (),
        settings: Sequence[str] = (),
    ) -> None:
        super().__init__(folder, [*_command(properties), str(folder / "zoo.cfg")])
        self.port = members[my_id - 1][0] if members else free_port()
        data = folder / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(f"{my_id}\n")
        lines = [f"dataDir={data}", "clientPortAddress=127.0.0.1", f"clientPort={self.port}", "tickTime=500"]
        lines += ["initLimit=20", "syncLimit=10", "minSessionTimeout=1000", "maxSessionTimeout=60000"]
        lines += ["admin.enableServer=false", "4lw.commands.whitelist=srvr", "maxClientCnxns=0"]
        lines += settings
        for number, (_, peer, election) in enumerate(members or (), start=1):
            lines.append(f"server.{number}=127.0.0.1:{peer}:{election}")
        (folder / "zoo.cfg").write_text("\n".join(lines) + "\n")

    def mode(self) -> str:
        """standalone, leader, follower; "" when it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return ""
        modes = [line.partition(b": ")[2] for line in answer.splitlines() if line.startswith(b"Mode: ")]
        return modes[0].decode() if modes else ""

    def serves(self) -> bool:
        return bool(self.mode())


def zookeeper_ensemble(folder: Path, size: int) -> list[ZookeeperServer]:
    """Servers that form a quorum, started and ready."""
    ports = free_ports(3 * size)
    members = [(ports[3 * index], ports[3 * index + 1], ports[3 * index + 2]) for index in range(size)]
    servers = [ZookeeperServer(folder / f"server{n}", members=members, my_id=n) for n in range(1, size + 1)]
    start_all(servers)
    return servers
