"""Programs that are killed: audited producers, plain and with transactions, and a consumer."""

import random
import signal
import sys
import threading
from typing import Any

from barnabas import AbortNeeded, Producer
from barnabas.audit.auditor import AuditedConsumer
from barnabas.ports.errors import BarnabasError

TOPIC = "views"
WINDOW_MS = 60_000
PROPS = {"interval.ms": 500, "window.ms": WINDOW_MS}


def produce(bootstrap: str, name: str, stop: threading.Event) -> None:
    """Batches, and messages with keys; under a name that begins with t, in transactions, some of them aborted."""
    chance = random.SystemRandom()
    settings: dict[str, Any] = {"transactional_id": name} if name.startswith("t") else {}
    props = {**PROPS, "server": name}
    with Producer(bootstrap, callback_handler="audit", callback_handler_props=props, **settings) as producer:
        while not stop.wait(0.05):
            batch = [b"%d" % number for number in range(chance.randrange(1, 200))]
            try:
                if not settings:
                    producer.send_many(TOPIC, batch)
                    producer.send(TOPIC, b"keyed", key=b"%d" % chance.randrange(100))
                    continue
                with producer.transaction():
                    producer.send_many(TOPIC, batch)
                    if chance.random() < 0.2:
                        producer.flush()
                        raise KeyError
            except (KeyError, AbortNeeded):
                continue


def consume(bootstrap: str, name: str, stop: threading.Event) -> None:
    settings = {"group_instance_id": name, "auto_offset_reset": "earliest"}
    with AuditedConsumer(
        bootstrap, group_id="billing", after="broker-two", window_ms=WINDOW_MS, interval_s=0.5, **settings
    ) as consumer:
        consumer.subscribe(TOPIC)
        while not stop.is_set():
            try:
                consumer.poll_many(timeout=0.2)
            except BarnabasError as error:
                print(f"consumer: {error}", file=sys.stderr, flush=True)
            consumer.commit_if_due()


def main() -> None:
    role, bootstrap, name = sys.argv[1:]
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    {"produce": produce, "consume": consume}[role](bootstrap, name, stop)


if __name__ == "__main__":
    main()
