"""Our own clients, over TCP."""

from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from typing import Any

import attrs

from barnabas.app.clients.admin.admin import Admin
from barnabas.app.clients.consumer.consumer import Consumer
from barnabas.app.clients.producer.producer import Producer
from barnabas.app.clients.share.share_consumer import ShareConsumer
from barnabas.core.message.message import Message
from barnabas.ports.errors import ApiError

from .logins import Login, java_settings
from .model import EARLIEST, HEARTBEAT_MS, PATIENCE_S, PLAINLY, SESSION_MS, GroupView, Record, Sending, Start
from .polling import PollingMember
from .transactional import OwnTransactions


class Barnabas(OwnTransactions):
    """One admin client is kept; producers and consumers live as long as a call."""

    def __init__(self, bootstrap: str) -> None:
        self.version = version("barnabas")
        self._bootstrap = bootstrap
        self._config: dict[str, str] = {}
        self._admin = Admin(bootstrap)

    def log_in(self, login: Login) -> None:
        self._bootstrap, self._config = login.bootstrap, java_settings(login, store_type="PEM")

    def close(self) -> None:
        self._admin.close()

    # --- messages

    def produce(self, topic: str, records: Sequence[Record], how: Sending = PLAINLY) -> None:
        with Producer(
            self._bootstrap,
            config=self._config,
            compression_type=how.codec,
            acks=how.acks,
            enable_idempotence=how.idempotent,
            max_request_size=how.max_bytes,
            batch_size=how.max_bytes,
        ) as producer:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=0,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            for each in sent:
                each.result(PATIENCE_S)

    def read(self, topic: str, count: int, start: Start = EARLIEST) -> list[Record]:
        with Consumer(
            self._bootstrap,
            config=self._config,
            fetch_max_wait_ms=100,
            max_partition_fetch_bytes=start.max_bytes,
            isolation_level="read_committed" if start.committed else "read_uncommitted",
        ) as consumer:
            position = (
                {"position": start.offset} if start.timestamp_ms is None else {"timestamp_ms": start.timestamp_ms}
            )
            consumer.assign((topic, start.partition), **position)  # type: ignore[arg-type]  # one of the two
            return [_record(message) for message in islice(consumer.messages(timeout=PATIENCE_S), count)]

    def join(self, group: str, topic: str, *, assignor: str = "") -> PollingMember:
        def subscribed() -> _Polled:
            chosen: dict[str, Any] = {"partition_assignment_strategy": [assignor]} if assignor else {}
            consumer = Consumer(
                self._bootstrap,
                config=self._config,
                group_id=group,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=100,
                **chosen,
            )
            consumer.subscribe([topic])
            return _Polled(consumer)

        return PollingMember(subscribed)

    def join_consumer_group(self, group: str, topic: str) -> PollingMember:
        def subscribed() -> _Polled:
            consumer = Consumer(
                self._bootstrap,
                group_id=group,
                group_protocol="consumer",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=100,
            )
            consumer.subscribe([topic])
            return _Polled(consumer)

        return PollingMember(subscribed)

    def join_share_group(self, group: str, topic: str, released: Collection[bytes]) -> PollingMember:
        def subscribed() -> _Sharing:
            consumer = ShareConsumer(self._bootstrap, group_id=group, share_acknowledgement_mode="explicit")
            consumer.subscribe([topic])
            return _Sharing(consumer, released)

        return PollingMember(subscribed)

    # --- administration

    def offsets(self, topic: str) -> tuple[int, int]:
        first, end = (self._admin.list_offsets({(topic, 0): which})[topic, 0] for which in ("earliest", "latest"))  # type: ignore[index]  # a TopicPartition is this tuple
        return first, end

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        (offset,) = self._admin.list_offsets({(topic, 0): timestamp_ms}).values()
        return offset if offset >= 0 else None

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._admin.create_topic(topic, partitions=partitions, configs=dict(configs))

    def partitions(self, topic: str) -> int | None:
        try:
            return len(self._admin.describe_topics([topic])[0].partitions)
        except ApiError:
            return None

    def add_partitions(self, topic: str, count: int) -> None:
        self._admin.create_partitions(topic, count)

    def set_config(self, topic: str, key: str, value: str) -> None:
        self._admin.alter_topic_configs(topic, {key: value})

    def topic_config(self, topic: str, key: str) -> str | None:
        return self._admin.describe_topic_configs(topic)[key]

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def groups(self) -> list[str]:
        return [group.group_id for group in self._admin.list_groups()]

    def group(self, group: str) -> GroupView:
        found = self._admin.describe_groups([group])[0]
        return GroupView(
            state=found.state,
            members=len(found.members),
            partitions=frozenset((tp.topic, tp.partition) for m in found.members for tp in m.assignment),
        )


def _record(message: Message) -> Record:
    return Record(
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
        timestamp_ms=message.timestamp_ms,
        partition=message.partition,
        offset=message.offset,
    )


class _Polled:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[Record]:
        return [_record(message) for message in self._consumer.poll_many(timeout=0.05)]

    def assignment(self) -> frozenset[tuple[str, int]]:
        return frozenset((tp.topic, tp.partition) for tp in self._consumer.assignment)

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class _Sharing:
    def __init__(self, consumer: Any, released: Collection[bytes]) -> None:
        self._consumer, self._released = consumer, released

    def poll(self) -> list[Record]:
        found = self._consumer.poll_many(timeout=0.05)
        for message in found:
            again = message.value in self._released and message.delivery_count == 1
            self._consumer.acknowledge(message, "release" if again else "accept")
        return [attrs.evolve(_record(message), delivery_count=message.delivery_count) for message in found]

    def assignment(self) -> frozenset[tuple[str, int]]:
        return frozenset()

    def commit(self) -> None:
        """Comes with `poll` and `close`."""

    def close(self) -> None:
        self._consumer.close()
