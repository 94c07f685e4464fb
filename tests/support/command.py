"""The command line within the test's process: quick, since nothing has to start."""

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest
from attrs import frozen

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
        with pytest.raises(SystemExit) as ended:
            main([*words, *self._always])
        told = self._capsys.readouterr()
        code = ended.value.code
        result = Ended(code if isinstance(code, int) else 0, told.out, told.err)
        assert result.code == expect, result
        return result


def barnabas_here(*arguments: str | Path, stdin: bytes = b"", expect: int = 0) -> subprocess.CompletedProcess[bytes]:
    """As `support.process.barnabas`, in this process: for commands that take no signals and start no broker."""
    words = [*map(str, arguments)]
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    given = patch("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
    with given, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(words)
    code = ended.value.code
    done = subprocess.CompletedProcess(words, code if isinstance(code, int) else 0, _written(out), _written(err))
    assert done.returncode == expect, done
    return done


def _written(file: io.TextIOWrapper) -> bytes:
    file.flush()
    buffer = file.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()
