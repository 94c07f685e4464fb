"""RabbitMQ and ActiveMQ as Debian packages install them, each started on free loopback ports, its data in a folder that
goes away afterwards. Nothing of the installed services is used or changed.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from attrs import frozen

from barnabas.app.cli.bench.servers import (
    NotInstalledError,
    free_ports,
    greets,
    rabbitmq_server,
    running,
    wait_for,
)

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
    """RabbitMQ with AMQP 0-9-1 on `port`, guest/guest. Raises `NotInstalledError`."""
    with rabbitmq_server() as server:
        assert server.folder is not None
        yield Peer(int(server.address.rpartition(":")[2]), server.folder, psutil.Process(server.pid))


@contextmanager
def activemq() -> Iterator[Peer]:
    """ActiveMQ with STOMP on `port`, its journal (KahaDB) flushed every second. Raises `NotInstalledError`."""
    home = Path("/usr/share/activemq")
    java = shutil.which("java")
    if not (home / "lib" / "activemq-stomp.jar").exists() or java is None:
        raise NotInstalledError("ActiveMQ is not installed: apt-get install --no-install-recommends activemq")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="barnabas-activemq-", ignore_cleanup_errors=True)))
        port = free_ports(1)[0]
        config = folder / "activemq.xml"
        config.write_text(_ACTIVEMQ_XML.format(folder=folder, port=port))
        jars = f"{home}/lib/*:{home}/lib/optional/*:{home}/bin/activemq.jar"
        command = [java, "-Xmx1g", f"-Dactivemq.home={home}", f"-Dactivemq.base={folder}", "-cp", jars]
        command += ["org.apache.activemq.console.Main", "start", f"xbean:file:{config}"]
        process = stack.enter_context(running(command, os.environ, folder, "activemq"))
        greeting = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\x00"
        wait_for(process, folder / "activemq.out", lambda: greets(port, greeting, b"CONNECTED"))
        yield Peer(port, folder / "data", psutil.Process(process.pid))
