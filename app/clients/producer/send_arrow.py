"""`Producer.send_arrow`: whole tables laid out as batches, and handed to the accumulator."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....core.client.errors import ClientTimeout, EncodeError, QueueFull
from ....core.client.producer.producer_batch import BatchFuture, ProducerBatch
from ....core.message.batch_header import TRANSACTIONAL_BIT
from ....core.message.batch_writer import assemble_batch
from ....core.message.codec import Codec
from ....core.message.message import Message
from ....core.message.record_parser import parse_records
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ..arrow.placing import batch_firsts, partitions_of
from ..arrow.record_layout import RecordBlock, Rows, headers_laid_out, lay_out
from ..arrow.varints import Numbers
from ..shared.delivery import DeliveryHandle, ManyHandle
from ..shared.hooks import HookPath
from .record_appender import RecordAppender

BLOCK_ROWS = 65_536
BLOCK_BYTES = 64 * 1024 * 1024
"""The size of the blocks, about, in which a table is encoded."""
_COLUMNS = ("value", "key", "headers", "timestamp", "partition")


def _batches_of(table: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table with Arrow's interface in blocks, with the columns of messages only."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    stream = pa.RecordBatchReader.from_stream(table)
    for batch in stream:
        if "value" not in batch.schema.names:
            raise EncodeError(f"a column 'value' is needed (there is {', '.join(batch.schema.names) or 'none'})")
        known = batch.select([name for name in _COLUMNS if name in batch.schema.names])
        rows = BLOCK_ROWS
        if known.num_rows:
            rows = max(1, min(rows, BLOCK_BYTES * known.num_rows // (known.nbytes + 1)))
        for first in range(0, known.num_rows, rows):
            yield known.slice(first, rows)


def _messages_of(batch: pa.RecordBatch) -> Iterator[tuple[int | None, Message]]:
    """Yield (partition, message) of each row, for hooks, which see messages one by one."""
    nothing: list[None] = [None] * batch.num_rows
    names = batch.schema.names

    def column(name: str) -> list[Any]:
        return batch.column(name).to_pylist() if name in names else nothing

    values, keys = _content(batch, "value"), _content(batch, "key")
    times = _times(batch)
    for value, key, headers, time, partition in zip(
        values.to_pylist(),
        nothing if keys is None else keys.to_pylist(),
        column("headers"),
        nothing if times is None else times.to_pylist(),
        column("partition"),
        strict=True,
    ):
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        yield partition, Message(value=value, key=key, headers=pairs, timestamp_ms=time)


def send_arrow(
    appender: RecordAppender, hooks: HookPath | None, table: Any, topic: str, partition: int | None
) -> ManyHandle:
    """See `Producer.send_arrow`. Hooks see the messages one by one."""
    if hooks is None:
        sender = _ArrowSender(appender, topic, partition)
        for batch in _batches_of(table):
            sender.send(batch)
        return sender.handle
    handles: list[DeliveryHandle] = []
    for batch in _batches_of(table):
        for own, message in _messages_of(batch):
            value, key, headers, time = message[:4]
            chosen = own if partition is None else partition
            try:
                handles.append(hooks.send(topic, value, key, chosen, headers, time, None))
            except QueueFull as error:
                error.taken = ManyHandle(appender.shell, [], handles)
                raise
    return ManyHandle(appender.shell, [], handles)


# A batch whose records were laid out elsewhere, many at once.


class PrebuiltBatch(ProducerBatch):
    """Takes no further messages. It is numbered, compressed and, when necessary, retried like any other batch."""

    __slots__ = ("base_timestamp", "max_timestamp", "records")

    def __init__(
        self,
        tp: TopicPartition,
        now_ms: float,
        records: memoryview,
        count: int,
        *,
        base_timestamp: int,
        max_timestamp: int,
        timestamps: list[int | None] | None,
    ) -> None:
        """`records`: `count` of them, at offset deltas 0, 1, ..., their times relative to `base_timestamp`.

        `timestamps`: the timestamp of each message in its `Delivery`; None: the base timestamp for all.
        """
        super().__init__(tp, now_ms, base_timestamp)
        self.records = records
        self.count = count
        self.bytes = len(records)
        self.full = True
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.timestamps = timestamps

    def encode(self, codec: Codec | None, transactional: bool = False) -> bytearray:
        if self.numbered is not None:
            self._open()
            return super().encode(codec, transactional)
        idempotent = self.base_sequence >= 0
        return assemble_batch(
            self.records,
            count=self.count,
            codec=codec,
            base_offset=0,
            last_offset_delta=self.count - 1,
            attributes=TRANSACTIONAL_BIT if transactional else 0,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=self.producer_id if idempotent else -1,
            producer_epoch=self.producer_epoch if idempotent else -1,
            base_sequence=self.base_sequence,
        )

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        self._open()
        return super().split()

    def _open(self) -> None:
        """Parse the records into the columns of other batches, to add headers to the messages or to split the batch."""
        if self.values:
            return
        data = bytes(self.records)
        found = parse_records(data, 0, len(data), self.count, with_headers=True)
        self.values, self.keys, self.headers = found.values, found.keys, found.headers
        self.timestamps = [self.base_timestamp + delta for delta in found.timestamp_deltas]

    def _drop_content(self) -> None:
        super()._drop_content()
        self.records = memoryview(b"")


class _ArrowSender:
    """Sends blocks of rows to one topic."""

    def __init__(self, appender: RecordAppender, topic: str, partition: int | None) -> None:
        self._appender = appender
        self._topic = topic
        self._partition = partition
        self._runs: list[tuple[BatchFuture, int, int]] = []

    @property
    def handle(self) -> ManyHandle:
        """The handle of all messages taken so far."""
        return ManyHandle(self._appender.shell, self._runs, [])

    def send(self, batch: pa.RecordBatch) -> None:
        """Take a block. Raises the errors of `Producer.send_arrow`, mostly before any row of the block is taken."""
        appender, settings = self._appender, self._appender.settings
        now_ms = appender.shell.clock.now_ms()
        rows = _rows(batch, now_ms)
        sizes = rows.sizes()
        if int(sizes.max()) > settings.max_request_size:
            limit = settings.max_request_size
            text = f"about {int(sizes.max())} bytes (row {int(sizes.argmax())}); max.request.size is {limit}"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, text)
        view = self._view()
        given = batch.column("partition") if "partition" in batch.schema.names else None
        if self._partition is not None:
            given = pa.array(np.full(len(rows), self._partition, dtype=np.int64))
        with appender.lock:  # a partitioner is called by one thread at a time
            partitions = partitions_of(rows, given, appender.partitioner, self._topic, view, settings.batch_size)
        order = None
        if len(rows) > 1 and (partitions != partitions[0]).any():
            order = np.argsort(partitions, kind="stable")
            rows, partitions, sizes = rows.chosen(order), partitions[order], sizes[order]
        firsts = _firsts(partitions, sizes, settings.batch_size, settings.batch_num_messages)
        for first, block in zip(firsts, lay_out(rows, firsts, now_ms), strict=True):
            self._put(int(partitions[first]), block)

    def _put(self, partition: int, block: RecordBlock) -> None:
        appender, size = self._appender, len(block.records)
        with appender.lock:
            appender.check_taking()
            if not appender.accumulator.has_room(size, block.count):
                try:
                    appender.wait_for_room(size)
                except QueueFull as error:
                    error.taken = self.handle
                    raise
            view = appender.view.topic(self._topic)
            if view is None or partition >= len(view.leaders):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._topic}-{partition} has gone")
            batch = PrebuiltBatch(
                view.partitions[partition],
                appender.shell.now_ms(),
                block.records,
                block.count,
                base_timestamp=block.base_timestamp,
                max_timestamp=block.max_timestamp,
                timestamps=block.timestamps,
            )
            appender.accumulator.put(batch)
        self._runs.append((batch, 0, block.count))
        appender.shell.wake()

    def _view(self) -> Any:
        """Return the view of the topic, once it is known and earlier messages to it are in batches."""
        appender, topic = self._appender, self._topic
        limit_ms = appender.settings.max_block_ms

        def known() -> bool:
            error = appender.view.topic_errors.get(topic)
            if appender.view.topic(topic) is None:
                return appender.closed or (error is not None and not error.retriable)
            return topic not in appender.unplaced

        with appender.lock:
            appender.check_taking()
            if appender.view.topic(topic) is None:
                appender.view.add_topics([topic])
                appender.view.request_refresh()
                appender.shell.wake()
            appender.shell.wait(known, limit_ms / 1000 if limit_ms >= 0 else None)
            appender.check_taking()
            view, error = appender.view.topic(topic), appender.view.topic_errors.get(topic)
        if view is None and error is not None:
            raise ApiError(error, f"topic {topic}")
        if view is None:
            raise ClientTimeout(f"no metadata of topic {topic} within max.block.ms ({limit_ms:g}){appender.view.why}")
        return view


def _firsts(partitions: Numbers, sizes: Numbers, batch_size: int, batch_messages: int) -> list[int]:
    """Return the rows at which batches begin; rows of one partition follow each other."""
    borders = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    return [
        begin + first
        for begin, end in pairwise(borders)
        for first in batch_firsts(sizes[begin:end], batch_size, batch_messages)
    ]


def _rows(batch: pa.RecordBatch, now_ms: int) -> Rows:
    values, keys = _content(batch, "value"), _content(batch, "key")
    if keys is not None and keys.null_count == len(keys):
        keys = None
    headers = None
    if "headers" in batch.schema.names and not pa.types.is_null(batch.schema.field("headers").type):
        try:
            headers = headers_laid_out(batch.column("headers"))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            kind = batch.schema.field("headers").type
            raise EncodeError(
                f"column 'headers' must be list<struct<key: string, value: binary>>, not {kind}"
            ) from error
    times = _times(batch)
    stamps = None
    if times is not None and times.null_count < len(times):
        stamps = times.fill_null(now_ms).to_numpy(zero_copy_only=False)
    return Rows(values, keys, headers, stamps)


def _content(batch: pa.RecordBatch, name: str) -> Any:
    """Return a column of keys or values as bytes; None if there is none. Raises `EncodeError`."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    octets = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    if not any(check(kind) for check in (*texts, *octets)):
        raise EncodeError(f"column {name!r} must be binary or text, not {kind}; cast it, or write it as JSON")
    if pa.types.is_dictionary(column.type):
        column = column.cast(kind)
    if any(check(kind) for check in texts) and not pa.types.is_string(kind):
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def _times(batch: pa.RecordBatch) -> Any:
    """Return the timestamps in milliseconds since 1970; None if there is no such column. Raises `EncodeError`."""
    if "timestamp" not in batch.schema.names:
        return None
    column = batch.column("timestamp")
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise EncodeError(f"column 'timestamp' must be a timestamp or milliseconds, not {column.type}")
    return column.cast(pa.int64())
