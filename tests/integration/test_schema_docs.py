"""The registry's part of docs/schemas.md, run as written."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.process import barnabas
from support.schema_registry import serving
from support.waiting import PATIENCE_S

from barnabas.testing import TestBroker

ADDRESS = "http://127.0.0.1:8081"


def blocks(checkout: Path, language: str) -> list[str]:
    page = (checkout / "docs" / "schemas.md").read_text(encoding="utf-8")
    page = page.partition("## The registry")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_the_registry_as_the_page_uses_it(checkout: Path) -> None:
    with TestBroker() as broker, serving(broker.bootstrap) as url:
        printed: list[Any] = []
        (example,) = blocks(checkout, "python")
        names: dict[str, Any] = {"print": printed.append}
        exec(compile(example.replace(ADDRESS, url), "schemas.md", "exec"), names)  # our own page
        names["client"].__exit__(None, None, None)
        assert json.loads(printed[0])["name"] == "View"
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        answers = [curl(line.replace(ADDRESS, url)) for line in blocks(checkout, "sh")[1].splitlines()]
    assert answers[0]["error_code"] == 409
    assert (answers[1]["subject"], answers[1]["id"]) == ("views-value", 1)
    assert answers[2] == {"compatibility": "FULL"}
    assert answers[3]["is_compatible"] is False


def curl(line: str) -> Any:
    done = subprocess.run(shlex.split(line), capture_output=True, timeout=PATIENCE_S, check=True)
    return json.loads(done.stdout)


def test_the_commands_of_the_page_are_there(checkout: Path) -> None:
    """They serve for ever; each option that they are given is one that the command has."""
    for line in blocks(checkout, "sh")[0].splitlines():
        _, command, *arguments = shlex.split(line)
        known = barnabas(command, "--help").stdout
        assert all(word.encode() in known for word in arguments if word.startswith("--"))
