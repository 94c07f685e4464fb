"""Topics for a query: what there is, and the columns that it wants of them, in DuckDB."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import define, field

from ...app.clients.admin.admin import Admin
from ...app.clients.arrow.tables import SCHEMA, SCHEMA_WITH_HEADERS
from ...app.clients.consumer.remote_ranges import RemoteRange, RemoteRanges, plan_line
from ...app.clients.consumer.simple_consumer import SimpleConsumer
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import TopicPartition
from ..topics.connect import CHUNK_BYTES, common_settings
from .bounds import Bounds, TopicLimits, Window, bounded

if TYPE_CHECKING:
    from ...schemas.columns.decoded import ColumnDecoder

ERROR_COLUMN = "value_error"
"""The column with the reason why a value could not be decoded, and is null."""
OnProgress = Callable[[int, int], object]
"""Called with the number of messages read, and that of all."""
RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@define
class Staged:
    """Messages in a table of DuckDB, with these columns. `text`: those of key and value that are all UTF-8."""

    table: str
    columns: Sequence[str]
    text: set[str] = field(factory=lambda: {"key", "value"})


class TopicReader:
    """Reads topics of one cluster; a context manager."""

    def __init__(
        self, bootstrap: str, client: Mapping[str, str], *, bucket: str = "", report: Callable[[str], object]
    ) -> None:
        """`client`: settings by their dotted names; `bucket`: the URL of a remote storage, for which `report` gets the
        plan. Raises `ConfigError`."""
        defaults = {"isolation.level": "read_committed", "max.partition.fetch.bytes": str(CHUNK_BYTES)}
        self._settings = {**defaults, **client}
        self._report = report
        self._ranges = RemoteRanges(bucket) if bucket else None
        self._consumer = SimpleConsumer(bootstrap, config=self._settings)
        self._admin = Admin(bootstrap, config=common_settings(self._settings))

    def names(self) -> list[str]:
        """Return the topics, without internal ones."""
        return [topic.name for topic in self._admin.describe_topics() if topic.name and not topic.internal]

    def check_not_denied(self, topic: str) -> None:
        """Raise `ApiError(TOPIC_AUTHORIZATION_FAILED)` for a topic that is not among `names` for lack of an ACL."""
        try:
            self._admin.describe_topics([topic])
        except ApiError as error:
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise

    def bounds_by_partition(self, topic: str, limits: TopicLimits, window: Window) -> dict[TopicPartition, Bounds]:
        """Return the bounds of what is to be read, per partition. Raises `ApiError`."""
        (described,) = self._admin.describe_topics([topic])
        partitions = range(len(described.partitions))
        first, ends = self._offsets(topic, partitions, "earliest"), self._offsets(topic, partitions, "latest")
        there = {each: Bounds(start=first[each], end=ends[each]) for each in partitions}
        for since in (limits.since_ms, window.since_ms):
            if since is not None:
                found = self._offsets(topic, partitions, max(0, since))
                there = {each: Bounds(start=_or(found[each], b.end), end=b.end) for each, b in there.items()}
        if window.until_ms is not None:
            found = self._offsets(topic, partitions, max(0, window.until_ms))
            there = {each: Bounds(start=b.start, end=min(b.end, _or(found[each], b.end))) for each, b in there.items()}
        return {TopicPartition(topic, each): b for each, b in bounded(there, limits, window).items()}

    def stage(
        self,
        connection: Any,
        table: str,
        bounds_by_partition: Mapping[TopicPartition, Bounds],
        columns: Sequence[str],
        on_progress: OnProgress,
        decoder: "ColumnDecoder | None" = None,
    ) -> Staged:
        """Read those columns into a new table, values by their decoder. Raises `ApiError`, `CorruptRecord`,
        `TransportError`, `RegistryUnreachable`."""
        empty = (SCHEMA_WITH_HEADERS if "headers" in columns else SCHEMA).empty_table()
        staged = Staged(table, columns)
        if decoder is not None:
            empty, staged.columns = _with_typed_values(empty, decoder), [*columns, ERROR_COLUMN]
            staged.text -= {"value"}
        columns = staged.columns
        _put(connection, empty, f"create temp table {quoted(table)} as select {', '.join(map(quoted, columns))}")
        chosen = ", ".join(map(quoted, columns))
        total, done = sum(bounds.end - bounds.start for bounds in bounds_by_partition.values()), 0
        remote = self._in_bucket(bounds_by_partition)
        on_progress(0, total)
        for tp, bounds in bounds_by_partition.items():
            pieces = self._consumer.read_arrow(
                *tp, bounds.start, bounds.end, headers="headers" in columns, remote=remote.get(tp)
            )
            for piece in pieces:
                if not piece.num_rows:
                    continue
                staged.text -= {name for name in staged.text & {*columns} if not _is_text(piece[name])}
                if decoder is not None:
                    piece = _with_typed_values(piece, decoder)  # noqa: PLW2901
                _put(connection, piece, f"insert into {quoted(table)} select {chosen}")
                reached = piece["offset"][-1].as_py() + 1 - bounds.start
                on_progress(done + reached, total)
            done += bounds.end - bounds.start
        on_progress(total, total)
        return staged

    def _in_bucket(self, bounds_by_partition: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, RemoteRange]:
        """Return what comes from the bucket, by partition, and report it."""
        if self._ranges is None:
            return {}
        found: dict[TopicPartition, RemoteRange] = {}
        names = {tp.topic for tp in bounds_by_partition}
        ids = {each.name: each.topic_id for each in self._admin.describe_topics(sorted(names))} if names else {}
        for tp, bounds in bounds_by_partition.items():
            part = self._ranges.find(self._consumer, tp, bounds.start, partial(ids.__getitem__, tp.topic))
            end = bounds.start if part is None else part.reach(bounds.start, bounds.end)
            if part is not None and end > bounds.start:
                found[tp] = part
            self._report(plan_line(tp, bounds.start, end, bounds.end, self._ranges.name))
        return found

    def close(self) -> None:
        """Hang up."""
        if self._ranges is not None:
            self._ranges.close()
        self._consumer.close()
        self._admin.close()

    def _offsets(self, topic: str, partitions: Sequence[int], time: int | str) -> dict[int, int]:
        asked = {(topic, each): time for each in partitions}
        found = self._admin.list_offsets(asked, isolation_level=self._settings["isolation.level"])
        return {tp.partition: offset for tp, offset in found.items()}


def _with_typed_values(messages: pa.Table, decoder: "ColumnDecoder") -> pa.Table:
    """Return the messages with their values decoded, and why some are not."""
    values: list[pa.Array] = []
    errors: list[str | None] = []
    for batch in messages.to_batches():
        found = decoder.decode(batch.column("value"))
        values.append(found.values)
        errors += [found.errors.get(row) for row in range(batch.num_rows)] if found.errors else [None] * batch.num_rows
    tp = messages.schema.get_field_index("value")
    typed = messages.set_column(tp, "value", pa.chunked_array(values, decoder.type))
    return typed.append_column(ERROR_COLUMN, pa.array(errors, pa.string()))


def _put(connection: Any, piece: pa.Table, into: str) -> None:
    connection.register("piece", piece)
    connection.execute(f"{into} from piece").fetchall()
    connection.unregister("piece")


def quoted(name: str) -> str:
    """Return a name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def _or(offset: int, end: int) -> int:
    return end if offset < 0 else offset


def _is_text(column: pa.ChunkedArray) -> bool:
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
