"""Writes what the last `make test` (or `pytest tests/compatibility`) found into the table of docs/compatibility.md."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.compat import outcomes, table  # noqa: E402  found by the line before


def main() -> int:
    page = ROOT / "docs" / "compatibility.md"
    before = page.read_text(encoding="utf-8")
    try:
        after = table.replaced(before, table.render(outcomes.read()))
    except ValueError as error:
        print(f"the table stays as it is: {error}", file=sys.stderr)  # noqa: T201  a command
        return 1
    if after != before:
        page.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
