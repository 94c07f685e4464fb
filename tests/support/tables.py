"""Small tables without Spark: commits whose files look like Spark's, and what readers that are not ours find."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen
from support.long_tests import first_is_quick

from barnabas.pipeline.tables.formats import FORMATS
from barnabas.pipeline.tables.iceberg.store import ICEBERG
from barnabas.pipeline.tables.state import Commit, TableChange, TopicState
from barnabas.pipeline.tables.store import TableStore

QUICK_FORMATS_FIRST = first_is_quick(sorted(FORMATS, key=lambda each: each == ICEBERG), 2)
"""Parameters of a test: a commit to Iceberg takes three times the CPU of the other formats, so it is slow."""

Seen = Counter[tuple[str, int, int]]
"""The number of times that each (topic, partition, offset) is present."""

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("broker", pa.int32()),
        ("wrapperIndex", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@frozen
class Rows:
    """Offsets of a partition, one each second of a day."""

    topic: str
    day: str
    offsets: Iterable[int]
    partition: int = 0

    @property
    def seen(self) -> Seen:
        return Counter((self.topic, self.partition, offset) for offset in self.offsets)


def write_rows(folder: Path, rows: Rows, number: int) -> None:
    """Write rows as a Spark task does: the columns of the folders are not in the file."""
    offsets = list(rows.offsets)
    begin = datetime.fromisoformat(rows.day).replace(tzinfo=UTC).timestamp()
    columns = {
        "key": [b"k%d" % offset for offset in offsets],
        "value": [b"v" * 20] * len(offsets),
        "partition": [rows.partition] * len(offsets),
        "offset": offsets,
        "timestamp": [datetime.fromtimestamp(begin + at, UTC) for at in range(len(offsets))],
        "timestampType": [0] * len(offsets),
        "broker": [None] * len(offsets),
        "wrapperIndex": [None] * len(offsets),
        "headers": [[{"key": "h", "value": b"1"}]] * len(offsets),
    }
    path = folder / f"topic={quote(rows.topic, safe=' ')}" / f"day={rows.day}" / f"part-{number:05d}-spark.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns, schema=COLUMNS), path, compression="zstd")


def commit_rows(store: TableStore, *several: Rows, removed: Sequence[str] = (), topic_id: str = "id") -> Commit:
    """Load these rows, by the store's protocol."""
    with store.locked():
        store.recover()
        last = store.last()
        offsets = {name: dict(topic.next_offsets) for name, topic in last.topics.items()} if last else {}
        for rows in several:
            there = offsets.setdefault(rows.topic, {})
            there[str(rows.partition)] = max(there.get(str(rows.partition), 0), *(each + 1 for each in rows.offsets))
        staging = store.begin_commit()
        for number, rows in enumerate(several):
            write_rows(staging.folder, rows, number)
        topics = {name: TopicState(topic_id=topic_id, next_offsets=there) for name, there in offsets.items()}
        rows_added = sum(each.seen.total() for each in several)
        change = TableChange(topics=topics, rows=rows_added, files=staging.name_files(), removed=removed)
        return store.commit(staging, change)


def read_foreign(folder: Path) -> pa.Table:
    """Read the newest version by the library of its format alone; a Parquet folder without files has no columns."""
    columns = ["topic", "partition", "offset"]
    if (folder / "_barnabas" / "iceberg.json").exists():
        from pyiceberg.catalog.sql import SqlCatalog

        uri = f"sqlite:///{folder.absolute()}/_barnabas/catalog.db"
        catalog = SqlCatalog("barnabas", uri=uri, init_catalog_tables="false")
        try:
            (name,) = catalog.list_tables("barnabas")
            return catalog.load_table(name).scan(selected_fields=tuple(columns)).to_arrow()
        finally:
            catalog.close()
    if (folder / "_delta_log").is_dir():
        from deltalake import DeltaTable

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return DeltaTable(str(folder)).to_pyarrow_table(columns=columns)
    import pyarrow.dataset as ds  # imports pandas

    found = ds.dataset(folder, format="parquet", partitioning="hive")
    return found.to_table(columns=columns if found.files else [])


def seen(table: pa.Table) -> Seen:
    names = ("topic", "partition", "offset") if table.num_columns else ()
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))
