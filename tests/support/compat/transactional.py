"""Transactions of the libraries for Python: of each what `Client` asks of it."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import closing
from typing import Any

import confluent_kafka as ck
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from support.kafka_python import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from barnabas.app.clients.consumer.consumer import Consumer
from barnabas.app.clients.producer.producer import Producer
from barnabas.ports.errors import BarnabasError

from .model import PATIENCE_S, Record


class OwnTransactions:
    """Our own."""

    _bootstrap: str

    def _transactional(self, name: str) -> Producer:
        return Producer(self._bootstrap, transactional_id=name)

    def transact(self, name: str, topic: str, records: Sequence[Record], *, commit: bool) -> None:
        with self._transactional(name) as producer:
            producer.begin_transaction()
            producer.send_many(topic, [record.value for record in records], partition=0).result(PATIENCE_S)
            producer.commit_transaction() if commit else producer.abort_transaction()

    def zombie(self, name: str, topic: str, first: Record, second: Record) -> str:
        with self._transactional(name) as zombie, self._transactional(name) as producer:
            zombie.begin_transaction()
            zombie.send(topic, first.value, partition=0).result(PATIENCE_S)
            with producer.transaction():
                producer.send(topic, second.value, partition=0)
            try:
                zombie.commit_transaction()
            except BarnabasError as error:
                return str(error)
        return ""

    def transform(self, name: str, group: str, source: str, topic: str, count: int, *, commit: bool) -> None:
        consumer = Consumer(
            self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        with consumer, self._transactional(name) as producer:
            consumer.subscribe(source)
            producer.begin_transaction()
            left = count
            while left:
                for message in consumer.poll_many(left, PATIENCE_S):
                    producer.send(topic, message.value, partition=0)
                    left -= 1
            producer.send_offsets(consumer)
            producer.commit_transaction() if commit else producer.abort_transaction()


class LibrdkafkaTransactions:
    """librdkafka's."""

    _common: dict[str, Any]

    def _transactional(self, name: str) -> Any:
        producer = ck.Producer({**self._common, "transactional.id": name, "linger.ms": 0})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        return producer

    def transact(self, name: str, topic: str, records: Sequence[Record], *, commit: bool) -> None:
        producer = self._transactional(name)
        for record in records:
            producer.produce(topic, record.value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        producer.commit_transaction(PATIENCE_S) if commit else producer.abort_transaction(PATIENCE_S)

    def zombie(self, name: str, topic: str, first: Record, second: Record) -> str:
        zombie = self._transactional(name)
        zombie.produce(topic, first.value, partition=0)
        assert zombie.flush(PATIENCE_S) == 0
        self.transact(name, topic, [second], commit=True)
        try:
            zombie.commit_transaction(PATIENCE_S)
        except ck.KafkaException as error:
            return str(error)
        return ""

    def transform(self, name: str, group: str, source: str, topic: str, count: int, *, commit: bool) -> None:
        settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = ck.Consumer({**self._common, **settings})
        producer = self._transactional(name)
        try:
            consumer.subscribe([source])
            positions: dict[int, int] = {}
            left, deadline = count, time.monotonic() + PATIENCE_S
            while left and time.monotonic() < deadline:
                for message in consumer.consume(left, 0.2):
                    producer.produce(topic, message.value(), partition=0)
                    positions[message.partition() or 0] = (message.offset() or 0) + 1
                    left -= 1
            assert not left
            partitions = [ck.TopicPartition(source, partition, offset) for partition, offset in positions.items()]
            producer.send_offsets_to_transaction(partitions, consumer.consumer_group_metadata(), PATIENCE_S)
            producer.commit_transaction(PATIENCE_S) if commit else producer.abort_transaction(PATIENCE_S)
        finally:
            consumer.close()


class KafkaPythonTransactions:
    """kafka-python's."""

    _common: dict[str, Any]

    def _transactional(self, name: str) -> Any:
        producer = KafkaProducer(**self._common, transactional_id=name, max_block_ms=PATIENCE_S * 1000, linger_ms=0)
        producer.init_transactions()
        producer.begin_transaction()
        return producer

    def transact(self, name: str, topic: str, records: Sequence[Record], *, commit: bool) -> None:
        with closing(self._transactional(name)) as producer:
            for record in records:
                producer.send(topic, record.value, partition=0)
            producer.flush(PATIENCE_S)
            producer.commit_transaction() if commit else producer.abort_transaction()

    def zombie(self, name: str, topic: str, first: Record, second: Record) -> str:
        zombie = self._transactional(name)
        try:
            zombie.send(topic, first.value, partition=0).get(PATIENCE_S)
            self.transact(name, topic, [second], commit=True)
            zombie.commit_transaction()
        except Exception as error:  # noqa: BLE001  # the zombie is fenced
            return repr(error)
        finally:
            zombie.close(timeout=1)
        return ""

    def transform(self, name: str, group: str, source: str, topic: str, count: int, *, commit: bool) -> None:
        consumer = KafkaConsumer(
            source,
            **self._common,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        with closing(consumer), closing(self._transactional(name)) as producer:
            positions: dict[Any, Any] = {}
            left, deadline = count, time.monotonic() + PATIENCE_S
            while left and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=200, max_records=left).values():
                    for record in records:
                        producer.send(topic, record.value, partition=0)
                        tp = TopicPartition(record.topic, record.partition)
                        positions[tp] = OffsetAndMetadata(record.offset + 1, "", -1)
                        left -= 1
            assert not left
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            producer.commit_transaction() if commit else producer.abort_transaction()


class AioKafkaTransactions:
    """aiokafka's."""

    _common: dict[str, Any]

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        raise NotImplementedError

    async def _transactional(self, name: str) -> Any:
        producer = AIOKafkaProducer(**self._common, transactional_id=name)
        await asyncio.wait_for(producer.start(), PATIENCE_S)
        await producer.begin_transaction()
        return producer

    def transact(self, name: str, topic: str, records: Sequence[Record], *, commit: bool) -> None:
        self._run(self._transact(name, topic, records, commit))

    async def _transact(self, name: str, topic: str, records: Sequence[Record], commit: bool) -> None:
        producer = await self._transactional(name)
        try:
            for record in records:
                await producer.send_and_wait(topic, record.value, partition=0)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        finally:
            await producer.stop()

    def zombie(self, name: str, topic: str, first: Record, second: Record) -> str:
        async def play() -> str:
            zombie = await self._transactional(name)
            try:
                await zombie.send_and_wait(topic, first.value, partition=0)
                await self._transact(name, topic, [second], True)
                await zombie.commit_transaction()
            except Exception as error:  # noqa: BLE001  # the zombie is fenced
                return repr(error)
            finally:
                await zombie.stop()
            return ""

        said: str = self._run(play())
        return said

    def transform(self, name: str, group: str, source: str, topic: str, count: int, *, commit: bool) -> None:
        async def play() -> None:
            consumer = AIOKafkaConsumer(
                source,
                **self._common,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            )
            await consumer.start()
            producer = await self._transactional(name)
            try:
                positions: dict[Any, int] = {}
                for _ in range(count):
                    record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
                    await producer.send_and_wait(topic, record.value, partition=0)
                    positions[AioTopicPartition(record.topic, record.partition)] = record.offset + 1
                await producer.send_offsets_to_transaction(positions, group)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
            finally:
                await producer.stop()
                await consumer.stop()

        self._run(play())
