"""docs/configuration.md is what the tables of keys say."""

import subprocess
import sys
from pathlib import Path


def test_the_page_is_current(checkout: Path, tmp_path: Path) -> None:
    tool = checkout / "tools" / "configuration_reference.py"
    script = f"import runpy; open('page.md', 'w', encoding='utf-8').write(runpy.run_path({str(tool)!r})['page']())"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)
    made = (tmp_path / "page.md").read_text(encoding="utf-8")
    kept = (checkout / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert made == kept, "run tools/configuration_reference.py"
