"""Produce and consume with asyncio, over a socket.

python examples/clients/async_clients.py
"""

import asyncio

from barnabas import AsyncConsumer, AsyncProducer, Broker


async def talk(bootstrap: str) -> None:
    async with AsyncProducer(bootstrap, linger_ms=1) as producer:
        handles = [await producer.send("views", b"view %d" % number) for number in range(5)]
        for handle in handles:
            print("delivered", await handle)
    async with AsyncConsumer(bootstrap) as consumer:
        await consumer.assign("views", position="earliest")
        async for message in consumer.messages(stop_at_end=True):
            print("read", message.offset, message.value)


if __name__ == "__main__":
    with Broker(storage="memory") as broker:
        asyncio.run(talk(broker.bootstrap))
