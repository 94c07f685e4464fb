"""The testing kit in docs/testing.md and README.md: the Python runs as written."""

import re
import unittest
from pathlib import Path

import pytest

from barnabas.testing import running

pytest_plugins = "pytester"
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs in here know nothing of the broker that this test run may have."""
    monkeypatch.setattr(running, "_running", [])


@pytest.fixture(scope="module")
def blocks(checkout: Path) -> list[str]:
    text = (checkout / "docs" / "testing.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_examples_with_pytest(blocks: list[str], checkout: Path, pytester: pytest.Pytester) -> None:
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    shown = [*blocks, *re.findall(r"^```python\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)]
    examples = [block for block in shown if "def test_" in block and "unittest" not in block]
    for number, block in enumerate(examples):
        (pytester.path / f"test_example_{number}.py").write_text(block, encoding="utf-8")
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers")
    done.assert_outcomes(passed=len(examples))
    assert len(examples) >= 6


def test_the_examples_without_pytest(blocks: list[str]) -> None:
    examples = [block for block in blocks if "def test_" not in block or "unittest" in block]
    assert len(examples) == 2
    for block in examples:
        names: dict[str, object] = {}
        exec(compile(block, "docs/testing.md", "exec"), names)  # our own page
        for case in names.values():
            if isinstance(case, type) and issubclass(case, unittest.TestCase):
                result = unittest.TestResult()
                unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
                assert result.testsRun == 1
                assert result.wasSuccessful(), result
