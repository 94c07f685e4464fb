"""The clients that are measured: our own, and librdkafka's where it is installed. Both speak Kafka's protocol, so that
they measure Barnabas and Apache Kafka alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import Any, Protocol, runtime_checkable

from ....core.client.producer.producer_batch import Delivery
from ....core.message.message import Message
from ....ports.errors import BarnabasError, ConfigError
from ....ports.report import counted
from ....ports.values import frozen
from ...clients.consumer.consumer import Consumer
from ...clients.producer.producer import Producer

AT_ONCE = 1_000
"""The messages that a client is given, or asks for, at a time."""
OWN, LIBRDKAFKA = "own", "librdkafka"
PATIENCE_S = 120.0
_BODIES = 100
"""The number of different messages: a codec is not to find a single one repeated."""

Passed = Callable[[int], None]
"""Takes the number of messages since the last call. Any thread may call it."""
Acknowledged = Callable[[], object]


@frozen(kw_only=True)
class Workload:
    """The messages of each round, and how they are sent."""

    messages: int
    size: int
    partitions: int = 1
    connections: int = 1
    batch_bytes: int | None = None
    """The largest batch; None: the default of each client."""
    acks: str = "all"
    compression: str = "none"

    @property
    def megabytes(self) -> float:
        return self.messages * self.size / 1e6

    def bodies(self) -> list[bytes]:
        """Return messages of hexadecimal digits, which a codec can halve."""
        return [os.urandom(self.size // 2 + 1).hex().encode()[: self.size] for _ in range(_BODIES)]


class Client(Protocol):
    """A client with its topic or queue."""

    def send(self, messages: int, passed: Passed) -> None:
        """Send messages; return when all are acknowledged."""
        ...

    def receive(self, messages: int, passed: Passed) -> None:
        """Read as many messages as were sent at a time before."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class TimedClient(Client, Protocol):
    """A client that can also send single messages at given times, and transactions."""

    start: int

    def start_timed(self) -> None:
        """Make ready for `send_one`: connect, and let no message wait for others."""
        ...

    def send_one(self, body: bytes, acknowledged: Acknowledged) -> None: ...

    def wait(self, seconds: float) -> None:
        """Let this time pass; acknowledgements are taken meanwhile."""
        ...

    def flush(self) -> None: ...

    def follow(self, arrived: Callable[[bytes], bool]) -> Thread:
        """Return a running thread that gives each new message to `arrived`, until it returns False."""
        ...

    def transactions(self, number: int, messages: int) -> None:
        """Send a number of transactions, one after the other."""
        ...


def shares(sent: Sequence[int], connections: int) -> list[tuple[list[int], int]]:
    """Return the partitions that each connection reads, and how many messages; `sent` is by partition."""
    partitions = len(sent)
    if connections <= partitions:
        mine = [list(range(number, partitions, connections)) for number in range(connections)]
        return [(each, sum(sent[partition] for partition in each)) for each in mine]
    at_one = [len(range(partition, connections, partitions)) for partition in range(partitions)]
    return [
        ([number % partitions], sent[number % partitions] // at_one[number % partitions])
        for number in range(connections)
    ]


def in_threads(works: Sequence[Callable[[], None]]) -> None:
    """Run all at once, each in a thread of its own unless it is the only one. Raises what the first one raised."""
    if len(works) == 1:
        works[0]()
        return
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  it is raised below
            errors.append(error)

    threads = [Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class _OfKafka:
    """The common part: a topic, and how many messages of a round each partition has."""

    def __init__(self, bootstrap: str, topic: str, workload: Workload) -> None:
        self.bootstrap, self.topic, self.workload = bootstrap, topic, workload
        self.bodies = workload.bodies()
        self.start = 0
        """The offset where the messages of the measurement begin, in a topic that had some before."""

    def portions(self, messages: int) -> list[tuple[int, int]]:
        """Return partition and size of each portion of a round."""
        sizes = [min(AT_ONCE, messages - start) for start in range(0, messages, AT_ONCE)]
        return [(number % self.workload.partitions, size) for number, size in enumerate(sizes)]

    def sent(self, messages: int) -> list[int]:
        by_partition = [0] * self.workload.partitions
        for partition, size in self.portions(messages):
            by_partition[partition] += size
        return by_partition


class OwnClient(_OfKafka):
    """`Producer` and `Consumer`."""

    def __init__(self, bootstrap: str, topic: str, workload: Workload, settings: Mapping[str, Any]) -> None:
        super().__init__(bootstrap, topic, workload)
        self._connection = dict(settings)
        self._settings = {**settings, "compression.type": workload.compression, "acks": workload.acks}
        if workload.batch_bytes is not None:
            self._settings["batch.size"] = workload.batch_bytes
        self._producers: list[Producer] = []
        self._timed: Producer | None = None

    def send(self, messages: int, passed: Passed) -> None:
        while len(self._producers) < self.workload.connections:
            producer = Producer(self.bootstrap, config=self._settings)
            self._producers.append(producer)
            producer.partitions(self.topic, at_least=self.workload.partitions)
        repeated = [Message(value=self.bodies[number % _BODIES]) for number in range(AT_ONCE)]
        for number, (partition, size) in enumerate(self.portions(messages)):
            producer = self._producers[number % len(self._producers)]
            producer.send_many(self.topic, repeated[:size], partition=partition)
            passed(size)
        for producer in self._producers:
            producer.flush(PATIENCE_S)
            if producer.failed:
                text = counted(producer.failed, "message was", "messages were")
                raise BarnabasError(f"{text} not delivered, of {messages}")

    def receive(self, messages: int, passed: Passed) -> None:
        def read(partitions: list[int], wanted: int) -> None:
            if not wanted:
                return
            with Consumer(self.bootstrap, config=self._connection) as consumer:
                consumer.assign(self.topic, partitions=partitions, position=self.start or "earliest")
                while wanted > 0:
                    taken = len(consumer.poll_many(min(AT_ONCE, wanted), timeout=PATIENCE_S))
                    if not taken:
                        raise BarnabasError(f"no message within {PATIENCE_S:.0f} s; {wanted} are missing")
                    wanted -= taken
                    passed(taken)

        parts = shares(self.sent(messages), self.workload.connections)
        in_threads([lambda each=each: read(*each) for each in parts])  # type: ignore[misc]  # mypy: lambda defaults

    def start_timed(self) -> None:
        self._timed = Producer(self.bootstrap, config={**self._settings, "linger.ms": 0})
        self._timed.send(self.topic, b"first", partition=0).result(PATIENCE_S)

    def send_one(self, body: bytes, acknowledged: Acknowledged) -> None:
        def delivered(error: BarnabasError | None, _delivery: Delivery | None) -> None:
            if error is None:
                acknowledged()

        assert self._timed is not None
        self._timed.send(self.topic, body, partition=0, on_delivery=delivered)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def flush(self) -> None:
        if self._timed is not None:
            self._timed.flush(PATIENCE_S)

    def follow(self, arrived: Callable[[bytes], bool]) -> Thread:
        consumer = Consumer(self.bootstrap, config=self._connection)
        consumer.assign(self.topic, partitions=[0], position="latest")
        consumer.position((self.topic, 0))

        def run() -> None:
            with consumer:
                while True:
                    for message in consumer.poll_many(timeout=1.0):
                        if not arrived(message.value or b""):
                            return

        return _started(run)

    def transactions(self, number: int, messages: int) -> None:
        values = [self.bodies[each % _BODIES] for each in range(messages)]
        with Producer(self.bootstrap, config={**self._settings, "transactional.id": f"{self.topic}-own"}) as producer:
            for _ in range(number):
                with producer.transaction():
                    producer.send_many(self.topic, values, partition=0)

    def close(self) -> None:
        for producer in (*self._producers, *([] if self._timed is None else [self._timed])):
            producer.close()


class LibrdkafkaClient(_OfKafka):
    """confluent-kafka's `Producer` and `Consumer`. Raises `ConfigError` where it is not installed."""

    def __init__(self, bootstrap: str, topic: str, workload: Workload, settings: Mapping[str, Any]) -> None:
        super().__init__(bootstrap, topic, workload)
        try:
            import confluent_kafka
        except ImportError:
            raise ConfigError(
                "--clients librdkafka: confluent-kafka is not installed: pip install confluent-kafka"
            ) from None
        self._library = confluent_kafka
        self._connection = {"bootstrap.servers": bootstrap, "log_level": 2, **settings}
        self._settings: dict[str, Any] = {
            **self._connection,
            "acks": workload.acks,
            "compression.type": workload.compression,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "on_delivery": self._delivered,
        }
        if workload.batch_bytes is not None:
            self._settings["batch.size"] = workload.batch_bytes
        self._producers: list[Any] = []
        self._timed: Any = None
        self._failed = 0

    def _delivered(self, error: object, _message: object) -> None:
        self._failed += error is not None

    def send(self, messages: int, passed: Passed) -> None:
        while len(self._producers) < self.workload.connections:
            producer = self._library.Producer({**self._settings, "delivery.report.only.error": True, "linger.ms": 5})
            producer.list_topics(self.topic, timeout=PATIENCE_S)
            self._producers.append(producer)
        for number, (partition, size) in enumerate(self.portions(messages)):
            producer = self._producers[number % len(self._producers)]
            for each in range(size):
                self._put(producer, self.bodies[each % _BODIES], partition)
            producer.poll(0)
            passed(size)
        for producer in self._producers:
            self._check(producer.flush(PATIENCE_S))

    def _put(self, producer: Any, body: bytes, partition: int) -> None:
        while True:
            try:
                producer.produce(self.topic, body, partition=partition)
                return
            except BufferError:
                producer.poll(0.05)

    def _check(self, left: int) -> None:
        if left or self._failed:
            raise BarnabasError(f"{counted(left + self._failed, 'message was', 'messages were')} not delivered")

    def receive(self, messages: int, passed: Passed) -> None:
        def read(partitions: list[int], wanted: int) -> None:
            if not wanted:
                return
            consumer = self._consumer()
            try:
                consumer.assign([self._library.TopicPartition(self.topic, each, self.start) for each in partitions])
                while wanted > 0:
                    taken = len(consumer.consume(min(AT_ONCE, wanted), PATIENCE_S))
                    if not taken:
                        raise BarnabasError(f"no message within {PATIENCE_S:.0f} s; {wanted} are missing")
                    wanted -= taken
                    passed(taken)
            finally:
                consumer.close()

        parts = shares(self.sent(messages), self.workload.connections)
        in_threads([lambda each=each: read(*each) for each in parts])  # type: ignore[misc]  # mypy: lambda defaults

    def _consumer(self) -> Any:
        return self._library.Consumer(
            {**self._connection, "group.id": self.topic, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )

    def start_timed(self) -> None:
        self._timed = self._library.Producer({**self._settings, "linger.ms": 0})
        self._put(self._timed, b"first", 0)
        self._check(self._timed.flush(PATIENCE_S))

    def send_one(self, body: bytes, acknowledged: Acknowledged) -> None:
        def delivered(error: object, _message: object) -> None:
            if error is None:
                acknowledged()

        self._timed.produce(self.topic, body, partition=0, on_delivery=delivered)
        self._timed.poll(0)

    def wait(self, seconds: float) -> None:
        self._timed.poll(seconds)

    def flush(self) -> None:
        self._check(self._timed.flush(PATIENCE_S))

    def follow(self, arrived: Callable[[bytes], bool]) -> Thread:
        consumer = self._consumer()
        _, end = consumer.get_watermark_offsets(self._library.TopicPartition(self.topic, 0), PATIENCE_S)
        consumer.assign([self._library.TopicPartition(self.topic, 0, end)])

        def run() -> None:
            try:
                while True:
                    message = consumer.poll(1.0)
                    if message is not None and not arrived(message.value()):
                        return
            finally:
                consumer.close()

        return _started(run)

    def transactions(self, number: int, messages: int) -> None:
        settings = {**self._settings, "transactional.id": f"{self.topic}-librdkafka", "linger.ms": 0}
        producer = self._library.Producer(settings)
        producer.init_transactions(PATIENCE_S)
        for _ in range(number):
            producer.begin_transaction()
            for each in range(messages):
                self._put(producer, self.bodies[each % _BODIES], 0)
            producer.commit_transaction(PATIENCE_S)

    def close(self) -> None:
        """Drop the producers: librdkafka ends them."""
        self._producers.clear()
        self._timed = None


def _started(run: Callable[[], None]) -> Thread:
    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread


KINDS: Mapping[str, Callable[[str, str, Workload, Mapping[str, Any]], TimedClient]] = {
    OWN: OwnClient,
    LIBRDKAFKA: LibrdkafkaClient,
}
