"""Commands of a document, run as they stand there, against a broker of the test, in this process."""

import shlex
from pathlib import Path

import pytest

from .command import barnabas_here
from .documents import Block, lines_of

ADDRESS = "127.0.0.1:9092"
"""The address that the documents use; a test has another."""
SERVE_FOR_EVER = ("barnabas serve", "barnabas cluster start", "barnabas console", "barnabas registry")


class Reader:
    """A reader who follows a document, in a folder and with a configuration of their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        monkeypatch.setenv("BARNABAS_BOOTSTRAP", "")  # a profile in use is noted there: undone at the end
        self._folder = folder

    def run(self, block: Block, bootstrap: str) -> dict[str, str]:
        """Run the lines of a block that terminate; return the output of each."""
        return {line: self.run_line(line, bootstrap) for line in lines_of(block) if not line.startswith(SERVE_FOR_EVER)}

    def run_line(self, line: str, bootstrap: str) -> str:
        words = shlex.split(line.replace(ADDRESS, bootstrap), comments=True)
        assert words[0] == "barnabas", line
        return barnabas_here(*words[1:]).stdout.decode()
