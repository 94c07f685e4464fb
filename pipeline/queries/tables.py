"""Tables that `load` has filled, for a query: the files of their newest version, read by DuckDB."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import frozen

from ..tables.formats import open_store
from .bounds import Window
from .topics import quoted


@frozen
class LoadedTopic:
    """A topic's rows in a loaded table: a FROM clause, its columns with their types, and those that are UTF-8."""

    source: str
    types: Mapping[str, str]
    text: frozenset[str]


def files_by_topic(folder: Path) -> dict[str, list[str]]:
    """Return the files of each topic. Raises `TableError` when nothing was ever loaded there."""
    store = open_store(folder)
    store.finish_commit()
    found: dict[str, list[str]] = defaultdict(list)
    for file in store.files():
        found[file.partition.get("topic") or ""].append(str(store.folder / file.name))
    return dict(found)


def loaded_topic(connection: Any, files: Sequence[str], window: Window, contents: Sequence[str]) -> LoadedTopic:
    """Return the rows within the window. `contents`: which of key and value are wanted, and so looked at."""
    listed = ", ".join(map(text_literal, files))
    source = f"read_parquet([{listed}], union_by_name = true, hive_types = {{'topic': varchar}})"
    types = dict(connection.execute(f"select column_name, column_type from (describe from {source})").fetchall())
    conditions = [
        f"timestamp {comparison} timestamptz '{datetime.fromtimestamp(ms / 1000, UTC).isoformat()}'"
        for comparison, ms in ((">=", window.since_ms), ("<", window.until_ms))
        if ms is not None
    ]
    if conditions:
        source = f"(select * from {source} where {' and '.join(conditions)})"
    blobs = [name for name in contents if types.get(name) == "BLOB"]
    text = set()
    if blobs:
        odd_ones = [f"{quoted(name)} is not null and try(decode({quoted(name)})) is null" for name in blobs]
        checks = ", ".join(f"count(*) filter ({condition})" for condition in odd_ones)
        odd = connection.execute(f"select {checks} from {source}").fetchall()[0]
        text = {name for name, count in zip(blobs, odd, strict=True) if not count}
    return LoadedTopic(source, types, frozenset(text))


def text_literal(text: str) -> str:
    """Return a text as SQL takes it."""
    return "'" + text.replace("'", "''") + "'"
