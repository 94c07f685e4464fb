"""Tests of Iceberg alone: its readers, its catalogs, other writers, folders that are moved."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.long_tests import first_is_quick
from support.tables import Rows, Seen, commit_rows, read_foreign, seen, write_rows

from barnabas.adapters.system import SeededEntropy
from barnabas.app.cli.main import main
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.iceberg.catalog import CatalogEntry, find_entry, store_entry, stored_entry
from barnabas.pipeline.tables.iceberg.store import IcebergTable
from barnabas.pipeline.tables.parquet import PARQUET
from barnabas.pipeline.tables.state import TableChange, TableError, TopicState
from barnabas.pipeline.tables.upkeep.maintenance import compact, convert_table, delete_before
from barnabas.ports.errors import ConfigError
from barnabas.testing.crashes import Recording, crashes

ICEBERG = "iceberg"
ROWS = (Rows("a", "2024-01-01", range(5)), Rows("a b/c=%", "2024-01-02", range(5, 8)))
THERE = sum((each.seen for each in ROWS), Seen())


def _iceberg(folder: Path) -> IcebergTable:
    return IcebergTable(folder, find_entry(folder))


def test_readers_of_others(tmp_path: Path) -> None:
    import polars as pl

    folder = tmp_path / "we ird=50%"
    commit_rows(open_store(folder, ICEBERG), *ROWS)
    with _iceberg(folder).table() as table:
        frame = table.scan(row_filter="topic = 'a b/c=%' and day = '2024-01-02' and offset >= 6").to_pandas()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
            lazy = pl.scan_iceberg(table).filter(pl.col("topic") == "a").select("offset", "day")
            polared = lazy.collect().rows()
        duck = table.scan().to_duckdb("rows")
        counted = duck.sql("select topic, day, count(*) from rows group by all order by 1").fetchall()
        duck.close()
    assert frame["offset"].tolist() == [6, 7]
    assert frame["headers"][0][0] == {"key": "h", "value": b"1"}
    assert {(at, str(day)) for at, day in polared} == {(at, "2024-01-01") for at in range(5)}
    assert [(topic, str(day), count) for topic, day, count in counted] == [
        ("a", "2024-01-01", 5),
        ("a b/c=%", "2024-01-02", 3),
    ]


def test_a_moved_folder_says_so(tmp_path: Path) -> None:
    commit_rows(open_store(tmp_path / "here", ICEBERG), *ROWS)
    shutil.move(tmp_path / "here", tmp_path / "there")
    with pytest.raises(TableError, match=r"a table cannot be moved to .*there: put the folder back"):
        open_store(tmp_path / "there").last()
    (tmp_path / "here").symlink_to("there")
    assert open_store(tmp_path / "here").exists()


def test_two_writers_that_do_not_share_a_lock(tmp_path: Path) -> None:
    commit_rows(open_store(tmp_path, ICEBERG), *ROWS)
    one, other = _iceberg(tmp_path), _iceberg(tmp_path)
    first, second = one.begin_commit(), other.begin_commit()
    for number, staging in enumerate((first, second)):
        write_rows(staging.folder, Rows("a", "2024-01-03", range(5, 9)), number)
    change = TableChange(topics={"a": TopicState(next_offsets={"0": 9})}, rows=4)
    one.commit(first, _with(change, first.name_files()))
    with pytest.raises(TableError, match="was changed meanwhile; nothing is committed"):
        other.commit(second, _with(change, second.name_files()))
    with other.locked():
        other.recover()
    assert seen(read_foreign(tmp_path)) == THERE + Rows("a", "", range(5, 9)).seen
    assert len(list(tmp_path.glob("topic=a/day=2024-01-03/*"))) == 1


def test_a_writer_between_our_look_and_our_commit_is_not_overruled(tmp_path: Path) -> None:
    commit_rows(open_store(tmp_path, ICEBERG), *ROWS)

    def intrude(step: str) -> None:
        if step == "commit":
            with _iceberg(tmp_path).table() as table:
                table.delete("topic = 'a'")

    store = open_store(tmp_path, checkpoint=intrude)
    with pytest.raises(TableError, match="another program has changed it meanwhile; nothing is committed"):
        commit_rows(store, Rows("a", "2024-01-03", range(5, 9)))
    assert seen(read_foreign(tmp_path)) == ROWS[1].seen


@pytest.mark.parametrize("elsewhere", first_is_quick([False, True]))
def test_foreign_changes_of_a_table_are_retained(tmp_path: Path, elsewhere: bool) -> None:
    store = _iceberg(tmp_path)
    commit_rows(store, *ROWS)
    with store.table() as table:
        if elsewhere:
            table.transaction().set_properties({"write.data.path": str(tmp_path / "data")}).commit_transaction()
            table.refresh()
        table.delete("offset = 3 or offset = 6")
        other = table.scan(row_filter="offset = 7").to_arrow()
        assert len(other) == 1
        table.append(other.set_column(other.column_names.index("offset"), "offset", pa.array([100])))
    left = Rows("a", "", (0, 1, 2, 4)).seen + Rows("a b/c=%", "", (5, 7, 100)).seen
    assert seen(read_foreign(tmp_path)) == left
    with store.locked():
        assert compact(store).files_before == 2
        assert seen(read_foreign(tmp_path)) == left
        assert delete_before(store, 1_704_153_600_000).rows == 4
    assert seen(read_foreign(tmp_path)) == Rows("a b/c=%", "", (5, 7, 100)).seen
    assert (tmp_path / "data").is_dir() == elsewhere
    last = store.last()
    assert last is not None
    assert last.topics["a"].next_offsets == {"0": 5}


def _with(change: TableChange, files: list[str]) -> TableChange:
    return TableChange(topics=change.topics, rows=change.rows, files=files)


def test_the_state_goes_back_with_the_rows(tmp_path: Path) -> None:
    store = _iceberg(tmp_path)
    commit_rows(store, *ROWS)
    with store.table() as table:
        first = table.current_snapshot()
        assert first is not None
        commit_rows(store, Rows("a", "2024-01-03", range(5, 9)))
        table.refresh()
        table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    last = store.last()
    assert last is not None
    assert (last.number, last.topics["a"].next_offsets) == (1, {"0": 5})
    commit_rows(store, Rows("a", "2024-01-03", range(5, 12)))
    assert seen(read_foreign(tmp_path)) == THERE + Rows("a", "", range(5, 12)).seen


def test_a_rest_catalog(tmp_path: Path) -> None:
    from support.iceberg_rest import rest_catalog  # imports SQLAlchemy

    folder = tmp_path / "table"
    with rest_catalog(tmp_path) as uri:
        store = open_store(folder, ICEBERG, catalog=uri, table="shared.events")
        commit_rows(store, *ROWS)
        commit_rows(open_store(folder), Rows("a", "2024-01-03", range(5, 9)))
        again = open_store(folder)
        assert [each.number for each in again.history()] == [2, 1]
        assert sum(file.rows for file in again.files()) == THERE.total() + 4
        with pytest.raises(
            ConfigError, match=r"is table shared\.events of http.*; a table has one entry in one catalog"
        ):
            open_store(folder, ICEBERG, table="shared.others")
        with pytest.raises(TableError, match=r"shared\.events is the table in .*table\. "):
            open_store(tmp_path / "other", ICEBERG, catalog=uri, table="shared.events").begin_commit()
    with pytest.raises(TableError, match=r"shared\.events: http.* does not answer as it should"):
        open_store(folder).last()


def _commit_typed(folder: Path, day: str, value: pa.StructScalar, offset: int) -> None:
    store = open_store(folder, ICEBERG)
    with store.locked():
        staging = store.begin_commit()
        path = staging.folder / "topic=t" / f"day={day}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"value": pa.array([value]), "partition": [0], "offset": [offset]}), path)
        change = TableChange(
            topics={"t": TopicState(next_offsets={"0": offset + 1})}, files=staging.name_files(), rows=1
        )
        store.commit(staging, change)


def test_columns_that_grow(tmp_path: Path) -> None:
    _commit_typed(tmp_path, "2024-01-01", pa.scalar({"a": 1}), 0)
    _commit_typed(tmp_path, "2024-01-02", pa.scalar({"a": 2, "b": {"c": "x"}}), 1)
    with _iceberg(tmp_path).table() as table:
        rows = table.scan().to_arrow().sort_by("offset")
    assert rows["value"].to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": {"c": "x"}}]
    assert [str(day) for day in rows["day"].to_pylist()] == ["2024-01-01", "2024-01-02"]
    with pytest.raises(TableError, match="columns of other types than the table"):
        _commit_typed(tmp_path, "2024-01-03", pa.scalar({"a": "text"}), 2)
    assert seen(read_foreign(tmp_path)).total() == 2


def test_catalogs_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is none of http"):
        open_store(tmp_path, ICEBERG, catalog="ftp://x", table="a.b")
    with pytest.raises(ConfigError, match=r"is not NAMESPACE\.NAME"):
        open_store(tmp_path, ICEBERG, table="events")
    with pytest.raises(ConfigError, match="a catalog is for tables in format iceberg"):
        open_store(tmp_path, PARQUET, catalog="http://x")


class PowerCut(BaseException):
    """Stops a conversion."""


def test_a_parquet_table_is_converted_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit_rows(open_store(tmp_path, PARQUET), *ROWS)
    files = {path: path.stat().st_ino for path in tmp_path.glob("topic=*/day=*/*.parquet")}
    steps: list[str] = []

    def stop(step: str) -> None:
        if step not in steps:
            steps.append(step)
            raise PowerCut

    for _ in range(5):
        with pytest.raises(PowerCut):
            convert_table(tmp_path, ICEBERG, checkpoint=stop)
        store = open_store(tmp_path)
        assert store.format == PARQUET
        assert seen(read_foreign(tmp_path)) == THERE
        assert sum(file.rows for file in store.files()) == THERE.total()
    assert steps[-1] == "change format"
    with pytest.raises(SystemExit) as ended:
        main(["table", "convert", str(tmp_path), "--to", ICEBERG, "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["format"] == ICEBERG
    assert {path: path.stat().st_ino for path in tmp_path.glob("topic=*/day=*/*.parquet")} == files
    store = open_store(tmp_path)
    last = store.last()
    assert last is not None
    assert (store.format, last.number, last.operation, last.topics["a"].next_offsets) == (
        ICEBERG,
        2,
        "convert",
        {"0": 5},
    )
    assert seen(read_foreign(tmp_path)) == THERE
    commit_rows(store, Rows("a", "2024-01-03", range(5, 9)))
    assert seen(read_foreign(tmp_path)) == THERE + Rows("a", "", range(5, 9)).seen
    with pytest.raises(ConfigError, match="is a table in format iceberg; only one in parquet"):
        convert_table(tmp_path, ICEBERG)


def test_where_a_table_is_registered_survives_a_power_cut(tmp_path: Path) -> None:
    folder, left = tmp_path / "table", tmp_path / "left"
    (folder / "_barnabas").mkdir(parents=True)
    entry = CatalogEntry(catalog="http://localhost:8181", table="a.b")
    with Recording(folder) as recording:
        store_entry(folder, entry)
        recording.note("kept")
    tried = 0
    for crash in crashes(recording.operations, SeededEntropy("place"), first=recording.began):
        crash.left.write_to(left)
        assert stored_entry(left) in ([entry] if "kept" in crash.noted else [entry, None])
        shutil.rmtree(left)
        tried += 1
    assert tried > 3
