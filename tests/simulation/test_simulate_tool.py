"""The program of `make sim`."""

import importlib.util
import json
import signal
import subprocess
import sys
from collections import Counter
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


def plays(seed: int) -> Counter[str]:
    assert seed != 7, "it broke"
    return Counter({"fault: kill": 2})


def test_failing_seed_is_reported_with_replay_command(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "stories", lambda: dict.fromkeys(tool.STORIES, plays))
    monkeypatch.setattr(tool, "prepare_worker", lambda cores: None)
    monkeypatch.setattr(tool, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(tool, "rare_states", lambda: {"cluster": ["fault: kill"]})
    assert run(tool, monkeypatch, "--seeds", "12", "--story", "cluster", "--jobs", "2") == 1
    out = capfd.readouterr().out
    assert "12 of cluster" in out and "1 failed" in out
    assert "cluster 7: AssertionError: it broke" in out
    assert "make sim STORY=cluster FIRST=7 SEEDS=1" in out
    assert run(tool, monkeypatch, "--seeds", "20", "--first", "8", "--jobs", "1") == 0
    assert (
        "20 of cluster from 8, 20 of billing from 8, 2 of transactions from 8, 2 of restore from 8, "
        "2 of recreate from 8, 2 of near from 8, 2 of partitions from 8, 2 of tiering from 8, "
        "2 of security from 8, 2 of share from 8, "
        "2 of durable from 8, 2 of group from 8, 2 of consumer-group from 8, 2 of classic from 8"
    ) in capfd.readouterr().out


def test_a_long_run_that_misses_a_rare_state_fails(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "stories", lambda: dict.fromkeys(tool.STORIES, plays))
    monkeypatch.setattr(tool, "prepare_worker", lambda cores: None)
    monkeypatch.setattr(tool, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(tool, "rare_states", lambda: {"cluster": ["fault: kill", "fault: rot"]})
    assert run(tool, monkeypatch, "--seeds", "200", "--first", "10", "--story", "cluster", "--jobs", "1") == 1
    out = capfd.readouterr().out
    assert "no seed of 200 of cluster has reached: fault: rot" in out
    assert "400 times, by     200 seeds" in out
    monkeypatch.setattr(tool, "rare_states", lambda: {"cluster": ["fault: kill"]})
    assert run(tool, monkeypatch, "--seeds", "200", "--first", "10", "--story", "cluster", "--jobs", "1") == 0


def test_fresh_seeds_begin_where_the_record_ends(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tool, "stories", lambda: dict.fromkeys(tool.STORIES, plays))
    monkeypatch.setattr(tool, "prepare_worker", lambda cores: None)
    monkeypatch.setattr(tool, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(tool, "rare_states", lambda: {"cluster": ["fault: kill"]})
    monkeypatch.setattr(tool, "RECORD", tmp_path / "seeds.json")
    monkeypatch.setattr(tool, "RARE_SEEDS", tmp_path / "rare_seeds.json")
    for first, failed in ((0, 1), (20, 0)):
        assert run(tool, monkeypatch, "--seeds", "20", "--fresh", "--record", "--story", "cluster") == failed
        assert f"20 of cluster from {first}" in capfd.readouterr().out
    assert json.loads((tmp_path / "seeds.json").read_text())["cluster"] == {"played": 40, "failed": 1, "next": 40}


def test_few_seeds_that_reach_all_rare_states_are_recorded_and_played(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def reaches(seed: int) -> Counter[str]:
        return Counter({f"state {seed % 4}": 1, "state 0": seed % 2})

    monkeypatch.setattr(tool, "stories", lambda: dict.fromkeys(tool.STORIES, reaches))
    monkeypatch.setattr(tool, "prepare_worker", lambda cores: None)
    monkeypatch.setattr(tool, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(tool, "rare_states", lambda: {"cluster": [f"state {number}" for number in range(4)]})
    monkeypatch.setattr(tool, "RECORD", tmp_path / "seeds.json")
    monkeypatch.setattr(tool, "RARE_SEEDS", tmp_path / "rare_seeds.json")
    assert run(tool, monkeypatch, "--seeds", "20", "--first", "8", "--record", "--story", "cluster") == 0
    assert json.loads((tmp_path / "rare_seeds.json").read_text()) == {"cluster": [9, 10, 11]}
    assert run(tool, monkeypatch, "--rare") == 0
    assert "3 of cluster from 9" in capfd.readouterr().out
    monkeypatch.setattr(tool, "rare_states", lambda: {"cluster": ["state 5"]})
    assert run(tool, monkeypatch, "--rare") == 1
    assert "no seed of 3 of cluster has reached: state 5" in capfd.readouterr().out


def test_a_run_that_is_ended_by_sigterm_has_written_lines_and_record(checkout: Path, tmp_path: Path) -> None:
    program = f"""
import sys, time
from collections import Counter
from pathlib import Path
sys.path.insert(0, {str(checkout / "tools")!r})
import simulate

def play(seed):
    assert seed != 7, "it broke"
    while seed >= 120:
        time.sleep(1)
    return Counter()

simulate.stories = lambda: dict.fromkeys(simulate.STORIES, play)
simulate.rare_states = dict
simulate.RECORD = Path({str(tmp_path / "seeds.json")!r})
sys.argv = ["simulate.py", "--story", "cluster", "--seeds", "1000", "--jobs", "2", "--record"]
sys.exit(simulate.main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert "cluster 7: AssertionError: it broke" in run.stdout.readline()
        assert "make sim STORY=cluster FIRST=7 SEEDS=1" in run.stdout.readline()
        line = run.stdout.readline()
        assert line.startswith("100 of 1000 seeds in ") and line.endswith("; 1 failed\n")
        run.terminate()
        assert run.stdout.read() == ""  # the processes that played have ended, too
        assert run.wait() == 128 + signal.SIGTERM
    recorded = json.loads((tmp_path / "seeds.json").read_text())["cluster"]
    assert recorded == {"played": recorded["next"], "failed": 1, "next": recorded["next"]}
    assert 50 <= recorded["next"] <= 120
