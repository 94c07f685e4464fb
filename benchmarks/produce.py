"""librdkafka producing 200-byte messages into the broker, against librdkafka into its own mock broker."""

import time

from confluent_kafka import Producer
from harness import MESSAGE_BYTES, Result, RunningBroker, broker

from barnabas import Admin

MESSAGES = 1_000_000
TOPIC = "bench"


def _produce(settings: dict[str, object], messages: int) -> float:
    """Messages per second until all are acknowledged."""
    failed = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {"linger.ms": 5, "queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 1_000_000}
        | {"delivery.report.only.error": True, "on_delivery": delivered}
        | settings
    )
    producer.list_topics(TOPIC, timeout=10)
    payload = bytes(MESSAGE_BYTES)
    started = time.perf_counter()
    for number in range(messages):
        while True:
            try:
                producer.produce(TOPIC, payload, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 20_000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    seconds = time.perf_counter() - started
    if left or failed:
        raise RuntimeError(f"{left} messages were not sent, {failed} failed")
    return messages / seconds


def _into(running: RunningBroker) -> tuple[float, float]:
    before = running.cpu_seconds()
    rate = _produce({"bootstrap.servers": running.bootstrap}, MESSAGES)
    return rate, (running.cpu_seconds() - before) / MESSAGES * 500_000


def measure() -> list[Result]:
    with broker(None, "num.partitions=1") as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        _produce({"bootstrap.servers": running.bootstrap}, MESSAGES // 10)
        ours, mocks = [], []
        for _ in range(3):
            mocks.append(_produce({"test.mock.num.brokers": 1}, MESSAGES))
            ours.append(_into(running))
        rate = max(r for r, _ in ours)
        mock = max(mocks)
    details = {"ours msg/s": rate, "mock msg/s": mock}
    return [
        Result("librdkafka produce: broker / its own mock", rate / mock, "", 0.8, details=details),
        Result("broker CPU per 500,000 messages/s", min(c for _, c in ours), "cores", 0.35, at_least=False),
    ]
