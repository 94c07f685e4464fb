"""Clients of servers with other protocols: RabbitMQ by pika, NATS JetStream by nats-py, Redis Streams by redis-py. They
send persistent messages and read all of them; a batch is what the library can have under way at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from itertools import islice
from typing import Any

from ....ports.errors import BarnabasError
from .clients import AT_ONCE, PATIENCE_S, Client, Passed, Workload
from .servers import MeasuredServer, NotInstalledError, kafka_server, nats_server, rabbitmq_server, redis_server

_NAME = "bench"


def _library(module: str, package: str, server: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise NotInstalledError(f"{server} is not measured: its client is missing: pip install {package}") from None


def _portions(messages: int) -> Iterator[int]:
    for start in range(0, messages, AT_ONCE):
        yield min(AT_ONCE, messages - start)


class RabbitClient:
    """One durable queue of RabbitMQ; publishes without waiting for each, and consumes with acknowledgements."""

    def __init__(self, address: str, workload: Workload) -> None:
        self._pika = _library("pika", "pika", "RabbitMQ")
        host, _, port = address.partition(":")
        parameters = self._pika.ConnectionParameters(host, int(port), heartbeat=0)
        self._connection = self._pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.queue_declare(_NAME, durable=True)
        self._bodies = workload.bodies()

    def send(self, messages: int, passed: Passed) -> None:
        self._channel.queue_purge(_NAME)
        properties = self._pika.BasicProperties(delivery_mode=2)
        for size in _portions(messages):
            for each in range(size):
                self._channel.basic_publish("", _NAME, self._bodies[each % len(self._bodies)], properties)
            passed(size)
        self._channel.queue_declare(_NAME, durable=True, passive=True)

    def receive(self, messages: int, passed: Passed) -> None:
        self._channel.basic_qos(prefetch_count=AT_ONCE)
        deliveries = self._channel.consume(_NAME, inactivity_timeout=PATIENCE_S)
        for size in _portions(messages):
            for method, _, _ in islice(deliveries, size):
                if method is None:
                    raise BarnabasError(f"RabbitMQ delivered no message within {PATIENCE_S:.0f} s")
            self._channel.basic_ack(method.delivery_tag, multiple=True)
            passed(size)
        self._channel.cancel()

    def close(self) -> None:
        self._connection.close()


class NatsClient:
    """One stream of NATS JetStream on files."""

    def __init__(self, address: str, workload: Workload) -> None:
        nats = _library("nats", "nats-py", "NATS")
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(nats.connect(f"nats://{address}"))
        self._stream = self._connection.jetstream(publish_async_max_pending=AT_ONCE)
        self._bodies = workload.bodies()
        self._loop.run_until_complete(self._stream.add_stream(name=_NAME, subjects=[_NAME]))

    def send(self, messages: int, passed: Passed) -> None:
        self._loop.run_until_complete(self._stream.purge_stream(_NAME))
        self._loop.run_until_complete(self._send(messages, passed))

    async def _send(self, messages: int, passed: Passed) -> None:
        for size in _portions(messages):
            for each in range(size):
                await self._stream.publish_async(_NAME, self._bodies[each % len(self._bodies)])
            passed(size)
        await self._stream.publish_async_completed()

    def receive(self, messages: int, passed: Passed) -> None:
        self._loop.run_until_complete(self._receive(messages, passed))

    async def _receive(self, messages: int, passed: Passed) -> None:
        subscription = await self._stream.pull_subscribe(_NAME)
        left = messages
        while left:
            found = await subscription.fetch(min(AT_ONCE, left), timeout=PATIENCE_S)
            for message in found:
                await message.ack()
            left -= len(found)
            passed(len(found))
        await subscription.unsubscribe()

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


class RedisClient:
    """One stream of Redis, written by pipelines of `AT_ONCE` commands."""

    def __init__(self, address: str, workload: Workload) -> None:
        redis = _library("redis", "redis", "Redis")
        host, _, port = address.partition(":")
        self._connection = redis.Redis(host=host, port=int(port))
        self._bodies = workload.bodies()

    def send(self, messages: int, passed: Passed) -> None:
        self._connection.delete(_NAME)
        for size in _portions(messages):
            pipeline = self._connection.pipeline(transaction=False)
            for each in range(size):
                pipeline.xadd(_NAME, {"m": self._bodies[each % len(self._bodies)]})
            pipeline.execute()
            passed(size)

    def receive(self, messages: int, passed: Passed) -> None:
        last: bytes | str = "0"
        left = messages
        while left:
            found = self._connection.xread({_NAME: last}, count=min(AT_ONCE, left))
            if not found:
                raise BarnabasError(f"Redis has {left} messages less than were sent")
            entries = found[0][1]
            last = entries[-1][0]
            left -= len(entries)
            passed(len(entries))

    def close(self) -> None:
        self._connection.close()


PEERS: Mapping[
    str, tuple[str, Callable[[], AbstractContextManager[MeasuredServer]], Callable[[str, Workload], Client] | None]
] = {
    "kafka": ("Apache Kafka", kafka_server, None),
    "rabbitmq": ("RabbitMQ", rabbitmq_server, RabbitClient),
    "nats": ("NATS JetStream", nats_server, NatsClient),
    "redis": ("Redis Streams", redis_server, RedisClient),
}
"""Name, server, and client; without a client of its own a server speaks Kafka's protocol."""
