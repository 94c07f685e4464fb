"""The steps of a stream's reader: what the owner may do between any two of them."""

import threading

import pytest

from barnabas.app.clients.classic.streams import GuardedFeed, MessageStream
from barnabas.core.classic.consumer.streams import FetchedDataChunk, OwnedPartition, StreamQueue, StreamReader
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.message.classic.message_set import ClassicMessageSet
from barnabas.core.message.classic.writer import encode_set
from barnabas.ports.errors import BarnabasError

VALUES = [b"a", b"b", b"c"]
SET = bytes(encode_set(VALUES))
ENTRY = len(SET) // len(VALUES)


def partition_of(queue: StreamQueue, number: int = 0) -> OwnedPartition:
    return OwnedPartition("t", BrokerPartition(0, number), queue, 1000)


def chunk_of(partition: OwnedPartition, data: bytes = SET) -> FetchedDataChunk:
    return FetchedDataChunk(partition, ClassicMessageSet(data), 0, len(data))


def test_nothing_that_was_read_goes_out_of_a_partition_that_was_taken_away() -> None:
    queue = StreamQueue(2)
    reader = StreamReader(queue, lambda: None)
    partition, other = partition_of(queue), partition_of(queue, 1)
    queue.put(chunk_of(partition))
    queue.put(chunk_of(other))
    first = reader.poll()
    assert first is not None
    assert first.value == b"a"
    queue.drop((partition,))  # the rest of its run is in the reader's hand
    assert partition.consumed == ENTRY
    got = [message and message.partition for message in (reader.poll() for _ in range(4))]
    assert got == [1, 1, 1, None]
    assert partition.consumed == ENTRY


def test_each_step_may_meet_a_partition_that_was_taken_away() -> None:
    queue = StreamQueue(2)
    reader = StreamReader(queue, lambda: None)
    for steps in range(4):
        partition = partition_of(queue)
        queue.put(chunk_of(partition))
        for number in range(steps):
            (reader.read_on if number % 2 else reader.take_message)()
        before = partition.consumed
        queue.drop((partition,))
        assert reader.poll() is None
        assert partition.consumed == before


def test_decode_error_of_revoked_partition_is_not_raised() -> None:
    queue = StreamQueue(2)
    reader = StreamReader(queue, lambda: None)
    partition = partition_of(queue)
    queue.put(chunk_of(partition, SET[:-1] + b"!"))  # the last message has a wrong CRC
    assert [message and message.value for message in (reader.poll(), reader.poll())] == [b"a", b"b"]
    assert reader.take_message() is None
    assert reader.read_on()  # met, and not raised yet
    queue.drop((partition,))
    assert reader.poll() is None
    assert not partition.stopped
    queue.put(chunk_of(partition, SET[:-1] + b"!"))
    with pytest.raises(BarnabasError, match="CRC"):
        while reader.poll() is not None:
            pass
    assert partition.stopped


def test_full_queue_signals_room_from_read_on_not_from_take() -> None:
    observed: list[int] = []
    queue = StreamQueue(1)
    reader = StreamReader(queue, lambda: observed.append(1))
    queue.put(chunk_of(partition_of(queue)))
    assert queue.full
    assert reader.take_message() is None
    assert observed == []
    assert reader.read_on()
    assert observed == [1]
    assert [reader.poll() is not None for _ in range(4)] == [True, True, True, False]
    assert observed == [1]


def test_decoder_and_room_callback_run_without_queue_lock() -> None:
    """A writer never waits for them: during the callbacks another thread gets the lock."""
    queue = StreamQueue(1)
    feed = GuardedFeed(queue)
    free: list[bool] = []

    class Asking:
        def decode(self, topic: str, data: bytes | None) -> bytes | None:
            self.look()
            return data

        def look(self) -> None:
            def get() -> None:
                free.append(feed.lock.acquire(blocking=False))
                feed.lock.release()

            thread = threading.Thread(target=get)
            thread.start()
            thread.join()

    asking = Asking()
    stream = MessageStream(StreamReader(queue, asking.look, asking), feed, 1.0)
    feed.put(chunk_of(OwnedPartition("t", BrokerPartition(0, 0), feed, 1000)))
    assert [next(stream).value for _ in VALUES] == VALUES
    assert free == [True] * 4
