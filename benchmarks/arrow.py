"""Tables to a topic and back: values with keys, 4 partitions, against confluent-kafka, which makes the same table.

The values are 100 to 300 bytes long, the keys murmur2-hashed to partitions by both.
"""

import os
import random
import time

import pyarrow as pa
from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka import Producer as OtherProducer
from confluent_kafka import TopicPartition
from harness import MESSAGE_BYTES, Result, RunningBroker, broker

from barnabas import Consumer, Producer

PARTITIONS = 4
MESSAGES = 1_000_000
OTHER_MESSAGES = 250_000
ROUNDS = 3
COLUMNS = ["key", "value", "partition", "offset", "timestamp"]


def _table(messages: int) -> pa.Table:
    rolled = random.Random(1)
    some = [os.urandom(rolled.randint(MESSAGE_BYTES // 2, MESSAGE_BYTES * 3 // 2)) for _ in range(10_000)]
    keys = [b"user-%d" % rolled.randint(0, 100_000) for _ in range(10_000)]
    block = pa.record_batch({"key": keys, "value": some})
    return pa.Table.from_batches([block] * (messages // len(some)))


def _send(running: RunningBroker, table: pa.Table, topic: str) -> tuple[float, float]:
    """Return messages per second, and per second of this process's CPU time."""
    with Producer(running.bootstrap) as producer:
        producer.partitions(topic)
        started, cpu = time.perf_counter(), time.process_time()
        producer.send_arrow(table, topic).result(120)
        return table.num_rows / (time.perf_counter() - started), table.num_rows / (time.process_time() - cpu)


def _other_send(running: RunningBroker, table: pa.Table, topic: str) -> float:
    settings = {"bootstrap.servers": running.bootstrap, "linger.ms": 5, "partitioner": "murmur2_random"}
    producer = OtherProducer({**settings, "queue.buffering.max.messages": 1_000_000})
    producer.list_topics(topic, timeout=30)
    started = time.perf_counter()
    for number, row in enumerate(table.to_pylist()):
        while True:
            try:
                producer.produce(topic, row["value"], row["key"])
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was sent")
    return float(table.num_rows / (time.perf_counter() - started))


def _fetch(running: RunningBroker, topic: str) -> tuple[float, float]:
    with Consumer(running.bootstrap, max_partition_fetch_bytes=4 * 1024 * 1024) as consumer:
        consumer.assign(topic, position="earliest")
        ends = consumer.end_offsets()
        tables = []
        started, cpu = time.perf_counter(), time.process_time()
        while not consumer.reached(ends):
            tables.append(consumer.fetch_arrow(1))
        rows = pa.concat_tables(tables).num_rows
        return rows / (time.perf_counter() - started), rows / (time.process_time() - cpu)


def _other_fetch(running: RunningBroker, topic: str, messages: int) -> float:
    settings = {"bootstrap.servers": running.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = OtherConsumer({**settings, "max.partition.fetch.bytes": 4 * 1024 * 1024})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    tables, found = [], 0
    started = time.perf_counter()
    while found < messages:
        batch = consumer.consume(50_000, 0.1)
        rows = [(m.key(), m.value(), m.partition(), m.offset(), m.timestamp()[1]) for m in batch]
        if rows:
            columns = zip(*rows, strict=True)
            tables.append(
                pa.table(dict(zip(("key", "value", "partition", "offset", "timestamp"), columns, strict=True)))
            )
        found += len(rows)
    rate = pa.concat_tables(tables).num_rows / (time.perf_counter() - started)
    consumer.close()
    return float(rate)


def measure() -> list[Result]:
    table, less = _table(MESSAGES), _table(OTHER_MESSAGES)
    sent, fetched, other_sent, other_fetched = [], [], [], []
    with broker(None, f"num.partitions={PARTITIONS}") as running:
        for number in range(ROUNDS):
            ours, other = f"ours-{number}", f"other-{number}"
            other_sent.append(_other_send(running, less, other))
            sent.append(_send(running, table, ours))
            other_fetched.append(_other_fetch(running, other, OTHER_MESSAGES))
            fetched.append(_fetch(running, ours))
    results = []
    for name, own, others in (("fetch_arrow", fetched, other_fetched), ("send_arrow", sent, other_sent)):
        rate, per_cpu = map(max, zip(*own, strict=True))
        details = {"confluent-kafka/s": max(others), "per CPU s": per_cpu}
        results.append(Result(f"{name}, messages/s", rate, "/s", 1e6, details=details))
    return results


if __name__ == "__main__":
    for result in measure():
        print(result)
