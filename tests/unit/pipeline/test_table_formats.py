"""Atomic commits of each table format: after a kill or a full disk at any step, a commit counts whole or not."""

from errno import ENOSPC
from functools import partial
from pathlib import Path

import pytest
from support.tables import QUICK_FORMATS_FIRST, Rows, Seen, commit_rows, read_foreign, seen

from barnabas.pipeline.load import TableLoad, no_progress
from barnabas.pipeline.tables.formats import FORMATS, open_store
from barnabas.pipeline.tables.layout import DEFAULT_LAYOUT, Layout
from barnabas.pipeline.tables.load_plan import LoadPlan
from barnabas.pipeline.tables.parquet import PARQUET
from barnabas.pipeline.tables.source import LoadSource
from barnabas.pipeline.tables.state import TableError, plain_os_errors
from barnabas.pipeline.tables.store import TableStore, no_checkpoint
from barnabas.pipeline.topics.model import Where
from barnabas.ports.errors import ConfigError

pytestmark = pytest.mark.parametrize("named", QUICK_FORMATS_FIRST)


class PowerCut(BaseException):
    """Stops a commit, as a killed process would: nothing after it runs."""


FIRST = (Rows("a", "2024-01-01", range(5)), Rows("a", "2024-01-02", range(5, 10)), Rows("b", "2024-01-02", range(3)))
SECOND = (Rows("a", "2024-01-02", range(5, 8)), Rows("a", "2024-01-02", range(2), partition=1))
BEFORE = sum((each.seen for each in FIRST), Seen())
AFTER = sum((each.seen for each in (*FIRST[::2], *SECOND)), Seen())


def _begin(folder: Path, named: str) -> str:
    """Make a table with one commit; return the file that the next one replaces."""
    first = commit_rows(open_store(folder, named), *FIRST)
    return next(name for name in first.files if "topic=a/day=2024-01-02" in name)


def _replace(store: TableStore, replaced: str) -> None:
    commit_rows(store, *SECOND, removed=[replaced])


def test_a_commit_adds_and_replaces(tmp_path: Path, named: str) -> None:
    store = open_store(tmp_path, named)
    assert not store.exists()
    with pytest.raises(TableError, match="is not a loaded table"):
        store.finish_commit()
    replaced = _begin(tmp_path, named)
    assert seen(read_foreign(tmp_path)) == BEFORE
    _replace(store, replaced)
    store.finish_commit()
    assert seen(read_foreign(tmp_path)) == AFTER
    last = open_store(tmp_path).last()
    assert last is not None
    assert (last.number, last.operation, last.rows, list(last.removed)) == (
        open_store(tmp_path).begin_commit().number - 1,
        "load",
        5,
        [replaced],
    )
    assert {name: dict(topic.next_offsets) for name, topic in last.topics.items()} == {
        "a": {"0": 10, "1": 2},
        "b": {"0": 3},
    }
    assert last.topics["a"].topic_id == "id"
    assert [each.rows for each in store.history()] == [5, 13]
    files = {file.name: file for file in store.files()}
    assert sum(file.rows for file in files.values()) == AFTER.total()
    assert all((tmp_path / name).stat().st_size == file.size_bytes for name, file in files.items())
    assert {tuple(file.partition.items()) for file in files.values()} == {
        (("topic", topic), ("day", day))
        for topic, day in (("a", "2024-01-01"), ("a", "2024-01-02"), ("b", "2024-01-02"))
    }


def _raise_at(left: list[int], error: BaseException, _step: str) -> None:
    if not left:
        raise error
    left.pop()


def test_stopped_at_any_step_there_is_the_old_or_the_new_table(tmp_path: Path, named: str) -> None:
    steps: list[str] = []
    replaced = _begin(tmp_path / "count", named)
    _replace(open_store(tmp_path / "count", checkpoint=steps.append), replaced)
    assert len(steps) >= 5
    found = set()
    for stop_at in range(len(steps)):
        folder = tmp_path / str(stop_at)
        replaced = _begin(folder, named)
        stop = OSError(ENOSPC, "No space left on device") if stop_at % 2 else PowerCut()
        with pytest.raises((PowerCut, TableError), match=r"^$|No space left on device"), plain_os_errors(folder):
            _replace(open_store(folder, checkpoint=partial(_raise_at, list(range(stop_at)), stop)), replaced)
        if named != PARQUET:
            assert seen(read_foreign(folder)) in (BEFORE, AFTER)
        store = open_store(folder)
        with store.locked():
            store.recover()
        last = store.last()
        assert last is not None
        done = last.topics["a"].next_offsets.get("1") == 2
        found.add(done)
        assert seen(read_foreign(folder)) == (AFTER if done else BEFORE)
        there = {path.relative_to(folder).as_posix() for path in folder.glob("topic=*/day=*/*.parquet")}
        old = {replaced} if done and named != PARQUET else set()
        assert there == {file.name for file in store.files()} | old
        assert not list((folder / "_barnabas" / "staging").iterdir())
        if not done:
            _replace(store, replaced)
            assert seen(read_foreign(folder)) == AFTER
    assert found == {False, True}


def test_failed_load_reports_whether_rows_are_in_table(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    replaced = _begin(tmp_path / "count", named)
    _replace(open_store(tmp_path / "count", checkpoint=steps.append), replaced)
    last = open_store(tmp_path / "count").last()
    assert last is not None
    plan = LoadPlan(ranges=(), topics=last.topics, replaced_from={}, replaced_topics=(), lost=())
    found = set()
    for stop_at in range(len(steps)):
        folder = tmp_path / str(stop_at)
        replaced = _begin(folder, named)
        stop = OSError(ENOSPC, "No space left on device")
        store = open_store(folder, checkpoint=partial(_raise_at, list(range(stop_at)), stop))
        load = TableLoad(
            store=store,
            source=LoadSource(Where(bootstrap="memory:0"), {}, True, False, 1000),
            partition_by=None,
            since_ms=None,
            recreated="fail",
            spark=None,
            progress=no_progress,
            log_file=None,
        )
        monkeypatch.setattr(TableLoad, "_carry_out", lambda *_, store=store, name=replaced: _replace(store, name))
        with pytest.raises(TableError, match="No space left on device") as failed:
            load._carried_out(plan, store.last(), Layout.parse(DEFAULT_LAYOUT))
        now = open_store(folder).last()
        assert now is not None
        done = now.topics == last.topics
        assert ("nothing of this load is in the table" in str(failed.value)) == (not done)
        found.add(done)
    assert found == {False, True}


def test_a_table_stays_in_its_format(tmp_path: Path, named: str) -> None:
    _begin(tmp_path, named)
    assert open_store(tmp_path).format == open_store(tmp_path, named).format == named
    other = next(each for each in FORMATS if each != named)
    with pytest.raises(ConfigError, match=f"is a table in format {named}, not {other}"):
        open_store(tmp_path, other, checkpoint=no_checkpoint)
