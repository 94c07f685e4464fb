"""A TCP transport on a reactor that the test turns, and regions of real files."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from support.waiting import PATIENCE_S

from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.adapters.transport_tcp.tcp import TcpTransport
from barnabas.ports.types import Position


class FileRegion:
    """A region of a real file."""

    def __init__(self, content: bytes, folder: Path) -> None:
        handle, name = tempfile.mkstemp(dir=folder)
        self._file = os.fdopen(handle, "w+b")
        self._file.write(b"something before" + content)
        self._file.flush()
        Path(name).unlink()
        self.size = len(content)
        self.position = Position(16)

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        wanted = self.size - start if size is None else min(size, self.size - start)
        return os.pread(self._file.fileno(), wanted, self.position + start)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._file.fileno(), self.position + size)

    def close(self) -> None:
        self._file.close()


class TcpHarness:
    def __init__(self, folder: Path) -> None:
        self.reports: list[str] = []
        self.reactor = self.scheduler = Reactor(self.reports.append)
        self.transport = TcpTransport(self.reactor, self.reports.append)
        self._folder = folder
        self._regions: list[FileRegion] = []

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            self.reactor.turn(100)

    def pass_ms(self, ms: float) -> None:
        over: list[bool] = []
        self.reactor.call_later(ms, lambda: over.append(True))
        self.run_until(lambda: bool(over))

    def open_things(self) -> int:
        return self.transport.open_connections + self.reactor.watched + self.reactor.timers

    def region(self, content: bytes) -> FileRegion:
        self._regions.append(FileRegion(content, self._folder))
        return self._regions[-1]

    def close(self) -> None:
        self.reactor.stop()
        for region in self._regions:
            region.close()
