"""Topics with small segments that go to remote storage quickly, and clients that write and read them."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from support.waiting import PATIENCE_S

TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "8000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
QUICK: dict[str, object] = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
}


def wait_for(what: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)


def write(bootstrap: str, topic: str, numbers: range, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.size": 4000, **settings})
    for number in numbers:
        producer.produce(topic, value=f"{number:06d}".encode() * 20, partition=0, timestamp=1_000_000 + number)
        if number % 50 == 49:
            producer.flush()
    assert producer.flush(PATIENCE_S) == 0


def read_all(bootstrap: str, topic: str, start: int, end: int, **settings: object) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(found) < end - start:
            assert time.monotonic() < deadline, f"only {len(found)} came"
            for message in consumer.consume(500, 0.5):
                assert message.error() is None, message.error()
                found.append(int((message.value() or b"")[:6]))
    finally:
        consumer.close()
    return found
