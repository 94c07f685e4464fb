"""The tables of docs/configuration.md are what the code says."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from barnabas.ports.values import frozen


@pytest.fixture(scope="module")
def tool(checkout: Path) -> dict[str, Any]:
    return runpy.run_path(str(checkout / "tools" / "configuration_reference.py"))


def test_the_page_is_current(tool: dict[str, Any], checkout: Path) -> None:
    stored = (checkout / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert tool["page"]() == stored, "run tools/configuration_reference.py"


def test_every_row_says_what_it_is_for(tool: dict[str, Any]) -> None:
    for name, table in tool["TABLES"].items():
        lines = list(table())
        assert len(lines) >= 5, name
        if name not in ("kept", "names", "tests"):
            assert [line for line in lines[2:] if line.rstrip(" |").rpartition("|")[2].strip() == ""] == []


def test_a_setting_without_a_sentence_is_refused(tool: dict[str, Any]) -> None:
    with pytest.raises(LookupError, match="Settings: say in a line below it what silent_ms is for"):
        tool["docs_of"](Settings)


@frozen(kw_only=True)
class Settings:
    said_ms: int = 1
    """The described setting, in milliseconds."""
    silent_ms: int = 2
