"""A process that makes invoices of orders in transactions, as a member of a group: `invoice_worker.py HOSTS NAME`.

It recreates a producer that can no longer be used.
"""

import sys
import time
from typing import Any

from barnabas import AbortNeeded, CommitFailed, Consumer, Producer
from barnabas.ports.errors import BarnabasError

_QUICK: dict[str, Any] = {"request_timeout_ms": 2000, "retry_backoff_ms": 10}


def _work(hosts: str, name: str) -> None:
    consumer = Consumer(
        hosts,
        group_id="invoicing",
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        session_timeout_ms=1000,
        heartbeat_interval_ms=100,
        **_QUICK,
    )
    with consumer, Producer(hosts, transactional_id=name, transaction_timeout_ms=5000, **_QUICK) as producer:
        producer.init_transactions()
        consumer.subscribe("orders")
        while True:
            orders = consumer.poll_many(10, timeout=0.5)
            try:
                with producer.transaction():
                    for order in orders:
                        producer.send("invoices", order.value, order.key)
                        time.sleep(0.002)  # so that what happens to it happens within a transaction
                    producer.send_offsets(consumer)
            except (AbortNeeded, CommitFailed) as error:
                print(f"{name} again: {error}", flush=True)
                for tp, at in consumer.committed().items():
                    consumer.seek(tp, "earliest" if at is None else at.offset)


def _main() -> None:
    while True:
        try:
            _work(*sys.argv[1:])
        except BarnabasError as error:
            print(f"{sys.argv[2]} anew: {error}", flush=True)


if __name__ == "__main__":
    _main()
