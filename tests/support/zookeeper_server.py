"""Real ZooKeeper servers from the jars of pyspark, on free loopback ports."""

import importlib.util
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from support.waiting import wait_for

from barnabas.pipeline.java import find_java
from barnabas.ports.errors import ConfigError

START_PATIENCE_S = 60.0
_JARS = ("zookeeper-", "slf4j-api", "log4j-", "netty-", "snappy-java", "metrics-core", "commons-", "jackson-")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


def _command() -> list[str]:
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
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    return [str(java.home / "bin" / "java"), *options, *settings, "-cp", os.pathsep.join(jars), main]


class ZookeeperServer:
    """One server; `members` lists the ensemble as (client port, peer port, election port)."""

    def __init__(self, folder: Path, *, members: list[tuple[int, int, int]] | None = None, my_id: int = 1) -> None:
        self._folder = folder
        self._command = _command()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = members[my_id - 1][0] if members else free_ports(1)[0]
        data = folder / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(f"{my_id}\n")
        lines = [f"dataDir={data}", "clientPortAddress=127.0.0.1", f"clientPort={self.port}", "tickTime=500"]
        lines += ["initLimit=20", "syncLimit=10", "minSessionTimeout=1000", "maxSessionTimeout=60000"]
        lines += ["admin.enableServer=false", "4lw.commands.whitelist=srvr", "maxClientCnxns=0"]
        for number, (_, peer, election) in enumerate(members or (), start=1):
            lines.append(f"server.{number}=127.0.0.1:{peer}:{election}")
        (folder / "zoo.cfg").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Returns at once; see `wait_ready`."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, str(self._folder / "zoo.cfg")],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Returns once the server serves: alone, or as a member of a quorum."""
        try:
            wait_for(self._serves, START_PATIENCE_S)
        except TimeoutError as error:
            text = (self._folder / "server.log").read_text(errors="replace")[-4000:]
            raise RuntimeError(f"ZooKeeper did not start: {text}") from error

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

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _serves(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise TimeoutError("it ended")
        return bool(self.mode())

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        os.killpg(self._process.pid, how)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
        self._process = None


def zookeeper_ensemble(folder: Path, size: int) -> list[ZookeeperServer]:
    """Servers that form a quorum, started and ready."""
    ports = free_ports(3 * size)
    members = [(ports[3 * index], ports[3 * index + 1], ports[3 * index + 2]) for index in range(size)]
    servers = [ZookeeperServer(folder / f"server{n}", members=members, my_id=n) for n in range(1, size + 1)]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_ready()
    except BaseException:
        for server in servers:
            server.kill()
        raise
    return servers
