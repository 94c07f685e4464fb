"""docs/unit-testing.md: its tests run as written."""

import re
from pathlib import Path

import pytest

from barnabas import testing

pytest_plugins = "pytester"


@pytest.mark.slow
def test_the_page_runs_as_written(checkout: Path, pytester: pytest.Pytester) -> None:
    page = (checkout / "docs" / "unit-testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for number, block in enumerate(blocks):
        (pytester.path / f"test_block_{number}.py").write_text(block, encoding="utf-8")
    outcomes = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n0", timeout=500).parseoutcomes()
    assert outcomes == {"passed": outcomes["passed"]}
    assert outcomes["passed"] > sum(block.count("\ndef test_") for block in blocks) == 7
    by_hand = {name for name, home in vars(testing)["_HOMES"].items() if home in (".by_hand", ".manual_broker")}
    assert [name for name in sorted(by_hand) if f"`{name}" not in page and f" {name}" not in page] == []
