"""Results of a stream in a table, without Spark."""

from pathlib import Path
from typing import cast

import pyarrow as pa
from attrs import frozen
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from barnabas.pipeline.streams import table_batches


@frozen
class _Rows:
    """The methods of a data frame that are used here."""

    table: pa.Table

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def dropDuplicates(self, _keys: list[str]) -> "_Rows":
        return self

    def toArrow(self) -> pa.Table:
        return self.table


def test_a_row_takes_the_place_of_the_one_with_the_same_key_which_may_be_null(tmp_path: Path) -> None:
    write = table_batches(tmp_path, "key")
    for batch in range(3):
        rows = pa.table({"key": pa.array([None, "a"], pa.string()), "count": [batch, 10 + batch]})
        write(cast("DataFrame", _Rows(rows)), batch)
    found = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert {row["key"]: row["count"] for row in found} == {None: 2, "a": 12}
    assert len(found) == 2
