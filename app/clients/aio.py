"""Producer and Consumer for asyncio: thin wrappers of the ordinary ones, whose work has its own thread anyway."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from ...core.message.message import KeyT_co, ShareMessage, ValueT_co
from ...ports.errors import BarnabasError, ConfigError
from ...ports.types import TopicPartition
from .consumer.consumer import Consumer, consumer_defaults
from .consumer.partition_finder import StartOffset, TopicPartitionLike
from .producer.producer import Producer, producer_defaults
from .share.share_consumer import ShareConsumer, share_consumer_defaults
from .shared.foreign_methods import ASYNC_CONSUMER, PRODUCER, SHARE_CONSUMER, explain_foreign_names
from .shared.signature import SettingsSignature
from .shared.typed_settings import AnyProducerKeywords, ConsumerKeywords, ShareConsumerKeywords

if TYPE_CHECKING:
    from types import TracebackType

    from ...core.client.consumer.subscription_state import AtOffset
    from ...core.client.group.events import CommittedOffset
    from ...core.client.producer.handlers import CallbackHandler, EventHandler
    from ...core.client.producer.partitioner import Partitioner
    from ...core.client.producer.producer_batch import Delivery, DeliveryCallback
    from ...core.client.serde import Decoder, Encoder
    from ...core.message.message import Message
    from .consumer.rebalance_listener import PartitionsCallback, RebalanceListener
    from .shared.bootstrap import Bootstrap
    from .shared.connect import Plugins
    from .shared.delivery import DeliveryHandle, ManyHandle

_WAIT_S = 0.5
"""The longest time that a waiting consumer occupies a thread before it checks whether its task was cancelled."""
_ResultT = TypeVar("_ResultT")


@explain_foreign_names(PRODUCER)
class AsyncProducer:
    """A `Producer` that never blocks the event loop; takes the same arguments.

    async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send_and_wait("views", b"/index.html")
        handle = await producer.send("views", b"/about.html")  # not delivered yet: await the handle for that
    """

    __signature__ = SettingsSignature(AnyProducerKeywords, producer_defaults)

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        encoder: str | Encoder | Callable[[Any], bytes | None] | None = None,
        key_encoder: str | Encoder | Callable[[Any], bytes | None] | None = None,
        partitioner: str | Partitioner | None = None,
        event_handler: str | EventHandler | None = None,
        callback_handler: str | CallbackHandler | None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[AnyProducerKeywords],
    ) -> None:
        self._producer = Producer(
            bootstrap,
            encoder=encoder,
            key_encoder=key_encoder,
            partitioner=partitioner,
            event_handler=event_handler,
            callback_handler=callback_handler,
            plugins=plugins,
            config=config,
            **settings,
        )

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> DeliveryHandle:
        """Take a message for delivery, see `Producer.send`; return its handle, before the message is delivered.

        Waits while the buffer is full. Await the handle for the delivery: `await (await producer.send(...))`, or call
        `send_and_wait`.
        """
        send = self._producer.send
        if not (self._producer.would_block or headers or timestamp_ms is not None or on_delivery is not None):
            return send(topic, value, key, partition=partition)
        complete = partial(
            send,
            topic,
            value,
            key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            on_delivery=on_delivery,
        )
        return await asyncio.to_thread(complete) if self._producer.would_block else complete()

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send a message, and return its `Delivery` (topic, partition, offset). Raises the error it failed with."""
        return await (
            await self.send(topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        )

    async def send_many(
        self, topic: str, values: Sequence[Any], *, partition: int | None = None, key: Any = None
    ) -> ManyHandle:
        """Take many messages, see `Producer.send_many`; await the handle for the number of delivered messages."""
        return await asyncio.to_thread(partial(self._producer.send_many, topic, values, partition=partition, key=key))

    async def send_arrow(self, table: object, topic: str, *, partition: int | None = None) -> ManyHandle:
        """Take the rows of a table as messages, see `Producer.send_arrow`."""
        return await asyncio.to_thread(partial(self._producer.send_arrow, table, topic, partition=partition))

    async def partitions(self, topic: str, timeout: float = 30.0) -> int:
        """Return the number of partitions of a topic, see `Producer.partitions`."""
        return await asyncio.to_thread(self._producer.partitions, topic, timeout)

    async def confirm(self, timeout: float | None = 30.0) -> None:
        """Flush, and raise an error if a message did not arrive, see `Producer.confirm`."""
        await asyncio.to_thread(self._producer.confirm, timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything at once, and wait for all outcomes, see `Producer.flush`."""
        await asyncio.to_thread(self._producer.flush, timeout)

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id and epoch, see `Producer.init_transactions`."""
        await asyncio.to_thread(self._producer.init_transactions, timeout)

    @asynccontextmanager
    async def transaction(self, timeout: float | None = None) -> AsyncIterator[Self]:
        """Run a transaction around an `async with` block, see `Producer.transaction`.

        If the task is cancelled within the block, the transaction is aborted, and the task waits for that; it also
        waits for a commit that has begun.
        """
        transactions = self._producer._transactional()
        begin = partial(transactions.begin_transaction, timeout)
        await _to_the_end(begin, undo=lambda: transactions.leave(asyncio.CancelledError(), timeout))
        try:
            yield self
        except BaseException as error:
            await _to_the_end(partial(transactions.leave, error, timeout))
            raise
        await _to_the_end(partial(transactions.leave, None, timeout))

    async def begin_transaction(self, timeout: float | None = None) -> None:
        """Begin a transaction, see `Producer.begin_transaction`."""
        await asyncio.to_thread(self._producer.begin_transaction, timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit the transaction, see `Producer.commit_transaction`."""
        await asyncio.to_thread(self._producer.commit_transaction, timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction, see `Producer.abort_transaction`."""
        await asyncio.to_thread(self._producer.abort_transaction, timeout)

    async def send_offsets(self, offsets: Any, group: Any = None, *, timeout: float | None = None) -> None:
        """Send offsets to the transaction, see `Producer.send_offsets`; takes an `AsyncConsumer`, too."""
        plain = [each.consumer if isinstance(each, AsyncConsumer) else each for each in (offsets, group)]
        await asyncio.to_thread(partial(self._producer.send_offsets, *plain, timeout=timeout))

    async def close(self, timeout: float | None = None) -> None:
        """Deliver everything, then stop."""
        await asyncio.to_thread(self._producer.close, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the producer, as the end of a `Producer`'s block does: raises `DeliveryFailed`."""
        await asyncio.to_thread(self._producer.__exit__, kind, error, trace)


async def _to_the_end(work: Callable[[], object], undo: Callable[[], object] | None = None) -> None:
    """Run `work` on another thread. A cancelled task still waits for it, then calls `undo` if it succeeded."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if undo is not None and running.exception() is None:
            await asyncio.to_thread(undo)
        raise


class _OneAtATime:
    """Runs the calls of a wrapped consumer on other threads, one after the other."""

    def __init__(self) -> None:
        self._left: set[asyncio.Task[Any]] = set()

    def _fail_later(self, error: BarnabasError) -> None:
        """Let the next call raise the error."""
        raise NotImplementedError

    async def _wait_for_earlier(self) -> None:
        """Wait for the threads of cancelled calls."""
        while self._left:
            await asyncio.wait(self._left)

    async def _run(self, work: Callable[[], _ResultT]) -> _ResultT:
        """Run `work` on another thread, after the threads of cancelled calls: the consumer serves one at a time."""
        await self._wait_for_earlier()
        return await asyncio.to_thread(work)

    async def _get(
        self, work: Callable[[], _ResultT], undo: Callable[[_ResultT], object] = lambda _result: None
    ) -> _ResultT:
        """Run `work`, which takes messages, like `_run`; if the caller is cancelled, `undo` gets the result."""
        await self._wait_for_earlier()
        running = asyncio.create_task(asyncio.to_thread(work))

        def ended(_task: asyncio.Task[_ResultT]) -> None:
            self._left.discard(running)
            if running.cancelled():
                return
            error = running.exception()
            if error is None:
                undo(running.result())
            elif isinstance(error, BarnabasError):
                self._fail_later(error)

        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._left.add(running)
            running.add_done_callback(ended)
            raise


@explain_foreign_names(ASYNC_CONSUMER)
class AsyncConsumer(_OneAtATime, Generic[ValueT_co, KeyT_co]):
    """A `Consumer` that never blocks the event loop; takes the same arguments. One task at a time.

    async with AsyncConsumer("localhost:9092", group_id="billing") as consumer:
        await consumer.subscribe("orders")
        async for message in consumer:
            print(message.value)

    Listeners and callbacks run on a thread of the loop's executor, while the consumer waits for messages: they must not
    touch the loop, except by `call_soon_threadsafe`. A task that is cancelled while it waits for messages loses none:
    the next call returns them. That call may wait half a second for the thread of the cancelled one.
    """

    __signature__ = SettingsSignature(ConsumerKeywords, consumer_defaults)

    @overload
    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        decoder: Callable[[bytes], ValueT_co] | Decoder[ValueT_co] | None = None,
        key_decoder: Callable[[bytes], KeyT_co] | Decoder[KeyT_co] | None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[Any, bytes | None],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[Any, KeyT_co],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: Callable[[bytes], KeyT_co] | Decoder[KeyT_co],
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[Any, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[bytes | None, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: None = None,
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[ValueT_co, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: Callable[[bytes], ValueT_co] | Decoder[ValueT_co],
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str | Decoder | Callable[[bytes], Any] | None = None,
        key_decoder: str | Decoder | Callable[[bytes], Any] | None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        decoders: dict[str, Any] = {"decoder": decoder, "key_decoder": key_decoder}
        self.consumer: Consumer[ValueT_co, KeyT_co] = Consumer(
            bootstrap, plugins=plugins, config=config, **decoders, **settings
        )
        """The wrapped `Consumer`, for its other methods."""

    async def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        on_assigned: PartitionsCallback | None = None,
        on_revoked: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
    ) -> None:
        """Subscribe to topics, see `Consumer.subscribe`."""
        await self._run(
            partial(
                self.consumer.subscribe,
                topics,
                pattern=pattern,
                listener=listener,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                on_lost=on_lost,
            )
        )

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Stop reading and leave the group, see `Consumer.unsubscribe`."""
        await self._run(partial(self.consumer.unsubscribe, timeout))

    async def assign(
        self,
        what: str | TopicPartitionLike | Iterable[str | TopicPartitionLike],
        *,
        partitions: Iterable[int] | None = None,
        position: StartOffset | None = None,
        timestamp_ms: int | None = None,
    ) -> list[TopicPartition]:
        """Assign partitions, see `Consumer.assign`."""
        return await self._run(
            partial(self.consumer.assign, what, partitions=partitions, position=position, timestamp_ms=timestamp_ms)
        )

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return self.consumer.assignment

    @property
    def subscription(self) -> list[str]:
        """The subscribed topics; with a pattern, those that match it now."""
        return self.consumer.subscription

    @property
    def paused(self) -> list[TopicPartition]:
        """The assigned partitions that are paused."""
        return self.consumer.paused

    @overload
    def seek(self, place: TopicPartitionLike, position: StartOffset | AtOffset) -> None: ...

    @overload
    def seek(self, topic: str, partition: int, offset: StartOffset | AtOffset, /) -> None: ...

    def seek(self, place: Any, position: Any, offset: Any = None) -> None:
        """Continue reading a partition elsewhere, see `Consumer.seek`; it does not wait, and so is no coroutine."""
        self.consumer.seek(place, position, offset)

    def seek_to_time(self, timestamp_ms: int, places: Iterable[TopicPartitionLike] | None = None) -> None:
        """Continue at the first message of a time, see `Consumer.seek_to_time`; it is no coroutine."""
        self.consumer.seek_to_time(timestamp_ms, places)

    def pause(self, *places: TopicPartitionLike) -> None:
        """Hand out no messages of these partitions, see `Consumer.pause`; it is no coroutine."""
        self.consumer.pause(*places)

    def resume(self, *places: TopicPartitionLike) -> None:
        """Undo `pause`, see `Consumer.resume`; it is no coroutine."""
        self.consumer.resume(*places)

    async def poll(self, timeout: float = 0.0) -> Message[ValueT_co, KeyT_co] | None:
        """Return the next message or None, see `Consumer.poll`."""
        found = await self.poll_many(1, timeout)
        return found[0] if found else None

    async def poll_many(
        self, max_messages: int | None = None, timeout: float = 0.0
    ) -> list[Message[ValueT_co, KeyT_co]]:
        """Return the messages that are there, see `Consumer.poll_many`."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        while True:
            left = max(0.0, deadline - clock())
            found = await self._get(partial(self.consumer.poll_many, max_messages, min(left, _WAIT_S)), self._put_back)
            if found or left <= _WAIT_S:
                return found

    async def messages(self, *, stop_at_end: bool = False) -> AsyncIterator[Message[ValueT_co, KeyT_co]]:
        """Iterate over messages, see `Consumer.messages`; only `stop_at_end` ends the iteration.

        A message counts as handed out when it is yielded.
        """
        consumer = self.consumer
        ends = await self._run(partial(consumer._first_ends, stop_at_end))
        while True:
            for message in consumer._reading.rest(ends):
                yield message
            if not await self._get(partial(consumer._next, _WAIT_S, ends)) and consumer._at_end(ends):
                return

    def __aiter__(self) -> AsyncIterator[Message[ValueT_co, KeyT_co]]:
        return self.messages()

    async def commit(self, what: Any = None, *, timeout: float | None = None) -> None:
        """Commit offsets, see `Consumer.commit`."""
        await self._run(partial(self.consumer.commit, what, timeout=timeout))

    async def committed(
        self, places: Iterable[TopicPartitionLike] | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return committed offsets, see `Consumer.committed`."""
        return await self._run(partial(self.consumer.committed, places))

    async def position(self, place: TopicPartitionLike) -> int:
        """Return the position in a partition, see `Consumer.position`."""
        return await self._run(partial(self.consumer.position, place))

    async def lag(self, places: Iterable[TopicPartitionLike] | None = None) -> dict[TopicPartition, int]:
        """Return the lag of partitions, see `Consumer.lag`."""
        return await self._run(partial(self.consumer.lag, places))

    async def beginning_offsets(self, places: Iterable[TopicPartitionLike] | None = None) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions, see `Consumer.beginning_offsets`."""
        return await self._run(partial(self.consumer.beginning_offsets, places))

    async def offsets_for_times(self, times: Mapping[TopicPartitionLike, int]) -> dict[TopicPartition, int | None]:
        """Return the offsets of the first messages of times, see `Consumer.offsets_for_times`."""
        return await self._run(partial(self.consumer.offsets_for_times, times))

    async def end_offsets(self, places: Iterable[TopicPartitionLike] | None = None) -> dict[TopicPartition, int]:
        """Return the end offsets of partitions, see `Consumer.end_offsets`."""
        return await self._run(partial(self.consumer.end_offsets, places))

    async def close(self, timeout: float | None = None, *, auto_commit: bool = True) -> None:
        """Close the consumer, see `Consumer.close`."""
        await self._run(partial(self.consumer.close, timeout, auto_commit=auto_commit))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(auto_commit=kind is None)

    def _fail_later(self, error: BarnabasError) -> None:
        self.consumer._failure = error

    def _put_back(self, messages: Sequence[Message[Any, Any]]) -> None:
        first: dict[TopicPartition, int] = {}
        for message in messages:
            first.setdefault(TopicPartition(message.topic, message.partition), message.offset)
        for tp, offset in first.items():
            with suppress(ConfigError):  # it is another member's now, which gets them
                self.consumer.seek(tp, offset)


@explain_foreign_names(SHARE_CONSUMER)
class AsyncShareConsumer(_OneAtATime, Generic[ValueT_co, KeyT_co]):
    """A `ShareConsumer` that never blocks the event loop; takes the same arguments. One task at a time.

    async with AsyncShareConsumer("localhost:9092", group_id="thumbnails") as consumer:
        await consumer.subscribe("images")
        async for message in consumer:
            await make_thumbnail(message.value)

    Callbacks run on a thread of the loop's executor: they must not touch the loop, except by `call_soon_threadsafe`. A
    task that is cancelled while it waits for messages loses none: the next call returns them.
    """

    __signature__ = SettingsSignature(ShareConsumerKeywords, share_consumer_defaults)

    @overload
    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        decoder: Callable[[bytes], ValueT_co] | Decoder[ValueT_co] | None = None,
        key_decoder: Callable[[bytes], KeyT_co] | Decoder[KeyT_co] | None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncShareConsumer[Any, bytes | None],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncShareConsumer[Any, KeyT_co],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: Callable[[bytes], KeyT_co] | Decoder[KeyT_co],
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncShareConsumer[Any, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncShareConsumer[bytes | None, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: None = None,
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncShareConsumer[ValueT_co, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: Callable[[bytes], ValueT_co] | Decoder[ValueT_co],
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str | Decoder | Callable[[bytes], Any] | None = None,
        key_decoder: str | Decoder | Callable[[bytes], Any] | None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        decoders: dict[str, Any] = {"decoder": decoder, "key_decoder": key_decoder}
        self.consumer: ShareConsumer[ValueT_co, KeyT_co] = ShareConsumer(
            bootstrap, plugins=plugins, config=config, **decoders, **settings
        )
        """The wrapped `ShareConsumer`, for its other methods."""
        self._back: list[ShareMessage[Any, Any]] = []

    async def subscribe(self, topics: str | Iterable[str]) -> None:
        """Subscribe to topics, see `ShareConsumer.subscribe`."""
        await self._run(partial(self.consumer.subscribe, topics))

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Leave the group, see `ShareConsumer.unsubscribe`."""
        await self._run(partial(self.consumer.unsubscribe, timeout))

    @property
    def subscription(self) -> list[str]:
        """The subscribed topics."""
        return self.consumer.subscription

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions from which this member gets messages now."""
        return self.consumer.assignment

    async def poll(self, timeout: float = 0.0) -> ShareMessage[ValueT_co, KeyT_co] | None:
        """Return the next message or None, see `ShareConsumer.poll`."""
        found = await self.poll_many(1, timeout)
        return found[0] if found else None

    async def poll_many(
        self, max_messages: int | None = None, timeout: float = 0.0
    ) -> list[ShareMessage[ValueT_co, KeyT_co]]:
        """Return the messages that are there, see `ShareConsumer.poll_many`."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        while True:
            left = max(0.0, deadline - clock())
            await self._wait_for_earlier()
            poll = partial(self.consumer.poll_many, max_messages, min(left, _WAIT_S))
            found = self._taken_back(max_messages) or await self._get(poll, self._back.extend)
            if found or left <= _WAIT_S:
                return found

    async def messages(self) -> AsyncIterator[ShareMessage[ValueT_co, KeyT_co]]:
        """Iterate over messages for ever, see `ShareConsumer.messages`."""
        consumer = self.consumer
        await self._wait_for_earlier()
        while self._back:
            yield self._back.pop(0)
        consumer._begin()
        while True:
            for message in consumer._reading.rest():
                yield message
            await self._get(partial(consumer._next, _WAIT_S))

    def __aiter__(self) -> AsyncIterator[ShareMessage[ValueT_co, KeyT_co]]:
        return self.messages()

    def acknowledge(self, message: ShareMessage[Any, Any], kind: str | int = "accept") -> None:
        """Acknowledge a message, see `ShareConsumer.acknowledge`; it does not wait, and so is no coroutine."""
        self.consumer.acknowledge(message, kind)

    async def commit_sync(self, timeout: float | None = None) -> dict[TopicPartition, BarnabasError | None]:
        """Send the acknowledgements, and return their results, see `ShareConsumer.commit_sync`."""
        return await self._run(partial(self.consumer.commit_sync, timeout))

    def commit_async(self) -> None:
        """Send the acknowledgements without waiting, see `ShareConsumer.commit_async`; it is no coroutine."""
        self.consumer.commit_async()

    async def close(self, timeout: float | None = None, *, accept: bool = True) -> None:
        """Close the consumer, see `ShareConsumer.close`."""
        await self._run(partial(self.consumer.close, timeout, accept=accept and not self._back))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(accept=kind is None)

    def _fail_later(self, error: BarnabasError) -> None:
        self.consumer._failure = error

    def _taken_back(self, max_messages: int | None) -> list[ShareMessage[Any, Any]]:
        """Return messages that a cancelled call has taken."""
        wanted = self.consumer.settings.max_poll_records if max_messages is None else max_messages
        found, self._back[:] = self._back[:wanted], self._back[wanted:]
        return found
