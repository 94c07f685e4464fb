"""What `make sim` runs."""

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def tool(checkout: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulate", checkout / "tools" / "simulate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["simulate.py", *arguments])
    done: int = tool.main()
    return done


def plays(seed: int) -> None:
    assert seed != 7, "it broke"


def test_a_seed_that_fails_is_told_with_what_plays_it_again(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "stories", lambda: dict.fromkeys(tool.STORIES, plays))
    monkeypatch.setattr(tool, "be_quiet", lambda: None)
    monkeypatch.setattr(tool, "ProcessPoolExecutor", ThreadPoolExecutor)
    assert run(tool, monkeypatch, "--seeds", "12", "--story", "cluster", "--jobs", "2") == 1
    out, err = capfd.readouterr()
    assert "12 of cluster" in out and "1 failed" in out
    assert "cluster 7: AssertionError: it broke" in err
    assert "make sim STORY=cluster FIRST=7 SEEDS=1" in err
    assert run(tool, monkeypatch, "--seeds", "20", "--first", "8", "--jobs", "1") == 0
    assert (
        "20 of cluster, 20 of billing, 2 of transactions, 2 of durable, 2 of group, 2 of classic"
        in capfd.readouterr().out
    )
