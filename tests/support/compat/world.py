"""A broker with the clients that a test asks for, and what the test itself needs: our own producer and readers."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from support.waiting import wait_for

from barnabas.app.clients.admin.admin import Admin
from barnabas.app.clients.consumer.simple_consumer import SimpleConsumer
from barnabas.app.clients.producer.producer import Producer
from barnabas.app.embedded_broker import Broker
from barnabas.core.message.batch_header import BatchHeader
from barnabas.ports.broker_api.transactions import DescribedTransaction
from barnabas.ports.types import TopicPartition

from .model import HEARTBEAT_MS, PATIENCE_S, Client, Record, Unavailable

_CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,
    # in groups by KIP-848 and in share groups the broker says how often a member sends heartbeats
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.share.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.share.min.heartbeat.interval.ms": HEARTBEAT_MS,
}


class World:
    """Clients are made when they are first asked for, and kept; topics and groups have names of their own."""

    def __init__(self, makers: Mapping[str, Callable[[str], Client]]) -> None:
        self._makers = makers
        self._clients: dict[str, Client] = {}
        self._unavailable: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._open = ExitStack()
        self.broker = self._open.enter_context(Broker(storage="memory", config=_CONFIG))
        self.admin = self._open.enter_context(Admin(self.broker))
        self._simple = self._open.enter_context(SimpleConsumer(self.broker))

    def close(self) -> None:
        """All clients, then the broker."""
        self._open.close()

    def client(self, key: str) -> Client:
        """Raises `Unavailable`, each time it is asked for."""
        if key in self._unavailable:
            raise Unavailable(self._unavailable[key])
        if key not in self._clients:
            try:
                client = self._makers[key](self.broker.bootstrap)
            except Unavailable as error:
                self._unavailable[key] = str(error)
                raise
            self._clients[key] = client
            self._open.callback(client.close)
        return self._clients[key]

    def name(self, what: str) -> str:
        return f"{what}-{next(self._numbers)}"

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """Create a topic."""
        name = self.name("topic")
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topic(name, partitions=partitions, configs=dotted)
        return name

    def send(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        codec: str = "none",
        max_bytes: int = 1 << 20,
    ) -> None:
        """Write as our own producer does."""
        with Producer(
            self.broker, compression_type=codec, max_request_size=max_bytes, batch_size=max_bytes
        ) as producer:
            for record in records:
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=partition,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            producer.confirm(PATIENCE_S)

    def spread(self, topic: str, values: Sequence[bytes], partitions: int) -> None:
        """Write the values to all partitions in turn."""
        with Producer(self.broker) as producer:
            for number, value in enumerate(values):
                producer.send(topic, value, partition=number % partitions)
            producer.confirm(PATIENCE_S)

    def end(self, topic: str) -> int:
        return self.admin.list_offsets({(topic, 0): "latest"}).popitem()[1]

    def stored(self, topic: str) -> list[Record]:
        """Return the records of partition 0 at the broker."""
        return [
            Record(
                value=message.value,
                key=message.key,
                headers=tuple(message.headers),
                timestamp_ms=message.timestamp_ms,
                partition=message.partition,
                offset=message.offset,
            )
            for piece in self._simple.read(topic, 0, 0)
            for message in piece
        ]

    def committed(self, topic: str) -> list[bytes | None]:
        """Return the values in partition 0, without those of transactions that are open or aborted."""
        with SimpleConsumer(self.broker, isolation_level="read_committed") as reader:
            return [message.value for piece in reader.read(topic, 0, 0) for message in piece]

    def group_type(self, group: str) -> str:
        return next(each.group_type for each in self.admin.list_groups() if each.group_id == group)

    def epoch(self, name: str) -> int:
        """Return the producer epoch of a transactional id, when its transaction is over."""

        def found() -> DescribedTransaction:
            return self.admin.describe_transactions([name])[0]

        wait_for(lambda: found().state.startswith("Complete"), PATIENCE_S)
        return found().producer_epoch

    def position(self, group: str, topic: str) -> int | None:
        """Return the committed offset of the group in partition 0."""
        found = self.admin.group_offsets(group).get(TopicPartition(topic, 0))
        return None if found is None else found.offset

    def batches(self, topic: str) -> list[BatchHeader]:
        """Return the headers of the batches in partition 0, as they were produced."""
        return [header for piece in self._simple.read(topic, 0, 0) for header in piece.batches()]
