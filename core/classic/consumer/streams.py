"""What fetchers put in and users take out: chunks of messages, in queues of one per stream.

Two threads meet here: the owner of the consumer (the reactor) and the one that iterates the stream. A queue's bell
guards both: a message is handed out and counted as consumed in one step, so that a partition that is taken away hands
out nothing any more, and its consumed offset stands.
"""

from collections import deque
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from attrs import define

from ....ports.errors import BarnabasError
from ...client.errors import EncodeError
from ...client.serde import Decoder
from ...message.classic.message_set import ClassicMessageSet
from ..registry.layout import BrokerPartition

_new = tuple.__new__  # a stream makes millions of messages


class Bell(Protocol):
    """What guards a queue, and how those who wait for it are told of a change."""

    @property
    def lock(self) -> AbstractContextManager[Any]: ...

    def ring(self) -> None:
        """Something changed. With the lock held."""
        ...


class SilentBell:
    """For streams that are read on the owner's thread, as the simulation does."""

    lock = nullcontext()

    def ring(self) -> None:
        pass


class StreamMessage(NamedTuple):
    """A message as a stream hands it out.

    A named tuple like `Message`, with the broker that the partition belongs to. `offset` is the next one to fetch
    after this message (facts A2). Shallow iteration tells `codec_id` of a wrapper, whose value is compressed.
    """

    value: Any
    topic: str
    broker_id: int
    partition: int
    offset: int
    codec_id: int = 0

    @property
    def place(self) -> BrokerPartition:
        """The partition among those of all brokers."""
        return BrokerPartition(self.broker_id, self.partition)


@define(eq=False)
class OwnedPartition:
    """A partition while it is ours. Belongs to the owner thread, but for `consumed` and `stopped`: to the bell."""

    topic: str
    place: BrokerPartition
    queue: "StreamQueue"
    max_bytes: int
    """What the next fetch asks for; grows while a message is larger."""
    fetch_offset: int = -1
    """Where the next fetch begins; -1 while that is looked up."""
    lookup: int | None = None
    """The time that the broker is to be asked the offset of: EARLIEST, LATEST."""
    out_of_range: bool = False
    """The lookup follows an offset that the broker does not have (any more)."""
    consumed: int | None = None
    """The next offset that the user gets; None while not known."""
    stopped: bool = False
    """An error was handed to the stream: nothing more comes until a seek."""
    version: int = 0
    """Grows with every jump, so that answers to earlier questions are recognised."""

    @property
    def key(self) -> tuple[str, BrokerPartition]:
        return self.topic, self.place

    def __str__(self) -> str:
        return f"{self.topic} {self.place}"


@define(eq=False)
class FetchedDataChunk:
    """What one fetch brought of one partition: messages, or an error to be raised when the reader gets there."""

    partition: OwnedPartition
    messages: ClassicMessageSet
    fetch_offset: int
    next_offset: int
    error: BarnabasError | None = None


class StreamQueue:
    """Chunks on their way to one stream."""

    def __init__(self, capacity: int, bell: Bell, room: Callable[[], None]) -> None:
        """`room` is called, from the reader's thread, when a queue that was full no longer is."""
        self.lock = bell.lock
        self._ring = bell.ring
        self.ended = False
        self.held = False
        """Nothing is handed out for now."""
        self.current: FetchedDataChunk | None = None
        """The chunk in the reader's hand."""
        self._capacity = capacity
        self._room = room
        self._chunks: deque[FetchedDataChunk] = deque()
        self._failure: BarnabasError | None = None

    # --- the owner's side

    @property
    def full(self) -> bool:
        return len(self._chunks) >= self._capacity

    def put(self, chunk: FetchedDataChunk) -> None:
        """Add a chunk; one with an error stops its partition."""
        with self.lock:
            partition = chunk.partition
            if self.ended or partition.stopped:
                return
            partition.stopped = chunk.error is not None
            self._chunks.append(chunk)
            self._ring()

    def jump(self, partition: OwnedPartition, offset: int) -> bool:
        """Go on at `offset`; at once, or (False) when the reader has read what he still has of the partition."""
        with self.lock:
            held = [chunk for chunk in (*self._chunks, self.current) if chunk and chunk.partition is partition]
            if held:
                self._chunks.append(
                    FetchedDataChunk(partition, ClassicMessageSet(b"", from_offset=offset), offset, offset)
                )
                return False
            partition.consumed = offset
            return True

    def drop(self, partitions: Container[OwnedPartition]) -> None:
        """Hand out nothing more of these; their `consumed` stands when this returns."""
        with self.lock:
            self._forget(partitions)

    def restart(self, partition: OwnedPartition, consumed: int | None) -> None:
        """Forget what was fetched of the partition, and its error; `consumed` is where it goes on."""
        with self.lock:
            self._forget((partition,))
            partition.consumed = consumed
            partition.stopped = False

    def hold(self, held: bool) -> None:
        """Hand out nothing until it is taken back."""
        with self.lock:
            self.held = held
            self._ring()

    def fail(self, error: BarnabasError) -> None:
        """Have the reader raise this next, once."""
        with self.lock:
            self._failure = error
            self._ring()

    def end(self) -> None:
        """Hand out nothing more; the reader is told that this was all."""
        with self.lock:
            self.ended = True
            self._chunks.clear()
            self.current = self._failure = None
            self._ring()

    # --- the reader's side

    @property
    def waiting(self) -> bool:
        """True if the reader need not wait."""
        return (bool(self._chunks or self.current) and not self.held) or self.ended or self._failure is not None

    def take(self) -> FetchedDataChunk | None:
        """The next chunk in hand; None if there is none. Raises what `fail` was given."""
        with self.lock:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if not self._chunks:
                return None
            was_full = self.full
            chunk = self._chunks.popleft()
            if chunk.error is None:
                self.current = chunk
                chunk.partition.consumed = chunk.fetch_offset  # differs only after a jump
        if was_full:
            self._room()
        return chunk

    def finish(self, chunk: FetchedDataChunk) -> None:
        """The chunk is read."""
        with self.lock:
            if self.current is chunk:
                chunk.partition.consumed = chunk.next_offset
                self.current = None

    def stop_at(self, chunk: FetchedDataChunk) -> bool:
        """The chunk cannot be read on: nothing is skipped in silence, a seek says how to go on. False: taken away."""
        with self.lock:
            if self.current is not chunk:
                return False
            chunk.partition.stopped = True
            self._forget((chunk.partition,))
            return True

    def _forget(self, partitions: Container[OwnedPartition]) -> None:
        self._chunks = deque(chunk for chunk in self._chunks if chunk.partition not in partitions)
        if self.current is not None and self.current.partition in partitions:
            self.current = None


class StreamReader:
    """Takes messages out of one queue. One thread at a time."""

    def __init__(self, queue: StreamQueue, decoder: Decoder | None = None, *, shallow: bool = False) -> None:
        """`decoder` None: values stay bytes. It is not asked for the values of unopened wrappers."""
        self.queue = queue
        self._decoder = decoder
        self._shallow = shallow
        self._plain = decoder is None and not shallow
        self._chunk: FetchedDataChunk | None = None
        self._messages: Iterator[Any] = iter(())

    def poll(self) -> StreamMessage | None:
        """The next message, consumed with that; None when there is none now, or (`queue.ended`) ever.

        Raises the error of a partition that cannot be read, a `BarnabasError` or a plugin's, once: the next call goes
        on with the others, and with that one after a seek. Raises `ConsumerRebalanceFailed`, and `EncodeError` from the
        decoder.
        """
        queue, lock = self.queue, self.queue.lock
        while True:
            if queue.held:
                return None
            chunk = self._chunk
            if chunk is None:
                chunk = self._take()
                if chunk is None:
                    return None
            try:
                message = next(self._messages, None)
            except Exception:
                self._chunk = None
                if queue.stop_at(chunk):
                    raise
                continue
            if message is None:
                self._chunk = None
                queue.finish(chunk)
                continue
            partition = chunk.partition
            with lock:
                if queue.current is not chunk:  # taken out of the hand: the message must not go out
                    self._chunk = None
                    continue
                partition.consumed = message.offset
            if self._plain:
                broker_id, number = partition.place
                return _new(StreamMessage, (message.value, partition.topic, broker_id, number, message.offset, 0))
            return self._made(message, partition)

    def _take(self) -> FetchedDataChunk | None:
        chunk = self.queue.take()
        if chunk is not None and chunk.error is not None:
            raise chunk.error
        if chunk is not None:
            self._messages = _messages(chunk, self._shallow)
        self._chunk = chunk
        return chunk

    def _made(self, message: Any, partition: OwnedPartition) -> StreamMessage:
        value, codec_id = message.value, message.codec_id if self._shallow else 0
        broker_id, number = partition.place
        if self._decoder is not None and not codec_id:
            try:
                value = self._decoder.decode(partition.topic, value)
            except Exception as error:
                text = f"the message of {partition} before offset {message.offset} cannot be decoded: {error}"
                raise EncodeError(text) from error
        return StreamMessage(value, partition.topic, broker_id, number, message.offset, codec_id)


def _messages(chunk: FetchedDataChunk, shallow: bool) -> Iterator[Any]:
    """Nothing is read before the first is asked for."""
    yield from chunk.messages.shallow() if shallow else chunk.messages
