"""The message stream that users iterate."""

import threading
from collections.abc import Container, Iterator

from ....core.classic.consumer.settings import ConsumerTimeout
from ....core.classic.consumer.streams import (
    FetchedDataChunk,
    OwnedPartition,
    StreamMessage,
    StreamQueue,
    StreamReader,
)
from ....ports.errors import BarnabasError


class GuardedFeed:
    """The owner's side of a queue: each call with the lock held that its reader takes messages with."""

    def __init__(self, queue: StreamQueue) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        """Notified of what a reader may wait for."""
        self._queue = queue

    @property
    def full(self) -> bool:
        return self._queue.full

    def put(self, chunk: FetchedDataChunk) -> None:
        with self.changed:
            self._queue.put(chunk)
            self.changed.notify_all()

    def jump(self, partition: OwnedPartition, offset: int) -> bool:
        with self.lock:
            return self._queue.jump(partition, offset)

    def drop(self, partitions: Container[OwnedPartition]) -> None:
        with self.lock:
            self._queue.drop(partitions)

    def restart(self, partition: OwnedPartition, consumed: int | None) -> None:
        with self.lock:
            self._queue.restart(partition, consumed)

    def hold(self, held: bool) -> None:
        with self.changed:
            self._queue.hold(held)
            self.changed.notify_all()

    def fail(self, error: BarnabasError) -> None:
        with self.changed:
            self._queue.fail(error)
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self._queue.end()
            self.changed.notify_all()


class MessageStream(Iterator[StreamMessage]):
    """A blocking iterator over the messages that the group gives to this stream. One thread at a time.

    A message counts as consumed when it is handed out (facts A8). Ends when the connector is shut down. Raises
    `ConsumerTimeout` when none came within `consumer.timeout.ms`, `ConsumerRebalanceFailed`, `DecodeError` from the
    decoder, and what is wrong with a partition; after any of them it can be iterated on. A partition with an error
    gives nothing more until `ConsumerConnector.seek`.
    """

    def __init__(self, reader: StreamReader, feed: GuardedFeed, timeout_s: float | None) -> None:
        """`feed` is the other side of the reader's queue."""
        self._reader = reader
        self._changed = feed.changed
        self._lock = feed.lock
        self._timeout_s = timeout_s

    def __next__(self) -> StreamMessage:
        message = self._next()
        if message is None:
            message = self._wait(self._timeout_s)
        if message is not None:
            return message
        if self._reader.queue.ended:
            raise StopIteration
        raise ConsumerTimeout(f"no message within {self._timeout_s} s")

    def poll(self, timeout: float | None = 0.0) -> StreamMessage | None:
        """Return the next message; None if none comes within `timeout` seconds (None: no limit), or at the end.

        Raises what iterating raises.
        """
        message = self._next()
        return message if message is not None or timeout == 0 else self._wait(timeout)

    @property
    def ended(self) -> bool:
        """True when the connector was shut down: no further message comes."""
        return self._reader.queue.ended

    def _next(self) -> StreamMessage | None:
        """Poll like `StreamReader.poll`, guarded where the reader meets the owner."""
        reader = self._reader
        while True:
            with self._lock:
                message = reader.take_message()
            if message is not None:
                return reader.decoded(message)
            if not reader.read_on():
                return None

    def _wait(self, timeout_s: float | None) -> StreamMessage | None:
        queue = self._reader.queue
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: queue.waiting, timeout_s):
                    return None
            message = self._next()
            if message is not None or queue.ended:
                return message
            # What was there is gone again, or was no message: a partition was taken away, or a chunk was empty.
