"""Idempotent producers of several libraries; answers are lost, brokers killed: all arrives exactly once, in order."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from support.abandoned_sockets import abandoned_sockets  # noqa: F401  a fixture
from support.kafka_python import KafkaProducer
from support.process import BrokerProcess
from support.waiting import PATIENCE_S, wait_for

from barnabas.app.clients.admin.admin import Admin
from barnabas.app.clients.consumer.simple_consumer import SimpleConsumer
from barnabas.app.clients.producer.producer import Producer
from barnabas.app.embedded_broker import Broker
from barnabas.testing.tcp_proxy import TcpProxy

pytestmark = [
    pytest.mark.xdist_group("idempotent"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PARTITIONS = 2
MESSAGES = 1500
FAULTS = 4
Produce = Callable[[str, Sequence[bytes], threading.Event], None]
"""Takes bootstrap, values, and what to set when the first value is delivered: from then on all may fail."""


def barnabas(bootstrap: str, values: Sequence[bytes], begun: threading.Event) -> None:
    with Producer(bootstrap, linger_ms=1, batch_size=2000, retry_backoff_ms=20) as producer:
        for number, value in enumerate(values):
            sent = producer.send("t", value, partition=number % PARTITIONS)
            if not number:
                sent.result(PATIENCE_S)
                begun.set()
        producer.confirm(PATIENCE_S)


def librdkafka(bootstrap: str, values: Sequence[bytes], begun: threading.Event) -> None:
    failed: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    for number, value in enumerate(values):
        producer.produce("t", value, partition=number % PARTITIONS, on_delivery=lambda e, _: failed.append(e))
        producer.poll(0)
        if not number:
            assert producer.flush(PATIENCE_S) == 0
            begun.set()
    assert producer.flush(PATIENCE_S) == 0
    assert not any(failed)
    assert len(failed) == len(values)


def kafka_python(bootstrap: str, values: Sequence[bytes], begun: threading.Event) -> None:
    with closing(
        KafkaProducer(
            bootstrap_servers=bootstrap,
            linger_ms=1,
            batch_size=2000,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
        )
    ) as producer:
        assert producer.config["enable_idempotence"]
        sent = [producer.send("t", values[0], partition=0)]
        sent[0].get(PATIENCE_S)
        begun.set()
        sent += [producer.send("t", values[n], partition=n % PARTITIONS) for n in range(1, len(values))]
        for future in sent:
            future.get(PATIENCE_S)


def aiokafka(bootstrap: str, values: Sequence[bytes], begun: threading.Event) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            linger_ms=1,
            max_batch_size=2000,
            retry_backoff_ms=20,
            request_timeout_ms=int(PATIENCE_S * 1000),
        )
        await producer.start()
        try:
            await producer.send_and_wait("t", values[0], partition=0)
            begun.set()
            sent = [await producer.send("t", values[n], partition=n % PARTITIONS) for n in range(1, len(values))]
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        finally:
            await producer.stop()

    asyncio.run(run())


CLIENTS = [barnabas, librdkafka, kafka_python, aiokafka]


@contextmanager
def producing(produce: Produce, bootstrap: str, values: Sequence[bytes]) -> Iterator[threading.Thread]:
    """In a thread; what it raises is raised at the end."""
    failures: list[BaseException] = []
    begun = threading.Event()

    def run() -> None:
        try:
            produce(bootstrap, values, begun)
        except BaseException as error:  # noqa: BLE001  raised below
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: begun.is_set() or not thread.is_alive())
    yield thread
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def check_exactly_once(bootstrap: str, values: Sequence[bytes]) -> None:
    with SimpleConsumer(bootstrap) as consumer:
        for partition in range(PARTITIONS):
            found = [message.value for piece in consumer.read("t", partition, 0) for message in piece]
            assert found == list(values[partition::PARTITIONS])


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    with closing(TcpProxy(("127.0.0.1", 1))) as made:
        yield made


def values_for(produce: Produce) -> list[bytes]:
    return [b"%s %d" % (produce.__name__.encode(), number) for number in range(MESSAGES)]


def lose_answers(proxy: TcpProxy, thread: threading.Thread) -> int:
    """Let requests through and lose their answers, again and again; returns how often answers were lost."""
    lost = 0
    for _ in range(FAULTS):
        if not thread.is_alive():
            break
        proxy.swallow()
        wait_for(lambda: proxy.swallowed or not thread.is_alive())
        lost += bool(proxy.swallowed)
        proxy.cut()
        proxy.restore()
    return lost


@pytest.mark.parametrize("produce", CLIENTS)
def test_idempotent_producer_writes_once_when_responses_are_lost(produce: Produce, proxy: TcpProxy) -> None:
    values = values_for(produce)
    with Broker(storage="memory", advertised_listeners=f"kafka://127.0.0.1:{proxy.port}") as broker:
        direct = broker.listeners[0].removeprefix("kafka://")
        proxy.aim(("127.0.0.1", int(direct.rpartition(":")[2])))
        with Admin(broker) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        with producing(produce, f"127.0.0.1:{proxy.port}", values) as thread:
            assert lose_answers(proxy, thread)
        check_exactly_once(f"127.0.0.1:{proxy.port}", values)


@pytest.mark.slow
@pytest.mark.parametrize("produce", CLIENTS)
@pytest.mark.parametrize("orderly", [False, True])
def test_idempotent_producer_writes_once_across_broker_restarts(
    produce: Produce, proxy: TcpProxy, tmp_path: Path, orderly: bool
) -> None:
    """Answers are lost, then the broker is killed or stopped, and comes back on another port."""
    values = values_for(produce)
    settings = [f"advertised.listeners=kafka://127.0.0.1:{proxy.port}", "log.segment.bytes=20000"]

    def start() -> BrokerProcess:
        process = BrokerProcess(tmp_path / "data", *settings)
        proxy.aim(("127.0.0.1", int(process.ready_line.rpartition(":")[2])))
        return process

    bootstrap = f"127.0.0.1:{proxy.port}"
    broker = start()
    try:
        with Admin(bootstrap) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        with producing(produce, bootstrap, values) as thread:
            for _ in range(2):
                proxy.swallow()
                wait_for(lambda: proxy.swallowed or not thread.is_alive(), PATIENCE_S)
                broker.stop() if orderly else broker.kill()
                proxy.cut()
                broker = start()
                proxy.restore()
        check_exactly_once(bootstrap, values)
    finally:
        broker.stop()
