"""Consume, transform, produce, exactly once: each order makes one invoice, whatever dies in the middle of it.

    python examples/transactions/exactly_once.py HOST:PORT orders invoices --worker 1

Start several, each with a number of its own, and they share the partitions. Kill one and start it again, and it
continues where its last committed transaction ended. Readers of committed messages never see what it had sent in the
transaction that was not committed: `barnabas consume invoices --isolation-level read_committed`.

How it works: the invoices and the consumer's positions are one transaction. A worker that comes back has the same
`transactional_id`, so that the coordinator first ends what its predecessor left open, and fences it if it still lives;
and the same `group_instance_id`, so that the group gives it the same partitions at once. If others get them meanwhile,
the positions of the late one are refused, and with them its transaction.
"""

import argparse
import time
from typing import Any

from barnabas import AbortNeeded, CommitFailed, Consumer, Producer


def invoice(order: Any, seconds: float) -> dict[str, int]:
    """Return the work: what one message becomes."""
    time.sleep(seconds)
    return {"order": order["number"], "total": order["price"] * order["count"]}


def rewind(consumer: Consumer) -> None:
    """Go back to the committed offsets: the messages of the aborted transaction are read again."""
    for tp, at in consumer.committed().items():
        consumer.seek(tp, "earliest" if at is None else at.offset)


def work(bootstrap: str, source: str, target: str, worker: str, seconds: float) -> None:
    consumer = Consumer(
        bootstrap,
        group_id="invoicing",
        group_instance_id=f"invoicing-{worker}",
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        decoder="json",
    )
    producer = Producer(bootstrap, transactional_id=f"invoicing-{worker}", encoder="json")
    with consumer, producer:
        producer.init_transactions()
        consumer.subscribe(source)
        print("ready", flush=True)
        while True:
            orders = consumer.poll_many(20, timeout=1.0)
            if not orders:
                continue
            try:
                with producer.transaction():
                    for order in orders:
                        producer.send(target, invoice(order.value, seconds), key=order.key)
                    producer.send_offsets(consumer)
            except (AbortNeeded, CommitFailed) as error:
                print("again:", error, flush=True)
                rewind(consumer)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Makes invoices of orders, exactly once.")
    parser.add_argument("bootstrap", metavar="HOST:PORT")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--worker", default="1", help="its number; no two with the same one")
    parser.add_argument("--seconds", type=float, default=0.0, help="that the work on each message takes")
    given = parser.parse_args()
    work(given.bootstrap, given.source, given.target, given.worker, given.seconds)
