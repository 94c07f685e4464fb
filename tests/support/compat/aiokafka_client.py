"""aiokafka, in an event loop of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from .logins import Login, python_settings
from .model import EARLIEST, HEARTBEAT_MS, PATIENCE_S, PLAINLY, SESSION_MS, GroupView, Record, Sending, Start
from .transactional import AioKafkaTransactions

T = TypeVar("T")
_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """The OAuth token of a login."""

    def __init__(self, login: Login) -> None:
        self._login = login

    async def token(self) -> str:
        return self._login.token


class AioKafka(AioKafkaTransactions):
    """One loop and one admin client are kept; producers and consumers live as long as a call."""

    def __init__(self, bootstrap: str) -> None:
        self.version = version("aiokafka")
        self._common: dict[str, Any] = {"bootstrap_servers": bootstrap}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="compatibility-aiokafka")
        self._thread.start()
        self._admin: Any = self._run(self._start_admin())

    async def _start_admin(self) -> Any:
        admin = AIOKafkaAdminClient(**self._common)
        await admin.start()
        return admin

    def log_in(self, login: Login) -> None:
        self._common = python_settings(login, _Token(login))

    def close(self) -> None:
        self._run(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S * 2)

    # --- messages

    def produce(self, topic: str, records: Sequence[Record], how: Sending = PLAINLY) -> None:
        self._run(self._produce(topic, records, how))

    async def _produce(self, topic: str, records: Sequence[Record], how: Sending) -> None:
        producer = AIOKafkaProducer(
            **self._common,
            acks=how.acks if how.acks == "all" else int(how.acks),
            compression_type=None if how.codec == "none" else how.codec,
            enable_idempotence=how.idempotent,
            linger_ms=5,
            max_request_size=how.max_bytes,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=0,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        finally:
            await producer.stop()

    def _consumer(self, *topics: str, **settings: Any) -> Any:
        return AIOKafkaConsumer(
            *topics,
            **self._common,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            **settings,
        )

    def read(self, topic: str, count: int, start: Start = EARLIEST) -> list[Record]:
        return self._run(self._read(topic, count, start))

    async def _read(self, topic: str, count: int, start: Start) -> list[Record]:
        tp = TopicPartition(topic, start.partition)
        level = "read_committed" if start.committed else "read_uncommitted"
        consumer = self._consumer(max_partition_fetch_bytes=start.max_bytes, isolation_level=level)
        await consumer.start()
        try:
            consumer.assign([tp])
            offset = start.offset
            if start.timestamp_ms is not None:
                offset = (await consumer.offsets_for_times({tp: start.timestamp_ms}))[tp].offset
            consumer.seek(tp, offset)
            return [_record(await asyncio.wait_for(consumer.getone(), PATIENCE_S)) for _ in range(count)]
        finally:
            await consumer.stop()

    def join(self, group: str, topic: str, *, assignor: str = "") -> "_AioMember":
        settings: dict[str, Any] = {
            "group_id": group,
            **({"partition_assignment_strategy": [_ASSIGNORS[assignor]]} if assignor else {}),
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
        member = _AioMember(self._loop, lambda: self._consumer(topic, **settings))
        member.start()
        return member

    # --- administration

    def offsets(self, topic: str) -> tuple[int, int]:
        return self._run(self._offsets(topic))

    async def _offsets(self, topic: str) -> tuple[int, int]:
        tp = TopicPartition(topic, 0)
        consumer = self._consumer()
        await consumer.start()
        try:
            first, end = await consumer.beginning_offsets([tp]), await consumer.end_offsets([tp])
            return first[tp], end[tp]
        finally:
            await consumer.stop()

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        return self._run(self._offset_for_time(topic, timestamp_ms))

    async def _offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        tp = TopicPartition(topic, 0)
        consumer = self._consumer()
        await consumer.start()
        try:
            found = (await consumer.offsets_for_times({tp: timestamp_ms}))[tp]
            return None if found is None else found.offset
        finally:
            await consumer.stop()

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
        _raise_errors(self._run(self._admin.create_topics([new])).topic_errors)

    def partitions(self, topic: str) -> int | None:
        if topic not in self._run(self._admin.list_topics()):
            return None
        described = self._run(self._admin.describe_topics([topic]))
        return len(described[0]["partitions"])

    def add_partitions(self, topic: str, count: int) -> None:
        _raise_errors(self._run(self._admin.create_partitions({topic: NewPartitions(count)})).topic_errors)

    def set_config(self, topic: str, key: str, value: str) -> None:
        self._run(self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})]))

    def topic_config(self, topic: str, key: str) -> str | None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._run(self._admin.describe_configs([resource]))
        entries: dict[str, str | None] = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        return entries[key]

    def delete_topic(self, topic: str) -> None:
        _raise_errors(self._run(self._admin.delete_topics([topic])).topic_error_codes)

    def groups(self) -> list[str]:
        return [group[0] for group in self._run(self._admin.list_consumer_groups())]

    def group(self, group: str) -> GroupView:
        (answer,) = self._run(self._admin.describe_consumer_groups([group]))
        _, _, state, _, _, members = answer.groups[0][:6]
        places: set[tuple[str, int]] = set()
        for member in members:
            assigned = ConsumerProtocolMemberAssignment.decode(member[-1])
            places |= {(topic, partition) for topic, partitions in assigned.assignment for partition in partitions}
        return GroupView(state=state, members=len(members), partitions=frozenset(places))


def _raise_errors(outcomes: Sequence[Sequence[Any]]) -> None:
    failed = [outcome for outcome in outcomes if outcome[1]]
    if failed:
        raise RuntimeError(failed)


def _record(record: Any) -> Record:
    return Record(
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        partition=record.partition,
        offset=record.offset,
    )


class _AioMember:
    """A consumer in a task of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Any) -> None:
        self._loop, self._make = loop, make
        self._received: list[Record] = []
        self._consumer: Any = None
        self._failure: BaseException | None = None
        self._closing = False
        self._task: Any = None

    def start(self) -> None:
        self._task = asyncio.run_coroutine_threadsafe(self._poll(), self._loop)

    async def _poll(self) -> None:
        self._consumer = consumer = self._make()
        try:
            await consumer.start()
            while not self._closing:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    self._received += map(_record, records)
        finally:
            await consumer.stop()

    def _check(self) -> None:
        if self._task.done():
            self._task.result()

    def assignment(self) -> frozenset[tuple[str, int]]:
        self._check()
        partitions = self._consumer.assignment() if self._consumer is not None else ()
        return frozenset((tp.topic, tp.partition) for tp in partitions)

    def received(self) -> list[Record]:
        self._check()
        return list(self._received)

    def commit(self) -> None:
        asyncio.run_coroutine_threadsafe(self._consumer.commit(), self._loop).result(PATIENCE_S)

    def close(self) -> None:
        self._closing = True
        self._task.result(PATIENCE_S)
