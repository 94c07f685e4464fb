"""A member of a group by any client library, in a thread: what it reads, and how often it is given partitions."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from support.kafka_python import ConsumerRebalanceListener as KafkaPythonListener
from support.kafka_python import KafkaConsumer
from support.waiting import PATIENCE_S

from barnabas import Consumer

GROUP = "g"


class MovingMember:
    """`client` is `ours`, `librdkafka`, `kafka-python` or `aiokafka`; the first two also by KIP-848 (`ours-consumer`).
    Positions are committed all the time."""

    def __init__(self, client: str, bootstrap: str, topic: str) -> None:
        self.values: list[bytes] = []
        self.assignments = 0
        """The number of its assignments: the first one, and one for each rebalance."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._over = threading.Event()
        self._error: BaseException | None = None
        runs: dict[str, Callable[[], None]] = {
            "ours": self._ours,
            "ours-consumer": self._ours_by_consumer_protocol,
            "librdkafka": self._librdkafka,
            "librdkafka-consumer": lambda: self._librdkafka(**{"group.protocol": "consumer"}),
            "kafka-python": self._kafka_python,
            "aiokafka": lambda: asyncio.run(self._aiokafka()),
        }
        self._run = runs[client]
        self._thread = threading.Thread(target=self._run_and_record_failure, name=client)
        self._thread.start()

    def stop(self) -> None:
        """Commit, leave, and raise what went wrong."""
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run_and_record_failure(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001  # raised by `stop`
            self._error = error

    def _assigned(self, *_: Any) -> None:
        self.assignments += 1

    def _ours_by_consumer_protocol(self) -> None:
        self._read_with(group_protocol="consumer")

    def _ours(self) -> None:
        self._read_with(group_protocol="classic", heartbeat_interval_ms=100)

    def _read_with(self, **given: Any) -> None:
        settings = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 50, **given}
        with Consumer(self._bootstrap, group_id=GROUP, **settings) as consumer:
            consumer.subscribe([self._topic], on_assigned=self._assigned)
            while not self._over.is_set():
                self.values += [message.value or b"" for message in consumer.poll_many(timeout=0.05)]

    def _librdkafka(self, **settings: str) -> None:
        """Commits one after the other: of several under way an old one may be repeated after a newer one (2.x)."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **(settings or {"heartbeat.interval.ms": "100"}),
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

        is_incremental = settings.get("group.protocol") == "consumer"

        def begin(_: confluent_kafka.Consumer, given: list[confluent_kafka.TopicPartition]) -> None:
            self._assigned()
            assign = consumer.incremental_assign if is_incremental else consumer.assign
            is_closing = self._over.is_set()  # then it reads nothing more, and may get no answer to an OffsetFetch
            assign(given if is_closing else _committed(consumer, given))

        consumer.subscribe([self._topic], on_assign=begin)
        committed = 0
        try:
            while not self._over.is_set():
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    self.values.append(message.value() or b"")
                if len(self.values) > committed:
                    with suppress(confluent_kafka.KafkaException):  # tried again at the next turn
                        consumer.commit(asynchronous=False)
                        committed = len(self.values)
        finally:
            consumer.close()

    def _kafka_python(self) -> None:
        observed = self._assigned

        class Listener(KafkaPythonListener):  # type: ignore[misc]  # it has no types
            def on_partitions_revoked(self, revoked: Any) -> None:
                pass

            def on_partitions_assigned(self, assigned: Any) -> None:
                observed()

        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap.split(","),
            group_id=GROUP,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=50,
            heartbeat_interval_ms=100,
            session_timeout_ms=45_000,
        )
        consumer.subscribe([self._topic], listener=Listener())
        try:
            while not self._over.is_set():
                for messages in consumer.poll(timeout_ms=50).values():
                    self.values += [message.value or b"" for message in messages]
        finally:
            consumer.close()

    async def _aiokafka(self) -> None:
        observed = self._assigned

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
            def on_partitions_revoked(self, revoked: Any) -> None:
                pass

            def on_partitions_assigned(self, assigned: Any) -> None:
                observed()

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=50,
            heartbeat_interval_ms=100,
            session_timeout_ms=45_000,
        )
        consumer.subscribe([self._topic], listener=Listener())
        await consumer.start()
        try:
            while not self._over.is_set():
                for messages in (await consumer.getmany(timeout_ms=50)).values():
                    self.values += [message.value or b"" for message in messages]
        finally:
            await consumer.stop()


def _committed(
    consumer: confluent_kafka.Consumer, given: list[confluent_kafka.TopicPartition]
) -> list[confluent_kafka.TopicPartition]:
    """Return the start offset. librdkafka never reads a partition if the coordinator moves during its own request: it
    does not repeat an OffsetFetch that was refused with NOT_COORDINATOR (its issue 5586, with Kafka as well)."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            found = consumer.committed(given, PATIENCE_S)
        except confluent_kafka.KafkaException:
            if time.monotonic() > until:
                raise
            continue
        for place in found:
            place.offset = place.offset if place.offset >= 0 else confluent_kafka.OFFSET_BEGINNING
        return list(found)
