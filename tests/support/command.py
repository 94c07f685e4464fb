"""The command line within the test's process: quick, since nothing has to start."""

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
