"""The commit protocol, stopped at every step."""

import json
import threading
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S

from barnabas.pipeline.tables.commits import CommitLog, LoggedCommit
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.lock import TableLocked
from barnabas.pipeline.tables.state import TableError, TopicState, plain_os_errors


class PowerCut(BaseException):
    """Stops the protocol, as a killed process would: nothing after it runs."""


def _stage(folder: Path, contents: dict[str, str]) -> None:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def _load(log: CommitLog, contents: dict[str, str], removed: tuple[str, ...] = (), offset: int = 0) -> None:
    with log.locked():
        log.recover()
        number, staging = log.begin_commit()
        _stage(staging, contents)
        log.commit(
            LoggedCommit(
                number=number,
                staging=staging.name,
                created_ms=1,
                topics={"t": TopicState(next_offsets={"0": offset})},
                ranges=[],
                rows=len(contents),
                files=sorted(contents),
                removed=removed,
            )
        )


def _visible(folder: Path) -> dict[str, str]:
    """Return the files for a reader that skips names with an underscore."""
    paths = (p for p in folder.rglob("*") if p.is_file() and not p.relative_to(folder).as_posix().startswith("_"))
    return {p.relative_to(folder).as_posix(): p.read_text() for p in paths}


FIRST = {"topic=t/day=1/a": "one", "topic=t/day=2/b": "two"}
SECOND = {"topic=t/day=2/c": "three", "topic=u/day=1/d": "four"}
BEFORE = FIRST
AFTER = {"topic=t/day=1/a": "one", **SECOND}


def _steps(folder: Path) -> list[str]:
    steps: list[str] = []
    _load(CommitLog(folder), FIRST, offset=10)
    _load(CommitLog(folder, checkpoint=steps.append), SECOND, removed=("topic=t/day=2/b",), offset=20)
    return steps


def test_a_load_adds_and_replaces(tmp_path: Path) -> None:
    _steps(tmp_path)
    assert _visible(tmp_path) == AFTER
    last = CommitLog(tmp_path).last()
    assert last is not None
    assert (last.number, last.topics["t"].next_offsets) == (2, {"0": 20})
    assert not list((tmp_path / "_barnabas" / "staging").iterdir())


def test_stopped_at_any_step_the_old_or_the_new_table_remains(tmp_path: Path) -> None:
    count = len(_steps(tmp_path / "count"))
    assert count >= 9
    seen = set()
    for stop_at in range(count):
        folder = tmp_path / str(stop_at)
        _load(CommitLog(folder), FIRST, offset=10)
        left = [stop_at]

        def stop(_step: str, left: list[int] = left) -> None:
            if left[0] == 0:
                raise PowerCut
            left[0] -= 1

        with pytest.raises(PowerCut):
            _load(CommitLog(folder, checkpoint=stop), SECOND, removed=("topic=t/day=2/b",), offset=20)
        log = CommitLog(folder)
        with log.locked():
            log.recover()
        last = log.last()
        assert last is not None
        offset = last.topics["t"].next_offsets["0"]
        seen.add(offset)
        assert _visible(folder) == (AFTER if offset == 20 else BEFORE)
        assert not log.unfinished()
        assert not list((folder / "_barnabas" / "staging").iterdir())
    assert seen == {10, 20}


def test_stopped_again_while_recovering(tmp_path: Path) -> None:
    _load(CommitLog(tmp_path), FIRST, offset=10)

    def fail_at(name: str) -> CommitLog:
        def stop(step: str) -> None:
            if step == name:
                raise PowerCut

        return CommitLog(tmp_path, checkpoint=stop)

    with pytest.raises(PowerCut):
        _load(fail_at("move file"), SECOND, removed=("topic=t/day=2/b",), offset=20)
    for step in ("remove file", "remove staging"):
        assert CommitLog(tmp_path).unfinished()
        with pytest.raises(PowerCut):
            fail_at(step).recover()
    CommitLog(tmp_path).recover()
    assert _visible(tmp_path) == AFTER


def test_before_the_commit_nothing_is_visible(tmp_path: Path) -> None:
    log = CommitLog(tmp_path)
    with log.locked():
        _, staging = log.begin_commit()
        _stage(staging, FIRST)
        assert _visible(tmp_path) == {}
        assert log.last() is None
        assert not log.unfinished()


def test_only_one_at_a_time(tmp_path: Path) -> None:
    other = CommitLog(tmp_path).locked(wait_s=0.1)
    changed_by = pytest.raises(TableLocked, match=r"is being changed by process \d+")
    with CommitLog(tmp_path).locked(), changed_by, other:
        pass
    with CommitLog(tmp_path).locked():
        pass


def test_commit_with_missing_file_raises_file_not_found(tmp_path: Path) -> None:
    log = CommitLog(tmp_path)
    number, staging = log.begin_commit()
    _stage(staging, FIRST)
    with pytest.raises(FileNotFoundError):
        log.commit(LoggedCommit(number=number, staging=staging.name, created_ms=1, topics={}, files=["x"]))


def test_damaged_commit_file_raises_table_error(tmp_path: Path) -> None:
    _load(CommitLog(tmp_path), FIRST)
    path = tmp_path / "_barnabas" / "commits" / "000001.json"
    content = json.loads(path.read_text())
    path.write_text("{")
    with pytest.raises(TableError, match="damaged"):
        CommitLog(tmp_path).last()
    path.write_text(json.dumps(content | {"version": 9}))
    with pytest.raises(TableError, match="version 9"):
        CommitLog(tmp_path).last()
    path.write_text("[]")
    with pytest.raises(TableError, match="damaged"):
        CommitLog(tmp_path).last()


def test_a_reader_finishes_what_a_dead_load_left(tmp_path: Path) -> None:
    def stop(step: str) -> None:
        if step == "move file":
            raise PowerCut

    with pytest.raises(PowerCut):
        _load(CommitLog(tmp_path, checkpoint=stop), FIRST)
    assert _visible(tmp_path) == {}
    open_store(tmp_path).finish_commit()
    assert _visible(tmp_path) == FIRST


def test_a_reader_waits_for_a_living_load(tmp_path: Path) -> None:
    applying, released = threading.Event(), threading.Event()

    def pause(step: str) -> None:
        if step == "move file":
            applying.set()
            assert released.wait(PATIENCE_S)

    writer = threading.Thread(target=_load, args=(CommitLog(tmp_path, checkpoint=pause), FIRST))
    writer.start()
    assert applying.wait(PATIENCE_S)
    reader = threading.Thread(target=open_store(tmp_path).finish_commit)
    reader.start()
    reader.join(0.3)
    assert reader.is_alive()
    released.set()
    reader.join(PATIENCE_S)
    writer.join(PATIENCE_S)
    assert _visible(tmp_path) == FIRST


def test_unwritable_commit_folder_raises_table_error(tmp_path: Path) -> None:
    (tmp_path / "_barnabas").write_text("a file where a folder should be")
    with pytest.raises(TableError, match=r"_barnabas"), plain_os_errors(tmp_path), CommitLog(tmp_path).locked():
        pass
