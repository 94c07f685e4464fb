"""The command line within the test's process: quick, since nothing has to start."""

import io
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
from attrs import frozen

from barnabas.app.cli import command_config
from barnabas.app.cli.main import main


@frozen
class Ended:
    code: int
    out: str
    err: str


class Command:
    """Runs `barnabas` with words; what it prints is caught by `capsys`."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *always: str) -> None:
        """`always` are added to every call, such as `--bootstrap`."""
        self._capsys = capsys
        self._always = always

    def __call__(self, *words: str, expect: int = 0) -> Ended:
        self._capsys.readouterr()
        with _own_environment(), pytest.raises(SystemExit) as ended:
            main([*words, *self._always])
        observed = self._capsys.readouterr()
        code = ended.value.code
        result = Ended(code if isinstance(code, int) else 0, observed.out, observed.err)
        assert result.code == expect, result
        return result


def barnabas_here(*arguments: str | Path, stdin: bytes = b"", expect: int = 0) -> subprocess.CompletedProcess[bytes]:
    """Run a command like `support.process.barnabas`, in this process: one without signals, which starts no broker."""
    words = [*map(str, arguments)]
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    given = patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
    outputs = redirect_stdout(out), redirect_stderr(err)
    with _own_environment(), given, outputs[0], outputs[1], pytest.raises(SystemExit) as ended:
        main(words)
    code = ended.value.code
    done = subprocess.CompletedProcess(words, code if isinstance(code, int) else 0, _written(out), _written(err))
    assert done.returncode == expect, done
    return done


@contextmanager
def _own_environment() -> Iterator[None]:
    """Take back what a command has changed in this process: the variables and the client file of its profile."""
    with patch.dict(os.environ), patch.dict(command_config._given):
        try:
            yield
        finally:
            command_config.use_file_of_profile(None)


def _written(file: io.TextIOWrapper) -> bytes:
    file.flush()
    buffer = file.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()
