"""`make bench-history` fails on a drop that stays, and remembers only runs without one."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., int]


@pytest.fixture(scope="module")
def history(checkout: Path) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(checkout / "benchmarks"))
        return runpy.run_path(str(checkout / "benchmarks" / "history.py"), run_name="history")


def measuring(*runs: dict[str, float]) -> Callable[[], dict[str, float]]:
    left = iter(runs)
    return lambda: next(left)


def test_first_run_has_no_one_to_compare_with(history: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "below" / "history.json"
    assert history["run"](file, measuring({"a": 1.0})) == 0
    (entry,) = json.loads(file.read_text())
    assert entry["ratios"] == {"a": 1.0}
    assert entry["machine"] == history["machine"]()


def test_drop_that_stays_fails_and_is_not_remembered(
    history: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "history.json"
    for ratio in (1.0, 1.1, 0.97, 1.3, 0.99):
        assert history["run"](file, measuring({"a": ratio, "b": 2.0})) == 0
    assert history["run"](file, measuring({"a": 0.85, "b": 2.0}, {"a": 0.87, "b": 1.0}, {"a": 0.8, "b": 1.0})) == 1
    assert "slower by more than 10%: a" in capsys.readouterr().out
    assert len(json.loads(file.read_text())) == 5


def test_drop_that_does_not_stay_passes(history: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    for _ in range(5):
        history["run"](file, measuring({"a": 1.0}))
    assert history["run"](file, measuring({"a": 0.5}, {"a": 0.6}, {"a": 0.98})) == 0
    assert json.loads(file.read_text())[-1]["ratios"] == {"a": 0.98}


def test_too_few_runs_are_not_judged(
    history: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "history.json"
    for ratio in (1.0, 0.8, 0.6, 0.5, 0.4):
        assert history["run"](file, measuring({"a": ratio})) == 0
    assert "not judged: 4 earlier runs, 5 are needed" in capsys.readouterr().out
    assert history["run"](file, measuring({"a": 0.3}, {"a": 0.3}, {"a": 0.3})) == 1


def test_runs_of_another_machine_or_reference_do_not_count(history: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    another = {"machine": "another", "reference": history["REFERENCE"], "ratios": {"a": 9.0}}
    older = {"machine": history["machine"](), "ratios": {"a": 9.0}}
    file.write_text(json.dumps([another, older] * 5))
    assert history["run"](file, measuring({"a": 1.0})) == 0


def test_lowest_of_the_last_runs_counts(history: dict[str, Any]) -> None:
    before = [{"a": 0.1}] * 20 + [{"a": 1.0}] * 5 + [{"a": 1.3}] * 5
    assert history["drops"]({"a": 0.91, "new": 0.1}, before) == {}
    assert history["drops"]({"a": 0.89}, before) == {"a": 0.89}
