"""An hour of the shop under faults, in seconds: is every order billed?

    python examples/simulated_loop/play.py [SEED]

The loop `run_billing`, which would stand in your own package and knows nothing of a simulation, runs on two machines.
They are killed and paused now and then, as brokers are; the network and the disks fail, too. The same seed plays the
same hour: one that fails can be looked into.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from attrs import define, field

from barnabas import Admin, BarnabasError, Bootstrap, Consumer, Producer
from barnabas.simulation import Disasters, Program, World

HOUR = 3600.0
CUSTOMERS = 5


def bill_of(order: bytes | None) -> bytes:
    """Return the bill that a customer gets for an order."""
    content = json.loads(order or b"")
    return json.dumps({"order": content["order"], "total": content["pieces"] * content["price"]}).encode()


def run_billing(bootstrap: Bootstrap, *, group: str = "billing") -> None:
    """Write bills until something fails; a supervisor starts it again.

    An order counts as done only when its bill has arrived: at least once.
    """
    with (
        Producer(bootstrap, acks="all") as producer,
        Consumer(bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe("orders")
        while True:
            orders = consumer.poll_many(100, timeout=1.0)
            for order in orders:
                producer.send("bills", bill_of(order.value), key=order.key)
            if orders:
                producer.confirm()
                consumer.commit()


@define
class Shop:
    """Sends orders, and remembers those that were accepted."""

    accepted: list[int] = field(factory=list)
    sent: int = 0

    def run(self, program: Program) -> None:
        """An order every few seconds; what is not accepted in time is given up."""
        chance = program.world.entropy.child(f"shop {program.lives}")
        with Producer(program, acks="all", delivery_timeout_ms=60_000) as producer:
            while True:
                number, self.sent = self.sent, self.sent + 1
                order = {"order": number, "pieces": 1 + chance.below(9), "price": 100 + chance.below(900)}
                customer = b"customer-%d" % chance.below(CUSTOMERS)
                try:
                    producer.send("orders", json.dumps(order).encode(), key=customer).result()
                except BarnabasError:
                    continue  # it may have come in or not: the customer got no confirmation
                self.accepted.append(number)
                program.sleep(2 + 4 * chance.fraction())


def play(seed: int, run: Callable[[Bootstrap], None] = run_billing, seconds: float = HOUR) -> tuple[Shop, list[int]]:
    """Return the shop, and the orders of all bills, in the order in which these came to stand."""
    shop = Shop()
    settings: dict[str, Any] = {
        "default_replication_factor": 3,
        "min_insync_replicas": 2,
        "replica_fetch_wait_max_ms": 5000,  # idle brokers ask each other so seldom: an hour is to be short
        "offsets_topic_num_partitions": 3,
    }
    with World(seed, brokers=3, **settings) as world:
        with Admin(world.client()) as admin:
            admin.create_topic("orders", partitions=3)
            admin.create_topic("bills", partitions=1)
        world.program("shop", shop.run, restart_after=1)
        for name in ("billing-1", "billing-2"):
            world.program(name, run, restart_after=5)
        with Disasters(world, every=20, lasting=15, spared=["client"]):
            world.run(seconds)
        world.programs["shop"].cut_power()
        world.run(120)
        with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
            consumer.assign("bills")
            bills = [json.loads(message.value or b"") for message in consumer.messages(stop_at_end=True)]
    return shop, [bill["order"] for bill in bills]


def check(shop: Shop, billed: list[int]) -> None:
    """Check the shop's promises. Raises `AssertionError`."""
    forgotten = sorted(set(shop.accepted) - set(billed))
    assert not forgotten, f"orders without a bill: {forgotten}"
    invented = sorted(set(billed) - set(range(shop.sent)))
    assert not invented, f"bills without an order: {invented}"


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    began = time.perf_counter()
    shop, billed = play(seed)
    check(shop, billed)
    twice = len(billed) - len(set(billed))
    took = time.perf_counter() - began
    print(f"seed {seed}: {len(shop.accepted)} orders in an hour, all billed, {twice} of them again; {took:.1f} s")


if __name__ == "__main__":
    main()
