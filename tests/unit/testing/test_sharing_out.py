"""The parts of a run that its processes are handed, and their reports."""

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.sharing_out import LONGEST_FIRST
from support.waiting import PATIENCE_S, wait_for

pytest_plugins = "pytester"

MODULE = """
import os
import pathlib
import warnings

import pytest

FOLDER = pathlib.Path(__file__).parent

@pytest.fixture(scope="session")
def shared():
    yield os.getpid()
    (FOLDER / f"torn-down-{os.getpid()}").touch()

"""

GROUPED = """
@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(3))
def test_in_a_group(number, shared, tmp_path):
    (FOLDER / f"grouped-{os.getpid()}").touch()
    assert tmp_path.parents[0].name == os.environ["PYTEST_XDIST_WORKER"].join(("popen-", ""))
"""

DIES = """
def test_output_of_a_passed_test_is_hidden(shared):
    print("seen of a test that passed")

def test_worker_dies_while_it_runs():
    os._exit(7)

def test_rest_runs_in_another_worker(shared):
    warnings.warn("a warning of a test")

def test_failure_shows_its_values(shared):
    print("seen of a test that failed")
    assert {"a": 1} == {"a": 2}

@pytest.fixture
def broken():
    yield
    raise RuntimeError("in the teardown")

def test_fails_in_the_teardown(broken):
    pass
"""


@pytest.fixture
def shared_run(pytester: pytest.Pytester, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(checkout / "tests"))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    absent = " ".join(f"-p no:{name}" for name in ("xdist", "randomly", "asyncio", "hypothesispytest"))
    pytester.makeini(f"[pytest]\nmarkers = xdist_group\naddopts = -p support.forked_workers {absent}\n")
    return pytester


def test_files_that_take_long_are_there(checkout: Path) -> None:
    assert all((checkout / name).exists() for name in LONGEST_FIRST if name.endswith(".py"))


def test_workers_keep_groups_together_and_a_dead_worker_fails_its_test_alone(shared_run: pytest.Pytester) -> None:
    shared_run.makepyfile(test_a=MODULE + GROUPED, test_b=MODULE + GROUPED, test_c=MODULE + DIES)

    result = shared_run.runpytest_subprocess("--workers", "3")

    result.assert_outcomes(passed=9, failed=2, errors=1, warnings=1)
    result.stdout.fnmatch_lines_random(
        [
            "the worker gw* died while it ran test_c.py::test_worker_dies_while_it_runs: exit code 7",
            "*seen of a test that failed*",
            "E *assert {'a': 1} == {'a': 2}",
            "*RuntimeError: in the teardown",
            "*a warning of a test*",
        ]
    )
    result.stdout.no_fnmatch_line("*seen of a test that passed*")
    assert len(list(shared_run.path.glob("grouped-*"))) == 1
    torn_down = {file.name.rpartition("-")[2] for file in shared_run.path.glob("torn-down-*")}
    assert {file.name.rpartition("-")[2] for file in shared_run.path.glob("grouped-*")} < torn_down
    assert len(torn_down) == 2, "the one that ran the groups, and the one that came after the dead one"


@pytest.mark.slow
def test_run_stops_after_as_many_failures_as_it_may_have(shared_run: pytest.Pytester) -> None:
    fails = "def test_{}(shared):\n    assert False\n\n"
    shared_run.makepyfile(test_a=MODULE + "".join(map(fails.format, range(20))), test_b=MODULE + GROUPED)

    result = shared_run.runpytest_subprocess("--workers", "2", "--maxfail", "3")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["failed"] in (3, 4)
    result.stdout.fnmatch_lines(["*stopping after 3 failures*"])
    assert list(shared_run.path.glob("torn-down-*"))


@pytest.mark.slow
def test_sigterm_tears_down_the_fixtures_of_all_workers(shared_run: pytest.Pytester) -> None:
    waits = """
@pytest.mark.parametrize("number", range(2))
def test_worker_waits_for_a_signal(number, shared):
    (FOLDER / f"waits-{os.getpid()}").touch()
    __import__("time").sleep(1000)
"""
    shared_run.makepyfile(test_a=MODULE + waits, test_b=MODULE + waits)

    command = [sys.executable, "-m", "pytest", "--workers", "2"]
    with subprocess.Popen(command, cwd=shared_run.path, stdout=subprocess.DEVNULL) as process, ExitStack() as stack:
        stack.callback(process.kill)
        wait_for(lambda: len(list(shared_run.path.glob("waits-*"))) == 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == pytest.ExitCode.INTERRUPTED

    assert len(list(shared_run.path.glob("torn-down-*"))) == 2
