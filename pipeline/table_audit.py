"""The table's tier of the audit: which messages the loads have brought, each counted once whatever dies.

The position of the count is the offset up to which a partition's rows are counted, kept as those of a consumer group
and in one transaction with the counts. So it is independent of the table's format, versions and compactions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..app.clients.admin.admin import Admin
from ..app.clients.producer.producer import Producer
from ..app.clients.shared.bootstrap import Bootstrap
from ..audit.counting import MessageCounts
from ..audit.publishing import ensure_topic, wall_ms
from ..audit.reports import BROKER, TOPIC, WINDOW_MS
from ..audit.stamp import HEADER, SEQUENCE_SIZE
from ..audit.tier import TierReportBuilder
from ..ports.broker_api.metadata import TopicMetadata
from ..ports.errors import BarnabasError, ConfigError
from ..ports.types import TopicPartition
from .tables.formats import open_store
from .tables.quarantine import FOLDER as QUARANTINE
from .tables.state import DataFile, no_table
from .tables.store import TableStore

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("partition", "offset", "timestamp", "headers")
_TRANSACTION_MS = 60_000


@contextmanager
def audited_load(audit: "TableAudit | None", print_line: Callable[[str], object]) -> Iterator[None]:
    """Count the rows that the load inside brings. A failure is reported; the next load makes up for it."""
    if audit is None:
        yield
        return
    try:
        audit.read_end_offsets()
    except BarnabasError as error:
        print_line(f"audit: where the topics end cannot be looked up: {error}")
    try:
        yield
    finally:
        try:
            if audit.has_table:  # else the load has said why there is none
                audit.count()
        except BarnabasError as error:
            print_line(f"audit: what is in the table is not counted yet: {error}")


# The audit's stamps in the rows of a table, column by column.


def count_rows(rows: "pa.Table", topic: str, counts: MessageCounts, now_ms: int) -> None:
    """Count rows by their columns `headers` (lists of key and value) and `timestamp`; without one none is stamped."""
    import numpy as np

    stamped = np.zeros(rows.num_rows, dtype=bool)
    if "headers" in rows.column_names:
        for start, column in _chunks(rows["headers"]):
            found, heads, numbers = _stamps(column)
            stamped[start + found] = True
            _count_runs(heads, numbers, topic, counts, now_ms)
    times = rows["timestamp"].cast("int64").to_numpy(zero_copy_only=False)[~stamped]
    unit_ms = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}[rows.schema.field("timestamp").type.unit]
    windows, many = np.unique(np.nan_to_num(times // (unit_ms * counts.width_ms)), return_counts=True)
    for window, count in zip(windows, many, strict=True):
        counts.add_unstamped(topic, int(window) * counts.width_ms, int(count))


def _chunks(column: "pa.ChunkedArray") -> "list[tuple[int, pa.ListArray]]":
    start, found = 0, []
    for chunk in column.chunks:
        found.append((start, chunk))
        start += len(chunk)
    return found


def _stamps(headers: "pa.ListArray") -> tuple[Any, "pa.DictionaryArray", Any]:
    """Return the numbers of the rows that have a stamp; its head, and its sequence."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    flat, rows = headers.flatten(), pc.list_parent_indices(headers)
    keys, values = flat.field(0), flat.field(1)
    long_enough = pc.greater(pc.binary_length(values), SEQUENCE_SIZE)
    chosen = pc.fill_null(pc.and_(pc.equal(keys, HEADER), long_enough), False)
    rows, values = rows.filter(chosen).to_numpy(zero_copy_only=False), values.filter(chosen)
    rows, first = np.unique(rows, return_index=True)  # one stamp a message
    values = values.take(pa.array(first)).cast(pa.large_binary())
    heads = pc.binary_slice(values, 0, -SEQUENCE_SIZE).dictionary_encode()
    ends = pa.concat_arrays([pc.binary_slice(values, -SEQUENCE_SIZE, None)])
    return rows, heads, np.frombuffer(b"".join(ends.to_pylist()), dtype=">u8").astype("uint64")


def _count_runs(heads: "pa.DictionaryArray", numbers: Any, topic: str, counts: MessageCounts, now_ms: int) -> None:
    """Runs of consecutive numbers of one head."""
    import numpy as np

    if not len(numbers):
        return
    which = heads.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((numbers, which))
    which, numbers = which[order], numbers[order]
    breaks = np.flatnonzero((np.diff(which) != 0) | (np.diff(numbers) != 1)) + 1
    starts, stops = np.concatenate(([0], breaks)), np.concatenate((breaks, [len(numbers)])) - 1
    names = heads.dictionary.to_pylist()
    for start, stop in zip(starts, stops, strict=True):
        counts.add_run(topic, names[which[start]], int(numbers[start]), int(numbers[stop]), now_ms)


class TableAudit:
    """Counts the rows of some topics in a table, for the audit topic of the cluster that they come from.

    tier: its name in the audit; default "table:" and the folder's.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        folder: Path | str,
        topics: Sequence[str],
        *,
        tier: str = "",
        after: str = BROKER,
        window_ms: int = WINDOW_MS,
    ) -> None:
        if not bootstrap or "://" in str(bootstrap):
            raise ConfigError("the audit of a table needs the HOST:PORT of a current cluster")
        self.tier = tier or f"table:{Path(folder).resolve().name}"
        self._bootstrap = bootstrap
        self._folder = Path(folder)
        self._topics = list(dict.fromkeys(topics))
        self._window_ms = window_ms
        self._group = f"{TOPIC}-{self.tier}"
        self._reports = TierReportBuilder(self.tier, after)

    @property
    def has_table(self) -> bool:
        """False while no load has made one. Raises `BarnabasError`."""
        return open_store(self._folder).exists()

    def read_end_offsets(self) -> None:
        """Read where the topics end, before a load. The count after it then shows whether the table has come that far.

        Raises `BarnabasError`.
        """
        reaching = self._reports.reaching
        with Admin(self._bootstrap) as admin:
            known = self._there(admin)
            partitions = [TopicPartition(topic.name or "", p.partition) for topic in known for p in topic.partitions]
            reaching.forget(partitions)
            now_ms = wall_ms()
            reaching.probed(now_ms, admin.list_offsets(dict.fromkeys(partitions, "latest")))
            reaching.partitions |= {topic.name or "": len(topic.partitions) for topic in known}

    def count(self) -> int:
        """Count what came into the table since the last count; how many rows. Raises `BarnabasError`, `TableError`."""
        ensure_topic(self._bootstrap)
        with Producer(
            self._bootstrap, transactional_id=self._group, transaction_timeout_ms=_TRANSACTION_MS
        ) as producer:
            producer.init_transactions()  # this fences an earlier counter and ends its transaction
            with Admin(self._bootstrap) as admin:
                ends = self._ends(admin)
                found = admin.group_offsets(self._group, list(ends), require_stable=True)
            starts = {tp: found[tp].offset if tp in found else 0 for tp in ends}
            counts = MessageCounts(self._window_ms)
            rows = self._count_rows(starts, ends, counts)
            self._reports.reaching.read_to(ends)
            messages = self._reports.messages(counts)
            if messages or any(starts[tp] < end for tp, end in ends.items()):
                with producer.transaction():
                    producer.send_many(TOPIC, messages)
                    producer.send_offsets(ends, self._group)
            return rows

    def _there(self, admin: Admin) -> Sequence[TopicMetadata]:
        known = set(admin.list_topics())
        return admin.describe_topics([name for name in self._topics if name in known])

    def _ends(self, admin: Admin) -> dict[TopicPartition, int]:
        """Return the end offsets of topics that exist and were loaded, not of recreated ones that were
        not loaded yet.
        """
        last = open_store(self._folder).last()
        if last is None:
            raise no_table(self._folder)
        ids = {topic.name or "": topic.topic_id.hex() for topic in self._there(admin)}
        states = {topic: last.topics[topic] for topic in ids if topic in last.topics}
        return {
            TopicPartition(topic, int(key)): offset
            for topic, state in states.items()
            for key, offset in state.next_offsets.items()
            if state.topic_id in ("", ids[topic])
        }

    def _count_rows(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], counts: MessageCounts
    ) -> int:
        """Count the rows of the table, and those in the quarantine below it: they have come through, too."""
        now_ms, total = wall_ms(), 0
        for store, file in _files(self._folder, self._folder / QUARANTINE):
            topic = file.partition["topic"] or ""
            wanted = {
                tp.partition: (start, ends[tp])
                for tp, start in starts.items()
                if tp.topic == topic and start < ends[tp]
            }
            if wanted:
                rows = _new_rows(store, file.name, wanted)
                total += rows.num_rows
                count_rows(rows, topic, counts, now_ms)
        return total


def _files(*folders: Path) -> Iterator[tuple[TableStore, DataFile]]:
    """Yield the files of those tables that exist."""
    for folder in folders:
        store = open_store(folder)
        if store.exists():
            store.finish_commit()
            yield from ((store, file) for file in store.files())


def _new_rows(store: TableStore, name: str, wanted: Mapping[int, tuple[int, int]]) -> "pa.Table":
    """Return the rows of a file with these offsets (partition → first, end); its columns that matter."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = pq.ParquetFile(store.folder / name)
    names = [column for column in _COLUMNS if column in file.schema_arrow.names]
    least, parts = min(first for first, _ in wanted.values()), []
    for group in range(file.num_row_groups):
        if _largest_offset(file.metadata.row_group(group)) >= least:
            parts.append(file.read_row_group(group, columns=names))
    if not parts:
        return file.schema_arrow.empty_table().select(names)
    rows = _without_views(pa.concat_tables(parts))
    chosen = pa.chunked_array([pa.repeat(False, rows.num_rows)])
    for partition, (first, end) in wanted.items():
        within = pc.and_(pc.greater_equal(rows["offset"], first), pc.less(rows["offset"], end))
        chosen = pc.or_(chosen, pc.and_(pc.equal(rows["partition"], partition), within))
    return rows.filter(chosen)


def _without_views(rows: "pa.Table") -> "pa.Table":
    """Headers with the old types of text and bytes: other writers' files have views, which cannot be filtered."""
    import pyarrow as pa

    if "headers" not in rows.column_names:
        return rows
    index, field = rows.schema.get_field_index("headers"), rows.schema.field("headers")
    names = [each.name for each in field.type.value_type]
    plain = pa.list_(pa.struct([(names[0], pa.string()), (names[1], pa.binary())]))
    return rows.set_column(index, "headers", rows["headers"].cast(plain))


def _largest_offset(group: Any) -> int:
    """Return the largest offset of a row group, by its statistics."""
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "offset" and column.statistics is not None and column.statistics.has_min_max:
            return int(column.statistics.max)
    return 2**63
