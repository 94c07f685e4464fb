"""Upkeep of a table in each format: rows and offsets stay what they were, and readers see it whole."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions.visitors import _ManifestEvalVisitor
from pyiceberg.manifest import ManifestFile
from support.tables import QUICK_FORMATS_FIRST, Rows, Seen, commit_rows, read_foreign, seen

from barnabas.app.cli.main import main
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.iceberg.store import ICEBERG
from barnabas.pipeline.tables.parquet import PARQUET
from barnabas.pipeline.tables.state import DataFile, TableError
from barnabas.pipeline.tables.store import TableStore
from barnabas.pipeline.tables.upkeep.describe import describe_table
from barnabas.pipeline.tables.upkeep.maintenance import choose, compact, delete_before
from barnabas.ports.errors import ConfigError

every_format = pytest.mark.parametrize("named", QUICK_FORMATS_FIRST)


def _ms(day: str, seconds: int = 0) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() + seconds) * 1000


def _small_loads(folder: Path, named: str) -> TableStore:
    """Five loads: three files of one day of a, two of the next, one of b."""
    store = open_store(folder, named)
    for first in (0, 10, 20):
        commit_rows(store, Rows("a", "2024-01-01", range(first, first + 10)))
    commit_rows(store, Rows("a", "2024-01-02", range(30, 40)), Rows("b", "2024-01-02", range(5)))
    commit_rows(store, Rows("a", "2024-01-02", range(40, 50)))
    return store


LOADED = Rows("a", "", range(50)).seen + Rows("b", "", range(5)).seen


@every_format
def test_compact_merges_small_files_and_preserves_rows(tmp_path: Path, named: str) -> None:
    store = _small_loads(tmp_path, named)
    before = store.last()
    with store.locked():
        done = compact(store)
        assert (done.files_before, done.files_after) == (5, 2)
        again = compact(store)
    assert again.commit is None
    last = store.last()
    assert before is not None
    assert last is not None
    assert (last.number, last.operation, last.rows, last.replaced_rows) == (before.number + 1, "compact", 0, 0)
    assert last.topics == before.topics
    assert seen(read_foreign(tmp_path)) == LOADED
    assert sorted(file.rows for file in store.files()) == [5, 20, 30]
    name = next(file.name for file in store.files() if file.rows == 30)
    written = pq.read_table(tmp_path / name, partitioning=None)
    assert written["offset"].to_pylist() == list(range(30))
    assert written["headers"][0].as_py() == [{"key": "h", "value": b"1"}]
    commit_rows(store, Rows("a", "2024-01-02", range(50, 60)))
    assert seen(read_foreign(tmp_path)) == LOADED + Rows("a", "", range(50, 60)).seen


@pytest.mark.slow
def test_iceberg_compact_shares_no_evaluator_among_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, evaluators = _small_loads(tmp_path, ICEBERG), list[_ManifestEvalVisitor]()
    evaluate = _ManifestEvalVisitor.eval

    def note(evaluator: _ManifestEvalVisitor, manifest: ManifestFile) -> bool:
        evaluators.append(evaluator)
        return evaluate(evaluator, manifest)

    monkeypatch.setattr(_ManifestEvalVisitor, "eval", note)
    with store.locked():
        compact(store)
    assert len(evaluators) > 2
    assert len(set(map(id, evaluators))) == len(evaluators)


def test_a_delete_that_finds_nothing_leaves_nothing_behind(tmp_path: Path) -> None:
    """The file does not say how old its rows are, and has to be read."""
    store = open_store(tmp_path, PARQUET)
    commit_rows(store, Rows("a", "2024-01-01", range(10)))
    (file,) = store.files()
    path = tmp_path / file.name
    pq.write_table(pq.ParquetFile(path).read(), path, write_statistics=False)
    with store.locked():
        assert delete_before(store, _ms("2023-12-31")).commit is None
    assert not list((tmp_path / "_barnabas" / "staging").iterdir())


@every_format
def test_delete_before_removes_older_rows_of_topics(tmp_path: Path, named: str) -> None:
    store = _small_loads(tmp_path, named)
    before = store.last()
    with store.locked():
        assert delete_before(store, _ms("2024-01-01")).commit is None
        with pytest.raises(ConfigError, match=r"there is no topic 'c' in .*; there is a, b"):
            delete_before(store, _ms("2024-01-02", 4), topics=["a", "c"])
        done = delete_before(store, _ms("2024-01-02", 4), topics=["a"])
        assert (done.rows, done.files, done.rewritten) == (38, 3, 2)
    last = store.last()
    assert before is not None
    assert last is not None
    assert (last.operation, last.rows, last.replaced_rows, last.topics) == ("delete", 0, 38, before.topics)
    remaining = Rows("a", "", [*range(34, 40), *range(44, 50)]).seen + Rows("b", "", range(5)).seen
    assert seen(read_foreign(tmp_path)) == remaining
    with store.locked():
        assert delete_before(store, _ms("2025-01-01")).rows == remaining.total()
    assert seen(read_foreign(tmp_path)) == Seen()
    assert not store.files()


@every_format
def test_vacuum_removes_unreferenced_files_after_dry_run(tmp_path: Path, named: str) -> None:
    store = _small_loads(tmp_path, named)
    with store.locked():
        compact(store)
        assert not store.vacuum(_ms("2024-06-01"), dry_run=False)
        now_ms = time.time_ns() // 1_000_000 + 60_000
        shown = store.vacuum(now_ms, dry_run=True)
        assert all((tmp_path / name).exists() for name in shown)
        gone = store.vacuum(now_ms, dry_run=False)
    rows_gone = {name for name in gone if name.startswith("topic=")}
    assert len(rows_gone) == (0 if named == PARQUET else 5)
    assert rows_gone <= set(shown)
    assert not any((tmp_path / name).exists() for name in gone)
    assert seen(read_foreign(tmp_path)) == LOADED
    last = store.last()
    assert last is not None
    assert last.topics["a"].next_offsets == {"0": 50}
    commit_rows(store, Rows("b", "2024-01-03", range(5, 6)))
    assert seen(read_foreign(tmp_path)) == LOADED + Rows("b", "", range(5, 6)).seen


@every_format
def test_describe_table_returns_layout_topics_and_sizes(tmp_path: Path, named: str) -> None:
    found = describe_table(_small_loads(tmp_path, named))
    assert (found.format, list(found.layout), found.newest_ms) == (named, ["topic", "day"], _ms("2024-01-02", 9))
    a, b = found.topics
    assert (a.topic, a.topic_id, a.rows, a.files, a.next_offsets) == ("a", "id", 50, 5, {"0": 50})
    assert (b.oldest_ms, b.newest_ms) == (_ms("2024-01-02"), _ms("2024-01-02", 4))
    assert a.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("topic=a/day=*/*.parquet"))


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["table", *arguments])
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    return said.out


@every_format
def test_table_commands_print_results(tmp_path: Path, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    _small_loads(tmp_path, named)
    folder = str(tmp_path)
    commits = json.loads(_run(capsys, "history", folder, "--json", "--limit", "2"))
    assert [each["rows"] for each in commits] == [10, 15]
    assert commits[0]["topics"]["a"]["next_offsets"] == {"0": 50}
    described = json.loads(_run(capsys, "describe", folder, "--json"))
    assert described["topics"][0]["rows"] == 50
    assert described["age_ms"] > 0
    assert f"{named}, laid out by topic, day" in _run(capsys, "describe", folder)
    assert "5 files became 2" in _run(capsys, "compact", folder)
    assert "nothing to do" in _run(capsys, "compact", folder)
    assert "40 rows from before 2024-01-02T00:00:05Z deleted" in _run(
        capsys, "delete-before", folder, "2024-01-02T00:00:05", "--topics", "a"
    )
    for word in ("--execute", "--run"):  # the second is the earlier name
        assert json.loads(_run(capsys, "vacuum", folder, word, "--json"))["removed"] is True
    assert json.loads(_run(capsys, "vacuum", folder, "--json"))["files"] == []
    assert "compact" in _run(capsys, "history", folder)
    assert (
        seen(read_foreign(tmp_path))
        == Rows("a", "", [*range(35, 40), *range(45, 50)]).seen + Rows("b", "", range(5)).seen
    )


def test_table_commands_without_table_fail_and_create_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["table", "describe", str(tmp_path)])
    assert ended.value.code == 1
    assert "is not a loaded table" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    with pytest.raises(TableError, match="is not a loaded table"):
        describe_table(open_store(tmp_path))


def _file(name: str, size: int, day: str = "1") -> DataFile:
    return DataFile(name=name, rows=1, size_bytes=size, partition={"topic": "t", "day": day})


@pytest.mark.parametrize(
    ("files", "together"),
    [
        ([_file("a", 10), _file("b", 10)], [["a", "b"]]),
        ([_file("a", 10), _file("b", 10, "2")], []),
        ([_file("a", 10), _file("b", 60)], []),
        ([_file("a", 49), _file("b", 49), _file("c", 49), _file("d", 1)], [["a", "b"], ["c", "d"]]),
        ([_file("a", 49), _file("b", 49), _file("c", 49)], [["a", "b"]]),
    ],
)
def test_small_files_of_partition_are_merged(files: Sequence[DataFile], together: list[list[str]]) -> None:
    assert [[file.name for file in each] for each in choose(files, 100)] == together
