"""A member of a group that is a command: it writes what it gets, and commits when it is stopped."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence

from .model import PATIENCE_S, Record


class MemberProcess:
    """`parse` makes a record of a line of standard output; `heed` gets the lines of standard error."""

    def __init__(
        self, command: Sequence[str], parse: Callable[[str], Record | None], heed: Callable[[str], None]
    ) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._parse, self._heed = parse, heed
        self._received: list[Record] = []
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=self._read_out), threading.Thread(target=self._read_errors)]
        for reader in self._readers:
            reader.start()

    def received(self) -> list[Record]:
        if self._process.poll() is not None:
            raise RuntimeError(f"the command ended: {''.join(self._errors)[-500:]}")
        return list(self._received)

    def commit(self) -> None:
        """Comes with `close`."""

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            raise
        finally:
            for reader in self._readers:
                reader.join(PATIENCE_S)
            for stream in (self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            record = self._parse(line.rstrip("\n"))
            if record is not None:
                self._received.append(record)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)
            self._heed(line)


def output_of(command: Sequence[str], stdin: bytes = b"") -> str:
    """Return the output of a command that terminates. Raises `RuntimeError` with its output if it fails."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, timeout=PATIENCE_S * 2, check=False, env=dict(os.environ)
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout.decode()
