"""Tables in Delta's format: what other readers see, stopped at every step of a commit."""

import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from support.tables import Rows, commit_rows

from barnabas.pipeline.load import load
from barnabas.pipeline.tables.delta import DeltaLakeTable
from barnabas.pipeline.tables.delta_log import DeltaLog
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.lock import TableLocked
from barnabas.pipeline.tables.state import Commit, Range, TableChange, TableError, TopicState
from barnabas.pipeline.tables.store import Checkpoint, no_checkpoint
from barnabas.pipeline.tables.upkeep.maintenance import convert_table
from barnabas.ports.errors import ConfigError

DAY = datetime(2026, 11, 22, tzinfo=UTC)
Offsets = Counter[tuple[str, int, int]]


class PowerCut(BaseException):
    """Stops the protocol, as a killed process would: nothing after it runs."""


def rows(offsets: Sequence[int], *, days: int = 0, partition: int = 0) -> pa.Table:
    times = [DAY + timedelta(days=days, milliseconds=offset) for offset in offsets]
    nothing = pa.nulls(len(offsets), pa.int32())
    return pa.table(
        {
            "key": pa.array([b"k"] * len(offsets), pa.binary()),
            "value": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "broker": nothing,
        }
    )


def add(
    folder: Path,
    start: int,
    end: int,
    *,
    topic: str = "t",
    removed: Sequence[str] = (),
    checkpoint: Checkpoint = no_checkpoint,
) -> Commit:
    """Load two files of two days: the even offsets, and the odd ones."""
    store = open_store(folder, checkpoint=checkpoint)
    with store.locked():
        store.recover()
        last = store.last()
        staging = store.begin_commit()
        for days in (0, 1):
            place = staging.folder / f"topic={topic}" / f"day={(DAY + timedelta(days=days)).date()}"
            place.mkdir(parents=True)
            pq.write_table(rows(range(start + days, end, 2), days=days), place / f"part-{days}.parquet")
        topics = {} if last is None else dict(last.topics)
        topics[topic] = TopicState(topic_id="id", next_offsets={"0": end})
        change = TableChange(
            topics=topics,
            ranges=[Range(topic=topic, partition=0, start=start, end=end)],
            rows=end - start,
            files=staging.name_files(),
            removed=removed,
        )
        return store.commit(staging, change)


def seen(folder: Path) -> Offsets:
    """By delta-rs itself."""
    found = DeltaTable(folder).to_pyarrow_dataset().to_table(columns=["topic", "partition", "offset"]).to_pylist()
    return Counter((row["topic"], row["partition"], row["offset"]) for row in found)


def expected(end: int, start: int = 0, topic: str = "t") -> Offsets:
    return Counter((topic, 0, offset) for offset in range(start, end))


def test_a_load_is_a_version_with_its_offsets(tmp_path: Path) -> None:
    assert add(tmp_path, 0, 10).number == 0
    second = add(tmp_path, 10, 16)
    assert second.number == 1
    table = DeltaTable(tmp_path)
    assert table.version() == 1
    assert table.transaction_version("barnabas/t/0") == 16
    assert table.metadata().partition_columns == ["topic", "day"]
    store = open_store(tmp_path)
    last = store.last()
    assert last is not None
    assert (last.number, last.topics["t"], last.rows) == (1, TopicState(topic_id="id", next_offsets={"0": 16}), 6)
    assert sorted(last.files) == sorted(second.files)
    assert [commit.number for commit in store.history()] == [1, 0]
    found = [(file.rows, file.partition["day"]) for file in store.files()]
    assert Counter(found) == Counter((rows, day) for rows in (5, 3) for day in ("2026-11-22", "2026-11-23"))


def test_delta_table_is_readable_by_deltalake_polars_and_duckdb(tmp_path: Path) -> None:
    import duckdb
    import polars

    add(tmp_path, 0, 10)
    add(tmp_path, 10, 20, removed=[open_store(tmp_path).files()[0].name])
    left = expected(20) - Counter({("t", 0, offset): 1 for offset in range(0, 10, 2)})
    assert seen(tmp_path) == left
    frame = DeltaTable(tmp_path).to_pandas(columns=["offset", "day"])
    assert sorted(frame["offset"]) == sorted(offset for _, _, offset in left)
    lazy = polars.scan_delta(tmp_path).filter(polars.col("day") == date(2026, 11, 23)).select("offset")
    assert sorted(lazy.collect()["offset"]) == list(range(1, 20, 2))
    with duckdb.connect() as connection:
        connection.register("events", DeltaTable(tmp_path).to_pyarrow_dataset())
        newest = "select max(epoch_ms(timestamp)), count(*) from events where topic = 't' and \"offset\" >= 10"
        found = connection.execute(newest).fetchall()
    assert found == [(int((DAY + timedelta(days=1)).timestamp() * 1000) + 19, 10)]


def test_files_have_statistics_that_let_readers_skip_them(tmp_path: Path) -> None:
    add(tmp_path, 0, 10)
    first, _ = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()
    assert (first["num_records"], first["min.offset"], first["max.offset"]) == (5, 0, 8)
    assert (first["min.timestamp"], first["max.timestamp"]) == (DAY, DAY + timedelta(milliseconds=8))


@pytest.mark.slow
def test_stopped_at_any_step_readers_see_a_version_or_the_next(tmp_path: Path) -> None:
    counted: list[str] = []
    add(tmp_path / "count", 0, 10)
    gone = open_store(tmp_path / "count").files()[0].name
    after = expected(20) - Counter({("t", 0, offset): 1 for offset in range(0, 10, 2)})
    add(tmp_path / "count", 10, 20, removed=[gone], checkpoint=counted.append)
    assert seen(tmp_path / "count") == after
    assert len(counted) >= 9
    outcomes = []
    for stop_at, step in enumerate(counted):
        folder = tmp_path / str(stop_at)
        add(folder, 0, 10)
        first = open_store(folder).files()[0].name
        left = [stop_at]

        def stop(_step: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise PowerCut

        with pytest.raises(PowerCut):
            add(folder, 10, 20, removed=[first], checkpoint=stop)
        done = DeltaTable(folder).version() == 1
        outcomes.append(done)
        assert seen(folder) == (after if done else expected(10)), step
        store = open_store(folder)
        with store.locked():
            store.recover()
        last = store.last()
        assert last is not None
        assert last.topics["t"].next_offsets == {"0": 20 if done else 10}
        assert seen(folder) == (after if done else expected(10)), step
        there = {path.relative_to(folder).as_posix() for path in folder.rglob("part-*.parquet")}
        assert there == {file.name for file in store.files()} | ({first} if done else set()), "nothing is left over"
        assert not list((folder / "_barnabas" / "staging").iterdir())
        if not done:
            add(folder, 10, 20, removed=[first])
        assert seen(folder) == after
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


def test_stopped_at_the_first_load(tmp_path: Path) -> None:
    def stop(step: str) -> None:
        if step == "commit version":
            raise PowerCut

    with pytest.raises(PowerCut):
        add(tmp_path, 0, 10, checkpoint=stop)
    assert not open_store(tmp_path).exists()
    add(tmp_path, 0, 10)
    assert seen(tmp_path) == expected(10)
    assert len(list(tmp_path.rglob("part-*.parquet"))) == 2


def test_slower_of_two_commits_changes_nothing(tmp_path: Path) -> None:
    """The file systems of some machines have no common locks."""
    add(tmp_path, 0, 10)
    slow = DeltaLakeTable(tmp_path)
    staging = slow.begin_commit()
    place = staging.folder / "topic=t/day=2026-11-22"
    place.mkdir(parents=True)
    pq.write_table(rows(range(10, 30)), place / "part-0.parquet")
    moved = staging.folder.rename(tmp_path / "kept")  # the lock of another machine is none: so is its recovery
    add(tmp_path, 10, 20)
    moved.rename(staging.folder)
    change = TableChange(topics={"t": TopicState(next_offsets={"0": 30})}, files=staging.name_files())
    with pytest.raises(TableError, match="changed by another program"):
        slow.commit(staging, change)
    assert seen(tmp_path) == expected(20)
    add(tmp_path, 20, 30)
    assert seen(tmp_path) == expected(30)
    assert not any(staging.folder.name in path.name for path in tmp_path.rglob("part-*.parquet"))


def test_new_columns_widen_the_table(tmp_path: Path) -> None:
    add(tmp_path, 0, 10)
    typed = pa.array([{"country": "de"}], pa.struct([("country", pa.string())]))
    _add_file(tmp_path, rows([10]).append_column("decoded", typed))
    assert seen(tmp_path) == expected(11)
    table = DeltaTable(tmp_path).to_pyarrow_table(columns=["offset", "decoded"]).sort_by("offset").to_pylist()
    assert (table[9]["decoded"], table[10]["decoded"]) == (None, {"country": "de"})
    wider = pa.array([{"country": "de", "n": 1}], pa.struct([("country", pa.string()), ("n", pa.int64())]))
    _add_file(tmp_path, rows([11]).append_column("decoded", wider))
    _add_file(tmp_path, rows([12]).append_column("decoded", typed))
    assert seen(tmp_path) == expected(13)
    with pytest.raises(TableError, match="do not go with the table's"):
        _add_file(tmp_path, rows([13]).append_column("decoded", pa.array([3])))
    assert seen(tmp_path) == expected(13)


def test_every_version_of_a_load_that_widens_the_table_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, 0, 10)
    synced: list[int] = []
    real = DeltaLog.sync

    def sync(log: DeltaLog, number: int) -> None:
        synced.append(number)
        real(log, number)

    monkeypatch.setattr(DeltaLog, "sync", sync)
    _add_file(tmp_path, rows([10]).append_column("more", pa.array([1])))
    assert synced == [1, 2] == [DeltaTable(tmp_path).version() - 1, DeltaTable(tmp_path).version()]


def _add_file(folder: Path, content: pa.Table) -> None:
    store = open_store(folder)
    with store.locked():
        store.recover()
        staging, last = store.begin_commit(), store.last()
        place = staging.folder / "topic=t/day=2026-11-22"
        place.mkdir(parents=True)
        pq.write_table(content, place / "part-0.parquet")
        assert last is not None
        store.commit(staging, TableChange(topics=last.topics, rows=1, files=staging.name_files()))


def test_two_at_once_on_a_machine(tmp_path: Path) -> None:
    with open_store(tmp_path).locked(), pytest.raises(TableLocked, match="is being changed by process"):
        add(tmp_path, 0, 10)


def test_other_tools_may_change_the_table_too(tmp_path: Path) -> None:
    for part in range(4):
        add(tmp_path, 10 * part, 10 * part + 10)
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    table.create_checkpoint()
    assert table.version() == 4
    store = open_store(tmp_path)
    assert [commit.operation for commit in store.history()][:2] == ["optimize", "load"]
    assert {file.rows for file in store.files()} == {20}
    assert add(tmp_path, 40, 50).number == 5
    assert seen(tmp_path) == expected(50)


def test_another_tool_may_compact_during_a_load(tmp_path: Path) -> None:
    for part in range(3):
        add(tmp_path, 10 * part, 10 * part + 10)

    def compact(step: str) -> None:
        if step == "note places":
            DeltaTable(tmp_path).optimize.compact()

    assert add(tmp_path, 30, 40, checkpoint=compact).number == 4
    assert seen(tmp_path) == expected(40)
    removed = open_store(tmp_path).files()[0].name
    with pytest.raises(TableError, match="was removed from the table by another program meanwhile"):
        add(tmp_path, 40, 50, removed=[removed], checkpoint=compact)
    assert seen(tmp_path) == expected(40)


def test_a_log_that_was_cleaned_up_leaves_a_copy_of_the_state(tmp_path: Path) -> None:
    add(tmp_path, 0, 10)
    add(tmp_path, 10, 20)
    DeltaTable(tmp_path).optimize.compact(commit_properties=CommitProperties(custom_metadata={"by": "another"}))
    write_deltalake(tmp_path, DeltaTable(tmp_path).to_pyarrow_table().slice(0, 0), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    newest = DeltaTable(tmp_path).version()
    for version in range(newest):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    last = open_store(tmp_path).last()
    assert last is not None
    assert last.topics["t"].next_offsets == {"0": 20}
    add(tmp_path, 20, 30)
    assert seen(tmp_path) == expected(30)


def test_a_version_that_a_power_cut_left_empty_never_was(tmp_path: Path) -> None:
    add(tmp_path, 0, 10)
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text("")
    add(tmp_path, 10, 20)
    assert seen(tmp_path) == expected(20)


def test_a_table_of_others_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"a": [1]}))
    with pytest.raises(TableError, match="a Delta table that no load made"):
        add(tmp_path, 0, 10)


def test_damaged_delta_log_raises_table_error(tmp_path: Path) -> None:
    add(tmp_path, 0, 10)
    path = tmp_path / "_delta_log" / f"{0:020d}.json"
    info, *others = path.read_text().splitlines()
    broken = json.loads(info)
    broken["commitInfo"]["barnabas"] = '{"topics": 3}'
    path.write_text("\n".join([json.dumps(broken), *others]))
    with pytest.raises(TableError, match="version 0 of the Delta log is damaged"):
        open_store(tmp_path).last()


def test_a_parquet_table_is_converted_as_it_is(tmp_path: Path) -> None:
    commit_rows(open_store(tmp_path, "parquet"), Rows("t", "2026-11-22", range(10)))
    for stop_at in ("commit version", "sync version"):

        def stop(step: str, stop_at: str = stop_at) -> None:
            if step == stop_at:
                raise PowerCut

        with pytest.raises(PowerCut):
            convert_table(tmp_path, "delta", checkpoint=stop)
        assert open_store(tmp_path).format == ("parquet" if stop_at == "commit version" else "delta")
    assert seen(tmp_path) == expected(10)
    last = open_store(tmp_path).last()
    assert last is not None
    assert (last.operation, last.topics["t"].next_offsets) == ("convert", {"0": 10})
    add(tmp_path, 10, 20)
    assert seen(tmp_path) == expected(20)
    assert DeltaTable(tmp_path).transaction_version("barnabas/t/0") == 20
    with pytest.raises(ConfigError, match="is a table in format delta; only one in parquet is converted"):
        convert_table(tmp_path, "delta")


def test_only_a_table_is_converted(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="is not a loaded table"):
        convert_table(tmp_path, "delta")
    with pytest.raises(ConfigError, match="converted to delta or iceberg, not to 'orc'"):
        convert_table(tmp_path, "orc")


def test_missing_file_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "deltalake" else find(name))
    with pytest.raises(ConfigError, match=r"\(or take --format parquet\): deltalake not installed; .*tables"):
        load("127.0.0.1:1", ["t"], tmp_path)
    with pytest.raises(TableError, match="not a loaded table"):
        open_store(tmp_path).finish_commit()
    assert open_store(tmp_path, "parquet").format == "parquet"


def test_a_table_keeps_its_format(tmp_path: Path) -> None:
    assert open_store(tmp_path).format == "delta"
    assert open_store(tmp_path, "parquet").format == "parquet"
    add(tmp_path, 0, 10)
    assert open_store(tmp_path, "delta").format == "delta"
    with pytest.raises(ConfigError, match=r"format delta, not parquet; leave the format out"):
        open_store(tmp_path, "parquet")
    with pytest.raises(ConfigError, match=r"one of delta, iceberg, parquet, not 'csv'"):
        open_store(tmp_path, "csv")
