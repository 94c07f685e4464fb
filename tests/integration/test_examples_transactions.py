"""The example of exactly once: its workers are killed in the middle, and each order makes one invoice."""

import json
import selectors
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.process import PATIENCE_S, broker_process
from support.waiting import wait_for

from barnabas import Admin, Consumer, Producer

pytestmark = [pytest.mark.slow, pytest.mark.process]

ORDERS = 240


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with broker_process(tmp_path / "data", "group.initial.rebalance.delay.ms=0") as broker:
        yield broker.bootstrap


@contextmanager
def worker(program: Path, bootstrap: str, number: int) -> "Iterator[subprocess.Popen[bytes]]":
    """One that has begun. Killed at the end."""
    words = [str(program), bootstrap, "orders", "invoices", "--worker", str(number), "--seconds", "0.005"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                assert selector.select(PATIENCE_S)
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def invoices(bootstrap: str, level: str) -> list[int]:
    with Consumer(bootstrap, isolation_level=level, decoder="json") as consumer:
        consumer.assign("invoices", position="earliest")
        found: list[Any] = [message.value for message in consumer.messages(stop_at_end=True, timeout=PATIENCE_S)]
    return [invoice["order"] for invoice in found]


def test_exactly_once_example_makes_one_invoice_per_order_despite_kills(bootstrap: str, checkout: Path) -> None:
    program = checkout / "examples" / "transactions" / "exactly_once.py"
    with Admin(bootstrap) as admin:
        for topic in ("orders", "invoices"):
            admin.create_topic(topic, partitions=2)

        def sent() -> int:
            return sum(admin.list_offsets({("invoices", 0): "latest", ("invoices", 1): "latest"}).values())

        with Producer(bootstrap) as producer:
            for number in range(ORDERS):
                order = json.dumps({"number": number, "price": 3, "count": number % 7}).encode()
                producer.send("orders", order, b"%d" % number)
        for kill in range(4):
            with worker(program, bootstrap, 1):
                before = sent()
                wait_for(lambda before=before: sent() > before, PATIENCE_S)  # type: ignore[misc]  # has a default
            assert len(invoices(bootstrap, "read_committed")) < ORDERS, f"nothing was left to kill at {kill}"
        with worker(program, bootstrap, 2), worker(program, bootstrap, 1):
            wait_for(lambda: len(invoices(bootstrap, "read_committed")) >= ORDERS, PATIENCE_S * 2, pause_s=0.1)
        assert sorted(invoices(bootstrap, "read_committed")) == list(range(ORDERS))
        assert len(invoices(bootstrap, "read_uncommitted")) > ORDERS, "no kill was within a transaction"
        positions = {tp: at.offset for tp, at in admin.group_offsets("invoicing").items()}
        ends = admin.list_offsets(dict.fromkeys(positions, "latest"))
        assert positions == ends
