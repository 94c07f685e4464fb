"""A broker in a process of its own, for tests that kill it or use it through the command line."""

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

COMMAND = Path(sys.executable).with_name("barnabas")
PATIENCE_S = 120.0


class BrokerProcess:
    """`barnabas serve` on a free port. Its log is kept for when something goes wrong."""

    def __init__(
        self,
        data: Path,
        *settings: str,
        environment: dict[str, str] | None = None,
        listen: Sequence[str] = ("kafka://127.0.0.1:0",),
        config: Path | None = None,
        executable: Path = COMMAND,
    ) -> None:
        self.log_file = data.with_name(data.name + ".stderr")
        command = [str(executable), "serve", "--data", str(data)]
        for listener in listen:
            command += ["--listen", listener]
        for setting in settings:
            command += ["--set", setting]
        if config is not None:
            command += ["--config", str(config)]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env={**os.environ, **(environment or {})}
            )
        self.ready_line = self._first_line()
        if not self.ready_line.startswith("barnabas ready "):
            self.stop()
            raise RuntimeError(f"the broker did not start: {self.log()}")
        self.listeners = self.ready_line.split()[2:]
        self.bootstrap = self.listeners[0].partition("://")[2]

    def _first_line(self) -> str:
        stdout = self.process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(PATIENCE_S):
                return ""
        return stdout.readline().decode()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._close()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            raise
        finally:
            self._close()

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def broker_process(
    data: Path,
    *settings: str,
    environment: dict[str, str] | None = None,
    listen: Sequence[str] = ("kafka://127.0.0.1:0",),
) -> Iterator[BrokerProcess]:
    """Run a broker; stopped at the end if the test has not done so."""
    broker = BrokerProcess(data, *settings, environment=environment, listen=listen)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.stop()


def barnabas(*arguments: str | Path, stdin: bytes = b"", expect: int = 0) -> subprocess.CompletedProcess[bytes]:
    """Run the command to its end."""
    done = subprocess.run(
        [str(COMMAND), *map(str, arguments)], input=stdin, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == expect, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done
