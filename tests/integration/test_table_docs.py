"""The commands of docs/tables.md for a table run as written."""

import re
import shlex
from pathlib import Path

import pytest
from support.tables import Rows, commit_rows, read_foreign

from barnabas.app.cli.main import main
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.parquet import PARQUET


def test_the_commands_of_the_upkeep(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (checkout / "docs" / "tables.md").read_text(encoding="utf-8").partition("## Upkeep")[2]
    lines = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    assert len(lines) >= 7
    monkeypatch.chdir(tmp_path)
    for first in (0, 10):
        commit_rows(open_store(Path("warehouse"), PARQUET), Rows("access", "2024-01-01", range(first, first + 10)))
    for line in lines:
        command, *arguments = shlex.split(line)
        assert command == "barnabas"
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0, (line, capsys.readouterr().err)
    said = capsys.readouterr().out
    for text in ("parquet, laid out by topic, day", "2 files became 1", "20 rows from before", "format delta now"):
        assert text in said
    assert read_foreign(Path("warehouse")).num_rows == 0


def test_the_example_of_a_reader(checkout: Path, tmp_path: Path) -> None:
    page = (checkout / "docs" / "tables.md").read_text(encoding="utf-8").partition("## Iceberg")[2]
    example = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    folder = tmp_path / "warehouse"
    commit_rows(
        open_store(folder, "iceberg"), Rows("access", "2024-01-01", range(3)), Rows("b", "2024-01-01", range(2))
    )
    names: dict[str, object] = {}
    exec(compile(example.replace("/data/warehouse", str(folder)), "tables.md", "exec"), names)  # our own page
    assert getattr(names["rows"], "num_rows", None) == 3
    getattr(names["catalog"], "close")()  # noqa: B009
