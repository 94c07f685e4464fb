"""docs/plugins.md: every hook is on it, and its examples run as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.process import COMMAND
from support.waiting import PATIENCE_S

from barnabas.app.cli.main import ENTRY_POINT_GROUP as COMMANDS
from barnabas.app.compose.serve import ENTRY_POINT_GROUP as SERVICES
from barnabas.plugins.specs import PROJECT, Specs
from barnabas.testing import TestBroker

pytest_plugins = "pytester"


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "plugins.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def modules(page: str) -> dict[str, str]:
    """File name → content."""
    found = [re.match(r"# (\w+\.py)\n", block) for block in blocks(page, "python")]
    return {match[1]: match.string for match in found if match is not None}


def test_plugins_page_lists_every_hook_with_example(page: str) -> None:
    hooks = {name for name in vars(Specs) if name.startswith("barnabas_")}
    shown = set(re.findall(r"^def (barnabas_\w+)\(", "".join(modules(page).values()), re.MULTILINE))
    tabled = set(re.findall(r"^\| `(barnabas_\w+)\(", page, re.MULTILINE))
    assert hooks == shown == tabled
    for hook in hooks:
        (row,) = re.findall(rf"^\| `{hook}\((.*?)\)`", page, re.MULTILINE)
        code = vars(Specs)[hook].__code__
        assert row == ", ".join(code.co_varnames[1 : code.co_argcount])
    assert all(f"`{group}`" in page for group in (PROJECT, COMMANDS, SERVICES))


@pytest.mark.slow
def test_the_examples_run_as_written(page: str, pytester: pytest.Pytester) -> None:
    shown = modules(page)
    examples = [block for block in blocks(page, "python") if block not in shown.values()]
    for name, content in shown.items():
        (pytester.path / name).write_text(content, encoding="utf-8")
        assert len(content.strip().splitlines()) < 30
    for number, block in enumerate(examples):
        (pytester.path / f"test_example_{number}.py").write_text(block, encoding="utf-8")
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n0", timeout=500)
    done.assert_outcomes(passed=len(examples))
    assert len(examples) == len(shown), "one each, but for the command; and one of the host"


@pytest.mark.slow
@pytest.mark.process
def test_installed_plugin_adds_command_and_broken_plugin_is_reported(page: str, tmp_path: Path) -> None:
    for name, content in modules(page).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    installed = tmp_path / "count-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: count\nVersion: 1\n")
    toml = "".join(blocks(page, "toml")).replace("project.entry-points.", "").replace('"', "")
    (installed / "entry_points.txt").write_text(f"{toml}broken = not_there:register\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(COMMAND), *words], env=environment, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False
        )

    with TestBroker() as broker:
        broker.produce("orders", ["one", "two"])
        done = run("count", "orders", "--bootstrap", broker.bootstrap)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    known = "from barnabas.plugins import PluginHost; print(PluginHost().partitioner('by-shop'))"
    assert "ByShop" in subprocess.check_output(
        [sys.executable, "-c", known], env=environment, text=True, timeout=5 * PATIENCE_S
    )
    helped = run("--help")
    assert helped.returncode == 0
    assert "How many messages a topic has." in helped.stdout
    observed = "barnabas: the command broken (not_there:register) cannot be loaded: No module named 'not_there'"
    assert helped.stderr.splitlines() == [observed]
    done = run("broken")
    assert (done.returncode, done.stderr.splitlines()) == (1, [observed])
