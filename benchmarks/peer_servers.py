"""RabbitMQ and ActiveMQ as Debian packages install them, each started on free loopback ports, its data in a folder that
goes away afterwards. Nothing of the installed services is used or changed.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from attrs import frozen

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

given: Any = import_module("support.ports")

START_SECONDS = 90.0
STOP_SECONDS = 30.0

_ACTIVEMQ_XML = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
  http://www.springframework.org/schema/beans/spring-beans.xsd http://activemq.apache.org/schema/core
  http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false" advisorySupport="false"
    dataDirectory="{folder}/data">
    <persistenceAdapter>
      <kahaDB directory="{folder}/data/kahadb" journalDiskSyncStrategy="periodic" journalDiskSyncInterval="1000"/>
    </persistenceAdapter>
    <transportConnectors><transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/></transportConnectors>
  </broker>
</beans>
"""


class NotInstalled(Exception):
    """A server is not installed; the text says what is missing, and what installs it."""


@frozen
class Peer:
    """A server that runs."""

    port: int
    folder: Path
    process: psutil.Process

    def cpu_seconds(self) -> float:
        total = 0.0
        for process in self._all():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def resident_bytes(self) -> int:
        return sum(int(process.memory_info().rss) for process in self._all())

    def stored_bytes(self) -> int:
        """Return the bytes that the folder takes on the disk; files that are larger than their content
        count by blocks.
        """
        os.sync()
        return 512 * sum(file.stat().st_blocks for file in self.folder.rglob("*") if file.is_file())

    def _all(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


@contextmanager
def rabbitmq() -> Iterator[Peer]:
    """RabbitMQ with AMQP 0-9-1 on `port`, guest/guest. Raises `NotInstalled`."""
    server = next(iter(sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))), None)
    epmd = shutil.which("epmd") or next(iter(map(str, Path("/usr/lib/erlang").glob("erts-*/bin/epmd"))), None)
    if server is None or epmd is None:
        raise NotInstalled("RabbitMQ is not installed: apt-get install --no-install-recommends rabbitmq-server")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="barnabas-rabbitmq-", ignore_cleanup_errors=True)))
        port, names, internal = given.free_ports(3)
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
        stack.enter_context(_running([epmd, "-port", str(names), "-address", "127.0.0.1"], environment, folder, "epmd"))
        process = stack.enter_context(_running([str(server)], environment, folder, "rabbitmq"))
        _wait_for(process, folder / "rabbitmq.out", lambda: _greets(port, b"AMQP\x00\x00\x09\x01", b"\x01"))
        yield Peer(port, folder / "data", psutil.Process(process.pid))


@contextmanager
def activemq() -> Iterator[Peer]:
    """ActiveMQ with STOMP on `port`, its journal (KahaDB) flushed every second. Raises `NotInstalled`."""
    home = Path("/usr/share/activemq")
    java = shutil.which("java")
    if not (home / "lib" / "activemq-stomp.jar").exists() or java is None:
        raise NotInstalled("ActiveMQ is not installed: apt-get install --no-install-recommends activemq")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="barnabas-activemq-", ignore_cleanup_errors=True)))
        port = given.free_port()
        config = folder / "activemq.xml"
        config.write_text(_ACTIVEMQ_XML.format(folder=folder, port=port))
        jars = f"{home}/lib/*:{home}/lib/optional/*:{home}/bin/activemq.jar"
        command = [java, "-Xmx1g", f"-Dactivemq.home={home}", f"-Dactivemq.base={folder}", "-cp", jars]
        command += ["org.apache.activemq.console.Main", "start", f"xbean:file:{config}"]
        process = stack.enter_context(_running(command, os.environ, folder, "activemq"))
        greeting = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\x00"
        _wait_for(process, folder / "activemq.out", lambda: _greets(port, greeting, b"CONNECTED"))
        yield Peer(port, folder / "data", psutil.Process(process.pid))


@contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, name: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is stopped in order, and with all its children if it does not stop."""
    with (folder / f"{name}.out").open("wb") as out:
        process = subprocess.Popen(
            command, env=dict(environment), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            for left in psutil.wait_procs(family, 5)[1]:
                with suppress(psutil.NoSuchProcess):
                    left.kill()
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait_for(process: "subprocess.Popen[bytes]", out: Path, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{out.stem} did not start:\n{out.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)


def _greets(port: int, greeting: bytes, expected: bytes) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(greeting)
        return connection.recv(4096).startswith(expected)
    return False
