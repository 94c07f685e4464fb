"""Three brokers and three members of a coordination service, each a process, with a network that can be cut."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from chaos.switchboard import Pair, SwitchboardProcess
from support.etcd_server import etcd_cluster
from support.ports import free_ports
from support.process import COMMAND
from support.server_process import ServerProcess
from support.waiting import PATIENCE_S
from support.zookeeper_server import zookeeper_ensemble

from barnabas import Admin
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError

BROKERS = 3
SESSION_MS = 2000
START_S, STOP_S, HEALTHY_S = PATIENCE_S, PATIENCE_S, 3 * PATIENCE_S
MEMBERS: dict[str, Callable[[Path, int], Sequence[ServerProcess]]] = {
    "zookeeper": zookeeper_ensemble,
    "etcd": etcd_cluster,
}
REPLICAS = 3

SETTINGS = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": 2000,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 1000,
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,PEER:PLAINTEXT",
    "inter.broker.listener.name": "PEER",
}


class ChaosBroker:
    """`barnabas serve`. Clients reach it directly, brokers over the switchboard."""

    def __init__(
        self, number: int, folder: Path, switchboard: SwitchboardProcess, coordination: str, *, replicas: int
    ) -> None:
        self.number = number
        self.name = f"broker-{number}"
        self.data = folder / self.name
        self.log_file = folder / f"{self.name}.log"
        self.port, peer = free_ports(2)
        shown = switchboard.open(self.name, ("127.0.0.1", peer))
        own = {
            "default.replication.factor": replicas,
            "min.insync.replicas": max(1, replicas - 1),
            "broker.id": number,
            "coordination": coordination,
            "listeners": f"CLIENT://127.0.0.1:{self.port},PEER://127.0.0.1:{peer}",
            "advertised.listeners": f"CLIENT://127.0.0.1:{self.port},PEER://127.0.0.1:{shown}",
        }
        self._command = [str(COMMAND), "serve", "--data", str(self.data)]
        for key, value in {**SETTINGS, **own}.items():
            self._command += ["--set", f"{key}={value}"]
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = threading.Event()
        self.starts = 0

    def start(self) -> None:
        """Returns at once; `ready` is set once it serves."""
        self.ready.clear()
        self.starts += 1
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, start_new_session=True, env=dict(os.environ)
            )
        threading.Thread(target=self._wait_ready, args=(self.process,), daemon=True).start()

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            line = stdout.readline()
            if line.startswith(b"barnabas ready ") and process is self.process:
                self.ready.set()
            stdout.read()

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        self._gone()

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self.signal(signal.SIGTERM)
        self._gone()

    def _gone(self) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_S)
            raise
        finally:
            self.process = None
            self.ready.clear()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class ChaosCluster:
    """A context manager: all is started, and stopped at the end."""

    def __init__(self, folder: Path, over: str, *, members: int = 3, brokers: int = BROKERS) -> None:
        """`over`: "zookeeper" or "etcd"."""
        self.folder = folder
        self.over = over
        self.topics: set[str] = set()
        """Topics that every broker should know."""
        self._closed = False
        self.replicas = min(REPLICAS, brokers)
        self.members = MEMBERS[over](folder / over, members)
        self.switchboard = SwitchboardProcess()
        self.brokers: list[ChaosBroker] = []
        for number in range(1, brokers + 1):
            place = self._coordination_of(number)
            self.brokers.append(ChaosBroker(number, folder, self.switchboard, place, replicas=self.replicas))

    def _coordination_of(self, number: int) -> str:
        """Return the address of each member for this broker: each broker has its own connections."""
        partitions = []
        for at, member in enumerate(self.members, start=1):
            port: int = member.port  # type: ignore[attr-defined]  # both kinds have one
            partitions.append(
                f"127.0.0.1:{self.switchboard.open(f'member-{at}', ('127.0.0.1', port), f'broker-{number}')}"
            )
        return f"{self.over}://{','.join(partitions)}/chaos"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    @property
    def member_names(self) -> list[str]:
        return [f"member-{at}" for at in range(1, len(self.members) + 1)]

    def __enter__(self) -> "ChaosCluster":
        try:
            for broker in self.brokers:
                broker.start()
            for broker in self.brokers:
                if not broker.ready.wait(START_S):
                    raise RuntimeError(f"{broker.name} did not start: {self.log_of(broker)[-4000:]}")
            self.wait_healthy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        for broker in self.brokers:
            if broker.alive:
                broker.signal(signal.SIGCONT)
                broker.kill()
        self.switchboard.close()
        for member in self.members:
            member.kill()

    def log_of(self, broker: ChaosBroker) -> str:
        return broker.log_file.read_text(errors="replace") if broker.log_file.exists() else ""

    def both_ways(self, name: str, others: Sequence[str]) -> list[Pair]:
        return [pair for other in others for pair in ((name, other), (other, name))]

    def wait_healthy(self, *, patience_s: float = HEALTHY_S) -> float:
        """Until every partition has a leader and all replicas in sync; returns the seconds that it took."""
        began, seen = time.monotonic(), "no answer"
        while time.monotonic() - began < patience_s:
            self.revive()
            seen = self._trouble()
            if not seen:
                return time.monotonic() - began
            time.sleep(0.1)
        raise TimeoutError(f"the cluster is not healthy after {patience_s} s: {seen}")

    def revive(self) -> None:
        """Restart ended processes, as a supervisor does."""
        for broker in self.brokers:
            if not broker.alive:
                broker.start()

    def _trouble(self) -> str:
        if not all(broker.ready.is_set() for broker in self.brokers):
            return f"not ready: {[broker.name for broker in self.brokers if not broker.ready.is_set()]}"
        try:
            for broker in self.brokers:
                with Admin(f"127.0.0.1:{broker.port}", default_api_timeout_ms=3000, request_timeout_ms=2000) as admin:
                    trouble = self._trouble_seen_by(admin)
                    if trouble:
                        return f"{broker.name} says: {trouble}"
        except BarnabasError as error:
            return repr(error)
        return ""

    def _trouble_seen_by(self, admin: Admin) -> str:
        there = {node.node_id for node in admin.describe_cluster().brokers}
        if len(there) < len(self.brokers):
            return f"only {sorted(there)} are there"
        topics = admin.describe_topics()
        missing = self.topics - {str(topic.name) for topic in topics}
        if missing:
            return f"it does not know {', '.join(sorted(missing))}"
        behind = [
            f"{topic.name}-{each.partition} leader {each.leader} isr {list(each.isr)}"
            for topic in topics
            for each in topic.partitions
            if each.leader < 0 or len(each.isr) < len(each.replicas)
        ]
        return ", ".join(behind)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with all replicas that the cluster has by default; it is waited for by `wait_healthy`.

        The coordination service may not answer on a busy machine, which leaves the outcome unknown.
        """
        until = time.monotonic() + HEALTHY_S
        while True:
            try:
                with Admin(self.bootstrap) as admin:
                    admin.create_topic(name, partitions=partitions, replication_factor=self.replicas)
                break
            except BarnabasError as error:
                code = getattr(error, "code", None)
                if code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    break
                if code is not ErrorCode.REQUEST_TIMED_OUT or time.monotonic() > until:
                    raise
        self.topics.add(name)

    def leader_of(self, topic: str, partition: int) -> ChaosBroker | None:
        """Return the last known leader."""
        try:
            with Admin(self.bootstrap, default_api_timeout_ms=2000, request_timeout_ms=1000) as admin:
                found = admin.describe_topics([topic])[0].partitions
        except BarnabasError:
            return None
        leader = next((each.leader for each in found if each.partition == partition), -1)
        return next((broker for broker in self.brokers if broker.number == leader), None)


def wait_until(condition: Callable[[], object], patience_s: float, what: str) -> None:
    """Raises `TimeoutError` with `what`."""
    until = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {patience_s:.0f} s")
        time.sleep(0.05)
