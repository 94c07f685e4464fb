"""The first lines of the documents' front page, done as a newcomer does: saved to a file and run in an empty folder."""

import subprocess
import sys
from pathlib import Path

from support.documents import blocks
from support.waiting import PATIENCE_S

PAGE = "docs/index.md"


def test_front_page_begins_with_pip_install_and_code_that_runs(tmp_path: Path) -> None:
    install, code, *_ = blocks(PAGE)
    assert install.code.startswith("pip install ")
    assert len(code.code.splitlines()) <= 12
    (tmp_path / "hello.py").write_text(code.code, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "hello.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    warnings = [line for line in ran.stderr.splitlines() if "was slow" not in line]  # of a busy machine
    assert (ran.returncode, warnings) == (0, [])
    assert ran.stdout.splitlines()[-1] == "greetings 0 {'text': 'hello'}"
    assert (tmp_path / "data" / "greetings-0").is_dir()
