"""`Producer.send_arrow`: whole tables laid out as batches, and handed to the accumulator."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....core.client.cluster_view import TopicView
from ....core.client.errors import ClientTimeout, EncodeError, QueueFull, no_partition, topic_error
from ....core.client.producer.hashing import murmur2, murmur2_partition
from ....core.client.producer.partitioner import Partitioner
from ....core.client.producer.producer_batch import BatchFuture, PrebuiltBatch
from ....core.client.producer.record_accumulator import RECORD_OVERHEAD
from ....core.message.message import Message
from ....plugins.builtin.partitioners import KeyedPartitioner
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.values import define
from ..arrow.varints import Flags, Numbers, varint_sizes, write_varints, zigzags
from ..shared.delivery import DeliveryHandle, ManyHandle
from ..shared.encoding import choose_index
from ..shared.hooks import HookPath
from .record_appender import TURN_BYTES, RecordAppender

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


# The partitions of rows: those that the producer's partitioner would choose message by message, but faster.

_M, _SEED = np.uint32(0x5BD1E995), 0x9747B28C
_LONG_KEY = 256
Hashes: TypeAlias = npt.NDArray[np.uint32]


# Arrow columns as the records of batches v2 (facts B1): numpy writes the numbers, Arrow joins all.

_SURE = 1 << 61
_EMPTY = pa.scalar(b"", pa.binary())


@define(eq=False)
class Rows:
    """Messages column by column; `keys`, `headers` (encoded already) and times are None where there are none."""

    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None
    timestamps_ms: Numbers | None

    def __len__(self) -> int:
        return len(self.values)

    def chosen(self, rows: Numbers) -> "Rows":
        """Return these rows, in this order."""
        taken = pa.array(rows)
        return Rows(
            self.values.take(taken),
            None if self.keys is None else self.keys.take(taken),
            None if self.headers is None else self.headers.take(taken),
            None if self.timestamps_ms is None else self.timestamps_ms[rows],
        )

    def sizes(self) -> Numbers:
        """Return the bytes that each row takes in a batch, about, and rather too many."""
        total = lengths(self.values) + RECORD_OVERHEAD
        for column in (self.keys, self.headers):
            if column is not None:
                total += lengths(column)
        return total


@define(eq=False)
class RecordBlock:
    """The records of one batch."""

    records: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int
    timestamps: list[int | None] | None


def lay_out(rows: Rows, firsts: Iterable[int], now_ms: int) -> Iterator[RecordBlock]:
    """Yield the rows as batches that begin at the rows `firsts`; without a column of timestamps, all get `now_ms`."""
    count, begins = len(rows), np.fromiter(firsts, dtype=np.int64)
    ends = np.append(begins[1:], count)
    counts = ends - begins
    times = rows.timestamps_ms
    bases = np.full(len(begins), now_ms) if times is None else times[begins]
    deltas = np.zeros(count, dtype=np.int64) if times is None else _deltas(times, np.repeat(bases, counts))
    bounds, data = _records(rows, np.arange(count) - np.repeat(begins, counts), deltas)
    for number, (first, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        own = None if times is None else times[first:end]
        yield RecordBlock(
            data[bounds[first] : bounds[end]],
            end - first,
            int(bases[number]),
            now_ms if own is None else int(own.max()),
            None if own is None else own.tolist(),
        )


def headers_laid_out(headers: Any) -> pa.Array | None:
    """Encode a column of lists of key and value as the end of each record. Return None if there are no headers."""
    headers = headers.cast(pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])))
    pairs = headers.flatten()
    if not len(pairs):
        return None
    counts = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    names, contents = pairs.field("key"), pairs.field("value")
    if pairs.null_count or names.null_count:
        raise ApiError(ErrorCode.INVALID_RECORD, "a header has no key")
    laid = _joined([_varints([_lengths_raw(names)]), names, _varints([_lengths_raw(contents)]), contents])
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    at = np.frombuffer(laid.buffers()[1], dtype=np.int32)[laid.offset :][bounds]
    gathered = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(at.copy()), laid.buffers()[2]])
    return _joined([_varints([counts << 1]), gathered])


def lengths(column: Any) -> Numbers:
    """Return the number of bytes of each value; 0 for null."""
    found: Numbers = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _records(rows: Rows, offset_deltas: Numbers, time_deltas: Numbers) -> tuple[Numbers, memoryview]:
    """Return the positions where each record begins and where the last ends, and the bytes of all records."""
    nothing = np.zeros(len(rows), dtype=np.int64)
    values, keys, headers = rows.values, rows.keys, rows.headers
    key_raw = nothing + 1 if keys is None else _lengths_raw(keys)
    value_raw = _lengths_raw(values)
    numbers = [nothing, zigzags(time_deltas), offset_deltas << 1, key_raw]  # the first: attributes
    size = lengths(values) + varint_sizes(value_raw)
    for column in numbers:
        size += varint_sizes(column)
    size += 1 if headers is None else lengths(headers)
    if keys is None:
        parts = [_varints([size << 1, *numbers, value_raw]), values]
    else:
        size += lengths(keys)
        parts = [_varints([size << 1, *numbers]), keys, _varints([value_raw]), values]
    laid = _joined([*parts, pa.scalar(b"\0", pa.binary()) if headers is None else headers])
    bounds = np.frombuffer(laid.buffers()[1], dtype=np.int32)[laid.offset : laid.offset + len(laid) + 1]
    return bounds.astype(np.int64), memoryview(laid.buffers()[2])


def _deltas(times: Numbers, bases: Numbers) -> Numbers:
    if np.abs(times).max() > _SURE:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, f"timestamps from {times.min()} to {times.max()} ms fit no batch")
    return times - bases


def _lengths_raw(column: Any) -> Numbers:
    """Return the lengths in zig-zag form: null is -1, so 1."""
    raw = lengths(column) << 1
    if column.null_count:
        raw[pc.is_null(column).to_numpy(zero_copy_only=False)] = 1
    return raw


def _varints(columns: list[Numbers]) -> pa.Array:
    data, sizes = write_varints(columns)
    bounds = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def _joined(parts: list[Any]) -> Any:
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")


def partitions_of(
    rows: Rows, given: Any, partitioner: Partitioner, topic: str, view: TopicView, batch_size: int
) -> Numbers:
    """Return a partition for each row. `given`: a column of partitions, null where the partitioner chooses; or None.

    Raises `ApiError` for a partition that the topic does not have, `EncodeError` when the partitioner fails.
    """
    count = len(view.leaders)
    chosen = np.full(len(rows), -1, dtype=np.int64)
    if given is not None:
        chosen = given.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False).copy()
        wrong = chosen[(chosen >= count) | ((chosen < 0) & given.is_valid().to_numpy(zero_copy_only=False))]
        if wrong.size:
            raise no_partition(topic, count, int(wrong[0]))
    open_rows = np.flatnonzero(chosen < 0)
    if open_rows.size:
        part = rows if open_rows.size == len(rows) else rows.chosen(open_rows)
        chosen[open_rows] = _Choice(partitioner, topic, view, batch_size).of(part)
    return chosen


class _Choice:
    def __init__(self, partitioner: Partitioner, topic: str, view: TopicView, batch_size: int) -> None:
        self._partitioner = partitioner
        self._topic = topic
        self._view = view
        self._batch_size = batch_size

    def of(self, rows: Rows) -> Numbers:
        partitioner, keys = self._partitioner, rows.keys
        keyless = np.ones(len(rows), dtype=np.bool_) if keys is None else _is_null(keys)
        if type(partitioner) is KeyedPartitioner:
            return self._keyed(partitioner, rows, keyless)
        if partitioner.sticky and keyless.all():
            return self._sticky(rows.sizes())
        return self._each(rows)

    def _keyed(self, partitioner: KeyedPartitioner, rows: Rows, keyless: Flags) -> Numbers:
        """Choose by the hash of the key; rows without a key go by the partitioner."""
        count = len(self._view.leaders)
        if partitioner.empty_is_none and rows.keys is not None:
            keyless = keyless | (pc.binary_length(rows.keys).fill_null(0).to_numpy(zero_copy_only=False) == 0)
        chosen = np.full(len(rows), -1, dtype=np.int64)
        if rows.keys is not None and not keyless.all():
            chosen[~keyless] = _hashed(rows.keys.filter(pa.array(~keyless)), partitioner.hashed, count)
        left = np.flatnonzero(keyless)
        if left.size and partitioner.without_key is None:
            chosen[left] = partitioner.hashed(b"", count)
        elif left.size:
            part = rows if left.size == len(rows) else rows.chosen(left)
            chosen[left] = self._sticky(part.sizes()) if partitioner.sticky else self._each(part)
        return chosen

    def _sticky(self, sizes: Numbers) -> Numbers:
        """Choose one partition for all rows of its turn, which fit into a batch."""
        chosen = np.empty(len(sizes), dtype=np.int64)
        available = len(self._view.available)
        turn = self._batch_size
        if available > 1:
            turn = min(turn, max(TURN_BYTES, -(-int(sizes.sum()) // available)))
        firsts = batch_firsts(sizes, turn, len(sizes))
        for first, end in zip(firsts, [*firsts[1:], len(sizes)], strict=True):
            chosen[first:end] = partition = self._ask(None, None)
            if end < len(sizes):
                self._partitioner.next_batch(self._topic, partition)
        return chosen

    def _each(self, rows: Rows) -> Numbers:
        keys = [None] * len(rows) if rows.keys is None else rows.keys.to_pylist()
        found = [self._ask(key, value) for key, value in zip(keys, rows.values.to_pylist(), strict=True)]
        return np.array(found, dtype=np.int64)

    def _ask(self, key: bytes | None, value: bytes | None) -> int:
        view = self._view
        return choose_index(self._partitioner, self._topic, key, value, len(view.leaders), view.available)


def batch_firsts(sizes: Numbers, batch_size: int, batch_messages: int) -> Sequence[int]:
    """Return the rows at which batches begin, each batch as large as allowed, and of one row at least."""
    ends, firsts = np.cumsum(sizes), [0]
    while True:
        first = firsts[-1]
        before = int(ends[first - 1]) if first else 0
        fits = int(np.searchsorted(ends, batch_size + before, side="right"))
        following = max(first + 1, min(fits, first + batch_messages))
        if following >= len(sizes):
            return firsts
        firsts.append(following)


def _is_null(column: Any) -> Flags:
    found: Flags = pc.is_null(column).to_numpy(zero_copy_only=False)
    return found


def _hashed(keys: Any, hashed: Callable[[bytes, int], int], count: int) -> Numbers:
    if hashed is murmur2_partition:
        return (murmur2_of(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    unique = keys.dictionary_encode()
    found = np.array([hashed(key, count) for key in unique.dictionary.to_pylist()], dtype=np.int64)
    partitions: Numbers = found[unique.indices.to_numpy()]
    return partitions


def murmur2_of(keys: Any) -> Hashes:
    """Return `core.client.producer.hashing.murmur2` of many keys, none of them null."""
    bounds = np.frombuffer(keys.buffers()[1], dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    begins, sizes = bounds[:-1].astype(np.int64), np.diff(bounds).astype(np.int64)
    data = np.frombuffer(bytes(keys.buffers()[2] or b"") + b"\0\0\0\0", dtype=np.uint8)
    words = np.ndarray(len(data) - 3, dtype="<u4", buffer=data.data, strides=(1,))  # at each byte the four from there
    h = (_SEED ^ sizes).astype(np.uint32)
    short = sizes <= _LONG_KEY
    most = int(sizes[short].max()) if short.any() else 0
    with np.errstate(over="ignore"):
        for number in range(most // 4):
            rows = np.flatnonzero(short & (sizes >> 2 > number))
            k = words[begins[rows] + 4 * number] * _M
            h[rows] = h[rows] * _M ^ (k ^ k >> np.uint32(24)) * _M
        rest = sizes & 3
        rows = np.flatnonzero(rest)
        tail = words[begins[rows] + (sizes[rows] & ~3)] & ((1 << 8 * rest[rows]) - 1).astype(np.uint32)
        h[rows] = (h[rows] ^ tail) * _M
        h = (h ^ h >> np.uint32(13)) * _M
        h = h ^ h >> np.uint32(15)
    for row in np.flatnonzero(~short):
        h[row] = murmur2(keys[int(row)].as_py())
    return h


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
            raise topic_error(error, topic)
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
