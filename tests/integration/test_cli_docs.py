"""Every command line in docs/cli.md is accepted by the parser."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.process import COMMAND
from support.waiting import PATIENCE_S

from barnabas.app.cli.times import parse_time_ms
from barnabas.app.cli.top import command as live
from barnabas.app.cli.top import look
from barnabas.testing import TestBroker

ADDRESS = "localhost:9092"

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


def test_the_commands_from_top_to_bottom(page: str, broker: TestBroker, tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path), "PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"}
    out = ""
    for block in blocks:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", block.replace(ADDRESS, broker.bootstrap)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("barnabas:")) == (0, 0), (block, done.stderr)
        out += done.stdout
    assert len(blocks) == 3
    assert f"*  dev      {broker.bootstrap}" in out
    assert {"ann:two books", "bob:a pen"} <= set(out.splitlines())
    assert re.search(r"^[01] \d+ bob a pen$", out, re.MULTILINE)
    assert len(re.findall(r"^orders +2 +- +- +4 ", out, re.MULTILINE)) == 2
    values = [message.value for message in broker.produced("orders")]
    assert sorted(str(value) for value in values) == sorted(["b'two books'", "b'a pen'"] * 2), "the round trip"


def test_times_and_bounds_are_those_of_the_code(page: str) -> None:
    section = page.partition("## Times and durations\n")[2].partition("\n## ")[0]
    written = [text for line in section.splitlines() if line.startswith("| `") for text in re.findall("`(.*?)`", line)]
    assert len(written) == 9
    assert all(parse_time_ms(text, "--from") > 0 for text in written)
    assert f"{look.CONNECTIONS_MAX} oldest connections" in page
    assert f"newest {live.MESSAGES_MAX:,} messages" in page
    assert f"{live.TEXT_MAX:,} characters" in page
    assert round(live.BATCH / live.ROUND_S) == 1000
