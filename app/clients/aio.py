"""Producer and Consumer for asyncio: thin coats over the ordinary ones, whose work has a thread of its own anyway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...ports.words import TopicPartition
from .consumer import Consumer
from .consumer_places import Place
from .producer import Producer

if TYPE_CHECKING:
    from types import TracebackType

    from ...core.client.group.events import CommittedOffset
    from ...core.message.message import Message
    from .handle import DeliveryHandle, ManyHandle

_WAIT_S = 0.5
"""How long a waiting consumer occupies a thread before it looks whether its task was cancelled."""


class AsyncProducer:
    """A `Producer` that never blocks the event loop; takes the same arguments.

    async with AsyncProducer("localhost:9092") as producer:
        handle = await producer.send("views", b"/index.html")
        delivery = await handle
    """

    def __init__(self, bootstrap: object = None, **settings: Any) -> None:
        self._producer = Producer(bootstrap, **settings)

    async def send(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> DeliveryHandle:
        """As `Producer.send`; waits for room, not for the delivery: await the handle for that."""
        send = partial(self._producer.send, topic, value, key, **more)
        return await asyncio.to_thread(send) if self._producer.would_block else send()

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> Any:
        """Where the message came to stand. Raises the error it failed with."""
        return await (await self.send(topic, value, key, **more))

    async def send_many(self, topic: str, values: Sequence[Any], **more: Any) -> ManyHandle:
        """As `Producer.send_many`; await the handle for the number of messages delivered."""
        return await asyncio.to_thread(partial(self._producer.send_many, topic, values, **more))

    async def flush(self, timeout: float | None = None) -> None:
        await asyncio.to_thread(self._producer.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Deliver everything, then stop."""
        await asyncio.to_thread(self._producer.close, timeout)

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncConsumer:
    """A `Consumer` that never blocks the event loop; takes the same arguments. One task at a time.

    async with AsyncConsumer("localhost:9092", group_id="billing") as consumer:
        await consumer.subscribe("orders")
        async for message in consumer:
            print(message.value)

    Listeners and callbacks are called on a thread of the loop's executor, while messages are waited for: they must not
    touch the loop, except by `call_soon_threadsafe`.
    """

    def __init__(self, bootstrap: object, **settings: Any) -> None:
        self.consumer = Consumer(bootstrap, **settings)
        """The ordinary one, for what has no coat; its properties, `pause`, `resume` and `seek` never wait."""

    async def subscribe(self, topics: str | Iterable[str] | None = None, **more: Any) -> None:
        """As `Consumer.subscribe`."""
        await asyncio.to_thread(partial(self.consumer.subscribe, topics, **more))

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """As `Consumer.unsubscribe`."""
        await asyncio.to_thread(self.consumer.unsubscribe, timeout)

    async def assign(self, what: Any, **more: Any) -> list[TopicPartition]:
        """As `Consumer.assign`."""
        return await asyncio.to_thread(partial(self.consumer.assign, what, **more))

    async def poll(self, timeout: float = 0.0) -> Message | None:
        """As `Consumer.poll`."""
        found = await self.poll_many(1, timeout)
        return found[0] if found else None

    async def poll_many(self, max_messages: int | None = None, timeout: float = 0.0) -> list[Message]:
        """As `Consumer.poll_many`."""
        return await asyncio.to_thread(self.consumer.poll_many, max_messages, timeout)

    async def messages(self, *, stop_at_end: bool = False) -> AsyncIterator[Message]:
        """As `Consumer.messages`; ends by `stop_at_end` only. A message counts as handed out when it is yielded."""
        consumer = self.consumer
        ends = await asyncio.to_thread(consumer._first_ends, stop_at_end)
        while True:
            for message in consumer._reading.rest(ends):
                yield message
            if not await asyncio.to_thread(consumer._next, _WAIT_S, ends) and consumer._at_end(ends):
                return

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def commit(self, what: Any = None, *, timeout: float | None = None) -> None:
        """As `Consumer.commit`."""
        await asyncio.to_thread(partial(self.consumer.commit, what, timeout=timeout))

    async def committed(self, places: Iterable[Place] | None = None) -> dict[TopicPartition, CommittedOffset | None]:
        """As `Consumer.committed`."""
        return await asyncio.to_thread(self.consumer.committed, places)

    async def position(self, place: Place) -> int:
        """As `Consumer.position`."""
        return await asyncio.to_thread(self.consumer.position, place)

    async def lag(self, places: Iterable[Place] | None = None) -> dict[TopicPartition, int]:
        """As `Consumer.lag`."""
        return await asyncio.to_thread(self.consumer.lag, places)

    async def end_offsets(self, places: Iterable[Place] | None = None) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return await asyncio.to_thread(self.consumer.end_offsets, places)

    async def close(self, timeout: float | None = None, *, auto_commit: bool = True) -> None:
        """As `Consumer.close`."""
        await asyncio.to_thread(partial(self.consumer.close, timeout, auto_commit=auto_commit))

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(auto_commit=kind is None)
