"""librdkafka, through confluent-kafka."""

import time
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import attrs
import confluent_kafka as ck
from confluent_kafka import admin

from .logins import Login, librdkafka_settings
from .model import EARLIEST, HEARTBEAT_MS, PATIENCE_S, PLAINLY, SESSION_MS, GroupView, Record, Sending, Start
from .polling import PollingMember
from .transactional import LibrdkafkaTransactions

ck_admin: Any = admin
"""Most of what it exports it does not declare."""


def _is_refusal(error: ck.KafkaError) -> bool:
    """Return True for errors that the library reports at once while it retries; a TLS alert is a transport error."""
    return error.code() in (ck.KafkaError._AUTHENTICATION, ck.KafkaError._SSL) or "SSL alert" in error.str()


class Librdkafka(LibrdkafkaTransactions):
    """One admin client is kept; producers and consumers live as long as a call."""

    def __init__(self, bootstrap: str) -> None:
        self.version = f"{version('confluent-kafka')}, librdkafka {ck.libversion()[0]}"
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.ms": 20}
        self._admin: Any = ck_admin.AdminClient(self._common)

    def log_in(self, login: Login) -> None:
        settings = librdkafka_settings(login)
        if login.token_file is not None:
            settings = {key: value for key, value in settings.items() if not key.startswith("sasl.oauthbearer.")}
            settings["oauth_cb"] = lambda _: (login.token, login.token_ends_s)
        self._common = {"log_level": 0, "reconnect.backoff.ms": 20, **settings}

    def close(self) -> None:
        self._admin = None  # closing is up to its destructor

    # --- messages

    def produce(self, topic: str, records: Sequence[Record], how: Sending = PLAINLY) -> None:
        settings = {
            **self._common,
            "compression.type": how.codec,
            "acks": how.acks,
            "enable.idempotence": how.idempotent,
            "linger.ms": 5,
            "message.max.bytes": how.max_bytes,
            "error_cb": lambda error: refusals.append(error) if _is_refusal(error) else None,
        }
        outcomes: list[Any] = []
        refusals: list[Any] = []
        producer = ck.Producer(settings)
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=0,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, _: outcomes.append(error),
            )
        deadline = time.monotonic() + PATIENCE_S
        left = len(producer)
        while left and not refusals and time.monotonic() < deadline:
            left = producer.flush(0.1)
        if refusals:
            producer.purge()
            left = producer.flush(PATIENCE_S)
        errors = refusals + [error for error in outcomes if error is not None]
        if left or errors:
            raise RuntimeError(f"{left} not delivered, {errors[:1]}")

    def _consumer(self, **settings: Any) -> ck.Consumer:
        return ck.Consumer(
            {
                **self._common,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                **settings,
            }
        )

    def read(self, topic: str, count: int, start: Start = EARLIEST) -> list[Record]:
        level = "read_committed" if start.committed else "read_uncommitted"
        settings = {"fetch.message.max.bytes": start.max_bytes, "isolation.level": level}
        consumer = self._consumer(**{"group.id": "unused", **settings})
        found: list[Record] = []
        try:
            offset = start.offset
            if start.timestamp_ms is not None:
                tp = ck.TopicPartition(topic, start.partition, start.timestamp_ms)
                offset = consumer.offsets_for_times([tp], PATIENCE_S)[0].offset
            consumer.assign([ck.TopicPartition(topic, start.partition, offset)])
            deadline = time.monotonic() + PATIENCE_S
            while len(found) < count and time.monotonic() < deadline:
                found += [_record(message) for message in consumer.consume(count - len(found), 0.1)]
        finally:
            consumer.close()
        return found

    def join(self, group: str, topic: str, *, assignor: str = "") -> PollingMember:
        settings = {
            "group.id": group,
            **({"partition.assignment.strategy": assignor} if assignor else {}),
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }

        def subscribed() -> _Polled:
            consumer = self._consumer(**settings)
            consumer.subscribe([topic])
            return _Polled(consumer)

        return PollingMember(subscribed)

    def join_consumer_group(self, group: str, topic: str) -> PollingMember:
        def subscribed() -> _Polled:
            consumer = self._consumer(**{"group.id": group, "group.protocol": "consumer"})
            consumer.subscribe([topic])
            return _Polled(consumer)

        return PollingMember(subscribed)

    def join_share_group(self, group: str, topic: str, released: Collection[bytes]) -> PollingMember:
        def subscribed() -> _Sharing:
            settings = {"group.id": group, "share.acknowledgement.mode": "explicit"}
            consumer = ck.ShareConsumer({**self._common, **settings})
            consumer.subscribe([topic])
            return _Sharing(consumer, released)

        return PollingMember(subscribed)

    # --- administration

    def offsets(self, topic: str) -> tuple[int, int]:
        tp = ck.TopicPartition(topic, 0)
        ends = []
        for spec in (ck_admin.OffsetSpec.earliest(), ck_admin.OffsetSpec.latest()):
            ends.append(self._admin.list_offsets({tp: spec})[tp].result(PATIENCE_S).offset)
        return ends[0], ends[1]

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        tp = ck.TopicPartition(topic, 0)
        asked = {tp: ck_admin.OffsetSpec.for_timestamp(timestamp_ms)}
        offset: int = self._admin.list_offsets(asked)[tp].result(PATIENCE_S).offset
        return offset if offset >= 0 else None

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = ck_admin.NewTopic(topic, partitions, 1, config=dict(configs))
        self._admin.create_topics([new])[topic].result(PATIENCE_S)

    def partitions(self, topic: str) -> int | None:
        found = self._admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
        return None if found is None else len(found.partitions)

    def add_partitions(self, topic: str, count: int) -> None:
        new = ck_admin.NewPartitions(topic, count)
        self._admin.create_partitions([new])[topic].result(PATIENCE_S)

    def set_config(self, topic: str, key: str, value: str) -> None:
        change = ck_admin.ConfigEntry(key, value, incremental_operation=ck_admin.AlterConfigOpType.SET)
        resource = ck_admin.ConfigResource("topic", topic, incremental_configs=[change])
        self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def topic_config(self, topic: str, key: str) -> str | None:
        resource = ck_admin.ConfigResource("topic", topic)
        value: str | None = self._admin.describe_configs([resource])[resource].result(PATIENCE_S)[key].value
        return value

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(PATIENCE_S)

    def groups(self) -> list[str]:
        listed = self._admin.list_consumer_groups().result(PATIENCE_S)
        if listed.errors:
            raise listed.errors[0]
        return [group.group_id for group in listed.valid]

    def group(self, group: str) -> GroupView:
        found = self._admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        topic_partitions = [tp for member in found.members for tp in member.assignment.topic_partitions]
        return GroupView(
            state=found.state.name.title(),
            members=len(found.members),
            partitions=frozenset((tp.topic, tp.partition) for tp in topic_partitions),
        )


def _record(message: ck.Message) -> Record:
    error = message.error()
    if error is not None:
        raise ck.KafkaException(error)
    headers: Any = message.headers() or ()
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(headers),
        timestamp_ms=message.timestamp()[1],
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )


class _Polled:
    def __init__(self, consumer: ck.Consumer) -> None:
        self._consumer = consumer
        self._committed = True

    def poll(self) -> list[Record]:
        found = [_record(message) for message in self._consumer.consume(500, 0.05)]
        self._committed = self._committed and not found
        return found

    def assignment(self) -> frozenset[tuple[str, int]]:
        return frozenset((tp.topic, tp.partition) for tp in self._consumer.assignment())

    def commit(self) -> None:
        if not self._committed:
            self._consumer.commit(asynchronous=False)
            self._committed = True

    def close(self) -> None:
        self._consumer.close()


class _Sharing:
    def __init__(self, consumer: Any, released: Collection[bytes]) -> None:
        self._consumer, self._released = consumer, released

    def poll(self) -> list[Record]:
        found = []
        for message in self._consumer.poll(0.05):
            record = attrs.evolve(_record(message), delivery_count=message.delivery_count())
            again = record.value in self._released and record.delivery_count == 1
            self._consumer.acknowledge(message, ck.AcknowledgeType.RELEASE if again else ck.AcknowledgeType.ACCEPT)
            found.append(record)
        return found

    def assignment(self) -> frozenset[tuple[str, int]]:
        return frozenset()

    def commit(self) -> None:
        """Comes with `poll` and `close`."""

    def close(self) -> None:
        self._consumer.close()
