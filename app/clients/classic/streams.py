"""What users iterate: the messages of one stream."""

import threading
from collections.abc import Iterator

from ....core.classic.consumer.settings import ConsumerTimeout
from ....core.classic.consumer.streams import StreamMessage, StreamReader


class StreamBell:
    """A lock, and a condition on it to wait for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.condition = threading.Condition(self.lock)
        self.ring = self.condition.notify_all


class MessageStream(Iterator[StreamMessage]):
    """A blocking iterator over the messages that the group gives to this stream. One thread at a time.

    A message counts as consumed when it is handed out (facts A8). Ends when the connector is shut down. Raises
    `ConsumerTimeout` when none came within `consumer.timeout.ms`, `ConsumerRebalanceFailed`, `EncodeError` from the
    decoder, and what is wrong with a partition; after any of them it can be iterated on. A partition with an error
    gives nothing more until `ConsumerConnector.seek`.
    """

    def __init__(self, reader: StreamReader, bell: StreamBell, timeout_s: float | None) -> None:
        """`bell` is the one of the reader's queue."""
        self._reader = reader
        self._bell = bell
        self._timeout_s = timeout_s

    def __next__(self) -> StreamMessage:
        message = self._reader.poll()
        if message is None:
            message = self._wait(self._timeout_s)
        if message is not None:
            return message
        if self._reader.queue.ended:
            raise StopIteration
        raise ConsumerTimeout(f"no message within {self._timeout_s} s")

    def poll(self, timeout: float | None = 0.0) -> StreamMessage | None:
        """The next message; None if none comes within `timeout` seconds (None: wait for ever), or at the end.

        Raises what iterating raises.
        """
        message = self._reader.poll()
        return message if message is not None or timeout == 0 else self._wait(timeout)

    @property
    def ended(self) -> bool:
        """True when the connector was shut down: nothing comes any more."""
        return self._reader.queue.ended

    def _wait(self, timeout_s: float | None) -> StreamMessage | None:
        queue = self._reader.queue
        while True:
            with self._bell.lock:
                if not self._bell.condition.wait_for(lambda: queue.waiting, timeout_s):
                    return None
            message = self._reader.poll()
            if message is not None or queue.ended:
                return message
            # What was there is gone again, or was no message: a partition was taken away, or a chunk was empty.
