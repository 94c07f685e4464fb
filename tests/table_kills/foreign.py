"""Versions of a table as libraries of others read them: the rows, and the offsets that came with them."""

import json
from collections.abc import Callable
from pathlib import Path

from support.tables import seen
from table_kills.verdict import Offsets, Seen

Version = tuple[Seen, Offsets]


def read_delta(folder: Path, topics: dict[str, int]) -> Version:
    from deltalake import DeltaTable

    table = DeltaTable(str(folder))
    rows = table.to_pyarrow_dataset().to_table(columns=["topic", "partition", "offset"])
    places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
    versions = {(topic, p): table.transaction_version(f"barnabas/{topic}/{p}") for topic, p in places}
    return seen(rows), {place: version for place, version in versions.items() if version is not None}


def read_iceberg(folder: Path, _topics: dict[str, int]) -> Version:
    from pyiceberg.catalog.sql import SqlCatalog

    uri = f"sqlite:///{folder.absolute()}/_barnabas/catalog.db"
    catalog = SqlCatalog("barnabas", uri=uri, init_catalog_tables="false")
    try:
        (name,) = catalog.list_tables("barnabas")
        table = catalog.load_table(name)
    finally:
        catalog.close()
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return Seen(), {}
    state = json.loads(str(snapshot.summary["barnabas.commit"]))
    rows = table.scan(snapshot_id=snapshot.snapshot_id, selected_fields=("topic", "partition", "offset")).to_arrow()
    return seen(rows), {
        (topic, int(partition)): end
        for topic, each in state["topics"].items()
        for partition, end in each["next_offsets"].items()
    }


def read_parquet(folder: Path, _topics: dict[str, int]) -> Version:
    """By its readers' rule: while no change is under way."""
    commits = sorted((folder / "_barnabas" / "commits").glob("*.json"))
    state = json.loads(commits[-1].read_text())
    import pyarrow.dataset as ds  # imports pandas

    found = ds.dataset(folder, format="parquet", partitioning="hive")
    rows = found.to_table(columns=["topic", "partition", "offset"] if found.files else [])
    return seen(rows), {
        (topic, int(partition)): end
        for topic, each in state["topics"].items()
        for partition, end in each["next_offsets"].items()
    }


READERS: dict[str, Callable[[Path, dict[str, int]], Version]] = {
    "delta": read_delta,
    "iceberg": read_iceberg,
    "parquet": read_parquet,
}
AT_ANY_TIME = ("delta", "iceberg")
"""Formats whose readers see whole versions while one is being made."""
