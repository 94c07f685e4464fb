"""The CPU time that a small request costs the broker, compared with the system calls that it cannot do without.

Each request comes alone, at a given rate, over connections in turn, so that the broker wakes up for each. The floor is
a process that does only the system calls of it: epoll, receive, send. Brokers and floor take turns, request kind by
request kind, so that all see the same machine.

    python benchmarks/small_requests.py [OTHER]

OTHER is the folder with another version (a folder `barnabas` in it), which is measured in the same run.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import psutil
from attrs import define, field
from group_wire import ask, frame_of, wait_for_coordinator
from harness import BareClient, Result, RunningBroker, fetch_frame, produce_frame

from barnabas import Admin, Message
from barnabas.core.message.batch_writer import encode_batch
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupHeartbeat
from barnabas.ports.broker_api.groups import OffsetCommit, OffsetCommitPartition

TOPIC, GROUPS, CONNECTIONS = "t", 1_000, 20
RATE, SECONDS, ROUNDS = 2_000, 0.6, 5
HEARTBEAT_VERSION, COMMIT_VERSION = 1, 9
FLOOR_ANSWER = 45
_SERVE_FLOOR = "serve-floor"


@define
class Server:
    """A process that is measured, and connections to it."""

    name: str
    process: psutil.Process
    clients: list[BareClient]
    frames: dict[str, list[bytes]] = field(factory=dict)
    us: dict[str, list[float]] = field(factory=dict)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads, to the nanosecond where Linux has it."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        if not (tasks / str(self.process.pid) / "schedstat").exists():
            times = self.process.cpu_times()
            return float(times.user + times.system)
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    def measure(self, kind: str) -> None:
        """Send the frames of a kind at the rate, each when the last one is answered."""
        frames, clients, total = self.frames[kind], self.clients, int(RATE * SECONDS)
        cpu, started = self.cpu_seconds(), time.perf_counter()
        for number in range(total):
            time.sleep(max(0.0, started + number / RATE - time.perf_counter()))
            clients[number % len(clients)].exchange(frames[number % len(frames)])
        self.us.setdefault(kind, []).append((self.cpu_seconds() - cpu) / total * 1e6)


def _connect(host: str, port: int) -> list[BareClient]:
    return [BareClient(host, port, buffer_bytes=4096) for _ in range(CONNECTIONS)]


@contextmanager
def _running(command: list[str], environment: dict[str, str]) -> Iterator[tuple[psutil.Process, str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    try:
        assert process.stdout is not None
        yield psutil.Process(process.pid), process.stdout.readline()
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _floor(frames: dict[str, list[bytes]]) -> Iterator[Server]:
    with _running([sys.executable, __file__, _SERVE_FLOOR], {}) as (process, line):
        yield Server(_SERVE_FLOOR, process, _connect("127.0.0.1", int(line)), frames)


@contextmanager
def _broker(name: str, folder: str | None) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as scratch:
        command = [str(Path(sys.executable).parent / "barnabas"), "serve", "--data", scratch]
        command += ["--listen", "kafka://127.0.0.1:0", "--log-level", "warning"]
        with _running(command, {} if folder is None else {"PYTHONPATH": folder}) as (process, line):
            host, _, port = line.split()[2].partition("://")[2].rpartition(":")
            server = Server(name, process, _connect(host, int(port)))
            server.frames = _frames(RunningBroker(process, host, int(port), 0.0), server.clients)
            yield server


def _frames(running: RunningBroker, clients: list[BareClient]) -> dict[str, list[bytes]]:
    """Return the frames of each kind of request, for members that have joined."""
    with Admin(running.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1)
    wait_for_coordinator(clients[0], "g0")
    heartbeats, commits = [], []
    for number in range(GROUPS):
        group, client = f"g{number}", clients[number % CONNECTIONS]
        join = ConsumerGroupHeartbeat(
            group_id=group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        epoch = ask(client, join, HEARTBEAT_VERSION).member_epoch
        beat = ConsumerGroupHeartbeat(group_id=group, member_id="m", member_epoch=epoch, rebalance_timeout_ms=-1)
        heartbeats.append(frame_of(beat, HEARTBEAT_VERSION))
        positions = [OffsetCommitPartition(TOPIC, 0, 1)]
        commit = OffsetCommit(
            group_id=group, member_id="m", generation_id=epoch, partitions=positions, knows_group_id_not_found=True
        )
        commits.append(frame_of(commit, COMMIT_VERSION))
    batch = bytes(encode_batch([Message(value=bytes(200))], now_ms=1_700_000_000_000))
    clients[0].exchange(produce_frame(TOPIC, 0, batch))
    return {
        "heartbeat": heartbeats,
        "commit": commits,
        "produce": [produce_frame(TOPIC, 0, batch)],
        "fetch": [fetch_frame(TOPIC, 0, 0, 100)],
    }


def _serve_floor() -> None:
    """Answer whatever comes with the bytes of a small answer."""
    import select
    import socket

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    epoll, buffer, connections = select.epoll(), memoryview(bytearray(65_536)), dict[int, socket.socket]()
    epoll.register(listener.fileno(), select.EPOLLIN)
    answer = FLOOR_ANSWER.to_bytes(4, "big") + bytes(FLOOR_ANSWER)
    while True:
        for descriptor, _ in epoll.poll(-1, 1024):
            connection = connections.get(descriptor)
            if connection is None:
                connection, _ = listener.accept()
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[connection.fileno()] = connection
                epoll.register(connection.fileno(), select.EPOLLIN)
            elif connection.recv_into(buffer):
                connection.send(answer)
            else:
                epoll.unregister(descriptor)
                del connections[descriptor]


def measure(other: str | None = None) -> list[Result]:
    with ExitStack() as stack:
        servers = [stack.enter_context(_broker("broker", None))]
        if other is not None:
            servers.append(stack.enter_context(_broker("other", other)))
        kinds = servers[0].frames
        servers.append(stack.enter_context(_floor(kinds)))
        for number in range(ROUNDS):
            for kind in kinds:
                for server in servers[number % len(servers) :] + servers[: number % len(servers)]:
                    server.measure(kind)
        return [_result(kind, servers) for kind in kinds]


def _result(kind: str, servers: list[Server]) -> Result:
    details = {f"us, {each.name}": median(each.us[kind]) for each in servers}
    floor = details[f"us, {_SERVE_FLOOR}"]
    return Result(f"{kind}: CPU / its system calls", details["us, broker"] / floor, details=details)


if __name__ == "__main__":
    if sys.argv[1:] == [_SERVE_FLOOR]:
        _serve_floor()
    else:
        for each in measure(*sys.argv[1:]):
            print(each.name, f"{each.ratio:.2f}", {name: round(value, 1) for name, value in each.details.items()})
