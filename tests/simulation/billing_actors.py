"""Orders come in, and clerks write bills: each order with its two halves and a balance in one transaction.

The results that the clerks got, and their decisions, are recorded here.
"""

from typing import Any

from attrs import define, field
from simulation.cluster_checker import Broken

from barnabas import Consumer, Producer
from barnabas.ports.entropy import Entropy
from barnabas.ports.errors import BarnabasError
from barnabas.simulation import Program

ORDERS, BILLS, BALANCES = "orders", "bills", "balances"
GROUP = "clerks"
ORDERS_OF_A_KEY = 6
"""After this number, the last balance of a key has been written, and is soon deep in the log."""
_CLIENT: dict[str, Any] = {"request_timeout_ms": 2000, "retry_backoff_ms": 50, "metadata_max_age_ms": 2000}
_READER: dict[str, Any] = {
    **_CLIENT,
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "default_api_timeout_ms": 5000,
}


class ChangedHisMind(BarnabasError):
    """A clerk drops what he has begun, and starts again."""


@define
class Ledger:
    """Tags name one attempt at one transaction."""

    sold: dict[int, bytes] = field(factory=dict)
    """Acknowledged orders, by offset."""
    offsets: dict[bytes, tuple[bytes, int]] = field(factory=dict)
    """The place of a balance, as its producer learned it: tag and order → (key, offset)."""
    doomed: set[bytes] = field(factory=set)
    """Attempts that their clerk has aborted, or is going to."""
    committed: set[bytes] = field(factory=set)
    """Attempts that a clerk knows to be committed."""
    bills: dict[int, dict[int, tuple[bytes, bytes]]] = field(factory=lambda: {0: {}, 1: {}})
    """The bills that committed readers got, by partition: offset → (order, tag)."""
    attempts: int = 0

    def saw(self, partition: int, offset: int, value: bytes) -> None:
        """A reader of committed messages was given this."""
        order, half, tag = value.split()
        seen = self.bills[partition]
        if int(half) != partition:
            raise Broken(f"bills: half {half!r} stands in partition {partition}")
        if tag in self.doomed:
            raise Broken(f"aborted: {value!r} at {offset} of partition {partition} was aborted, and is shown")
        if seen.setdefault(offset, (order, tag)) != (order, tag):
            raise Broken(f"inconsistent: {offset} of partition {partition} was {seen[offset]}, and is {value!r}")
        if any(other[0] == order and at != offset for at, other in seen.items()):
            raise Broken(f"twice: order {order!r} is billed twice in partition {partition}")


class Seller:
    """Sends orders, each once."""

    def __init__(self, ledger: Ledger) -> None:
        self.active = True
        self._ledger = ledger
        self._number = 0

    def run(self, program: Program) -> None:
        with Producer(program, acks="all", delivery_timeout_ms=20_000, **_CLIENT) as producer:
            while True:
                if self.active:
                    number = self._number
                    self._number += 1
                    sent = producer.send(ORDERS, b"%d" % number).result()
                    self._ledger.sold[sent.offset] = b"%d" % number
                program.sleep(0.1)


class Clerk:
    """Reads orders, writes bills and balances, and commits them with his position; or changes his mind."""

    def __init__(self, ledger: Ledger, entropy: Entropy) -> None:
        self._ledger = ledger
        self._entropy = entropy

    def run(self, program: Program) -> None:
        with (
            Consumer(
                program,
                group_id=GROUP,
                enable_auto_commit=False,
                session_timeout_ms=3000,
                heartbeat_interval_ms=500,
                max_poll_interval_ms=10_000,
                **_READER,
            ) as consumer,
            Producer(
                program,
                transactional_id=program.name,
                transaction_timeout_ms=4000,
                default_api_timeout_ms=15_000,
                delivery_timeout_ms=10_000,
                **_CLIENT,
            ) as producer,
        ):
            consumer.subscribe(ORDERS)
            while True:
                orders = [message.value for message in consumer.poll_many(5, timeout=0.5)]
                if orders:
                    self._bill(program, producer, consumer, [order for order in orders if order is not None])

    def _bill(self, program: Program, producer: Producer, consumer: Consumer, orders: list[bytes]) -> None:
        ledger = self._ledger
        ledger.attempts += 1
        tag = b"%s/%d" % (program.name.encode(), ledger.attempts)
        aborts = self._entropy.below(5) == 0
        if aborts:
            ledger.doomed.add(tag)
        with producer.transaction():
            for order in orders:
                for half in (0, 1):
                    producer.send(BILLS, b"%s %d %s" % (order, half, tag), partition=half)
                key = b"k%d" % (int(order) // ORDERS_OF_A_KEY)
                sent = producer.send(BALANCES, b"%s %s" % (order, tag), key=key, partition=0)
                if self._entropy.below(3) == 0:
                    program.sleep(0.05)
                ledger.offsets[b"%s %s" % (order, tag)] = key, sent.result().offset
            producer.send_offsets(consumer)
            if aborts:
                raise ChangedHisMind("this one not")
        ledger.committed.add(tag)


class Reader:
    """Reads committed bills, over and over."""

    def __init__(self, ledger: Ledger) -> None:
        self.rounds = 0
        self._ledger = ledger

    def run(self, program: Program) -> None:
        with Consumer(program, **_READER) as consumer:
            consumer.assign(BILLS)
            while True:
                found = consumer.poll_many(100, timeout=0.3)
                for message in found:
                    assert message.value is not None
                    self._ledger.saw(message.partition, message.offset, message.value)
                if not found:
                    self.rounds += 1
                    if self.rounds % 4 == 0:
                        for tp in consumer.assignment:
                            consumer.seek(tp, 0)
