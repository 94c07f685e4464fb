"""Messages of one partition that are sent together, and their outcome."""

from collections.abc import Callable
from typing import NamedTuple

from ....ports.errors import BarnabasError
from ....ports.report import counted
from ....ports.types import TopicPartition
from ...message.codec import Codec
from ...message.message import Headers
from ...message.numbered_header import NumberedHeader
from ..errors import DeliveryFailed


class Delivery(NamedTuple):
    """The place of a delivered message. Offset -1: not known (acks=0), or an event handler did not send the message."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


DeliveryCallback = Callable[[BarnabasError | None, Delivery | None], None]
"""Takes the error or the delivery; the other one is None. Runs on the producer's thread: keep it quick."""


EncodedMessage = tuple[bytes | None, bytes | None, Headers, int | None]
"""Value, key, headers, timestamp in ms (None: now)."""


class BatchFuture:
    """The place where a handle finds the outcome of its message: a batch, or a placeholder until there is one."""

    __slots__ = ("callbacks", "done", "error", "seen", "unseen")

    def __init__(self) -> None:
        self.done = False
        self.error: BarnabasError | None = None
        self.callbacks: list[tuple[int, DeliveryCallback]] = []
        self.unseen: UnseenFailures | None = None
        """The counter of failed messages whose outcome the program has not asked for."""
        self.seen: set[int] | None = None

    def find(self, index: int) -> "tuple[BatchFuture, int]":
        """Return the future that has the outcome of message `index`, and its number there."""
        return self, index

    def done_all(self) -> bool:
        """Return True when the outcome of every message is known."""
        return self.done

    def all_delivered(self) -> bool:
        """Return True when every message is known to have been delivered."""
        return self.done and self.error is None

    def delivery(self, index: int) -> Delivery:  # noqa: ARG002  # a batch differs by message
        """Return the place of message `index`, when done. Raises the error it failed with."""
        if self.error is not None:
            raise self.error
        return Delivery("", -1, -1, -1)

    def finish(self, error: BarnabasError | None) -> None:
        """Set the outcome. The callbacks run later, by a call of their own."""
        self.error = error
        self.done = True

    def run_callbacks(self, failed: Callable[[BaseException], None]) -> None:
        """Run the callbacks; `failed` gets what one raises."""
        callbacks, self.callbacks = self.callbacks, []
        for index, callback in callbacks:
            try:
                if self.error is not None:
                    callback(self.error, None)
                else:
                    callback(None, self.delivery(index))
            except Exception as error:  # noqa: BLE001  # it is reported, and the others must run
                failed(error)


class ProducerBatch(BatchFuture):
    """A batch on its way, as columns. A plain slotted class: the producer touches it for every message.

    `keys`, `headers` and `timestamps` are None until a message brings one; then they are as long as `values`.
    """

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "bytes",
        "columns",
        "count",
        "created_ms",
        "failure",
        "full",
        "halves",
        "headers",
        "keyed_end",
        "keys",
        "log_append_time_ms",
        "not_before_ms",
        "numbered",
        "producer_epoch",
        "producer_id",
        "run_end",
        "timestamps",
        "tp",
        "tried",
        "turn_begin",
        "turn_end",
        "values",
        "wall_ms",
    )

    def __init__(self, tp: TopicPartition, now_ms: float, wall_ms: int) -> None:
        super().__init__()
        self.tp = tp
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.timestamps: list[int | None] | None = None
        self.columns = False
        """True if a message has more than a value."""
        self.count = 0
        self.bytes = 0
        """About what it takes on the wire, rather more (without compression)."""
        self.turn_begin = self.turn_end = 0
        """The `bytes` between which messages without a key go to this batch, until its partition's turn ends."""
        self.run_end = 0
        """The `bytes` up to which `append_plain` may append values; 0 while it may not."""
        self.keyed_end = 0
        """The `bytes` up to which `append_keyed` may append values with keys; 0 while it may not."""
        self.created_ms = now_ms
        self.wall_ms = wall_ms
        """The timestamp of messages that bring none."""
        self.full = False
        """True when the batch takes no further messages."""
        self.attempts = 0
        self.failure: BarnabasError | None = None
        """The reason of the last retry."""
        self.not_before_ms = 0.0
        self.tried = (-1, -1)
        """The leader that it was sent to last, and the leader epoch."""
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.producer_id = self.producer_epoch = self.base_sequence = -1
        """The numbers of an idempotent producer, from the first attempt on."""
        self.numbered: NumberedHeader | None = None
        """The header for each message, from the first attempt on."""
        self.halves: tuple[ProducerBatch, ProducerBatch] | None = None
        """The two batches that replace it, after a broker found it too large."""

    def add(self, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int | None) -> None:
        """Append a message."""
        count = self.count
        self.values.append(value)
        self.count = count + 1
        if key is None and not headers and timestamp_ms is None and not self.columns:
            return
        self.columns = True
        self.run_end = 0
        if key is not None or self.keys is not None:
            if self.keys is None:
                self.keys = [None] * count
            self.keys.append(key)
        if headers or self.headers is not None:
            self.keyed_end = 0
            if self.headers is None:
                self.headers = [()] * count
            self.headers.append(headers)
        if timestamp_ms is not None or self.timestamps is not None:
            self.keyed_end = 0
            if self.timestamps is None:
                self.timestamps = [None] * count
            self.timestamps.append(timestamp_ms)

    def add_values(self, values: list[bytes]) -> None:
        """Append messages without keys, headers and timestamps."""
        count = len(values)
        self.values += values
        if self.keys is not None:
            self.keys += [None] * count
        if self.headers is not None:
            self.headers += [()] * count
        if self.timestamps is not None:
            self.timestamps += [None] * count
        self.count += count

    def encode(self, codec: Codec | None, transactional: bool = False) -> bytearray:
        """Return the record batch. Raises `ApiError` for what has no encoding."""
        from ...message.batch_writer import encode_columns

        return encode_columns(
            self.values,
            keys=self.keys,
            headers=self.headers,
            timestamps=self.timestamps,
            now_ms=self.wall_ms,
            codec=codec,
            producer_id=self.producer_id if self.base_sequence >= 0 else -1,
            producer_epoch=self.producer_epoch if self.base_sequence >= 0 else -1,
            base_sequence=self.base_sequence,
            transactional=transactional,
            numbered=self.numbered,
        )

    def find(self, index: int) -> tuple[BatchFuture, int]:
        batch: ProducerBatch = self
        while batch.halves is not None:
            first, second = batch.halves
            batch, index = (first, index) if index < first.count else (second, index - first.count)
        return batch, index

    def delivery(self, index: int) -> Delivery:
        if self.error is not None:
            raise self.error
        timestamp: int | None = self.log_append_time_ms
        if self.log_append_time_ms < 0:
            own = self.timestamps[index] if self.timestamps is not None else None
            timestamp = self.wall_ms if own is None else own
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return Delivery(self.tp.topic, self.tp.partition, offset, -1 if timestamp is None else timestamp)

    def finish(self, error: BarnabasError | None) -> None:
        super().finish(error)
        self._drop_content()

    def split(self) -> "tuple[ProducerBatch, ProducerBatch]":
        """Return two batches with half of the messages each, to be sent instead of this one."""
        middle = self.count // 2
        first, second = (ProducerBatch(self.tp, self.created_ms, self.wall_ms) for _ in range(2))
        for half, part in ((first, slice(0, middle)), (second, slice(middle, None))):
            half.values = self.values[part]
            half.keys = None if self.keys is None else self.keys[part]
            half.headers = None if self.headers is None else self.headers[part]
            half.timestamps = None if self.timestamps is None else self.timestamps[part]
            half.count, half.full = len(half.values), True
        first.numbered = self.numbered
        second.numbered = None if self.numbered is None else self.numbered.advance(middle)
        first.bytes = self.bytes * first.count // self.count
        second.bytes = self.bytes - first.bytes
        for index, callback in self.callbacks:
            half, start = (first, 0) if index < middle else (second, middle)
            half.callbacks.append((index - start, callback))
        self.callbacks = []
        self._drop_content()
        self.halves = (first, second)
        return first, second

    def done_all(self) -> bool:
        return self.done if self.halves is None else all(half.done_all() for half in self.halves)

    def all_delivered(self) -> bool:
        return super().all_delivered() if self.halves is None else all(half.all_delivered() for half in self.halves)

    def _drop_content(self) -> None:
        """Drop all but the timestamps; a user may hold the handles for long."""
        self.values = []
        self.keys = None
        self.headers = None


class PrebuiltBatch(ProducerBatch):
    """A batch whose records were laid out elsewhere, many at once; it takes no further messages.

    It is numbered, compressed and, when necessary, retried like any other batch.
    """

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
        from ...message.batch_header import TRANSACTIONAL_BIT
        from ...message.batch_writer import assemble_batch

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

    def split(self) -> "tuple[ProducerBatch, ProducerBatch]":
        self._open()
        return super().split()

    def _open(self) -> None:
        """Parse the records into the columns of other batches, to add headers to the messages or to split the batch."""
        from ...message.record_parser import parse_records

        if self.values:
            return
        data = bytes(self.records)
        found = parse_records(data, 0, len(data), self.count, with_headers=True)
        self.values, self.keys, self.headers = found.values, found.keys, found.headers
        deltas = found.timestamp_deltas or [0] * self.count
        self.timestamps = [self.base_timestamp + delta for delta in deltas]

    def _drop_content(self) -> None:
        super()._drop_content()
        self.records = memoryview(b"")


class UnseenFailures:
    """Counts failed messages until their outcome is asked for, by the handle or a callback. Used under one lock."""

    def __init__(self) -> None:
        self.count = 0
        self._first: BarnabasError | None = None

    def add(self, home: BatchFuture, count: int) -> None:
        """Count the messages of a failed future, except those with a callback, whose failures are seen."""
        if home.error is None or home.unseen is not None:
            return
        home.seen = {index for index, _ in home.callbacks}
        home.unseen = self
        fresh = count - len(home.seen)
        self.count += fresh
        if fresh and self._first is None:
            self._first = home.error

    @staticmethod
    def saw(home: BatchFuture, index: int) -> None:
        """The program has asked for the outcome of a message."""
        if home.unseen is not None and home.seen is not None and index not in home.seen:
            home.seen.add(index)
            home.unseen.count -= 1

    def error(self) -> DeliveryFailed | None:
        """Return the error that reports the unseen failures; None if there are none."""
        if self.count <= 0:
            return None
        what = counted(self.count, "message was", "messages were")
        text = (
            f"{what} not delivered, and nothing has asked for the outcome: "
            f"call result() of what send() returns, or give it on_delivery=; the first error: {self._first}"
        )
        failure = DeliveryFailed(text, self.count)
        failure.__cause__ = self._first
        return failure
