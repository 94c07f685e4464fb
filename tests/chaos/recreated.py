"""A topic that is deleted and created again, and what its clients may see of it, by topic ids."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from attrs import define, field
from chaos.clients import Worker
from chaos.history import History
from chaos.transactions import PATIENCE_S

from barnabas import Admin, Consumer, Producer
from barnabas.ports.broker_api.metadata import NO_TOPIC_ID
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError

RECREATED = "recreated"
RECREATED_GROUP = "recreated-readers"
MESSAGES = 20
"""Messages of each incarnation of the recreated topic."""
LATE_S = 60.0
"""After the deletion of a topic, a broker that does not know of it may serve the topic for this time, as in Kafka."""
RETRY_S = 0.2


@define
class TopicsOfOneName:
    """The topics that had one name: the messages sent to each, the acknowledged ones, and those read."""

    attempted: dict[str, set[bytes]] = field(factory=lambda: defaultdict(set))
    """Message → the ids of the topics that it was sent to."""
    acknowledged: dict[str, bytes] = field(factory=dict)
    """Message → the id of the topic that acknowledged it."""
    deleted: dict[bytes, float] = field(factory=dict)
    """Id of a topic whose deletion was confirmed → when, in seconds."""
    late: Counter[str] = field(factory=Counter)
    """The number of messages that a late broker acknowledged for a deleted topic, or served of it."""

    def note_acknowledged(self, value: str, topic_id: bytes, now: float) -> str | None:
        """Return what is wrong with that."""
        self.acknowledged[value] = topic_id
        return self._too_late(topic_id, "messages acknowledged by a deleted topic", now)

    def note_read(self, value: str, topic_id: bytes, now: float) -> str | None:
        """Return what is wrong with that."""
        if self.attempted.get(value, set()).isdisjoint((topic_id, NO_TOPIC_ID)):
            sent = ", ".join(sorted(each.hex() for each in self.attempted.get(value, ()))) or "no topic"
            return f"topic {topic_id.hex()} has {value!r}, which was sent to {sent}"
        return self._too_late(topic_id, "messages read of a deleted topic", now)

    def _too_late(self, topic_id: bytes, what: str, now: float) -> str | None:
        if topic_id not in self.deleted:
            return None
        self.late[what] += 1
        ago = now - self.deleted[topic_id]
        return f"{what}, {topic_id.hex()}, {ago:.0f} s after its deletion" if ago > LATE_S else None

    def wanted(self, topic_id: bytes) -> set[str]:
        """Return the messages that a reader of this topic must be given."""
        return {value for value, by in self.acknowledged.items() if by == topic_id}


class RecreatedTopic(Worker):
    """Creates a topic, writes to it, has a group read it, deletes it, and begins again.

    A group must be given each message that the topic acknowledged, whatever offset it has committed in the topic
    before, and none that was sent to another topic of the name. Topics are compared by id: for a moment, brokers that
    have not heard of a deletion serve the deleted topic, as Kafka's do.
    """

    def __init__(self, name: str, history: History, bootstrap: str, clock: Callable[[], float], replicas: int) -> None:
        super().__init__(name, history, bootstrap, clock)
        self._replicas = replicas
        self._topic_id = NO_TOPIC_ID
        self.topics = TopicsOfOneName()
        self.lives = 0

    def work(self) -> None:
        while not self.stopping.is_set():
            self._retry("creating the topic", self._create)
            self._write()
            self._read()
            self._retry("deleting the topic", self._delete)
            self.topics.deleted[self._topic_id] = self.now()
            self.lives += 1

    def _create(self) -> None:
        with self._admin() as admin:
            try:
                self._topic_id = admin.create_topic(RECREATED, partitions=1, replication_factor=self._replicas).topic_id
            except BarnabasError as error:
                if getattr(error, "code", None) is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                self._topic_id = NO_TOPIC_ID  # an attempt before this one made it, unless the topic before is there
            (described,) = admin.describe_topics([RECREATED])
            if not described.partitions:
                raise TimeoutError("the topic has no partitions yet")
            if self._topic_id == NO_TOPIC_ID:
                if described.topic_id in self.topics.deleted:
                    raise TimeoutError("the broker describes the topic before, which was deleted")
                self._topic_id = described.topic_id

    def _delete(self) -> None:
        """Delete by id: a request that a paused broker carries out later must not delete the next topic."""
        with self._admin() as admin:
            try:
                admin.delete_topics(topic_ids=[self._topic_id])
            except BarnabasError as error:
                if getattr(error, "code", None) is not ErrorCode.UNKNOWN_TOPIC_ID:
                    raise

    def _write(self) -> None:
        values = [f"life-{self.lives} {number}" for number in range(MESSAGES)]
        with (
            Producer(self.bootstrap, acks="all", delivery_timeout_ms=120_000, request_timeout_ms=5000) as producer,
            self._noting(producer),
        ):
            sent = [producer.send(RECREATED, value.encode(), partition=0) for value in values]
            for each in sent:
                each.result(PATIENCE_S)
        for value in values:
            if value not in self.topics.acknowledged:
                self._note(f"{value!r} was delivered, and no topic has acknowledged it")

    @contextmanager
    def _noting(self, producer: Producer) -> Iterator[None]:
        """Note by which topic id each batch is sent, and acknowledged. A `Delivery` does not say that."""
        sender: Any = producer._sender
        request = sender._request

        def noting(node: int, group: Sequence[tuple[Any, Any]]) -> Any:
            send = request(node, group)
            ids = [partition.topic_id for partition in send.request.partitions]
            values = [[(value or b"").decode() for value in batch.values] for batch, _ in group]
            for topic_id, those in zip(ids, values, strict=True):
                for value in those:
                    self.topics.attempted[value].add(topic_id)

            def answered(result: Any, now_ms: float) -> None:
                for topic_id, those, outcome in zip(ids, values, getattr(result, "partitions", ()), strict=False):
                    if outcome.error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                        for value in those:
                            self._note(self.topics.note_acknowledged(value, topic_id, self.now()))
                send.answer(result, now_ms)

            return send._replace(answer=answered)

        with patch.object(sender, "_request", noting):
            yield

    def _read(self) -> None:
        wanted = self.topics.wanted(self._topic_id)
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
                    topic_id = consumer.topic_id((RECREATED, 0)) if messages else NO_TOPIC_ID
                except BarnabasError:
                    time.sleep(RETRY_S)
                    continue
                for message in messages:
                    value = (message.value or b"").decode()
                    self._note(self.topics.note_read(value, topic_id, self.now()))
                    if topic_id == self._topic_id:
                        wanted.discard(value)
                        position = message.offset + 1
            if wanted:
                text = f"a group was not given {sorted(wanted)[:3]} of topic {self._topic_id.hex()}"
                self._note(f"{text}, {len(wanted)} in all")
            if position:
                self._retry("committing", lambda: consumer.commit({(RECREATED, 0): position}, timeout=5))

    def _note(self, text: str | None) -> None:
        if text is not None:
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
