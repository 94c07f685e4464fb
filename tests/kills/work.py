"""Consume, transform, produce, exactly once: librdkafka's clients in threads, which continue after any error."""

import json
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

SOURCE, TARGET = "source", "target"
PARTITIONS = 2
GROUP = "transformers"
CALL_S = 120.0
"""For one call of a client: longer than a broker needs to come back."""
TOGETHER = 40
"""The most messages of one transaction."""
ENDS_READING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE)
"""After such an answer to OffsetFetch librdkafka 2.16 fetches nothing more from these partitions, and asks no other
coordinator for their offsets (its issue 5586). It stays a member; a program needs another consumer."""
QUICK: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 5000,
    "log_level": 0,
    # librdkafka 2.16 starts again when its one broker is away, and then asks a coordinator of before for ever.
    "metadata.recovery.strategy": "none",
}


class Work:
    """A thread that runs until it is stopped. `stop` raises the error that ended it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def work(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(3 * CALL_S)
        if self._thread.is_alive():
            raise TimeoutError(f"{self.name} does not stop")
        self.check()

    def check(self) -> None:
        """Raise what it died of."""
        if self._failure is not None:
            raise RuntimeError(f"{self.name} died") from self._failure

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001  raised again where it is stopped
            self._failure = error


class Source(Work):
    """Sends numbered messages at a fixed rate until it is stopped; all of them arrive."""

    def __init__(self, bootstrap: str, per_second: float) -> None:
        self._bootstrap = bootstrap
        self._per_second = per_second
        self.sent = 0
        super().__init__("source")

    def work(self) -> None:
        failed: list[KafkaError] = []
        lines = LastLines()
        settings = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5}
        producer = Producer(
            {**settings, **QUICK, "log_level": 6, "statistics.interval.ms": 5000, "stats_cb": lines.note_statistics},
            logger=lines.logger,
        )
        began = time.monotonic()
        while not self.stopping.is_set():
            while self.sent < (time.monotonic() - began) * self._per_second:
                producer.produce(
                    SOURCE,
                    b"%d" % self.sent,
                    partition=self.sent % PARTITIONS,
                    on_delivery=lambda error, _: failed.append(error) if error is not None else None,
                )
                self.sent += 1
            producer.poll(0.01)
        assert producer.flush(3 * CALL_S) == 0
        assert not failed, f"{failed[0]}; {lines}"


class LastLines(logging.Handler):
    """The last log lines and statistics of a client of librdkafka, for a client that makes no progress."""

    def __init__(self) -> None:
        super().__init__()
        self.logger = logging.Logger("librdkafka", logging.DEBUG)
        self.logger.addHandler(self)
        self._lines: deque[str] = deque(maxlen=40)
        self._statistics = ""

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(f"{time.strftime('%X')} {record.getMessage()}")

    def note_statistics(self, text: str) -> None:
        self._statistics = text

    def __str__(self) -> str:
        return "\n".join(["last lines of its log:", *self._lines, "last statistics:", self._statistics])


class Transformer(Work):
    """Reads the source, writes each message to the target with the name of its transaction, keeps its positions."""

    def __init__(self, bootstrap: str, name: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._chance = random.Random(seed)
        self.committed = self.aborted = self.lives = 0
        self.doing = "nothing yet"
        """The current action of the client, or what it waits for."""
        self.consumer: Consumer | None = None
        self._fetching = ""
        super().__init__(name)

    def work(self) -> None:
        while not self.stopping.is_set():
            self.lives += 1
            try:
                self._live()
            except KafkaException as error:  # fenced, or the transaction cannot be ended: a new life
                if error.args[0].code() in (KafkaError._STATE, KafkaError._INVALID_ARG):
                    raise
                time.sleep(0.05)

    def _live(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": 10_000,
                "linger.ms": 0,
                # librdkafka 2.16 lets send_offsets_to_transaction wait without a limit for a coordinator that was away
                # for a while, until the state of any connection changes (its issues 5511 and 5456).
                "connections.max.idle.ms": 5000,
                **QUICK,
            }
        )
        self._settled("init_transactions", lambda: producer.init_transactions(CALL_S))
        with closing(
            Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": GROUP,
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": 6000,
                    "heartbeat.interval.ms": 500,
                    "max.poll.interval.ms": 60_000,
                    "fetch.wait.max.ms": 50,
                    "statistics.interval.ms": 5000,
                    "stats_cb": self._note_statistics,
                    **QUICK,
                }
            )
        ) as consumer:
            self.consumer = consumer
            consumer.subscribe([SOURCE])
            while not self.stopping.is_set():
                self.doing = f"consume from {consumer.assignment()}; {self._fetching}"
                messages = []
                for each in consumer.consume(TOGETHER, 0.1):
                    error = each.error()
                    if error is None:
                        messages.append(each)
                    elif error.code() in ENDS_READING:
                        raise KafkaException(error)
                if messages:
                    self._transform(producer, consumer, messages)

    def _note_statistics(self, text: str) -> None:
        """Note what librdkafka waits for: the states of its group and of its fetches."""
        found = json.loads(text)
        group, topics = found.get("cgrp", {}), found.get("topics", {})
        fetches = [
            f"{name}-{number} {part['fetch_state']} at {part['next_offset']}"
            for name, topic in topics.items()
            for number, part in topic["partitions"].items()
            if number != "-1"
        ]
        self._fetching = f"group {group.get('state')}, {group.get('join_state')}; {', '.join(fetches)}"

    def _transform(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
        """One transaction; raises where only a new life helps."""
        producer.begin_transaction()
        try:
            self._write(producer, messages)
            ends = {each.partition(): (each.offset() or 0) + 1 for each in messages}
            positions = [TopicPartition(SOURCE, partition or 0, offset) for partition, offset in ends.items()]
            metadata = consumer.consumer_group_metadata()
            self._settled(
                "send_offsets_to_transaction", lambda: producer.send_offsets_to_transaction(positions, metadata, CALL_S)
            )
            if self._chance.random() < 0.1:
                raise Reconsidered
            self._settled("commit_transaction", lambda: producer.commit_transaction(CALL_S))
            self.committed += 1
        except (KafkaException, Reconsidered) as error:
            if isinstance(error, KafkaException) and not error.args[0].txn_requires_abort():
                raise
            self._settled("abort_transaction", lambda: producer.abort_transaction(CALL_S))
            self.aborted += 1
            self.doing = "committed"
            back_to_committed(consumer)

    def _settled(self, name: str, call: Callable[[], object]) -> None:
        """Call it until it says how it ended: what can be tried again is."""
        until = time.monotonic() + 3 * CALL_S
        self.doing = name
        while True:
            try:
                call()
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise
                self.doing = f"{name} again after {error.args[0]}"
            else:
                return

    def _write(self, producer: Producer, messages: list[Message]) -> None:
        name = f"{self.name}-{self.lives}-{self.committed + self.aborted}"
        for number, each in enumerate(messages):
            origin = f"{each.partition()}:{each.offset()}"
            producer.produce(
                TARGET, f"{name} {number} {len(messages)} {origin}".encode(), partition=number % PARTITIONS
            )
            producer.poll(0)


class Reconsidered(Exception):
    """The user changes his mind."""


def back_to_committed(consumer: Consumer) -> None:
    for place in consumer.committed(consumer.assignment(), CALL_S):
        if place.offset < 0:
            place.offset = 0
        consumer.seek(place)


class Witness(Work):
    """Reads the target while all that happens, committed messages only: (partition, offset) and value."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.seen: list[tuple[int, int, str]] = []
        self.consumer: Consumer | None = None
        super().__init__("witness")

    def work(self) -> None:
        with reader(self._bootstrap) as consumer:
            self.consumer = consumer
            while not self.stopping.is_set():
                self.seen += taken(consumer)


@contextmanager
def reader(bootstrap: str) -> Iterator[Consumer]:
    """Yield a reader of committed messages of the target, from the first one on."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": "read_committed", **QUICK}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "error"})
    try:
        consumer.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])
        yield consumer
    finally:
        consumer.close()


def taken(consumer: Consumer) -> list[tuple[int, int, str]]:
    found = []
    for each in consumer.consume(1000, 0.1):
        error = each.error()
        if error is None:
            found.append((each.partition() or 0, each.offset() or 0, (each.value() or b"").decode()))
        elif not error.retriable() and error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            raise KafkaException(error)
    return found
