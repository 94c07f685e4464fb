"""Consume-transform-produce in transactions on a cluster under faults, and a topic that is deleted and created again.

The load and its verdict are those of `kills`; here several transformers run, and brokers and coordinators come and go.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from chaos.clients import Worker
from chaos.history import History
from confluent_kafka import KafkaException
from kills.run import everything, positions, watermarks
from kills.verdict import aborted_reads, lost_or_doubled, offsets_apart, partial_transactions
from kills.work import Source, Transformer, Witness

from barnabas import Admin, Consumer, Producer
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError

RECREATED = "recreated"
RECREATED_GROUP = "recreated-readers"
MESSAGES = 20
"""Of each life of the recreated topic."""
PATIENCE_S = 180.0
"""Longer than any fault, and than the clients' own delivery timeouts."""
RETRY_S = 0.2


class TransactionalLoad:
    """A producer, transformers and a read_committed reader. Start it on a healthy cluster that has both topics."""

    def __init__(self, bootstrap: str, *, seed: int, transformers: int = 2, per_second: float = 50) -> None:
        self._bootstrap = bootstrap
        self._source = Source(bootstrap, per_second)
        self._transformers = [Transformer(bootstrap, f"transformer-{n}", seed + n) for n in range(transformers)]
        self._witness = Witness(bootstrap)

    @property
    def committed(self) -> int:
        return sum(each.committed for each in self._transformers)

    def close(self) -> None:
        """Stop the threads without waiting for the end of the work."""
        for each in (self._source, *self._transformers, self._witness):
            each.stopping.set()

    def finish(self, history: History) -> dict[str, Any]:
        """Let the load come to its end on a healthy cluster, note every anomaly, and return figures."""
        try:
            self._source.stop()
        except (RuntimeError, TimeoutError) as error:
            history.transactional.append(("client-stuck", f"{error}: {error.__cause__}"))
        ends = watermarks(self._bootstrap)
        try:
            _wait_until(lambda: positions(self._bootstrap) == ends)
        except TimeoutError:  # `offsets_apart` says where the group stands
            doing = ", ".join(f"{each.name}: {each.doing}" for each in self._transformers)
            history.transactional.append(("offsets-apart", f"the transformers are in {doing}"))
        for each in self._transformers:
            try:
                each.stop()
            except (RuntimeError, TimeoutError) as error:
                history.transactional.append(("client-stuck", f"{error}, in {each.doing}: {error.__cause__}"))
        target = everything(self._bootstrap)
        try:
            _wait_until(lambda: len(self._witness.seen) >= len(target))
        except TimeoutError:
            history.transactional.append(("aborted-read", f"the reader has {len(self._witness.seen)} of {len(target)}"))
        self._witness.stop()
        found = {
            "partial-transaction": partial_transactions(target),
            "output-wrong": lost_or_doubled(ends, target),
            "aborted-read": aborted_reads(target, self._witness.seen),
            "offsets-apart": offsets_apart(ends, positions(self._bootstrap)),
        }
        history.transactional += [(kind, text) for kind, texts in found.items() for text in texts]
        return {
            "transactions committed": self.committed,
            "transactions aborted": sum(each.aborted for each in self._transformers),
            "lives of transactional producers": sum(each.lives for each in self._transformers),
            "messages transformed once": len(target),
        }


class RecreatedTopic(Worker):
    """Creates a topic, writes to it, has a group read it, deletes it, and begins again.

    A group must be given each message of the life that it reads, whatever offset it has committed in the one before.
    """

    def __init__(self, name: str, history: History, bootstrap: str, clock: Callable[[], float], replicas: int) -> None:
        super().__init__(name, history, bootstrap, clock)
        self._replicas = replicas
        self.lives = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            self._retry("creating the topic", self._create)
            self._write()
            self._read()
            self._retry("deleting the topic", self._delete)
            self.lives += 1

    def _create(self) -> None:
        with self._admin() as admin:
            try:
                admin.create_topic(RECREATED, partitions=1, replication_factor=self._replicas)
            except BarnabasError as error:
                if getattr(error, "code", None) is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            if not any(topic.partitions for topic in admin.describe_topics([RECREATED])):
                raise TimeoutError("the topic has no partitions yet")

    def _delete(self) -> None:
        with self._admin() as admin:
            try:
                admin.delete_topics([RECREATED])
            except BarnabasError as error:
                if getattr(error, "code", None) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise

    def _values(self) -> list[str]:
        return [f"life-{self.lives} {number}" for number in range(MESSAGES)]

    def _write(self) -> None:
        with Producer(self.bootstrap, acks="all", delivery_timeout_ms=120_000, request_timeout_ms=5000) as producer:
            sent = [producer.send(RECREATED, value.encode(), partition=0) for value in self._values()]
            for each in sent:
                each.result(PATIENCE_S)

    def _read(self) -> None:
        wanted = set(self._values())
        until = time.monotonic() + PATIENCE_S
        with Consumer(
            self.bootstrap,
            group_id=RECREATED_GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
            request_timeout_ms=5000,
        ) as consumer:
            consumer.subscribe(RECREATED)
            position = 0
            while wanted and time.monotonic() < until:
                try:
                    messages = consumer.poll_many(100, timeout=0.2)
                except BarnabasError:
                    time.sleep(RETRY_S)
                    continue
                for message in messages:
                    value = (message.value or b"").decode()
                    if not value.startswith(f"life-{self.lives} "):
                        self._note(f"a group that reads life {self.lives} was given {value!r}")
                    wanted.discard(value)
                    position = message.offset + 1
            if wanted:
                self._note(f"a group was not given {sorted(wanted)[:3]} of life {self.lives}, {len(wanted)} in all")
            self._retry("committing", lambda: consumer.commit({(RECREATED, 0): position}, timeout=5))

    def _note(self, text: str) -> None:
        self.history.transactional.append(("offset-of-deleted-topic", f"{text}, at {self.now():.1f} s"))

    def _admin(self) -> Admin:
        return Admin(self.bootstrap, default_api_timeout_ms=10_000, request_timeout_ms=3000)

    def _retry(self, what: str, call: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
                return
            except (BarnabasError, TimeoutError) as error:
                if time.monotonic() > until:
                    raise TimeoutError(f"{what} fails for {PATIENCE_S:.0f} s: {error}") from error
                time.sleep(RETRY_S)


def _wait_until(condition: Callable[[], bool]) -> None:
    """Ask again while the answer is no, or an error: a coordinator may have moved a moment ago."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with suppress(KafkaException):
            if condition():
                return
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)
