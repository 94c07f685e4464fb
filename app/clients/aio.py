"""Producer and Consumer for asyncio: thin coats over the ordinary ones, whose work has a thread of its own anyway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...ports.words import TopicPartition
from .consumer import Consumer
from .producer import Producer

if TYPE_CHECKING:
    from types import TracebackType

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

    async with AsyncConsumer("localhost:9092") as consumer:
        await consumer.assign("views", position="earliest")
        async for message in consumer.messages():
            print(message.value)
    """

    def __init__(self, bootstrap: object, **settings: Any) -> None:
        self.consumer = Consumer(bootstrap, **settings)
        """The ordinary one, for what has no coat."""

    async def assign(self, what: Any, **more: Any) -> list[TopicPartition]:
        """As `Consumer.assign`."""
        return await asyncio.to_thread(partial(self.consumer.assign, what, **more))

    async def poll_many(self, max_messages: int | None = None, timeout: float = 0.0) -> list[Message]:
        """As `Consumer.poll_many`."""
        return await asyncio.to_thread(self.consumer.poll_many, max_messages, timeout)

    async def messages(self, *, stop_at_end: bool = False) -> AsyncIterator[Message]:
        """Messages for ever; with `stop_at_end` up to where the log of each partition ends now."""
        ends = await self.end_offsets() if stop_at_end else None
        while ends is None or not await asyncio.to_thread(self.consumer.reached, ends):
            for message in await self.poll_many(timeout=_WAIT_S):
                if ends is None or message.offset < ends[TopicPartition(message.topic, message.partition)]:
                    yield message

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def end_offsets(self, places: Iterable[Any] | None = None) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return await asyncio.to_thread(self.consumer.end_offsets, places)

    async def close(self) -> None:
        """Stop fetching and hang up."""
        await asyncio.to_thread(self.consumer.close)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
