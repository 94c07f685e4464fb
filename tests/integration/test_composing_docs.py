"""The Python of docs/composing.md runs as written."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import blocks
from support.process import PATIENCE_S

PAGE = "docs/composing.md"


def example(word: str) -> str:
    (code,) = (block.code for block in blocks(PAGE, "python") if word in block.code)
    return code


def test_the_object_and_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[object] = []
    exec(compile(example("num_partitions"), PAGE, "exec"), {"print": printed.append})  # our own page
    assert str(printed[0]).startswith("127.0.0.1:")
    assert printed[1:] == [[b"one"]]
    exec(compile(example("tomllib"), PAGE, "exec"), {"print": lambda *values: printed.append(values)})
    assert printed[2:] == [(24, 0)]


def test_a_broker_of_own_parts() -> None:
    printed: list[object] = []
    exec(compile(example("outside_of"), PAGE, "exec"), {"print": printed.append})
    assert printed[0] == [b"one"]
    assert str(printed[1]).startswith("broker 1 starts: logs in memory")


@pytest.mark.process
def test_process_example_of_composing_page_runs(tmp_path: Path) -> None:
    (tmp_path / "barnabas.toml").write_text('listeners = "kafka://127.0.0.1:0"\nlog.dirs = "elsewhere"\n')
    command = [sys.executable, "-c", example("read_config")]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready at kafka://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "data").is_dir()
