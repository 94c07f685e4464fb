"""Servers for a measurement, each on free loopback ports, with its data in a folder that is deleted afterwards.

Installed services are neither used nor changed. Servers with other protocols have clients here: RabbitMQ by pika, NATS
JetStream by nats-py, Redis Streams by redis-py. They send persistent messages and read all of them; a batch is what the
library can have under way at a time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ....ports.errors import BarnabasError
from ....ports.values import frozen
from .clients import AT_ONCE, PATIENCE_S, Client, Passed, Workload

START_S, STOP_S = 90.0, 30.0
_TICKS = os.sysconf("SC_CLK_TCK")
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class NotInstalledError(BarnabasError):
    """A server or its client is not installed; the text says what is missing, and what installs it."""


@frozen
class MeasuredServer:
    """A server that runs. `pid` is 0 for one that was there before; its folder is then unknown."""

    address: str
    pid: int = 0
    folder: Path | None = None

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of the process and its children; None if it cannot be known."""
        if not self.pid or not Path("/proc/self/stat").exists():
            return None
        parents, ticks = {}, {}
        for file in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = file.read_text(errors="replace").rpartition(") ")[2].split()
                parents[int(file.parent.name)] = int(fields[1])
                ticks[int(file.parent.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
        family, before = {self.pid}, 0
        while len(family) > before:
            before = len(family)
            family |= {pid for pid, parent in parents.items() if parent in family}
        return sum(_precise_cpu_seconds(pid) or ticks.get(pid, 0.0) for pid in family)

    def drop_cache(self) -> None:
        """Let the operating system forget the pages of the server's files, so that they are read from the disk."""
        for file in self.folder.rglob("*") if self.folder is not None else ():
            if file.is_file():
                descriptor = os.open(file, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)


def _precise_cpu_seconds(pid: int) -> float:
    """Return the CPU time of the threads of a process to the nanosecond, or 0.0 where Linux does not count it."""
    with suppress(OSError, ValueError, IndexError):
        tasks = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
    return 0.0


@contextmanager
def ending_servers() -> Iterator[None]:
    """Let SIGTERM end this process as an error does: its servers have sessions of their own, and would outlive it. Main
    thread only."""

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def barnabas_server(*settings: str) -> Iterator[MeasuredServer]:
    """Run a broker in a process of its own, so that it has a core of its own."""
    with _folder("barnabas") as folder:
        command = [sys.executable, "-c", "from barnabas.app.cli.main import main; main()", "serve"]
        command += ["--data", str(folder / "data"), "--listen", "kafka://127.0.0.1:0", "--log-level", "error"]
        command += [word for setting in settings for word in ("--set", setting)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline() if process.stdout is not None else ""
                if not line.startswith("barnabas ready "):
                    raise BarnabasError("the broker to measure did not start; its log is above")
                yield MeasuredServer(line.split()[2].removeprefix("kafka://"), process.pid, folder)
            finally:
                process.terminate()


@contextmanager
def kafka_server() -> Iterator[MeasuredServer]:
    """Run Apache Kafka in KRaft mode from the folder KAFKA_HOME. Raises `NotInstalledError`."""
    home, java = os.environ.get("KAFKA_HOME", ""), shutil.which("java")
    if not home or java is None or not any(Path(home, "libs").glob("kafka_*.jar")):
        raise NotInstalledError(
            "Apache Kafka is not measured: KAFKA_HOME does not name the folder of an installation, or java is missing"
        )
    with ExitStack() as stack:
        folder = stack.enter_context(_folder("kafka"))
        port, controller = free_ports(2)
        config = folder / "server.properties"
        config.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            f"log.dirs={folder / 'data'}\n"
        )
        words = [java, "-Xmx1g", "-Xms1g", "-XX:+UseG1GC", "-cp", f"{home}/libs/*"]
        prepare = [*words, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(config)]
        subprocess.run(prepare, cwd=folder, capture_output=True, check=True)
        process = stack.enter_context(running([*words, "kafka.Kafka", str(config)], os.environ, folder, "kafka"))
        wait_for(process, folder / "kafka.out", lambda: _is_open(port))
        yield MeasuredServer(f"127.0.0.1:{port}", process.pid, folder / "data")


@contextmanager
def rabbitmq_server() -> Iterator[MeasuredServer]:
    """Run RabbitMQ of the Debian package with AMQP 0-9-1, guest/guest. Raises `NotInstalledError`."""
    server = next(iter(sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))), None)
    epmd = shutil.which("epmd") or next(iter(map(str, Path("/usr/lib/erlang").glob("erts-*/bin/epmd"))), None)
    if server is None or epmd is None:
        raise NotInstalledError("RabbitMQ is not measured: apt-get install --no-install-recommends rabbitmq-server")
    with ExitStack() as stack:
        folder = stack.enter_context(_folder("rabbitmq"))
        port, names, internal = free_ports(3)
        (folder / "plugins").write_text("[].")
        here = {"HOME": str(folder), "ERL_EPMD_PORT": str(names), "ERL_EPMD_ADDRESS": "127.0.0.1"}
        settings = {
            "NODENAME": f"barnabas-bench-{os.getpid()}@localhost",
            "NODE_IP_ADDRESS": "127.0.0.1",
            "NODE_PORT": str(port),
            "DIST_PORT": str(internal),
            "MNESIA_BASE": str(folder / "data"),
            "LOG_BASE": str(folder / "log"),
            "CONFIG_FILE": str(folder / "none"),
            "ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "PID_FILE": str(folder / "pid"),
            "SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        environment = os.environ | here | {f"RABBITMQ_{name}": value for name, value in settings.items()}
        # Its daemon of names would outlive it: one of our own, which does not.
        stack.enter_context(running([epmd, "-port", str(names), "-address", "127.0.0.1"], environment, folder, "epmd"))
        process = stack.enter_context(running([str(server)], environment, folder, "rabbitmq"))
        wait_for(process, folder / "rabbitmq.out", lambda: greets(port, b"AMQP\x00\x00\x09\x01", b"\x01"))
        yield MeasuredServer(f"127.0.0.1:{port}", process.pid, folder / "data")


@contextmanager
def nats_server() -> Iterator[MeasuredServer]:
    """Run NATS with JetStream. Raises `NotInstalledError`."""
    program = shutil.which("nats-server")
    if program is None:
        raise NotInstalledError("NATS is not measured: apt-get install nats-server")
    with ExitStack() as stack:
        folder = stack.enter_context(_folder("nats"))
        (port,) = free_ports(1)
        command = [program, "-js", "-sd", str(folder / "data"), "-a", "127.0.0.1", "-p", str(port)]
        process = stack.enter_context(running(command, os.environ, folder, "nats"))
        wait_for(process, folder / "nats.out", lambda: _is_open(port))
        yield MeasuredServer(f"127.0.0.1:{port}", process.pid, folder / "data")


@contextmanager
def redis_server() -> Iterator[MeasuredServer]:
    """Run Redis, its append-only file flushed every second. Raises `NotInstalledError`."""
    program = shutil.which("redis-server")
    if program is None:
        raise NotInstalledError("Redis is not measured: apt-get install --no-install-recommends redis-server")
    with ExitStack() as stack:
        folder = stack.enter_context(_folder("redis"))
        (port,) = free_ports(1)
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "everysec"]
        process = stack.enter_context(running(command, os.environ, folder, "redis"))
        wait_for(process, folder / "redis.out", lambda: greets(port, b"PING\r\n", b"+PONG"))
        yield MeasuredServer(f"127.0.0.1:{port}", process.pid, folder)


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, name: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in a group of its own; stop it in order, and the group by force if it does not stop."""
    with (folder / f"{name}.out").open("wb") as out:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(process: subprocess.Popen[bytes], out: Path, ready: Callable[[], bool]) -> None:
    """Wait until a server is ready. Raises `BarnabasError` with the end of its log if it does not start."""
    deadline = time.monotonic() + START_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise BarnabasError(f"{out.stem} did not start:\n{out.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)


def greets(port: int, greeting: bytes, expected: bytes) -> bool:
    """Return whether a server answers the greeting as expected."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(greeting)
        return connection.recv(4096).startswith(expected)
    return False


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def free_ports(number: int) -> list[int]:
    """Return ports on which nothing listens now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [int(each.getsockname()[1]) for each in sockets]


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    with TemporaryDirectory(prefix=f"barnabas-bench-{name}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


_NAME = "bench"


def _library(module: str, package: str, server: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise NotInstalledError(f"{server} is not measured: its client is missing: pip install {package}") from None


def _portions(messages: int) -> Iterator[int]:
    for start in range(0, messages, AT_ONCE):
        yield min(AT_ONCE, messages - start)


class RabbitClient:
    """One durable queue of RabbitMQ; publishes without waiting for each, and consumes with acknowledgements."""

    def __init__(self, address: str, workload: Workload) -> None:
        self._pika = _library("pika", "pika", "RabbitMQ")
        host, _, port = address.partition(":")
        parameters = self._pika.ConnectionParameters(host, int(port), heartbeat=0)
        self._connection = self._pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.queue_declare(_NAME, durable=True)
        self._bodies = workload.bodies()

    def send(self, messages: int, passed: Passed) -> None:
        self._channel.queue_purge(_NAME)
        properties = self._pika.BasicProperties(delivery_mode=2)
        for size in _portions(messages):
            for each in range(size):
                self._channel.basic_publish("", _NAME, self._bodies[each % len(self._bodies)], properties)
            passed(size)
        self._channel.queue_declare(_NAME, durable=True, passive=True)

    def receive(self, messages: int, passed: Passed) -> None:
        self._channel.basic_qos(prefetch_count=AT_ONCE)
        deliveries = self._channel.consume(_NAME, inactivity_timeout=PATIENCE_S)
        for size in _portions(messages):
            for method, _, _ in islice(deliveries, size):
                if method is None:
                    raise BarnabasError(f"RabbitMQ delivered no message within {PATIENCE_S:.0f} s")
            self._channel.basic_ack(method.delivery_tag, multiple=True)
            passed(size)
        self._channel.cancel()

    def close(self) -> None:
        self._connection.close()


class NatsClient:
    """One stream of NATS JetStream on files."""

    def __init__(self, address: str, workload: Workload) -> None:
        nats = _library("nats", "nats-py", "NATS")
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(nats.connect(f"nats://{address}"))
        self._stream = self._connection.jetstream(publish_async_max_pending=AT_ONCE)
        self._bodies = workload.bodies()
        self._loop.run_until_complete(self._stream.add_stream(name=_NAME, subjects=[_NAME]))

    def send(self, messages: int, passed: Passed) -> None:
        self._loop.run_until_complete(self._stream.purge_stream(_NAME))
        self._loop.run_until_complete(self._send(messages, passed))

    async def _send(self, messages: int, passed: Passed) -> None:
        for size in _portions(messages):
            for each in range(size):
                await self._stream.publish_async(_NAME, self._bodies[each % len(self._bodies)])
            passed(size)
        await self._stream.publish_async_completed()

    def receive(self, messages: int, passed: Passed) -> None:
        self._loop.run_until_complete(self._receive(messages, passed))

    async def _receive(self, messages: int, passed: Passed) -> None:
        subscription = await self._stream.pull_subscribe(_NAME)
        left = messages
        while left:
            found = await subscription.fetch(min(AT_ONCE, left), timeout=PATIENCE_S)
            for message in found:
                await message.ack()
            left -= len(found)
            passed(len(found))
        await subscription.unsubscribe()

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


class RedisClient:
    """One stream of Redis, written by pipelines of `AT_ONCE` commands."""

    def __init__(self, address: str, workload: Workload) -> None:
        redis = _library("redis", "redis", "Redis")
        host, _, port = address.partition(":")
        self._connection = redis.Redis(host=host, port=int(port))
        self._bodies = workload.bodies()

    def send(self, messages: int, passed: Passed) -> None:
        self._connection.delete(_NAME)
        for size in _portions(messages):
            pipeline = self._connection.pipeline(transaction=False)
            for each in range(size):
                pipeline.xadd(_NAME, {"m": self._bodies[each % len(self._bodies)]})
            pipeline.execute()
            passed(size)

    def receive(self, messages: int, passed: Passed) -> None:
        last: bytes | str = "0"
        left = messages
        while left:
            found = self._connection.xread({_NAME: last}, count=min(AT_ONCE, left))
            if not found:
                raise BarnabasError(f"Redis has {left} messages less than were sent")
            entries = found[0][1]
            last = entries[-1][0]
            left -= len(entries)
            passed(len(entries))

    def close(self) -> None:
        self._connection.close()


PEERS: Mapping[
    str, tuple[str, Callable[[], AbstractContextManager[MeasuredServer]], Callable[[str, Workload], Client] | None]
] = {
    "kafka": ("Apache Kafka", kafka_server, None),
    "rabbitmq": ("RabbitMQ", rabbitmq_server, RabbitClient),
    "nats": ("NATS JetStream", nats_server, NatsClient),
    "redis": ("Redis Streams", redis_server, RedisClient),
}
"""Name, server, and client; without a client of its own a server speaks Kafka's protocol."""
