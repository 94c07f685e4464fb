"""The Python and the commands of docs/classic.md run as written, with a real ZooKeeper."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.command import barnabas_here
from support.ports import free_ports
from support.process import COMMAND, BrokerProcess, broker_process
from support.waiting import PATIENCE_S, wait_for
from support.zookeeper_server import ZookeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("zookeeper")]

LINES = [b"line %d" % number for number in range(100)]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The cluster to mirror into."""
    with broker_process(tmp_path / "target") as running:
        yield running


class Page:
    """The page, with ports that are free here."""

    def __init__(self, text: str, zookeeper_port: int, target: str) -> None:
        text = text.replace("127.0.0.1:2181", f"127.0.0.1:{zookeeper_port}").replace("127.0.0.1:9092", target)
        for port, free in zip(("9093", "9094", "9095"), free_ports(3), strict=True):
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
        blocks = [re.sub(r"\\\n\s*", "", block) for block in self._blocks(text, "shell")]
        self.commands = [line for block in blocks for line in block.splitlines()]
        (self.python,) = self._blocks(text, "python")

    @staticmethod
    def _blocks(text: str, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)

    def take(self, start: str) -> list[str]:
        """Return the commands that begin with `start`."""
        found = [line for line in self.commands if line.startswith(start)]
        assert found, start
        self.commands = [line for line in self.commands if line not in found]
        return found


class Enough(Exception):
    """The example would continue for ever."""


def begin(command: str, folder: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    """Run a command in the background, and stop it at the end."""
    command = command.replace("barnabas ", f"exec {COMMAND} ", 1)
    process = subprocess.Popen(command, shell=True, cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    return process


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_commands_of_classic_page_run(
    checkout: Path, tmp_path: Path, stack: ExitStack, target: BrokerProcess, zookeeper_server: ZookeeperServer
) -> None:
    page = Page((checkout / "docs" / "classic.md").read_text(encoding="utf-8"), zookeeper_server.port, target.bootstrap)
    for broker in [begin(command, tmp_path, stack) for command in page.take("barnabas serve")]:
        assert first_line(broker).startswith(b"barnabas ready classic://")
    (tmp_path / "access.log").write_bytes(b"".join(line + b"\n" for line in LINES))
    (produce,) = page.take("barnabas produce")
    assert begin(produce, tmp_path, stack).wait(PATIENCE_S) == 0

    (consume,) = page.take("barnabas consume")
    consumer = begin(consume, tmp_path, stack)
    assert sorted(first_line(consumer).rstrip(b"\n") for _ in LINES) == sorted(LINES)

    (describe,) = page.take("barnabas topics describe")
    described = begin(describe, tmp_path, stack)
    assert first_line(described) == b"views\n"
    assert described.wait(PATIENCE_S) == 0

    printed: list[tuple[object, ...]] = []

    def show(*values: object) -> None:
        printed.append(values)
        if len(printed) == len(LINES) + 1:
            raise Enough

    with pytest.raises(Enough):
        exec(compile(page.python, "classic.md", "exec"), {"print": show})  # our own page
    assert sorted(values[-1] for values in printed if isinstance(values[-1], bytes)) == sorted([*LINES, b"/index.html"])

    for command in page.take("printf"):
        subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    (mirror,) = page.take("barnabas mirror")
    assert first_line(begin(mirror, tmp_path, stack)) == b"barnabas mirroring\n"
    copied = ("consume", "views", "-b", target.bootstrap, "--from", "beginning", "-e")
    wait_for(lambda: b"views" in barnabas_here("topics", "list", "-b", target.bootstrap).stdout)
    wait_for(lambda: len(barnabas_here(*copied).stdout.splitlines()) == len(LINES) + 1)
    assert page.commands == [], "every command was run"
