"""The distribution of rows to folders; small files of one folder are merged."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.pipeline.tables.layout import Layout, agreed_layout
from barnabas.pipeline.tables.state import gather_small_files
from barnabas.ports.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("day", {"day": "date"}),
        ("hour", {"day": "date", "hour": "int"}),
        ("month, field:country", {"month": "date", "country": "string"}),
        ("field:user.country", {"user_country": "string"}),
        ("field:Topic", {"field_Topic": "string"}),
        ("header:region,key-hash:16", {"region": "string", "key_hash": "int"}),
        ("key", {"key_text": "string"}),
        ("none", {}),
    ],
)
def test_layout_text_determines_partition_columns(text: str, columns: dict[str, str]) -> None:
    layout = Layout.parse(text)
    assert layout.types == {"topic": "string", **columns}
    assert str(layout) == text.replace(", ", ",")


@pytest.mark.parametrize(
    "text",
    ["", "year", "day:1", "field", "field:", "key-hash", "key-hash:0", "day,hour", "field:a,header:a", "none,day"],
)
def test_invalid_layout_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="known: hour, day, month"):
        Layout.parse(text)


def test_a_table_keeps_its_layout() -> None:
    assert str(agreed_layout(None, None)) == "day"
    assert str(agreed_layout(None, "hour")) == "hour"
    assert str(agreed_layout("hour", None)) == "hour"
    assert str(agreed_layout("hour", "hour")) == "hour"
    with pytest.raises(ConfigError, match="partitioned by hour, not by day"):
        agreed_layout("hour", "day")


def test_small_files_of_a_folder_become_one(tmp_path: Path) -> None:
    paths = []
    for folder in ("day=1", "day=2"):
        (tmp_path / folder).mkdir()
        for part in range(3):
            paths.append(tmp_path / folder / f"part-{part}.parquet")
            pq.write_table(pa.table({"offset": range(100 * part, 100 * part + 100)}), paths[-1])
    large = tmp_path / "day=2" / "part-large.parquet"
    pq.write_table(pa.table({"offset": range(50_000)}), large)
    small_bytes = large.stat().st_size
    gather_small_files([*paths, large], small_bytes=small_bytes)
    there = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    assert there == ["day=1/part-0.parquet", "day=2/part-0.parquet", "day=2/part-large.parquet"]
    for folder in ("day=1", "day=2"):
        assert pq.read_table(tmp_path / folder / "part-0.parquet")["offset"].to_pylist() == list(range(300))
