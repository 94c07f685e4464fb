"""The columns of a table grow with the files of its commits, in each format; and types that Parquet can keep."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, NullType, StringType, StructField, StructType
from support.tables import QUICK_FORMATS_FIRST

from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.state import TableChange, TableError, TopicState
from barnabas.pipeline.tables.store import TableStore
from barnabas.pipeline.tables.typed import merged, storable
from barnabas.pipeline.tables.upkeep.maintenance import compact

NARROW = pa.struct([("x", pa.int64()), ("items", pa.list_(pa.struct([("p", pa.int32())])))])
WIDE = pa.struct([("x", pa.int64()), ("items", pa.list_(pa.struct([("p", pa.int32()), ("q", pa.string())])))])


def _commit(store: TableStore, offset: int, kind: pa.DataType | None, day: str = "2024-01-01") -> None:
    with store.locked():
        store.recover()
        staging = store.begin_commit()
        if kind is not None:
            folder = staging.folder / "topic=t" / f"day={day}"
            folder.mkdir(parents=True)
            rows = pa.table({"value": pa.array([{"x": offset}], kind), "offset": [offset]})
            pq.write_table(rows, folder / "part-0.parquet")
        topics = {"t": TopicState(next_offsets={"0": offset + 1})}
        store.commit(staging, TableChange(topics=topics, files=staging.name_files()))


@pytest.mark.parametrize("named", QUICK_FORMATS_FIRST)
def test_columns_grow_within_columns(tmp_path: Path, named: str) -> None:
    store = open_store(tmp_path, named)
    for offset, kind in enumerate([NARROW, None, WIDE, None]):
        _commit(store, offset, kind)
        value = open_store(tmp_path).columns().field("value").type
        inner = value.field("items").type.value_type
        assert [field.name for field in inner] == (["p"] if offset < 2 else ["p", "q"])


@pytest.mark.parametrize("named", QUICK_FORMATS_FIRST)
def test_compaction_keeps_the_columns(tmp_path: Path, named: str) -> None:
    store = open_store(tmp_path, named)
    for offset, (kind, day) in enumerate([(NARROW, "2024-01-01"), (WIDE, "2024-01-02")] * 2):
        _commit(store, offset, kind, day)
    with store.locked():
        compact(store)
    assert len(store.files()) == 2
    inner = open_store(tmp_path).columns().field("value").type.field("items").type.value_type
    assert [field.name for field in inner] == ["p", "q"]


def _struct(**fields: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])  # type: ignore[arg-type]


def test_types_that_have_the_fields_of_both() -> None:
    one = _struct(a=LongType(), items=ArrayType(_struct(x=IntegerType())), m=MapType(StringType(), _struct()))
    other = _struct(
        b=StringType(), items=ArrayType(_struct(y=IntegerType())), m=MapType(StringType(), _struct(z=LongType()))
    )
    assert merged(one, other, "value") == _struct(
        a=LongType(),
        items=ArrayType(_struct(x=IntegerType(), y=IntegerType())),
        m=MapType(StringType(), _struct(z=LongType())),
        b=StringType(),
    )
    with pytest.raises(TableError, match=r"value.items\[\].x is int in the table and string in the schema now"):
        merged(one, _struct(items=ArrayType(_struct(x=StringType()))), "value")
    assert storable(_struct(void=NullType(), a=ArrayType(NullType()))) == _struct(
        void=StringType(), a=ArrayType(StringType())
    )
