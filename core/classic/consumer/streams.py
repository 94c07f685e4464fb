"""Streams of messages: fetchers put chunks in, users take messages out, with one queue per stream.

Two sides meet at a queue: the owner of the consumer, and the reader of the stream. A message is handed out and counted
as consumed in one step, `StreamReader.take_message`, so that a partition that is taken away hands out nothing further,
and its consumed offset stands. Where they are two threads, a shell guards each step of either side (`StreamFeed`,
`take_message`).
"""

from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple, Protocol

from ....ports.errors import BarnabasError
from ....ports.values import define
from ...client.errors import DecodeError
from ...client.serde import Decoder
from ...message.classic.message_set import ClassicMessageSet
from ..registry.layout import BrokerPartition

_new = tuple.__new__  # a stream makes millions of messages


class StreamMessage(NamedTuple):
    """A message as a stream hands it out.

    A named tuple like `Message`, with the broker that the partition belongs to. `offset` is the next one to fetch
    after this message (facts A2). Shallow iteration gives the `codec_id` of a wrapper, whose value is compressed.
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
    """A partition while it is ours. Belongs to its owner, but for `consumed` and `stopped`: to the queue."""

    topic: str
    place: BrokerPartition
    feed: "StreamFeed"
    max_bytes: int
    """The size of the next fetch; it grows while a message is larger."""
    fetch_offset: int = -1
    """The offset where the next fetch begins; -1 while that is looked up."""
    lookup: int | None = None
    """The time that the broker is to be asked the offset of: EARLIEST, LATEST."""
    out_of_range: bool = False
    """The lookup follows an offset that the broker does not have."""
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
    """The result of a fetch of one partition: messages, or an error that the reader raises when it gets there."""

    partition: OwnedPartition
    messages: ClassicMessageSet
    fetch_offset: int
    next_offset: int
    error: BarnabasError | None = None


class StreamFeed(Protocol):
    """The owner's side of a queue."""

    @property
    def full(self) -> bool:
        """True if nothing more need be fetched for now."""
        ...

    def put(self, chunk: FetchedDataChunk) -> None:
        """Add a chunk; one with an error stops its partition."""
        ...

    def jump(self, partition: OwnedPartition, offset: int) -> bool:
        """Continue at `offset`; at once, or (False) when the reader has read what it still has of the partition."""
        ...

    def drop(self, partitions: Container[OwnedPartition]) -> None:
        """Hand out nothing more of these; their `consumed` stands when this returns."""
        ...

    def restart(self, partition: OwnedPartition, consumed: int | None) -> None:
        """Forget what was fetched of the partition, and its error; it continues at `consumed`."""
        ...

    def hold(self, held: bool) -> None:
        """Hand out nothing until it is taken back."""
        ...

    def fail(self, error: BarnabasError) -> None:
        """Have the reader raise this next, once."""
        ...

    def end(self) -> None:
        """Hand out nothing more; the reader learns that the stream has ended."""
        ...


class StreamQueue:
    """Chunks on their way to one stream. Fulfils `StreamFeed` where one thread does everything."""

    def __init__(self, capacity: int) -> None:
        self.ended = False
        self.held = False
        """True while nothing is handed out."""
        self.current: FetchedDataChunk | None = None
        """The chunk in the reader's hand."""
        self._capacity = capacity
        self._chunks: deque[FetchedDataChunk] = deque()
        self._failure: BarnabasError | None = None

    # --- the owner's side

    @property
    def full(self) -> bool:
        return len(self._chunks) >= self._capacity

    def put(self, chunk: FetchedDataChunk) -> None:
        partition = chunk.partition
        if self.ended or partition.stopped:
            return
        partition.stopped = chunk.error is not None
        self._chunks.append(chunk)

    def jump(self, partition: OwnedPartition, offset: int) -> bool:
        if any(chunk.partition is partition for chunk in (*self._chunks, self.current) if chunk is not None):
            self._chunks.append(FetchedDataChunk(partition, ClassicMessageSet(b"", from_offset=offset), offset, offset))
            return False
        partition.consumed = offset
        return True

    def drop(self, partitions: Container[OwnedPartition]) -> None:
        self._chunks = deque(chunk for chunk in self._chunks if chunk.partition not in partitions)
        if self.current is not None and self.current.partition in partitions:
            self.current = None

    def restart(self, partition: OwnedPartition, consumed: int | None) -> None:
        self.drop((partition,))
        partition.consumed = consumed
        partition.stopped = False

    def hold(self, held: bool) -> None:
        self.held = held

    def fail(self, error: BarnabasError) -> None:
        self._failure = error

    def end(self) -> None:
        self.ended = True
        self._chunks.clear()
        self.current = self._failure = None

    # --- the reader's side

    @property
    def waiting(self) -> bool:
        """True if the reader need not wait."""
        return (bool(self._chunks or self.current) and not self.held) or self.ended or self._failure is not None

    def next_chunk(self) -> FetchedDataChunk | None:
        """Put the next chunk in hand; None if there is none. Raises what `fail` was given, and a chunk's error."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if not self._chunks:
            return None
        chunk = self._chunks.popleft()
        if chunk.error is not None:
            raise chunk.error
        self.current = chunk
        chunk.partition.consumed = chunk.fetch_offset  # differs only after a jump
        return chunk

    def finish(self, chunk: FetchedDataChunk) -> None:
        """The chunk in hand is read."""
        chunk.partition.consumed = chunk.next_offset
        self.current = None

    def stop_at(self, chunk: FetchedDataChunk) -> None:
        """Stop the partition of a chunk that cannot be read further: no message is skipped, a seek continues."""
        chunk.partition.stopped = True
        self.drop((chunk.partition,))


def decoded_value(decoder: Decoder, message: StreamMessage) -> Any:
    """Raises `DecodeError`."""
    try:
        return decoder.decode(message.topic, message.value)
    except Exception as error:
        where = f"{message.topic} {message.place} before offset {message.offset}"
        raise DecodeError(f"the message of {where} cannot be decoded: {error}") from error


class StreamReader:
    """Takes messages out of one queue, in steps: `take` one; where that gives none, `read_on`, and `take` again.

    `take` is quick, and the one step that touches the queue: it is what is guarded from the owner. What takes time,
    opening and checking messages and what plugins do, stands in the others. One thread at a time.
    """

    def __init__(
        self, queue: StreamQueue, room: Callable[[], None], decoder: Decoder | None = None, *, shallow: bool = False
    ) -> None:
        """`room` is called, by `read_on`, when a queue that was full no longer is.

        `decoder` None: values stay bytes. It is not asked for the values of unopened wrappers.
        """
        self.queue = queue
        self._room = room
        self._decoder = decoder
        self._shallow = shallow
        self._chunk: FetchedDataChunk | None = None
        self._runs: Iterator[list[Any]] = iter(())
        """The part of the chunk that is not read yet."""
        self._read: Iterator[Any] = iter(())
        """The messages that were read and not taken yet."""
        self._wants_more = False
        """All that was read is taken."""
        self._at_end = False
        self._error: Exception | None = None
        """The reason why the chunk cannot be read further."""
        self._made_room = False

    def poll(self) -> StreamMessage | None:
        """Return the next message, decoded; None if there is none now or, with `queue.ended`, if none will come.

        Raises what `take_message`, `decoded` and `read_on` raise.
        """
        while True:
            message = self.take_message()
            if message is not None:
                return self.decoded(message)
            if not self.read_on():
                return None

    def take_message(self) -> StreamMessage | None:
        """Return the next message that has been read, and count it as consumed; None if there is none.

        Raises the error of a partition that cannot be read, once: the next call continues with the others, and with
        that one after a seek. Raises `ConsumerRebalanceFailed`.
        """
        queue, chunk = self.queue, self._chunk
        if queue.held:
            return None
        if chunk is not None and queue.current is chunk:  # else it was taken out of the hand: nothing of it goes out
            message = next(self._read, None)
            if message is not None:
                partition = chunk.partition
                partition.consumed = offset = message.offset
                broker_id, number = partition.place
                codec_id = message.codec_id if self._shallow else 0
                return _new(StreamMessage, (message.value, partition.topic, broker_id, number, offset, codec_id))
            if not self._at_end:
                self._wants_more = True
                return None
        self._next_chunk()
        return None

    def read_on(self) -> bool:
        """Read some messages, if all that were read are taken; False: there are none to take now."""
        if self._made_room:
            self._made_room = False
            self._room()
        if not self._wants_more:
            return False
        self._wants_more = False
        try:
            run = next(self._runs, None)
        except Exception as error:  # noqa: BLE001  whatever a codec raises: `take` raises it when it gets there
            run, self._error = None, error
        self._at_end = run is None
        self._read = iter(run or ())
        return True

    def decoded(self, message: StreamMessage) -> StreamMessage:
        """Return the message with its value decoded. Raises `DecodeError`."""
        if self._decoder is None or message.codec_id:
            return message
        return message._replace(value=decoded_value(self._decoder, message))

    def _next_chunk(self) -> None:
        queue, chunk, error = self.queue, self._chunk, self._error
        self._chunk = self._error = None
        self._wants_more = False
        if chunk is not None and queue.current is chunk:
            if error is not None:
                queue.stop_at(chunk)
                raise error
            queue.finish(chunk)
        was_full = queue.full
        try:
            self._chunk = chunk = queue.next_chunk()
        finally:
            self._made_room |= was_full and not queue.full
        if chunk is not None:
            self._runs = _runs(chunk.messages, self._shallow)
            self._at_end, self._wants_more = False, True


def _runs(messages: ClassicMessageSet, shallow: bool) -> Iterator[list[Any]]:
    """Yield runs of messages; nothing is read before the first is asked for."""
    if shallow:
        yield from ([message] for message in messages.shallow())
    else:
        yield from messages.runs()
