"""kafka-python."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib.metadata import version
from typing import Any

from support.kafka_python import (
    AbstractTokenProvider,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    MemberState,
    TopicPartition,
)

from .logins import Login, python_settings
from .model import EARLIEST, HEARTBEAT_MS, PATIENCE_S, PLAINLY, SESSION_MS, GroupView, Record, Sending, Start
from .polling import PollingMember
from .transactional import KafkaPythonTransactions

_BOOTSTRAP_MS = 5000
"""The time for a login, even when the broker refuses it."""


def _assignor(name: str) -> Any:
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    return {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }[name]


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """The OAuth token of a login."""

    def __init__(self, login: Login) -> None:
        super().__init__()
        self._login = login

    def token(self) -> str:
        return self._login.token


class KafkaPython(KafkaPythonTransactions):
    """One admin client is kept; producers and consumers live as long as a call."""

    def __init__(self, bootstrap: str) -> None:
        self.version = version("kafka-python")
        self._common: dict[str, Any] = {"bootstrap_servers": bootstrap}
        self._admin: Any = KafkaAdminClient(**self._common)

    def log_in(self, login: Login) -> None:
        self._common = {**python_settings(login, _Token(login)), "bootstrap_timeout_ms": _BOOTSTRAP_MS}

    def close(self) -> None:
        self._admin.close()

    # --- messages

    def produce(self, topic: str, records: Sequence[Record], how: Sending = PLAINLY) -> None:
        with closing(
            KafkaProducer(
                **self._common,
                acks=how.acks if how.acks == "all" else int(how.acks),
                compression_type=None if how.codec == "none" else how.codec,
                enable_idempotence=how.idempotent,
                linger_ms=5,
                max_request_size=how.max_bytes,
            )
        ) as producer:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=0,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(PATIENCE_S)
            for future in sent:
                future.get(PATIENCE_S)

    def _consumer(self, **settings: Any) -> Any:
        return KafkaConsumer(
            **self._common,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            **settings,
        )

    def read(self, topic: str, count: int, start: Start = EARLIEST) -> list[Record]:
        tp = TopicPartition(topic, start.partition)
        found: list[Record] = []
        level = "read_committed" if start.committed else "read_uncommitted"
        settings = {"max_partition_fetch_bytes": start.max_bytes, "isolation_level": level}
        with closing(self._consumer(**settings)) as consumer:
            consumer.assign([tp])
            offset = start.offset
            if start.timestamp_ms is not None:
                offset = consumer.offsets_for_times({tp: start.timestamp_ms})[tp].offset
            consumer.seek(tp, offset)
            deadline = time.monotonic() + PATIENCE_S
            while len(found) < count and time.monotonic() < deadline:
                found += _records(consumer.poll(timeout_ms=100, max_records=count - len(found)))
        return found

    def join(self, group: str, topic: str, *, assignor: str = "") -> PollingMember:
        def subscribed() -> _Polled:
            consumer = self._consumer(
                group_id=group,
                **({"partition_assignment_strategy": [_assignor(assignor)]} if assignor else {}),
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
            )
            consumer.partitions_for_topic(topic)  # a leader that does not know the topic yet joins again when it does
            consumer.subscribe([topic])
            return _Polled(consumer)

        return PollingMember(subscribed)

    # --- administration

    def offsets(self, topic: str) -> tuple[int, int]:
        tp = TopicPartition(topic, 0)
        first, end = (self._admin.list_partition_offsets({tp: time})[tp].offset for time in (-2, -1))
        return first, end

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        tp = TopicPartition(topic, 0)
        offset: int = self._admin.list_partition_offsets({tp: timestamp_ms})[tp].offset
        return offset if offset >= 0 else None

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._admin.create_topics({topic: {"num_partitions": partitions, "configs": dict(configs)}})

    def partitions(self, topic: str) -> int | None:
        if topic not in self._admin.list_topics():
            return None
        return len(self._admin.describe_topics([topic])[0]["partitions"])

    def add_partitions(self, topic: str, count: int) -> None:
        self._admin.create_partitions({topic: count})

    def set_config(self, topic: str, key: str, value: str) -> None:
        self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})])

    def topic_config(self, topic: str, key: str) -> str | None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._admin.describe_configs([resource], config_filter="all")
        (topics,) = described.values()
        value: str | None = topics[topic][key]["value"]
        return value

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def groups(self) -> list[str]:
        return [group["group_id"] for group in self._admin.list_groups()]

    def group(self, group: str) -> GroupView:
        found = self._admin.describe_groups([group])[group]
        places: set[tuple[str, int]] = set()
        for member in found["members"]:
            for topic in member["member_assignment"]["assigned_partitions"]:
                places |= {(topic["topic"], partition) for partition in topic["partitions"]}
        return GroupView(state=str(found["group_state"]), members=len(found["members"]), partitions=frozenset(places))


def _records(polled: Mapping[Any, Sequence[Any]]) -> list[Record]:
    return [
        Record(
            value=record.value,
            key=record.key,
            headers=tuple(record.headers),
            timestamp_ms=record.timestamp,
            partition=record.partition,
            offset=record.offset,
        )
        for records in polled.values()
        for record in records
    ]


POLL_MS, REBALANCE_POLL_MS = 50, 1600


class _Polled:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._poll_ms = POLL_MS

    def poll(self) -> list[Record]:
        """Poll once, and see to it that a rebalance that outlasts the poll is completed by the next one.

        Version 3.0 of the library rejoins when the metadata have changed since the assignment. The answer to JoinGroup
        makes the next assignment, after which nothing has changed: a poll that begins then no longer waits for the
        answer to SyncGroup, and the member never becomes stable and sends no heartbeats. Polls get longer meanwhile: on
        a machine where an answer takes longer than a poll, each of them would begin the rebalance of all members again.
        """
        found = _records(self._consumer.poll(timeout_ms=self._poll_ms))
        if self._consumer.group_metadata().state is MemberState.REBALANCING:
            self._consumer._coordinator.request_rejoin()
            self._poll_ms = min(2 * self._poll_ms, REBALANCE_POLL_MS)
        else:
            self._poll_ms = POLL_MS
        return found

    def assignment(self) -> frozenset[tuple[str, int]]:
        return frozenset((tp.topic, tp.partition) for tp in self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()
