"""One member of a consumer group reads 200-byte messages from four partitions: our `Consumer` and three other clients.

All read the same topic of one broker, each in a process and a group of its own, by turns. The time runs from the first
message to the last, so that joining is not in it. The best of the rounds counts.
"""

import asyncio
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from uuid import uuid4

from harness import MESSAGE_BYTES, Result, broker

from barnabas import Admin, Consumer, Producer

TOPIC = "bench"
PARTITIONS = 4
MESSAGES = 400_000
BATCH = 1000
ROUNDS = 3


class Stopwatch:
    """Runs from the first call to the one with all messages."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._first = 0.0
        self._before = 0
        self.seconds_per_message = 0.0

    def done(self, come: int) -> bool:
        if not self._first:
            self._first, self._before = time.perf_counter(), come
        if come < self._count:
            return False
        self.seconds_per_message = (time.perf_counter() - self._first) / (come - self._before)
        return True


def _ours(bootstrap: str, group: str, watch: Stopwatch) -> None:
    come = 0
    with Consumer(bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(TOPIC)
        for _ in consumer:
            come += 1
            if (come == 1 or come >= MESSAGES) and watch.done(come):
                break


def _ours_in_lists(bootstrap: str, group: str, watch: Stopwatch) -> None:
    come = 0
    with Consumer(bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(TOPIC)
        while True:
            found = len(consumer.poll_many(timeout=1))
            come += found
            if found and watch.done(come):
                break


def _kafka_python(bootstrap: str, group: str, watch: Stopwatch) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    for come, _ in enumerate(consumer, 1):
        if (come == 1 or come >= MESSAGES) and watch.done(come):
            break
    consumer.close()


def _aiokafka(bootstrap: str, group: str, watch: Stopwatch) -> None:
    asyncio.run(_aiokafka_iterated(bootstrap, group, watch))


async def _aiokafka_iterated(bootstrap: str, group: str, watch: Stopwatch) -> None:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    await consumer.start()
    come = 0
    async for _ in consumer:
        come += 1
        if (come == 1 or come >= MESSAGES) and watch.done(come):
            break
    await consumer.stop()


def _aiokafka_lists(bootstrap: str, group: str, watch: Stopwatch) -> None:
    asyncio.run(_aiokafka_in_lists(bootstrap, group, watch))


async def _aiokafka_in_lists(bootstrap: str, group: str, watch: Stopwatch) -> None:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    await consumer.start()
    come = 0
    while True:
        found = sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=500)).values()))
        come += found
        if found and watch.done(come):
            break
    await consumer.stop()


def _librdkafka(bootstrap: str, group: str, watch: Stopwatch) -> None:
    from confluent_kafka import Consumer as Confluent

    consumer = Confluent({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    come = 0
    while True:
        found = len(consumer.consume(500, 1.0))
        come += found
        if found and watch.done(come):
            break
    consumer.close()


CLIENTS: dict[str, Callable[[str, str, Stopwatch], None]] = {
    "Consumer": _ours,
    "Consumer, lists": _ours_in_lists,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "aiokafka, lists": _aiokafka_lists,
    "librdkafka, lists": _librdkafka,
}


def _run(client: str, bootstrap: str) -> float:
    """Return messages per second of that client in a process of its own."""
    command = [sys.executable, __file__, client, bootstrap]
    answer = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, timeout=300)
    if answer.returncode:
        raise RuntimeError(f"{client} failed with exit code {answer.returncode}")
    return 1 / float(json.loads(answer.stdout))


def _play(client: str, bootstrap: str) -> None:
    """Run one client in its own process, and print its times."""
    warnings.simplefilter("ignore")  # kafka-python warns of its own use of the standard library
    watch = Stopwatch(MESSAGES)
    CLIENTS[client](bootstrap, f"bench-{uuid4()}", watch)
    print(json.dumps(watch.seconds_per_message))


def measure() -> Iterable[Result]:
    rates = dict.fromkeys(CLIENTS, 0.0)
    with broker(None, "group.initial.rebalance.delay.ms=0") as running:
        with Admin(running.bootstrap) as admin, Producer(running.bootstrap) as producer:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
            for number in range(MESSAGES // BATCH):
                producer.send_many(TOPIC, [bytes(MESSAGE_BYTES)] * BATCH, partition=number % PARTITIONS)
            producer.flush()
        for _ in range(ROUNDS):
            for client in CLIENTS:
                rates[client] = max(rates[client], _run(client, running.bootstrap))
    for ours, theirs, bound in (
        ("Consumer", "kafka-python", 5.0),
        ("Consumer", "aiokafka", 1.0),
        ("Consumer, lists", "aiokafka, lists", 1.0),
        ("Consumer, lists", "librdkafka, lists", None),
    ):
        details = {"ours msg/s": rates[ours], "theirs msg/s": rates[theirs]}
        yield Result(f"group, {ours} / {theirs}", rates[ours] / rates[theirs], bound=bound, details=details)


if __name__ == "__main__":
    if sys.argv[1:]:
        _play(*sys.argv[1:])
    else:
        for result in measure():
            print(result)
