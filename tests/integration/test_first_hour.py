"""docs/first-hour.md, done from top to bottom in one folder."""

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.command import barnabas_here
from support.doc_commands import ADDRESS, Reader
from support.documents import Block, blocks, lines_of
from support.process import broker_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = "pytester"
PAGE = "docs/first-hour.md"
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.xdist_group("spark")]


class Hour:
    """The printed lines, by the command line or block that printed them."""

    def __init__(self, reader: Reader, folder: Path, bootstrap: str) -> None:
        self._reader, self._folder, self._bootstrap = reader, folder, bootstrap
        self.printed: dict[str, str] = {}
        self.files: list[str] = []

    def do(self, block: Block) -> None:
        if block.language == "python":
            self._python(block.code)
            return
        for line in lines_of(block):
            self.printed[line] = self.printed.get(line, "") + self._command(line)

    def _python(self, code: str) -> None:
        named = re.match(r"# (\w+\.py)\n", code)
        if named is not None:
            (self._folder / named[1]).write_text(code, encoding="utf-8")
            self.files.append(named[1])
            return
        lines: list[str] = []
        names = {"print": lambda *values: lines.append(" ".join(map(str, values)))}
        exec(compile(code.replace(ADDRESS, self._bootstrap), PAGE, "exec"), names)  # our own page
        self.printed[code] = "\n".join(lines)

    def _command(self, line: str) -> str:
        given, _, command = line.rpartition(" | ")
        if not given:
            return self._reader.run_line(command, self._bootstrap)
        stdin = subprocess.run(["bash", "-c", given], check=True, capture_output=True).stdout
        words = command.split()
        assert words[0] == "barnabas"
        return barnabas_here(*words[1:], stdin=stdin).stdout.decode()


@pytest.mark.slow
def test_commands_of_first_hour_page_run_in_order(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.range(1).count() == 1
    serve, *others = blocks(PAGE, "sh", "python")
    assert lines_of(serve) == [f"barnabas serve --data data --listen kafka://{ADDRESS}"]
    monkeypatch.syspath_prepend(tmp_path)
    with broker_process(tmp_path / "data", "group.initial.rebalance.delay.ms=0") as broker:
        hour = Hour(Reader(tmp_path, monkeypatch), tmp_path, broker.bootstrap)
        for block in others:
            hour.do(block)
    sys.modules.pop("as_json", None)
    said = {line: text for line, text in hour.printed.items() if line.startswith("barnabas ")}
    (consumed,) = (text for line, text in said.items() if " consume " in line)
    assert sorted(consumed.splitlines()) == ['ann {"item": "book", "price": 12}', 'bob {"item": "pen", "price": 2}']
    (python, _) = (text for line, text in hour.printed.items() if line.startswith("from "))
    assert re.search(r"^[01] \d$", python, re.MULTILINE)
    assert len(re.findall(r"^b'(?:ann|bob)' b'", python, re.MULTILINE)) == 3
    loads = said["barnabas load --topics orders --into warehouse"]
    assert re.findall(r"^(\d) new rows", loads, re.MULTILINE) == ["5", "0"]
    (asked, counted) = (text.split() for line, text in said.items() if " query " in line)
    assert asked[3:] == ["book", "3", "35", "lamp", "1", "30", "pen", "1", "2"]
    assert counted == ["loaded", "5"]
    assert "orders" in (tmp_path / "warehouse.html").read_text(encoding="utf-8")
    assert re.search(r"^orders +2 ", said["barnabas top"], re.MULTILINE)
    assert re.search(r"^first-hour ", said["barnabas top"], re.MULTILINE)
    assert hour.files == ["test_orders.py", "as_json.py"]


def test_test_module_of_first_hour_page_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.testing import running

    monkeypatch.setattr(running, "_running", [])  # the broker that this test run may have
    (code,) = (block.code for block in blocks(PAGE, "python") if block.code.startswith("# test_orders.py"))
    pytester.makepyfile(test_orders=code)
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--strict-markers", "test_orders.py")
    done.assert_outcomes(passed=2)
