"""Messages that wait to be sent: per partition a queue of batches, all within one bound of memory."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from ....ports.clock import Clock
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...message.batch_header import HEADER_SIZE
from ...message.message import Headers
from ..effects import NEVER
from .producer_batch import EncodedMessage, ProducerBatch

RECORD_OVERHEAD = 28
"""An upper bound of a record without key, value and headers: varints for six numbers, and the attributes."""
HEADER_OVERHEAD = 10


@frozen(kw_only=True)
class AccumulatorSettings:
    """Sizes in bytes, times in ms."""

    batch_size: int = 262_144
    batch_messages: int = 1_000_000
    linger_ms: float = 5
    buffer_memory: int = 33_554_432
    buffer_messages: int = 1_000_000
    delivery_timeout_ms: float = 120_000


def message_bytes(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """About what a message takes in a batch, rather more."""
    size = RECORD_OVERHEAD + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
    for name, content in headers:
        size += HEADER_OVERHEAD + 4 * len(name) + (len(content) if content is not None else 0)
    return size


def bytes_up_to(values: Sequence[bytes]) -> list[int]:
    """Per value, about how many bytes the plain messages up to and with it take."""
    return list(accumulate(map(RECORD_OVERHEAD.__add__, map(len, values))))


class _BatchQueue:
    __slots__ = ("batches", "in_flight")

    def __init__(self) -> None:
        self.batches: deque[ProducerBatch] = deque()
        self.in_flight = False


class RecordAccumulator:
    """Takes messages, gives batches; one batch per partition is in flight at a time, so that the order is kept.

    Used under one lock.
    """

    def __init__(self, settings: AccumulatorSettings, clock: Clock, closed: Callable[[TopicPartition], None]) -> None:
        """`clock` gives the timestamp for messages of a new batch that have none.

        `closed` is called when the next message of a partition will begin a new batch (for sticky partitioners).
        """
        self._settings = settings
        self._batch_messages = settings.batch_messages
        self._bytes_max = settings.buffer_memory
        self._messages_max = settings.buffer_messages
        self._clock = clock
        self._closed = closed
        self.unsettled: set[ProducerBatch] = set()
        """Every batch whose outcome is not known."""
        self._queues: dict[TopicPartition, _BatchQueue] = {}
        self.bytes = 0
        """Held by messages whose outcome is not known, in flight or not."""
        self.messages = 0
        self.hurry = 0
        """While > 0 nothing lingers: someone flushes, closes or waits for room."""

    def has_room(self, size: int, count: int = 1) -> bool:
        """Return True if `size` more bytes and `count` messages fit; an empty buffer always has room."""
        settings = self._settings
        return not self.messages or (
            self.bytes + size <= settings.buffer_memory and self.messages + count <= settings.buffer_messages
        )

    def append(
        self,
        tp: TopicPartition,
        message: EncodedMessage,
        size: int,
        since_ms: float | None = None,
    ) -> ProducerBatch:
        """Put a message (value, key, headers, timestamp) last in its partition; returns the batch that it ends.

        `since_ms`: when it was sent, if that was before: its delivery timeout counts from then.
        """
        batch = self.batch_for(tp, size)
        if since_ms is not None and since_ms < batch.created_ms:
            batch.created_ms = since_ms
        batch.add(*message)
        batch.bytes += size
        self.bytes += size
        self.messages += 1
        return batch

    def append_plain(self, batch: ProducerBatch, value: bytes) -> int:
        """Put a message that is nothing but a value into this batch: its number there, or -1 if it has to go elsewhere.

        For runs of `send` with a sticky partitioner, which would choose the same batch until the turn of its partition
        ends.
        """
        size = RECORD_OVERHEAD + len(value)
        batch_bytes, held, index = batch.bytes + size, self.bytes + size, batch.count
        if (
            batch_bytes > batch.run_end
            or held > self._bytes_max
            or index >= self._batch_messages
            or self.messages >= self._messages_max
        ):
            return -1
        batch.values.append(value)
        batch.count = index + 1
        batch.bytes = batch_bytes
        self.bytes = held
        self.messages += 1
        return index

    def append_keyed(self, batch: ProducerBatch, key: bytes, value: bytes) -> int:
        """Put a message of a key and a value into this batch: its number there, or -1 if it has to go elsewhere.

        For runs of `send` with keys that a partitioner hashes, which choose the same batch while it is open.
        """
        size = RECORD_OVERHEAD + len(key) + len(value)
        batch_bytes, held, index = batch.bytes + size, self.bytes + size, batch.count
        keys = batch.keys
        if (
            batch_bytes > batch.keyed_end
            or held > self._bytes_max
            or index >= self._batch_messages
            or self.messages >= self._messages_max
            or keys is None
        ):
            return -1
        keys.append(key)
        batch.values.append(value)
        batch.count = index + 1
        batch.bytes = batch_bytes
        self.bytes = held
        self.messages += 1
        return index

    def begin_keyed_run(self, batch: ProducerBatch, end: int) -> None:
        """Let `append_keyed` fill an open batch of keys and values alone up to `end` bytes."""
        has_more = batch.keys is None or batch.headers is not None or batch.timestamps is not None
        batch.keyed_end = 0 if batch.full or has_more else end

    def begin_run(self, batch: ProducerBatch, end: int) -> None:
        """Let `append_plain` fill an open batch of values alone up to `end` bytes."""
        batch.run_end = 0 if batch.full or batch.columns else end

    def extend(
        self, batch: ProducerBatch, values: list[bytes], ends: Sequence[int], start: int, most: int | None = None
    ) -> int:
        """Append the values from `start` on to the batch (see `batch_for`), as many as fit and at least one.

        `ends` has the bytes of the messages up to each one (see `bytes_up_to`). With `most` the batch gets up to that
        many bytes, and stays open. Returns the number of values appended.
        """
        before = ends[start - 1] if start else 0
        fits = bisect_right(ends, (most or self._settings.batch_size) - batch.bytes + before, start)
        end = max(start + 1, min(fits, start + self._settings.batch_messages - batch.count))
        size = ends[end - 1] - before
        batch.add_values(values[start:end])
        batch.bytes += size
        if end < len(values) and most is None:
            self._close(batch)
        self.bytes += size
        self.messages += end - start
        return end - start

    def put(self, batch: ProducerBatch) -> None:
        """Append a batch that takes no further messages to its partition."""
        queue = self._queues.setdefault(batch.tp, _BatchQueue())
        if queue.batches:
            self._close(queue.batches[-1])
        batch.bytes += HEADER_SIZE
        self.unsettled.add(batch)
        queue.batches.append(batch)
        self.bytes += batch.bytes
        self.messages += batch.count

    def drain_ready(
        self,
        now_ms: float,
        sendable: Callable[[TopicPartition], bool],
        has_moved: Callable[[ProducerBatch], bool] = lambda _: False,
    ) -> tuple[list[ProducerBatch], float]:
        """Return the batches to send now, at most one per partition, and when the next one is due.

        A batch is due when it is full, has lingered, or is to be tried again: after a pause, or at once where
        `has_moved` says that there is another leader to try. `sendable` says whether there is a leader with capacity.
        What is taken stays in flight until `give_back` or `complete_batch`.
        """
        taken: list[ProducerBatch] = []
        wake = NEVER
        for tp, queue in self._queues.items():
            if queue.in_flight or not queue.batches:
                continue
            due = self._due_ms(queue)
            if due > now_ms and not (queue.batches[0].attempts and has_moved(queue.batches[0])):
                wake = min(wake, due)
            elif sendable(tp):
                queue.in_flight = True
                batch = queue.batches.popleft()
                self._close(batch)
                taken.append(batch)
        return taken, wake

    def expire(self, now_ms: float) -> tuple[list[ProducerBatch], float]:
        """Take out the batches, not in flight, that were not delivered in time; and when the next one will be such."""
        timeout_ms = self._settings.delivery_timeout_ms
        late: list[ProducerBatch] = []
        wake = NEVER
        for queue in self._queues.values():
            while queue.batches and queue.batches[0].created_ms + timeout_ms <= now_ms:  # as below, to the last bit
                late.append(queue.batches.popleft())
            if queue.batches:
                wake = min(wake, queue.batches[0].created_ms + timeout_ms)
        for batch in late:
            self._release(batch)
        return late, wake

    def give_back(self, batch: ProducerBatch) -> None:
        """A batch that was in flight is first in line again."""
        queue = self._queues[batch.tp]
        queue.batches.appendleft(batch)
        queue.in_flight = False

    def split(self, batch: ProducerBatch) -> None:
        """The halves of a batch that was in flight are first in line in its place."""
        halves = batch.split()
        self.unsettled.discard(batch)
        self.unsettled.update(halves)
        queue = self._queues[batch.tp]
        queue.batches.extendleft(reversed(halves))
        queue.in_flight = False

    def complete_batch(self, batch: ProducerBatch) -> None:
        """The outcome of a batch that was in flight is known: its memory is free."""
        self._queues[batch.tp].in_flight = False
        self._release(batch)

    def waiting(self) -> Iterator[TopicPartition]:
        """Return the partitions with batches that are not in flight."""
        return (tp for tp, queue in self._queues.items() if queue.batches)

    def drain_all(self, *, tried: bool = True) -> list[ProducerBatch]:
        """Take the batches that are not in flight, to fail them; without `tried` only those without a sequence."""
        batches: list[ProducerBatch] = []
        for queue in self._queues.values():
            left = [] if tried else [batch for batch in queue.batches if batch.base_sequence >= 0]
            batches += [batch for batch in queue.batches if tried or batch.base_sequence < 0]
            queue.batches = deque(left)
        for batch in batches:
            self._release(batch)
        return batches

    def hold(self, size: int) -> None:
        """Count a message that waits elsewhere; a negative size gives it back."""
        self.bytes += size
        self.messages += 1 if size > 0 else -1

    def _release(self, batch: ProducerBatch) -> None:
        self._close(batch)
        self.unsettled.discard(batch)
        self.bytes -= batch.bytes
        self.messages -= batch.count

    def batch_for(self, tp: TopicPartition, size: int) -> ProducerBatch:
        """Return the batch that the next `size` bytes of a partition go to."""
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = _BatchQueue()
        settings = self._settings
        if queue.batches:
            batch = queue.batches[-1]
            if not batch.full and batch.bytes + size <= settings.batch_size and batch.count < settings.batch_messages:
                return batch
            self._close(batch)
        batch = ProducerBatch(tp, self._clock.monotonic_ms(), self._clock.now_ms())
        self.unsettled.add(batch)
        batch.bytes = HEADER_SIZE
        self.bytes += HEADER_SIZE
        queue.batches.append(batch)
        return batch

    def _close(self, batch: ProducerBatch) -> None:
        if not batch.full:
            batch.full = True
            batch.run_end = batch.keyed_end = 0
            self._closed(batch.tp)

    def _due_ms(self, queue: _BatchQueue) -> float:
        head = queue.batches[0]
        if head.attempts:
            return head.not_before_ms
        if self.hurry or head.full or len(queue.batches) > 1 or self._is_full(head):
            return -NEVER
        return head.created_ms + self._settings.linger_ms

    def _is_full(self, batch: ProducerBatch) -> bool:
        return batch.count >= self._settings.batch_messages or batch.bytes >= self._settings.batch_size
