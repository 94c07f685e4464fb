"""Producers, groups and readers that note all they do: librdkafka's and ours, each in a thread of its own."""

import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from chaos.child import Report
from chaos.history import ACKNOWLEDGED, REFUSED, UNKNOWN, Commit, History, Poll, Send, Share, value_of
from chaos.librdkafka import main_thread_answers

from barnabas import Consumer, Producer, ShareConsumer
from barnabas.ports.errors import BarnabasError

TOPIC = "chaos"
PARTITIONS = 6
TURN_S = 0.02
COMMIT_S = 0.5
DELIVERY_S = 120
"""The delivery timeout, which is longer than any fault."""
SESSION_MS = 6000
LEAVE_S = 10


class Worker:
    """A thread that runs until it is stopped. `failure` has the error that ended it."""

    def __init__(self, name: str, history: History, bootstrap: str, clock: Callable[[], float]) -> None:
        self.name = name
        self.history = history
        self.bootstrap = bootstrap
        self.now = clock
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Raises what it died of."""
        self.stopping.set()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            raise TimeoutError(f"{self.name} does not stop")
        if self.failure is not None:
            raise RuntimeError(f"{self.name} died: {self.failure!r}") from self.failure

    def abandon(self) -> None:
        """Stop without waiting for an orderly end."""
        self.stopping.set()

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001  raised again where it is stopped
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError


# --- producers


class SendingWorker(Worker):
    """Sends messages at a fixed rate, round robin over the partitions."""

    def __init__(self, *given: Any, per_second: float) -> None:
        super().__init__(*given)
        self._per_second = per_second
        self._sequence = 0
        self._begun: dict[int, tuple[int, float]] = {}

    def work(self) -> None:
        self.open()
        began = time.monotonic()
        while not self.stopping.is_set():
            due = int((time.monotonic() - began) * self._per_second)
            while self._sequence < due and not self.stopping.is_set():
                number, partition = self._sequence, self._sequence % PARTITIONS
                self._sequence += 1
                self._begun[number] = partition, self.now()
                self.send(number, partition, value_of(self.name, number).encode())
            self.turn()
        self.finish()
        for number in list(self._begun):
            self.observed(number, UNKNOWN, -1, "it never got an answer")

    def observed(self, number: int, outcome: str, offset: int, why: str) -> None:
        partition, begun = self._begun.pop(number)
        self.history.sends.append(Send(self.name, number, partition, begun, self.now(), outcome, offset, why))

    def open(self) -> None:
        raise NotImplementedError

    def send(self, number: int, partition: int, value: bytes) -> None:
        raise NotImplementedError

    def turn(self) -> None:
        time.sleep(TURN_S)

    def finish(self) -> None:
        raise NotImplementedError


class LibrdkafkaProducer(SendingWorker):
    def open(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "client.id": self.name, "enable.idempotence": True}
        self._producer = confluent_kafka.Producer(
            settings | {"acks": "all", "linger.ms": 5, "message.timeout.ms": DELIVERY_S * 1000, "log_level": 0}
            | {"reconnect.backoff.max.ms": 1000, "socket.timeout.ms": 10_000, "request.timeout.ms": 5000}
        )  # fmt: skip

    def send(self, number: int, partition: int, value: bytes) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offset = message.offset()  # none: the broker had the batch already, and did not return its offset
                self.observed(number, ACKNOWLEDGED, -1 if offset is None else offset, "")
            else:
                self.observed(number, UNKNOWN, -1, error.str())

        try:
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
        except (BufferError, confluent_kafka.KafkaException) as error:
            self.observed(number, REFUSED, -1, repr(error))

    def turn(self) -> None:
        try:
            self._producer.poll(TURN_S)
        except confluent_kafka.KafkaException as error:
            self.history.broken.append(f"{self.name} at {self.now():.2f} s: {error}")
            self.stopping.set()

    def finish(self) -> None:
        self._producer.flush(DELIVERY_S)


class OurProducer(SendingWorker):
    def open(self) -> None:
        self._producer = Producer(
            self.bootstrap,
            acks="all",
            linger_ms=5,
            delivery_timeout_ms=DELIVERY_S * 1000,
            request_timeout_ms=5000,
            client_id=self.name,
            max_block_ms=60_000,
        )

    def send(self, number: int, partition: int, value: bytes) -> None:
        def delivered(error: BarnabasError | None, delivery: Any) -> None:
            if error is None:
                self.observed(number, ACKNOWLEDGED, delivery.offset, "")
            else:
                self.observed(number, UNKNOWN, -1, str(error))

        try:
            handle = self._producer.send(TOPIC, value, partition=partition)
        except BarnabasError as error:
            self.observed(number, REFUSED, -1, repr(error))
        else:
            handle.add_callback(delivered)

    def finish(self) -> None:
        try:
            self._producer.flush(DELIVERY_S)
        finally:
            self._producer.close(5)


# --- consumers


class ReadingWorker(Worker):
    """Reads on; as a member of `group` it commits what it was given, else it reads all partitions by itself."""

    def __init__(self, *given: Any, group: str | None = None, protocol: str = "classic") -> None:
        """`protocol`: that of the group, or "consumer" (KIP-848)."""
        super().__init__(*given)
        self._group = group
        self._protocol = protocol
        self._session = 0
        self.positions: dict[int, int] = {}
        """Partition → the offset behind what it was given last."""
        if group is not None:
            self.history.groups[self.name] = group

    def work(self) -> None:
        self.open()
        committed_s = self.now()
        try:
            while not self.stopping.is_set():
                self.read()
                if self._group is not None and self.now() - committed_s >= COMMIT_S:
                    committed_s = self.now()
                    self.commit()
        finally:
            self.close()

    def given(self, partition: int, offset: int, value: bytes | None) -> None:
        text = (value or b"").decode()
        self.history.polls.append(Poll(self.name, self._session, partition, offset, text, self.now()))
        self.positions[partition] = offset + 1

    def new_session(self) -> None:
        self._session += 1

    def committed(self, positions: dict[int, int]) -> None:
        now = self.now()
        self.history.commits += [Commit(str(self._group), p, offset, now) for p, offset in positions.items()]

    def lost_place(self, why: str) -> None:
        self.history.resets.append(f"{self.name} at {self.now():.2f} s: {why}")

    def open(self) -> None:
        raise NotImplementedError

    def read(self) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class LibrdkafkaReader(ReadingWorker):
    _holds = False
    _intervals = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1000}  # noqa: RUF012  never changed
    """The broker says them to members by KIP-848."""

    def open(self) -> None:
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "client.id": self.name, "group.id": self._group or self.name}
            | {"enable.auto.commit": False, "auto.offset.reset": "earliest" if self._group else "error"}
            | {"reconnect.backoff.max.ms": 1000, "socket.timeout.ms": 10_000, "log_level": 0, "fetch.wait.max.ms": 100}
            | {"group.protocol": self._protocol} | (self._intervals if self._protocol == "classic" else {})
        )  # fmt: skip
        if self._group is None:
            begin = [confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
            self._consumer.assign(begin)
        else:
            self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: object, places: list[Any]) -> None:
        self.new_session()
        self.positions = {}
        self._holds = True

    def _revoked(self, _: object, places: list[Any]) -> None:
        self.commit()
        self.positions = {}
        self._holds = False

    def read(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            error = message.error()
            if error is None:
                self.given(int(message.partition() or 0), int(message.offset() or 0), message.value())
            elif error.code() in (
                confluent_kafka.KafkaError._AUTO_OFFSET_RESET,
                confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE,
            ):
                self.lost_place(error.str())

    def commit(self) -> None:
        positions = dict(self.positions)
        if not positions:
            return
        places = [confluent_kafka.TopicPartition(TOPIC, p, offset) for p, offset in positions.items()]
        try:
            done = self._consumer.commit(offsets=places, asynchronous=False)
        except confluent_kafka.KafkaException:
            return  # a rebalance, or a coordinator that is gone: what was read is read again
        self.committed({p.partition: p.offset for p in done or () if p.error is None})

    def close(self) -> None:
        """Leaves first: `close` may wait for ever in its rebalance callback, with the GIL (librdkafka issue 4041)."""
        if self._group is not None:
            self._consumer.unsubscribe()
            until = time.monotonic() + LEAVE_S
            while self._holds and time.monotonic() < until:
                self.read()
        self._consumer.close()


class ReaderRole(LibrdkafkaReader):
    """The reader in a process of its own: librdkafka may deadlock (`chaos.watchdog`). It reports all that it notes."""

    def __init__(self, name: str, bootstrap: str, group: str | None, protocol: str) -> None:
        super().__init__(name, History(), bootstrap, time.monotonic, group=group, protocol=protocol)

    def run(self, report: Report, stopping: threading.Event) -> None:
        self._report = report
        self.stopping = stopping
        self.work()

    def read(self) -> None:
        super().read()
        self._report_positions()

    def commit(self) -> None:
        super().commit()
        self._report_positions()

    def react(self) -> str:
        return main_thread_answers(self._consumer)

    def _report_positions(self) -> None:
        noted = self.history
        if noted.polls:  # first: a commit is about them
            self._report("polls", [[p.session, p.partition, p.offset, p.value, p.at_s] for p in noted.polls])
            noted.polls.clear()
        if noted.commits:
            self._report("commits", [[c.partition, c.offset, c.at_s] for c in noted.commits])
            noted.commits.clear()
        if noted.resets:
            self._report("resets", noted.resets)
            noted.resets.clear()


class OurReader(ReadingWorker):
    def open(self) -> None:
        common: dict[str, Any] = {"client_id": self.name, "request_timeout_ms": 5000, "default_api_timeout_ms": 10_000}
        if self._group is None:
            self._consumer = Consumer(self.bootstrap, auto_offset_reset="none", fetch_max_wait_ms=100, **common)
            self._consumer.assign([(TOPIC, number) for number in range(PARTITIONS)], position=0)
            return
        intervals: dict[str, Any] = {}
        if self._protocol == "classic":
            intervals = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 1000}
        self._consumer = Consumer(
            self.bootstrap,
            group_id=self._group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            group_protocol=self._protocol,
            **intervals,
            **common,
        )
        self._consumer.subscribe(TOPIC, on_assigned=self._changed, on_revoked=self._revoked, on_lost=self._changed)

    def _changed(self, _: object) -> None:
        self.new_session()
        self.positions = {}

    def _revoked(self, _: object) -> None:
        self.commit()
        self._changed(_)

    def read(self) -> None:
        try:
            messages = self._consumer.poll_many(500, timeout=0.1)
        except BarnabasError as error:
            if "OFFSET_OUT_OF_RANGE" in str(error) or "out of range" in str(error):
                self.lost_place(str(error))
            time.sleep(0.1)
            return
        for message in messages:
            self.given(message.partition, message.offset, message.value)

    def commit(self) -> None:
        positions = dict(self.positions)
        if not positions:
            return
        try:
            self._consumer.commit({(TOPIC, p): offset for p, offset in positions.items()}, timeout=5)
        except BarnabasError:
            return
        self.committed(positions)

    def close(self) -> None:
        self._consumer.close(5)


# --- members of a share group

SHARE_GROUP = "share-group"


class ShareMember(Worker):
    """Accepts what it is given, and notes what its broker has confirmed; it releases some messages once first."""

    def work(self) -> None:
        with ShareConsumer(
            self.bootstrap,
            group_id=SHARE_GROUP,
            client_id=self.name,
            share_acknowledgement_mode="explicit",
            request_timeout_ms=5000,
            default_api_timeout_ms=10_000,
        ) as consumer:
            consumer.subscribe(TOPIC)
            while not self.stopping.is_set():
                try:
                    self._turn(consumer)
                except BarnabasError:
                    time.sleep(0.1)

    def _turn(self, consumer: Any) -> None:
        accepted: dict[int, list[int]] = {}
        for message in consumer.poll_many(500, timeout=0.2):
            place = int(message.partition), int(message.offset)
            self.history.shares.append(Share(self.name, *place, self.now()))
            if message.delivery_count == 1 and message.offset % 17 == 0:
                consumer.acknowledge(message, "release")
            else:
                consumer.acknowledge(message)
                accepted.setdefault(place[0], []).append(place[1])
        for place, error in consumer.commit_sync().items():
            if error is None:
                now = self.now()
                offsets = accepted.get(place.partition, ())
                self.history.shares += [Share(self.name, place.partition, each, now, True) for each in offsets]
