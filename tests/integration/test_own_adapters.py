"""The contract suites work outside of this repository, as docs/adapters.md and its example show."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S

pytest_plugins = "pytester"

pytestmark = pytest.mark.slow

_WITHOUT_HYPOTHESIS = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "hypothesis" else find_spec(name, package)
import barnabas.testing
try:
    import barnabas.testing.contracts.storage
except ImportError as error:
    print(error)
"""

_BROKEN = """
import pytest
from barnabas.adapters.coord_memory import MemoryTree
from barnabas.testing.contracts.coordination import CoordinationContract, Harness

class Forgetful:
    def __init__(self, session):
        self.session = session
    def __getattr__(self, name):
        return getattr(self.session, name)
    def create(self, path, data=b"", *, ephemeral=False):
        self.session.create(path, data[:3], ephemeral=ephemeral)

class BrokenHarness(Harness):
    several_sessions = False
    faults = frozenset()
    def session(self):
        return Forgetful(MemoryTree().session())

class TestBroken(CoordinationContract):
    @pytest.fixture
    def harness(self):
        return BrokenHarness()
"""


def test_the_example_passes_the_suite_of_its_port(checkout: Path, pytester: pytest.Pytester) -> None:
    example = checkout / "examples" / "own_adapter"
    copy = shutil.copytree(example, pytester.path / "own_adapter", ignore=shutil.ignore_patterns("__pycache__"))
    assert len((example / "json_coordination.py").read_text(encoding="utf-8").splitlines()) < 150
    outcomes = pytester.runpytest_subprocess("-p", "no:cacheprovider", copy, timeout=500).parseoutcomes()
    assert outcomes.keys() <= {"passed", "skipped"}
    assert outcomes["passed"] > 60


def test_the_page_runs_as_written(checkout: Path, pytester: pytest.Pytester) -> None:
    page = (checkout / "docs" / "adapters.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for number, block in enumerate(blocks):
        (pytester.path / f"test_block_{number}.py").write_text(block, encoding="utf-8")
    outcomes = pytester.runpytest_subprocess("-p", "no:cacheprovider", timeout=500).parseoutcomes()
    assert outcomes.keys() <= {"passed", "skipped"}
    assert outcomes["passed"] > 80


def test_the_page_names_every_suite(checkout: Path) -> None:
    page = (checkout / "docs" / "adapters.md").read_text(encoding="utf-8")
    there = {path.stem for path in (checkout / "testing" / "contracts").glob("*.py")} - {"__init__"}
    parts = {name for name in there if name.startswith("coordination_")} - {"coordination_remote"}
    assert [name for name in sorted(there - parts) if f"`{name}`" not in page and f"contracts.{name}" not in page] == []


def test_a_suite_says_what_a_broken_adapter_did(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_BROKEN)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-k", "created_node_can_be_read", timeout=500)
    done.assert_outcomes(failed=1, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines(["*assert Node(data=b'con', version=0, ephemeral=False) == Node(data=b'content',*"])


def test_without_hypothesis_the_suites_say_how_to_get_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_HYPOTHESIS], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert re.fullmatch(
        r"the contract suites: hypothesis not installed; to get it: pip install .*\[contracts\]'\n", done.stdout
    )
