"""A program of a user, run by the Barnabas of an older release and by this one: it writes, reads, and continues.

    python upgrade_story.py write|read|resume BOOTSTRAP NAME REGISTRY

It prints one JSON object. It uses what both releases have, and imports nothing of the tests.
"""

import json
import sys
import time
from collections.abc import Iterable
from typing import Any
from urllib.request import Request, urlopen

from barnabas import Admin, Consumer, Message, Producer

ORDERS, PARTITIONS, BILLED = 300, 3, 120
PAID, ABORTED = 30, 20
KEYS, VERSIONS = 10, 120
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


class Aborted(Exception):
    """Ends a transaction without committing it."""


class Story:
    """The topics, the group and the subject of a name."""

    def __init__(self, bootstrap: str, name: str, registry: str) -> None:
        self.bootstrap = bootstrap
        self.registry = registry
        self.orders, self.paid, self.table = f"{name}-orders", f"{name}-paid", f"{name}-table"
        self.group, self.transactional_id, self.subject = f"{name}-billing", f"{name}-tx", f"{name}-value"

    def write(self) -> dict[str, Any]:
        with Admin(self.bootstrap) as admin:
            admin.create_topic(self.orders, partitions=PARTITIONS, configs={"retention.ms": "-1"})
            admin.create_topic(self.paid, partitions=1)
            compacted = {"cleanup.policy": "compact", "segment.bytes": "65536", "min.cleanable.dirty.ratio": "0.01"}
            admin.create_topic(self.table, partitions=1, configs=compacted)
        with Producer(self.bootstrap, acks="all", enable_idempotence=True) as producer:
            for number in range(ORDERS):
                producer.send(self.orders, b"%d" % number, key=b"%d" % (number % 17), headers=[("n", b"%d" % number)])
            for version in range(VERSIONS):
                for key in range(KEYS):
                    producer.send(self.table, b"%d" % version + b"." * 600, key=b"%d" % key)
            producer.flush()
        billed = self.bill(BILLED)
        self.pay(0)
        body = json.dumps({"schema": json.dumps(SCHEMA)}).encode()
        self.ask(f"/subjects/{self.subject}/versions", body)
        self.wait_for_compaction()
        return {"billed": billed}

    def pay(self, first: int) -> None:
        """Commit a transaction, and abort the next."""
        with Producer(self.bootstrap, transactional_id=self.transactional_id) as producer:
            producer.init_transactions()
            with producer.transaction():
                for number in range(first, first + PAID):
                    producer.send(self.paid, b"%d" % number)
            try:
                with producer.transaction():
                    for _ in range(ABORTED):
                        producer.send(self.paid, b"aborted")
                    producer.flush()
                    raise Aborted
            except Aborted:
                pass

    def bill(self, most: int) -> list[int]:
        """Read the next messages as a member of the group, up to the end, and commit."""
        billed: list[int] = []
        with Consumer(
            self.bootstrap, group_id=self.group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe(self.orders)
            empty = 0
            while len(billed) < most and empty < 4:
                messages = consumer.poll_many(most - len(billed), 1.0)
                empty = empty + 1 if not messages and consumer.assignment else 0
                billed += numbers(messages)
            consumer.commit()
        return billed

    def wait_for_compaction(self) -> None:
        deadline = time.monotonic() + 120
        while len(self.all_of(self.table)) >= KEYS * VERSIONS:
            if time.monotonic() > deadline:
                raise TimeoutError("nothing was compacted")
            time.sleep(0.2)

    def read(self) -> dict[str, Any]:
        """Return all that an upgrade keeps."""
        places = [(self.orders, number) for number in range(PARTITIONS)]
        with Consumer(self.bootstrap, group_id=self.group, enable_auto_commit=False) as consumer:
            committed = [None if at is None else at.offset for at in consumer.committed(places).values()]
        with Admin(self.bootstrap) as admin:
            (described,) = admin.describe_topics([self.orders])
            overrides = {topic: admin.topic_overrides(topic) for topic in (self.orders, self.table)}
        return {
            "orders": [[m.partition, m.offset, *numbers([m]), m.timestamp_ms] for m in self.all_of(self.orders)],
            "paid": numbers(self.all_of(self.paid)),
            "table": {text(m.key): text(m.value).rstrip(".") for m in self.all_of(self.table)},
            "committed": committed,
            "topic_id": str(described.topic_id),
            "overrides": overrides,
            "schema": self.ask(f"/subjects/{self.subject}/versions/latest"),
        }

    def resume(self) -> dict[str, Any]:
        """Write more, and let the group read what it has not read."""
        with Producer(self.bootstrap, acks="all", enable_idempotence=True) as producer:
            for number in range(ORDERS, 2 * ORDERS):
                producer.send(self.orders, b"%d" % number, key=b"%d" % (number % 17))
        self.pay(PAID)
        return {"billed": self.bill(10 * ORDERS), "paid": numbers(self.all_of(self.paid))}

    def all_of(self, topic: str) -> list[Message]:
        with Consumer(self.bootstrap, isolation_level="read_committed") as consumer:
            consumer.assign(topic, position="earliest")
            return sorted(consumer.messages(stop_at_end=True), key=lambda m: (m.partition, m.offset))

    def ask(self, path: str, body: bytes | None = None) -> Any:
        kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urlopen(Request(f"http://{self.registry}{path}", body, kind), timeout=60) as answer:
            return json.loads(answer.read())


def numbers(messages: Iterable[Message]) -> list[int]:
    return [int(message.value or b"-1") for message in messages]


def text(value: bytes | None) -> str:
    return (value or b"").decode()


if __name__ == "__main__":
    verb, bootstrap, name, registry = sys.argv[1:]
    story = Story(bootstrap, name, registry)
    observed = {"write": story.write, "read": story.read, "resume": story.resume}[verb]()
    sys.stdout.write(f"{json.dumps(observed)}\n")
