"""Groups over sockets: members of three libraries in one group; brokers killed with groups in them."""

import asyncio
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from support.abandoned_sockets import abandoned_sockets  # noqa: F401  a fixture
from support.kafka_python import KafkaConsumer
from support.process import BrokerProcess
from support.waiting import PATIENCE_S, wait_for

from barnabas.app.clients.admin.admin import Admin
from barnabas.app.clients.producer.producer import Producer
from barnabas.app.embedded_broker import Broker
from barnabas.testing.tcp_proxy import TcpProxy

pytestmark = [
    pytest.mark.xdist_group("groups"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PARTITIONS = 6
QUICK = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}


class Member:
    """A consumer in a thread of its own, which polls until it is stopped, and commits what it reads."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.owned: frozenset[int] = frozenset()
        self.read: list[bytes] = []
        self.leaving = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001  raised by `leave`
            self.failure = error

    def run(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        """Commits what it has read, and goes. Raises what the member has raised."""
        self.leaving.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self.owned = frozenset()
        if self.failure is not None:
            raise self.failure


def librdkafka(bootstrap: str, **more: Any) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "mixed",
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
            **more,
        }
    )


class Librdkafka(Member):
    def run(self) -> None:
        consumer = librdkafka(self.bootstrap)
        consumer.subscribe(["t"])
        while not self.leaving.is_set():
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                self.read.append(message.value() or b"")
            self.owned = frozenset(each.partition for each in consumer.assignment())
        if self.read:
            consumer.commit(asynchronous=False)
        consumer.close()


class KafkaPython(Member):
    def run(self) -> None:
        with closing(
            KafkaConsumer(
                "t",
                bootstrap_servers=self.bootstrap,
                group_id="mixed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=50,
                retry_backoff_ms=20,
            )
        ) as consumer:
            while not self.leaving.is_set():
                for messages in consumer.poll(PATIENCE_S).values():
                    self.read += [message.value for message in messages]
                self.owned = frozenset(each.partition for each in consumer.assignment())
            consumer.commit()


class Aiokafka(Member):
    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=self.bootstrap,
            group_id="mixed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=50,
            retry_backoff_ms=20,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        await consumer.start()
        try:
            while not self.leaving.is_set():
                for messages in (await consumer.getmany(timeout_ms=20)).values():
                    self.read += [message.value for message in messages]
                self.owned = frozenset(each.partition for each in consumer.assignment())
            await consumer.commit()
        finally:
            await consumer.stop()


def shared_by(*members: Member) -> bool:
    """Return True if every partition has one owner, and every member has a partition."""
    owned = [member.owned for member in members]
    failed = [member.failure for member in members if member.failure is not None]
    if failed:
        raise failed[0]
    return all(owned) and sum(map(len, owned)) == PARTITIONS and len(frozenset().union(*owned)) == PARTITIONS


def send(bootstrap: str, values: list[bytes]) -> None:
    with Producer(bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send("t", value, partition=number % PARTITIONS)
        producer.confirm(PATIENCE_S)


@pytest.mark.slow
def test_members_of_three_libraries_share_a_topic() -> None:
    with Broker(storage="memory", config=QUICK) as broker, ExitStack() as leaving:
        with Admin(broker) as admin:
            admin.create_topic("t", partitions=PARTITIONS)

        def join(kind: type[Member]) -> Member:
            member = kind(broker.bootstrap)
            leaving.callback(member.leave)
            return member

        first = join(Librdkafka)
        wait_for(lambda: shared_by(first))
        second = join(KafkaPython)
        wait_for(lambda: shared_by(first, second))
        third = join(Aiokafka)
        wait_for(lambda: shared_by(first, second, third))
        values = [b"%d" % number for number in range(60)]
        send(broker.bootstrap, values)
        wait_for(lambda: sorted(first.read + second.read + third.read) == sorted(values))
        first.leave()
        wait_for(lambda: shared_by(second, third))
        second.leave()
        wait_for(lambda: shared_by(third))
        send(broker.bootstrap, [b"more"] * PARTITIONS)
        wait_for(lambda: third.read.count(b"more") == PARTITIONS)
        third.leave()
        assert {*first.read, *second.read, *third.read} == {*values, b"more"}
        last = join(Librdkafka)
        wait_for(lambda: shared_by(last))
        send(broker.bootstrap, [b"last"] * PARTITIONS)
        wait_for(lambda: len(last.read) >= PARTITIONS)
        assert set(last.read) == {b"last"}


@pytest.mark.slow
def test_a_killed_broker_comes_back_with_its_groups(tmp_path: Path) -> None:
    """Positions are there, and a member continues as if nothing had been: no rebalance."""
    settings = [f"{name}={value}" for name, value in QUICK.items()]
    with closing(TcpProxy(("127.0.0.1", 1))) as proxy:
        bootstrap = f"127.0.0.1:{proxy.port}"

        def start() -> BrokerProcess:
            process = BrokerProcess(tmp_path / "data", *settings, f"advertised.listeners=kafka://{bootstrap}")
            proxy.aim(("127.0.0.1", int(process.ready_line.rpartition(":")[2])))
            return process

        process = start()
        try:
            with Admin(bootstrap) as admin:
                admin.create_topic("t", partitions=PARTITIONS)
            with closing(librdkafka(bootstrap)) as consumer:
                assigned: list[int] = []
                consumer.subscribe(["t"], on_assign=lambda _, partitions: assigned.append(len(partitions)))
                read: list[bytes] = []

                def poll(upto: int) -> bool:
                    message = consumer.poll(0.02)
                    if message is not None and message.error() is None:
                        read.append(message.value() or b"")
                    return len(read) >= upto

                send(bootstrap, [b"before"] * PARTITIONS)
                wait_for(lambda: poll(PARTITIONS))
                consumer.commit(asynchronous=False)
                process.kill()
                process = start()
                send(bootstrap, [b"after"] * PARTITIONS)
                wait_for(lambda: poll(2 * PARTITIONS))
                assert read == [b"before"] * PARTITIONS + [b"after"] * PARTITIONS
                assert assigned == [PARTITIONS]
                wanted = [confluent_kafka.TopicPartition("t", number) for number in range(PARTITIONS)]
                assert [each.offset for each in consumer.committed(wanted, PATIENCE_S)] == [1] * PARTITIONS
        finally:
            process.stop()
