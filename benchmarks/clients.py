"""Our clients compared with confluent-kafka, message by message: 200-byte values, one partition, one process, by turns.

`make bench ARGS=clients`. The time is that of the process and all its threads, so that librdkafka's count as ours do;
the details have the rates by the clock. With the compiled wheel in place of the checkout it measures that.
"""

import os
import time
from collections.abc import Callable, Sequence

import confluent_kafka
from harness import MESSAGE_BYTES, Result, broker

from barnabas import Admin, Consumer, Producer
from barnabas.core.message.varint import COMPILED

TOPIC = "bench"
MESSAGES = 500_000
BATCH = 1000
ROUNDS = 5
VALUE = bytes(MESSAGE_BYTES)
KEYS = [b"user-%d" % number for number in range(1000)]
Way = Callable[[str], object]


def _confluent_produce(bootstrap: str) -> None:
    _confluent_produce_with([None], bootstrap)


def _confluent_produce_keys(bootstrap: str) -> None:
    _confluent_produce_with(KEYS, bootstrap)


def _confluent_produce_with(keys: Sequence[bytes | None], bootstrap: str) -> None:
    settings = {"linger.ms": 5, "queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 1_000_000}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(MESSAGES):
        while True:
            try:
                producer.produce(TOPIC, VALUE, keys[number % len(keys)])
                break
            except BufferError:
                producer.poll(0.05)
        if number % BATCH == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("messages were not sent")


def _send(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        for _ in range(MESSAGES):
            producer.send(TOPIC, VALUE)


def _send_keys(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(MESSAGES):
            producer.send(TOPIC, VALUE, KEYS[number % len(KEYS)])


def _send_many(bootstrap: str) -> None:
    values = [VALUE] * BATCH
    with Producer(bootstrap) as producer:
        for _ in range(MESSAGES // BATCH):
            producer.send_many(TOPIC, values)


def _confluent_consume(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    come = 0
    while come < MESSAGES:
        for message in consumer.consume(BATCH, 1.0):
            come += len(message.value() or b"") // MESSAGE_BYTES
    consumer.close()


def _iterate(bootstrap: str) -> None:
    come = 0
    with Consumer(bootstrap) as consumer:
        consumer.assign(TOPIC, position="earliest")
        for message in consumer:
            come += len(message.value or b"") // MESSAGE_BYTES
            if come == MESSAGES:
                break


def _poll_many(bootstrap: str) -> None:
    come = 0
    with Consumer(bootstrap) as consumer:
        consumer.assign(TOPIC, position="earliest")
        while come < MESSAGES:
            for message in consumer.poll_many(BATCH, 1.0):
                come += len(message.value or b"") // MESSAGE_BYTES


def _microseconds(way: Way, bootstrap: str) -> tuple[float, float]:
    """Return the CPU time and the time of a message."""
    cpu, clock = sum(os.times()[:2]), time.perf_counter()
    way(bootstrap)
    cpu, clock = sum(os.times()[:2]) - cpu, time.perf_counter() - clock
    return cpu / MESSAGES * 1e6, clock / MESSAGES * 1e6


def measure() -> list[Result]:
    theirs = {
        _confluent_produce: (_send, _send_many),
        _confluent_produce_keys: (_send_keys,),
        _confluent_consume: (_iterate, _poll_many),
    }
    names = {_send: "send", _send_keys: "send with keys", _send_many: "send_many"}
    names |= {_iterate: "iteration", _poll_many: "poll_many"}
    peers = {_confluent_produce: "confluent produce", _confluent_produce_keys: "confluent produce with keys"}
    ways: list[Way] = [way for peer, ours in theirs.items() for way in (peer, *ours)]
    found: dict[Way, list[tuple[float, float]]] = {way: [] for way in ways}
    with broker(None, "num.partitions=1") as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        for _ in range(ROUNDS):
            for way in ways:
                found[way].append(_microseconds(way, running.bootstrap))
    kind = "compiled" if COMPILED else "pure"
    results = []
    for peer, ours in theirs.items():
        cpu, clock = map(min, zip(*found[peer], strict=True))
        for way in ours:
            our_cpu, our_clock = map(min, zip(*found[way], strict=True))
            peer_name = peers.get(peer, f"confluent consume({BATCH})")
            details = {
                "µs CPU": our_cpu,
                "theirs": cpu,
                "by the clock": clock / our_clock,
                "msg/s": 1e6 / our_clock,
                "theirs/s": 1e6 / clock,
            }
            goal = 1.0 if COMPILED else 0.5
            results.append(Result(f"{names[way]} ({kind}) / {peer_name}", cpu / our_cpu, "", goal, details=details))
    return results
