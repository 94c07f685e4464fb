"""Transactions against idempotent produce, librdkafka's and our own: large ones by their messages, small ones by their
number."""

import time
from collections.abc import Callable

from confluent_kafka import Producer
from harness import MESSAGE_BYTES, Result, broker

from barnabas import Admin
from barnabas import Producer as OwnProducer

TOPIC = "bench"
MESSAGES = 1000
"""The number of messages in a large transaction."""
LARGE = 150
SMALL = 600
ROUNDS = 3
GOAL = 0.8
GOAL_SMALL = 300

_CONFIG = {
    "linger.ms": 1,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 1_000_000,
    "delivery.report.only.error": True,
}


def _send(producer: Producer, messages: int, payload: bytes) -> None:
    for _ in range(messages):
        while True:
            try:
                producer.produce(TOPIC, payload, partition=0)
                break
            except BufferError:
                producer.poll(0.05)


def _timed(rounds: int, each: Callable[[], None], last: Callable[[], None] = lambda: None) -> float:
    started = time.perf_counter()
    for _ in range(rounds):
        each()
    last()
    return time.perf_counter() - started


def _flush(producer: Producer) -> None:
    if producer.flush(60):
        raise RuntimeError("not all messages were sent")


def _transaction(producer: Producer, messages: int, payload: bytes) -> None:
    producer.begin_transaction()
    _send(producer, messages, payload)
    producer.commit_transaction(60)


def measure() -> list[Result]:
    return [*_librdkafka(), *_own()]


def _own() -> list[Result]:
    values = [bytes(MESSAGE_BYTES)] * MESSAGES
    rates: dict[str, list[float]] = {"transactions": [], "in portions": [], "small": []}
    with broker(None, "transaction.state.log.num.partitions=5") as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        plain = OwnProducer(running.bootstrap, enable_idempotence=True)
        transactional = OwnProducer(running.bootstrap, transactional_id="bench")

        def portion() -> None:
            plain.send_many(TOPIC, values, partition=0)
            plain.flush(60)

        def transaction(of: list[bytes]) -> None:
            with transactional.transaction():
                transactional.send_many(TOPIC, of, partition=0)

        with plain, transactional:
            for _ in range(ROUNDS):
                large = LARGE * MESSAGES
                rates["transactions"].append(large / _timed(LARGE, lambda: transaction(values)))
                rates["in portions"].append(large / _timed(LARGE, portion))
                rates["small"].append(SMALL / _timed(SMALL, lambda: transaction(values[:1])))
    best = {name: max(found) for name, found in rates.items()}
    return [
        Result(
            f"our producer: transactions of {MESSAGES:,} / idempotent, as many at a time",
            best["transactions"] / best["in portions"],
            "",
            GOAL,
            details={"messages/s": best["transactions"]},
        ),
        Result("small transactions of our producer", best["small"], "/s", GOAL_SMALL),
    ]


def _librdkafka() -> list[Result]:
    payload = bytes(MESSAGE_BYTES)
    rates: dict[str, list[float]] = {"transactions": [], "in portions": [], "without a pause": [], "small": []}
    with broker(None, "transaction.state.log.num.partitions=5") as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        plain = Producer({**_CONFIG, "bootstrap.servers": running.bootstrap, "enable.idempotence": True})
        transactional = Producer({**_CONFIG, "bootstrap.servers": running.bootstrap, "transactional.id": "bench"})
        transactional.init_transactions(60)
        for _ in range(ROUNDS):
            large = LARGE * MESSAGES
            seconds = _timed(LARGE, lambda: _transaction(transactional, MESSAGES, payload))
            rates["transactions"].append(large / seconds)

            def portion() -> None:
                _send(plain, MESSAGES, payload)
                _flush(plain)

            rates["in portions"].append(large / _timed(LARGE, portion))
            seconds = _timed(LARGE, lambda: _send(plain, MESSAGES, payload), lambda: _flush(plain))
            rates["without a pause"].append(large / seconds)
            rates["small"].append(SMALL / _timed(SMALL, lambda: _transaction(transactional, 1, payload)))
    best = {name: max(found) for name, found in rates.items()}
    return [
        Result(
            f"transactions of {MESSAGES:,} messages / idempotent, as many at a time",
            best["transactions"] / best["in portions"],
            "",
            GOAL,
            details={"messages/s": best["transactions"]},
        ),
        Result(
            "the same / idempotent without a pause",
            best["transactions"] / best["without a pause"],
            "",
            GOAL,
            details={"messages/s": best["without a pause"]},
        ),
        Result("small transactions of one producer", best["small"], "/s", GOAL_SMALL),
    ]
